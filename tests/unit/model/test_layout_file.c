/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/memory.h"
#include "model/config.h"
#include "model/layout_file.h"
#include "model/model.h"
#include "model/tensors.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two ranks: q and kv rows halved and stacked, the norm whole, a head with padding on the last rank. */
static const char tiny[] =
	"{\"schema\": \"weft.layout/1\", \"model\": \"tiny\", \"infer\": \"tp=2\", \"layers\": 2,\n"
	"\"tensors\": [\n"
	"{\"name\": \"q\", \"dtype\": \"BF16\", \"shape\": [8, 4], \"layer\": 0},\n"
	"{\"name\": \"kv\", \"dtype\": \"BF16\", \"shape\": [4, 4], \"layer\": 1},\n"
	"{\"name\": \"norm\", \"dtype\": \"F32\", \"shape\": [4], \"layer\": 2},\n"
	"{\"name\": \"head\", \"dtype\": \"BF16\", \"shape\": [5, 4], \"layer\": 2}],\n"
	"\"left_alone\": [\"tower.\", {\"name\": \"vision\", \"dtype\": \"F16\", \"shape\": [3]}],\n"
	"\"params\": [\n"
	"{\"name\": \"qkv\", \"dtype\": \"BF16\", \"shape\": [6, 4], \"pieces\": [\n"
	"  {\"tensor\": \"q\", \"src\": [[0, 4, 4], [0, 4]]},\n"
	"  {\"tensor\": \"kv\", \"src\": [[0, 2, 2], [0, 4]]}]},\n"
	"{\"name\": \"norm\", \"dtype\": \"BF16\", \"shape\": [4], \"pieces\": [{\"tensor\": \"norm\"}]},\n"
	"{\"name\": \"head\", \"dtype\": \"BF16\", \"shape\": [3, 4], \"ranks\": [0], \"pieces\": [\n"
	"  {\"tensor\": \"head\", \"src\": [[0, 3], [0, 4]]}]},\n"
	"{\"name\": \"head\", \"dtype\": \"BF16\", \"shape\": [3, 4], \"ranks\": [1], \"pieces\": [\n"
	"  {\"tensor\": \"head\", \"src\": [[3, 5], [0, 4]]}, {\"fill\": 8}]}]}\n";

static struct model *parsed(const char *text)
{
	struct error error = {0};
	struct model *model;

	if (layout_file_parse(&model, text, strlen(text), "f.json", &error))
		fail_msg("%s", error.text);
	return model;
}

static struct infer_spec infer_of(const char *text)
{
	struct infer_spec infer;

	assert_int_equal(infer_spec_parse(&infer, text, NULL), 0);
	return infer;
}

static char *written(const struct model *model, const struct infer_spec *infer)
{
	struct error error = {0};
	char *text = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&text, &bytes);

	if (layout_file_write(model, infer, stream, &error))
		fail_msg("%s: %s", model->name, error.text);
	assert_int_equal(fclose(stream), 0);
	return text;
}

/* ---- there and back ---- */

static void compare_tensors(const struct model *a, const struct model *b)
{
	assert_string_equal(a->name, b->name);
	assert_int_equal(a->tensor_count, b->tensor_count);
	assert_int_equal(a->all_count, b->all_count);
	assert_int_equal(a->bytes, b->bytes);
	assert_int_equal(a->all_bytes, b->all_bytes);
	assert_int_equal(a->parameters, b->parameters);
	assert_int_equal(a->all_parameters, b->all_parameters);
	assert_int_equal(a->config.layers, b->config.layers);
	assert_int_equal(a->config.tied, b->config.tied);
	for (size_t t = 0; t < a->all_count; t++) {
		const struct model_tensor *x = &a->tensors[t], *y = &b->tensors[t];

		assert_string_equal(x->name, y->name);
		assert_int_equal(x->dtype, y->dtype);
		assert_int_equal(x->dims, y->dims);
		assert_memory_equal(x->shape, y->shape, sizeof(x->shape));
		assert_int_equal(x->layer, y->layer);
		assert_int_equal(tensor_counts(a, x), tensor_counts(b, y));
	}
}

