/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory_plan.c -- what workers keep: the published figures, and a naive count of small
 * plans.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/memory.h"
#include "routing/report/memory_plan.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Published: staging of one layer's w13 in GB, the engine rank in GiB, and a sender's groups and
 * sessions. */
static const struct published_row {
	const char *model, *train, *infer;
	double staged_gigabytes, rank_gibibytes;
	uint32_t groups, sessions;
} published[] = {
	{"Moonlight-16B-A3B", "world=8", "tp=8,ep=8", 0.74, 3.77, 1, 1},
	{"GLM-4.7-Flash", "world=8", "engines=2,tp=4,ep=4", 0.81, 14.13, 1, 1},
	{"Qwen3-30B-A3B", "world=16", "engines=2,tp=8,ep=8", 0.81, 7.15, 1, 1},
	{"GLM-4.5-Air", "world=32,pp=4", "engines=4,tp=8,ep=8", 2.95, 24.92, 1, 4},
	{"Qwen3-235B-A22B", "world=64,pp=4", "engines=2,tp=32,ep=32", 3.2, 13.94, 2, 4},
	{"Kimi-K2-block64", "world=256,pp=8",
	 "engines=8,tp=32,ep=32,dp=8,dp_lm_head=1,moe_dense_tp=1", 11.3, 33.49, 1, 8},
	{"GLM-5", "world=128,pp=8", "engines=2,tp=64,ep=64,dp=64,dp_lm_head=1,moe_dense_tp=1", 12.9,
	 51.55, 4, 8},
};

struct rig {
	struct model *model;
	struct train_spec train;
	struct infer_spec infer;
	struct problem *problem;
	struct problem_storage *storage;
	struct table *table;
	struct memory_plan plan;
};

static void open_rig(struct rig *rig, const char *model, const char *train, const char *infer)
{
	struct error error = {0};

	memset(rig, 0, sizeof(*rig));
	if (model_open(&rig->model, model, &error) ||
	    train_spec_parse(&rig->train, train, &error) ||
	    infer_spec_parse(&rig->infer, infer, &error) ||
	    problem_from_model(&rig->problem, &rig->storage, rig->model, &rig->train, &rig->infer,
			       false, &error) ||
	    table_plan(&rig->table, rig->problem, policy_find("greedy"), NULL, &error) ||
	    memory_plan(&rig->plan, rig->model, &rig->train, &rig->infer, rig->table,
			MEMORY_RING_DEFAULT, &error))
		fail_msg("%s", error.text);
}

static void close_rig(struct rig *rig)
{
	memory_plan_fini(&rig->plan);
	table_free(&rig->table);
	problem_free(&rig->problem);
	problem_storage_free(&rig->storage);
	model_close(&rig->model);
}

static void test_staging_groups_and_sessions__are_those_of_the_published_design(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(published); i++) {
		struct memory_published found;
		struct train_spec train;
		struct infer_spec infer;
		struct error error = {0};
		struct model *model;
		double unit = published[i].staged_gigabytes < 3 ? 0.01 : 0.1;

		if (model_open(&model, published[i].model, &error) ||
		    train_spec_parse(&train, published[i].train, &error) ||
		    infer_spec_parse(&infer, published[i].infer, &error) ||
		    memory_published(&found, model, &train, &infer, &error))
			fail_msg("%s", error.text);
		assert_int_equal(found.groups, published[i].groups);
		assert_int_equal(found.sessions, published[i].sessions);
		if (fabs((double)found.staged_bytes / 1e9 - published[i].staged_gigabytes) >
		    unit / 2)
			fail_msg("%s: %llu bytes staged", published[i].model,
				 (unsigned long long)found.staged_bytes);
		assert_non_null(strstr(found.staged, ".mlp.experts.w13_weight"));
		model_close(&model);
	}
}

static void test_staging__of_a_dense_model_is_its_largest_fused_parameter(void **state)
{
	const struct train_spec train = {.world = 2, .pp = 1, .fsdp = 1};
	struct memory_published found;
	struct infer_spec infer = {.engines = 1, .tp = 2, .ep = 1, .dp = 1};
	struct error error = {0};
	struct model *model;

	(void)state;
	assert_int_equal(model_open(&model, "Qwen3-4B", &error), 0);
	assert_int_equal(memory_published(&found, model, &train, &infer, &error), 0);
	assert_int_equal(found.staged_bytes, UINT64_C(2) * 9728 * 2560 * 2);
	assert_string_equal(found.staged, "model.layers.0.mlp.gate_up_proj.weight");
	model_close(&model);
	/* gate and up are one tensor on disk: only q, k and v wait for each other */
	assert_int_equal(model_open(&model, "GLM-Z1-9B-0414", &error), 0);
	assert_int_equal(memory_published(&found, model, &train, &infer, &error), 0);
	assert_int_equal(found.staged_bytes, UINT64_C(36) * 128 * 4096 * 2);
	model_close(&model);
}

