/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layout_model.c -- tensor lists and rank layouts of the built-in models, against published
 * totals and worked examples, and what is refused.
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
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct model *open_model(const char *name)
{
	struct model *model;
	struct error error = {0};

	if (model_open(&model, name, &error))
		fail_msg("%s", error.text);
	return model;
}

static void cut_model(const struct model *model, const char *spec, uint32_t rank,
		      struct layout *layout)
{
	struct infer_spec infer;
	struct error error = {0};

	if (infer_spec_parse(&infer, spec, &error) ||
	    model_layout(model, &infer, rank, layout, &error))
		fail_msg("%s", error.text);
}

static uint64_t params_bytes(const struct layout *layout)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < layout->param_count; i++)
		bytes += layout->params[i].bytes;
	return bytes;
}

static void test_models__totals_equal_the_published_ones(void **state)
{
	static const struct {
		const char *name;
		struct model_total totals[2]; /* without MTP layers, with them */
	} rows[] = {
		{"Llama-3.1-8B", {{291, 8030261248, 16060522496}, {291, 8030261248, 16060522496}}},
		{"Qwen2.5-0.5B", {{290, 494032768, 988065536}, {290, 494032768, 988065536}}},
		{"Qwen2.5-7B", {{339, 7615616512, 15231233024}, {339, 7615616512, 15231233024}}},
		{"Qwen3-4B", {{398, 4022468096, 8044936192}, {398, 4022468096, 8044936192}}},
		{"Qwen3-30B-A3B",
		 {{18867, 30532122624, 61064245248}, {18867, 30532122624, 61064245248}}},
		{"Qwen3-235B-A22B",
		 {{36945, 235093634560, 470187269120}, {36945, 235093634560, 470187269120}}},
		{"Qwen3-30B-A3B-FP8",
		 {{37491, 30532122624, 31174545408}, {37491, 30532122624, 31174545408}}},
		{"Qwen3-235B-A22B-FP8",
		 {{73417, 235093634560, 236445455360}, {73417, 235093634560, 236445455360}}},
		{"GLM-Z1-9B-0414",
		 {{523, 9400279040, 18800558080}, {523, 9400279040, 18800558080}}},
		{"GLM-4.5-Air",
		 {{17925, 106852251264, 213704514048}, {18329, 110468824832, 220937661440}}},
		{"GLM-4.7-Flash",
		 {{9491, 29943393920, 59886793728}, {9703, 31221488576, 62442983168}}},
		{"Moonlight-16B-A3B",
		 {{5344, 15960110208, 31920227200}, {5344, 15960110208, 31920227200}}},
		{"DeepSeek-V3",
		 {{90427, 671026419200, 673150611808}, {91991, 684489845504, 688574839360}}},
		{"DeepSeek-V3-BF16",
		 {{45395, 671026419200, 1342052868096}, {46183, 684489845504, 1368979721216}}},
		{"DeepSeek-V3.2",
		 {{90854, 671877944064, 674030368448}, {92425, 685355329792, 689469018240}}},
		{"Kimi-K2",
		 {{139644, 1026408232448, 1029173256720}, {139644, 1026408232448, 1029173256720}}},
		{"Kimi-K2-BF16",
		 {{70036, 1026408232448, 2052816517808}, {70036, 1026408232448, 2052816517808}}},
		{"Kimi-K2-block64",
		 {{139644, 1026408232448, 1029923171696}, {139644, 1026408232448, 1029923171696}}},
		{"GLM-5",
		 {{59079, 743911218432, 1487822475264}, {59870, 753864139008, 1507728316928}}},
		{"GLM-5.2",
		 {{58794, 743377019904, 1486754078208}, {59585, 753329940480, 1506659919872}}},
		{"GLM-5-FP8",
		 {{117459, 743911218432, 746130094848}, {119028, 753864139008, 756162728320}}},
	};
	size_t count;

	(void)state;
	model_builtins(&count);
	assert_int_equal(count, ARRAY_SIZE(rows));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct model_total *total = rows[i].totals;
		struct model *model = open_model(rows[i].name);
		struct model_total sums[2];

		assert_int_equal(model->tensor_count, total[0].tensors);
		assert_int_equal(model->parameters, total[0].parameters);
		assert_int_equal(model->bytes, total[0].bytes);
		assert_int_equal(model->all_count, total[1].tensors);
		assert_int_equal(model->all_parameters, total[1].parameters);
		assert_int_equal(model->all_bytes, total[1].bytes);
		assert_int_equal(model_totals(&model->config, sums, NULL), 0);
		assert_memory_equal(sums, total, sizeof(sums));
		model_close(&model);
	}
}

