/* SPDX-License-Identifier: Apache-2.0
 *
 * test_stacked.c -- Qwen3-Next's linear attention and gpt-oss' tensors of all experts: what their
 * configs mean, and copies worked by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/config.h"
#include "model/family.h"
#include "model/model.h"
#include <stdio.h>
#include <string.h>

#define SIZES                                                                          \
	"\"hidden_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 4," \
	"\"head_dim\": 16, \"vocab_size\": 128, \"dtype\": \"bfloat16\", "
#define NEXT                                                                            \
	"{\"architectures\": [\"Qwen3NextForCausalLM\"], " SIZES "\"num_experts\": 4, " \
	"\"moe_intermediate_size\": 32, \"shared_expert_intermediate_size\": 48, "      \
	"\"linear_num_value_heads\": 8, \"linear_num_key_heads\": 4, "                  \
	"\"linear_key_head_dim\": 16, \"linear_value_head_dim\": 8, "                   \
	"\"linear_conv_kernel_dim\": 4, \"num_hidden_layers\": 4"
#define OSS                                                                                \
	"{\"architectures\": [\"GptOssForCausalLM\"], " SIZES "\"num_local_experts\": 4, " \
	"\"intermediate_size\": 128, \"num_hidden_layers\": 1"
#define OSS_OF_160                                                                         \
	"{\"architectures\": [\"GptOssForCausalLM\"], " SIZES "\"num_local_experts\": 4, " \
	"\"intermediate_size\": 160, \"num_hidden_layers\": 1"
#define MXFP4 ", \"quantization_config\": {\"quant_method\": \"mxfp4\"}"

static int parse(const char *text, struct model_config *config, struct error *error)
{
	return config_parse(text, strlen(text), "c.json", config, error);
}

static void expect_refusal(const char *text, const char *message)
{
	struct model_config config;
	struct error error = {0};

	assert_true(parse(text, &config, &error) < 0);
	if (!strstr(error.text, message))
		fail_msg("'%s' does not say '%s'", error.text, message);
}

static void test_layer_types__are_every_nth(void **state)
{
	struct model_config config;

	(void)state;
	assert_int_equal(parse(NEXT "}", &config, NULL), 0);
	assert_int_equal(config.full_every, 4);
	assert_int_equal(parse(NEXT ", \"full_attention_interval\": 2}", &config, NULL), 0);
	assert_int_equal(config.full_every, 2);
	assert_true(condition_holds(IF_LINEAR, &config, 0) && condition_holds(IF_FULL, &config, 1));
	assert_int_equal(parse(NEXT ", \"layer_types\": [\"linear_attention\", \"full_attention\", "
				    "\"linear_attention\", \"full_attention\"]}",
			       &config, NULL),
			 0);
	assert_int_equal(config.full_every, 2);
}

static void test_layer_types__of_no_rhythm_are_refused(void **state)
{
	(void)state;
	expect_refusal(NEXT ", \"layer_types\": [\"linear_attention\", \"full_attention\", "
			    "\"full_attention\", \"linear_attention\"]}",
		       "layer_types[2] is full_attention");
	expect_refusal(NEXT ", \"layer_types\": [\"linear_attention\"]}", "1 entries for 4 layers");
	expect_refusal(NEXT ", \"attention_bias\": true}", "attention_bias");
}

static void test_mxfp4__is_of_classes_whose_tensors_hold_all_experts(void **state)
{
	struct model_config config, again;
	struct text text = {0};

	(void)state;
	assert_int_equal(parse(OSS MXFP4 "}", &config, NULL), 0);
	assert_true(config.mxfp4);
	config_write(&config, &text);
	assert_int_equal(config_parse(text_string(&text), text.bytes, "again", &again, NULL), 0);
	assert_memory_equal(&config, &again, sizeof(config));
	text_fini(&text);
	expect_refusal(NEXT MXFP4 "}", "only fp8 in blocks is possible");
}

#define KIMI(type)                                                                             \
	"{\"architectures\": [\"" type "\"], \"dtype\": \"bfloat16\", \"vision_config\": {}, " \
	"\"text_config\": {\"model_type\": \"kimi_k2\", \"hidden_size\": 64, "                 \
	"\"num_attention_heads\": 4, \"vocab_size\": 128, \"num_hidden_layers\": 1, "          \
	"\"intermediate_size\": 96, \"n_routed_experts\": 4, \"moe_intermediate_size\": 32, "  \
	"\"n_shared_experts\": 1, \"first_k_dense_replace\": 0, \"q_lora_rank\": 32, "         \
	"\"kv_lora_rank\": 32, \"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 16, "           \
	"\"v_head_dim\": 16, \"topk_method\": \"noaux_tc\"%s}}"

static void test_kimi__is_deepseek_under_another_name(void **state)
{
	struct model_config config;
	struct error error = {0};
	char text[1024];

	(void)state;
	snprintf(text, sizeof(text), KIMI("KimiVLForConditionalGeneration"), "");
	assert_int_equal(parse(text, &config, NULL), 0);
	snprintf(text, sizeof(text), KIMI("KimiK25ForConditionalGeneration"), "");
	assert_int_equal(parse(text, &config, NULL), 0);
	assert_ptr_equal(config.family, &family_deepseek_v3);
	assert_int_equal(config.experts, 4);
	/* as published: four bits, in another format */
	snprintf(text, sizeof(text), KIMI("KimiK25ForConditionalGeneration"),
		 ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\"}");
	assert_int_equal(parse(text, &config, &error), -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "compressed-tensors"));
}

