/* SPDX-License-Identifier: Apache-2.0
 *
 * The referee's own making of bytes: every small format against the numbers that it stands for,
 * pieces in blocks against a formula written out again, planted errors found where they are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "model/content.h"
#include "worker/referee/transform.h"
#include "worker/referee/transform_element.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float f32(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t bits(float value)
{
	uint32_t out;

	memcpy(&out, &value, sizeof(out));
	return out;
}

/* ---- one element ---- */

static float widen(enum dtype from, const void *element)
{
	float value;

	referee_widen(from, element, &value, 1);
	return value;
}

static void narrow(enum dtype to, float value, void *element)
{
	referee_narrow(to, &value, element, 1);
}

static void test_element__every_code_comes_back_and_neighbours_round_to_the_even_one(void **state)
{
	static const struct {
		enum dtype dtype;
		uint32_t bytes, infinity; /* codes below it are finite */
	} rows[] = {{DTYPE_F16, 2, 0x7c00}, {DTYPE_BF16, 2, 0x7f80}, {DTYPE_F8_E4M3, 1, 0x7f}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (uint32_t code = 0; code < rows[i].infinity; code++) {
			uint32_t sign = rows[i].bytes == 2 ? 0x8000 : 0x80, back = 0;
			uint32_t next = code + 1, negative = code | sign;
			float value = widen(rows[i].dtype, &code), above, middle;

			narrow(rows[i].dtype, value, &back);
			assert_int_equal(back, code);
			assert_true(bits(widen(rows[i].dtype, &negative)) ==
				    (bits(value) ^ 0x80000000u));
			if (next >= rows[i].infinity)
				continue;
			above = widen(rows[i].dtype, &next);
			assert_true(above > value);
			middle = (float)(((double)value + above) / 2);
			narrow(rows[i].dtype, middle, &back);
			if (middle > value && middle < above) /* BF16's smallest: no F32 between */
				assert_int_equal(back, code & 1 ? next : code);
			narrow(rows[i].dtype, nextafterf(middle, INFINITY), &back);
			assert_int_equal(back, next);
			narrow(rows[i].dtype, nextafterf(middle, 0), &back);
			assert_int_equal(back, code);
		}
}

static void test_element__limits_infinities_and_nans_have_their_codes(void **state)
{
	static const struct {
		enum dtype dtype;
		uint32_t value, code;
	} rows[] = {
		{DTYPE_F16, 0x477fe000, 0x7bff}, /* 65504 */
		{DTYPE_F16, 0x477fefff, 0x7bff}, /* below 65520 */
		{DTYPE_F16, 0x477ff000, 0x7c00}, /* 65520 */
		{DTYPE_F16, 0x7f7fffff, 0x7c00},   {DTYPE_F16, 0xff800000, 0xfc00},
		{DTYPE_F16, 0x33000000, 0x0000}, /* half of the smallest */
		{DTYPE_F16, 0x33000001, 0x0001},   {DTYPE_F16, 0x80000001, 0x8000},
		{DTYPE_F16, 0xffc02000, 0xfe01},   {DTYPE_F16, 0x7f802000, 0x7e01},
		{DTYPE_BF16, 0x7f7f7fff, 0x7f7f},  {DTYPE_BF16, 0x7f7f8000, 0x7f80},
		{DTYPE_BF16, 0x7f800000, 0x7f80},  {DTYPE_BF16, 0x00008000, 0x0000},
		{DTYPE_BF16, 0x00018000, 0x0002},  {DTYPE_BF16, 0xff800001, 0xffc0},
		{DTYPE_BF16, 0x7fff0000, 0x7fff},  {DTYPE_F8_E4M3, 0x43e00000, 0x7e}, /* 448 */
		{DTYPE_F8_E4M3, 0x7f800000, 0x7e}, {DTYPE_F8_E4M3, 0xff800000, 0xfe},
		{DTYPE_F8_E4M3, 0xc3f00000, 0xfe}, {DTYPE_F8_E4M3, 0x7fc00001, 0x7f},
		{DTYPE_F8_E4M3, 0xff800001, 0xff}, {DTYPE_F8_E4M3, 0x3a800000, 0x00}, /* 2^-10 */
		{DTYPE_F8_E4M3, 0x3a800001, 0x01}, {DTYPE_F32, 0x7f800001, 0x7f800001},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t code = 0;

		narrow(rows[i].dtype, f32(rows[i].value), &code);
		if (code != rows[i].code)
			fail_msg("row %zu: 0x%08x became 0x%x, not 0x%x", i, rows[i].value, code,
				 rows[i].code);
	}
	assert_int_equal(bits(widen(DTYPE_BF16, "\x81\x7f")), 0x7fc10000);
	assert_int_equal(bits(widen(DTYPE_F16, "\x01\xfc")), 0xffc02000);
	assert_int_equal(bits(widen(DTYPE_F8_E4M3, "\xff")), 0xffc00000);
}

/* ---- many at a time ---- */

#define MANY 4099u /* whole vectors, and some */

static float many[MANY];

/* Every exponent, infinities, NaN: what versions of a checkpoint have. */
static void fill_many(uint64_t seed)
{
	for (uint32_t i = 0; i < MANY; i++)
		many[i] = f32((uint32_t)(splitmix64(seed + i) >> 32));
	memcpy(many, "\0\0\0\0\0\0\0\x80\1\0\0\0\xff\xff\x7f\x80", 16);
}

static void test_many__are_the_same_as_one_by_one(void **state)
{
	static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F8_E4M3};
	static unsigned char codes[MANY * 4];
	static float back[MANY];

	(void)state;
	fill_many(1);
	for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
		uint32_t bytes = dtype_bytes(dtypes[d]);

		referee_narrow(dtypes[d], many, codes, MANY);
		referee_widen(dtypes[d], codes, back, MANY);
		for (uint32_t i = 0; i < MANY; i++) {
			unsigned char code[4];

			narrow(dtypes[d], many[i], code);
			assert_memory_equal(codes + (size_t)i * bytes, code, bytes);
			assert_int_equal(bits(widen(dtypes[d], code)), bits(back[i]));
		}
	}
}

