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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A good config, field by field, so that a test can leave one out or change it. */
struct field {
	const char *name, *value;
};

static const struct field good[] = {
	{"architectures", "[\"LlamaForCausalLM\"]"},
	{"model_type", "\"llama\""},
	{"hidden_size", "64"},
	{"intermediate_size", "96"},
	{"num_hidden_layers", "2"},
	{"num_attention_heads", "8"},
	{"num_key_value_heads", "4"},
	{"vocab_size", "1000"},
	{"torch_dtype", "\"bfloat16\""},
};

/* The good config with `name` set to `value` (NULL: left out; a new name: added). */
static char *config_with(const char *name, const char *value)
{
	struct text text = {0};
	bool known = false;

	text_add(&text, "{");
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		bool changed = name && strcmp(name, good[i].name) == 0;

		known |= changed;
		if (changed && !value)
			continue;
		text_format(&text, "%s\"%s\": %s", text.bytes > 1 ? ", " : "", good[i].name,
			    changed ? value : good[i].value);
	}
	if (name && !known)
		text_format(&text, ", \"%s\": %s", name, value);
	text_add(&text, "}");
	assert_true(text_ok(&text));
	return text.data;
}

static int parse_with(const char *name, const char *value, struct model_config *config,
		      struct error *error)
{
	char *text = config_with(name, value);
	int rc = config_parse(text, strlen(text), "c.json", config, error);

	memory_free(text);
	return rc;
}

static void expect_refusal(const char *name, const char *value, int code, const char *message)
{
	struct model_config config = {.layers = 77};
	struct error error = {0};

	assert_int_equal(parse_with(name, value, &config, &error), -code);
	if (!strstr(error.text, message) || strncmp(error.text, "c.json: ", 8) != 0)
		fail_msg("'%s' does not say '%s'", error.text, message);
	assert_int_equal(config.layers, 77); /* untouched */
}

static void test_config__a_good_one_is_read(void **state)
{
	struct model_config config;

	(void)state;
	assert_int_equal(parse_with(NULL, NULL, &config, NULL), 0);
	assert_ptr_equal(config.family, family_find("LlamaForCausalLM"));
	assert_int_equal(config.hidden_size, 64);
	assert_int_equal(config.intermediate_size, 96);
	assert_int_equal(config.layers, 2);
	assert_int_equal(config.heads, 8);
	assert_int_equal(config.kv_heads, 4);
	assert_int_equal(config.head_dim, 8);
	assert_int_equal(config.vocab_size, 1000);
	assert_int_equal(config.dtype, DTYPE_BF16);
	assert_false(config.tied || config.attention_bias || config.mlp_bias);
}

static void test_config__a_missing_field_is_named(void **state)
{
	static const char *const needed[] = {
		"architectures",       "hidden_size", "intermediate_size", "num_hidden_layers",
		"num_attention_heads", "vocab_size",  "torch_dtype"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		char message[80];

		snprintf(message, sizeof(message), "%s%s is missing", needed[i],
			 strcmp(needed[i], "torch_dtype") == 0 ? " (or dtype)" : "");
		expect_refusal(needed[i], NULL, ERROR_CONFIG, message);
		if (strcmp(needed[i], "torch_dtype") != 0) /* or dtype, which is missing */
			snprintf(message, sizeof(message), "%s is null", needed[i]);
		expect_refusal(needed[i], "null", ERROR_CONFIG, message);
	}
}

static void test_config__a_mistyped_field_is_named(void **state)
{
	static const char *const sizes[] = {"hidden_size",
					    "intermediate_size",
					    "num_hidden_layers",
					    "num_attention_heads",
					    "num_key_value_heads",
					    "vocab_size",
					    "head_dim"};
	static const char *const flags[] = {"tie_word_embeddings", "attention_bias", "mlp_bias"};
	char message[100];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		snprintf(message, sizeof(message), "%s is a string; an integer", sizes[i]);
		expect_refusal(sizes[i], "\"64\"", ERROR_CONFIG, message);
		snprintf(message, sizeof(message), "%s is a fraction; an integer", sizes[i]);
		expect_refusal(sizes[i], "8.0", ERROR_CONFIG, message);
		snprintf(message, sizeof(message), "%s is a boolean; an integer", sizes[i]);
		expect_refusal(sizes[i], "true", ERROR_CONFIG, message);
	}
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		snprintf(message, sizeof(message), "%s is an integer; true or false", flags[i]);
		expect_refusal(flags[i], "1", ERROR_CONFIG, message);
	}
	expect_refusal("torch_dtype", "16", ERROR_CONFIG, "torch_dtype is an integer");
	expect_refusal("architectures", "\"LlamaForCausalLM\"", ERROR_CONFIG, "architectures");
	expect_refusal("architectures", "[]", ERROR_CONFIG, "architectures");
	expect_refusal("architectures", "[7]", ERROR_CONFIG, "architectures");
}