static void test_layout__rank_sizes_equal_the_published_ones(void **state)
{
	static const struct {
		const char *name, *spec;
		size_t params;
		int centi_gib, permille; /* of rank 0; of all ranks against the checkpoint */
	} rows[] = {
		{"GLM-Z1-9B-0414", "tp=4", 363, 442, 1009},
		{"Moonlight-16B-A3B", "tp=8,ep=8", 350, 377, 1016},
		{"GLM-4.7-Flash", "tp=4,ep=4", 657, 1413, 1014},
		{"Qwen3-30B-A3B", "tp=8,ep=8", 435, 715, 1006},
		{"GLM-4.5-Air", "tp=8,ep=8", 505, 2492, 1002},
		{"Qwen3-235B-A22B", "tp=32,ep=32", 849, 1394, 1018},
		{"GLM-5", "tp=64,ep=64,dp=64,dp_lm_head=1,moe_dense_tp=1", 1473, 5155, 2381},
		{"Kimi-K2-block64", "tp=32,ep=32,dp=8,dp_lm_head=1,moe_dense_tp=1", 1339, 3349,
		 1117},
		{"DeepSeek-V3", "tp=16,ep=16", 1327, 4018, 1025},
		{"DeepSeek-V3", "tp=8", 1327, 7929, 1012},
		{"Qwen3-4B", "tp=2", 290, 375, 1000},
		{"Qwen2.5-0.5B", "tp=2", 170, 46, 1000},
		{"Qwen2.5-0.5B", "tp=1", 170, 92, 1000},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct model *model = open_model(rows[i].name);
		struct layout layout;
		uint64_t bytes;
		double all;

		cut_model(model, rows[i].spec, 0, &layout);
		bytes = params_bytes(&layout);
		all = (double)bytes * atoi(rows[i].spec + 3) / (double)model->bytes;
		if (layout.param_count != rows[i].params ||
		    (int)((double)bytes * 100 / (1 << 30) + 0.5) != rows[i].centi_gib ||
		    (int)(all * 1000 + 0.5) != rows[i].permille)
			fail_msg("%s %s: %zu parameters, %" PRIu64 " bytes, %f of the checkpoint",
				 rows[i].name, rows[i].spec, layout.param_count, bytes, all);
		layout_fini(&layout);
		model_close(&model);
	}
}

static void test_model__tensors_stand_in_checkpoint_order(void **state)
{
	static const char *const expected[] = {
		"model.embed_tokens.weight",
		"model.layers.0.self_attn.q_proj.weight",
		"model.layers.0.self_attn.q_proj.bias",
		"model.layers.0.self_attn.k_proj.weight",
		"model.layers.0.self_attn.k_proj.bias",
		"model.layers.0.self_attn.v_proj.weight",
		"model.layers.0.self_attn.v_proj.bias",
		"model.layers.0.self_attn.o_proj.weight",
		"model.layers.0.mlp.gate_up_proj.weight",
		"model.layers.0.mlp.down_proj.weight",
		"model.layers.0.input_layernorm.weight",
		"model.layers.0.post_attention_layernorm.weight",
		"model.layers.0.post_self_attn_layernorm.weight",
		"model.layers.0.post_mlp_layernorm.weight",
		"model.layers.1.self_attn.q_proj.weight",
	};
	struct model *model = open_model("GLM-Z1-9B-0414");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		assert_string_equal(model->tensors[i].name, expected[i]);
		assert_int_equal(model->tensors[i].layer, i == 0 ? -1 : i == 14 ? 1 : 0);
		assert_int_equal(model_find(model, expected[i]), i);
	}
	assert_string_equal(model->tensors[521].name, "model.norm.weight");
	assert_string_equal(model->tensors[522].name, "lm_head.weight");
	assert_int_equal(model->tensors[521].layer, 40);
	assert_int_equal(model->tensors[522].layer, 40);
	assert_int_equal(model_find(model, "model.layers.40.mlp.down_proj.weight"), -1);
	model_close(&model);
	model = open_model("Qwen3-4B");
	assert_string_equal(model->tensors[4].name, "model.layers.0.self_attn.o_proj.weight");
	assert_string_equal(model->tensors[5].name, "model.layers.0.self_attn.q_norm.weight");
	assert_string_equal(model->tensors[6].name, "model.layers.0.self_attn.k_norm.weight");
	assert_string_equal(model->tensors[7].name, "model.layers.0.mlp.gate_proj.weight");
	assert_int_equal(model_find(model, "lm_head.weight"), -1);
	model_close(&model);
}