static void test_largest__is_that_of_the_finite_ones(void **state)
{
	static const uint32_t special[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001};

	(void)state;
	for (uint32_t n = 0; n < 70; n++) {
		float most = 0;

		fill_many(n);
		for (uint32_t i = 0; i < n; i++) {
			if (i % 3 == 0)
				many[i] = f32(special[i % 4]);
			if (isfinite(many[i]))
				most = fmaxf(most, fabsf(many[i]));
		}
		assert_int_equal(bits(referee_largest(many, n)), bits(most));
	}
}

/* Small products are made 0 beforehand: no code may notice. */
static void test_quantise__is_the_rounded_product_at_every_scale(void **state)
{
	static unsigned char codes[MANY];

	(void)state;
	for (uint32_t s = 0; s < 96; s++) {
		float scale =
			s == 95 ? 3.4028235e38f / 448.0f : 1e-10f / 448.0f * (float)pow(3.1, s);
		float inverse = 1.0f / scale;

		fill_many(s);
		for (uint32_t i = 8; i < MANY / 2; i++) { /* near what becomes the smallest codes */
			many[i] = scale * ldexpf(1.0f, -8 - (int)(i % 6));
			if (i % 5)
				many[i] = nextafterf(many[i], i % 5 < 3 ? 0 : INFINITY);
		}
		referee_quantise(many, scale, codes, MANY);
		for (uint32_t i = 0; i < MANY; i++) {
			unsigned char code;

			narrow(DTYPE_F8_E4M3, many[i] * inverse, &code);
			if (codes[i] != code)
				fail_msg("scale %a, value %a: 0x%02x, not 0x%02x", scale, many[i],
					 codes[i], code);
		}
	}
}

static void test_scale__leaves_of_a_nan_only_the_sign(void **state)
{
	float values[] = {f32(0xffc12345), f32(0x7f800001), INFINITY, -2, 0};

	(void)state;
	referee_scale(values, 0.5f, 5);
	assert_int_equal(bits(values[0]), 0xffc00000);
	assert_int_equal(bits(values[1]), 0x7fc00000);
	assert_true(values[2] == INFINITY && values[3] == -1 && bits(values[4]) == 0);
	referee_scale(values + 2, 0, 1);
	assert_int_equal(bits(values[2]), 0x7fc00000);
}

/* ---- pieces ---- */

#define ROWS	7u
#define COLUMNS 11u

struct bench {
	struct layout layout;
	unsigned char param[1024], seen[1024];
	uint64_t differs_at; /* UINT64_MAX: nowhere */
	int reads_left;	     /* of a source that fails; -1: never */
	float values[ROWS * COLUMNS];
};

static int read_content(void *context, const struct tensor_info *tensor, uint64_t offset,
			uint64_t bytes, void *out, struct error *error)
{
	struct bench *bench = context;

	if (bench->reads_left == 0)
		return error_set(error, ERROR_FILE, "cannot read %s", tensor->name);
	if (bench->reads_left > 0)
		bench->reads_left--;
	assert_true(offset + bytes <= tensor->bytes);
	content_make(tensor->name, tensor->dtype, 5, offset, bytes, out);
	return 0;
}

