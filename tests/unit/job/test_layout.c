/* SPDX-License-Identifier: Apache-2.0 */
#include "job/holding.h"
#include "job/layout.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const uint64_t shape_8x6[] = {8, 6}, shape_4x6[] = {4, 6};

static struct box rows(uint64_t lo, uint64_t hi)
{
	return (struct box){2, {lo, 0}, {hi, 6}};
}

/* One tensor [8,6] bf16 whose rows 4..8 are a parameter [4,6]. */
static int build(struct layout *layout, struct error *error)
{
	int64_t tensor = layout_add_tensor(layout, "w", DTYPE_BF16, 2, shape_8x6, error);
	int64_t param =
		tensor < 0 ? -1 : layout_add_param(layout, "p", DTYPE_BF16, 2, shape_4x6, error);
	struct piece low = {.src = rows(4, 6), .offset = 0, .bytes = 24};
	struct piece high = {.src = rows(6, 8), .offset = 24, .bytes = 24};
	int rc;

	if (tensor < 0 || param < 0)
		return (int)(tensor < 0 ? tensor : -(int)error->code);
	rc = layout_add_piece(layout, &high, error);
	if (rc == 0)
		rc = layout_add_piece(layout, &low, error);
	return rc ? rc : layout_finish(layout, error);
}

static void test_layout__digest_does_not_depend_on_the_order_of_pieces(void **unused)
{
	struct layout a, b;
	struct error error;
	struct piece piece = {.src = rows(4, 8), .offset = 0, .bytes = 48};

	(void)unused;
	layout_init(&a);
	layout_init(&b);
	assert_int_equal(build(&a, &error), 0);
	assert_int_equal(build(&b, &error), 0);
	assert_int_equal(a.pieces[0].src.lo[0], 4);
	assert_true(digest_equal(layout_digest(&a), layout_digest(&b)));
	layout_fini(&b);
	layout_add_tensor(&b, "w", DTYPE_BF16, 2, shape_8x6, &error);
	layout_add_param(&b, "p", DTYPE_BF16, 2, shape_4x6, &error);
	assert_int_equal(layout_add_piece(&b, &piece, &error), 0);
	assert_int_equal(layout_finish(&b, &error), 0);
	assert_false(digest_equal(layout_digest(&a), layout_digest(&b)));
	layout_fini(&a);
	layout_fini(&b);
}

static void test_layout__names_the_first_byte_without_a_source(void **unused)
{
	struct layout layout;
	struct error error;
	struct piece piece = {.src = rows(0, 3), .offset = 0, .bytes = 36};
	struct fill fill = {.param = 0, .offset = 36, .bytes = 12};

	(void)unused;
	layout_init(&layout);
	layout_add_tensor(&layout, "w", DTYPE_BF16, 2, shape_8x6, &error);
	layout_add_param(&layout, "p", DTYPE_BF16, 2, shape_4x6, &error);
	assert_int_equal(layout_add_piece(&layout, &piece, &error), 0);
	assert_int_equal(layout_finish(&layout, &error), -ERROR_UNSOURCED);
	assert_non_null(strstr(error.text, "byte 36 of parameter p"));
	assert_int_equal(layout_add_fill(&layout, &fill, &error), 0);
	assert_int_equal(layout_finish(&layout, &error), 0);
	assert_int_equal(layout_add_fill(&layout, &fill, &error), 0);
	assert_int_equal(layout_finish(&layout, &error), -ERROR_CONFLICT);
	layout_fini(&layout);
}