static void test_config__a_size_out_of_range_is_named_with_its_range(void **state)
{
	static const struct {
		const char *name;
		unsigned long long max;
	} sizes[] = {
		{"hidden_size", CONFIG_HIDDEN_MAX},
		{"vocab_size", CONFIG_VOCAB_MAX},
		{"intermediate_size", CONFIG_INTERMEDIATE_MAX},
		{"num_hidden_layers", CONFIG_LAYERS_MAX},
		{"num_attention_heads", CONFIG_HEADS_MAX},
		{"num_key_value_heads", 8},
		{"head_dim", CONFIG_HEAD_DIM_MAX},
	};
	char value[32], message[120];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		snprintf(value, sizeof(value), "%llu", sizes[i].max + 1);
		snprintf(message, sizeof(message), "%s is %s; 1 to %llu", sizes[i].name, value,
			 sizes[i].max);
		expect_refusal(sizes[i].name, value, ERROR_CONFIG, message);
		snprintf(message, sizeof(message), "%s is 0;", sizes[i].name);
		expect_refusal(sizes[i].name, "0", ERROR_CONFIG, message);
		snprintf(message, sizeof(message), "%s is -8;", sizes[i].name);
		expect_refusal(sizes[i].name, "-8", ERROR_CONFIG, message);
	}
	expect_refusal("hidden_size", "99999999999999999999", ERROR_FILE, "not JSON");
	expect_refusal("num_key_value_heads", "3", ERROR_CONFIG,
		       "num_key_value_heads 3 does not divide num_attention_heads 8");
	expect_refusal("hidden_size", "63", ERROR_CONFIG, "head_dim is missing");
}

static void test_config__products_of_heads_are_bounded(void **state)
{
	struct error error = {0};
	struct model_config config;
	const char *text =
		"{\"architectures\": [\"Qwen3ForCausalLM\"], \"hidden_size\": 64,"
		"\"intermediate_size\": 64, \"num_hidden_layers\": 1, \"vocab_size\": 64,"
		"\"num_attention_heads\": 16384, \"num_key_value_heads\": 1,"
		"\"head_dim\": 128, \"torch_dtype\": \"bfloat16\"}";

	(void)state;
	assert_int_equal(config_parse(text, strlen(text), "c", &config, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "num_attention_heads times head_dim is 2097152"));
}

static void test_config__an_unknown_architecture_lists_the_known_ones(void **state)
{
	(void)state;
	expect_refusal("architectures", "[\"T5ForConditionalGeneration\"]", ERROR_CONFIG,
		       "T5ForConditionalGeneration, which is not known here; known are "
		       "LlamaForCausalLM, "
		       "Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, Glm4ForCausalLM, "
		       "Glm4MoeForCausalLM, Glm4MoeLiteForCausalLM, DeepseekV2ForCausalLM, "
		       "DeepseekV3ForCausalLM, DeepseekV32ForCausalLM, GlmMoeDsaForCausalLM");
}

static void test_config__dtype_has_two_spellings_that_must_agree(void **state)
{
	struct model_config config;

	(void)state;
	assert_int_equal(parse_with("torch_dtype", "\"float16\"", &config, NULL), 0);
	assert_int_equal(config.dtype, DTYPE_F16);
	assert_int_equal(parse_with("torch_dtype", "\"torch.float32\"", &config, NULL), 0);
	assert_int_equal(config.dtype, DTYPE_F32);
	assert_int_equal(parse_with("dtype", "\"bfloat16\"", &config, NULL), 0);
	expect_refusal("dtype", "\"float16\"", ERROR_CONFIG,
		       "torch_dtype says BF16 and dtype says");
	expect_refusal("torch_dtype", "\"int4\"", ERROR_CONFIG,
		       "torch_dtype is int4; bfloat16, float16 or float32");
}

static void test_config__quantised_checkpoints_are_refused(void **state)
{
	struct model_config config;

	(void)state;
	expect_refusal("quantization_config", "{\"quant_method\": \"fp8\"}", ERROR_UNSUPPORTED,
		       "quantization_config");
	assert_int_equal(parse_with("quantization_config", "null", &config, NULL), 0);
}