static int take(void *context, const struct piece *piece, uint64_t offset,
		const unsigned char *expected, uint64_t bytes, struct error *error)
{
	struct bench *bench = context;

	(void)error;
	assert_true(offset >= piece->offset && offset + bytes <= piece->offset + piece->bytes);
	for (uint64_t i = 0; i < bytes; i++) {
		bench->seen[offset + i]++;
		if (bench->param[offset + i] == expected[i])
			continue;
		bench->differs_at = offset + i;
		return -(int)ERROR_CHECKSUM;
	}
	return 0;
}

/* What job/transform.h says, written down for whole tensors in memory: the tensor's values. */
static void source_values(struct bench *bench, const struct transform *transform, enum dtype from)
{
	unsigned char raw[ROWS * COLUMNS * 4];
	float scales[ROWS * COLUMNS];
	uint32_t element = dtype_bytes(from);

	content_make("t", from, 5, 0, (uint64_t)ROWS * COLUMNS * element, raw);
	content_make("s", DTYPE_F32, 5, 0, sizeof(scales), scales);
	for (uint32_t r = 0; r < ROWS; r++)
		for (uint32_t c = 0; c < COLUMNS; c++) {
			float *value = &bench->values[r * COLUMNS + c];
			uint32_t wide;

			*value = widen(from, raw + (r * COLUMNS + c) * element);
			if (!transform->from_rows)
				continue;
			wide = (COLUMNS + transform->from_columns - 1) / transform->from_columns;
			*value *= scales[r / transform->from_rows * wide +
					 c / transform->from_columns];
		}
}

static void make_param(struct bench *bench, const struct transform *transform,
		       const struct box *box, enum dtype to, unsigned char *out)
{
	uint32_t element = dtype_bytes(to);

	for (uint64_t r = box->lo[0]; r < box->hi[0]; r++)
		for (uint64_t c = box->lo[1]; c < box->hi[1]; c++) {
			float amax = 1e-10f, scale, x = bench->values[r * COLUMNS + c];
			uint32_t rows = transform->to_rows, columns = transform->to_columns;

			if (!rows) {
				narrow(to, x, out);
				out += element;
				continue;
			}
			for (uint64_t i = r / rows * rows; i < (r / rows + 1) * rows && i < ROWS;
			     i++)
				for (uint64_t k = c / columns * columns;
				     k < (c / columns + 1) * columns && k < COLUMNS; k++)
					amax = fmaxf(amax, fabsf(bench->values[i * COLUMNS + k]));
			scale = amax / 448.0f;
			if (transform->part == TRANSFORM_VALUES)
				narrow(to, x * (1.0f / scale), out++);
			else if (r % rows == 0 && c % columns == 0) {
				memcpy(out, &scale, 4);
				out += 4;
			}
		}
}

static void add_layout(struct bench *bench, const struct piece *piece, enum dtype from,
		       enum dtype to)
{
	const uint64_t shape[2] = {ROWS, COLUMNS}, room[1] = {1024 / dtype_bytes(to)};
	struct error error = {0};

	layout_init(&bench->layout);
	assert_int_equal(layout_add_tensor(&bench->layout, "t", from, 2, shape, &error), 0);
	if (piece->transform.from_rows) {
		const uint64_t blocks[2] = {(ROWS + piece->transform.from_rows - 1) /
						    piece->transform.from_rows,
					    (COLUMNS + piece->transform.from_columns - 1) /
						    piece->transform.from_columns};

		assert_int_equal(
			layout_add_tensor(&bench->layout, "s", DTYPE_F32, 2, blocks, &error), 1);
	}
	assert_int_equal(layout_add_param(&bench->layout, "p", to, 1, room, &error), 0);
	if (layout_add_piece(&bench->layout, piece, &error))
		fail_msg("%s", error.text);
}

