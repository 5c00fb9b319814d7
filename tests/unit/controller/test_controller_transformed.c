/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of pieces whose bytes are transformed: each side reads in its rows how, and finds the
 * scales by its own declaration, which lists the tensors in an order of its own.
 */
#include "tests/unit/controller/controller_bench.h"

static const uint64_t matrix[2] = {8, 8}, blocks[2] = {2, 2}, vector[1] = {4};

static void add_piece(struct layout *layout, const char *param, enum dtype to, int64_t tensor,
		      int64_t scales, struct transform transform)
{
	const struct tensor_info *info = &layout->tensors[tensor];
	struct piece piece = {.tensor = (uint32_t)tensor,
			      .scales = (uint32_t)scales,
			      .src = box_whole(info->dims, info->shape),
			      .transform = transform};
	uint64_t elements;
	int64_t index;

	assert_true(
		transform_bytes(&transform, &piece.src, info->dims, info->shape, to, &piece.bytes));
	elements = piece.bytes / dtype_bytes(to);
	index = layout_add_param(layout, param, to, 1, &elements, NULL);
	assert_true(index >= 0);
	piece.param = (uint32_t)index;
	assert_int_equal(layout_add_piece(layout, &piece, NULL), 0);
}

/* Trainer: w_s, v, w. Inference rank: v, w, w_s. */
static void build_transformed(struct bench *bench)
{
	struct holding *holding = &bench->holding;
	struct layout *layout = &bench->layout;
	struct transform values = {TRANSFORM_VALUES, 4, 4, 2, 4},
			 scales = {TRANSFORM_SCALES, 4, 4, 2, 4};
	struct box box = box_whole(2, blocks);
	int64_t v, w, w_s;

	build(bench);
	holding_fini(holding);
	layout_fini(layout);
	holding_init(holding);
	layout_init(layout);
	assert_int_equal(holding_add_tensor(holding, "w_s", DTYPE_F32, 2, blocks, 1, NULL), 0);
	assert_int_equal(holding_add(holding, 0, &box, NULL), 0);
	box = box_whole(1, vector);
	assert_int_equal(holding_add_tensor(holding, "v", DTYPE_BF16, 1, vector, 2, NULL), 1);
	assert_int_equal(holding_add(holding, 1, &box, NULL), 0);
	box = box_whole(2, matrix);
	assert_int_equal(holding_add_tensor(holding, "w", DTYPE_F8_E4M3, 2, matrix, 0, NULL), 2);
	assert_int_equal(holding_add(holding, 2, &box, NULL), 0);
	assert_int_equal(holding_finish(holding, NULL), 0);
	v = layout_add_tensor(layout, "v", DTYPE_BF16, 1, vector, NULL);
	w = layout_add_tensor(layout, "w", DTYPE_F8_E4M3, 2, matrix, NULL);
	w_s = layout_add_tensor(layout, "w_s", DTYPE_F32, 2, blocks, NULL);
	add_piece(layout, "p", DTYPE_F8_E4M3, w, w_s, values);
	add_piece(layout, "p_s", DTYPE_F32, w, w_s, scales);
	add_piece(layout, "stored", DTYPE_F8_E4M3, w, 0, (struct transform){0});
	add_piece(layout, "v", DTYPE_F32, v, 0, (struct transform){0});
	assert_int_equal(layout_finish(layout, NULL), 0);
}

static const struct plan_row *row_of(const struct message_plan *plan, const char *param,
				     const struct bench *bench)
{
	for (size_t i = 0; i < plan->row_count; i++)
		if (strcmp(bench->layout.params[plan->rows[i].param].name, param) == 0)
			return &plan->rows[i];
	fail_msg("no row writes '%s'", param);
	return NULL;
}

static void check_plan(const struct message_plan *plan, const struct bench *bench, bool trainer)
{
	static const struct {
		const char *param, *transform;
		enum dtype to;
		uint64_t bytes;
		uint32_t tensor[2], scales[2]; /* of the inference rank, of the trainer */
	} rows[] = {
		{"p", "requantise 4x4 2x4", DTYPE_F8_E4M3, 64, {1, 2}, {2, 0}},
		{"p_s", "rescale 4x4 2x4", DTYPE_F32, 32, {1, 2}, {2, 0}},
		{"stored", "copy", DTYPE_NONE, 64, {1, 2}, {0, 0}},
		{"v", "convert", DTYPE_F32, 16, {0, 1}, {0, 0}},
	};
	char text[TRANSFORM_TEXT_BYTES];

	assert_int_equal(plan->row_count, ARRAY_SIZE(rows));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct plan_row *row = row_of(plan, rows[i].param, bench);

		assert_string_equal(transform_text(&row->transform, row->to != DTYPE_NONE, text),
				    rows[i].transform);
		assert_int_equal(row->to, rows[i].to);
		assert_int_equal(row->bytes, rows[i].bytes);
		assert_int_equal(row->tensor, rows[i].tensor[trainer]);
		assert_int_equal(row->scales, rows[i].scales[trainer]);
		assert_int_equal(row->path == PATH_DIRECT, row->to == DTYPE_NONE);
	}
	assert_int_equal(plan->peers[0].bytes, 176);
	assert_int_equal(plan->peers[0].pieces, 4);
}

static int set_up_transformed(void **state)
{
	struct controller_options options = options_of(0);
	struct bench *bench = memory_zalloc(1, sizeof(*bench));

	build_transformed(bench);
	assert_int_equal(controller_new(&bench->controller, &options, 0, NULL), 0);
	*state = bench;
	return 0;
}

static void test_plan__rows_of_made_pieces_name_scales_by_the_receivers_list(void **state)
{
	struct bench *bench = *state;
	const struct message_plan *trainer, *inference;

	reach(bench, TO_PLAN);
	assert_non_null(sent(bench, T0, MESSAGE_PLAN));
	trainer = &sent(bench, T0, MESSAGE_PLAN)->u.plan;
	inference = &sent(bench, I0, MESSAGE_PLAN)->u.plan;
	check_plan(trainer, bench, true);
	check_plan(inference, bench, false);
	assert_true(digest_equal(trainer->digest, inference->digest));
	for (size_t i = 0; i < trainer->row_count; i++) { /* one ordinal, one piece */
		const struct plan_row *row = &trainer->rows[i];

		assert_int_equal(inference->rows[row->ordinal].ordinal, row->ordinal);
		assert_int_equal(inference->rows[row->ordinal].param, row->param);
	}
}

static void test_plan__of_made_pieces_survives_every_failed_allocation(void **state)
{
	uint64_t k = 1;
	int rc;

	(void)state;
	do {
		struct controller_options options = options_of(0);
		struct bench bench = {0};

		build_transformed(&bench);
		memory_fail_at(k++);
		rc = controller_new(&bench.controller, &options, 0, NULL);
		if (!rc)
			rc = reach(&bench, TO_PLAN);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
		actions_clear(&bench.actions);
		controller_free(&bench.controller);
		holding_fini(&bench.holding);
		layout_fini(&bench.layout);
	} while (rc);
	assert_true(k > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_plan__rows_of_made_pieces_name_scales_by_the_receivers_list,
			set_up_transformed, tear_down),
		cmocka_unit_test(test_plan__of_made_pieces_survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
