/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/routing/routing_job.h"

#include "model/model.h"
#include "routing/plan/path.h"
#include "routing/report/summary.h"

static void assert_refused(struct job *job, int code, const char *const *words)
{
	struct error error = {0};

	job_declare(job);
	assert_int_equal(problem_build(&job->problem, &job->input, &error), -code);
	assert_null(job->problem);
	for (; *words; words++)
		if (!strstr(error.text, *words))
			fail_msg("'%s' is not in '%s'", *words, error.text);
	job_fini(job);
}

static void test_problem__sorts_tensors_by_order_then_name(void **state)
{
	static struct job job;

	(void)state;
	job_init(&job, 2, 1);
	job_hold(&job, 0, "late", 9, 1, 1, 0, 1);
	job_hold(&job, 0, "b", 3, 1, 1, 0, 1);
	job_hold(&job, 1, "a", 3, 1, 1, 0, 1);
	job_hold(&job, 1, "early", 0, 1, 1, 0, 1);
	job_want(&job, 0, "p", "b", 1, 1, 0, 1, 0, 1);
	job_build(&job);
	assert_int_equal(job.problem->tensor_count, 4);
	assert_string_equal(job.problem->tensors[0].name, "early");
	assert_string_equal(job.problem->tensors[1].name, "a");
	assert_string_equal(job.problem->tensors[2].name, "b");
	assert_string_equal(job.problem->tensors[3].name, "late");
	job_fini(&job);
}

static void test_problem__shares_equal_declarations(void **state)
{
	static struct job job;

	(void)state;
	job_init(&job, 4, 4);
	for (uint32_t t = 0; t < 4; t++)
		job_hold(&job, t, "w", 0, 4, 2, t % 2 * 2, t % 2 * 2 + 2);
	for (uint32_t i = 0; i < 4; i++)
		job_want(&job, i, "p", "w", 4, 2, 0, 4, i % 2, i % 2 + 1);
	job_build(&job);
	assert_int_equal(job.problem->holding_count, 2);
	assert_int_equal(job.problem->layout_count, 2);
	for (uint32_t k = 0; k < 4; k++) {
		assert_int_equal(job.problem->trainer_holding[k], k % 2);
		assert_int_equal(job.problem->inference_layout[k], k % 2);
	}
	job_fini(&job);
}

static void test_problem__refuses_two_shapes_with_both_declarers(void **state)
{
	static struct job job;

	(void)state;
	job_init(&job, 2, 0);
	job_hold(&job, 0, "w", 0, 4, 2, 0, 4);
	job_hold(&job, 1, "w", 0, 4, 3, 0, 4);
	assert_refused(&job, ERROR_CONFLICT,
		       (const char *[]){"'w'", "F32 [4, 2] by trainer 0", "F32 [4, 3] by trainer 1",
					NULL});
	job_init(&job, 1, 2);
	job_hold(&job, 0, "w", 0, 4, 2, 0, 4);
	job_want(&job, 0, "p", "w", 4, 2, 0, 4, 0, 2);
	job_want(&job, 1, "p", "w", 5, 2, 0, 4, 0, 2);
	assert_refused(&job, ERROR_CONFLICT,
		       (const char *[]){"'w'", "trainer 0", "F32 [5, 2] by inference 1", NULL});
}

static void test_problem__refuses_two_dtypes_with_both_declarers(void **state)
{
	static struct job job;
	uint64_t shape[2] = {4, 2};

	(void)state;
	job_init(&job, 3, 0);
	job_hold(&job, 0, "other", 1, 4, 2, 0, 4);
	job_hold(&job, 1, "w", 0, 4, 2, 0, 4);
	assert_true(holding_add_tensor(&job.holdings[2], "w", DTYPE_BF16, 2, shape, 0, NULL) >= 0);
	assert_refused(&job, ERROR_CONFLICT,
		       (const char *[]){"'w'", "F32 [4, 2] by trainer 1",
					"BF16 [4, 2] by trainer 2", NULL});
}

static void test_problem__refuses_two_orders_with_both_declarers(void **state)
{
	static struct job job;

	(void)state;
	job_init(&job, 2, 0);
	job_hold(&job, 0, "w", 5, 4, 2, 0, 4);
	job_hold(&job, 1, "w", 6, 4, 2, 0, 4);
	assert_refused(
		&job, ERROR_CONFLICT,
		(const char *[]){"'w'", "place 5", "trainer 0", "place 6", "trainer 1", NULL});
}

