/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks that several trainers hold side by side: w [16, 16] in blocks of 4 x 8, its values and its scales, from trainers with half of
 * the columns each:
 *
 *   values   16 rows of 16 bytes     trainer 0: runs of 8, 16 apart, from 0     trainer 1: from 8
 *   scales   4 rows of 2 floats      trainer 0: runs of 4, 8 apart, from 0      trainer 1: from 4
 *
 * And of what is transposed columns, which are rows of the parameter: one run of each trainer.
 */
#include "tests/unit/routing/plan/boxes_job.h"

static void want_blocks(struct job *job, uint32_t rows, uint32_t columns)
{
	const uint64_t shape[2] = {16, 16}, scales[2] = {16 / rows, 16 / columns};
	struct layout *layout = &job->layouts[0];
	struct error error = {0};
	struct piece piece = {
		.src = box_of(0, 16, 0, 16),
		.bytes = 256,
		.transform = {.part = TRANSFORM_VALUES, .to_rows = rows, .to_columns = columns}};

	piece.tensor = (uint32_t)layout_add_tensor(layout, "w", DTYPE_F32, 2, shape, &error);
	piece.param = (uint32_t)layout_add_param(layout, "p", DTYPE_F8_E4M3, 2, shape, &error);
	if (layout_add_piece(layout, &piece, &error))
		fail_msg("%s", error.text);
	piece.param = (uint32_t)layout_add_param(layout, "p_scale", DTYPE_F32, 2, scales, &error);
	piece.transform.part = TRANSFORM_SCALES;
	piece.bytes = scales[0] * scales[1] * 4;
	if (layout_add_piece(layout, &piece, &error))
		fail_msg("%s", error.text);
}

static void halves(struct job *job, uint32_t rows, uint32_t columns)
{
	const struct random_tensor w = f32_tensor("w", 0, 16, 16);

	job_init(job, 2, 1);
	hold_part(job, 0, &w, 0, 16, 0, 8);
	hold_part(job, 1, &w, 0, 16, 8, 16);
	want_blocks(job, rows, columns);
	job_build(job);
}

static void test_blocks__side_by_side_are_runs_and_so_are_their_scales(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	halves(&job, 4, 8);
	table = job_plan(&job, "greedy");
	assert_int_equal(table->route_count, 2);
	assert_int_equal(table->piece_count, 4);
	for (uint32_t t = 0; t < 2; t++)
		for (uint32_t p = 0; p < 2; p++) {
			const struct route_piece *piece =
				&table->pieces[table->routes[t].piece_first + p];
			bool scales = piece->bytes == 16;

			assert_int_equal(table->routes[t].trainer, t);
			assert_int_equal(piece->bytes, scales ? 16 : 128);
			assert_int_equal(piece->offset, t * (scales ? 4 : 8));
			assert_int_equal(piece->spread.run_bytes, scales ? 4 : 8);
			assert_int_equal(piece->spread.stride_bytes, scales ? 8 : 16);
		}
	table_free(&table);
	job_fini(&job);
}

/* One row of blocks: its scales are one run for each trainer, the values are not. */
static void test_blocks__of_one_row_have_scales_in_one_run(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	halves(&job, 16, 4);
	table = job_plan(&job, "balanced");
	assert_int_equal(table->piece_count, 4);
	for (size_t p = 0; p < 4; p++)
		if (table->pieces[p].bytes == 8)
			assert_int_equal(table->pieces[p].spread.run_bytes, 0);
		else
			assert_int_equal(table->pieces[p].spread.run_bytes, 8);
	table_free(&table);
	job_fini(&job);
}

/* Three have each half: a third of 16 rows is in the midst of a block of 4. */
static void test_balanced__cuts_a_cell_of_blocks_between_them(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 16, 16);
	static struct job job;
	struct table *table;

	(void)state;
	job_init(&job, 6, 1);
	for (uint32_t t = 0; t < 6; t++)
		hold_part(&job, t, &w, 0, 16, t < 3 ? 0 : 8, t < 3 ? 8 : 16);
	want_blocks(&job, 4, 8);
	job_build(&job);
	table = job_plan(&job, "balanced");
	assert_int_equal(table->route_count, 6);
	for (size_t p = 0; p < table->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[p];

		assert_int_equal(piece->src.lo[0] % 4, 0);
		assert_int_equal(piece->src.hi[0] % 4, 0);
		assert_true(piece->src.hi[0] - piece->src.lo[0] <= 8);
	}
	table_free(&table);
	job_fini(&job);
}

static void test_blocks__that_a_shard_ends_inside_of_are_refused(void **state)
{
	static struct job job;
	struct error error = {0};
	struct table *table;

	(void)state;
	halves(&job, 4, 16);
	assert_int_equal(table_plan(&table, job.problem, policy_find("greedy"), NULL, &error),
			 -ERROR_UNSUPPORTED);
	assert_non_null(strstr(
		error.text,
		"parameter 'p' of inference 0 is transformed in blocks of 16 columns of tensor 'w'"));
	assert_non_null(
		strstr(error.text, "one holds [0..16, 0..8], which ends inside of a block"));
	job_fini(&job);
}

