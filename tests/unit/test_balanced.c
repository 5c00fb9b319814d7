/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"
#include "routing/certificate.h"
#include "routing/explain.h"
#include "routing/summary.h"
#include "tests/unit/routing_job.h"

static struct table *plan(const struct job *job, const struct plan_options *options)
{
	struct error error = {0};
	struct table *table;

	if (table_plan(&table, job->problem, policy_find("balanced"), options, &error))
		fail_msg("plan: %s", error.text);
	return table;
}

static struct summary summed(const struct table *table)
{
	struct summary summary;

	assert_int_equal(summary_of(&summary, table, NULL), 0);
	return summary;
}

/* docs/routing.md: two trainers that hold everything, two inference ranks that want all of it.
 * Rows have 4 bytes, for two targets 8; the line is a, b, c, and the border at 520 bytes. */
static void test_balanced__cuts_the_line_of_the_worked_example(void **state)
{
	static struct job job;
	static const struct {
		uint32_t trainer;
		uint64_t lo, hi;
	} want[] = {{0, 0, 60}, {0, 0, 60}, {0, 0, 5},	{1, 5, 40},
		    {0, 0, 5},	{1, 5, 40}, {1, 0, 30}, {1, 0, 30}};
	struct table *table;

	(void)state;
	job_init(&job, 2, 2);
	for (uint32_t r = 0; r < 2; r++) {
		job_hold(&job, r, "a", 0, 60, 1, 0, 60);
		job_hold(&job, r, "b", 1, 40, 1, 0, 40);
		job_hold(&job, r, "c", 2, 30, 1, 0, 30);
		job_want(&job, r, "pa", "a", 60, 1, 0, 60, 0, 1);
		job_want(&job, r, "pb", "b", 40, 1, 0, 40, 0, 1);
		job_want(&job, r, "pc", "c", 30, 1, 0, 30, 0, 1);
	}
	job_build(&job);
	table = job_plan(&job, "balanced");
	assert_int_equal(table->route_count, 8);
	for (size_t r = 0; r < 8; r++) {
		const struct route_piece *piece = &table->pieces[table->routes[r].piece_first];

		assert_int_equal(table->routes[r].trainer, want[r].trainer);
		assert_int_equal(piece->src.lo[0], want[r].lo);
		assert_int_equal(piece->src.hi[0], want[r].hi);
	}
	struct summary summary = summed(table);

	assert_int_equal(summary.makespan_bytes, 520);
	assert_int_equal(summary.prepared_bytes, 520); /* 130 rows, each once */
	assert_int_equal(summary.prepared_minimum_bytes, 520);
	summary_fini(&summary);
	table_free(&table);
	job_fini(&job);
}

/* The largest thing that cannot be cut: one row of a tensor, for all who want it. */
static uint64_t largest_row(const struct problem *problem)
{
	uint64_t most = 0;

	for (size_t t = 0; t < problem->tensor_count; t++)
		for (uint64_t row = 0; row < problem->tensors[t].shape[0]; row++) {
			uint64_t bytes = 0;

			for (uint32_t i = 0; i < problem->inference_count; i++) {
				const struct problem_layout *layout =
					&problem->layouts[problem->inference_layout[i]];

				for (uint32_t p = layout->pieces_of[t];
				     p < layout->pieces_of[t + 1]; p++) {
					const struct piece *piece = &layout->pieces[p];

					if (piece->src.lo[0] <= row && piece->src.hi[0] > row)
						bytes += piece->bytes / (piece->src.hi[0] -
									 piece->src.lo[0]);
				}
			}
			most = bytes > most ? bytes : most;
		}
	return most;
}

/* Does each rank want one range of columns of each tensor, and no row twice, as engines do? */
static bool one_range(const struct problem *problem)
{
	for (size_t l = 0; l < problem->layout_count; l++)
		for (size_t p = 1; p < problem->layouts[l].piece_count; p++) {
			const struct piece *a = &problem->layouts[l].pieces[p - 1], *b = a + 1;

			if (a->tensor == b->tensor && a->src.hi[0] > b->src.lo[0])
				return false;
			for (uint32_t d = 1; d < a->src.dims; d++)
				if (a->tensor == b->tensor && (a->src.lo[d] != b->src.lo[d] ||
							       a->src.hi[d] != b->src.hi[d]))
					return false;
		}
	return true;
}

static void test_balanced__is_within_a_row_of_the_bound_on_random_jobs(void **state)
{
	struct dice dice = dice_seeded("balanced");
	int less = 0, least = 0;

	(void)state;
	for (int round = 0; round < 4000; round++) {
		static struct job job;

		job_random(&job, &dice);
		struct table *table = plan(&job, NULL), *again = plan(&job, NULL);
		struct table *greedy = job_plan(&job, "greedy");
		struct summary own = summed(table), other = summed(greedy);
		double bound = (double)own.lower_bound_bytes;
		double row = (double)largest_row(job.problem);

		assert_true(digest_equal(table->digest, again->digest));
		assert_true((double)own.makespan_bytes <= bound * 1.005 + row);
		assert_true((double)own.makespan_bytes <= (double)other.makespan_bytes * 1.005 + row);
		less += own.prepared_bytes < other.prepared_bytes;
		if (one_range(job.problem)) {
			assert_int_equal(own.prepared_bytes, own.prepared_minimum_bytes);
			least++;
		}
		summary_fini(&own);
		summary_fini(&other);
		table_free(&table);
		table_free(&again);
		table_free(&greedy);
		job_fini(&job);
	}
	assert_true(less > 1000 && least > 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_balanced__cuts_the_line_of_the_worked_example),
		cmocka_unit_test(test_balanced__is_within_a_row_of_the_bound_on_random_jobs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
