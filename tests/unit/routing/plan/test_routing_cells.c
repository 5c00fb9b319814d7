/* SPDX-License-Identifier: Apache-2.0
 *
 * Small jobs by hand whose trainers cut a tensor's columns: which units there are, what is
 * refused, and that all that looks at a problem takes such a one.
 */
#include "tests/unit/routing/plan/boxes_job.h"

#include "routing/lab/simulate_without.h"
#include "routing/report/certificate.h"
#include "routing/report/summary.h"

/* ---- units ---- */

/* "w/0 rows 0..4 columns 0..8 from 0 2", a line each; columns only of cells. */
static const char *units_text(const struct problem *problem, bool cut)
{
	static char text[4096];
	struct error error = {0};
	struct units units;
	size_t n = 0;

	if ((cut ? units_build_cut : units_build)(&units, problem, &error))
		fail_msg("units: %s", error.text);
	text[0] = 0;
	for (size_t u = 0; u < units.count; u++) {
		const struct unit *unit = &units.items[u];
		const struct holder_set *set = &units.sets[unit->holders];

		n += (size_t)snprintf(
			text + n, sizeof(text) - n, "%s/%" PRIu32 " rows %" PRIu64 "..%" PRIu64,
			problem->tensors[unit->tensor].name, unit->inference, unit->lo, unit->hi);
		if (unit->cell != UNIT_FULL)
			n += (size_t)snprintf(
				text + n, sizeof(text) - n, " columns %" PRIu64 "..%" PRIu64,
				units.cells[unit->cell].lo[1], units.cells[unit->cell].hi[1]);
		n += (size_t)snprintf(text + n, sizeof(text) - n, " from");
		for (uint32_t k = 0; k < set->count; k++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, " %" PRIu32,
					      set->trainers[k]);
		n += (size_t)snprintf(text + n, sizeof(text) - n, ", %" PRIu64 " bytes\n",
				      unit->bytes);
	}
	units_fini(&units);
	return text;
}

static void test_units__of_what_one_trainer_has_whole_are_not_cut(void **state)
{
	const struct random_tensor a = f32_tensor("a", 0, 4, 8), b = f32_tensor("b", 1, 4, 8);
	static struct job job;

	(void)state;
	job_init(&job, 4, 2);
	hold_part(&job, 0, &a, 0, 4, 0, 8);
	hold_part(&job, 1, &a, 0, 2, 0, 4);
	hold_part(&job, 1, &a, 2, 4, 0, 4);
	hold_part(&job, 2, &a, 0, 4, 4, 8);
	hold_part(&job, 1, &b, 0, 2, 0, 4);
	hold_part(&job, 2, &b, 0, 2, 4, 8);
	hold_part(&job, 3, &b, 2, 4, 0, 8);
	want_rows(&job, 0, "p", &a, 0, 4, 0, 8);
	want_rows(&job, 0, "q", &b, 0, 4, 0, 8);
	want_rows(&job, 1, "p", &a, 0, 4, 4, 8);
	want_rows(&job, 1, "q", &b, 1, 3, 2, 6);
	job_build(&job);
	assert_string_equal(units_text(job.problem, false),
			    "a/0 rows 0..4 from 0, 128 bytes\n"
			    "a/1 rows 0..4 from 0 2, 64 bytes\n"
			    "b/0 rows 0..2 columns 0..4 from 1, 32 bytes\n"
			    "b/0 rows 0..2 columns 4..8 from 2, 32 bytes\n"
			    "b/0 rows 2..4 from 3, 64 bytes\n"
			    "b/1 rows 1..2 columns 0..4 from 1, 8 bytes\n"
			    "b/1 rows 1..2 columns 4..8 from 2, 8 bytes\n"
			    "b/1 rows 2..3 from 3, 16 bytes\n");
	/* cut at every border: those of rows, and no columns of what one trainer has */
	assert_string_equal(units_text(job.problem, true),
			    "a/0 rows 0..2 from 0, 64 bytes\n"
			    "a/0 rows 2..4 from 0, 64 bytes\n"
			    "a/1 rows 0..2 from 0 2, 32 bytes\n"
			    "a/1 rows 2..4 from 0 2, 32 bytes\n"
			    "b/0 rows 0..2 columns 0..4 from 1, 32 bytes\n"
			    "b/0 rows 0..2 columns 4..8 from 2, 32 bytes\n"
			    "b/0 rows 2..4 from 3, 64 bytes\n"
			    "b/1 rows 1..2 columns 0..4 from 1, 8 bytes\n"
			    "b/1 rows 1..2 columns 4..8 from 2, 8 bytes\n"
			    "b/1 rows 2..3 from 3, 16 bytes\n");
	job_fini(&job);
}