static void test_problem__refuses_a_tensor_that_nobody_declares(void **state)
{
	static struct job job;

	(void)state;
	job_init(&job, 1, 1);
	job_hold(&job, 0, "w", 0, 4, 2, 0, 4);
	job_want(&job, 0, "p", "v", 4, 2, 1, 3, 0, 2);
	assert_refused(&job, ERROR_UNSOURCED,
		       (const char *[]){"'p'", "inference 0", "'v'", "[1..3, 0..2]", NULL});
}

static void test_problem__refuses_a_gap_with_rows_and_the_closest_holder(void **state)
{
	static struct job job;

	(void)state;
	job_init(&job, 3, 1);
	job_hold(&job, 0, "w", 0, 10, 2, 0, 4);
	job_hold(&job, 1, "w", 0, 10, 2, 8, 10);
	job_hold(&job, 2, "w", 0, 10, 2, 3, 5);
	job_want(&job, 0, "p", "w", 10, 2, 2, 7, 0, 2);
	assert_refused(&job, ERROR_UNSOURCED,
		       (const char *[]){"'p' of inference 0", "rows 5..7 of tensor 'w'",
					"the closest is trainer 2 with rows 3..5", NULL});
	job_init(&job, 1, 1);
	job_hold(&job, 0, "w", 0, 10, 2, 0, 0); /* an empty shard */
	job_want(&job, 0, "p", "w", 10, 2, 2, 9, 0, 2);
	assert_refused(
		&job, ERROR_UNSOURCED,
		(const char *[]){"rows 2..9 of tensor 'w'", "no trainer holds any row", NULL});
}

static void test_problem__lists_unwanted_tensors(void **state)
{
	static struct job job;
	uint32_t *tensors;
	size_t count;

	(void)state;
	job_init(&job, 1, 1);
	job_hold(&job, 0, "x", 0, 4, 2, 0, 4);
	job_hold(&job, 0, "w", 1, 4, 2, 0, 4);
	job_hold(&job, 0, "y", 2, 4, 2, 0, 4);
	job_want(&job, 0, "p", "w", 4, 2, 0, 4, 0, 2);
	job_build(&job);
	assert_int_equal(problem_unwanted(job.problem, &tensors, &count, NULL), 0);
	assert_int_equal(count, 2);
	assert_int_equal(tensors[0], 0);
	assert_int_equal(tensors[1], 2);
	memory_free(tensors);
	job_fini(&job);
}

static void test_how__needs_no_copy_only_for_one_run_of_registered_memory(void **state)
{
	(void)state;
	assert_int_equal(path_of_piece(true, true, true, false), PATH_DIRECT);
	assert_int_equal(path_of_piece(true, true, true, true), PATH_DIRECT);
	assert_int_equal(path_of_piece(true, true, false, true), PATH_MAPPED);
	assert_int_equal(path_of_piece(true, true, false, false), PATH_REPLICA);
	assert_int_equal(path_of_piece(true, false, true, true), PATH_MAPPED);
	assert_int_equal(path_of_piece(true, false, true, false), PATH_REPLICA);
	assert_int_equal(path_of_piece(false, true, true, true), PATH_MAPPED);
	assert_int_equal(path_of_piece(false, true, true, false), PATH_REPLICA);
}

/* ---- from a model ---- */

/* What live workers do: each rank declares for itself, nothing shared but digests. */
static void declare_each_rank(struct job *job, const struct model *model,
			      const struct train_spec *train, const struct infer_spec *infer)
{
	static char train_text[PARALLEL_TEXT_BYTES], infer_text[PARALLEL_TEXT_BYTES];
	static uint32_t stages[JOB_RANKS_MAX];

	job_init(job, train->world, infer_ranks(infer));
	job->ranks_per_engine = infer->tp;
	for (uint32_t t = 0; t < train->world; t++) {
		assert_int_equal(model_holding(model, train, t, &job->holdings[t], NULL), 0);
		stages[t] = train_stage(train, t);
	}
	for (uint32_t i = 0; i < infer_ranks(infer); i++)
		assert_int_equal(model_layout(model, infer, i % infer->tp, &job->layouts[i], NULL),
				 0);
	job_declare(job);
	job->input.model = model->name;
	job->input.train = train_spec_text(train, train_text);
	job->input.infer = infer_spec_text(infer, infer_text);
	job->input.trainer_stages = stages;
	assert_int_equal(problem_build(&job->problem, &job->input, NULL), 0);
}

