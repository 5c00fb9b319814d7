/* SPDX-License-Identifier: Apache-2.0 */
#include "job/transform.h"

#include <stdio.h>
#include <string.h>

bool transform_plain(const struct transform *transform)
{
	return transform->part == TRANSFORM_VALUES && !transform->from_rows && !transform->to_rows;
}

bool transform_equal(const struct transform *a, const struct transform *b)
{
	_Static_assert(sizeof(*a) == 5 * sizeof(uint32_t), "five numbers and nothing between them");

	return memcmp(a, b, sizeof(*a)) == 0;
}

uint32_t transform_grain_rows(const struct transform *transform)
{
	if (transform->part == TRANSFORM_TRANSPOSED)
		return TRANSFORM_UNCUT;
	return transform->to_rows ? transform->to_rows : 1;
}

static bool block_ok(uint32_t rows, uint32_t columns)
{
	return (rows == 0) == (columns == 0) && rows <= TRANSFORM_BLOCK_MAX &&
	       columns <= TRANSFORM_BLOCK_MAX;
}

bool transform_valid(const struct transform *transform)
{
	if (transform->part == TRANSFORM_TRANSPOSED && (transform->from_rows || transform->to_rows))
		return false;
	if (transform->part == TRANSFORM_PADDED)
		return !transform->from_rows && !transform->from_columns && !transform->to_rows &&
		       transform->to_columns && transform->to_columns <= TRANSFORM_BLOCK_MAX;
	return block_ok(transform->from_rows, transform->from_columns) &&
	       block_ok(transform->to_rows, transform->to_columns) &&
	       (unsigned)transform->part < TRANSFORM_PART_COUNT &&
	       (transform->part != TRANSFORM_SCALES || transform->to_rows);
}

/* Whole blocks, but for the tensor's own end. */
static bool on_blocks(const struct transform *transform, const struct box *src,
		      const uint64_t *shape)
{
	const uint32_t block[2] = {transform->to_rows, transform->to_columns};

	for (uint32_t d = 0; d < 2; d++)
		if (src->lo[d] % block[d] || (src->hi[d] % block[d] && src->hi[d] != shape[d]))
			return false;
	return true;
}

/* What is transposed may be one matrix of a stack of them. */
static bool one_matrix(const struct transform *transform, const struct box *src)
{
	return transform->part == TRANSFORM_TRANSPOSED && src->dims == 3 &&
	       src->hi[0] - src->lo[0] == 1;
}

uint64_t transform_row_elements(const struct box *src)
{
	uint64_t elements = 1;

	for (uint32_t d = 2; d < src->dims; d++)
		elements *= src->hi[d] - src->lo[d];
	return elements;
}

bool transform_bytes(const struct transform *transform, const struct box *src, uint32_t dims,
		     const uint64_t *shape, enum dtype to, uint64_t *bytes)
{
	uint64_t sizes[BOX_DIMS_MAX];

	if (!box_in_shape(src, dims, shape) || !transform_valid(transform))
		return false;
	if (transform->part == TRANSFORM_PADDED) {
		sizes[0] = src->hi[0] - src->lo[0];
		sizes[1] = dims > 2 ? src->hi[1] - src->lo[1] : 0;
		sizes[2] = transform->to_columns;
		return dims > 2 && transform_row_elements(src) <= sizes[2] &&
		       shape_bytes(3, sizes, dtype_bytes(to), bytes);
	}
	if (!transform_plain(transform) && dims != 2 && !one_matrix(transform, src))
		return false;
	if (transform->to_rows && !on_blocks(transform, src, shape))
		return false;
	for (uint32_t d = 0; d < dims; d++)
		sizes[d] = src->hi[d] - src->lo[d];
	if (transform->part == TRANSFORM_SCALES) {
		sizes[0] = (sizes[0] + transform->to_rows - 1) / transform->to_rows;
		sizes[1] = (sizes[1] + transform->to_columns - 1) / transform->to_columns;
	}
	return shape_bytes(dims, sizes, dtype_bytes(to), bytes);
}