static void compare_layouts(const struct model *a, const struct model *b,
			    const struct infer_spec *infer)
{
	struct error error = {0};

	for (uint32_t rank = 0; rank < infer->tp; rank++) {
		struct layout x, y;

		if (model_layout(a, infer, rank, &x, &error) ||
		    model_layout(b, infer, rank, &y, &error))
			fail_msg("%s", error.text);
		if (!digest_equal(layout_digest(&x), layout_digest(&y)))
			fail_msg("%s, rank %u of %u", a->name, rank, infer->tp);
		layout_fini(&x);
		layout_fini(&y);
	}
}

static void compare_holdings(const struct model *a, const struct model *b, const char *spec)
{
	struct train_spec train;

	assert_int_equal(train_spec_parse(&train, spec, NULL), 0);
	for (uint32_t rank = 0; rank < train.world; rank++) {
		struct holding x, y;

		assert_int_equal(model_holding(a, &train, rank, &x, NULL), 0);
		assert_int_equal(model_holding(b, &train, rank, &y, NULL), 0);
		assert_true(digest_equal(holding_digest(&x), holding_digest(&y)));
		holding_fini(&x);
		holding_fini(&y);
	}
}

/* Of many engines too; and the file of the file is the same text. */
static void there_and_back(const struct model *model, const char *spec)
{
	struct infer_spec infer = infer_of(spec);
	char *text = written(model, &infer), *second;
	struct model *again = parsed(text);

	compare_tensors(model, again);
	compare_layouts(model, again, &infer);
	if (model->config.layers)
		compare_holdings(model, again, "world=2,pp=2");
	compare_holdings(model, again, "world=2,fsdp=2,source=sharded");
	infer.engines = 3;
	second = written(again, &infer);
	assert_string_equal(text, second);
	free(text);
	free(second);
	model_close(&again);
}

/* Two layers of each kind, few experts, and all else of its size. */
static struct model *shallow(const struct model_builtin *builtin)
{
	struct model_config config;
	struct error error = {0};
	struct model *model;

	if (config_parse(builtin->config_json, strlen(builtin->config_json), builtin->name, &config,
			 &error))
		fail_msg("%s", error.text);
	config.dense_layers = config.dense_layers > 2 ? 2 : config.dense_layers;
	config.layers = config.dense_layers + 2;
	config.experts = config.experts ? 16 : 0;
	if (model_from_config(&model, builtin->name, &config, &error))
		fail_msg("%s", error.text);
	return model;
}

static void test_file__of_every_built_in_model_reads_back_digest_for_digest(void **state)
{
	static const char *const specs[] = {"tp=1", "tp=2", "tp=8,ep=8", "tp=4,dp=2,ep=4",
					    "tp=4,names=vllm"};
	size_t count, compared = 0;
	const struct model_builtin *builtins = model_builtins(&count);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		struct model *model = shallow(&builtins[i]);

		for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
			struct infer_spec infer = infer_of(specs[s]);
			struct layout layout;

			/* what the model cannot be cut into has no file either */
			if (model_layout(model, &infer, 0, &layout, NULL))
				continue;
			layout_fini(&layout);
			there_and_back(model, specs[s]);
			compared++;
		}
		model_close(&model);
	}
	assert_true(compared > 3 * count);
}

static const struct model_builtin *builtin_of(const char *name)
{
	size_t count;
	const struct model_builtin *builtins = model_builtins(&count);

	for (size_t i = 0; i < count; i++)
		if (strcmp(builtins[i].name, name) == 0)
			return &builtins[i];
	fail_msg("%s", name);
	return NULL;
}

