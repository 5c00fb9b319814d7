/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_elements.c -- row by row in the order of the piece: to where they belong past the caches,
 * if nobody reads them back; else chunk by chunk, each given away from the cache.
 */
#include "pack/pack_steps.h"

#include "pack/copy_sum.h"
#include "pack/decode.h"

#include <string.h>

#define ELEMENTS_CHUNK_BYTES 4096u /* short, so that reads and stores overlap */
#define DECODE_AHEAD_BYTES   2048u
#define ASK_ROW_MAX_BYTES    4096u
#define DECODE_BLOCKS_MAX    256u /* of half a KiB */

struct elements elements_of(const struct pack *pack, const struct pack_part *part, enum dtype to,
			    const char *kernel)
{
	return (struct elements){
		.pack = pack,
		.data = (const unsigned char *)part->data + pack->runs.offset,
		.scales = part->scales
				  ? (const unsigned char *)part->scales + pack->scale_runs.offset
				  : NULL,
		.convert = convert_find(pack->from, to, kernel),
		.scaled = convert_find_scaled(to, kernel),
		.from_bytes = dtype_bytes(pack->from),
		.to_bytes = dtype_bytes(to),
	};
}

void elements_dequantise(unsigned char *out, const struct elements *elements, uint64_t row,
			 uint64_t column, uint64_t count)
{
	const struct pack *pack = elements->pack;
	const unsigned char *scales = elements->scales + (row + pack->row_skip) /
								 pack->transform.from_rows *
								 pack->scale_stride_bytes;
	uint64_t at = column + pack->column_skip, width = pack->transform.from_columns;

	elements->scaled(out, elements->data + row * pack->stride_bytes + column, count,
			 scales + at / width * sizeof(float), at % width, width);
}

/* Tables of the blocks beside each other in one row of them. */
struct decoder {
	decode_row row;	    /* NULL: no tables */
	bool stream;	    /* past the caches, to where the elements belong */
	uint64_t block_row; /* that the tables are of; ~0: none yet */
	struct decode_table tables[DECODE_BLOCKS_MAX];
};

static void decoder_init(struct decoder *decoder, const struct elements *elements,
			 const char *kernel)
{
	const struct pack *pack = elements->pack;
	uint64_t width = pack->transform.from_columns;

	decoder->row = NULL;
	decoder->block_row = ~0ull;
	/* tables pay where a few rows use them */
	if (width >= 64 && least(pack->transform.from_rows, pack->rows) >= 16 && !kernel &&
	    (pack->column_skip + pack->columns - 1) / width < DECODE_BLOCKS_MAX)
		decoder->row = decode_find(pack->to);
}

/* As elements_dequantise() does. */
static void decode(unsigned char *out, const struct elements *elements, struct decoder *decoder,
		   uint64_t row, uint64_t column, uint64_t count)
{
	const struct pack *pack = elements->pack;
	uint64_t width = pack->transform.from_columns, at = column + pack->column_skip;
	uint64_t block_row = (row + pack->row_skip) / pack->transform.from_rows;
	const unsigned char *source, *ahead = NULL;

	if (decoder->block_row != block_row) {
		const unsigned char *scales =
			elements->scales + block_row * pack->scale_stride_bytes;
		uint64_t blocks = (pack->column_skip + pack->columns - 1) / width + 1;

		for (uint64_t b = 0; b < blocks; b++) {
			float scale;

			memcpy(&scale, scales + b * sizeof(scale), sizeof(scale));
			decode_table_make(&decoder->tables[b], pack->to, scale);
		}
		decoder->block_row = block_row;
	}
	source = elements->data + row * pack->stride_bytes + column;
	/* what is read half a page later, or one row */
	if (pack->stride_bytes == pack->columns)
		ahead = source + DECODE_AHEAD_BYTES;
	else if (row + 1 < pack->rows)
		ahead = source + pack->stride_bytes;
	decoder->row(out, source, count, &decoder->tables[at / width], at % width, width, ahead,
		     decoder->stream);
}

