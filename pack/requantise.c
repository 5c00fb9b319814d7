/* SPDX-License-Identifier: Apache-2.0
 *
 * requantise.c -- a band is requantised in strips of whole blocks of `to`, each in two passes while
 * it is in the cache: the largest code of each cell, which says the largest magnitude, for a
 * product rounds in order; then tables, and the values looked up.
 *
 *   strip   | cell | cell | cell |    group 0: rows of one row of blocks of `from`
 *           | cell | cell | cell |    group 1
 */
#include "pack/requantise.h"

#include "job/transform.h"
#include "pack/convert.h"
#include "pack/element.h"
#include "pack/processor.h"
#include "pack/quantise_kernel.h"

#include <float.h>
#include <stddef.h>

#define STRIP_BYTES	(256u << 10)
#define GROUPS_MAX	8u
#define CELL_VALUES_MIN 1024u /* a table costs as much as some hundred values */
#define CODES		128u
#define CODE_NAN	0x7fu

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static float load_scale(const unsigned char *bytes)
{
	float scale;

	memcpy(&scale, bytes, sizeof(scale));
	return scale;
}

/* Blocks of `from` that rows or columns [0, count) lie in. */
static uint64_t blocks_of(uint64_t skip, uint64_t count, uint64_t size)
{
	return (skip + count - 1) / size + 1;
}

static bool scales_fit(const struct requantise *band)
{
	uint64_t rows = blocks_of(band->row_skip, band->rows, band->from_rows);
	uint64_t columns = blocks_of(band->column_skip, band->columns, band->from_columns);

	for (uint64_t r = 0; r < rows; r++)
		for (uint64_t c = 0; c < columns; c++) {
			const unsigned char *at =
				band->scales + r * band->scale_stride_bytes + c * sizeof(float);

			/* the bits' order: negative ones and NaN are above */
			if (element_bits(load_scale(at)) >
			    element_bits(FLT_MAX / TRANSFORM_FP8_MAX))
				return false;
		}
	return true;
}

static bool tables_fit(const struct requantise *band)
{
	uint64_t rows = least(band->rows, band->from_rows);
	uint64_t columns = least(band->from_columns, band->width);

	return rows * columns >= CELL_VALUES_MIN && columns >= 32 &&
	       blocks_of(band->row_skip, band->rows, band->from_rows) <= GROUPS_MAX &&
	       band->width / band->from_columns + 2 <= REQUANTISE_CELLS && scales_fit(band);
}

/* Cells of whole blocks of `to` from `column` on; returns the columns that they have. */
static uint64_t cut_cells(struct requantise_strip *strip, const struct requantise *band,
			  uint64_t column)
{
	uint64_t at = column, whole = 0, most = STRIP_BYTES / band->rows;

	strip->cells = 0;
	for (uint64_t cells = 0; at < band->columns && cells < REQUANTISE_CELLS;) {
		uint64_t from = band->from_columns - (at + band->column_skip) % band->from_columns;
		uint64_t to = band->width - at % band->width;

		at += least(least(from, to), band->columns - at);
		strip->ends[cells++] = at - column;
		if (at % band->width && at < band->columns)
			continue;
		if (strip->cells && at - column > most)
			break;
		strip->cells = cells; /* a whole block more */
		whole = at - column;
	}
	return whole;
}

/* The first column of a cell, of the strip. */
static uint64_t cell_start(const struct requantise_strip *strip, uint64_t cell)
{
	return cell ? strip->ends[cell - 1] : 0;
}

static float cell_scale(const struct requantise *band, const struct requantise_strip *strip,
			uint64_t column, uint64_t group, uint64_t cell)
{
	uint64_t at = (column + cell_start(strip, cell) + band->column_skip) / band->from_columns;

	return load_scale(band->scales + group * band->scale_stride_bytes + at * sizeof(float));
}

__attribute__((noinline)) static float product(uint8_t code, float scale)
{
	return element_float(element_f32_from_f8_scaled(code, scale));
}

__attribute__((noinline)) static float inverse_of(float scale)
{
	return 1.0f / scale;
}