static void test_proof__refuses_blocks_that_are_not_where_they_belong(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	halves(&job, 4, 8);
	table = job_plan(&job, "greedy");
	for (size_t p = 0; p < table->piece_count; p++)
		for (int fault = 0; fault < 6; fault++) {
			struct route_piece *piece = &table->pieces[p], kept = *piece;
			struct error error = {0};

			piece->spread.run_bytes =
				fault == 0 ? kept.spread.run_bytes / 2 : piece->spread.run_bytes;
			piece->spread.stride_bytes += fault == 1 ? kept.spread.run_bytes : 0;
			piece->offset ^= fault == 2 ? kept.spread.run_bytes : 0;
			piece->spread = fault == 3 ? (struct spread){0} : piece->spread;
			piece->src.hi[1] -= fault == 4 ? 4 : 0;
			piece->path = fault == 5 ? PATH_REPLICA : piece->path;
			assert_int_equal(table_prove(table, &error), -ERROR_UNPROVED);
			*piece = kept;
			assert_int_equal(table_prove(table, &error), 0);
		}
	table_free(&table);
	job_fini(&job);
}

/* p is w transposed, of columns [left, right), from trainers with rows [0, 16) of the columns up to `border` and from there on. */
static void turned(struct job *job, uint64_t left, uint64_t right, uint64_t border)
{
	const struct random_tensor w = f32_tensor("w", 0, 16, 16);
	const uint64_t own[2] = {right - left, 16};
	struct piece piece = {.src = box_of(0, 16, left, right),
			      .bytes = (right - left) * 16 * 4,
			      .transform = {.part = TRANSFORM_TRANSPOSED}};

	job_init(job, 2, 1);
	hold_part(job, 0, &w, 0, 16, 0, border);
	hold_part(job, 1, &w, 0, 16, border, 16);
	piece.tensor =
		(uint32_t)layout_add_tensor(&job->layouts[0], "w", DTYPE_F32, 2, w.shape, NULL);
	piece.param = (uint32_t)layout_add_param(&job->layouts[0], "p", DTYPE_F32, 2, own, NULL);
	assert_int_equal(layout_add_piece(&job->layouts[0], &piece, NULL), 0);
	job_build(job);
}

static void test_transposed__columns_of_a_tensor_are_rows_of_the_parameter(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	turned(&job, 4, 12, 6);
	table = job_plan(&job, "greedy");
	assert_int_equal(table->piece_count, 2);
	for (uint32_t t = 0; t < 2; t++) {
		struct route_piece *piece = &table->pieces[table->routes[t].piece_first],
				   kept = *piece;
		const struct box want = t ? box_of(0, 16, 6, 12) : box_of(0, 16, 4, 6);

		assert_int_equal(table->routes[t].trainer, t);
		assert_true(box_equal(&piece->src, &want));
		assert_int_equal(piece->offset, t ? 2 * 16 * 4 : 0);
		assert_int_equal(piece->bytes, (t ? 6 : 2) * 16 * 4);
		assert_int_equal(piece->spread.run_bytes, 0);
		for (int fault = 0; fault < 4; fault++) {
			struct error error = {0};

			piece->offset += fault == 0 ? 4 : 0;
			piece->src.hi[1] -= fault == 1;
			piece->bytes -= fault == 2 ? 64 : 0;
			piece->spread.run_bytes = fault == 3 ? 64 : 0;
			piece->spread.stride_bytes = fault == 3 ? 64 : 0;
			assert_int_equal(table_prove(table, &error), -ERROR_UNPROVED);
			*piece = kept;
			assert_int_equal(table_prove(table, &error), 0);
		}
	}
	table_free(&table);
	job_fini(&job);
}

/* Who has rows 0..8 of w has a half of each row of p. */
static void test_transposed__rows_that_nobody_has_together_are_refused(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 16, 16);
	static struct job job;
	struct error error = {0};
	struct table *table;

	(void)state;
	for (int narrow = 0; narrow < 2; narrow++) {
		struct piece piece = {.src = box_of(0, 16, 0, 16),
				      .bytes = 16 * 16 * 4,
				      .transform = {.part = TRANSFORM_TRANSPOSED}};

		job_init(&job, 4, 1);
		for (uint32_t t = 0; t < 4; t++)
			hold_part(&job, t, &w, t / 2 * 8, t / 2 * 8 + 8, narrow ? t % 2 * 8 : 0,
				  narrow ? t % 2 * 8 + 8 : 16);
		piece.tensor = (uint32_t)layout_add_tensor(&job.layouts[0], "w", DTYPE_F32, 2,
							   w.shape, NULL);
		piece.param = (uint32_t)layout_add_param(&job.layouts[0], "p", DTYPE_F32, 2,
							 w.shape, NULL);
		assert_int_equal(layout_add_piece(&job.layouts[0], &piece, NULL), 0);
		job_build(&job);
		assert_int_equal(
			table_plan(&table, job.problem, policy_find("greedy"), NULL, &error),
			-ERROR_UNSOURCED);
		assert_non_null(strstr(error.text, "is tensor 'w' transposed"));
		job_fini(&job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks__side_by_side_are_runs_and_so_are_their_scales),
		cmocka_unit_test(test_blocks__of_one_row_have_scales_in_one_run),
		cmocka_unit_test(test_balanced__cuts_a_cell_of_blocks_between_them),
		cmocka_unit_test(test_blocks__that_a_shard_ends_inside_of_are_refused),
		cmocka_unit_test(test_transposed__columns_of_a_tensor_are_rows_of_the_parameter),
		cmocka_unit_test(test_transposed__rows_that_nobody_has_together_are_refused),
		cmocka_unit_test(test_proof__refuses_blocks_that_are_not_where_they_belong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
