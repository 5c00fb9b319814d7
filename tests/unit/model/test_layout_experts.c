/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layout_experts.c -- rank layouts of the published models with experts, latent attention
 * and fp8 blocks: worked copies, and what is refused with tensor, number and divisor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/memory.h"
#include "model/config.h"
#include "model/family.h"
#include "model/model.h"
#include "model/tensors.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KIMI "tp=32,ep=32,dp=8,dp_lm_head=1,moe_dense_tp=1"

static struct model *open_model(const char *name)
{
	struct model *model;
	struct error error = {0};

	if (model_open(&model, name, &error))
		fail_msg("%s", error.text);
	return model;
}

static void cut_model(const char *name, const char *spec, uint32_t rank, struct layout *layout)
{
	struct model *model = open_model(name);
	struct infer_spec infer;
	struct error error = {0};

	if (infer_spec_parse(&infer, spec, &error) ||
	    model_layout(model, &infer, rank, layout, &error))
		fail_msg("%s", error.text);
	model_close(&model);
}

/* The one piece of layer `layer`'s tensor must take `box` to row `row` of `param`; the rows of
 * all slots are counted through. */
static void expect_copy(const struct layout *layout, int layer, const char *tensor, const char *box,
			const char *param, uint64_t row)
{
	char name[RULE_NAME_BYTES], target[RULE_NAME_BYTES], text[100];
	size_t found = 0;

	snprintf(name, sizeof(name), "model.layers.%d.%s", layer, tensor);
	snprintf(target, sizeof(target), "model.layers.%d.%s", layer, param);
	for (size_t i = 0; i < layout->piece_count; i++) {
		const struct piece *piece = &layout->pieces[i];
		const struct tensor_info *info = &layout->params[piece->param];
		uint64_t row_bytes = dtype_bytes(info->dtype);

		if (strcmp(layout->tensors[piece->tensor].name, name) != 0)
			continue;
		if (info->dims > 1)
			row_bytes *= info->shape[info->dims - 1];
		assert_string_equal(info->name, target);
		assert_string_equal(box_text(&piece->src, text, sizeof(text)), box);
		assert_int_equal(piece->offset, row * row_bytes);
		found++;
	}
	if (found != 1)
		fail_msg("%s has %zu pieces", name, found);
}

static void expect_shape(const struct layout *layout, const char *param, enum dtype dtype,
			 uint32_t dims, uint64_t a, uint64_t b, uint64_t c)
{
	const uint64_t shape[] = {a, b, c};
	uint32_t index;

	if (!strmap_get(&layout->param_names, param, &index))
		fail_msg("no parameter %s", param);
	assert_int_equal(layout->params[index].dtype, dtype);
	assert_int_equal(layout->params[index].dims, dims);
	assert_memory_equal(layout->params[index].shape, shape, dims * sizeof(*shape));
}

static bool has_tensor(const struct layout *layout, const char *name)
{
	uint32_t index;

	return strmap_get(&layout->tensor_names, name, &index);
}

#define QKV_PROJ "self_attn.qkv_proj.weight"
#define QKV_BIAS "self_attn.qkv_proj.bias"