static void test_layout__refuses_what_cannot_be_a_piece(void **unused)
{
	struct layout layout;
	struct error error;
	struct piece piece = {.src = rows(4, 9), .bytes = 60};

	(void)unused;
	layout_init(&layout);
	layout_add_tensor(&layout, "w", DTYPE_BF16, 2, shape_8x6, &error);
	layout_add_param(&layout, "p", DTYPE_BF16, 2, shape_4x6, &error);
	layout_add_param(&layout, "q", DTYPE_I16, 2, shape_4x6, &error);
	assert_int_equal(layout_add_piece(&layout, &piece, &error), -ERROR_BOUNDS);
	assert_non_null(strstr(error.text, "[4..9, 0..6]"));
	piece = (struct piece){.src = rows(4, 8), .offset = 8, .bytes = 48};
	assert_int_equal(layout_add_piece(&layout, &piece, &error), -ERROR_BOUNDS);
	piece = (struct piece){.src = rows(4, 8), .bytes = 40};
	assert_int_equal(layout_add_piece(&layout, &piece, &error), -ERROR_CONFIG);
	piece = (struct piece){.src = rows(4, 8), .param = 1, .bytes = 48};
	assert_int_equal(layout_add_piece(&layout, &piece, &error), -ERROR_UNSUPPORTED);
	piece = (struct piece){.tensor = 7, .src = rows(4, 8), .bytes = 48};
	assert_int_equal(layout_add_piece(&layout, &piece, &error), -ERROR_CONFIG);
	assert_true(layout_add_tensor(&layout, "w", DTYPE_BF16, 2, shape_4x6, &error) ==
		    -ERROR_CONFLICT);
	assert_non_null(strstr(error.text, "[8, 6]"));
	assert_true(layout_add_param(&layout, "p", DTYPE_BF16, 2, shape_4x6, &error) ==
		    -ERROR_CONFLICT);
	layout_fini(&layout);
}

/* "w" [8,6] in F8_E4M3 blocks of 4x4 with its scales, "b" [8,6] BF16; parameters in blocks. */
static void declare_transformed(struct layout *layout)
{
	static const uint64_t blocks[] = {2, 2}, wrong[] = {2, 3}, scales[] = {4, 2};

	layout_init(layout);
	layout_add_tensor(layout, "w", DTYPE_F8_E4M3, 2, shape_8x6, NULL);
	layout_add_tensor(layout, "w_scale", DTYPE_F32, 2, blocks, NULL);
	layout_add_tensor(layout, "b", DTYPE_BF16, 2, shape_8x6, NULL);
	layout_add_tensor(layout, "wrong", DTYPE_F32, 2, wrong, NULL);
	layout_add_param(layout, "p", DTYPE_F8_E4M3, 2, shape_8x6, NULL);
	layout_add_param(layout, "p_scale", DTYPE_F32, 2, scales, NULL);
	layout_add_param(layout, "half", DTYPE_F16, 2, shape_8x6, NULL);
}

static const struct transform quantise = {.to_rows = 2, .to_columns = 3},
			      requantise = {.from_rows = 4,
					    .from_columns = 4,
					    .to_rows = 2,
					    .to_columns = 3},
			      scales = {.part = TRANSFORM_SCALES, .to_rows = 2, .to_columns = 3},
			      dequantise = {.from_rows = 4, .from_columns = 4};

static void test_layout__takes_pieces_whose_bytes_are_made(void **unused)
{
	static const struct piece transformed[] = {
		{.tensor = 2, .src = {2, {0}, {4, 6}}, .bytes = 24, .transform = quantise},
		{.tensor = 0,
		 .src = {2, {4}, {8, 6}},
		 .offset = 24,
		 .bytes = 24,
		 .transform = requantise,
		 .scales = 1},
		{.tensor = 2,
		 .param = 1,
		 .src = {2, {0}, {8, 6}},
		 .bytes = 32,
		 .transform = scales},
		{.tensor = 2, .param = 2, .src = {2, {0}, {4, 6}}, .bytes = 48},
		{.tensor = 0,
		 .param = 2,
		 .src = {2, {4}, {8, 6}},
		 .offset = 48,
		 .bytes = 48,
		 .transform = dequantise,
		 .scales = 1},
	};
	struct digest known[2];
	struct layout layout;
	struct error error;

	(void)unused;
	for (int turn = 0; turn < 2; turn++) {
		declare_transformed(&layout);
		for (size_t i = 0; i < 5; i++)
			assert_int_equal(
				layout_add_piece(&layout, &transformed[turn ? 4 - i : i], &error),
				0);
		assert_int_equal(layout_finish(&layout, &error), 0);
		known[turn] = layout_digest(&layout);
		for (size_t i = 0; i < layout.piece_count; i++) {
			struct piece *piece = &layout.pieces[i];
			struct piece kept = *piece;

			if (!piece->transform.to_rows)
				continue;
			piece->transform.to_rows++;
			assert_false(digest_equal(layout_digest(&layout), known[turn]));
			*piece = kept;
			piece->transform.part ^= 1;
			assert_false(digest_equal(layout_digest(&layout), known[turn]));
			*piece = kept;
			piece->scales ^= 1;
			assert_false(digest_equal(layout_digest(&layout), known[turn]));
			*piece = kept;
		}
		layout_fini(&layout);
	}
	assert_true(digest_equal(known[0], known[1]));
}