/* ---- layouts ---- */

static void lay_out(const char *config_text, const char *spec, uint32_t rank, struct layout *layout)
{
	struct model_config config;
	struct infer_spec infer;
	struct model *model;

	assert_int_equal(parse(config_text, &config, NULL), 0);
	assert_int_equal(infer_spec_parse(&infer, spec, NULL), 0);
	assert_int_equal(model_from_config(&model, "m", &config, NULL), 0);
	assert_int_equal(model_layout(model, &infer, rank, layout, NULL), 0);
	model_close(&model);
}

static uint32_t param_of(const struct layout *layout, const char *name)
{
	uint32_t param;

	if (!strmap_get(&layout->param_names, name, &param))
		fail_msg("no parameter %s", name);
	return param;
}

/* The piece of the parameter that begins at the offset. */
static const struct piece *piece_at(const struct layout *layout, const char *name, uint64_t offset)
{
	uint32_t param = param_of(layout, name);

	for (size_t p = 0; p < layout->piece_count; p++)
		if (layout->pieces[p].param == param && layout->pieces[p].offset == offset)
			return &layout->pieces[p];
	fail_msg("%s has no piece at %llu", name, (unsigned long long)offset);
	return NULL;
}

static void expect_box(const struct piece *piece, const char *box)
{
	char text[160];

	assert_string_equal(box_text(&piece->src, text, sizeof(text)), box);
}

#define EXPERTS "model.layers.0.mlp.experts."

static void test_mxfp4__a_rank_has_bytes_of_its_rows_and_blocks(void **state)
{
	struct layout layout;
	const struct tensor_info *param;

	(void)state;
	lay_out(OSS MXFP4 "}", "tp=4,ep=2", 3, &layout);
	param = &layout.params[param_of(&layout, EXPERTS "w13_weight")];
	assert_int_equal(param->dtype, DTYPE_U8);
	assert_int_equal(param->dims, 3);
	assert_memory_equal(param->shape, ((uint64_t[]){2, 128, 32}), 3 * sizeof(uint64_t));
	expect_box(piece_at(&layout, EXPERTS "w13_weight", 0), "[2..4, 128..256, 0..2, 0..16]");
	expect_box(piece_at(&layout, EXPERTS "w13_weight_scale", 0), "[2..4, 128..256, 0..2]");
	expect_box(piece_at(&layout, EXPERTS "w2_weight", 0), "[2..4, 0..64, 2..4, 0..16]");
	expect_box(piece_at(&layout, EXPERTS "w2_weight_scale", 0), "[2..4, 0..64, 2..4]");
	expect_box(piece_at(&layout, EXPERTS "w13_weight_bias", 0), "[2..4, 128..256]");
	/* added once, by the first rank of those that share experts: zeroes here */
	assert_int_equal(layout.fill_count, 1);
	assert_int_equal(layout.fills[0].param, param_of(&layout, EXPERTS "w2_weight_bias"));
	assert_int_equal(layout.fills[0].bytes, 2 * 64 * 2);
	layout_fini(&layout);
}