static void test_config__what_is_not_json_is_refused_by_byte(void **state)
{
	static const char *const bad[] = {"",
					  "[]",
					  "7",
					  "null",
					  "{",
					  "{\"a\": 1, \"a\": 2}",
					  "{\"a\": 1} x",
					  "\xff\xfe",
					  "{\"a\": \"\\u0000\"}"};
	struct model_config config;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct error error = {0};

		assert_int_equal(config_parse(bad[i], strlen(bad[i]), "c.json", &config, &error),
				 -ERROR_FILE);
		assert_memory_equal(error.text, "c.json: ", 8);
	}
}

static void test_config__families_read_the_biases_they_know(void **state)
{
	static const struct {
		const char *architecture;
		bool attention, mlp;
	} rows[] = {
		{"[\"LlamaForCausalLM\"]", true, true},
		{"[\"Qwen2ForCausalLM\"]", true, false},
		{"[\"Qwen3ForCausalLM\"]", true, false},
		{"[\"Glm4ForCausalLM\"]", true, false},
	};
	struct model_config config;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[400];

		snprintf(
			text, sizeof(text),
			"{\"architectures\": %s, \"hidden_size\": 64, \"intermediate_size\": 64,"
			"\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"vocab_size\": 64,"
			"\"num_key_value_heads\": 2, \"dtype\": \"bfloat16\", \"attention_bias\": true,"
			"\"mlp_bias\": true}",
			rows[i].architecture);
		assert_int_equal(config_parse(text, strlen(text), "c", &config, NULL), 0);
		assert_int_equal(config.attention_bias, rows[i].attention);
		assert_int_equal(config.mlp_bias, rows[i].mlp);
	}
	/* Qwen2 has its biases without being told */
	assert_int_equal(parse_with("architectures", "[\"Qwen2ForCausalLM\"]", &config, NULL), 0);
	assert_true(config.attention_bias);
}

static void test_config__missing_kv_heads_mean_all_heads_for_llama_only(void **state)
{
	struct model_config config;
	struct error error = {0};
	const char *text =
		"{\"architectures\": [\"Qwen3ForCausalLM\"], \"hidden_size\": 64,"
		"\"intermediate_size\": 64, \"num_hidden_layers\": 1, \"vocab_size\": 64,"
		"\"num_attention_heads\": 4, \"dtype\": \"bfloat16\"}";

	(void)state;
	assert_int_equal(parse_with("num_key_value_heads", NULL, &config, NULL), 0);
	assert_int_equal(config.kv_heads, 8);
	assert_int_equal(config_parse(text, strlen(text), "c", &config, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "num_key_value_heads is missing"));
}

/* Any damage ends in a named error or in a config; never in a crash. */
static void test_config__damaged_files_end_in_a_named_error_or_a_config(void **state)
{
	char *text = config_with("tie_word_embeddings", "true");
	size_t length = strlen(text);
	struct model_config config;
	int refused = 0, tried = 0;

	(void)state;
	for (size_t n = 0; n < length; n++) {
		struct error error = {0};
		char *cut = memory_alloc(n + 1); /* exact, so that ASan sees a read past it */

		memcpy(cut, text, n);
		assert_int_equal(config_parse(cut, n, "c.json", &config, &error), -ERROR_FILE);
		assert_memory_equal(error.text, "c.json: ", 8);
		memory_free(cut);
	}
	for (size_t n = 0; n < length; n++) {
		for (int bit = 0; bit < 8; bit++, tried++) {
			struct error error = {0};
			int rc;

			text[n] = (char)(text[n] ^ (1 << bit));
			rc = config_parse(text, length, "c.json", &config, &error);
			text[n] = (char)(text[n] ^ (1 << bit));
			refused += rc != 0;
			if (rc)
				assert_true(error.code == (enum error_code) - rc && error.text[0]);
		}
	}
	assert_true(refused > tried / 2);
	memory_free(text);
}

static void test_config__oversized_files_are_refused_unread(void **state)
{
	struct model_config config;
	struct error error = {0};

	(void)state;
	assert_int_equal(config_parse("", (size_t)CONFIG_BYTES_MAX + 1, "c", &config, &error),
			 -ERROR_FILE);
}

static void test_model__config_json_reads_back_the_same(void **state)
{
	size_t count;
	const struct model_builtin *builtins = model_builtins(&count);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		struct model_config config;
		struct model *model;
		char *text;

		assert_int_equal(model_open(&model, builtins[i].name, NULL), 0);
		text = model_config_json(model, NULL);
		assert_non_null(text);
		assert_int_equal(config_parse(text, strlen(text), "c", &config, NULL), 0);
		assert_memory_equal(&config, &model->config, sizeof(config));
		memory_free(text);
		model_close(&model);
	}
}

