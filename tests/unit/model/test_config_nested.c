/* SPDX-License-Identifier: Apache-2.0 */
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
#include <string.h>

#define SIZES                                                                        \
	"\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 8," \
	"\"num_key_value_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 1000"
#define QWEN3_MOE                                                   \
	"{\"architectures\": [\"Qwen3MoeForCausalLM\"], " SIZES     \
	", \"moe_intermediate_size\": 32, \"dtype\": \"bfloat16\"," \
	"\"rope_parameters\": {\"rope_theta\": 1e6, \"rope_type\": \"default\"}, "

static int parse(const char *text, struct model_config *config, struct error *error)
{
	return config_parse(text, strlen(text), "c.json", config, error);
}

static void expect_refusal(const char *text, const char *message)
{
	struct model_config config;
	struct error error = {0};

	assert_int_equal(parse(text, &config, &error), -ERROR_CONFIG);
	if (!strstr(error.text, message))
		fail_msg("'%s' does not say '%s'", error.text, message);
}

static void test_spellings__experts_may_be_local_ones(void **state)
{
	struct model_config config;

	(void)state;
	assert_int_equal(parse(QWEN3_MOE "\"num_experts\": 16}", &config, NULL), 0);
	assert_int_equal(config.experts, 16);
	assert_int_equal(parse(QWEN3_MOE "\"num_local_experts\": 16}", &config, NULL), 0);
	assert_int_equal(config.experts, 16);
	assert_int_equal(
		parse(QWEN3_MOE "\"num_local_experts\": 16, \"num_experts\": null}", &config, NULL),
		0);
	assert_int_equal(config.experts, 16);
}

static void test_spellings__must_agree(void **state)
{
	struct model_config config;

	(void)state;
	assert_int_equal(
		parse(QWEN3_MOE "\"num_local_experts\": 16, \"num_experts\": 16}", &config, NULL),
		0);
	expect_refusal(QWEN3_MOE "\"num_local_experts\": 16, \"num_experts\": 8}",
		       "num_experts and num_local_experts are two names of one field and differ");
	expect_refusal(QWEN3_MOE "\"num_local_experts\": \"16\"}", "num_experts is a string");
}

static void test_spellings__are_those_of_the_class(void **state)
{
	(void)state;
	expect_refusal("{\"architectures\": [\"LlamaForCausalLM\"], \"n_embd\": 64}",
		       "hidden_size is missing");
}

static const char nested[] = "{\"architectures\": [\"LlavaForConditionalGeneration\"],"
			     "\"dtype\": \"float16\", \"text_config\": {\"model_type\": \"llama\","
			     "\"vocab_size\": 32064, \"num_hidden_layers\": 2},"
			     "\"vision_config\": {\"hidden_size\": 7}}";

static void test_nested__what_it_leaves_out_is_its_class_own(void **state)
{
	struct model_config config;

	(void)state;
	assert_int_equal(parse(nested, &config, NULL), 0);
	assert_ptr_equal(config.family, family_find("LlamaForCausalLM"));
	assert_non_null(config.tower);
	assert_int_equal(config.vocab_size, 32064);
	assert_int_equal(config.layers, 2);
	assert_int_equal(config.hidden_size, 4096);
	assert_int_equal(config.intermediate_size, 11008);
	assert_int_equal(config.heads, 32);
	assert_int_equal(config.kv_heads, 32);
	assert_int_equal(config.head_dim, 128);
	assert_int_equal(config.dtype, DTYPE_F16);
	assert_false(config.tied);
}

static void test_nested__ties_are_the_whole_s_before_the_text_model_s(void **state)
{
	struct model_config config;

	(void)state;
	assert_int_equal(
		parse("{\"architectures\": [\"LlavaForConditionalGeneration\"],"
		      "\"tie_word_embeddings\": true, \"dtype\": \"float16\","
		      "\"text_config\": {\"model_type\": \"llama\", \"tie_word_embeddings\": false}}",
		      &config, NULL),
		0);
	assert_true(config.tied); /* as the multimodal class shares them */
	assert_int_equal(parse("{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"],"
			       "\"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\","
			       "\"text_config\": {\"model_type\": \"qwen2_5_vl_text\", " SIZES "}}",
			       &config, NULL),
			 0);
	assert_true(config.tied);
	assert_ptr_equal(config.family, family_find("Qwen2ForCausalLM"));
	assert_int_equal(config.kv_heads, 4);
}

