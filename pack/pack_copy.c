/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_copy.c -- parts that are copies, of one piece or of several that lie beside each other.
 *
 *   dense   bytes as they lie, chunk by chunk
 *   lines   rows, targets and part all begin at lines: straight from row to row
 *   blocks  anything else: each lane's rows are gathered in a block that stays in the cache,
 *           and the blocks streamed out, lane by lane
 *   alone   one lane into one target and no sum: copy_rows()
 *
 * Lanes go through lines and blocks together, in the order in which they lie, so that memory is read
 * row by row. All of it is summed on the way (pack/copy_sum.h).
 */
#include "pack/pack_steps.h"

#include "base/copy.h"
#include "pack/copy_sum.h"

#include <string.h>

#define CHUNK_BYTES	 8192u	 /* its lines are still in the first cache for the next target */
#define BLOCKS_BYTES	 131072u /* of all lanes together */
#define BLOCK_BYTES	 16384u	 /* of one lane at most */
#define ASK_AHEAD_BYTES	 8192u
#define BLOCKS_BYTES_MIN 2048u
#define LONG_ROW_BYTES	 2048u

_Static_assert(BLOCKS_BYTES / PACK_LANES_MAX >= BLOCKS_BYTES_MIN, "a lane's block is too small");

/* Lanes in the order in which they lie: equal rows, an equal part. */
struct lanes {
	size_t count;
	uint64_t row_bytes, rows, stride_bytes; /* of each */
	uint64_t from, bytes;
	const struct pack_part *parts[PACK_LANES_MAX];
	struct copy_lane copies[PACK_LANES_MAX];
	struct copy_sum sums[PACK_LANES_MAX];
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Bytes [from, from + bytes) of one lane, through the cache. */
static void gather(unsigned char *out, const struct lanes *lanes, size_t lane, uint64_t from,
		   uint64_t bytes)
{
	uint64_t row = from / lanes->row_bytes, skip = from % lanes->row_bytes;

	for (uint64_t n; bytes; bytes -= n, out += n, skip = 0, row++) {
		n = least(lanes->row_bytes - skip, bytes);
		memcpy(out, lanes->copies[lane].source + row * lanes->stride_bytes + skip, n);
	}
}

/* The next bytes of one lane, `done` after its part's start, to its sum and targets. */
static void give(const struct lanes *lanes, size_t lane, uint64_t done, const unsigned char *bytes,
		 uint64_t count)
{
	const struct copy_lane *copy = &lanes->copies[lane];

	copy_sum_bytes(copy->sum,
		       copy->target_count ? (unsigned char *)copy->targets[0] + done : NULL, bytes,
		       count);
	for (size_t i = 1; i < copy->target_count; i++)
		copy_sum_bytes(NULL, (unsigned char *)copy->targets[i] + done, bytes, count);
}

static void copy_dense(const struct lanes *lanes, size_t lane)
{
	const unsigned char *source = lanes->copies[lane].source + lanes->from;
	uint64_t chunk = lanes->copies[lane].target_count > 1 ? CHUNK_BYTES : lanes->bytes;

	for (uint64_t done = 0, n; done < lanes->bytes; done += n) {
		n = least(chunk, lanes->bytes - done);
		give(lanes, lane, done, source + done, n);
	}
}

/* The rest of a row, whole ones, the beginning of one. */
static void copy_alone(const struct lanes *lanes)
{
	const unsigned char *row =
		lanes->copies[0].source + lanes->from / lanes->row_bytes * lanes->stride_bytes;
	uint64_t skip = lanes->from % lanes->row_bytes, left = lanes->bytes, whole;
	unsigned char *target = lanes->copies[0].targets[0];

	if (skip) {
		uint64_t n = least(lanes->row_bytes - skip, left);

		copy_bytes(target, row + skip, n);
		target += n;
		left -= n;
		row += lanes->stride_bytes;
	}
	whole = left / lanes->row_bytes;
	if (whole)
		copy_rows(target, row, whole, lanes->row_bytes, lanes->stride_bytes);
	copy_bytes(target + whole * lanes->row_bytes, row + whole * lanes->stride_bytes,
		   left - whole * lanes->row_bytes);
}

/* Rows of a part: the rest of one, whole ones, the beginning of one. */
static void copy_in_lines(const struct lanes *lanes)
{
	/* the last line, even when it is whole, goes with the rest: the sums want it so */
	uint64_t end = lanes->from + (lanes->bytes - 1) / COPY_LINE_BYTES * COPY_LINE_BYTES;

	for (uint64_t at = lanes->from, n; at < end; at += n) {
		uint64_t skip = at % lanes->row_bytes, rows = (end - at) / lanes->row_bytes;
		struct copy_grid grid = {
			.source = at / lanes->row_bytes * lanes->stride_bytes + skip,
			.target = at - lanes->from,
			.rows = 1,
			.stride_bytes = lanes->stride_bytes,
		};

		if (skip || !rows) {
			n = least(lanes->row_bytes - skip, end - at);
		} else {
			n = lanes->row_bytes;
			grid.rows = rows;
		}
		grid.row_lines = n / COPY_LINE_BYTES;
		copy_lanes(lanes->copies, lanes->count, &grid);
		n *= grid.rows;
	}
	for (size_t i = 0; i < lanes->count; i++) {
		unsigned char rest[COPY_LINE_BYTES];
		uint64_t bytes = lanes->from + lanes->bytes - end;

		gather(rest, lanes, i, end, bytes);
		for (size_t t = 0; t < lanes->copies[i].target_count; t++)
			memcpy((unsigned char *)lanes->copies[i].targets[t] + (end - lanes->from),
			       rest, bytes);
	}
}

static void copy_in_blocks(const struct lanes *lanes)
{
	_Alignas(COPY_LINE_BYTES) unsigned char blocks[BLOCKS_BYTES];
	uint64_t block_bytes =
		least(BLOCKS_BYTES / lanes->count, BLOCK_BYTES) / COPY_LINE_BYTES * COPY_LINE_BYTES;
	uint64_t ahead =
		(ASK_AHEAD_BYTES / lanes->count / lanes->row_bytes + 1) * lanes->stride_bytes;

	for (uint64_t done = 0, bytes; done < lanes->bytes; done += bytes) {
		bytes = least(block_bytes, lanes->bytes - done);
		for (uint64_t filled = 0, n; filled < bytes; filled += n) {
			uint64_t at = lanes->from + done + filled, skip = at % lanes->row_bytes;
			uint64_t source = at / lanes->row_bytes * lanes->stride_bytes + skip;

			n = least(lanes->row_bytes - skip, bytes - filled);
			for (size_t i = 0; i < lanes->count; i++) {
				const unsigned char *row = lanes->copies[i].source + source;

				for (uint64_t line = 0; line < n; line += COPY_LINE_BYTES)
					__builtin_prefetch(row + ahead + line);
				memcpy(blocks + i * block_bytes + filled, row, n);
			}
		}
		for (size_t i = 0; i < lanes->count; i++)
			give(lanes, i, done, blocks + i * block_bytes, bytes);
	}
}

/* Too short to be summed by lines, or anything else worth a thought. */
static void copy_short(const struct lanes *lanes, size_t lane)
{
	unsigned char bytes[COPY_SUM_BYTES_MIN];
	const struct pack_part *part = lanes->parts[lane];

	gather(bytes, lanes, lane, lanes->from, lanes->bytes);
	for (size_t i = 0; i < part->target_count && lanes->bytes; i++)
		memcpy(part->targets[i], bytes, lanes->bytes);
	if (part->sum)
		*part->sum = checksum64(bytes, lanes->bytes);
}

static bool fits_lines(const struct lanes *lanes)
{
	if (lanes->row_bytes % COPY_LINE_BYTES || lanes->from % COPY_LINE_BYTES)
		return false;
	for (size_t i = 0; i < lanes->count; i++)
		for (size_t t = 0; t < lanes->copies[i].target_count; t++)
			if ((uintptr_t)lanes->copies[i].targets[t] % COPY_LINE_BYTES)
				return false;
	return true;
}

/* One lane of long rows that fit gains from lines asked for one by one, as lanes do. */
static bool better_alone(const struct lanes *lanes)
{
	return lanes->count == 1 && lanes->copies[0].target_count == 1 && !lanes->copies[0].sum &&
	       (lanes->rows == 1 || lanes->row_bytes < LONG_ROW_BYTES || !fits_lines(lanes));
}

static void lanes_init(struct lanes *lanes, const struct pack_lane *from, size_t count)
{
	const struct runs *runs = &from[0].pack->runs;
	const struct pack_lane *sorted[PACK_LANES_MAX];
	bool dense = runs->rows == 1 || runs->stride_bytes == runs->row_bytes;

	for (size_t i = 0, k; i < count; i++) {
		for (k = i; k && sorted[k - 1]->pack->runs.offset > from[i].pack->runs.offset; k--)
			sorted[k] = sorted[k - 1];
		sorted[k] = &from[i];
	}
	lanes->count = count;
	lanes->rows = dense ? 1 : runs->rows;
	lanes->row_bytes = dense ? runs->rows * runs->row_bytes : runs->row_bytes;
	lanes->stride_bytes = runs->stride_bytes;
	lanes->from = from[0].part.from;
	lanes->bytes = from[0].part.bytes;
	for (size_t i = 0; i < count; i++) {
		const struct pack_part *part = &sorted[i]->part;

		lanes->parts[i] = part;
		lanes->copies[i] = (struct copy_lane){
			.source = (const unsigned char *)part->data + sorted[i]->pack->runs.offset,
			.targets = part->targets,
			.target_count = part->target_count,
			.sum = part->sum ? &lanes->sums[i] : NULL,
		};
		if (part->sum)
			copy_sum_begin(&lanes->sums[i], part->bytes);
	}
}

void pack_copies(const struct pack_lane *from, size_t count)
{
	struct lanes lanes; /* not cleared: what count says is set */

	lanes_init(&lanes, from, count);
	if (lanes.bytes < COPY_SUM_BYTES_MIN) {
		for (size_t i = 0; i < count; i++)
			copy_short(&lanes, i);
		return;
	}
	if (better_alone(&lanes))
		copy_alone(&lanes);
	else if (lanes.rows == 1)
		for (size_t i = 0; i < count; i++)
			copy_dense(&lanes, i);
	else if (fits_lines(&lanes))
		copy_in_lines(&lanes);
	else
		copy_in_blocks(&lanes);
	for (size_t i = 0; i < count; i++) {
		unsigned char last[COPY_LINE_BYTES];

		if (!lanes.copies[i].sum)
			continue;
		gather(last, &lanes, i, lanes.from + lanes.bytes - COPY_LINE_BYTES,
		       COPY_LINE_BYTES);
		*lanes.parts[i]->sum = copy_sum_end(lanes.copies[i].sum, last);
	}
}