static void test_file__keeps_what_is_made_of_blocks(void **state)
{
	static const struct {
		const char *name, *spec, *word;
	} rows[] = {
		{"Qwen3-30B-A3B", "tp=2,fp8=128x128", "\"make\":\"quantise 128x128\""},
		{"Qwen3-30B-A3B-FP8", "tp=2,fp8=none",
		 "\"make\":\"dequantise 128x128\",\"scales\":"},
		{"Qwen3-30B-A3B-FP8", "tp=2,fp8=64x64", "\"make\":\"rescale 128x128 64x64\""},
		{"Qwen3-30B-A3B", "tp=2,dtype=F32", "\"dtype\":\"F32\""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct model *model = shallow(builtin_of(rows[i].name));
		struct infer_spec infer = infer_of(rows[i].spec);
		char *text = written(model, &infer);

		assert_non_null(strstr(text, rows[i].word));
		free(text);
		there_and_back(model, rows[i].spec);
		model_close(&model);
	}
}

/* ---- ranks share entries ---- */

static void test_file__ranks_that_differ_by_steps_share_an_entry(void **state)
{
	struct model *model = shallow(builtin_of("Qwen3-4B")), *again;
	struct infer_spec infer = infer_of("tp=16");
	char *text = written(model, &infer);
	struct layout layout;

	(void)state;
	again = parsed(text);
	assert_int_equal(model_layout(model, &infer, 0, &layout, NULL), 0);
	/* two ranks to each of 8 KV heads: q follows the rank, k and v every other one */
	assert_true(again->file->entries.count > layout.param_count);
	assert_non_null(strstr(text, "[0,608,608]")); /* 9728 / 16 rows of gate and up */
	layout_fini(&layout);
	free(text);
	model_close(&again);

	infer = infer_of("tp=8");
	text = written(model, &infer);
	again = parsed(text);
	assert_int_equal(model_layout(model, &infer, 0, &layout, NULL), 0);
	assert_int_equal(again->file->entries.count, layout.param_count);
	assert_null(strstr(text, "\"ranks\""));
	layout_fini(&layout);
	free(text);
	model_close(&again);
	model_close(&model);
}

static void test_file__ranks_that_have_the_same_share_a_place(void **state)
{
	static const char text[] =
		"{\"schema\": \"weft.layout/1\", \"model\": \"m\", \"infer\": \"tp=4\", \"tensors\": "
		"[{\"name\": \"k\", \"dtype\": \"BF16\", \"shape\": [4, 2]}], \"params\": [{\"name\": \"k\", "
		"\"dtype\": \"BF16\", \"shape\": [2, 2], \"ranks\": [[0, 2], [3, 1]], \"pieces\": [{\"tensor\": "
		"\"k\", \"src\": [[0, 2, 2], [0, 2]]}]}]}";
	struct infer_spec infer = infer_of("engines=5,tp=4");
	struct model *model = parsed(text);
	char *again;

	(void)state;
	for (uint32_t rank = 0; rank < 4; rank++) {
		struct layout layout;

		assert_int_equal(model_layout(model, &infer, rank, &layout, NULL), 0);
		assert_int_equal(layout.piece_count, 1);
		assert_int_equal(layout.pieces[0].src.lo[0], rank % 2 ? 2 : 0);
		layout_fini(&layout);
	}
	again = written(model, &infer);
	assert_non_null(strstr(again, "\"ranks\":[[0,2],[1,3]]"));
	free(again);
	model_close(&model);
}

static void test_file__ranks_with_other_parameters_have_entries_of_their_own(void **state)
{
	static const char text[] =
		"{\"schema\": \"weft.layout/1\", \"model\": \"m\", \"infer\": \"tp=2\", \"tensors\": "
		"[{\"name\": \"a\", \"dtype\": \"U8\", \"shape\": [4]}], \"params\": [{\"name\": \"x\", \"dtype\": "
		"\"U8\", \"shape\": [4], \"pieces\": [{\"tensor\": \"a\"}]}, {\"name\": \"y\", \"dtype\": \"U8\", "
		"\"shape\": [4], \"ranks\": [1], \"pieces\": [{\"tensor\": \"a\"}]}]}";
	struct model *model = parsed(text);

	(void)state;
	there_and_back(model, "tp=2");
	model_close(&model);
}

/* ---- what it says ---- */

static void test_tiny__is_laid_out_piece_by_piece(void **state)
{
	struct infer_spec infer = infer_of("engines=2,tp=2");
	struct model *model = parsed(tiny);
	struct layout layout;

	(void)state;
	assert_int_equal(model->tensor_count, 4);
	assert_int_equal(model->all_count, 5);
	assert_int_equal(model_find(model, "vision"), 4);
	assert_true(layout_file_leaves(model->file, "tower.0.weight"));
	assert_false(layout_file_leaves(model->file, "vision.tower."));
	assert_int_equal(model->parameters, 32 + 16 + 4 + 20);
	assert_int_equal(model_layout(model, &infer, 1, &layout, NULL), 0);
	assert_int_equal(layout.tensor_count, 4); /* in checkpoint order */
	assert_string_equal(layout.tensors[1].name, "kv");
	assert_int_equal(layout.param_count, 3);
	assert_int_equal(layout.piece_count, 4);
	assert_int_equal(layout.pieces[0].src.lo[0], 4);
	assert_int_equal(layout.pieces[1].src.lo[0], 2);
	assert_int_equal(layout.pieces[1].offset, 32);
	assert_int_equal(layout.pieces[2].bytes, 8); /* converted */
	assert_int_equal(layout.pieces[3].src.hi[0], 5);
	assert_int_equal(layout.fill_count, 1);
	assert_int_equal(layout.fills[0].offset, 16);
	layout_fini(&layout);
	there_and_back(model, "tp=2");
	model_close(&model);
}

static void test_keys__may_come_in_any_order(void **state)
{
	static const char *const lists[] = {"\"params\": [", "\"left_alone\": [", "\"tensors\": ["};
	struct infer_spec infer = infer_of("tp=2");
	struct model *model = parsed(tiny), *turned;
	char text[sizeof(tiny) + 64] = "{", *at = text + 1;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		const char *from = strstr(tiny, lists[i]), *to = strstr(from, "}],\n\"");

		to = i == 0 ? strstr(from, "}]}\n") + 2 : to + 2;
		if (i == 0)
			to = tiny + sizeof(tiny) - 3;
		at = mempcpy(at, from, (size_t)(to - from));
		at = stpcpy(at, ", ");
	}
	strcpy(at, "\"layers\": 2, \"infer\": \"tp=2\", \"model\": \"tiny\", \"schema\": "
		   "\"weft.layout/1\"}");
	turned = parsed(text);
	compare_tensors(model, turned);
	compare_layouts(model, turned, &infer);
	model_close(&turned);
	model_close(&model);
}