/* Asks for the lines of a row of the box while the one before is transformed: that of a short row
 * is foreseen by no prefetcher. */
static void ask_row(const struct elements *elements, uint64_t row)
{
	const struct runs *runs = &elements->pack->runs;

	if (row >= runs->rows || runs->row_bytes > ASK_ROW_MAX_BYTES)
		return;
	for (uint64_t at = 0; at < runs->row_bytes; at += 64)
		__builtin_prefetch(elements->data + row * runs->stride_bytes + at);
}

#define GATHER_ELEMENTS 256u

/* `count` elements of one column of the box from `row` on, as they are. */
static void gather(unsigned char *out, const struct elements *elements, uint64_t row,
		   uint64_t column, uint64_t count)
{
	uint64_t stride = elements->pack->stride_bytes, element = elements->from_bytes;
	const unsigned char *at = elements->data + row * stride + column * element;

	switch (element) {
	case 2:
		for (uint64_t i = 0; i < count; i++, at += stride)
			memcpy(out + 2 * i, at, 2);
		return;
	case 4:
		for (uint64_t i = 0; i < count; i++, at += stride)
			memcpy(out + 4 * i, at, 4);
		return;
	default:
		for (uint64_t i = 0; i < count; i++, at += stride)
			memcpy(out + element * i, at, element);
	}
}

/* Elements [at, at + count) of a transposed piece: column after column of the box. */
static void take_columns(unsigned char *out, const struct elements *elements, uint64_t at,
			 uint64_t count)
{
	_Alignas(64) unsigned char buffer[GATHER_ELEMENTS * sizeof(uint64_t)];
	uint64_t rows = elements->pack->rows;

	for (uint64_t n; count; count -= n, at += n, out += n * elements->to_bytes) {
		uint64_t column = at / rows, row = at % rows;

		n = least(least(rows - row, count), GATHER_ELEMENTS);
		gather(buffer, elements, row, column, n);
		elements->convert(out, buffer, n, 1);
	}
}

/* Elements [at, at + count) of the box as they are, one run of memory after the other. */
static void take_runs(unsigned char *out, const struct elements *elements, uint64_t at,
		      uint64_t count)
{
	const struct runs *runs = &elements->pack->runs;
	uint64_t length = runs->row_bytes / elements->from_bytes;

	for (uint64_t n; count; count -= n, at += n, out += n * elements->to_bytes) {
		uint64_t row = at / length, column = at % length;

		n = least(length - column, count);
		if (!column)
			ask_row(elements, row + 1);
		elements->convert(out,
				  elements->data + row * runs->stride_bytes +
					  column * elements->from_bytes,
				  n, 1);
	}
}

/* Elements [at, at + count) of a padded piece: the box's rows, each with zeroes behind it. */
static void take_padded(unsigned char *out, const struct elements *elements, uint64_t at,
			uint64_t count)
{
	const struct pack *pack = elements->pack;
	uint64_t width = pack->transform.to_columns;

	for (uint64_t n; count; count -= n, at += n, out += n * elements->to_bytes) {
		uint64_t row = at / width, column = at % width;

		if (column < pack->columns) {
			n = least(pack->columns - column, count);
			take_runs(out, elements, row * pack->columns + column, n);
		} else {
			n = least(width - column, count);
			memset(out, 0, n * elements->to_bytes);
		}
	}
}

/* Elements [at, at + count) in the order of the piece. */
static void take_elements(unsigned char *out, const struct elements *elements,
			  struct decoder *decoder, uint64_t at, uint64_t count)
{
	const struct pack *pack = elements->pack;

