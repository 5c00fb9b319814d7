/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h -- the referee of weft_verify.
 */
#ifndef WORKER_REFEREE_VERIFY_H
#define WORKER_REFEREE_VERIFY_H

#include "base/error.h"
#include <stdint.h>

struct checkpoint;
struct layout;
struct params;
struct versions;

/* An inference rank, as far as a referee looks at it. */
struct verify_rank {
	const struct layout *layout;
	const struct params *params;
	struct versions *versions;
};

/* Every byte of the rank's parameters for `version`. ERROR_CHECKSUM names parameter, offset and both
 * bytes; ERROR_STATE: the version is not here, or was overwritten meanwhile. */
int verify_version(const struct verify_rank *rank, const struct checkpoint *checkpoint,
		   uint64_t version, uint64_t *bytes_compared, struct error *error);

#endif