/* ---- what it must be ---- */

/* The tiny file with one thing changed. */
static char *changed(const char *from, const char *to)
{
	const char *at = strstr(tiny, from);
	char *text;

	assert_non_null(at);
	text = memory_format("%.*s%s%s", (int)(at - tiny), tiny, to, at + strlen(from));
	assert_non_null(text);
	return text;
}

static void test_file__that_is_wrong_is_refused_with_its_place(void **state)
{
	static const struct {
		const char *from, *to, *words;
	} rows[] = {
		{"weft.layout/1", "weft.layout/2",
		 "\"schema\" is \"weft.layout/2\"; a layout file that this weft reads has weft.layout/1"},
		{"\"schema\": \"weft.layout/1\", ", "", "key \"schema\" is missing"},
		{"\"infer\": \"tp=2\", ", "", "key \"infer\" is missing"},
		{"\"infer\": \"tp=2\"", "\"infer\": \"tpp=2\"",
		 "f.json: \"infer\": --infer tpp=2: unknown key 'tpp'"},
		{"\"infer\": \"tp=2\"", "\"infer\": \"engines=2,tp=2\"", "leave engines out"},
		{"\"infer\": \"tp=2\"", "\"infer\": \"tp=2\", \"more\": 1",
		 "key \"more\" is unknown"},
		{"\"layers\": 2", "\"layers\": 2, \"layers\": 2",
		 "duplicate key \"layers\" before byte"},
		{"\"layers\": 2", "\"layers\": 0", "\"layers\" is 0; 1 to 1024 are possible"},
		{"\"model\": \"tiny\"", "\"model\": \"\"",
		 "\"model\" has 0 bytes; 1 to 255 are possible"},
		{"\"layer\": 1}", "\"layer\": 3}",
		 "tensors[1]: \"layer\" is 3; -1 (before the layers) to 2"},
		{"\"layer\": 1}", "\"lair\": 1}", "tensors[1]: key \"lair\" is unknown"},
		{"\"dtype\": \"F32\"", "\"dtype\": \"FP32\"",
		 "tensors[2]: norm: \"dtype\" is \"FP32\"; the names are those of safetensors"},
		{"\"shape\": [4], \"layer\"", "\"shape\": [0], \"layer\"",
		 "tensors[2]: norm: \"shape\"[0] is not a whole number above 0"},
		{"\"shape\": [4], \"layer\"", "\"shape\": [1,1,1,1,1], \"layer\"",
		 "\"shape\" has 5 sizes; 1 to 4 are possible"},
		{"\"shape\": [4], \"layer\"", "\"shape\": [4611686018427387904, 2], \"layer\"",
		 "norm has more than 2^62 bytes"},
		{"\"name\": \"kv\"", "\"name\": \"q\"",
		 "tensors[1]: tensor q is listed before, as number 0"},
		{"\"name\": \"kv\"", "\"name\": \"\"",
		 "tensors[1]: \"name\" has 0 bytes; 1 to 511 are possible"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"nerm\"}",
		 "params[1].pieces[0]: \"tensor\" is \"nerm\", which \"tensors\" does not list"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"vision\"}",
		 "\"vision\", which is \"left_alone\": move it to \"tensors\""},
		{"{\"tensor\": \"norm\"}", "{}",
		 "params[1].pieces[0]: key \"tensor\" or \"fill\" is missing"},
		{"{\"tensor\": \"norm\"}", "7", "params[1].pieces[0]: not an object"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\", \"src\": [[0, 2], [0, 2]]}",
		 "\"src\" has 2 dimensions; tensor norm has 1"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\", \"src\": [[2, 2]]}",
		 "\"src\"[0] is not [low, high] or [low, high, step]"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\", \"src\": [[0, 4, 1]]}",
		 "params[1]: norm, at place 1 of 2: a piece takes [1..5] of tensor norm, which is [4]"},
		{"{\"tensor\": \"norm\"}",
		 "{\"tensor\": \"norm\", \"src\": [[0, 4, 4611686018427387904]]}",
		 "params[1]: norm, at place 1 of 2: a piece takes"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\", \"src\": [[0, 3]]}",
		 "norm, at place 0 of 2: byte 6 of parameter norm (8 bytes) has no source"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\"}, {\"tensor\": \"norm\"}",
		 "a piece covers bytes 8 + 8 of parameter norm, which has 8"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\", \"make\": \"copy\"}",
		 "\"make\" is \"copy\", of tensor norm, F32, for BF16"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\", \"make\": \"shuffle\"}",
		 "\"make\" is \"shuffle\"; it is copy, convert, transpose, or quantise"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\", \"make\": \"dequantise 2x2\"}",
		 "key \"scales\" is missing"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\", \"scales\": \"q\"}",
		 "\"scales\" without a \"make\" from blocks"},
		{"{\"tensor\": \"norm\"}", "{\"tensor\": \"norm\", \"make\": \"quantise 3x3\"}",
		 "norm, at place 0 of 2: a piece takes [0..4] of tensor norm [4] for parameter norm (quantise 3x3"},
		{"\"tower.\"", "\"\"",
		 "left_alone[0]: a beginning of names has 0 bytes; 1 to 511 are possible"},
		{"\"tower.\"", "7", "left_alone[0]: not an object"},
		{"{\"fill\": 8}", "{\"fill\": 0}", "params[3].pieces[1]: \"fill\" is 0; 1 to"},
		{"{\"fill\": 8}", "{\"fill\": 8, \"src\": []}",
		 "params[3].pieces[1]: key \"src\" is unknown"},
		{"{\"fill\": 8}", "{\"fill\": 9}",
		 "a fill covers bytes 16 + 9 of parameter head, which has 24"},
		{"\"ranks\": [1]", "\"ranks\": [2]",
		 "params[3]: \"ranks\"[0] is not an engine rank, which are 0 to 1 with tp=2"},
		{"\"ranks\": [1]", "\"ranks\": []", "\"ranks\" has 0 items; 1 to 2 are possible"},
		{"\"ranks\": [1]", "\"ranks\": [[1, 1]]", "\"ranks\" has rank 1 twice"},
		{"\"ranks\": [1]", "\"ranks\": [[]]", "\"ranks\"[0] is empty"},
		{"\"ranks\": [1]", "\"ranks\": [[[1]]]", "\"ranks\"[0] is not an engine rank"},
		{"[{\"tensor\": \"norm\"}]", "[]", "params[1]: \"pieces\" is empty"},
		{"{\"fill\": 8}]}]}", "{\"fill\": 8}]}", "the text ends at byte"},
		{"{\"fill\": 8}]}]}", "{\"fill\": 8}]}]} x", "text after the end"},
		{"\"fill\": 8", "\"fill\": 8, \"fill\": 8", "params[3]: duplicate object key"},
		{"\"fill\": 8", "\"fill\": [[[[[[[[[[[[[[[[[8]]]]]]]]]]]]]]]]]",
		 "more than 16 brackets inside each other"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *text = changed(rows[i].from, rows[i].to);
		struct error error = {0};
		struct model *model;
		int rc = layout_file_parse(&model, text, strlen(text), "f.json", &error);

		if (rc != -ERROR_FILE || !strstr(error.text, rows[i].words) ||
		    strncmp(error.text, "f.json: ", 8) != 0)
			fail_msg("%s: %d %s", rows[i].to, rc, error.text);
		assert_null(model);
		memory_free(text);
	}
}

/* What a value may be at most is said before it costs memory. */
static void test_file__with_too_much_ends_at_the_limit(void **state)
{
	struct text pieces = {0}, name = {0};
	struct error error = {0};
	struct model *model;
	char *text, *to;

	(void)state;
	for (size_t i = 0; i < 4000000; i++)
		text_add(&pieces, "{},   ");
	text = changed("{\"tensor\": \"norm\"}", text_string(&pieces));
	assert_int_equal(layout_file_parse(&model, text, strlen(text), "f.json", &error),
			 -ERROR_FILE);
	assert_non_null(strstr(error.text, "has more than 16777216 bytes"));
	memory_free(text);
	for (size_t i = 0; i < 512; i++)
		text_add(&name, "n");
	to = memory_format("\"name\": \"%s\"", text_string(&name));
	text = changed("\"name\": \"kv\"", to);
	memory_free(to);
	assert_int_equal(layout_file_parse(&model, text, strlen(text), "f.json", &error),
			 -ERROR_FILE);
	assert_non_null(strstr(error.text, "\"name\" has 512 bytes; 1 to 511 are possible"));
	memory_free(text);
	text_fini(&pieces);
	text_fini(&name);
}

static void test_layout__of_other_engines_is_refused_with_the_spec_that_fits(void **state)
{
	struct infer_spec infer = infer_of("engines=3,tp=4,ep=4");
	struct model *model = parsed(tiny);
	struct error error = {0};
	struct layout layout;

	(void)state;
	assert_int_equal(model_layout(model, &infer, 0, &layout, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text,
			       "--infer engines=3,tp=4,ep=4: the layout file of tiny is "
			       "made for --infer engines=3,tp=2 (any number of engines)"));
	infer = infer_of("tp=2");
	assert_int_equal(model_layout(model, &infer, 2, &layout, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "engine rank 2 is not below tp=2"));
	model_close(&model);
}

static void test_layout__of_a_rank_without_parameters_is_refused(void **state)
{
	static const char text[] =
		"{\"schema\": \"weft.layout/1\", \"model\": \"m\", \"infer\": \"tp=2\", \"tensors\": "
		"[{\"name\": \"a\", \"dtype\": \"U8\", \"shape\": [4]}], \"params\": [{\"name\": \"x\", \"dtype\": "
		"\"U8\", \"shape\": [4], \"ranks\": [1], \"pieces\": [{\"tensor\": \"a\"}]}]}";
	struct infer_spec infer = infer_of("tp=2");
	struct model *model = parsed(text);
	struct error error = {0};
	struct layout layout;

	(void)state;
	assert_int_equal(model_layout(model, &infer, 0, &layout, &error), -ERROR_CONFIG);
	assert_non_null(
		strstr(error.text, "m, engine rank 0 of 2: the layout file has no parameter"));
	model_close(&model);
}

static void test_holding__of_stages_needs_layers(void **state)
{
	char *text = changed("\"layers\": 2,", "");
	struct error error = {0};
	struct train_spec train;
	struct holding holding;
	struct model *model;

	(void)state;
	for (char *at = text; (at = strstr(at, ", \"layer\": ")) != NULL;)
		memset(at, ' ', strlen(", \"layer\": 0"));
	model = parsed(text);
	assert_int_equal(train_spec_parse(&train, "world=2,pp=2", NULL), 0);
	assert_int_equal(model_holding(model, &train, 0, &holding, &error), -ERROR_CONFIG);
	assert_non_null(
		strstr(error.text, "pp=2 stages, but the layout file says nothing of layers"));
	model_close(&model);
	memory_free(text);
}

/* ---- on disk ---- */

static char path[] = "/tmp/weft-layout-file-XXXXXX";

static void save(const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
	assert_int_equal(fclose(file), 0);
}

static int make_file(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

static void test_open__knows_a_layout_file_from_a_config(void **state)
{
	static const struct {
		const char *text;
		bool is;
	} rows[] = {
		{tiny, true},
		{"{\"a\": [1, {\"schema\": \"weft.layout/1\"}], \"schema\": \"weft.routing/1\"}",
		 true},
		{"{\"architectures\": [\"X\"], \"schema\": 4}", false},
		{"{\"schema\": \"other\"}", false},
		{"{\"a\": {\"schema\": \"weft.layout/1\"}}", false},
		{"[\"schema\"]", false},
		{"{", false},
		{"", false},
	};
	struct error error = {0};
	struct model *model;
	bool is;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		save(rows[i].text);
		assert_int_equal(layout_file_is(path, &is, NULL), 0);
		assert_int_equal(is, rows[i].is);
	}
	save(rows[1].text);
	assert_int_equal(model_open(&model, path, &error), -ERROR_FILE);
	assert_non_null(strstr(error.text, "\"schema\" is \"weft.routing/1\""));
	save(tiny);
	assert_int_equal(model_open(&model, path, &error), 0);
	assert_string_equal(model->name, "tiny");
	model_close(&model);
	assert_int_equal(layout_file_open(&model, "/dev/null", &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "/dev/null is not a regular file"));
	assert_int_equal(layout_file_open(&model, "/no/such/file", &error), -ERROR_IO);
}

static int use_once(const struct infer_spec *infer, struct error *error)
{
	struct layout layout;
	struct model *model;
	char *text = NULL;
	size_t bytes;
	FILE *stream;
	int rc = model_open(&model, path, error);

	if (rc)
		return rc;
	rc = model_layout(model, infer, 1, &layout, error);
	layout_fini(&layout);
	stream = open_memstream(&text, &bytes);
	if (!rc)
		rc = layout_file_write(model, infer, stream, error);
	fclose(stream);
	free(text);
	model_close(&model);
	return rc;
}

static void test_file__survives_every_failed_allocation(void **state)
{
	struct infer_spec infer = infer_of("tp=2");
	struct error error = {0};
	int rc = -1;

	(void)state;
	save(tiny);
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = use_once(&infer, &error);
		memory_fail_at(0);
		if (rc != 0 && rc != -ERROR_MEMORY)
			fail_msg("allocation %" PRIu64 ": %s", k, error.text);
		assert_true(k < 10000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file__of_every_built_in_model_reads_back_digest_for_digest),
		cmocka_unit_test(test_file__keeps_what_is_made_of_blocks),
		cmocka_unit_test(test_file__ranks_that_differ_by_steps_share_an_entry),
		cmocka_unit_test(test_file__ranks_that_have_the_same_share_a_place),
		cmocka_unit_test(test_file__ranks_with_other_parameters_have_entries_of_their_own),
		cmocka_unit_test(test_tiny__is_laid_out_piece_by_piece),
		cmocka_unit_test(test_keys__may_come_in_any_order),
		cmocka_unit_test(test_file__that_is_wrong_is_refused_with_its_place),
		cmocka_unit_test(test_file__with_too_much_ends_at_the_limit),
		cmocka_unit_test(test_layout__of_other_engines_is_refused_with_the_spec_that_fits),
		cmocka_unit_test(test_layout__of_a_rank_without_parameters_is_refused),
		cmocka_unit_test(test_holding__of_stages_needs_layers),
		cmocka_unit_test(test_open__knows_a_layout_file_from_a_config),
		cmocka_unit_test(test_file__survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
