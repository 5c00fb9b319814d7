/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_copy.c -- parts that are copies, of one piece or of several that lie beside each other.
 *
 *   dense   bytes as they lie, chunk by chunk
 *   lines   rows, targets and part all begin at lines: straight from row to row
 *   blocks  anything else: each column's rows are gathered in a block that stays in the cache,
 *           and the blocks streamed out, column by column
 *   alone   one column into one target and no sum: copy_rows()
 *
 * Columns go through lines and blocks together, in the order in which they lie, so that memory is
 * read row by row. All of it is summed on the way (pack/copy_sum.h).
 */
#include "pack/pack_steps.h"

#include "base/copy.h"
#include "pack/copy_sum.h"

#include <string.h>

#define CHUNK_BYTES	 8192u	 /* its lines are still in the first cache for the next target */
#define BLOCKS_BYTES	 131072u /* of all columns together */
#define BLOCK_BYTES	 16384u	 /* of one column at most */
#define ASK_AHEAD_BYTES	 8192u
#define BLOCKS_BYTES_MIN 2048u
#define LONG_ROW_BYTES	 2048u

_Static_assert(BLOCKS_BYTES / PACK_COLUMNS_MAX >= BLOCKS_BYTES_MIN,
	       "a column's block is too small");

/* A column group, in the order in which its columns lie: equal rows, an equal part. */
struct group {
	size_t count;
	uint64_t row_bytes, rows, stride_bytes; /* of each */
	uint64_t from, bytes;
	const struct pack_part *parts[PACK_COLUMNS_MAX];
	struct copy_column copies[PACK_COLUMNS_MAX];
	struct copy_sum sums[PACK_COLUMNS_MAX];
};

/* Bytes [from, from + bytes) of one column, through the cache. */
static void gather(unsigned char *out, const struct group *group, size_t column, uint64_t from,
		   uint64_t bytes)
{
	uint64_t row = from / group->row_bytes, skip = from % group->row_bytes;

	for (uint64_t n; bytes; bytes -= n, out += n, skip = 0, row++) {
		n = least(group->row_bytes - skip, bytes);
		memcpy(out, group->copies[column].source + row * group->stride_bytes + skip, n);
	}
}

/* The next bytes of one column, `done` after its part's start, to its sum and targets. */
static void emit(const struct group *group, size_t column, uint64_t done,
		 const unsigned char *bytes, uint64_t count)
{
	const struct copy_column *copy = &group->copies[column];

	copy_sum_bytes(copy->sum,
		       copy->target_count ? (unsigned char *)copy->targets[0] + done : NULL, bytes,
		       count);
	for (size_t i = 1; i < copy->target_count; i++)
		copy_sum_bytes(NULL, (unsigned char *)copy->targets[i] + done, bytes, count);
}

static void copy_dense(const struct group *group, size_t column)
{
	const unsigned char *source = group->copies[column].source + group->from;
	uint64_t chunk = group->copies[column].target_count > 1 ? CHUNK_BYTES : group->bytes;

	for (uint64_t done = 0, n; done < group->bytes; done += n) {
		n = least(chunk, group->bytes - done);
		emit(group, column, done, source + done, n);
	}
}

/* The rest of a row, whole ones, the beginning of one. */
static void copy_alone(const struct group *group)
{
	const unsigned char *row =
		group->copies[0].source + group->from / group->row_bytes * group->stride_bytes;
	uint64_t skip = group->from % group->row_bytes, left = group->bytes, whole;
	unsigned char *target = group->copies[0].targets[0];

	if (skip) {
		uint64_t n = least(group->row_bytes - skip, left);

		copy_bytes(target, row + skip, n);
		target += n;
		left -= n;
		row += group->stride_bytes;
	}
	whole = left / group->row_bytes;
	if (whole)
		copy_rows(target, row, whole, group->row_bytes, group->stride_bytes);
	copy_bytes(target + whole * group->row_bytes, row + whole * group->stride_bytes,
		   left - whole * group->row_bytes);
}

/* Rows of a part: the rest of one, whole ones, the beginning of one. */
static void copy_in_lines(const struct group *group)
{
	/* the last line, even when it is whole, goes with the rest: the sums want it so */
	uint64_t end = group->from + (group->bytes - 1) / COPY_LINE_BYTES * COPY_LINE_BYTES;

	for (uint64_t at = group->from, n; at < end; at += n) {
		uint64_t skip = at % group->row_bytes, rows = (end - at) / group->row_bytes;
		struct copy_grid grid = {
			.source = at / group->row_bytes * group->stride_bytes + skip,
			.target = at - group->from,
			.rows = 1,
			.stride_bytes = group->stride_bytes,
		};

		if (skip || !rows) {
			n = least(group->row_bytes - skip, end - at);
		} else {
			n = group->row_bytes;
			grid.rows = rows;
		}
		grid.row_lines = n / COPY_LINE_BYTES;
		copy_columns(group->copies, group->count, &grid);
		n *= grid.rows;
	}
	for (size_t i = 0; i < group->count; i++) {
		unsigned char rest[COPY_LINE_BYTES];
		uint64_t bytes = group->from + group->bytes - end;

		gather(rest, group, i, end, bytes);
		for (size_t t = 0; t < group->copies[i].target_count; t++)
			memcpy((unsigned char *)group->copies[i].targets[t] + (end - group->from),
			       rest, bytes);
	}
}