static void test_replica__of_the_published_design_is_one_engine_rank(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(published); i++) {
		struct layout layout;
		struct infer_spec infer;
		struct error error = {0};
		struct model *model;
		uint64_t bytes = 0;

		if (model_open(&model, published[i].model, &error) ||
		    infer_spec_parse(&infer, published[i].infer, &error) ||
		    model_layout(model, &infer, 0, &layout, &error))
			fail_msg("%s", error.text);
		for (size_t p = 0; p < layout.param_count; p++)
			bytes += layout.params[p].bytes;
		assert_true(fabs((double)bytes / (1 << 30) - published[i].rank_gibibytes) < 0.005);
		layout_fini(&layout);
		model_close(&model);
	}
}

/* At sizes that plan at once, and with fewer senders than ranks. */
static void test_senders__serve_the_published_groups_and_sessions(void **state)
{
	static const struct {
		const char *train, *infer;
		uint32_t groups, sessions;
	} rows[] = {
		{"world=8", "engines=2,tp=2", 1, 1}, {"world=1", "engines=1,tp=2", 2, 2},
		{"world=2", "engines=4,tp=2", 1, 4}, {"world=4,pp=2", "engines=3,tp=2", 1, 3},
		{"world=1", "engines=3,tp=2", 2, 6},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct rig rig;

		open_rig(&rig, "Qwen2.5-0.5B", rows[i].train, rows[i].infer);
		assert_int_equal(rig.plan.published.groups, rows[i].groups);
		assert_int_equal(rig.plan.published.sessions, rows[i].sessions);
		close_rig(&rig);
	}
}

/* One trainer, one rank that wants everything: every figure is known. */
static void test_one_trainer__keeps_each_byte_once(void **state)
{
	struct rig rig;
	const struct memory_trainer *trainer;
	uint64_t bytes;

	(void)state;
	open_rig(&rig, "Qwen2.5-0.5B", "world=1", "engines=3,tp=1");
	trainer = &rig.plan.trainers[0];
	bytes = rig.model->bytes;
	assert_int_equal(trainer->sent_bytes, 3 * bytes);
	assert_int_equal(trainer->full_bytes, bytes); /* engines share it */
	assert_int_equal(trainer->source_bytes, bytes);
	assert_int_equal(trainer->ring_bytes, bytes + rig.model->tensor_count * MEMORY_SLOT_BYTES);
	assert_int_equal(trainer->packed_bytes, 0); /* whole tensors are runs of source bytes */
	assert_int_equal(trainer->pieces, 3 * rig.model->tensor_count);
	assert_int_equal(rig.plan.inference[2].param_bytes, bytes);
	assert_int_equal(rig.plan.inference[2].pieces, rig.model->tensor_count);
	close_rig(&rig);
}

/* Two engine ranks alias one replica: cut tensors take each other's place, of what is whole on
 * both one copy is packed, and only cut columns need packing where tensors stay. */
static void test_two_engine_ranks__share_offsets_and_whole_tensors(void **state)
{
	uint64_t columns = 0, distinct = 0, slots = 0;
	const struct memory_trainer *trainer;
	struct rig rig;

	(void)state;
	open_rig(&rig, "Qwen2.5-0.5B", "world=1", "engines=2,tp=2");
	trainer = &rig.plan.trainers[0];
	for (size_t t = 0; t < rig.model->tensor_count; t++) {
		const struct model_tensor *tensor = &rig.model->tensors[t];
		bool cut = strstr(tensor->name, "norm") == NULL;

		distinct += tensor->bytes;
		slots += cut ? 2 : 1;
		if (strstr(tensor->name, "o_proj") || strstr(tensor->name, "down_proj"))
			columns += tensor->bytes + 2 * MEMORY_SLOT_BYTES;
	}
	assert_int_equal(trainer->full_bytes, rig.plan.inference[0].param_bytes);
	assert_int_equal(trainer->ring_bytes, distinct + slots * MEMORY_SLOT_BYTES);
	assert_int_equal(trainer->packed_bytes, columns);
	close_rig(&rig);
}

