/* SPDX-License-Identifier: Apache-2.0
 *
 * test_config_experts.c -- the fields of config.json that only classes with experts, latent
 * attention, an indexer or fp8 blocks have.
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

struct field {
	const char *name, *value;
};

/* Every field that the class reads, so that a test can leave one out or change it. */
static const struct field good[] = {
	{"architectures", "[\"GlmMoeDsaForCausalLM\"]"},
	{"hidden_size", "64"},
	{"intermediate_size", "96"},
	{"num_hidden_layers", "8"},
	{"num_attention_heads", "8"},
	{"n_routed_experts", "16"},
	{"n_shared_experts", "1"},
	{"moe_intermediate_size", "32"},
	{"first_k_dense_replace", "2"},
	{"q_lora_rank", "24"},
	{"kv_lora_rank", "16"},
	{"qk_nope_head_dim", "12"},
	{"qk_rope_head_dim", "4"},
	{"v_head_dim", "20"},
	{"index_n_heads", "2"},
	{"index_head_dim", "10"},
	{"num_nextn_predict_layers", "1"},
	{"vocab_size", "128"},
	{"torch_dtype", "\"bfloat16\""},
};

/* The good config with up to two fields changed (value NULL: left out). */
static int parse(const struct field *a, const struct field *b, struct model_config *config,
		 struct error *error)
{
	const struct field *changes[] = {a, b};
	struct text text = {0};
	bool known[2] = {false};
	int rc;

	text_add(&text, "{\"model_type\": \"x\"");
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		const char *value = good[i].value;

		for (size_t c = 0; c < 2; c++)
			if (changes[c] && strcmp(changes[c]->name, good[i].name) == 0) {
				known[c] = true;
				value = changes[c]->value;
			}
		if (value)
			text_format(&text, ", \"%s\": %s", good[i].name, value);
	}
	for (size_t c = 0; c < 2; c++)
		if (changes[c] && !known[c])
			text_format(&text, ", \"%s\": %s", changes[c]->name, changes[c]->value);
	text_add(&text, "}");
	assert_true(text_ok(&text));
	rc = config_parse(text_string(&text), text.bytes, "c.json", config, error);
	text_fini(&text);
	return rc;
}

static void expect_refusal(struct field a, struct field b, int code, const char *message)
{
	struct model_config config = {.layers = 77};
	struct error error = {0};
	int rc = parse(&a, b.name ? &b : NULL, &config, &error);

	if (rc != -code || !strstr(error.text, message) || strncmp(error.text, "c.json: ", 8) != 0)
		fail_msg("%s=%s gives %d '%s', not '%s'", a.name, a.value, rc, error.text, message);
	assert_int_equal(config.layers, 77); /* untouched */
}

#define NOTHING ((struct field){0})

static void test_config__a_good_one_is_read(void **state)
{
	struct model_config config;

	(void)state;
	assert_int_equal(parse(NULL, NULL, &config, NULL), 0);
	assert_ptr_equal(config.family, family_find("GlmMoeDsaForCausalLM"));
	assert_int_equal(config.experts, 16);
	assert_int_equal(config.shared_experts, 1);
	assert_int_equal(config.moe_intermediate_size, 32);
	assert_int_equal(config.dense_layers, 2);
	assert_int_equal(config.q_lora_rank, 24);
	assert_int_equal(config.kv_lora_rank, 16);
	assert_int_equal(config.qk_nope_head_dim, 12);
	assert_int_equal(config.qk_rope_head_dim, 4);
	assert_int_equal(config.v_head_dim, 20);
	assert_int_equal(config.index_heads, 2);
	assert_int_equal(config.index_head_dim, 10);
	assert_int_equal(config.mtp_layers, 1);
	assert_int_equal(config.block_rows, 0);
	assert_true(config.router_bias);
	assert_int_equal(config.kv_heads, 0);
}