/* The pieces of one tensor, as "[box] -> row r of parameter". */
static void pieces_text(const struct layout *layout, const char *tensor, char *out, size_t bytes)
{
	size_t at = 0;

	out[0] = '\0';
	for (size_t i = 0; i < layout->piece_count; i++) {
		const struct piece *piece = &layout->pieces[i];
		const struct tensor_info *param = &layout->params[piece->param];
		uint64_t row = dtype_bytes(param->dtype);
		char box[100];

		if (strcmp(layout->tensors[piece->tensor].name, tensor) != 0)
			continue;
		for (uint32_t d = 1; d < param->dims; d++)
			row *= param->shape[d];
		at += (size_t)snprintf(out + at, bytes - at, "%s%s -> %" PRIu64, at ? "; " : "",
				       box_text(&piece->src, box, sizeof(box)),
				       piece->offset / row);
	}
}

static void test_layout__worked_copies_of_glm_z1_at_tp_4(void **state)
{
	struct model *model = open_model("GLM-Z1-9B-0414");
	struct layout layout;
	char text[300];
	uint32_t param;

	(void)state;
	cut_model(model, "tp=4", 3, &layout);
	pieces_text(&layout, "model.layers.0.mlp.gate_up_proj.weight", text, sizeof(text));
	assert_string_equal(text, "[10272..13696, 0..4096] -> 0; [23968..27392, 0..4096] -> 3424");
	pieces_text(&layout, "model.layers.0.mlp.down_proj.weight", text, sizeof(text));
	assert_string_equal(text, "[0..4096, 10272..13696] -> 0");
	pieces_text(&layout, "model.layers.0.self_attn.q_proj.weight", text, sizeof(text));
	assert_string_equal(text, "[3072..4096, 0..4096] -> 0");
	/* two KV heads over four ranks: ranks 2 and 3 hold head 1 */
	pieces_text(&layout, "model.layers.0.self_attn.k_proj.weight", text, sizeof(text));
	assert_string_equal(text, "[128..256, 0..4096] -> 1024");
	pieces_text(&layout, "model.layers.0.self_attn.v_proj.bias", text, sizeof(text));
	assert_string_equal(text, "[128..256] -> 1152");
	assert_true(
		strmap_get(&layout.param_names, "model.layers.0.mlp.gate_up_proj.weight", &param));
	assert_int_equal(layout.params[param].shape[0], 6848);
	assert_int_equal(layout.params[param].shape[1], 4096);
	assert_true(strmap_get(&layout.param_names, "model.layers.0.self_attn.qkv_proj.weight",
			       &param));
	assert_int_equal(layout.params[param].shape[0], 1280);
	layout_fini(&layout);
	model_close(&model);
}

static void test_layout__two_engines_have_the_same_ranks(void **state)
{
	struct model *model = open_model("Qwen2.5-0.5B");
	struct layout a, b;

	(void)state;
	for (uint32_t rank = 0; rank < 2; rank++) {
		cut_model(model, "engines=2,tp=2", rank, &a);
		cut_model(model, "engines=1,tp=2", rank, &b);
		assert_true(digest_equal(layout_digest(&a), layout_digest(&b)));
		layout_fini(&b);
		cut_model(model, "engines=1,tp=2", 1 - rank, &b);
		assert_false(digest_equal(layout_digest(&a), layout_digest(&b)));
		layout_fini(&a);
		layout_fini(&b);
	}
	model_close(&model);
}

static void expect_refusal(const char *name, const char *spec, const char *message)
{
	struct model *model = open_model(name);
	struct infer_spec infer;
	struct layout layout;
	struct error error = {0};

	assert_int_equal(infer_spec_parse(&infer, spec, NULL), 0);
	assert_int_equal(model_layout(model, &infer, 0, &layout, &error), -ERROR_CONFIG);
	if (!strstr(error.text, message))
		fail_msg("'%s' does not say '%s'", error.text, message);
	assert_int_equal(layout.tensor_count, 0);
	layout_fini(&layout);
	model_close(&model);
}

static void test_layout__what_cannot_be_cut_names_tensor_number_and_divisor(void **state)
{
	(void)state;
	expect_refusal(
		"Qwen2.5-0.5B", "tp=4",
		"model.layers.0.self_attn.q_proj.weight: num_attention_heads 14 cannot be cut "
		"for 4 ranks");
	expect_refusal("Qwen3-4B", "tp=3", "vocabulary, rounded up to a multiple of 64, 151936");
	expect_refusal("GLM-Z1-9B-0414", "tp=64", "num_attention_heads 32 cannot be cut for 64");
}

