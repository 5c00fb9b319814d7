/* SPDX-License-Identifier: Apache-2.0 */
#include "job/make.h"

#include <stdio.h>
#include <string.h>

bool make_plain(const struct make *make)
{
	return make->part == MAKE_VALUES && !make->from_rows && !make->to_rows;
}

bool make_equal(const struct make *a, const struct make *b)
{
	return a->part == b->part && a->from_rows == b->from_rows &&
	       a->from_columns == b->from_columns && a->to_rows == b->to_rows &&
	       a->to_columns == b->to_columns;
}

uint32_t make_grain_rows(const struct make *make)
{
	return make->to_rows ? make->to_rows : 1;
}

static bool block_ok(uint32_t rows, uint32_t columns)
{
	return (rows == 0) == (columns == 0) && rows <= MAKE_BLOCK_MAX && columns <= MAKE_BLOCK_MAX;
}

bool make_valid(const struct make *make)
{
	return block_ok(make->from_rows, make->from_columns) &&
	       block_ok(make->to_rows, make->to_columns) &&
	       (unsigned)make->part < MAKE_PART_COUNT &&
	       (make->part != MAKE_SCALES || make->to_rows);
}

/* Whole blocks, but for the tensor's own end. */
static bool on_blocks(const struct make *make, const struct box *src, const uint64_t *shape)
{
	const uint32_t block[2] = {make->to_rows, make->to_columns};

	for (uint32_t d = 0; d < 2; d++)
		if (src->lo[d] % block[d] || (src->hi[d] % block[d] && src->hi[d] != shape[d]))
			return false;
	return true;
}

bool make_bytes(const struct make *make, const struct box *src, uint32_t dims,
		const uint64_t *shape, enum dtype to, uint64_t *bytes)
{
	uint64_t sizes[BOX_DIMS_MAX];

	if (!box_in_shape(src, dims, shape) || !make_valid(make))
		return false;
	if (!make_plain(make) && dims != 2)
		return false;
	if (make->to_rows && !on_blocks(make, src, shape))
		return false;
	for (uint32_t d = 0; d < dims; d++)
		sizes[d] = src->hi[d] - src->lo[d];
	if (make->part == MAKE_SCALES) {
		sizes[0] = (sizes[0] + make->to_rows - 1) / make->to_rows;
		sizes[1] = (sizes[1] + make->to_columns - 1) / make->to_columns;
	}
	return shape_bytes(dims, sizes, dtype_bytes(to), bytes);
}

struct box make_scales_box(const struct make *make, const struct box *src)
{
	const uint32_t block[2] = {make->from_rows, make->from_columns};
	struct box box = {.dims = 2};

	for (uint32_t d = 0; d < 2; d++) {
		box.lo[d] = src->lo[d] / block[d];
		box.hi[d] = (src->hi[d] + block[d] - 1) / block[d];
	}
	return box;
}

static bool is_float(enum dtype dtype)
{
	return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

bool make_possible(const struct make *make, enum dtype from, enum dtype to)
{
	if (make_plain(make))
		return from == to || (is_float(from) && is_float(to));
	if (make->from_rows ? from != DTYPE_F8_E4M3 : !is_float(from))
		return false;
	if (make->to_rows)
		return to == (make->part == MAKE_SCALES ? DTYPE_F32 : DTYPE_F8_E4M3);
	return is_float(to);
}

static const char *word_of(const struct make *make, bool convert)
{
	if (make_plain(make))
		return convert ? "convert" : "copy";
	if (!make->to_rows)
		return "dequantise";
	if (make->part == MAKE_SCALES)
		return make->from_rows ? "rescale" : "scales";
	return make->from_rows ? "requantise" : "quantise";
}

char *make_text(const struct make *make, bool convert, char out[MAKE_TEXT_BYTES])
{
	int n = snprintf(out, MAKE_TEXT_BYTES, "%s", word_of(make, convert));

	if (make->from_rows)
		n += snprintf(out + n, MAKE_TEXT_BYTES - (size_t)n, " %ux%u", make->from_rows,
			      make->from_columns);
	if (make->to_rows)
		snprintf(out + n, MAKE_TEXT_BYTES - (size_t)n, " %ux%u", make->to_rows,
			 make->to_columns);
	return out;
}

/* " 128x64" from *text on; false when there is none. */
static bool take_block(const char **text, uint32_t *rows, uint32_t *columns)
{
	uint32_t *const numbers[2] = {rows, columns};
	const char *at = *text;

	for (int i = 0; i < 2; i++) {
		uint64_t number = 0;

		if (*at++ != (i ? 'x' : ' ') || *at < '1' || *at > '9')
			return false;
		for (; *at >= '0' && *at <= '9'; at++) {
			number = number * 10 + (uint64_t)(*at - '0');
			if (number > MAKE_BLOCK_MAX)
				return false;
		}
		*numbers[i] = (uint32_t)number;
	}
	*text = at;
	return true;
}

bool make_parse(const char *text, struct make *make, bool *convert)
{
	static const struct {
		const char *word;
		bool convert, from, to;
		enum make_part part;
	} rows[] = {
		{"copy", false, false, false, MAKE_VALUES},
		{"convert", true, false, false, MAKE_VALUES},
		{"quantise", true, false, true, MAKE_VALUES},
		{"scales", true, false, true, MAKE_SCALES},
		{"dequantise", true, true, false, MAKE_VALUES},
		{"requantise", false, true, true, MAKE_VALUES},
		{"rescale", true, true, true, MAKE_SCALES},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t n = strlen(rows[i].word);
		const char *rest = text + n;

		if (strncmp(text, rows[i].word, n) != 0)
			continue;
		*make = (struct make){.part = rows[i].part};
		if (rows[i].from && !take_block(&rest, &make->from_rows, &make->from_columns))
			continue;
		if (rows[i].to && !take_block(&rest, &make->to_rows, &make->to_columns))
			continue;
		if (*rest)
			continue;
		if (convert)
			*convert = rows[i].convert;
		return true;
	}
	return false;
}