static void test_config__missing_mistyped_and_too_large_fields_are_named(void **state)
{
	static const struct {
		const char *name;
		bool needed, zero;
		unsigned long long max;
	} rows[] = {
		{"n_routed_experts", true, false, CONFIG_EXPERTS_MAX},
		{"n_shared_experts", false, true, CONFIG_SHARED_MAX},
		{"moe_intermediate_size", true, false, CONFIG_INTERMEDIATE_MAX},
		{"first_k_dense_replace", true, true, CONFIG_LAYERS_MAX},
		{"q_lora_rank", true, false, CONFIG_HIDDEN_MAX},
		{"kv_lora_rank", true, false, CONFIG_HIDDEN_MAX},
		{"qk_nope_head_dim", true, false, CONFIG_HEAD_DIM_MAX},
		{"qk_rope_head_dim", true, false, CONFIG_HEAD_DIM_MAX},
		{"v_head_dim", true, false, CONFIG_HEAD_DIM_MAX},
		{"index_n_heads", true, false, CONFIG_HEADS_MAX},
		{"index_head_dim", true, false, CONFIG_HEAD_DIM_MAX},
		{"num_nextn_predict_layers", false, true, CONFIG_MTP_MAX},
	};
	struct model_config config;
	char value[32], message[120];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct field left_out = {rows[i].name, NULL};

		snprintf(message, sizeof(message), "%s is missing", rows[i].name);
		if (rows[i].needed)
			expect_refusal(left_out, NOTHING, ERROR_CONFIG, message);
		else
			assert_int_equal(parse(&left_out, NULL, &config, NULL), 0);
		snprintf(message, sizeof(message), "%s is a string; an integer", rows[i].name);
		expect_refusal((struct field){rows[i].name, "\"8\""}, NOTHING, ERROR_CONFIG,
			       message);
		snprintf(value, sizeof(value), "%llu", rows[i].max + 1);
		snprintf(message, sizeof(message), "%s is %s; %d to %llu is possible", rows[i].name,
			 value, rows[i].zero ? 0 : 1, rows[i].max);
		expect_refusal((struct field){rows[i].name, value}, NOTHING, ERROR_CONFIG, message);
		snprintf(message, sizeof(message), "%s is -1;", rows[i].name);
		expect_refusal((struct field){rows[i].name, "-1"}, NOTHING, ERROR_CONFIG, message);
	}
}

static void test_config__sizes_that_do_not_fit_together_are_refused(void **state)
{
	(void)state;
	expect_refusal((struct field){"first_k_dense_replace", "9"}, NOTHING, ERROR_CONFIG,
		       "first_k_dense_replace is 9; at most 8 is possible");
	expect_refusal((struct field){"num_attention_heads", "16384"},
		       (struct field){"v_head_dim", "128"}, ERROR_CONFIG,
		       "num_attention_heads times head sizes is 2293760; at most 1048576");
	expect_refusal((struct field){"index_n_heads", "16384"},
		       (struct field){"index_head_dim", "128"}, ERROR_CONFIG,
		       "index_n_heads times index_head_dim is 2097152");
	expect_refusal((struct field){"moe_intermediate_size", "4194304"},
		       (struct field){"n_shared_experts", "2"}, ERROR_CONFIG,
		       "moe_intermediate_size times n_shared_experts is 8388608");
	expect_refusal((struct field){"weft_rotary_inv_freq", "true"},
		       (struct field){"num_attention_heads", "64"}, ERROR_CONFIG,
		       "weft_rotary_inv_freq needs two elements of hidden_size a head");
}

static void test_config__a_query_latent_may_be_null_but_not_left_out(void **state)
{
	static const struct field deepseek = {"architectures", "[\"DeepseekV3ForCausalLM\"]"};
	struct model_config config;

	(void)state;
	assert_int_equal(parse(&deepseek, &(struct field){"q_lora_rank", "null"}, &config, NULL),
			 0);
	assert_int_equal(config.q_lora_rank, 0);
	expect_refusal(deepseek, (struct field){"q_lora_rank", NULL}, ERROR_CONFIG,
		       "q_lora_rank is missing");
	/* an indexer reads the latent */
	expect_refusal((struct field){"q_lora_rank", "null"}, NOTHING, ERROR_CONFIG,
		       "q_lora_rank is null");
}

static void test_config__topk_method_says_whether_the_router_has_a_bias(void **state)
{
	static const struct field v2 = {"architectures", "[\"DeepseekV2ForCausalLM\"]"};
	struct model_config config;

	(void)state;
	assert_int_equal(parse(&v2, NULL, &config, NULL), 0);
	assert_false(config.router_bias);
	assert_int_equal(parse(&v2, &(struct field){"topk_method", "\"noaux_tc\""}, &config, NULL),
			 0);
	assert_true(config.router_bias);
	assert_int_equal(parse(&(struct field){"topk_method", "\"group_limited_greedy\""}, NULL,
			       &config, NULL),
			 0);
	assert_false(config.router_bias);
	expect_refusal((struct field){"topk_method", "\"new\""}, NOTHING, ERROR_UNSUPPORTED,
		       "topk_method is new; noaux_tc, greedy or group_limited_greedy");
	expect_refusal((struct field){"topk_method", "3"}, NOTHING, ERROR_CONFIG,
		       "topk_method is an integer");
}