static void test_model__names_do_not_care_about_case_and_unknown_ones_list_close_ones(void **state)
{
	struct error error = {0};
	struct model *model;

	(void)state;
	assert_int_equal(model_open(&model, "qwen2.5-0.5b", NULL), 0);
	assert_string_equal(model->name, "Qwen2.5-0.5B");
	model_close(&model);
	assert_int_equal(model_open(&model, "Qwen3-4", &error), -ERROR_CONFIG);
	assert_null(model);
	assert_non_null(strstr(error.text, "the closest are Qwen3-4B, "));
	assert_int_equal(model_open(&model, "", &error), -ERROR_CONFIG);
	model_close(&model);
}

static void test_model__a_path_is_a_folder_or_a_config_and_never_shadows_a_name(void **state)
{
	char folder[] = "weft-test-XXXXXX", path[80], start[512];
	struct error error = {0};
	struct model *model;
	char *text = config_with(NULL, NULL);
	FILE *file;

	(void)state;
	assert_non_null(getcwd(start, sizeof(start)));
	assert_int_equal(chdir(P_tmpdir), 0);
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "./%s", folder);
	assert_int_equal(model_open(&model, path, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "config.json"));
	snprintf(path, sizeof(path), "%s/config.json", folder);
	file = fopen(path, "w");
	fputs(text, file);
	fclose(file);
	assert_int_equal(model_open(&model, path, NULL), 0);
	assert_string_equal(model->name, folder);
	model_close(&model);
	snprintf(path, sizeof(path), "./%s", folder);
	assert_int_equal(model_open(&model, path, NULL), 0);
	assert_string_equal(model->name, folder);
	assert_int_equal(model->tensor_count, 9 * 2 + 3);
	model_close(&model);
	/* without a slash it is that folder too, since no built-in model has its name */
	assert_int_equal(model_open(&model, folder, NULL), 0);
	assert_string_equal(model->name, folder);
	model_close(&model);
	assert_int_equal(model_open(&model, "no-such-folder", &error), -ERROR_CONFIG);
	assert_non_null(
		strstr(error.text, "no folder, config.json or layout file no-such-folder here"));
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(model_open(&model, ".", NULL), 0);
	assert_string_equal(model->name, folder);
	model_close(&model);
	unlink("config.json");
	assert_int_equal(chdir(".."), 0);
	rmdir(folder);
	assert_int_equal(chdir(start), 0);
	memory_free(text);
}

static void test_model__every_failed_allocation_is_an_error_without_leak(void **state)
{
	struct model *model;
	int rc = -1;

	(void)state;
	for (uint64_t k = 1; rc; k++) {
		struct error error = {0};

		memory_fail_at(k);
		rc = model_open(&model, "Qwen2.5-0.5B", &error);
		memory_fail_at(0);
		if (rc) {
			assert_int_equal(rc, -ERROR_MEMORY);
			assert_int_equal(error.code, ERROR_MEMORY);
			assert_null(model);
		}
		if (k == 40) /* the names are all alike */
			k = 280;
	}
	rc = -1;
	for (uint64_t k = 1; rc; k++) {
		char *text;

		memory_fail_at(k);
		text = model_config_json(model, NULL);
		memory_fail_at(0);
		rc = text ? 0 : -1;
		memory_free(text);
		assert_true(k < 100);
	}
	model_close(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config__a_good_one_is_read),
		cmocka_unit_test(test_config__a_missing_field_is_named),
		cmocka_unit_test(test_config__a_mistyped_field_is_named),
		cmocka_unit_test(test_config__a_size_out_of_range_is_named_with_its_range),
		cmocka_unit_test(test_config__products_of_heads_are_bounded),
		cmocka_unit_test(test_config__an_unknown_architecture_lists_the_known_ones),
		cmocka_unit_test(test_config__dtype_has_two_spellings_that_must_agree),
		cmocka_unit_test(test_config__quantised_checkpoints_are_refused),
		cmocka_unit_test(test_config__what_is_not_json_is_refused_by_byte),
		cmocka_unit_test(test_config__families_read_the_biases_they_know),
		cmocka_unit_test(test_config__missing_kv_heads_mean_all_heads_for_llama_only),
		cmocka_unit_test(test_config__damaged_files_end_in_a_named_error_or_a_config),
		cmocka_unit_test(test_config__oversized_files_are_refused_unread),
		cmocka_unit_test(test_model__config_json_reads_back_the_same),
		cmocka_unit_test(
			test_model__names_do_not_care_about_case_and_unknown_ones_list_close_ones),
		cmocka_unit_test(
			test_model__a_path_is_a_folder_or_a_config_and_never_shadows_a_name),
		cmocka_unit_test(test_model__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
