/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_run.c -- the work. A part is made chunk by chunk; a chunk stays in the first caches while
 * it is summed and goes from there to its targets:
 *
 *   source ──► chunk (gathered, converted; the source itself where it is contiguous)
 *                └─► sum ─► target 0, 1, .. (non-temporal)
 */
#include "worker/replica/pack_steps.h"

#include "common/copy.h"
#include "worker/replica/convert.h"
#include "worker/replica/quantise.h"

#include <string.h>

#define COPY_CHUNK_BYTES 8192u /* short, so that reads and stores overlap */
#define ROW_MIN_BYTES	 4096u /* rows from here on are summed and copied where they lie */

/* Of converts; NULL is the best one. Copies and blocks keep their own. */
static const char *forced;

/* Dense bytes [from, from + bytes) of the runs into one target. */
static void copy_part(unsigned char *out, const unsigned char *first, const struct runs *runs,
		      uint64_t from, uint64_t bytes)
{
	uint64_t row = from / runs->row_bytes, skip = from % runs->row_bytes, whole;

	if (skip && bytes) {
		uint64_t n = runs->row_bytes - skip < bytes ? runs->row_bytes - skip : bytes;

		copy_bytes(out, first + row * runs->stride_bytes + skip, n);
		out += n;
		bytes -= n;
		row++;
	}
	whole = bytes / runs->row_bytes;
	if (whole) {
		copy_rows(out, first + row * runs->stride_bytes, whole, runs->row_bytes,
			  runs->stride_bytes);
		out += whole * runs->row_bytes;
		bytes -= whole * runs->row_bytes;
		row += whole;
	}
	if (bytes)
		copy_bytes(out, first + row * runs->stride_bytes, bytes);
}

/* The same, through the cache, for what reads it at once. */
static void gather(unsigned char *out, const unsigned char *first, const struct runs *runs,
		   uint64_t from, uint64_t bytes)
{
	uint64_t row = from / runs->row_bytes, skip = from % runs->row_bytes;

	for (; bytes; row++, skip = 0) {
		uint64_t n = runs->row_bytes - skip < bytes ? runs->row_bytes - skip : bytes;

		memcpy(out, first + row * runs->stride_bytes + skip, n);
		out += n;
		bytes -= n;
	}
}

void pack_give(const struct pack_part *part, struct digest_stream *sum, uint64_t done,
	       const unsigned char *chunk, uint64_t bytes)
{
	if (sum)
		digest_add(sum, chunk, bytes);
	for (size_t i = 0; i < part->target_count; i++)
		copy_bytes((unsigned char *)part->targets[i] + done, chunk, bytes);
}

/* Asks for the lines that the next chunk begins with, while this one is summed and stored. */
static void ask_next(const unsigned char *first, const struct runs *runs, uint64_t from,
		     uint64_t bytes)
{
	uint64_t row = from / runs->row_bytes;

	for (uint64_t asked = 0; asked < bytes && row < runs->rows; row++)
		for (uint64_t at = 0; at < runs->row_bytes && asked < bytes; at += 64, asked += 64)
			__builtin_prefetch(first + row * runs->stride_bytes + at);
}

static void copy_chunks(const unsigned char *first, const struct runs *runs,
			const struct pack_part *part, struct digest_stream *sum)
{
	_Alignas(64) unsigned char scratch[COPY_CHUNK_BYTES];
	bool dense = runs->rows == 1 || runs->stride_bytes == runs->row_bytes;

	for (uint64_t done = 0, n; done < part->bytes; done += n) {
		uint64_t at = part->from + done, row = dense ? 0 : at / runs->row_bytes;
		uint64_t left = (dense ? runs->rows : row + 1) * runs->row_bytes - at;
		const unsigned char *chunk = scratch;

		n = part->bytes - done < COPY_CHUNK_BYTES ? part->bytes - done : COPY_CHUNK_BYTES;
		if (dense || runs->row_bytes >= ROW_MIN_BYTES) {
			n = left < n ? left : n;
			chunk = first + row * runs->stride_bytes + (at - row * runs->row_bytes);
		} else {
			gather(scratch, first, runs, at, n);
		}
		if (!dense)
			ask_next(first, runs, at + n, COPY_CHUNK_BYTES);
		pack_give(part, sum, done, chunk, n);
	}
}

void pack_run(const struct pack *pack, const struct pack_part *part)
{
	const unsigned char *first = (const unsigned char *)part->data + pack->runs.offset;
	struct digest_stream stream, *sum = part->sum ? &stream : NULL;

	if (sum)
		checksum_begin(sum);
	if (!make_plain(&pack->make) || pack->from != pack->to)
		pack_made(pack, part, sum, forced);
	else if (part->target_count == 1 && !part->sum)
		copy_part(part->targets[0], first, &pack->runs, part->from, part->bytes);
	else
		copy_chunks(first, &pack->runs, part, sum);
	if (sum)
		*part->sum = checksum_end(sum);
}

bool pack_beside(const struct pack *a, const struct pack *b)
{
	const struct runs *x = &a->runs, *y = &b->runs;

	return make_plain(&a->make) && make_plain(&b->make) && a->from == a->to &&
	       b->from == b->to && x->row_bytes == y->row_bytes && x->row_bytes < ROW_MIN_BYTES &&
	       x->rows == y->rows && x->rows > 1 && x->stride_bytes == y->stride_bytes &&
	       x->offset / x->stride_bytes == y->offset / y->stride_bytes;
}

void pack_run_lanes(const struct pack_lane *lanes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		pack_run(lanes[i].pack, &lanes[i].part);
}

const char *pack_kernel_name(void)
{
	return copy_kernel_name();
}

bool pack_kernel_use(const char *name)
{
	const char *const names[] = {"avx512", "avx2", "portable"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], name) != 0)
			continue;
		/* conversions ask the most of a processor */
		if (!convert_find(DTYPE_F32, DTYPE_BF16, name) || !quantise_use(name) ||
		    !copy_kernel_use(name))
			return false;
		forced = names[i];
		return true;
	}
	return false;
}