static void test_cells__of_different_cuts_are_the_overlay(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 8, 8);
	static struct job job;

	(void)state;
	job_init(&job, 4, 1);
	hold_part(&job, 0, &w, 0, 4, 0, 6); /* two by rows, without the last columns */
	hold_part(&job, 1, &w, 4, 8, 0, 6);
	hold_part(&job, 2, &w, 0, 8, 0, 4); /* two by columns */
	hold_part(&job, 3, &w, 0, 8, 4, 8);
	want_rows(&job, 0, "p", &w, 0, 8, 0, 8);
	job_build(&job);
	assert_string_equal(units_text(job.problem, false),
			    "w/0 rows 0..4 columns 0..4 from 0 2, 64 bytes\n"
			    "w/0 rows 0..4 columns 4..6 from 0 3, 32 bytes\n"
			    "w/0 rows 0..4 columns 6..8 from 3, 32 bytes\n"
			    "w/0 rows 4..8 columns 0..4 from 1 2, 64 bytes\n"
			    "w/0 rows 4..8 columns 4..6 from 1 3, 32 bytes\n"
			    "w/0 rows 4..8 columns 6..8 from 3, 32 bytes\n");
	job_fini(&job);
}

/* Left columns of the lower rows and right columns of the upper ones: the right cell comes first. */
static void test_cells__stand_by_the_first_row_that_is_wanted_of_them(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 4, 8);
	static struct job job;
	struct table *table;

	(void)state;
	job_init(&job, 2, 1);
	hold_part(&job, 0, &w, 0, 4, 0, 4);
	hold_part(&job, 1, &w, 0, 4, 4, 8);
	want_rows(&job, 0, "p", &w, 2, 4, 0, 4);
	want_rows(&job, 0, "q", &w, 0, 2, 4, 8);
	job_build(&job);
	assert_string_equal(units_text(job.problem, false),
			    "w/0 rows 0..4 columns 4..8 from 1, 32 bytes\n"
			    "w/0 rows 2..4 columns 0..4 from 0, 32 bytes\n");
	table = job_plan(&job, "greedy");
	assert_int_equal(table->routes[0].trainer, 1);
	assert_int_equal(table->routes[1].trainer, 0);
	table_free(&table);
	job_fini(&job);
}

/* Three rows of one column range and two of another: not as many bytes in each row of the cell. */
static void test_balanced__gives_a_cell_of_uneven_rows_its_own_bytes(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 3, 8);
	const struct plan_options options = {0};
	struct error error = {0};
	static struct job job;
	struct units units;

	(void)state;
	job_init(&job, 2, 1);
	hold_part(&job, 0, &w, 0, 3, 0, 4);
	hold_part(&job, 1, &w, 0, 3, 4, 8);
	want_rows(&job, 0, "p", &w, 0, 3, 0, 5);
	want_rows(&job, 0, "q", &w, 0, 2, 6, 8);
	job_build(&job);
	assert_int_equal(units_build(&units, job.problem, &error), 0);
	uint32_t *trainer = memory_zalloc(units.count, sizeof(*trainer));

	assert_int_equal(
		policy_find("balanced")->assign(job.problem, &options, &units, &trainer, &error),
		0);
	assert_int_equal(units.count, 2);
	assert_int_equal(units.items[0].bytes, 48);
	assert_int_equal(units.items[1].bytes, 28); /* 3 rows of 4, and 2 of 8 */
	memory_free(trainer);
	units_fini(&units);
	job_fini(&job);
}

