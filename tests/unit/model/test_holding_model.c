/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "model/family.h"
#include "model/model.h"
#include <stdio.h>
#include <string.h>

static struct model *open_model(const char *name)
{
	struct model *model;
	struct error error = {0};

	if (model_open(&model, name, &error))
		fail_msg("%s", error.text);
	return model;
}

static void hold_model(const struct model *model, const char *spec, uint32_t rank,
		       struct holding *holding)
{
	struct train_spec train;
	struct error error = {0};

	if (train_spec_parse(&train, spec, &error) ||
	    model_holding(model, &train, rank, holding, &error))
		fail_msg("%s", error.text);
}

static void test_holding__stages_share_the_model_out_and_stage_mates_hold_the_same(void **state)
{
	struct model *model = open_model("Qwen3-4B");
	struct digest digests[6];
	size_t tensors = 0;

	(void)state;
	for (uint32_t rank = 0; rank < 6; rank++) {
		struct holding holding;
		uint32_t index;

		hold_model(model, "world=6,pp=3,source=gathered", rank, &holding);
		digests[rank] = holding_digest(&holding);
		tensors += rank % 2 ? 0 : holding.held_count;
		assert_int_equal(
			strmap_get(&holding.tensor_names, "model.embed_tokens.weight", &index),
			rank < 2);
		assert_int_equal(strmap_get(&holding.tensor_names, "model.norm.weight", &index),
				 rank >= 4);
		assert_int_equal(strmap_get(&holding.tensor_names,
					    "model.layers.12.mlp.up_proj.weight", &index),
				 rank / 2 == 1);
		for (size_t i = 0; i < holding.tensor_count; i++)
			assert_string_equal(model->tensors[holding.tensors[i].order].name,
					    holding.tensors[i].name);
		holding_fini(&holding);
	}
	assert_int_equal(tensors, model->tensor_count);
	for (uint32_t rank = 0; rank < 6; rank += 2)
		assert_true(digest_equal(digests[rank], digests[rank + 1]));
	assert_false(digest_equal(digests[0], digests[2]));
	model_close(&model);
}

static void test_holding__shards_tile_every_tensor_and_groups_hold_the_same(void **state)
{
	struct model *model = open_model("Qwen2.5-0.5B");
	uint64_t *rows = memory_zalloc(model->tensor_count, sizeof(*rows));
	struct digest digests[10];

	(void)state;
	for (uint32_t rank = 0; rank < 10; rank++) {
		struct holding holding;

		hold_model(model, "world=10,fsdp=5,source=sharded", rank, &holding);
		digests[rank] = holding_digest(&holding);
		for (size_t i = 0; i < holding.held_count && rank < 5; i++) {
			const struct held *held = &holding.held[i];
			uint32_t order = holding.tensors[held->tensor].order;

			assert_int_equal(held->box.lo[0], rows[order]);
			rows[order] = held->box.hi[0];
		}
		holding_fini(&holding);
	}
	for (size_t t = 0; t < model->tensor_count; t++)
		assert_int_equal(rows[t], model->tensors[t].shape[0]);
	for (uint32_t rank = 0; rank < 5; rank++)
		assert_true(digest_equal(digests[rank], digests[rank + 5]));
	memory_free(rows);
	model_close(&model);
}

static void test_holding__short_tensors_leave_the_last_shards_empty(void **state)
{
	struct model_config config = {.family = family_find("LlamaForCausalLM"),
				      .hidden_size = 3,
				      .vocab_size = 5,
				      .layers = 1,
				      .heads = 1,
				      .kv_heads = 1,
				      .head_dim = 2,
				      .intermediate_size = 8,
				      .dtype = DTYPE_F32};
	struct model *model;
	struct holding holding;
	uint32_t index;

	(void)state;
	assert_int_equal(model_from_config(&model, "small", &config, NULL), 0);
	hold_model(model, "world=4,fsdp=4,source=sharded", 3, &holding);
	/* rows 2 of 4 shards: only the first two have one; 5 rows: chunks of 2, 2, 1, 0 */
	assert_false(strmap_get(&holding.tensor_names, "model.layers.0.self_attn.q_proj.weight",
				&index));
	assert_false(strmap_get(&holding.tensor_names, "model.embed_tokens.weight", &index));
	assert_true(strmap_get(&holding.tensor_names, "model.layers.0.mlp.up_proj.weight", &index));
	holding_fini(&holding);
	model_close(&model);
}

static void test_holding__what_does_not_add_up_is_refused(void **state)
{
	struct model *model = open_model("Qwen3-4B");
	struct train_spec train;
	struct holding holding;
	struct error error = {0};

	(void)state;
	assert_int_equal(train_spec_parse(&train, "world=4,source=gathered", NULL), 0);
	assert_int_equal(model_holding(model, &train, 4, &holding, &error), -ERROR_CONFIG);
	assert_int_equal(train_spec_parse(&train, "world=2,pp=2,source=gathered,layers=30/7", NULL),
			 0);
	assert_int_equal(model_holding(model, &train, 0, &holding, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "37"));
	assert_int_equal(holding.tensor_count, 0);
	holding_fini(&holding);
	model_close(&model);
}

static void test_holding__every_failed_allocation_is_an_error_without_leak(void **state)
{
	struct model *model = open_model("Qwen2.5-0.5B");
	struct train_spec train;
	struct holding holding;
	int rc = -1;

	(void)state;
	assert_int_equal(train_spec_parse(&train, "world=2,fsdp=2,source=sharded", NULL), 0);
	for (uint64_t k = 1; rc; k += 1 + k / 20) {
		memory_fail_at(k);
		rc = model_holding(model, &train, 1, &holding, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	}
	holding_fini(&holding);
	model_close(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_holding__stages_share_the_model_out_and_stage_mates_hold_the_same),
		cmocka_unit_test(test_holding__shards_tile_every_tensor_and_groups_hold_the_same),
		cmocka_unit_test(test_holding__short_tensors_leave_the_last_shards_empty),
		cmocka_unit_test(test_holding__what_does_not_add_up_is_refused),
		cmocka_unit_test(test_holding__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
