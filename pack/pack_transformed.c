/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_transformed.c -- parts that are no copies. Those in blocks are transformed band by band, a
 * band being the rows of one row of blocks: a scale is known only when its whole block was read,
 * but the bytes lie row by row.
 *
 *   band   |b0|b1|b2|b3| ..     straight into the first target, through the cache; from there
 *          |  |  |  |  |        they are summed and go to the other targets
 *
 * fp8 sources are looked up in tables where their blocks are large enough (requantise.h); others
 * are turned into F32 tile by tile first. Where there is no target to lie in, or a
 * block is larger than a tile, all scales of the band are found first, and then the values made
 * in the order of the bytes, so that no block is too large.
 */
#include "pack/pack_steps.h"

#include "pack/quantise.h"
#include "pack/requantise.h"

#include <string.h>

#define TILE_VALUES 32768u /* as F32 128 KiB: with its bytes well inside of a second-level cache */

/* One row of blocks of the parameter. */
struct band {
	const struct pack *pack;
	const struct pack_part *part;
	struct digest_stream *sum;   /* of the part, or NULL */
	struct elements elements;    /* with transform.from_rows: to F32 */
	enum dtype from;	     /* of what quantise_*() reads */
	uint64_t row, rows, columns; /* of the box */
	uint64_t width;		     /* columns of a block, of the whole band at most */
	float scales[PACK_ROW_BLOCKS_MAX];
	float tile[TILE_VALUES];
};

/* rows x columns of the band from (row, column) on: in the source itself, or as F32 in the tile. */
static const void *tile_at(struct band *band, uint64_t row, uint64_t column, uint64_t rows,
			   uint64_t columns, uint64_t *stride_bytes)
{
	const struct pack *pack = band->pack;

	*stride_bytes = pack->stride_bytes;
	if (!pack->transform.from_rows)
		return band->elements.data + (band->row + row) * pack->stride_bytes +
		       column * band->elements.from_bytes;
	for (uint64_t r = 0; r < rows; r++)
		elements_dequantise((unsigned char *)(band->tile + r * columns), &band->elements,
				    band->row + row + r, column, columns);
	*stride_bytes = columns * sizeof(float);
	return band->tile;
}

/* Columns from `column` on of which `rows` rows fit a tile: whole blocks, or a part of one. */
static uint64_t tile_columns(const struct band *band, uint64_t column, uint64_t rows)
{
	uint64_t room = TILE_VALUES / rows, left = band->columns - column;

	if (room < band->width)
		return least(left, least(room, band->width - column % band->width));
	return least(left, room / band->width * band->width);
}

/* The source of the band that this part has after this one; NULL when it is the last. */
static const void *next_band(const struct band *band, uint64_t done)
{
	uint64_t after = done + band->rows * band->columns;

	if (after >= band->part->bytes)
		return NULL;
	return band->elements.data + (band->row + band->rows) * band->pack->stride_bytes;
}

/* F8_E4M3 to F8_E4M3 by tables; false, and nothing done, where that is no good. `values` NULL: the
 * scales alone. */
static bool requantise(struct band *band, unsigned char *values, uint64_t done)
{
	const struct pack *pack = band->pack;
	const struct transform *transform = &pack->transform;
	uint64_t row = band->row + pack->row_skip;

	return transform->from_rows &&
	       requantise_band(&(struct requantise){
		       .source = band->elements.data + band->row * pack->stride_bytes,
		       .rows = band->rows,
		       .columns = band->columns,
		       .stride_bytes = pack->stride_bytes,
		       .scales = band->elements.scales +
				 row / transform->from_rows * pack->scale_stride_bytes,
		       .scale_stride_bytes = pack->scale_stride_bytes,
		       .from_rows = transform->from_rows,
		       .from_columns = transform->from_columns,
		       .row_skip = row % transform->from_rows,
		       .column_skip = pack->column_skip,
		       .width = band->width,
		       .values = values,
		       .transformed_scales = band->scales,
		       .next = next_band(band, done),
		       .stream = !band->sum && band->part->target_count == 1,
	       });
}