/* Seconds above the least possible, as a part of them. */
static double gap_of(const struct table *table)
{
	struct certificate certificate;
	struct error error = {0};

	if (certificate_of(&certificate, table, &error))
		fail_msg("%s", error.text);
	return certificate.gap;
}

/* Trainers 0 and 1 have the left columns, 2 and 3 the right ones. Whole, each cell makes one trainer send twice its part; cut, parts
 * of both stand by rows. */
static void test_balanced__cuts_a_cell_whose_rows_are_alike(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 400000, 8);
	static struct job job;
	struct table *table;

	(void)state;
	job_init(&job, 4, 4);
	for (uint32_t t = 0; t < 4; t++)
		hold_part(&job, t, &w, 0, 400000, t < 2 ? 0 : 4, t < 2 ? 4 : 8);
	for (uint32_t i = 0; i < 4; i++)
		job_want(&job, i, "p", "w", 400000, 8, 0, 400000, 0, 8);
	job_build(&job);
	table = job_plan(&job, "first-holder"); /* a trainer a cell */
	assert_int_equal(table->route_count, 8);
	assert_true(gap_of(table) == 1.0);
	table_free(&table);
	table = job_plan(&job, "balanced");
	assert_int_equal(table->route_count, 16);
	for (size_t r = 0; r < table->route_count; r++) {
		static const uint32_t trainers[4] = {0, 2, 1, 3};
		const struct route_piece *piece = &table->pieces[table->routes[r].piece_first];
		uint64_t right = r % 2 * 4, lower = r % 4 / 2 * 200000;
		const struct box want = box_of(lower, lower + 200000, right, right + 4);

		assert_int_equal(table->routes[r].trainer, trainers[r % 4]);
		assert_int_equal(table->routes[r].bytes, 200000 * 4 * 4);
		assert_true(box_equal(&piece->src, &want));
	}
	assert_true(gap_of(table) == 0);
	table_free(&table);
	job_fini(&job);
}

/* What is wanted of other columns is no border of the cell's rows. */
static void test_balanced__cuts_a_cell_beside_columns_of_other_rows(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 400000, 8);
	static struct job job;
	struct table *table;

	(void)state;
	job_init(&job, 3, 1);
	hold_part(&job, 0, &w, 0, 400000, 0, 4);
	hold_part(&job, 1, &w, 0, 400000, 0, 4);
	hold_part(&job, 2, &w, 0, 400000, 4, 8);
	job_want(&job, 0, "p", "w", 400000, 8, 0, 400000, 0, 4);
	job_want(&job, 0, "q", "w", 400000, 8, 100000, 200000, 4, 8);
	job_build(&job);
	table = job_plan(&job, "balanced");
	assert_int_equal(table->route_count, 3);
	assert_int_equal(table->routes[0].trainer, 0);
	assert_int_equal(table->routes[1].trainer, 2);
	assert_int_equal(table->routes[2].trainer, 1);
	assert_true(gap_of(table) == 0);
	table_free(&table);
	job_fini(&job);
}

/* Two cells with the same holders and the same rows are not the same bytes: each trainer sends one. */
static void test_balanced__divides_cells_of_one_holder_set(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 1, 8);
	static struct job job;
	struct table *table;

	(void)state;
	job_init(&job, 2, 1);
	for (uint32_t t = 0; t < 2; t++) {
		hold_part(&job, t, &w, 0, 1, 0, 4);
		hold_part(&job, t, &w, 0, 1, 4, 8);
	}
	want_rows(&job, 0, "p", &w, 0, 1, 0, 8);
	job_build(&job);
	table = job_plan(&job, "balanced");
	assert_int_equal(table->route_count, 2);
	assert_int_not_equal(table->routes[0].trainer, table->routes[1].trainer);
	table_free(&table);
	job_fini(&job);
}

/* ---- what is refused ---- */

