/* SPDX-License-Identifier: Apache-2.0
 *
 * test_source_dtensor.c -- what ranks of FSDP2, HSDP, tensor and expert parallelism hold: shards that a run of torch gave, and
 * for each class that all ranks together have the checkpoint, each element of a local tensor once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "source_rig.h"

#define L0   "model.layers.0."
#define GATE L0 "mlp.gate_proj.weight"
#define DOWN L0 "mlp.down_proj.weight"

/* gate_proj is [rows, columns] and cut by rows, down_proj the other way around and cut by columns. */
static struct model *open_mlp(uint64_t hidden, uint64_t intermediate)
{
	char fields[512];

	snprintf(fields, sizeof(fields),
		 "\"hidden_size\": %llu, \"intermediate_size\": %llu, \"num_attention_heads\": 2, "
		 "\"num_key_value_heads\": 2, \"head_dim\": 2, \"vocab_size\": 7, "
		 "\"torch_dtype\": \"float32\"",
		 (unsigned long long)hidden, (unsigned long long)intermediate);
	return source_open("LlamaForCausalLM", fields, 1);
}

/* One shard: rows [lo, hi) and columns of a tensor, or nothing of it where rows are none. */
static void check_shard(const struct holding *holding, const char *name, const struct box *want,
			const char *of)
{
	uint32_t tensor;
	const struct held *held;

	if (want->lo[0] == want->hi[0]) {
		if (strmap_get(&holding->tensor_names, name, &tensor))
			fail_msg("%s has some of %s", of, name);
		return;
	}
	if (!strmap_get(&holding->tensor_names, name, &tensor))
		fail_msg("%s has nothing of %s", of, name);
	held = holding_find(holding, tensor, want);
	if (!held || !box_equal(&held->box, want))
		fail_msg("%s has something else of %s", of, name);
	assert_int_equal(held->place.offset, 0);
	assert_int_equal(held->place.stride[0], want->hi[1] - want->lo[1]);
	assert_int_equal(held->place.stride[1], 1);
	for (int d = 0; d < 2; d++)
		assert_int_equal(holding->locals[held->local].shape[d], want->hi[d] - want->lo[d]);
}

