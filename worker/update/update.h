/* SPDX-License-Identifier: Apache-2.0
 *
 * update.h -- the payloads that the two sides of an update exchange, with signals over their
 * endpoints; no controller is in this path.
 *
 *   inference rank                                 trainer
 *   update_wait(v): opens its memory
 *       ACCEPT opening 4, versions v..v ─────────► update_begin(v): all targets accept v
 *                                                   writes ...
 *       counts, verifies, publishes ◄───────────── END opening 4, version v, digest, bytes
 *
 * An opening is one permission of one trainer to write one version. The trainer uses it up with
 * its END or ABORT, and no new one is given before that was seen; until it is used, its range of
 * versions may be changed by another ACCEPT with the same number. So when every trainer's END
 * for version v was counted, no trainer holds a permission and nobody can write: that is what
 * makes publishing v safe, whatever was given up before. A trainer that ends an older version
 * late has only used up its permission, gets the next one, and must end the version waited for.
 *
 * Payloads are the structs themselves: both ends run on little-endian machines. What comes is
 * checked by update_payload.h before anything is done with it.
 */
#ifndef WORKER_UPDATE_UPDATE_H
#define WORKER_UPDATE_UPDATE_H

#include "job/digest.h"
#include "transport/transport.h"
#include <stdint.h>

enum update_tag {
	UPDATE_ACCEPT = 1, /* inference rank -> trainer */
	UPDATE_END = 2,    /* trainer -> inference rank */
	UPDATE_ABORT = 3
};

struct update_accept {
	uint64_t opening;          /* from 1, per pair */
	uint64_t min_version, max_version;
	struct digest plan;
	uint64_t sums_offset;      /* where this trainer's checksums go, and in which region */
	uint32_t sums_region;      /* UINT32_MAX: no checksums */
	uint32_t copy;
};

struct update_end {
	uint64_t opening, version;
	struct digest plan;
	uint64_t bytes;
	uint32_t pieces, sums;     /* sums: checksums written, 0 or pieces */
};

struct update_abort {
	uint64_t opening, version;
	char why[80];              /* terminated, cut when longer */
};

_Static_assert(sizeof(struct update_accept) == 56, "struct update_accept is a wire format");
_Static_assert(sizeof(struct update_end) == 48, "struct update_end is a wire format");
_Static_assert(sizeof(struct update_abort) == TRANSPORT_PAYLOAD_BYTES,
	       "struct update_abort is a wire format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payloads are little-endian");

#endif