static void test_layout__worked_copies_of_qwen3_moe(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("Qwen3-30B-A3B", "tp=8,ep=8", 3, &layout);
	expect_shape(&layout, "model.layers.0." QKV_PROJ, DTYPE_BF16, 2, 768, 2048, 0);
	expect_copy(&layout, 0, "self_attn.q_proj.weight", "[1536..2048, 0..2048]", QKV_PROJ, 0);
	expect_copy(&layout, 0, "self_attn.k_proj.weight", "[128..256, 0..2048]", QKV_PROJ, 512);
	expect_copy(&layout, 0, "self_attn.v_proj.weight", "[128..256, 0..2048]", QKV_PROJ, 640);
	expect_copy(&layout, 0, "self_attn.o_proj.weight", "[0..2048, 1536..2048]",
		    "self_attn.o_proj.weight", 0);
	layout_fini(&layout);
	cut_model("Qwen3-235B-A22B", "tp=32,ep=32", 13, &layout);
	expect_shape(&layout, "model.layers.0." QKV_PROJ, DTYPE_BF16, 2, 512, 4096, 0);
	expect_copy(&layout, 0, "self_attn.q_proj.weight", "[3328..3584, 0..4096]", QKV_PROJ, 0);
	expect_copy(&layout, 0, "self_attn.k_proj.weight", "[128..256, 0..4096]", QKV_PROJ, 256);
	expect_copy(&layout, 0, "self_attn.v_proj.weight", "[128..256, 0..4096]", QKV_PROJ, 384);
	expect_shape(&layout, "model.layers.93.mlp.experts.w13_weight", DTYPE_BF16, 3, 4, 3072,
		     4096);
	expect_shape(&layout, "model.layers.93.mlp.experts.w2_weight", DTYPE_BF16, 3, 4, 4096,
		     1536);
	for (int e = 52; e < 56; e++) {
		char name[80];
		uint64_t slot = (uint64_t)e - 52;

		snprintf(name, sizeof(name), "mlp.experts.%d.gate_proj.weight", e);
		expect_copy(&layout, 0, name, "[0..1536, 0..4096]", "mlp.experts.w13_weight",
			    slot * 3072);
		snprintf(name, sizeof(name), "mlp.experts.%d.up_proj.weight", e);
		expect_copy(&layout, 0, name, "[0..1536, 0..4096]", "mlp.experts.w13_weight",
			    slot * 3072 + 1536);
		snprintf(name, sizeof(name), "mlp.experts.%d.down_proj.weight", e);
		expect_copy(&layout, 0, name, "[0..4096, 0..1536]", "mlp.experts.w2_weight",
			    slot * 4096);
	}
	assert_false(has_tensor(&layout, "model.layers.0.mlp.experts.51.up_proj.weight"));
	assert_false(has_tensor(&layout, "model.layers.0.mlp.experts.56.up_proj.weight"));
	layout_fini(&layout);
}

static void test_layout__worked_copies_of_glm_45_air(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("GLM-4.5-Air", "tp=8,ep=8", 2, &layout);
	expect_shape(&layout, "model.layers.0." QKV_PROJ, DTYPE_BF16, 2, 1792, 4096, 0);
	expect_shape(&layout, "model.layers.0." QKV_BIAS, DTYPE_BF16, 1, 1792, 0, 0);
	expect_copy(&layout, 0, "self_attn.q_proj.weight", "[3072..4608, 0..4096]", QKV_PROJ, 0);
	expect_copy(&layout, 0, "self_attn.k_proj.weight", "[256..384, 0..4096]", QKV_PROJ, 1536);
	expect_copy(&layout, 0, "self_attn.v_proj.weight", "[256..384, 0..4096]", QKV_PROJ, 1664);
	expect_copy(&layout, 0, "self_attn.q_proj.bias", "[3072..4608]", QKV_BIAS, 0);
	expect_copy(&layout, 0, "self_attn.k_proj.bias", "[256..384]", QKV_BIAS, 1536);
	expect_copy(&layout, 0, "self_attn.v_proj.bias", "[256..384]", QKV_BIAS, 1664);
	expect_shape(&layout, "model.layers.1.mlp.gate.e_score_correction_bias", DTYPE_F32, 1, 128,
		     0, 0);
	layout_fini(&layout);
}

static void test_layout__experts_are_cut_by_the_fastest_digit_of_the_rank(void **state)
{
	struct layout layout;

	(void)state;
	/* tp 8, ep 2: four ranks share a block of 64 experts, rank 6 is the third of block 1 */
	cut_model("Qwen3-30B-A3B", "tp=8,ep=2", 6, &layout);
	expect_shape(&layout, "model.layers.0.mlp.experts.w13_weight", DTYPE_BF16, 3, 64, 384,
		     2048);
	expect_shape(&layout, "model.layers.0.mlp.experts.w2_weight", DTYPE_BF16, 3, 64, 2048, 192);
	expect_copy(&layout, 0, "mlp.experts.64.gate_proj.weight", "[384..576, 0..2048]",
		    "mlp.experts.w13_weight", 0);
	expect_copy(&layout, 0, "mlp.experts.65.up_proj.weight", "[384..576, 0..2048]",
		    "mlp.experts.w13_weight", 384 + 192);
	expect_copy(&layout, 0, "mlp.experts.127.down_proj.weight", "[0..2048, 384..576]",
		    "mlp.experts.w2_weight", (uint64_t)63 * 2048);
	assert_false(has_tensor(&layout, "model.layers.0.mlp.experts.63.up_proj.weight"));
	layout_fini(&layout);
}