struct box transform_scales_box(const struct transform *transform, const struct box *src)
{
	const uint32_t block[2] = {transform->from_rows, transform->from_columns};
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

bool transform_possible(const struct transform *transform, enum dtype from, enum dtype to)
{
	if (transform->part == TRANSFORM_PADDED)
		return from == to;
	if (transform_plain(transform) || transform->part == TRANSFORM_TRANSPOSED)
		return from == to || (is_float(from) && is_float(to));
	if (transform->from_rows ? from != DTYPE_F8_E4M3 : !is_float(from))
		return false;
	if (transform->to_rows)
		return to == (transform->part == TRANSFORM_SCALES ? DTYPE_F32 : DTYPE_F8_E4M3);
	return is_float(to);
}

static const char *word_of(const struct transform *transform, bool convert)
{
	if (transform_plain(transform))
		return convert ? "convert" : "copy";
	if (transform->part == TRANSFORM_TRANSPOSED)
		return "transpose";
	if (transform->part == TRANSFORM_PADDED)
		return "pad";
	if (!transform->to_rows)
		return "dequantise";
	if (transform->part == TRANSFORM_SCALES)
		return transform->from_rows ? "rescale" : "scales";
	return transform->from_rows ? "requantise" : "quantise";
}

char *transform_text(const struct transform *transform, bool convert,
		     char out[TRANSFORM_TEXT_BYTES])
{
	int n = snprintf(out, TRANSFORM_TEXT_BYTES, "%s", word_of(transform, convert));

	if (transform->from_rows)
		n += snprintf(out + n, TRANSFORM_TEXT_BYTES - (size_t)n, " %ux%u",
			      transform->from_rows, transform->from_columns);
	if (transform->to_rows)
		snprintf(out + n, TRANSFORM_TEXT_BYTES - (size_t)n, " %ux%u", transform->to_rows,
			 transform->to_columns);
	if (transform->part == TRANSFORM_PADDED)
		snprintf(out + n, TRANSFORM_TEXT_BYTES - (size_t)n, " %u", transform->to_columns);
	return out;
}

/* A number behind the mark from *text on; false when there is none. */
static bool take_number(const char **text, char mark, uint32_t *out)
{
	const char *at = *text;
	uint64_t number = 0;

	if (*at++ != mark || *at < '1' || *at > '9')
		return false;
	for (; *at >= '0' && *at <= '9'; at++) {
		number = number * 10 + (uint64_t)(*at - '0');
		if (number > TRANSFORM_BLOCK_MAX)
			return false;
	}
	*out = (uint32_t)number;
	*text = at;
	return true;
}

/* " 128x64" from *text on; false when there is none. */
static bool take_block(const char **text, uint32_t *rows, uint32_t *columns)
{
	return take_number(text, ' ', rows) && take_number(text, 'x', columns);
}

bool transform_parse(const char *text, struct transform *transform, bool *convert)
{
	static const struct {
		const char *word;
		bool convert, from, to;
		enum transform_part part;
	} rows[] = {
		{"copy", false, false, false, TRANSFORM_VALUES},
		{"convert", true, false, false, TRANSFORM_VALUES},
		{"quantise", true, false, true, TRANSFORM_VALUES},
		{"scales", true, false, true, TRANSFORM_SCALES},
		{"dequantise", true, true, false, TRANSFORM_VALUES},
		{"requantise", false, true, true, TRANSFORM_VALUES},
		{"rescale", true, true, true, TRANSFORM_SCALES},
		{"transpose", false, false, false, TRANSFORM_TRANSPOSED},
		{"pad", false, false, false, TRANSFORM_PADDED},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t n = strlen(rows[i].word);
		const char *rest = text + n;

		if (strncmp(text, rows[i].word, n) != 0)
			continue;
		*transform = (struct transform){.part = rows[i].part};
		if (rows[i].from &&
		    !take_block(&rest, &transform->from_rows, &transform->from_columns))
			continue;
		if (rows[i].to && !take_block(&rest, &transform->to_rows, &transform->to_columns))
			continue;
		if (rows[i].part == TRANSFORM_PADDED &&
		    !take_number(&rest, ' ', &transform->to_columns))
			continue;
		if (*rest)
			continue;
		if (convert)
			*convert = rows[i].convert;
		return true;
	}
	return false;
}