static void test_dtensor__shards_are_those_of_torch(void **state)
{
	static const struct {
		const char *mesh;
		uint32_t world;
		uint64_t rows, columns;
		bool by_columns; /* a linear that tp cuts by columns */
		uint64_t row[8][2], column[8][2];
	} rows[] = {
		{"4", 4, 10, 4, false, {{0, 3}, {3, 6}, {6, 9}, {9, 10}}, {{0}}},
		{"4", 4, 3, 4, false, {{0, 1}, {1, 2}, {2, 3}, {0, 0}}, {{0}}},
		{"4", 4, 9, 4, false, {{0, 3}, {3, 6}, {6, 9}, {0, 0}}, {{0}}},
		{"2/2", 4, 8, 4, false, {{0, 2}, {4, 6}, {2, 4}, {6, 8}}, {{0}}},
		{"3/2", 6, 10, 4, false, {{0, 2}, {5, 7}, {2, 4}, {7, 9}, {4, 5}, {9, 10}}, {{0}}},
		{"3/2",
		 6,
		 10,
		 4,
		 true,
		 {{0, 4}, {0, 4}, {4, 8}, {4, 8}, {8, 10}, {8, 10}},
		 {{0, 2}, {2, 4}, {0, 2}, {2, 4}, {0, 2}, {2, 4}}},
		{"2/2/1", 4, 6, 4, false, {{0, 3}, {3, 6}, {0, 3}, {3, 6}}, {{0}}},
		{"2/2/2",
		 8,
		 12,
		 4,
		 false,
		 {{0, 3}, {6, 9}, {3, 6}, {9, 12}, {0, 3}, {6, 9}, {3, 6}, {9, 12}},
		 {{0}}},
		/* columns that do not divide: as torch's chunks */
		{"1/2", 2, 4, 5, true, {{0, 4}, {0, 4}}, {{0, 3}, {3, 5}}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct model *model = rows[i].by_columns ? open_mlp(rows[i].rows, rows[i].columns)
							 : open_mlp(rows[i].columns, rows[i].rows);
		char spec[64];

		snprintf(spec, sizeof(spec), "world=%u,source=dtensor,mesh=%s", rows[i].world,
			 rows[i].mesh);
		for (uint32_t rank = 0; rank < rows[i].world; rank++) {
			bool columns = rows[i].by_columns;
			struct box want = {
				2,
				{rows[i].row[rank][0], columns ? rows[i].column[rank][0] : 0},
				{rows[i].row[rank][1],
				 columns ? rows[i].column[rank][1] : rows[i].columns}};
			struct holding holding;
			char of[96];

			snprintf(of, sizeof(of), "%zu: rank %u of %s", i, rank, spec);
			source_hold_rank(model, spec, rank, &holding);
			check_shard(&holding, columns ? DOWN : GATE, &want, of);
			holding_fini(&holding);
		}
		model_close(&model);
	}
}

/* ---- experts ---- */

static struct model *open_experts(uint64_t experts, uint64_t size)
{
	char fields[512];

	snprintf(fields, sizeof(fields),
		 SOURCE_DENSE ", \"num_experts\": %llu, \"moe_intermediate_size\": %llu",
		 (unsigned long long)experts, (unsigned long long)size);
	return source_open("Qwen3MoeForCausalLM", fields, 1);
}

/* Experts [lo, hi), and of each these rows or columns of gate, up and down. */
struct expert_shard {
	uint64_t experts[2], gate[2], down_rows[2], down_columns[2];
};

static void check_expert(const struct holding *holding, uint64_t expert, const char *part,
			 const char *local, const struct expert_shard *want, const struct box *box,
			 const char *of)
{
	const uint64_t elements = box_elements(box);
	const struct held *held = NULL;
	char name[128];
	uint32_t tensor;
	bool here =
		expert >= want->experts[0] && expert < want->experts[1] && box->hi[0] > box->lo[0];

	snprintf(name, sizeof(name), L0 "mlp.experts.%llu.%s.weight", (unsigned long long)expert,
		 part);
	if (strmap_get(&holding->tensor_names, name, &tensor) != here)
		fail_msg("%s, %s: %s", of, name, here ? "nothing of it" : "some of it");
	if (!here)
		return;
	held = holding_find(holding, tensor, box);
	if (!held || !box_equal(&held->box, box))
		fail_msg("%s, %s: something else of it", of, name);
	assert_string_equal(holding->locals[held->local].name, local);
	assert_int_equal(held->place.offset, (expert - want->experts[0]) * elements);
	assert_int_equal(held->place.stride[0], box->hi[1] - box->lo[1]);
	assert_int_equal(held->place.stride[1], 1);
	assert_int_equal(holding->locals[held->local].dims, 3);
	assert_int_equal(holding->locals[held->local].shape[0],
			 want->experts[1] - want->experts[0]);
	assert_int_equal(holding->locals[held->local].shape[1], box->hi[0] - box->lo[0]);
}

static void test_dtensor__experts_are_cut_as_titan_cuts_them(void **state)
{
	static const struct {
		const char *keys;
		uint32_t world;
		uint64_t experts, size;
		struct expert_shard shards[8];
	} rows[] = {
		/* efsdp 2 x ep 2, 2 x 4 and 3 x 2: whole experts */
		{"mesh=4,ep=2",
		 4,
		 8,
		 4,
		 {{{0, 2}, {0, 4}, {0, 16}, {0, 4}},
		  {{4, 6}, {0, 4}, {0, 16}, {0, 4}},
		  {{2, 4}, {0, 4}, {0, 16}, {0, 4}},
		  {{6, 8}, {0, 4}, {0, 16}, {0, 4}}}},
		{"mesh=2/2,ep=2",
		 4,
		 8,
		 4,
		 {{{0, 2}, {0, 4}, {0, 16}, {0, 4}},
		  {{4, 6}, {0, 4}, {0, 16}, {0, 4}},
		  {{2, 4}, {0, 4}, {0, 16}, {0, 4}},
		  {{6, 8}, {0, 4}, {0, 16}, {0, 4}}}},
		{"mesh=8,ep=4",
		 8,
		 8,
		 4,
		 {{{0, 1}, {0, 4}, {0, 16}, {0, 4}},
		  {{2, 3}, {0, 4}, {0, 16}, {0, 4}},
		  {{4, 5}, {0, 4}, {0, 16}, {0, 4}},
		  {{6, 7}, {0, 4}, {0, 16}, {0, 4}},
		  {{1, 2}, {0, 4}, {0, 16}, {0, 4}},
		  {{3, 4}, {0, 4}, {0, 16}, {0, 4}},
		  {{5, 6}, {0, 4}, {0, 16}, {0, 4}},
		  {{7, 8}, {0, 4}, {0, 16}, {0, 4}}}},
		{"mesh=6,ep=2",
		 6,
		 8,
		 4,
		 {{{0, 2}, {0, 4}, {0, 16}, {0, 4}},
		  {{4, 6}, {0, 4}, {0, 16}, {0, 4}},
		  {{2, 4}, {0, 4}, {0, 16}, {0, 4}},
		  {{6, 8}, {0, 4}, {0, 16}, {0, 4}},
		  {{0}, {0}, {0}, {0}},
		  {{0}, {0}, {0}, {0}}}},
		/* more shards than experts: rows of each, of down those of its own */
		{"mesh=4,ep=2",
		 4,
		 2,
		 4,
		 {{{0, 1}, {0, 2}, {0, 8}, {0, 4}},
		  {{1, 2}, {0, 2}, {0, 8}, {0, 4}},
		  {{0, 1}, {2, 4}, {8, 16}, {0, 4}},
		  {{1, 2}, {2, 4}, {8, 16}, {0, 4}}}},
		/* tp alone beside fsdp: rows of gate and up, columns of down */
		{"mesh=2/2",
		 4,
		 8,
		 12,
		 {{{0, 4}, {0, 6}, {0, 16}, {0, 6}},
		  {{0, 4}, {6, 12}, {0, 16}, {6, 12}},
		  {{4, 8}, {0, 6}, {0, 16}, {0, 6}},
		  {{4, 8}, {6, 12}, {0, 16}, {6, 12}}}},
		/* the same with more shards than experts; the last one of gate is empty */
		{"mesh=4/2",
		 8,
		 2,
		 12,
		 {{{0, 2}, {0, 2}, {0, 4}, {0, 6}},
		  {{0, 2}, {6, 8}, {0, 4}, {6, 12}},
		  {{0, 2}, {2, 4}, {4, 8}, {0, 6}},
		  {{0, 2}, {8, 10}, {4, 8}, {6, 12}},
		  {{0, 2}, {4, 6}, {8, 12}, {0, 6}},
		  {{0, 2}, {10, 12}, {8, 12}, {6, 12}},
		  {{0, 2}, {0, 0}, {12, 16}, {0, 6}},
		  {{0, 2}, {0, 0}, {12, 16}, {6, 12}}}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct model *model = open_experts(rows[i].experts, rows[i].size);
		char spec[64];

		snprintf(spec, sizeof(spec), "world=%u,source=dtensor,%s", rows[i].world,
			 rows[i].keys);
		for (uint32_t rank = 0; rank < rows[i].world; rank++) {
			const struct expert_shard *want = &rows[i].shards[rank];
			struct box in = {2, {want->gate[0], 0}, {want->gate[1], 16}};
			struct box out = {2,
					  {want->down_rows[0], want->down_columns[0]},
					  {want->down_rows[1], want->down_columns[1]}};
			struct holding holding;
			char of[96];

			snprintf(of, sizeof(of), "%zu: rank %u of %s", i, rank, spec);
			source_hold_rank(model, spec, rank, &holding);
			for (uint64_t e = 0; e < rows[i].experts; e++) {
				check_expert(&holding, e, "gate_proj", "layers.0.moe.experts.w1",
					     want, &in, of);
				check_expert(&holding, e, "up_proj", "layers.0.moe.experts.w3",
					     want, &in, of);
				check_expert(&holding, e, "down_proj", "layers.0.moe.experts.w2",
					     want, &out, of);
			}
			holding_fini(&holding);
		}
		model_close(&model);
	}
}

/* ---- all ranks ---- */

static const struct source_class unknown_classes[] = {
	{"GPT2LMHeadModel",
	 "\"n_embd\": 16, \"n_layer\": 4, \"n_head\": 4, \"n_positions\": 32, \"vocab_size\": 50, "
	 "\"torch_dtype\": \"float32\"",
	 false},
	{"GptOssForCausalLM", SOURCE_DENSE ", \"num_local_experts\": 8", false},
	{"Qwen3NextForCausalLM",
	 SOURCE_DENSE SOURCE_NUM_EXPERTS
	 ", \"shared_expert_intermediate_size\": 24, \"linear_num_key_heads\": 2, "
	 "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 4, \"linear_value_head_dim\": 4, "
	 "\"linear_conv_kernel_dim\": 4, \"full_attention_interval\": 2",
	 true},
};

static void check_all_ranks(const struct source_class *class, const char *spec)
{
	struct model *model = source_open(class->architecture, class->fields, 4);
	uint32_t world = source_spec(spec).world;
	struct source_union all;

	source_union_init(&all, model);
	for (uint32_t rank = 0; rank < world; rank++) {
		uint64_t covered[1024];
		struct holding holding;

		source_hold_rank(model, spec, rank, &holding);
		assert_true(holding.local_count <= ARRAY_SIZE(covered));
		source_count_places(&holding, covered);
		for (size_t l = 0; l < holding.local_count; l++)
			assert_int_equal(covered[l] * dtype_bytes(holding.locals[l].dtype),
					 holding.locals[l].bytes);
		source_union_add(&all, &holding, true);
		holding_fini(&holding);
	}
	source_union_check(&all);
	model_close(&model);
}

static void test_dtensor__all_ranks_have_the_checkpoint_whatever_the_class(void **state)
{
	static const char *const specs[] = {
		"world=3,source=dtensor,mesh=3",
		"world=8,source=dtensor,mesh=2/2/2",
		"world=15,source=dtensor,mesh=5/3",
		"world=8,source=dtensor,mesh=4,pp=2",
		"world=8,source=dtensor,mesh=4/2,ep=4",
		"world=12,source=dtensor,mesh=6/2,ep=3",
		"world=4,source=dtensor,mesh=1/2,ep=2,pp=2",
	};

	(void)state;
	for (size_t c = 0; c < ARRAY_SIZE(source_classes); c++)
		for (size_t s = 0; s < ARRAY_SIZE(specs); s++)
			if (source_classes[c].experts || !strstr(specs[s], "ep="))
				check_all_ranks(&source_classes[c], specs[s]);
}

/* FSDP cuts whatever there is by rows; tensor parallelism asks what it is. */
static void test_dtensor__only_tensor_parallelism_needs_to_know_the_class(void **state)
{
	static const char *const tensors[] = {"transformer.wte.weight",
					      "model.layers.0.self_attn.sinks",
					      "model.layers.0.linear_attn."};

	(void)state;
	for (size_t c = 0; c < ARRAY_SIZE(unknown_classes); c++) {
		const struct source_class *class = &unknown_classes[c];
		struct model *model = source_open(class->architecture, class->fields, 4);
		char message[128];

		check_all_ranks(class, "world=6,source=dtensor,mesh=2/3/1");
		snprintf(message, sizeof(message),
			 "source=dtensor of --train has no row for tensor %s", tensors[c]);
		source_refused(model, "world=4,source=dtensor,mesh=2/2", ERROR_UNSUPPORTED,
			       message);
		model_close(&model);
	}
}

static void test_dtensor__refuses_an_ep_without_experts_to_cut(void **state)
{
	struct model *dense = source_open("Qwen3ForCausalLM", SOURCE_DENSE, 2),
		     *sparse = open_experts(8, 12);

	(void)state;
	source_refused(dense, "world=4,source=dtensor,mesh=4,ep=2", ERROR_CONFIG,
		       "ep=2 is of experts, and Qwen3ForCausalLM has none");
	source_refused(sparse, "world=16,source=dtensor,mesh=16,ep=16", ERROR_CONFIG,
		       "ep=16 is more than the 8 experts");
	model_close(&dense);
	model_close(&sparse);
}

static void test_dtensor__every_failed_allocation_is_an_error_without_leak(void **state)
{
	struct model *model = open_experts(8, 12);

	(void)state;
	source_fail_each(model, "world=8,source=dtensor,mesh=4/2,ep=4", 3);
	model_close(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dtensor__shards_are_those_of_torch),
		cmocka_unit_test(test_dtensor__experts_are_cut_as_titan_cuts_them),
		cmocka_unit_test(test_dtensor__all_ranks_have_the_checkpoint_whatever_the_class),
		cmocka_unit_test(test_dtensor__only_tensor_parallelism_needs_to_know_the_class),
		cmocka_unit_test(test_dtensor__refuses_an_ep_without_experts_to_cut),
		cmocka_unit_test(test_dtensor__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