static void test_problem__names_the_columns_that_nobody_holds(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 4, 8);
	struct error error = {0};
	static struct job job;

	(void)state;
	for (int hole = 1; hole >= 0; hole--) {
		job_init(&job, 2, 2);
		hold_part(&job, 0, &w, 0, 4, 0, 4);
		hold_part(&job, 1, &w, 0, 2, 4, 8);
		hold_part(&job, 1, &w, 2, 4, 4 + (uint64_t)hole, 8);
		want_rows(&job, 0, "small", &w, 0, 4, 0, 4);
		want_rows(&job, 1, "large", &w, 0, 4, 0, 8);
		job_declare(&job);
		assert_int_equal(problem_build(&job.problem, &job.input, &error),
				 hole ? -ERROR_UNSOURCED : 0);
		job_fini(&job);
	}
	assert_string_equal(error.text,
			    "parameter 'large' of inference 1 needs [2..3, 0..8] of tensor 'w', "
			    "and no trainer holds [2..3, 4..5] of it");
}

static void
test_cells__that_are_no_one_run_of_a_piece_are_spread_unless_somebody_has_it_whole(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 4, 8);
	struct table *table;
	static struct job job;

	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		struct error error = {0};

		job_init(&job, 3, 1);
		hold_part(&job, 0, &w, 0, 4, 0, 3);
		hold_part(&job, 1, &w, 0, 4, 3, 8);
		if (whole)
			hold_part(&job, 2, &w, 0, 4, 0, 8);
		job_want(&job, 0, "p", "w", 4, 8, 0, 4, 0, 4);
		job_build(&job);
		if (table_plan(&table, job.problem, policy_find("greedy"), NULL, &error))
			fail_msg("%s", error.text);
		assert_int_equal(table->route_count, whole ? 1 : 2);
		assert_int_equal(table->routes[0].trainer, whole ? 2 : 0);
		assert_int_equal(table->pieces[0].spread.run_bytes, whole ? 0 : 12);
		assert_int_equal(table->pieces[0].spread.stride_bytes, whole ? 0 : 16);
		if (!whole) {
			assert_int_equal(table->pieces[1].offset, 12);
			assert_int_equal(table->pieces[1].spread.run_bytes, 4);
		}
		table_free(&table);
		job_fini(&job);
	}
}

/* ---- all that looks at a problem ---- */

/* Two replicas of rows x columns, a flat cut beside them, and an engine of two by columns. */
static void meshed(struct job *job)
{
	const struct random_tensor a = f32_tensor("a", 0, 4, 8), b = f32_tensor("b", 1, 3, 5);
	struct mesh mesh = {0, 8, 2, 2, 1, false}, flat = {0, 8, 3, 1, 1, true};

	job_init(job, 8, 3);
	for (uint32_t t = 0; t < 8; t++) {
		hold_mesh(job, &mesh, t, &a);
		hold_mesh(job, &flat, t, &b);
	}
	job_want(job, 0, "p", "a", 4, 8, 0, 4, 0, 4);
	job_want(job, 1, "p", "a", 4, 8, 0, 4, 4, 8);
	want_rows(job, 2, "p", &a, 0, 4, 1, 7);
	for (uint32_t i = 0; i < 3; i++)
		want_rows(job, i, "q", &b, 0, 3, 0, 5);
}

static void test_bounds__are_below_every_policy_where_columns_are_cut(void **state)
{
	size_t policies;
	const struct policy *policy = policy_list(&policies);
	uint64_t bound = 0;
	static struct job job;

	(void)state;
	meshed(&job);
	job_build(&job);
	for (size_t i = 0; i < policies; i++) {
		struct table *table = job_plan(&job, policy[i].name);
		struct certificate certificate;
		struct error error = {0};
		struct summary summary;

		if (summary_of(&summary, table, &error) ||
		    certificate_of(&certificate, table, &error))
			fail_msg("%s: %s", policy[i].name, error.text);
		assert_int_equal(summary.bytes_total, 2 * 64 + 96 + 3 * 60);
		assert_true(summary.lower_bound_bytes >= (summary.bytes_total + 7) / 8);
		assert_true(summary.lower_bound_bytes <= summary.makespan_bytes);
		assert_true(i == 0 || summary.lower_bound_bytes == bound);
		assert_true(certificate.exact);
		assert_true(certificate.bound_seconds <= certificate.makespan_seconds);
		bound = summary.lower_bound_bytes;
		summary_fini(&summary);
		table_free(&table);
	}
	job_fini(&job);
}