static const struct piece_row {
	struct transform transform;
	uint64_t lo[2], hi[2];
	enum dtype from, to;
} piece_rows[] = {
	{{TRANSFORM_VALUES, 0, 0, 0, 0}, {0, 0}, {7, 11}, DTYPE_BF16, DTYPE_BF16},
	{{TRANSFORM_VALUES, 0, 0, 0, 0}, {2, 3}, {6, 7}, DTYPE_F32, DTYPE_F32},
	{{TRANSFORM_VALUES, 0, 0, 0, 0}, {1, 2}, {7, 9}, DTYPE_F32, DTYPE_BF16},
	{{TRANSFORM_VALUES, 0, 0, 0, 0}, {0, 0}, {7, 11}, DTYPE_BF16, DTYPE_F16},
	{{TRANSFORM_VALUES, 0, 0, 0, 0}, {3, 0}, {4, 11}, DTYPE_F16, DTYPE_F32},
	{{TRANSFORM_VALUES, 2, 3, 0, 0}, {1, 1}, {6, 11}, DTYPE_F8_E4M3, DTYPE_BF16},
	{{TRANSFORM_VALUES, 4, 4, 0, 0}, {0, 0}, {7, 11}, DTYPE_F8_E4M3, DTYPE_F32},
	{{TRANSFORM_VALUES, 0, 0, 2, 3}, {2, 3}, {7, 11}, DTYPE_BF16, DTYPE_F8_E4M3},
	{{TRANSFORM_SCALES, 0, 0, 2, 3}, {2, 3}, {7, 11}, DTYPE_BF16, DTYPE_F32},
	{{TRANSFORM_VALUES, 0, 0, 4, 5}, {0, 0}, {7, 11}, DTYPE_F32, DTYPE_F8_E4M3},
	{{TRANSFORM_SCALES, 0, 0, 4, 5}, {0, 0}, {7, 11}, DTYPE_F32, DTYPE_F32},
	{{TRANSFORM_VALUES, 3, 4, 2, 2}, {2, 4}, {6, 8}, DTYPE_F8_E4M3, DTYPE_F8_E4M3},
	{{TRANSFORM_SCALES, 3, 4, 2, 2}, {2, 4}, {7, 11}, DTYPE_F8_E4M3, DTYPE_F32},
};

static struct piece open_piece(struct bench *bench, const struct piece_row *row)
{
	struct piece piece = {.transform = row->transform,
			      .offset = 16,
			      .src = {2, {row->lo[0], row->lo[1]}, {row->hi[0], row->hi[1]}}};
	const uint64_t shape[2] = {ROWS, COLUMNS};

	memset(bench, 0, sizeof(*bench));
	bench->differs_at = UINT64_MAX;
	bench->reads_left = -1;
	piece.scales = row->transform.from_rows ? 1 : 0;
	assert_true(transform_bytes(&row->transform, &piece.src, 2, shape, row->to, &piece.bytes));
	add_layout(bench, &piece, row->from, row->to);
	source_values(bench, &row->transform, row->from);
	make_param(bench, &row->transform, &piece.src, row->to, bench->param + piece.offset);
	return piece;
}

static void test_piece__is_made_as_the_definition_says_every_byte_once(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(piece_rows) / sizeof(piece_rows[0]); i++) {
		struct bench bench;
		struct piece piece = open_piece(&bench, &piece_rows[i]);
		struct referee_transform transform = {
			.context = &bench, .read = read_content, .take = take};
		struct error error = {0};

		assert_int_equal(referee_transform_open(&transform, &error), 0);
		if (referee_transform_piece(&transform, &bench.layout, &piece, &error))
			fail_msg("row %zu: byte %llu differs; %s", i,
				 (unsigned long long)bench.differs_at, error.text);
		for (uint64_t b = 0; b < sizeof(bench.seen); b++)
			assert_int_equal(bench.seen[b],
					 b >= piece.offset && b < piece.offset + piece.bytes);
		referee_transform_close(&transform);
		layout_fini(&bench.layout);
	}
}

static void test_piece__finds_one_wrong_bit_wherever_it_is(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(piece_rows) / sizeof(piece_rows[0]); i++) {
		struct bench bench;
		struct piece piece = open_piece(&bench, &piece_rows[i]);
		struct referee_transform transform = {
			.context = &bench, .read = read_content, .take = take};
		struct error error = {0};

		assert_int_equal(referee_transform_open(&transform, &error), 0);
		for (uint64_t b = piece.offset; b < piece.offset + piece.bytes; b++) {
			bench.param[b] ^= (unsigned char)(1u << b % 8);
			assert_int_equal(
				referee_transform_piece(&transform, &bench.layout, &piece, &error),
				-ERROR_CHECKSUM);
			assert_int_equal(bench.differs_at, b);
			bench.param[b] ^= (unsigned char)(1u << b % 8);
		}
		referee_transform_close(&transform);
		layout_fini(&bench.layout);
	}
}