	if (!pack->transform.from_rows) {
		(pack->transform.part == TRANSFORM_TRANSPOSED ? take_columns
		 : pack->transform.part == TRANSFORM_PADDED   ? take_padded
							    : take_runs)(out, elements, at, count);
		return;
	}
	for (uint64_t n; count; count -= n, at += n, out += n * elements->to_bytes) {
		uint64_t row = at / pack->columns, column = at % pack->columns;

		n = least(pack->columns - column, count);
		if (decoder->row)
			decode(out, elements, decoder, row, column, n);
		else
			elements_dequantise(out, elements, row, column, n);
	}
}

/* Whether elements can be stored past the caches as they are transformed: nobody reads them back,
 * and rows and blocks begin with whole lines. */
static bool streamed(const struct pack_part *part, const struct elements *elements)
{
	const struct pack *pack = elements->pack;
	uint64_t borders = 0;

	if (pack->transform.part == TRANSFORM_TRANSPOSED ||
	    pack->transform.part == TRANSFORM_PADDED)
		return false;
	if (pack->transform.from_rows)
		borders = pack->columns | pack->column_skip | pack->transform.from_columns;
	else if (pack->runs.rows > 1)
		borders = pack->runs.row_bytes / elements->from_bytes;
	return !part->sum && part->target_count == 1 &&
	       ((uintptr_t)part->targets[0] | part->from | borders * elements->to_bytes) % 64 == 0;
}

/* The sum of a part, of chunks on their way. */
struct chunk_sum {
	struct copy_sum sum;
	unsigned char last[COPY_LINE_BYTES]; /* bytes given so far */
};

static void emit_chunk(const struct pack_part *part, struct chunk_sum *sum, uint64_t done,
		       const unsigned char *chunk, uint64_t bytes)
{
	uint64_t kept = bytes < COPY_LINE_BYTES ? COPY_LINE_BYTES - bytes : 0;

	if (!part->sum || part->bytes < COPY_SUM_BYTES_MIN) {
		pack_emit(part, NULL, 0, done, chunk, bytes);
		if (part->sum) /* there is one chunk */
			*part->sum = checksum64(chunk, bytes);
		return;
	}
	copy_sum_bytes(&sum->sum,
		       part->target_count ? (unsigned char *)part->targets[0] + done : NULL, chunk,
		       bytes);
	pack_emit(part, NULL, 1, done, chunk, bytes);
	memmove(sum->last, sum->last + COPY_LINE_BYTES - kept, kept);
	memcpy(sum->last + kept, chunk + bytes - (COPY_LINE_BYTES - kept), COPY_LINE_BYTES - kept);
	if (done + bytes == part->bytes)
		*part->sum = copy_sum_end(&sum->sum, sum->last);
}

void pack_elements(const struct pack *pack, const struct pack_part *part, const char *kernel)
{
	_Alignas(64) unsigned char chunk[ELEMENTS_CHUNK_BYTES];
	struct elements elements = elements_of(pack, part, pack->to, kernel);
	convert_row past = convert_find_streamed(pack->from, pack->to, kernel);
	struct decoder decoder; /* not cleared: its tables are made when they are needed */
	struct chunk_sum sum;
	uint64_t done = 0, n;

	decoder_init(&decoder, &elements, kernel);
	decoder.stream = streamed(part, &elements);
	if (decoder.stream && (decoder.row || (!pack->transform.from_rows && past))) {
		elements.convert = past;
		take_elements(part->targets[0], &elements, &decoder, part->from / elements.to_bytes,
			      part->bytes / elements.to_bytes);
		return;
	}
	decoder.stream = false;
	if (part->sum && part->bytes >= COPY_SUM_BYTES_MIN)
		copy_sum_begin(&sum.sum, part->bytes);
	do {
		n = least(sizeof(chunk), part->bytes - done);
		take_elements(chunk, &elements, &decoder, (part->from + done) / elements.to_bytes,
			      n / elements.to_bytes);
		emit_chunk(part, &sum, done, chunk, n);
		done += n;
	} while (done < part->bytes);
}