static void test_problem__of_a_model_equals_that_of_its_declarations(void **state)
{
	static const struct {
		const char *train, *infer;
	} specs[] = {{"world=4", "engines=2,tp=2"},
		     {"world=6,pp=3", "engines=1,tp=2"},
		     {"world=8,fsdp=4,source=sharded", "engines=2,tp=1"},
		     {"world=8,pp=2,fsdp=2,source=sharded", "engines=3,tp=2"},
		     {"world=3,fsdp=3,source=sharded", "engines=1,tp=2"}};
	struct model *model;

	(void)state;
	assert_int_equal(model_open(&model, "Qwen2.5-0.5B", NULL), 0);
	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		static struct job job;
		struct problem_storage *storage;
		struct problem *problem;
		struct error error = {0};
		struct train_spec train;
		struct infer_spec infer;
		struct table *live, *offline;

		assert_int_equal(train_spec_parse(&train, specs[i].train, NULL), 0);
		assert_int_equal(infer_spec_parse(&infer, specs[i].infer, NULL), 0);
		if (problem_from_model(&problem, &storage, model, &train, &infer, true, &error))
			fail_msg("%s", error.text);
		assert_int_equal(table_plan(&offline, problem, policy_find("greedy"), NULL, NULL),
				 0);
		declare_each_rank(&job, model, &train, &infer);
		live = job_plan(&job, "greedy");
		assert_true(digest_equal(live->digest, offline->digest));
		assert_int_equal(problem->holding_count, job.problem->holding_count);
		assert_int_equal(problem->layout_count, job.problem->layout_count);
		table_free(&live);
		table_free(&offline);
		job_fini(&job);
		problem_free(&problem);
		problem_storage_free(&storage);
	}
	model_close(&model);
}

/* ---- memory ---- */

static int build_and_plan(struct job *job, struct error *error)
{
	struct summary summary;
	struct table *table = NULL;
	int rc = problem_build(&job->problem, &job->input, error);

	if (!rc)
		rc = table_plan(&table, job->problem, policy_find("greedy"), NULL, error);
	if (!rc)
		rc = summary_of(&summary, table, error);
	if (!rc)
		summary_fini(&summary);
	table_free(&table);
	if (!rc)
		rc = table_plan(&table, job->problem, policy_find("round-robin"), NULL, error);
	table_free(&table);
	problem_free(&job->problem);
	return rc;
}

static void test_problem__and_plan_survive_every_failed_allocation(void **state)
{
	struct dice dice = dice_seeded("memory");

	(void)state;
	for (int round = 0; round < 6; round++) {
		static struct job job;
		struct error error = {0};
		int rc = -1;

		job_random(&job, &dice);
		problem_free(&job.problem);
		for (uint64_t k = 1; rc; k++) {
			memory_fail_at(k);
			rc = build_and_plan(&job, &error);
			memory_fail_at(0);
			if (rc != 0 && rc != -ERROR_MEMORY)
				fail_msg("allocation %" PRIu64 ": %s", k, error.text);
			assert_true(k < 10000);
		}
		job_fini(&job);
	}
}

static void test_problem__of_a_model_survives_every_failed_allocation(void **state)
{
	struct model *model;
	struct train_spec train;
	struct infer_spec infer;
	int rc = -1;

	(void)state;
	assert_int_equal(model_open(&model, "Qwen2.5-0.5B", NULL), 0);
	assert_int_equal(train_spec_parse(&train, "world=2,fsdp=2,source=sharded", NULL), 0);
	assert_int_equal(infer_spec_parse(&infer, "engines=1,tp=2", NULL), 0);
	/* thousands of allocations, most of them names: the first ones, then every 97th */
	for (uint64_t k = 1; rc; k += k < 40 ? 1 : 97) {
		struct problem_storage *storage;
		struct problem *problem;

		memory_fail_at(k);
		rc = problem_from_model(&problem, &storage, model, &train, &infer, true, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 ? problem && storage : !problem && !storage);
		problem_free(&problem);
		problem_storage_free(&storage);
		assert_true(k < 1000000);
	}
	model_close(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_problem__sorts_tensors_by_order_then_name),
		cmocka_unit_test(test_problem__shares_equal_declarations),
		cmocka_unit_test(test_problem__refuses_two_shapes_with_both_declarers),
		cmocka_unit_test(test_problem__refuses_two_dtypes_with_both_declarers),
		cmocka_unit_test(test_problem__refuses_two_orders_with_both_declarers),
		cmocka_unit_test(test_problem__refuses_a_tensor_that_nobody_declares),
		cmocka_unit_test(test_problem__refuses_a_gap_with_rows_and_the_closest_holder),
		cmocka_unit_test(test_problem__lists_unwanted_tensors),
		cmocka_unit_test(test_how__needs_no_copy_only_for_one_run_of_registered_memory),
		cmocka_unit_test(test_problem__of_a_model_equals_that_of_its_declarations),
		cmocka_unit_test(test_problem__and_plan_survive_every_failed_allocation),
		cmocka_unit_test(test_problem__of_a_model_survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