static void test_unquantised__experts_are_transposed_one_by_one(void **state)
{
	struct layout layout;
	const struct piece *piece;

	(void)state;
	lay_out(OSS "}", "tp=2,names=vllm", 1, &layout);
	piece = piece_at(&layout, EXPERTS "w13_weight", 3 * 128 * 64 * 2);
	expect_box(piece, "[3..4, 0..64, 128..256]");
	assert_int_equal(piece->transform.part, TRANSFORM_TRANSPOSED);
	expect_box(piece_at(&layout, EXPERTS "w2_weight", 64 * 64 * 2), "[1..2, 64..128, 0..64]");
	assert_int_equal(layout.params[param_of(&layout, EXPERTS "w13_bias")].dtype, DTYPE_BF16);
	param_of(&layout, "model.layers.0.attn.qkv_proj.weight");
	param_of(&layout, "model.embedding.weight");
	layout_fini(&layout);
	lay_out(OSS "}", "tp=2", 1, &layout);
	assert_int_equal(layout.params[param_of(&layout, EXPERTS "w13_weight_bias")].dtype,
			 DTYPE_F32);
	layout_fini(&layout);
}

static void test_in_out__experts_lie_as_stored(void **state)
{
	const struct tensor_info *param;
	const struct piece *piece;
	struct layout layout;

	(void)state;
	lay_out(OSS "}", "tp=2,expert_weights=in_out", 1, &layout);
	piece = piece_at(&layout, EXPERTS "w13_weight", 0);
	expect_box(piece, "[0..4, 0..64, 128..256]");
	assert_true(transform_plain(&piece->transform));
	expect_box(piece_at(&layout, EXPERTS "w2_weight", 0), "[0..4, 64..128, 0..64]");
	param = &layout.params[param_of(&layout, EXPERTS "w2_weight")];
	assert_memory_equal(param->shape, ((uint64_t[]){4, 64, 64}), 3 * sizeof(uint64_t));
	param = &layout.params[param_of(&layout, EXPERTS "w13_weight")];
	assert_memory_equal(param->shape, ((uint64_t[]){4, 64, 128}), 3 * sizeof(uint64_t));
	layout_fini(&layout);
}

static void expect_pad(const struct piece *piece, const char *box, uint32_t columns, uint64_t bytes)
{
	expect_box(piece, box);
	assert_int_equal(piece->transform.part, columns ? TRANSFORM_PADDED : TRANSFORM_VALUES);
	assert_int_equal(piece->transform.to_columns, columns);
	assert_int_equal(piece->bytes, bytes);
}

/* Of 5 blocks rank 0 of 2 has three and rank 1 two; both have room for four. */
static void test_padded__shares_are_of_whole_blocks(void **state)
{
	struct layout layout;

	(void)state;
	lay_out(OSS_OF_160 MXFP4 "}", "tp=2,mxfp4_pad=64x1", 1, &layout);
	expect_pad(piece_at(&layout, EXPERTS "w13_weight", 3 * 256 * 32),
		   "[3..4, 192..320, 0..2, 0..16]", 0, 128 * 32);
	expect_pad(piece_at(&layout, EXPERTS "w13_weight_bias", 256 * 2), "[1..2, 192..320]", 0,
		   128 * 2);
	expect_pad(piece_at(&layout, EXPERTS "w2_weight", 0), "[0..4, 0..64, 3..5, 0..16]", 64,
		   4 * 64 * 64);
	expect_pad(piece_at(&layout, EXPERTS "w2_weight_scale", 0), "[0..4, 0..64, 3..5]", 4,
		   4 * 64 * 4);
	/* behind the rows of w13 of 4 experts, thrice, and the bias that another rank has */
	assert_int_equal(layout.fill_count, 13);
	layout_fini(&layout);
}

static void test_padded__hidden_size_too(void **state)
{
	const struct tensor_info *param;
	struct layout layout;

	(void)state;
	lay_out(OSS_OF_160 MXFP4 "}", "tp=4,names=vllm,mxfp4_pad=128x256", 2, &layout);
	param = &layout.params[param_of(&layout, EXPERTS "w13_weight")];
	assert_memory_equal(param->shape, ((uint64_t[]){4, 256, 128}), 3 * sizeof(uint64_t));
	expect_pad(piece_at(&layout, EXPERTS "w13_weight", 256 * 128),
		   "[1..2, 256..320, 0..2, 0..16]", 128, 64 * 128);
	expect_pad(piece_at(&layout, EXPERTS "w2_weight", 256 * 64), "[1..2, 0..64, 4..5, 0..16]",
		   64, 64 * 64);
	layout_fini(&layout);
	/* the fourth has none of them */
	lay_out(OSS_OF_160 MXFP4 "}", "tp=4,names=vllm,mxfp4_pad=128x256", 3, &layout);
	assert_int_equal(layout.fills[0].bytes, 4 * 256 * 128);
	layout_fini(&layout);
}