static void test_without__a_shard_is_had_from_its_replica_or_missed(void **state)
{
	bool trainers[8] = {false}, ranks[3] = {false};
	bool *const lost[ROLE_COUNT] = {trainers, ranks};
	struct problem_without without;
	struct error error = {0};
	struct table *table;
	static struct job job;

	(void)state;
	meshed(&job);
	job_build(&job);
	trainers[1] = trainers[4] = true; /* 1 is as 5, 4 as 0; of b 4 and 7 are alike */
	if (problem_without(&without, job.problem, lost, &error) ||
	    table_plan(&table, &without.problem, policy_find("balanced"), NULL, &error))
		fail_msg("%s", error.text);
	for (size_t r = 0; r < table->route_count; r++)
		assert_true(table->routes[r].trainer != 1 && table->routes[r].trainer != 4);
	table_free(&table);
	problem_without_fini(&without);
	trainers[5] = true; /* upper rows, right columns are gone: who wants them too, then not */
	assert_int_equal(problem_without(&without, job.problem, lost, &error), -ERROR_UNSOURCED);
	assert_non_null(strstr(error.text, "1 tensor that"));
	assert_non_null(strstr(error.text, "the first is a"));
	ranks[1] = ranks[2] = true;
	if (problem_without(&without, job.problem, lost, &error) ||
	    table_plan(&table, &without.problem, policy_find("greedy"), NULL, &error))
		fail_msg("%s", error.text);
	table_free(&table);
	problem_without_fini(&without);
	job_fini(&job);
}

/* ---- memory ---- */

static int whole_way(struct job *job, const char *policy, struct error *error)
{
	struct certificate certificate;
	struct table *table = NULL;
	int rc = problem_build(&job->problem, &job->input, error);

	if (!rc)
		rc = table_plan(&table, job->problem, policy_find(policy), NULL, error);
	if (!rc)
		rc = certificate_of(&certificate, table, error);
	table_free(&table);
	problem_free(&job->problem);
	return rc;
}

static void test_cells__survive_every_failed_allocation(void **state)
{
	static const char *const policies[] = {"greedy", "balanced"};
	static struct job job;

	(void)state;
	meshed(&job);
	job_declare(&job);
	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		uint64_t k = 0;
		int rc;

		do {
			struct error error = {0};

			memory_fail_at(++k);
			rc = whole_way(&job, policies[i], &error);
			memory_fail_at(0);
			if (rc != 0 && rc != -ERROR_MEMORY)
				fail_msg("%s, allocation %" PRIu64 ": %s", policies[i], k,
					 error.text);
			assert_true(k < 10000);
		} while (rc);
		assert_true(k > 50);
	}
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_units__of_what_one_trainer_has_whole_are_not_cut),
		cmocka_unit_test(test_cells__of_different_cuts_are_the_overlay),
		cmocka_unit_test(test_cells__stand_by_the_first_row_that_is_wanted_of_them),
		cmocka_unit_test(test_balanced__gives_a_cell_of_uneven_rows_its_own_bytes),
		cmocka_unit_test(test_balanced__cuts_a_cell_whose_rows_are_alike),
		cmocka_unit_test(test_balanced__cuts_a_cell_beside_columns_of_other_rows),
		cmocka_unit_test(test_balanced__divides_cells_of_one_holder_set),
		cmocka_unit_test(test_problem__names_the_columns_that_nobody_holds),
		cmocka_unit_test(
			test_cells__that_are_no_one_run_of_a_piece_are_spread_unless_somebody_has_it_whole),
		cmocka_unit_test(test_bounds__are_below_every_policy_where_columns_are_cut),
		cmocka_unit_test(test_without__a_shard_is_had_from_its_replica_or_missed),
		cmocka_unit_test(test_cells__survive_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