#define SHARED_IN "mlp.shared_experts.gate_up_proj.weight"
#define FUSED_A	  "self_attn.fused_qkv_a_proj_with_mqa.weight"

static void test_layout__worked_copies_of_kimi_k2_in_blocks_of_64(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("Kimi-K2-block64", KIMI, 13, &layout);
	expect_copy(&layout, 1, "self_attn.q_b_proj.weight", "[3072..6144, 0..1536]",
		    "self_attn.q_b_proj.weight", 0);
	expect_copy(&layout, 1, "self_attn.q_b_proj.weight_scale_inv", "[48..96, 0..24]",
		    "self_attn.q_b_proj.weight_scale_inv", 0);
	expect_copy(&layout, 1, "self_attn.kv_b_proj.weight", "[4096..8192, 0..512]",
		    "self_attn.kv_b_proj.weight", 0);
	expect_copy(&layout, 1, "self_attn.kv_b_proj.weight_scale_inv", "[64..128, 0..8]",
		    "self_attn.kv_b_proj.weight_scale_inv", 0);
	expect_copy(&layout, 1, "self_attn.o_proj.weight", "[0..7168, 2048..4096]",
		    "self_attn.o_proj.weight", 0);
	expect_copy(&layout, 1, "self_attn.o_proj.weight_scale_inv", "[0..112, 32..64]",
		    "self_attn.o_proj.weight_scale_inv", 0);
	expect_copy(&layout, 1, "mlp.shared_experts.gate_proj.weight", "[832..896, 0..7168]",
		    SHARED_IN, 0);
	expect_copy(&layout, 1, "mlp.shared_experts.up_proj.weight", "[832..896, 0..7168]",
		    SHARED_IN, 64);
	expect_copy(&layout, 1, "mlp.shared_experts.gate_proj.weight_scale_inv", "[13..14, 0..112]",
		    SHARED_IN SCALE_SUFFIX, 0);
	expect_copy(&layout, 1, "mlp.shared_experts.up_proj.weight_scale_inv", "[13..14, 0..112]",
		    SHARED_IN SCALE_SUFFIX, 1);
	expect_copy(&layout, 1, "mlp.shared_experts.down_proj.weight", "[0..7168, 832..896]",
		    "mlp.shared_experts.down_proj.weight", 0);
	expect_copy(&layout, 1, "mlp.shared_experts.down_proj.weight_scale_inv", "[0..112, 13..14]",
		    "mlp.shared_experts.down_proj.weight_scale_inv", 0);
	for (int e = 156; e < 168; e++) {
		char name[80];

		snprintf(name, sizeof(name), "mlp.experts.%d.up_proj.weight_scale_inv", e);
		expect_copy(&layout, 60, name, "[0..32, 0..112]",
			    "mlp.experts.w13_weight_scale_inv", ((uint64_t)e - 156) * 64 + 32);
	}
	assert_false(has_tensor(&layout, "model.layers.60.mlp.experts.155.up_proj.weight"));
	assert_false(has_tensor(&layout, "model.layers.60.mlp.experts.168.up_proj.weight"));
	assert_false(has_tensor(&layout, "model.layers.60.self_attn.rotary_emb.inv_freq"));
	expect_shape(&layout, "model.embed_tokens.weight", DTYPE_BF16, 2, 40960, 7168, 0);
	for (size_t i = 0; i < layout.piece_count; i++)
		if (strcmp(layout.tensors[layout.pieces[i].tensor].name,
			   "model.embed_tokens.weight") == 0)
			assert_int_equal(layout.pieces[i].src.lo[0], 40960);
	/* layers below first_k_dense_replace are whole on every rank */
	expect_copy(&layout, 0, "mlp.up_proj.weight", "[0..18432, 0..7168]",
		    "mlp.gate_up_proj.weight", 18432);
	layout_fini(&layout);
}