static void test_piece__passes_a_source_that_cannot_be_read_on(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(piece_rows) / sizeof(piece_rows[0]); i++) {
		struct bench bench;
		struct piece piece = open_piece(&bench, &piece_rows[i]);
		struct referee_transform transform = {
			.context = &bench, .read = read_content, .take = take};
		struct error error = {0};
		int rc = -1;

		assert_int_equal(referee_transform_open(&transform, &error), 0);
		for (int reads = 0; rc; reads++) {
			bench.reads_left = reads;
			rc = referee_transform_piece(&transform, &bench.layout, &piece, &error);
			assert_true(rc == 0 || rc == -ERROR_FILE);
		}
		referee_transform_close(&transform);
		layout_fini(&bench.layout);
	}
	memory_fail_at(1);
	assert_int_equal(referee_transform_open(&(struct referee_transform){0}, NULL),
			 -ERROR_MEMORY);
	memory_fail_at(0);
}

static const unsigned char *wide_bytes;

static int take_wide(void *context, const struct piece *piece, uint64_t offset,
		     const unsigned char *expected, uint64_t bytes, struct error *error)
{
	(void)context;
	(void)piece;
	(void)error;
	return memcmp(wide_bytes + offset, expected, bytes) ? -(int)ERROR_CHECKSUM : 0;
}

/* Wider than one chunk of elements, in blocks that no chunk ends with. */
static void test_piece__is_the_same_in_many_chunks(void **state)
{
	const uint64_t shape[2] = {3, 2 * REFEREE_ELEMENTS + 77}, width = shape[1];
	const uint64_t blocks = (width + 999) / 1000;
	static struct layout layout;
	struct error error = {0};
	float *values = calloc(3 * width, 4), *scales = calloc(2 * blocks, 4);
	unsigned char *expected = calloc(3, width);

	(void)state;
	assert_true(values && scales && expected);
	content_make("t", DTYPE_F32, 5, 0, 12 * width, values);
	for (uint64_t r = 0; r < 3; r++)
		for (uint64_t c = 0; c < width; c++)
			scales[r / 2 * blocks + c / 1000] = fmaxf(scales[r / 2 * blocks + c / 1000],
								  fabsf(values[r * width + c]));
	for (uint64_t b = 0; b < 2 * blocks; b++)
		scales[b] /= 448.0f;
	for (uint64_t r = 0; r < 3; r++)
		for (uint64_t c = 0; c < width; c++)
			narrow(DTYPE_F8_E4M3,
			       values[r * width + c] * (1.0f / scales[r / 2 * blocks + c / 1000]),
			       expected + r * width + c);
	layout_init(&layout);
	assert_int_equal(layout_add_tensor(&layout, "t", DTYPE_F32, 2, shape, &error), 0);
	assert_int_equal(layout_add_param(&layout, "v", DTYPE_F8_E4M3, 2, shape, &error), 0);
	assert_int_equal(
		layout_add_param(&layout, "s", DTYPE_F32, 2, (uint64_t[2]){2, blocks}, &error), 1);
	for (uint32_t part = 0; part < 2; part++) {
		struct piece piece = {
			.param = part,
			.src = box_whole(2, shape),
			.transform = {part ? TRANSFORM_SCALES : TRANSFORM_VALUES, 0, 0, 2, 1000}};
		struct bench bench = {.reads_left = -1};
		struct referee_transform transform = {
			.context = &bench, .read = read_content, .take = take_wide};

		wide_bytes = part ? (const unsigned char *)scales : expected;
		piece.bytes = part ? 8 * blocks : 3 * width;
		assert_int_equal(layout_add_piece(&layout, &piece, &error), 0);
		assert_int_equal(referee_transform_open(&transform, &error), 0);
		assert_int_equal(referee_transform_piece(&transform, &layout, &piece, &error), 0);
		referee_transform_close(&transform);
	}
	layout_fini(&layout);
	free(values);
	free(scales);
	free(expected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_element__every_code_comes_back_and_neighbours_round_to_the_even_one),
		cmocka_unit_test(test_element__limits_infinities_and_nans_have_their_codes),
		cmocka_unit_test(test_many__are_the_same_as_one_by_one),
		cmocka_unit_test(test_largest__is_that_of_the_finite_ones),
		cmocka_unit_test(test_quantise__is_the_rounded_product_at_every_scale),
		cmocka_unit_test(test_scale__leaves_of_a_nan_only_the_sign),
		cmocka_unit_test(test_piece__is_made_as_the_definition_says_every_byte_once),
		cmocka_unit_test(test_piece__finds_one_wrong_bit_wherever_it_is),
		cmocka_unit_test(test_piece__passes_a_source_that_cannot_be_read_on),
		cmocka_unit_test(test_piece__is_the_same_in_many_chunks),
	};

	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	referee_use_wide(false);
	return failed + cmocka_run_group_tests_name("portable", tests, NULL, NULL);
}