static void test_layout__refuses_what_cannot_be_made(void **unused)
{
	static const struct {
		struct piece piece;
		int code;
		const char *text;
	} rows[] = {
		{{.tensor = 2, .src = {2, {1}, {4, 6}}, .bytes = 18, .transform = quantise},
		 ERROR_UNSUPPORTED,
		 "a piece takes [1..4, 0..6] of tensor b [8, 6] for parameter p (quantise 2x3,"},
		{{.tensor = 2, .src = {2, {0}, {4, 4}}, .bytes = 16, .transform = quantise},
		 ERROR_UNSUPPORTED,
		 "begin at a block's border"},
		{{.tensor = 2, .src = {2, {0}, {4, 6}}, .bytes = 25, .transform = quantise},
		 ERROR_CONFIG,
		 "a piece of tensor b takes 24 bytes but fills 25 of parameter p"},
		{{.tensor = 2, .src = {2, {0}, {4, 6}}, .bytes = 24},
		 ERROR_UNSUPPORTED,
		 "tensor b is BF16 but parameter p is F8_E4M3, and weft cannot convert"},
		{{.src = {2, {0}, {4, 6}}, .bytes = 24, .transform = quantise},
		 ERROR_UNSUPPORTED,
		 "tensor w is F8_E4M3 but parameter p is F8_E4M3, and weft cannot quantise 2x3"},
		{{.src = {2, {0}, {4, 6}}, .bytes = 24, .transform = requantise, .scales = 9},
		 ERROR_CONFIG,
		 "tensor w names tensor 9 of 4 as its scales"},
		{{.src = {2, {0}, {4, 6}}, .bytes = 24, .transform = requantise, .scales = 3},
		 ERROR_CONFIG,
		 "tensor wrong is F32 [2, 3], but as the scales of tensor w in blocks of 4x4 it "
		 "must be F32 [2, 2]"},
		{{.src = {2, {0}, {4, 6}}, .bytes = 24, .transform = requantise, .scales = 2},
		 ERROR_CONFIG,
		 "tensor b is BF16 [8, 6], but as the scales"},
		{{.tensor = 2,
		  .src = {2, {0}, {4, 6}},
		  .bytes = 24,
		  .transform = quantise,
		  .scales = 1},
		 ERROR_CONFIG,
		 "tensor b is not in blocks but names tensor 1"},
	};
	struct layout layout;
	struct error error;

	(void)unused;
	declare_transformed(&layout);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		error.text[0] = 0;
		assert_int_equal(layout_add_piece(&layout, &rows[i].piece, &error), -rows[i].code);
		if (!strstr(error.text, rows[i].text))
			fail_msg("row %zu: %s", i, error.text);
	}
	assert_int_equal(layout.piece_count, 0);
	layout_fini(&layout);
}

static void test_layout__cuts_a_piece_at_rows(void **unused)
{
	const struct piece plain = {.src = rows(2, 8), .offset = 100, .bytes = 72};
	/* blocks of 4 rows of a tensor of 11: rows 4..11 are scales of 2 block rows, 8 bytes each */
	const struct piece short_end = {.param = 3,
					.src = {2, {4}, {11, 6}},
					.offset = 40,
					.bytes = 16,
					.transform = {TRANSFORM_SCALES, 0, 0, 4, 3}};
	struct piece out;

	(void)unused;
	assert_true(piece_cut_rows(&plain, 0, 5, &out));
	assert_int_equal(out.src.lo[0], 2);
	assert_int_equal(out.src.hi[0], 5);
	assert_int_equal(out.offset, 100);
	assert_int_equal(out.bytes, 36);
	assert_true(piece_cut_rows(&plain, 5, 20, &out));
	assert_int_equal(out.offset, 136);
	assert_int_equal(out.bytes, 36);
	assert_false(piece_cut_rows(&plain, 8, 20, &out));
	assert_true(piece_cut_rows(&short_end, 8, 11, &out));
	assert_int_equal(out.src.lo[0], 8);
	assert_int_equal(out.offset, 48);
	assert_int_equal(out.bytes, 8);
	assert_int_equal(out.param, 3);
	assert_true(transform_equal(&out.transform, &short_end.transform));
	assert_true(piece_cut_rows(&short_end, 0, 8, &out));
	assert_int_equal(out.offset, 40);
	assert_int_equal(out.bytes, 8);
}