static void copy_in_blocks(const struct group *group)
{
	_Alignas(COPY_LINE_BYTES) unsigned char blocks[BLOCKS_BYTES];
	uint64_t block_bytes =
		least(BLOCKS_BYTES / group->count, BLOCK_BYTES) / COPY_LINE_BYTES * COPY_LINE_BYTES;
	uint64_t ahead =
		(ASK_AHEAD_BYTES / group->count / group->row_bytes + 1) * group->stride_bytes;

	for (uint64_t done = 0, bytes; done < group->bytes; done += bytes) {
		bytes = least(block_bytes, group->bytes - done);
		for (uint64_t filled = 0, n; filled < bytes; filled += n) {
			uint64_t at = group->from + done + filled, skip = at % group->row_bytes;
			uint64_t source = at / group->row_bytes * group->stride_bytes + skip;

			n = least(group->row_bytes - skip, bytes - filled);
			for (size_t i = 0; i < group->count; i++) {
				const unsigned char *row = group->copies[i].source + source;

				for (uint64_t line = 0; line < n; line += COPY_LINE_BYTES)
					__builtin_prefetch(row + ahead + line);
				memcpy(blocks + i * block_bytes + filled, row, n);
			}
		}
		for (size_t i = 0; i < group->count; i++)
			emit(group, i, done, blocks + i * block_bytes, bytes);
	}
}

/* Too short to be summed by lines, or anything else worth a thought. */
static void copy_short(const struct group *group, size_t column)
{
	unsigned char bytes[COPY_SUM_BYTES_MIN];
	const struct pack_part *part = group->parts[column];

	gather(bytes, group, column, group->from, group->bytes);
	for (size_t i = 0; i < part->target_count && group->bytes; i++)
		memcpy(part->targets[i], bytes, group->bytes);
	if (part->sum)
		*part->sum = checksum64(bytes, group->bytes);
}

static bool fits_lines(const struct group *group)
{
	if (group->row_bytes % COPY_LINE_BYTES || group->from % COPY_LINE_BYTES)
		return false;
	for (size_t i = 0; i < group->count; i++)
		for (size_t t = 0; t < group->copies[i].target_count; t++)
			if ((uintptr_t)group->copies[i].targets[t] % COPY_LINE_BYTES)
				return false;
	return true;
}

/* One column of long rows that fit gains from lines asked for one by one, as groups do. */
static bool better_alone(const struct group *group)
{
	return group->count == 1 && group->copies[0].target_count == 1 && !group->copies[0].sum &&
	       (group->rows == 1 || group->row_bytes < LONG_ROW_BYTES || !fits_lines(group));
}

static void group_init(struct group *group, const struct pack_column *from, size_t count)
{
	const struct runs *runs = &from[0].pack->runs;
	const struct pack_column *sorted[PACK_COLUMNS_MAX];
	bool dense = runs->rows == 1 || runs->stride_bytes == runs->row_bytes;

	for (size_t i = 0, k; i < count; i++) {
		for (k = i; k && sorted[k - 1]->pack->runs.offset > from[i].pack->runs.offset; k--)
			sorted[k] = sorted[k - 1];
		sorted[k] = &from[i];
	}
	group->count = count;
	group->rows = dense ? 1 : runs->rows;
	group->row_bytes = dense ? runs->rows * runs->row_bytes : runs->row_bytes;
	group->stride_bytes = runs->stride_bytes;
	group->from = from[0].part.from;
	group->bytes = from[0].part.bytes;
	for (size_t i = 0; i < count; i++) {
		const struct pack_part *part = &sorted[i]->part;

		group->parts[i] = part;
		group->copies[i] = (struct copy_column){
			.source = (const unsigned char *)part->data + sorted[i]->pack->runs.offset,
			.targets = part->targets,
			.target_count = part->target_count,
			.sum = part->sum ? &group->sums[i] : NULL,
		};
		if (part->sum)
			copy_sum_begin(&group->sums[i], part->bytes);
	}
}

void pack_run_columns(const struct pack_column *from, size_t count)
{
	struct group group; /* not cleared: what count says is set */

	if (!count)
		return;
	group_init(&group, from, count);
	if (group.bytes < COPY_SUM_BYTES_MIN) {
		for (size_t i = 0; i < count; i++)
			copy_short(&group, i);
		return;
	}
	if (better_alone(&group))
		copy_alone(&group);
	else if (group.rows == 1)
		for (size_t i = 0; i < count; i++)
			copy_dense(&group, i);
	else if (fits_lines(&group))
		copy_in_lines(&group);
	else
		copy_in_blocks(&group);
	for (size_t i = 0; i < count; i++) {
		unsigned char last[COPY_LINE_BYTES];

		if (!group.copies[i].sum)
			continue;
		gather(last, &group, i, group.from + group.bytes - COPY_LINE_BYTES,
		       COPY_LINE_BYTES);
		*group.parts[i]->sum = copy_sum_end(group.copies[i].sum, last);
	}
}