static void test_nested__an_older_config_has_it_at_the_top(void **state)
{
	struct model_config config;

	(void)state;
	assert_int_equal(parse("{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"],"
			       "\"model_type\": \"qwen2_5_vl\", \"torch_dtype\": "
			       "\"bfloat16\", " SIZES "}",
			       &config, NULL),
			 0);
	assert_int_equal(config.hidden_size, 64);
}

static void test_nested__a_wrong_field_is_named_with_its_place(void **state)
{
	(void)state;
	expect_refusal("{\"architectures\": [\"LlavaForConditionalGeneration\"],"
		       "\"dtype\": \"float16\", \"text_config\": {\"model_type\": \"llama\","
		       "\"hidden_size\": \"4096\"}}",
		       "text_config.hidden_size is a string");
	expect_refusal("{\"architectures\": [\"LlavaForConditionalGeneration\"],"
		       "\"dtype\": \"float16\", \"text_config\": {\"model_type\": \"mamba\"}}",
		       "text_config.model_type of LlavaForConditionalGeneration is mamba");
	expect_refusal(
		"{\"architectures\": [\"LlavaForConditionalGeneration\"], \"text_config\": 7}",
		"text_config.model_type is missing");
}

static void test_nested__its_tensors_go_by_the_names_of_the_whole(void **state)
{
	struct model_config config, again;
	struct model *model;
	char *json;

	(void)state;
	assert_int_equal(parse(nested, &config, NULL), 0);
	assert_int_equal(model_from_config(&model, "m", &config, NULL), 0);
	assert_true(model_find(model, "language_model.model.embed_tokens.weight") == 0);
	assert_true(model_find(model, "language_model.model.layers.1.self_attn.q_proj.weight") > 0);
	assert_true(model_find(model, "language_model.lm_head.weight") > 0);
	assert_int_equal(model_find(model, "model.norm.weight"), -1);
	json = model_config_json(model, NULL);
	assert_int_equal(parse(json, &again, NULL), 0);
	assert_memory_equal(&again, &config, sizeof(config));
	memory_free(json);
	model_close(&model);
}

static void test_as__reads_an_unknown_class_as_a_family(void **state)
{
	static const char text[] =
		"{\"architectures\": [\"MyForCausalLM\"], " SIZES ", \"dtype\": \"bfloat16\"}";
	struct model_config config;
	struct error error = {0};

	(void)state;
	expect_refusal(text, "taken with --as, as in --as llama");
	expect_refusal(text, "weft model layout --from FILE");
	for (int i = 0; i < 2; i++) {
		const char *as = i ? "LlamaForCausalLM" : "Llama";

		assert_int_equal(config_parse_as(text, strlen(text), "c", as, &config, NULL), 0);
		assert_ptr_equal(config.family, family_find("LlamaForCausalLM"));
	}
	assert_int_equal(config_parse_as(text, strlen(text), "c", "lama", &config, &error),
			 -ERROR_CONFIG);
	assert_non_null(
		strstr(error.text, "no family is called 'lama'; --as takes one of llama, "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spellings__experts_may_be_local_ones),
		cmocka_unit_test(test_spellings__must_agree),
		cmocka_unit_test(test_spellings__are_those_of_the_class),
		cmocka_unit_test(test_nested__what_it_leaves_out_is_its_class_own),
		cmocka_unit_test(test_nested__ties_are_the_whole_s_before_the_text_model_s),
		cmocka_unit_test(test_nested__an_older_config_has_it_at_the_top),
		cmocka_unit_test(test_nested__a_wrong_field_is_named_with_its_place),
		cmocka_unit_test(test_nested__its_tensors_go_by_the_names_of_the_whole),
		cmocka_unit_test(test_as__reads_an_unknown_class_as_a_family),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