static void test_layout__survives_every_failed_allocation(void **unused)
{
	struct error error;
	struct layout layout;
	uint64_t k = 1;

	(void)unused;
	for (;; k++) {
		int rc;

		layout_init(&layout);
		memory_fail_at(k);
		rc = build(&layout, &error);
		memory_fail_at(0);
		layout_fini(&layout);
		if (rc == 0)
			break;
		assert_int_equal(rc, -ERROR_MEMORY);
	}
	assert_true(k > 5);
}

static void test_holding__refuses_rows_held_twice(void **unused)
{
	struct holding holding;
	struct error error;
	struct box low = rows(0, 4), high = rows(3, 8);

	(void)unused;
	holding_init(&holding);
	assert_int_equal(holding_add_tensor(&holding, "w", DTYPE_BF16, 2, shape_8x6, 0, &error), 0);
	assert_int_equal(holding_add(&holding, 0, &high, &error), 0);
	assert_int_equal(holding_add(&holding, 0, &low, &error), 0);
	assert_int_equal(holding_finish(&holding, &error), -ERROR_CONFLICT);
	assert_non_null(strstr(error.text, "[3..4, 0..6] of tensor w is held twice"));
	holding_fini(&holding);
}

/* Every box of every small 3-D shape against a walk over its elements. */
static void test_box_runs__agree_with_a_walk_over_elements(void **unused)
{
	uint64_t shape[3];
	struct box box = {.dims = 3};
	size_t refused = 0, checked = 0;

	(void)unused;
	for (int n = 0; n < 20000; n++) {
		struct runs runs;
		uint64_t first = UINT64_MAX, at = 0;
		bool dense = true;

		for (int d = 0; d < 3; d++) {
			shape[d] = 1 + (uint64_t)rand() % 4;
			box.lo[d] = (uint64_t)rand() % shape[d];
			box.hi[d] = box.lo[d] + 1 + (uint64_t)rand() % (shape[d] - box.lo[d]);
		}
		bool ok = box_runs(&box, shape, 2, &runs);

		refused += !ok;
		if (!ok)
			continue;
		checked++;
		assert_int_equal(runs.rows * runs.row_bytes, box_elements(&box) * 2);
		for (uint64_t i = box.lo[0]; i < box.hi[0]; i++)
			for (uint64_t j = box.lo[1]; j < box.hi[1]; j++)
				for (uint64_t k = box.lo[2]; k < box.hi[2]; k++, at++) {
					uint64_t where = ((i * shape[1] + j) * shape[2] + k) * 2;
					uint64_t byte = at * 2;
					uint64_t predicted =
						runs.offset +
						byte / runs.row_bytes * runs.stride_bytes +
						byte % runs.row_bytes;

					if (first == UINT64_MAX)
						first = where;
					dense = dense && where == first + byte;
					assert_int_equal(predicted, where);
				}
		assert_int_equal(runs.rows == 1, dense);
		assert_int_equal(box_contiguous(&box, shape), dense);
	}
	assert_true(checked > 1000 && refused > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout__digest_does_not_depend_on_the_order_of_pieces),
		cmocka_unit_test(test_layout__names_the_first_byte_without_a_source),
		cmocka_unit_test(test_layout__refuses_what_cannot_be_a_piece),
		cmocka_unit_test(test_layout__takes_pieces_whose_bytes_are_made),
		cmocka_unit_test(test_layout__refuses_what_cannot_be_made),
		cmocka_unit_test(test_layout__cuts_a_piece_at_rows),
		cmocka_unit_test(test_layout__survives_every_failed_allocation),
		cmocka_unit_test(test_holding__refuses_rows_held_twice),
		cmocka_unit_test(test_box_runs__agree_with_a_walk_over_elements),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