static void test_layout__kv_heads_that_do_not_repeat_evenly_are_refused(void **state)
{
	struct model_config config = {.family = family_find("Qwen3ForCausalLM"),
				      .hidden_size = 4,
				      .vocab_size = 192,
				      .layers = 1,
				      .heads = 12,
				      .kv_heads = 4,
				      .head_dim = 1,
				      .intermediate_size = 12,
				      .dtype = DTYPE_BF16};
	struct infer_spec infer;
	struct model *model;
	struct layout layout;
	struct error error = {0};

	(void)state;
	assert_int_equal(model_from_config(&model, "small", &config, NULL), 0);
	assert_int_equal(infer_spec_parse(&infer, "tp=6", NULL), 0);
	assert_int_equal(model_layout(model, &infer, 0, &layout, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text,
			       "k_proj.weight: num_key_value_heads 4 cannot be repeated "
			       "over 6 ranks"));
	assert_int_equal(infer_spec_parse(&infer, "tp=3", NULL), 0);
	assert_int_equal(model_layout(model, &infer, 0, &layout, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "num_key_value_heads 4 cannot be cut for 3 ranks"));
	model_close(&model);
}

static void test_layout__settings_without_sense_are_refused(void **state)
{
	(void)state;
	expect_refusal("Qwen3-4B", "tp=4,ep=2",
		       "ep=2, but Qwen3-4B (Qwen3ForCausalLM) has no experts");
	expect_refusal("Qwen3-4B", "tp=4,moe_dense_tp=1", "moe_dense_tp=1 is about");
	expect_refusal("Qwen2.5-7B", "tp=4,dp=2", "Qwen2ForCausalLM cannot replicate attention");
	expect_refusal("Qwen2.5-7B", "tp=4,dp_lm_head=1", "dp_lm_head=1 needs");
}

static void test_layout__an_engine_rank_past_the_engine_is_refused(void **state)
{
	struct model *model = open_model("Qwen3-4B");
	struct infer_spec infer;
	struct layout layout;

	(void)state;
	assert_int_equal(infer_spec_parse(&infer, "engines=2,tp=2", NULL), 0);
	assert_int_equal(model_layout(model, &infer, 2, &layout, NULL), -ERROR_CONFIG);
	layout_fini(&layout);
	model_close(&model);
}

static void
test_layout__padding_rows_are_filled_and_an_all_padding_rank_needs_no_tensor(void **state)
{
	struct model_config config = {.family = family_find("LlamaForCausalLM"),
				      .hidden_size = 4,
				      .vocab_size = 65,
				      .layers = 1,
				      .heads = 8,
				      .kv_heads = 8,
				      .head_dim = 1,
				      .intermediate_size = 8,
				      .dtype = DTYPE_BF16};
	struct model *model;
	struct layout layout;
	uint32_t index;

	(void)state;
	/* 65 rows pad to 128, 16 a rank: rank 4 holds row 64 and 15 of padding, rank 5 only padding */
	assert_int_equal(model_from_config(&model, "small", &config, NULL), 0);
	cut_model(model, "tp=8", 4, &layout);
	assert_int_equal(layout.fill_count, 2);
	assert_int_equal(layout.fills[0].offset, 8);
	assert_int_equal(layout.fills[0].bytes, 15 * 8);
	layout_fini(&layout);
	cut_model(model, "tp=8", 5, &layout);
	assert_int_equal(layout.fill_count, 2);
	assert_int_equal(layout.fills[0].bytes, 16 * 8);
	assert_false(strmap_get(&layout.tensor_names, "lm_head.weight", &index));
	assert_true(strmap_get(&layout.param_names, "lm_head.weight", &index));
	layout_fini(&layout);
	model_close(&model);
}

static void test_layout__every_failed_allocation_is_an_error_without_leak(void **state)
{
	struct model *model = open_model("Qwen3-4B");
	struct infer_spec infer;
	struct layout layout;
	int rc = -1;

	(void)state;
	assert_int_equal(infer_spec_parse(&infer, "tp=2", NULL), 0);
	for (uint64_t k = 1; rc; k += 1 + k / 20) {
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
		cmocka_unit_test(test_models__totals_equal_the_published_ones),
		cmocka_unit_test(test_layout__rank_sizes_equal_the_published_ones),
		cmocka_unit_test(test_model__tensors_stand_in_checkpoint_order),
		cmocka_unit_test(test_layout__worked_copies_of_glm_z1_at_tp_4),
		cmocka_unit_test(test_layout__two_engines_have_the_same_ranks),
		cmocka_unit_test(test_layout__what_cannot_be_cut_names_tensor_number_and_divisor),
		cmocka_unit_test(test_layout__kv_heads_that_do_not_repeat_evenly_are_refused),
		cmocka_unit_test(test_layout__settings_without_sense_are_refused),
		cmocka_unit_test(test_layout__an_engine_rank_past_the_engine_is_refused),
		cmocka_unit_test(
			test_layout__padding_rows_are_filled_and_an_all_padding_rank_needs_no_tensor),
		cmocka_unit_test(test_layout__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
