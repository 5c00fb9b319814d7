/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h -- where the parameters of an inference rank lie: a few large regions instead of one
 * region a parameter, because every region costs a file descriptor, a mapping in each trainer
 * and a record in each endpoint message.
 *
 *   region 0  |param 0 ....|param 1|param 2 ......|      param 0, 2: 4096-aligned (large)
 *   region 1  |param 3 ...........................|      param 1: 64-aligned (small)
 */
#ifndef WORKER_EPOCH_PLACE_H
#define WORKER_EPOCH_PLACE_H

#include "base/error.h"
#include "job/layout.h"
#include "wire/message.h"

#define PLACE_REGION_BYTES (2ull << 30) /* a region ends at the first parameter past this */

/* Fills places[0 .. param_count) with region numbers from first_region, and *bytes with an
 * array of region sizes (memory_free), *count of them. */
int place_params(const struct layout *layout, uint64_t region_bytes, uint32_t first_region,
		 struct param_place *places, uint64_t **bytes, uint32_t *count,
		 struct error *error);

#endif