static void test_config__what_no_row_says_is_refused(void **state)
{
	struct model_config config;

	(void)state;
	expect_refusal((struct field){"moe_layer_freq", "2"}, NOTHING, ERROR_UNSUPPORTED,
		       "moe_layer_freq is not 1; only that is possible");
	expect_refusal((struct field){"decoder_sparse_step", "2"}, NOTHING, ERROR_UNSUPPORTED,
		       "decoder_sparse_step is not 1");
	expect_refusal((struct field){"attention_bias", "true"}, NOTHING, ERROR_UNSUPPORTED,
		       "attention_bias is not false");
	expect_refusal((struct field){"mlp_only_layers", "[3]"}, NOTHING, ERROR_UNSUPPORTED,
		       "mlp_only_layers is not an empty list");
	expect_refusal((struct field){"index_topk_pattern", "\"FS\""}, NOTHING, ERROR_UNSUPPORTED,
		       "index_topk_pattern is not possible");
	assert_int_equal(parse(&(struct field){"moe_layer_freq", "1"},
			       &(struct field){"attention_bias", "false"}, &config, NULL),
			 0);
}

static void test_config__the_layers_with_an_indexer_are_told_one_way(void **state)
{
	static const struct field every = {"index_topk_freq", "4"};
	static const struct field types = {
		"indexer_types", "[\"full\", \"full\", \"full\", \"full\", \"full\", \"full\","
				 " \"full\", \"shared\"]"};
	struct model_config config;

	(void)state;
	expect_refusal(every, NOTHING, ERROR_CONFIG,
		       "index_topk_freq is 4, but index_skip_topk_offset is missing");
	assert_int_equal(
		parse(&every, &(struct field){"index_skip_topk_offset", "3"}, &config, NULL), 0);
	assert_int_equal(config.index_every, 4);
	assert_int_equal(config.index_offset, 3);
	expect_refusal(types, NOTHING, ERROR_UNSUPPORTED,
		       "indexer_types says shared of layer 7, but");
	expect_refusal((struct field){"indexer_types", "[\"full\"]"}, NOTHING, ERROR_CONFIG,
		       "indexer_types is not a list of 8 names");
}

#define FP8(rest) "{\"quant_method\": \"fp8\"" rest "}"
#define BLOCK	  ", \"weight_block_size\": [8, 16]"

static void test_config__fp8_in_blocks_is_read(void **state)
{
	/* what checkpoints list as exceptions: nothing that a row stores in blocks */
	static const struct field quantised = {
		"quantization_config",
		FP8(", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\"" BLOCK
		    ", \"modules_to_not_convert\": [\"lm_head\", \"model.layers.0.mlp.gate\","
		    " \"model.layers.3.input_layernorm\", \"model.layers.8.eh_proj\","
		    " \"model.layers.1.self_attn.indexer.weights_proj\"]")};
	struct model_config config;
	struct error error = {0};

	(void)state;
	if (parse(&quantised, NULL, &config, &error))
		fail_msg("%s", error.text);
	assert_int_equal(config.block_rows, 8);
	assert_int_equal(config.block_columns, 16);
}

