/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/chunk.h"

void chunk_begin(struct chunk_cursor *cursor, uint64_t remote_offset, uint64_t bytes,
		 uint64_t chunk_bytes)
{
	cursor->remote_offset = remote_offset;
	cursor->bytes_left = bytes;
	cursor->source_offset = 0;
	cursor->chunk_bytes = chunk_bytes ? chunk_bytes : 1;
}

/* Bytes of the chunk that starts at remote_offset, if the write were endless: up to the
 * last cut inside the limit, or the limit itself when no cut lies inside it. */
static uint64_t reach(uint64_t remote_offset, uint64_t chunk_bytes)
{
	uint64_t into = remote_offset % CHUNK_CUT_BYTES;
	uint64_t room = CHUNK_CUT_BYTES - into; /* to the next cut */

	if (chunk_bytes < CHUNK_CUT_BYTES)
		return chunk_bytes;
	return room + (chunk_bytes - room) / CHUNK_CUT_BYTES * CHUNK_CUT_BYTES;
}

bool chunk_next(struct chunk_cursor *cursor, struct chunk *chunk)
{
	uint64_t bytes;

	if (!cursor->bytes_left)
		return false;
	bytes = reach(cursor->remote_offset, cursor->chunk_bytes);
	if (bytes > cursor->bytes_left)
		bytes = cursor->bytes_left;
	chunk->source_offset = cursor->source_offset;
	chunk->remote_offset = cursor->remote_offset;
	chunk->bytes = bytes;
	cursor->remote_offset += bytes;
	cursor->source_offset += bytes;
	cursor->bytes_left -= bytes;
	return true;
}

/* In closed form, since a count of 2^62 / 1 is asked for as well: after the first chunk
 * every start is on a cut, so all later chunks reach equally far. */
uint64_t chunk_count(uint64_t remote_offset, uint64_t bytes, uint64_t chunk_bytes)
{
	uint64_t first, each;

	if (!chunk_bytes)
		chunk_bytes = 1;
	first = reach(remote_offset, chunk_bytes);
	if (!bytes)
		return 0;
	if (bytes <= first)
		return 1;
	each = chunk_bytes < CHUNK_CUT_BYTES ? chunk_bytes
					     : chunk_bytes - chunk_bytes % CHUNK_CUT_BYTES;
	return 1 + (bytes - first - 1) / each + 1;
}