static void test_padded__sizes_must_hold_what_loaders_give(void **state)
{
	static const struct {
		const char *config, *spec, *message;
	} rows[] = {
		{OSS_OF_160 MXFP4 "}", "tp=2,mxfp4_pad=1x1",
		 "5 blocks of 32 for 2 ranks are up to 3 each, and an engine with this mxfp4_pad "
		 "has room for 2"},
		{OSS_OF_160 MXFP4 "}", "tp=64,mxfp4_pad=64x1", "tp"},
		{OSS_OF_160 MXFP4 "}", "tp=2,expert_weights=in_out",
		 "expert_weights=in_out is about experts that are not quantised"},
		{OSS "}", "tp=2,expert_halves=up_gate", "gate and up row by row in turn"},
		{OSS_OF_160 "}", "tp=2,mxfp4_pad=64x1", "mxfp4_pad is about experts in MXFP4"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct model_config config;
		struct infer_spec infer;
		struct layout layout;
		struct error error = {0};
		struct model *model;

		assert_int_equal(parse(rows[i].config, &config, NULL), 0);
		assert_int_equal(infer_spec_parse(&infer, rows[i].spec, NULL), 0);
		assert_int_equal(model_from_config(&model, "m", &config, NULL), 0);
		assert_int_equal(model_layout(model, &infer, 0, &layout, &error), -ERROR_CONFIG);
		if (!strstr(error.text, rows[i].message))
			fail_msg("'%s' does not say '%s'", error.text, rows[i].message);
		model_close(&model);
	}
}

static void test_linear_attention__is_cut_by_key_heads(void **state)
{
	struct layout layout;

	(void)state;
	lay_out(NEXT "}", "tp=2", 1, &layout);
	/* q, k 64 rows each, values and gates 64 each: 256; of the convolution q, k, values */
	expect_box(piece_at(&layout, "model.layers.0.linear_attn.in_proj_qkvz.weight", 0),
		   "[128..256, 0..64]");
	expect_box(piece_at(&layout, "model.layers.0.linear_attn.conv1d.weight", 0),
		   "[32..64, 0..1, 0..4]");
	expect_box(piece_at(&layout, "model.layers.0.linear_attn.conv1d.weight", 32 * 8),
		   "[96..128, 0..1, 0..4]");
	expect_box(piece_at(&layout, "model.layers.0.linear_attn.conv1d.weight", 64 * 8),
		   "[160..192, 0..1, 0..4]");
	expect_box(piece_at(&layout, "model.layers.0.linear_attn.A_log", 0), "[4..8]");
	assert_int_equal(layout.params[param_of(&layout, "model.layers.0.linear_attn.A_log")].dtype,
			 DTYPE_F32);
	/* SGLang's full attention has no module of that name; query heads are twice as wide */
	expect_box(piece_at(&layout, "model.layers.3.qkv_proj.weight", 0), "[64..128, 0..64]");
	layout_fini(&layout);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layer_types__are_every_nth),
		cmocka_unit_test(test_layer_types__of_no_rhythm_are_refused),
		cmocka_unit_test(test_mxfp4__is_of_classes_whose_tensors_hold_all_experts),
		cmocka_unit_test(test_kimi__is_deepseek_under_another_name),
		cmocka_unit_test(test_mxfp4__a_rank_has_bytes_of_its_rows_and_blocks),
		cmocka_unit_test(test_unquantised__experts_are_transposed_one_by_one),
		cmocka_unit_test(test_in_out__experts_lie_as_stored),
		cmocka_unit_test(test_padded__shares_are_of_whole_blocks),
		cmocka_unit_test(test_padded__hidden_size_too),
		cmocka_unit_test(test_padded__sizes_must_hold_what_loaders_give),
		cmocka_unit_test(test_linear_attention__is_cut_by_key_heads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
