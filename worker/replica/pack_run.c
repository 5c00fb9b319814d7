/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_run.c -- the work. A part is made chunk by chunk; a chunk stays in the first caches while
 * it is summed and goes from there to its targets:
 *
 *   source ──► chunk (gathered, converted; the source itself where it is contiguous)
 *                └─► sum ─► target 0, 1, .. (non-temporal)
 */
#include "worker/replica/pack.h"

#include "common/copy.h"

#include <string.h>

#define CHUNK_BYTES 32768u

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

/* One chunk of the part, `done` bytes after its start. */
static void give(const struct pack_part *part, uint64_t done, const unsigned char *chunk,
		 uint64_t bytes)
{
	if (part->sum)
		digest_add(part->sum, chunk, bytes);
	for (size_t i = 0; i < part->target_count; i++)
		copy_bytes((unsigned char *)part->targets[i] + done, chunk, bytes);
}

static void copy_chunks(const unsigned char *first, const struct runs *runs,
			const struct pack_part *part)
{
	_Alignas(64) unsigned char scratch[CHUNK_BYTES];
	bool dense = runs->rows == 1 || runs->stride_bytes == runs->row_bytes;

	for (uint64_t done = 0, n; done < part->bytes; done += n) {
		const unsigned char *chunk = scratch;

		n = part->bytes - done < CHUNK_BYTES ? part->bytes - done : CHUNK_BYTES;
		if (dense)
			chunk = first + part->from + done;
		else
			gather(scratch, first, runs, part->from + done, n);
		give(part, done, chunk, n);
	}
}

void pack_run(const struct pack *pack, const struct pack_part *part)
{
	const unsigned char *first = (const unsigned char *)part->data + pack->runs.offset;

	if (part->target_count == 1 && !part->sum)
		copy_part(part->targets[0], first, &pack->runs, part->from, part->bytes);
	else
		copy_chunks(first, &pack->runs, part);
}

const char *pack_kernel_name(void)
{
	return copy_kernel_name();
}

bool pack_kernel_use(const char *name)
{
	return copy_kernel_use(name);
}

/* ---- the form before conversions ---- */

void pack_range(void *target, const void *source, const struct runs *runs, uint64_t from,
		uint64_t bytes)
{
	copy_part(target, (const unsigned char *)source + runs->offset, runs, from, bytes);
}

uint64_t pack_checksum(const void *source, const struct runs *runs)
{
	struct digest_stream stream;
	struct pack_part part = {.bytes = runs->rows * runs->row_bytes, .sum = &stream};

	checksum_begin(&stream);
	copy_chunks((const unsigned char *)source + runs->offset, runs, &part);
	return checksum_end(&stream);
}