static void test_layout__the_fused_projection_may_end_in_a_short_block(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("DeepSeek-V3", "tp=16,ep=16", 5, &layout);
	expect_shape(&layout, "model.layers.3." FUSED_A, DTYPE_F8_E4M3, 2, 2112, 7168, 0);
	expect_shape(&layout, "model.layers.3." FUSED_A SCALE_SUFFIX, DTYPE_F32, 2, 17, 56, 0);
	expect_copy(&layout, 3, "self_attn.kv_a_proj_with_mqa.weight", "[0..576, 0..7168]", FUSED_A,
		    1536);
	expect_copy(&layout, 3, "self_attn.kv_a_proj_with_mqa.weight_scale_inv", "[0..5, 0..56]",
		    FUSED_A SCALE_SUFFIX, 12);
	layout_fini(&layout);
	cut_model("Kimi-K2-block64", KIMI, 5, &layout);
	expect_shape(&layout, "model.layers.3." FUSED_A SCALE_SUFFIX, DTYPE_F32, 2, 33, 112, 0);
	layout_fini(&layout);
	/* without a query latent nothing is fused */
	cut_model("Moonlight-16B-A3B", "tp=8,ep=8", 5, &layout);
	expect_copy(&layout, 3, "self_attn.q_proj.weight", "[1920..2304, 0..2048]",
		    "self_attn.q_proj.weight", 0);
	expect_copy(&layout, 3, "self_attn.kv_a_proj_with_mqa.weight", "[0..576, 0..2048]",
		    "self_attn.kv_a_proj_with_mqa.weight", 0);
	layout_fini(&layout);
}

static void test_layout__mtp_layers_are_listed_and_not_needed(void **state)
{
	struct model *model = open_model("GLM-4.5-Air");
	struct train_spec train;
	struct holding holding;
	struct layout layout;
	uint32_t index;
	int64_t at = model_find(model, "model.layers.46.shared_head.head.weight");

	(void)state;
	assert_true(at >= (int64_t)model->tensor_count && at < (int64_t)model->all_count);
	assert_int_equal(model->tensors[at].layer, 46);
	assert_string_equal(model->tensors[model->tensor_count - 1].name, "lm_head.weight");
	assert_true(model_find(model, "model.layers.46.mlp.experts.127.up_proj.weight") >
		    (int64_t)model->tensor_count);
	cut_model("GLM-4.5-Air", "tp=8,ep=8", 0, &layout);
	assert_false(has_tensor(&layout, "model.layers.46.input_layernorm.weight"));
	layout_fini(&layout);
	assert_int_equal(train_spec_parse(&train, "world=4,pp=4,source=gathered", NULL), 0);
	assert_int_equal(model_holding(model, &train, 3, &holding, NULL), 0);
	assert_true(strmap_get(&holding.tensor_names, "model.layers.45.input_layernorm.weight",
			       &index));
	assert_false(strmap_get(&holding.tensor_names, "model.layers.46.input_layernorm.weight",
				&index));
	holding_fini(&holding);
	model_close(&model);
}

static void test_model__shared_indexers_are_left_out(void **state)
{
	struct model *model = open_model("GLM-5.2");
	int count = 0;

	(void)state;
	for (int layer = 0; layer < 78; layer++) {
		char name[100];
		bool there;

		snprintf(name, sizeof(name), "model.layers.%d.self_attn.indexer.wk.weight", layer);
		there = model_find(model, name) >= 0;
		assert_int_equal(there, layer < 2 || layer % 4 == 2);
		count += there;
	}
	assert_int_equal(count, 21);
	assert_true(model_find(model, "model.layers.78.self_attn.indexer.wk.weight") >= 0);
	model_close(&model);
}