/* What each code of a cell becomes. Codes above the cell's largest one may become anything. */
static void make_table(unsigned char *table, float scale, float inverse,
		       const struct quantise_kernel *kernel, convert_row decode)
{
	unsigned char codes[CODES];
	float products[CODES];
	struct quantise_strip row = {
		.source = (const unsigned char *)products,
		.rows = 1,
		.columns = CODES,
		.stride_bytes = sizeof(products),
		.block_columns = CODES,
		.values = table,
		.values_stride = CODES,
		.inverse = {inverse},
	};

	for (uint32_t i = 0; i < CODES; i++)
		codes[i] = (unsigned char)(i < CODE_NAN ? i : 0);
	decode(products, codes, CODES, scale);
	kernel->f32.values(&row);
	table[CODE_NAN] = CODE_NAN;
}

typedef unsigned char strip_peaks[GROUPS_MAX][REQUANTISE_CELLS];

/* The rows of the strip from `row` on that lie in one row of blocks of `from`; their number. */
static uint64_t take_group(struct requantise_strip *strip, const struct requantise *band,
			   uint64_t column, uint64_t row)
{
	uint64_t left = band->from_rows - (row + band->row_skip) % band->from_rows;
	uint64_t end = column + strip->ends[strip->cells - 1];
	const unsigned char *ahead = end < band->columns ? band->source + end : band->next;

	strip->rows = least(left, band->rows - row);
	strip->source = band->source + row * band->stride_bytes + column;
	strip->values = band->values ? band->values + row * band->columns + column : NULL;
	strip->ahead = ahead ? ahead + row * band->stride_bytes : NULL;
	return strip->rows;
}

static void make_scales(float *scales, const struct requantise_strip *strip,
			const struct requantise *band, strip_peaks peaks, uint64_t column)
{
	uint64_t groups = blocks_of(band->row_skip, band->rows, band->from_rows);

	for (uint64_t cell = 0, block = 0; cell < strip->cells; block++) {
		uint64_t end = (block + 1) * band->width;
		float most = 0;

		for (; cell < strip->cells && strip->ends[cell] <= end; cell++)
			for (uint64_t g = 0; g < groups; g++) {
				float x = product(peaks[g][cell],
						  cell_scale(band, strip, column, g, cell));

				most = x > most ? x : most;
			}
		scales[block] = quantise_scale_of(element_bits(most));
		if (strip->ends[strip->cells - 1] < end)
			break; /* the last block of the band is short */
	}
}

static void run_strip(struct requantise_strip *strip, const struct requantise *band,
		      uint64_t column)
{
	const struct quantise_kernel *kernel = quantise_chosen();
	requantise_peaks find = kernel->f8.peaks ? kernel->f8.peaks : quantise_portable.f8.peaks;
	requantise_values look_up =
		kernel->f8.values ? kernel->f8.values : quantise_portable.f8.values;
	convert_row decode = convert_find(DTYPE_F8_E4M3, DTYPE_F32, NULL);
	float *scales = band->transformed_scales + column / band->width;
	strip_peaks peaks;
	uint64_t row, g;

	for (row = 0, g = 0; row < band->rows; g++) {
		row += take_group(strip, band, column, row);
		find(peaks[g], strip);
	}
	make_scales(scales, strip, band, peaks, column);
	if (!band->values)
		return;
	for (row = 0, g = 0; row < band->rows; g++) {
		for (uint64_t cell = 0; cell < strip->cells; cell++)
			make_table(strip->tables[cell], cell_scale(band, strip, column, g, cell),
				   inverse_of(scales[cell_start(strip, cell) / band->width]),
				   kernel, decode);
		row += take_group(strip, band, column, row);
		look_up(strip);
	}
}

__attribute__((noinline)) static void run_band(const struct requantise *band)
{
	struct requantise_strip strip = {
		.stride_bytes = band->stride_bytes,
		.values_stride = band->columns,
	};

	strip.stream = band->stream && ((uintptr_t)band->values | band->columns | band->width |
					band->from_columns | band->column_skip) %
						       64 ==
					       0;
	for (uint64_t column = 0; column < band->columns;) {
		uint64_t columns = cut_cells(&strip, band, column);

		run_strip(&strip, band, column);
		column += columns;
	}
}

bool requantise_band(const struct requantise *band)
{
	struct requantise narrow = *band; /* a longer block is one block too */
	struct float_mode mode;

	if (!band->rows || !band->columns)
		return true;
	narrow.width = least(band->width, band->columns);
	if (!tables_fit(&narrow))
		return false;
	mode = float_mode_enter();
	run_band(&narrow);
	float_mode_leave(mode);
	return true;
}
