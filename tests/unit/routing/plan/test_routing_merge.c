/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces that are too small to be a write each: which of them land with others, and what the figures and the clocks make of it.
 */
#include "tests/unit/routing/plan/boxes_job.h"

#include "routing/lab/simulate.h"
#include "routing/report/certificate.h"
#include "routing/report/summary.h"

#define TENSORS_MAX 24

/* So many tensors of 4 rows: each trainer has left columns of half of the rows, and the rank wants all rows of these columns; last is
 * the columns of the last tensor. */
static void make(struct job *job, uint32_t tensors, uint64_t last, bool mapped)
{
	job_init(job, 2, 1);
	job->mapped[0] = mapped;
	for (uint32_t i = 0; i < tensors; i++) {
		uint64_t columns = i + 1 == tensors ? last : 8;
		struct random_tensor tensor = f32_tensor("", i, 4, 2 * columns);
		char param[16];

		snprintf(tensor.name, sizeof(tensor.name), "w%02u", i);
		snprintf(param, sizeof(param), "p%02u", i);
		hold_part(job, 0, &tensor, 0, 2, 0, columns);
		hold_part(job, 1, &tensor, 2, 4, 0, columns);
		job_want(job, 0, param, tensor.name, 4, 2 * columns, 0, 4, 0, columns);
	}
	job_build(job);
}

static size_t landed(const struct table *table)
{
	size_t count = 0;

	for (size_t p = 0; p < table->piece_count; p++)
		count += table->pieces[p].path == PATH_LANDED;
	return count;
}

static size_t landed_of(uint32_t tensors, uint64_t last, bool mapped)
{
	static struct job job;
	struct table *table;
	size_t count;

	make(&job, tensors, last, mapped);
	table = job_plan(&job, "greedy");
	assert_int_equal(table->piece_count, 2 * tensors);
	count = landed(table);
	table_free(&table);
	job_fini(&job);
	return count;
}

static void test_small__land_where_there_are_many_between_two(void **state)
{
	(void)state;
	assert_int_equal(landed_of(MERGE_PIECES_MIN - 1, 8, false), 0);
	assert_int_equal(landed_of(MERGE_PIECES_MIN, 8, false), 2 * MERGE_PIECES_MIN);
}

static void test_small__are_stored_where_memory_is_mapped(void **state)
{
	(void)state;
	assert_int_equal(landed_of(2 * MERGE_PIECES_MIN, 8, true), 0);
}

/* 2 rows of 8,192 numbers are MERGE_BYTES. */
static void test_large__go_where_they_belong_beside_them(void **state)
{
	(void)state;
	assert_int_equal(landed_of(MERGE_PIECES_MIN + 1, 8192, false), 2 * MERGE_PIECES_MIN);
	assert_int_equal(landed_of(MERGE_PIECES_MIN, 8192, false), 0);
	assert_int_equal(landed_of(MERGE_PIECES_MIN, 8191, false), 2 * MERGE_PIECES_MIN);
}

/* Whole rows are what trainers were cut to before there were boxes: their plans stay. */
static void test_rows__are_written_as_ever(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	job_init(&job, 2, 1);
	job.mapped[0] = false;
	for (uint32_t i = 0; i < TENSORS_MAX; i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%02u", i);
		job_hold(&job, 0, name, i, 4, 8, 0, 2);
		job_hold(&job, 1, name, i, 4, 8, 2, 4);
		job_want(&job, 0, name, name, 4, 8, 0, 4, 0, 8);
	}
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_int_equal(landed(table), 0);
	table_free(&table);
	job_fini(&job);
}

/* What a trainer does not merge, and what it may not: the plan chooses among what is small alone. */
static void test_proof__lets_small_pieces_land_and_no_others(void **state)
{
	static struct job job;
	struct error error = {0};
	struct table *table;

	(void)state;
	make(&job, MERGE_PIECES_MIN + 1, 8192, false);
	table = job_plan(&job, "greedy");
	table->pieces[0].path = PATH_DIRECT;
	if (table_prove(table, &error))
		fail_msg("%s", error.text);
	table->pieces[table->piece_count - 1].path = PATH_LANDED;
	assert_int_equal(table_prove(table, &error), -(int)ERROR_UNPROVED);
	assert_non_null(
		strstr(error.text, "it is to go 'landed', and its memory asks for 'direct'"));
	table_free(&table);
	job_fini(&job);
}

/* ---- figures ---- */

static void test_writes__count_what_is_merged_as_one(void **state)
{
	static struct job job;
	struct error error = {0};
	struct summary summary;
	struct table *table;

	(void)state;
	make(&job, MERGE_PIECES_MIN + 1, 8192, false);
	table = job_plan(&job, "greedy");
	assert_int_equal(summary_of(&summary, table, &error), 0);
	/* of each trainer: 8 pieces of 64 bytes in one write, and one of 64 KiB */
	assert_int_equal(summary.writes.count, 4);
	assert_int_equal(summary.writes.smallest_bytes, MERGE_PIECES_MIN * 64);
	assert_int_equal(summary.writes.median_bytes, MERGE_BYTES);
	assert_int_equal(summary.writes.most, 2);
	assert_int_equal(summary.writes.trainer, 0);
	summary_fini(&summary);
	table_free(&table);
	job_fini(&job);
	make(&job, MERGE_PIECES_MIN - 1, 8, false);
	table = job_plan(&job, "greedy");
	assert_int_equal(summary_of(&summary, table, &error), 0);
	assert_int_equal(summary.writes.count, 2 * (MERGE_PIECES_MIN - 1));
	assert_int_equal(summary.writes.median_bytes, 64);
	summary_fini(&summary);
	table_free(&table);
	job_fini(&job);
}

/* Wires of 50 GB/s carry these bytes in nanoseconds: what takes time is making the writes. */
static void test_clocks__know_how_long_small_writes_take(void **state)
{
	struct simulate_options options = {.writes_per_second = 1e6};
	struct certificate certificate;
	struct simulation simulation;
	static struct job job;
	struct table *table;

	(void)state;
	make(&job, MERGE_PIECES_MIN - 1, 8, false);
	table = job_plan(&job, "greedy");
	assert_int_equal(certificate_of(&certificate, table, NULL), 0);
	assert_string_equal(certificate.makespan_limit, "7 writes of trainer 0");
	assert_true(certificate.makespan_seconds == 7 / WRITES_PER_SECOND);
	assert_true(certificate.bound_seconds < certificate.makespan_seconds);
	assert_int_equal(simulate(&simulation, table, &options, NULL), 0);
	assert_true(simulation.makespan_seconds > 7e-6 && simulation.makespan_seconds < 7.1e-6);
	simulation_fini(&simulation);
	options.writes_per_second = 0;
	assert_int_equal(simulate(&simulation, table, &options, NULL), 0);
	assert_true(simulation.makespan_seconds < 1e-7);
	simulation_fini(&simulation);
	table_free(&table);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small__land_where_there_are_many_between_two),
		cmocka_unit_test(test_small__are_stored_where_memory_is_mapped),
		cmocka_unit_test(test_large__go_where_they_belong_beside_them),
		cmocka_unit_test(test_rows__are_written_as_ever),
		cmocka_unit_test(test_proof__lets_small_pieces_land_and_no_others),
		cmocka_unit_test(test_writes__count_what_is_merged_as_one),
		cmocka_unit_test(test_clocks__know_how_long_small_writes_take),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