static void test_ring__is_never_larger_than_its_limit(void **state)
{
	struct error error = {0};
	struct memory_plan plan;
	struct rig rig;

	(void)state;
	open_rig(&rig, "Qwen2.5-0.5B", "world=1", "tp=2");
	assert_int_equal(
		memory_plan(&plan, rig.model, &rig.train, &rig.infer, rig.table, 1 << 20, &error),
		0);
	assert_int_equal(plan.trainers[0].ring_bytes, 1 << 20);
	assert_int_equal(plan.trainers[0].packed_bytes, 1 << 20);
	assert_int_equal(plan.trainers[0].full_bytes, rig.plan.trainers[0].full_bytes);
	memory_plan_fini(&plan);
	close_rig(&rig);
}

static void test_shards__are_what_a_trainer_holds(void **state)
{
	struct rig rig;
	uint64_t held = 0;

	(void)state;
	open_rig(&rig, "Qwen2.5-0.5B", "world=4,fsdp=4,source=sharded", "tp=2");
	for (uint32_t t = 0; t < 4; t++)
		held += rig.plan.trainers[t].source_bytes;
	assert_int_equal(held, rig.model->bytes);
	close_rig(&rig);
}

/* down_proj and o_proj in runs, and biases and norms of a few hundred bytes that two trainers share. */
static void test_what_lands__has_windows_and_what_is_small_is_merged(void **state)
{
	uint64_t landed = 0, pieces = 0;
	struct error error = {0};
	struct memory_plan little;
	struct rig rig;

	(void)state;
	open_rig(&rig, "Qwen2.5-0.5B", "world=4,source=dtensor,mesh=2/2", "tp=1");
	for (size_t p = 0; p < rig.table->piece_count; p++) {
		landed += rig.table->pieces[p].path == PATH_LANDED ? rig.table->pieces[p].bytes : 0;
		pieces += rig.table->pieces[p].path == PATH_LANDED;
	}
	assert_true(landed > 0 && landed < MEMORY_LANDING_DEFAULT);
	assert_int_equal(rig.plan.inference[0].landing_bytes, landed + pieces * MEMORY_SLOT_BYTES);
	for (uint32_t t = 0; t < 4; t++)
		assert_true(rig.plan.trainers[t].merge_bytes >= MEMORY_MERGE_MIN &&
			    rig.plan.trainers[t].merge_bytes <= 2 * MERGE_WRITE_BYTES);
	assert_int_equal(
		memory_plan(&little, rig.model, &rig.train, &rig.infer, rig.table, 1, &error), 0);
	assert_int_equal(little.trainers[3].merge_bytes, MEMORY_MERGE_MIN); /* the least there is */
	memory_plan_fini(&little);
	close_rig(&rig);
}

static void test_every_failed_allocation__is_reported_and_leaks_nothing(void **state)
{
	struct rig rig;

	(void)state;
	open_rig(&rig, "Qwen2.5-0.5B", "world=2", "engines=2,tp=2");
	for (uint64_t k = 1;; k++) {
		struct error error = {0};
		struct memory_plan plan;
		int rc;

		memory_fail_at(k);
		rc = memory_plan(&plan, rig.model, &rig.train, &rig.infer, rig.table,
				 MEMORY_RING_DEFAULT, &error);
		memory_fail_at(0);
		if (!rc) {
			assert_true(k > 10);
			memory_plan_fini(&plan);
			break;
		}
		assert_int_equal(error.code, ERROR_MEMORY);
		assert_null(plan.trainers);
	}
	close_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_staging_groups_and_sessions__are_those_of_the_published_design),
		cmocka_unit_test(test_staging__of_a_dense_model_is_its_largest_fused_parameter),
		cmocka_unit_test(test_replica__of_the_published_design_is_one_engine_rank),
		cmocka_unit_test(test_senders__serve_the_published_groups_and_sessions),
		cmocka_unit_test(test_one_trainer__keeps_each_byte_once),
		cmocka_unit_test(test_two_engine_ranks__share_offsets_and_whole_tensors),
		cmocka_unit_test(test_ring__is_never_larger_than_its_limit),
		cmocka_unit_test(test_shards__are_what_a_trainer_holds),
		cmocka_unit_test(test_what_lands__has_windows_and_what_is_small_is_merged),
		cmocka_unit_test(test_every_failed_allocation__is_reported_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