static void find_scales(struct band *band)
{
	uint64_t stride, rows_max = least(band->rows, TILE_VALUES / 64), n, rows;

	if (!band->pack->transform.from_rows) {
		const void *source = tile_at(band, 0, 0, band->rows, band->columns, &stride);

		quantise_band(NULL, band->scales, source, band->from, band->rows, band->columns,
			      stride, band->width);
		return;
	}
	if (requantise(band, NULL, 0))
		return;
	memset(band->scales, 0, (band->columns - 1) / band->width * sizeof(float) + sizeof(float));
	for (uint64_t column = 0; column < band->columns; column += n) {
		float found[TILE_VALUES / 64], *scale = band->scales + column / band->width;

		n = least(tile_columns(band, column, rows_max), TILE_VALUES / 64 * band->width);
		for (uint64_t row = 0; row < band->rows; row += rows) {
			const void *source;

			rows = least(rows_max, band->rows - row);
			source = tile_at(band, row, column, rows, n, &stride);
			quantise_band(NULL, found, source, band->from, rows, n, stride,
				      band->width);
			/* the largest of scales is the scale of the largest: / rounds in order */
			for (uint64_t b = 0; b < (n + band->width - 1) / band->width; b++)
				scale[b] = found[b] > scale[b] ? found[b] : scale[b];
		}
	}
}

/* The band's values where they belong, as rows of band->columns bytes; and its scales. */
static void fill_band(struct band *band, unsigned char *values, uint64_t done)
{
	unsigned char dense[TILE_VALUES];
	uint64_t stride, n;

	if (!band->pack->transform.from_rows) {
		const void *source = tile_at(band, 0, 0, band->rows, band->columns, &stride);

		/* nobody reads them back: they are not summed, and go nowhere else */
		quantise_band_on(values, band->scales, source, band->from, band->rows,
				 band->columns, stride, band->width, next_band(band, done),
				 !band->sum && band->part->target_count == 1);
		return;
	}
	for (uint64_t column = 0; column < band->columns; column += n) {
		const void *source;

		n = tile_columns(band, column, band->rows);
		source = tile_at(band, 0, column, band->rows, n, &stride);
		quantise_band(dense, band->scales + column / band->width, source, band->from,
			      band->rows, n, stride, band->width);
		for (uint64_t r = 0; r < band->rows; r++)
			memcpy(values + r * band->columns + column, dense + r * n, n);
	}
}

/* The values in the order of the bytes, with the scales that the band has by now. */
static void emit_in_order(struct band *band, uint64_t done)
{
	_Alignas(64) unsigned char chunk[PACK_CHUNK_BYTES];
	uint64_t stride, n;

	for (uint64_t row = 0; row < band->rows; row++)
		for (uint64_t column = 0; column < band->columns; column += n, done += n) {
			const void *source;

			n = tile_columns(band, column, 1);
			source = tile_at(band, row, column, 1, n, &stride);
			quantise_scaled(chunk, band->scales + column / band->width, source,
					band->from, 1, n, stride, band->width);
			pack_emit(band->part, band->sum, 0, done, chunk, n);
		}
}

static void emit_values(struct band *band, uint64_t done)
{
	const struct pack_part *part = band->part;
	unsigned char *values =
		part->target_count ? (unsigned char *)part->targets[0] + done : NULL;
	bool tiled = band->pack->transform.from_rows;

	if (!values || !requantise(band, values, done)) {
		if (!values || (tiled && band->rows * band->width > TILE_VALUES)) {
			find_scales(band);
			emit_in_order(band, done);
			return;
		}
		fill_band(band, values, done);
	}
	/* from the first target to the sum and to the others */
	pack_emit(part, band->sum, 1, done, values, band->rows * band->columns);
}

void pack_transformed(const struct pack *pack, const struct pack_part *part,
		      struct digest_stream *sum, const char *kernel)
{
	struct band band; /* not cleared: its rows are written before they are read */
	uint64_t blocks =
		(pack->columns + pack->transform.to_columns - 1) / pack->transform.to_columns;
	uint64_t done = 0;

	band.pack = pack;
	band.part = part;
	band.sum = sum;
	band.columns = pack->columns;
	band.width = least(pack->transform.to_columns, pack->columns);
	band.from = pack->transform.from_rows ? DTYPE_F32 : pack->from;
	band.elements = elements_of(pack, part, band.from, kernel);
	band.row = part->from / pack->grain_bytes * pack->transform.to_rows;
	for (uint64_t b = 0; done < part->bytes; b++, band.row += pack->transform.to_rows) {
		band.rows = least(pack->transform.to_rows, pack->rows - band.row);
		if (pack->transform.part == TRANSFORM_SCALES) {
			find_scales(&band);
			pack_emit(part, sum, 0, done, (const unsigned char *)band.scales,
				  blocks * sizeof(float));
			done += blocks * sizeof(float);
			continue;
		}
		emit_values(&band, done);
		done += band.rows * band.columns;
		if (part->transformed_scales)
			memcpy(part->transformed_scales + b * blocks, band.scales,
			       blocks * sizeof(float));
	}
}
