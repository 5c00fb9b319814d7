/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.h -- from a source box to its dense bytes, whole or any part of them.
 *
 *   source rows    |..aaaa..|..bbbb..|..cccc..|      runs: 3 rows of 4, stride 8, offset 2
 *   dense bytes    aaaabbbbcccc
 *   pack 3..10        abbbbcc                        a part: tail of a row, rows, head of a row
 */
#ifndef WORKER_REPLICA_PACK_H
#define WORKER_REPLICA_PACK_H

#include "common/box.h"
#include <stddef.h>

/* Dense bytes [from, from + bytes) of the box into target. `source` is the first byte of the
 * tensor that the runs count from. Visible to others after copy_fence(). */
void pack_range(void *target, const void *source, const struct runs *runs, uint64_t from,
		uint64_t bytes);
/* checksum64() of all dense bytes of the box, taken from the source, not from a packed copy:
 * what goes wrong between source and target is then found at the target. */
uint64_t pack_checksum(const void *source, const struct runs *runs);

#endif
