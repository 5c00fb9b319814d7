/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_sums.h -- checksums of whole parameters, as a rank that sends what it shows and the one that is sent it have them.
 */
#ifndef WORKER_UPDATE_COPY_SUMS_H
#define WORKER_UPDATE_COPY_SUMS_H

#include "worker/epoch/epoch.h"

/* sums[first ..] of so many parameters of that copy, where readers read them, or, landed, where peers wrote them. */
int copy_sums(const struct epoch *epoch, uint32_t copy, bool landed, size_t first, size_t count, uint64_t *sums,
	      struct error *error);

#endif