static void test_config__other_quantisations_are_refused_by_name(void **state)
{
	static const struct {
		const char *value;
		int code;
		const char *message;
	} rows[] = {
		{"[]", ERROR_CONFIG, "quantization_config is not an object"},
		{"{}", ERROR_CONFIG, "quantization_config.quant_method is missing"},
		{"{\"quant_method\": \"gptq\"}", ERROR_UNSUPPORTED,
		 "quant_method is gptq; only fp8"},
		{"{\"quant_method\": \"compressed-tensors\"}", ERROR_UNSUPPORTED,
		 "quant_method is compressed-tensors; only fp8"},
		{FP8(""), ERROR_UNSUPPORTED, "has no weight_block_size"},
		{FP8(", \"weight_block_size\": null"), ERROR_UNSUPPORTED,
		 "has no weight_block_size"},
		{FP8(", \"weight_block_size\": 128"), ERROR_CONFIG, "is not two integers"},
		{FP8(", \"weight_block_size\": [128]"), ERROR_CONFIG, "is not two integers"},
		{FP8(", \"weight_block_size\": [128, 0]"), ERROR_CONFIG,
		 "weight_block_size has 0; 1 to 65536"},
		{FP8(", \"weight_block_size\": [65537, 1]"), ERROR_CONFIG,
		 "weight_block_size has 65537"},
		{FP8(", \"fmt\": \"e5m2\"" BLOCK), ERROR_UNSUPPORTED, "fmt is e5m2; only e4m3"},
		{FP8(", \"activation_scheme\": \"static\"" BLOCK), ERROR_UNSUPPORTED,
		 "activation_scheme is static; only dynamic"},
		{FP8(BLOCK ", \"ignored_layers\": 7"), ERROR_CONFIG,
		 "ignored_layers is not a list"},
		{FP8(BLOCK ", \"ignored_layers\": [7]"), ERROR_CONFIG,
		 "ignored_layers has an entry that is no name"},
		{FP8(BLOCK ", \"ignored_layers\": [\"model.layers.5.self_attn.o_proj\"]"),
		 ERROR_UNSUPPORTED, "ignored_layers names model.layers.5.self_attn.o_proj"},
		{FP8(BLOCK ", \"modules_to_not_convert\": [\"shared_experts\"]"), ERROR_UNSUPPORTED,
		 "modules_to_not_convert names shared_experts"},
		{FP8(BLOCK ", \"modules_to_not_convert\": [\"mlp.experts.3.up_proj\"]"),
		 ERROR_UNSUPPORTED, "modules_to_not_convert names mlp.experts.3.up_proj"},
	};
	static const struct field llama = {"architectures", "[\"LlamaForCausalLM\"]"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		expect_refusal((struct field){"quantization_config", rows[i].value}, NOTHING,
			       rows[i].code, rows[i].message);
	expect_refusal(llama, (struct field){"quantization_config", FP8(BLOCK)}, ERROR_UNSUPPORTED,
		       "only unquantised ones of LlamaForCausalLM are possible");
}

static void test_config__what_is_written_reads_back_the_same(void **state)
{
	static const struct field changes[][2] = {
		{{"architectures", "[\"DeepseekV3ForCausalLM\"]"}, {"q_lora_rank", "null"}},
		{{"architectures", "[\"DeepseekV2ForCausalLM\"]"}, {"n_shared_experts", "null"}},
		{{"index_topk_freq", "2"}, {"index_skip_topk_offset", "0"}},
		{{"topk_method", "\"greedy\""}, {"weft_rotary_inv_freq", "true"}},
		{{"weft_router_bias_cast", "true"}, {"topk_method", "\"noaux_tc\""}},
		{{"quantization_config", FP8(BLOCK)}, {"tie_word_embeddings", "true"}},
		{{"architectures", "[\"Glm4MoeForCausalLM\"]"}, {"num_key_value_heads", "4"}},
		{{"architectures", "[\"Glm4MoeLiteForCausalLM\"]"}, {"first_k_dense_replace", "0"}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		struct model_config config, again;
		struct error error = {0};
		struct text text = {0};
		int rc = parse(&changes[i][0], &changes[i][1], &config, &error);

		if (rc)
			fail_msg("%s", error.text);
		config_write(&config, &text);
		if (config_parse(text_string(&text), text.bytes, "again", &again, &error))
			fail_msg("%s", error.text);
		assert_memory_equal(&config, &again, sizeof(config));
		text_fini(&text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config__a_good_one_is_read),
		cmocka_unit_test(test_config__missing_mistyped_and_too_large_fields_are_named),
		cmocka_unit_test(test_config__sizes_that_do_not_fit_together_are_refused),
		cmocka_unit_test(test_config__a_query_latent_may_be_null_but_not_left_out),
		cmocka_unit_test(test_config__topk_method_says_whether_the_router_has_a_bias),
		cmocka_unit_test(test_config__what_no_row_says_is_refused),
		cmocka_unit_test(test_config__the_layers_with_an_indexer_are_told_one_way),
		cmocka_unit_test(test_config__fp8_in_blocks_is_read),
		cmocka_unit_test(test_config__other_quantisations_are_refused_by_name),
		cmocka_unit_test(test_config__what_is_written_reads_back_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