static void test_layout__what_cannot_be_cut_names_tensor_number_and_divisor(void **state)
{
	static const struct {
		const char *name, *spec, *message;
	} rows[] = {
		{"Kimi-K2", KIMI,
		 "model.layers.1.mlp.shared_experts.gate_proj.weight_scale_inv: 64 rows a rank are "
		 "no multiple of the fp8 block, which is 128"},
		{"DeepSeek-V3", "tp=32,ep=32",
		 "model.layers.0.mlp.gate_proj.weight_scale_inv: 576 rows a rank are no multiple of "
		 "the fp8 block, which is 128"},
		{"Kimi-K2", "tp=128,ep=128,dp=1",
		 "model.layers.0.self_attn.q_b_proj.weight: num_attention_heads 64 cannot be cut "
		 "for 128 ranks"},
		{"Qwen3-30B-A3B-FP8", "tp=4,ep=1",
		 "model.layers.0.mlp.experts.0.gate_proj.weight_scale_inv: 192 rows a rank are no "
		 "multiple of the fp8 block, which is 128"},
		{"GLM-4.7-Flash", "tp=8,ep=8",
		 "model.layers.0.self_attn.q_b_proj.weight: num_attention_heads 20 cannot be cut "
		 "for 8 ranks"},
		{"Qwen3-30B-A3B", "tp=96,ep=96,dp=3",
		 "mlp.experts of Qwen3-30B-A3B: 128 experts cannot be shared out to ep=96"},
		{"GLM-4.5-Air", "tp=12,ep=4,dp=3",
		 "model.layers.1.mlp.experts.0.gate_proj.weight: rows 1408 cannot be cut for 3 ranks"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct model *model = open_model(rows[i].name);
		struct infer_spec infer;
		struct layout layout;
		struct error error = {0};

		assert_int_equal(infer_spec_parse(&infer, rows[i].spec, &error), 0);
		assert_int_equal(model_layout(model, &infer, 0, &layout, &error), -ERROR_CONFIG);
		if (!strstr(error.text, rows[i].message))
			fail_msg("'%s' does not say '%s'", error.text, rows[i].message);
		assert_int_equal(layout.tensor_count, 0);
		layout_fini(&layout);
		model_close(&model);
	}
}

/* Engines accept this cut and load the scales of other rows: 768 rows in 4 are 192 a rank. */
static void test_layout__a_cut_inside_of_a_block_is_refused_where_engines_accept_it(void **state)
{
	struct model *model = open_model("DeepSeek-V3");
	struct model_config config = model->config;
	struct infer_spec infer;
	struct layout layout;
	struct error error = {0};

	(void)state;
	model_close(&model);
	config.layers = 1;
	config.mtp_layers = 0;
	config.heads = 4;
	config.qk_nope_head_dim = 128;
	config.intermediate_size = 1024;
	assert_int_equal(model_from_config(&model, "small", &config, NULL), 0);
	assert_int_equal(infer_spec_parse(&infer, "tp=8,dp=2", NULL), 0);
	for (uint32_t rank = 0; rank < 8; rank++) {
		assert_int_equal(model_layout(model, &infer, rank, &layout, &error), -ERROR_CONFIG);
		assert_non_null(strstr(error.text,
				       "q_b_proj.weight_scale_inv: 192 rows a rank are no multiple "
				       "of the fp8 block, which is 128"));
	}
	model_close(&model);
}

static void test_model__more_tensors_than_a_job_can_have_are_refused(void **state)
{
	struct model *model = open_model("Qwen3-30B-A3B");
	struct model_config config = model->config;
	struct error error = {0};

	(void)state;
	model_close(&model);
	config.layers = CONFIG_LAYERS_MAX;
	config.experts = CONFIG_EXPERTS_MAX;
	assert_int_equal(model_from_config(&model, "huge", &config, &error), -ERROR_LIMIT);
	assert_null(model);
	assert_non_null(strstr(error.text, "1024 layers of 4096 experts make more than 1000000"));
}

static void test_layout__every_failed_allocation_is_an_error_without_leak(void **state)
{
	struct model *model = open_model("DeepSeek-V3");
	struct model_config config = model->config;
	struct infer_spec infer;
	struct layout layout;
	int rc = -1;

	(void)state;
	model_close(&model);
	config.layers = 5;
	config.experts = 4;
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = model_from_config(&model, "small", &config, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	}
	assert_int_equal(infer_spec_parse(&infer, "tp=2,ep=2", NULL), 0);
	rc = -1;
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = model_layout(model, &infer, 1, &layout, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	}
	layout_fini(&layout);
	model_close(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout__worked_copies_of_qwen3_moe),
		cmocka_unit_test(test_layout__worked_copies_of_glm_45_air),
		cmocka_unit_test(test_layout__experts_are_cut_by_the_fastest_digit_of_the_rank),
		cmocka_unit_test(test_layout__worked_copies_of_kimi_k2_in_blocks_of_64),
		cmocka_unit_test(test_layout__the_fused_projection_may_end_in_a_short_block),
		cmocka_unit_test(test_layout__mtp_layers_are_listed_and_not_needed),
		cmocka_unit_test(test_model__shared_indexers_are_left_out),
		cmocka_unit_test(test_layout__what_cannot_be_cut_names_tensor_number_and_divisor),
		cmocka_unit_test(
			test_layout__a_cut_inside_of_a_block_is_refused_where_engines_accept_it),
		cmocka_unit_test(test_model__more_tensors_than_a_job_can_have_are_refused),
		cmocka_unit_test(test_layout__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
