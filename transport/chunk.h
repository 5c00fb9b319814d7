/* SPDX-License-Identifier: Apache-2.0
 *
 * chunk.h -- cuts one write into chunks: pure arithmetic, no state but a cursor.
 *
 *   remote address    |....4K....|....4K....|....4K....|
 *   write             .....[=================]..........     chunk_bytes 4K, cut at 4K
 *   chunks                 [====][=========][==]             inner borders on 4 KiB
 *
 * Every chunk but the last ends where the REMOTE offset is a multiple of the cut, so that no
 * device page is touched by two chunks. Zero bytes gives no chunk.
 */
#ifndef TRANSPORT_CHUNK_H
#define TRANSPORT_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#define CHUNK_CUT_BYTES 4096u

struct chunk_cursor {
	uint64_t remote_offset, bytes_left, source_offset;
	uint64_t chunk_bytes; /* at least 1; below the cut, borders are not aligned */
};

struct chunk {
	uint64_t source_offset, remote_offset, bytes;
};

void chunk_begin(struct chunk_cursor *cursor, uint64_t remote_offset, uint64_t bytes,
		 uint64_t chunk_bytes);
bool chunk_next(struct chunk_cursor *cursor, struct chunk *chunk); /* false at the end */
uint64_t chunk_count(uint64_t remote_offset, uint64_t bytes, uint64_t chunk_bytes);

#endif
