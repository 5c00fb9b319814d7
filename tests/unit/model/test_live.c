/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of a running engine's parameters: what is read, what is refused where, and what a
 * comparison with a layout says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/live.h"

#include <string.h>

static int read_text(struct live *live, const char *text, struct error *error)
{
	*live = (struct live){0};
	return live_read(live, text, strlen(text), "list.json", error);
}

static void expect_two(const char *text)
{
	struct error error = {0};
	struct live live;

	if (read_text(&live, text, &error))
		fail_msg("%s: %s", text, error.text);
	assert_int_equal(live.params.count, 2);
	assert_string_equal(live.params.items[0].name, "a.weight");
	assert_int_equal(live.params.items[0].dtype, DTYPE_BF16);
	assert_int_equal(live.params.items[0].dims, 2);
	assert_int_equal(live.params.items[0].shape[1], 3);
	assert_int_equal(live.params.items[0].bytes, 12);
	assert_string_equal(live.params.items[1].name, "a.k_scale");
	assert_int_equal(live.params.items[1].dims, 0);
	assert_int_equal(live.params.items[1].bytes, 4);
	live_fini(&live);
}

static void test_read__takes_a_list_an_object_and_lines(void **state)
{
	(void)state;
	expect_two(
		"[{\"name\":\"a.weight\",\"shape\":[2,3],\"dtype\":\"torch.bfloat16\",\"bytes\":12},\n"
		" {\"name\":\"a.k_scale\",\"shape\":[],\"dtype\":\"float32\"}]");
	expect_two("{\"a.weight\":{\"shape\":[2,3],\"dtype\":\"BF16\"},\n"
		   " \"a.k_scale\":{\"shape\":[],\"dtype\":\"F32\",\"bytes\":4}}");
	expect_two("\n{\"name\":\"a.weight\",\"shape\":[2,3],\"dtype\":\"bfloat16\"}\r\n\n"
		   "{\"name\":\"a.k_scale\",\"shape\":[],\"dtype\":\"float\"}");
}

static void test_read__takes_a_parameter_alone_and_one_named_name(void **state)
{
	struct error error;
	struct live live;

	(void)state;
	assert_int_equal(read_text(&live,
				   "{\n\"name\": \"x\",\n\"shape\": [0, 4],\n\"dtype\": \"U8\"\n}",
				   &error),
			 0);
	assert_int_equal(live.params.count, 1);
	assert_int_equal(live.params.items[0].bytes, 0);
	live_fini(&live);
	assert_int_equal(
		read_text(&live, "{\"name\": {\"shape\": [4], \"dtype\": \"I8\"}}", &error), 0);
	assert_string_equal(live.params.items[0].name, "name");
	live_fini(&live);
}

#define A "{\"name\":\"a\",\"shape\":[2],\"dtype\":\"BF16\"}"

static void test_read__refuses_with_the_place(void **state)
{
	static const struct {
		const char *text;
		int code;
		const char *says;
	} rows[] = {
		{"", ERROR_FILE, "list.json: line 1: no JSON"},
		{"[]", ERROR_FILE, "list.json: no parameter in it"},
		{"{}", ERROR_FILE, "no parameter in it"},
		{"7", ERROR_FILE, "no JSON"},
		{"[7]", ERROR_FILE, "entry 0: a parameter must be an object"},
		{"[" A "," A "]", ERROR_FILE, "entry 1: parameter a stands there twice"},
		{A "\n" A, ERROR_FILE, "line 2: parameter a stands there twice"},
		{A "\n\n{\"name\":", ERROR_FILE, "line 3: no JSON"},
		{A "\n[]", ERROR_FILE, "line 2: a parameter must be an object"},
		{"[" A "] x", ERROR_FILE, "line 1: no JSON"},
		{"{\"a\":{\"shape\":[2],\"dtype\":\"BF16\"},\n\"a\":{\"shape\":[2],\"dtype\":\"BF16\"}}",
		 ERROR_FILE, "line 2: no JSON (column 3): duplicate"},
		{"{\"a\":{\"name\":\"a\",\"shape\":[2],\"dtype\":\"BF16\"}}", ERROR_FILE,
		 "'a': the key \"name\" is unknown"},
		{"[{\"name\":\"a\",\"shape\":[2],\"dtype\":\"BF16\",\"device\":0}]", ERROR_FILE,
		 "entry 0: the key \"device\" is unknown"},
		{"[{\"shape\":[2],\"dtype\":\"BF16\"}]", ERROR_FILE, "\"name\" must be a string"},
		{"[{\"name\":\"\",\"shape\":[2],\"dtype\":\"BF16\"}]", ERROR_FILE,
		 "without a name"},
		{"[{\"name\":\"a\",\"dtype\":\"BF16\"}]", ERROR_FILE, "\"shape\" must be a list"},
		{"[{\"name\":\"a\",\"shape\":[2]}]", ERROR_FILE, "\"dtype\" of a must be a string"},
		{"[{\"name\":\"a\",\"shape\":[2],\"dtype\":\"bf17\"}]", ERROR_FILE,
		 "a: dtype 'bf17' is unknown"},
		{"[{\"name\":\"a\",\"shape\":[-2],\"dtype\":\"BF16\"}]", ERROR_FILE,
		 "size 0 of \"shape\""},
		{"[{\"name\":\"a\",\"shape\":[2,1.5],\"dtype\":\"BF16\"}]", ERROR_FILE,
		 "size 1 of \"shape\""},
		{"[{\"name\":\"a\",\"shape\":[4611686018427387904],\"dtype\":\"BF16\"}]",
		 ERROR_FILE, "a has 2^62 bytes or more"},
		{"[{\"name\":\"a\",\"shape\":[99999999999999999999],\"dtype\":\"BF16\"}]",
		 ERROR_FILE, "too big"},
		{"[{\"name\":\"a\",\"shape\":[1,1,1,1,1,1,1,1,1],\"dtype\":\"BF16\"}]", ERROR_LIMIT,
		 "9 dimensions; at most 8"},
		{"[{\"name\":\"a\",\"shape\":[2],\"dtype\":\"BF16\",\"bytes\":2}]", ERROR_FILE,
		 "a says 2 bytes; its shape and dtype make 4"},
		{"[{\"name\":\"a\",\"shape\":[2],\"dtype\":\"BF16\",\"bytes\":\"4\"}]", ERROR_FILE,
		 "\"bytes\" of a must be a whole number"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct error error = {0};
		struct live live;
		int rc = read_text(&live, rows[i].text, &error);

		if (rc != -rows[i].code || !strstr(error.text, rows[i].says))
			fail_msg("%s: %d '%s', wanted '%s'", rows[i].text, rc, error.text,
				 rows[i].says);
		assert_int_equal(live.params.count, 0);
		assert_null(live.params.items);
	}
}

static void test_read__refuses_what_is_too_long(void **state)
{
	char text[LIVE_NAME_MAX + 64] = "[{\"name\":\"";
	struct error error;
	struct live live = {0};

	(void)state;
	memset(text + 10, 'n', LIVE_NAME_MAX);
	strcpy(text + 10 + LIVE_NAME_MAX, "\",\"shape\":[2],\"dtype\":\"BF16\"}]");
	assert_int_equal(read_text(&live, text, &error), -ERROR_LIMIT);
	assert_non_null(strstr(error.text, "has 1024 bytes; at most 1023"));
	assert_int_equal(live_read(&live, text, LIVE_BYTES_MAX + 1u, "big", &error), -ERROR_LIMIT);
	assert_int_equal(live_read_file(&live, "no-such-file", &error), -ERROR_IO);
}

/* ---- comparing ---- */

struct row {
	const char *name;
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[4];
};

static void make_layout(struct layout *layout, const struct row *rows, size_t count)
{
	layout_init(layout);
	for (size_t i = 0; i < count; i++)
		assert_true(layout_add_param(layout, rows[i].name, rows[i].dtype, rows[i].dims,
					     rows[i].shape, NULL) >= 0);
}

static void make_live(struct live *live, const struct row *rows, size_t count)
{
	*live = (struct live){0};
	for (size_t i = 0; i < count; i++)
		assert_int_equal(live_add(live, rows[i].name, dtype_name(rows[i].dtype),
					  rows[i].dims, rows[i].shape, "here", NULL),
				 0);
}

/* One parameter each, NULL name: none; what the one line must say. */
static void test_compare__says_every_kind_of_difference_with_its_option(void **state)
{
#define BF DTYPE_BF16
#define F8 DTYPE_F8_E4M3
	static const struct {
		struct row here, there, beside; /* beside: in both */
		const char *says[3];
	} rows[] = {
		{{"m.x.weight", BF, 2, {4, 8}},
		 {"m.x.weight", BF, 2, {4, 9}},
		 {0},
		 {"m.x.weight: BF16 [4, 8] in the layout, BF16 [4, 9] in the engine"}},
		{{"m.x.weight", BF, 1, {4}},
		 {"m.x.weight", BF, 2, {4, 1}},
		 {0},
		 {"BF16 [4] in the layout, BF16 [4, 1] in the engine"}},
		{{"m.x.weight", BF, 1, {4}},
		 {0},
		 {0},
		 {"m.x.weight: BF16 [4] in the layout, nothing in the engine"}},
		{{0},
		 {"m.x.weight", BF, 1, {4}},
		 {0},
		 {"m.x.weight: nothing in the layout, BF16 [4] in the engine"}},
		{{"m.x.weight", BF, 1, {4}},
		 {"m.x.weight", DTYPE_F32, 1, {4}},
		 {0},
		 {"; say dtype=F32 in --infer if all are"}},
		{{"m.mlp.gate.weight", BF, 2, {4, 8}},
		 {"m.mlp.gate.weight", DTYPE_F32, 2, {4, 8}},
		 {0},
		 {"F32 [4, 8] in the engine; say gate=F32 in --infer"}},
		{{"m.indexer.weights_proj.weight", BF, 2, {4, 8}},
		 {"m.indexer.wk_weights_proj.weight", BF, 2, {6, 8}},
		 {0},
		 {"m.indexer.weights_proj.weight: ", "say indexer=fused", NULL}},
		{{"m.indexer.wk_weights_proj.weight", BF, 2, {6, 8}},
		 {"m.indexer.wk.weight", BF, 2, {2, 8}},
		 {0},
		 {"say no indexer=fused"}},
		{{"m.fused_qkv_a_proj_with_mqa.weight", BF, 2, {6, 8}},
		 {"m.fused_qkv_a_proj.weight", BF, 2, {6, 8}},
		 {0},
		 {"say names=vllm"}},
		{{"m.fused_qkv_a_proj.weight", BF, 2, {6, 8}},
		 {"m.fused_qkv_a_proj_with_mqa.weight", BF, 2, {6, 8}},
		 {0},
		 {"say names=sglang"}},
		{{0},
		 {"lm_head.weight", BF, 2, {64, 8}},
		 {0},
		 {"say untied=1 in --infer if the checkpoint of the tied model has an lm_head.weight"}},
		{{"lm_head.weight", BF, 2, {64, 8}},
		 {0},
		 {0},
		 {"say no untied=1 in --infer, or names= of this engine"}},
		{{"m.experts.w2_weight", BF, 3, {8, 4, 4}},
		 {"m.experts.routed_experts.w2_weight", BF, 3, {8, 4, 4}},
		 {0},
		 {"say names=vllm,routed_experts=1 in"}},
		{{"m.experts.routed_experts.w2_weight", BF, 3, {8, 4, 4}},
		 {"m.experts.w2_weight", BF, 3, {8, 4, 4}},
		 {0},
		 {"say no routed_experts=1 in"}},
		{{"m.experts.w13_weight", BF, 3, {8, 6, 4}},
		 {"m.experts.w13_weight", BF, 3, {8, 4, 6}},
		 {0},
		 {"say expert_weights=in_out in --infer, or out_in"}},
		{{"m.experts.w2_weight", DTYPE_U8, 3, {8, 6, 48}},
		 {"m.experts.w2_weight", DTYPE_U8, 3, {8, 6, 64}},
		 {0},
		 {"say mxfp4_pad= in --infer"}},
		{{"m.experts.w13_weight", BF, 3, {8, 4, 4}},
		 {"m.experts.w13_weight", BF, 3, {9, 4, 4}},
		 {0},
		 {"say fuse_shared=1"}},
		{{"m.experts.w13_weight", BF, 3, {9, 4, 4}},
		 {"m.experts.w13_weight", BF, 3, {8, 4, 4}},
		 {0},
		 {"say no fuse_shared=1"}},
		{{"m.shared_experts.gate_up_proj.weight", BF, 2, {8, 16}},
		 {"m.shared_experts.gate_up_proj.weight", BF, 2, {32, 16}},
		 {0},
		 {"say a2a=1 in --infer"}},
		{{"m.shared_experts.down_proj.weight", BF, 2, {16, 16}},
		 {"m.shared_experts.down_proj.weight", BF, 2, {16, 4}},
		 {0},
		 {"say no a2a=1 in --infer"}},
		{{"m.x.weight", BF, 2, {256, 512}},
		 {"m.x.weight", F8, 2, {256, 512}},
		 {0},
		 {"say fp8=ROWSxCOLUMNS"}},
		{{"m.x.weight", F8, 2, {256, 512}},
		 {"m.x.weight", BF, 2, {256, 512}},
		 {0},
		 {"say fp8=none"}},
		{{"m.x.weight_scale_inv", DTYPE_F32, 2, {2, 4}},
		 {"m.x.weight_scale_inv", DTYPE_F32, 2, {4, 8}},
		 {"m.x.weight", F8, 2, {256, 512}},
		 {"say fp8=64x64 in --infer"}},
		{{0},
		 {"m.x.weight_scale_inv", DTYPE_F32, 2, {2, 4}},
		 {"m.x.weight", F8, 2, {256, 512}},
		 {"say fp8=128x128 in --infer"}},
		{{"m.x.weight_scale_inv", DTYPE_F32, 2, {2, 4}},
		 {0},
		 {"m.x.weight", BF, 2, {256, 512}},
		 {"say fp8=none"}},
		{{"model.embed_tokens.weight", BF, 2, {64, 8}},
		 {"model.embed_tokens.weight", BF, 2, {128, 8}},
		 {0},
		 {"say embed_replicated=1, or dp"}},
		{{"lm_head.weight", BF, 2, {64, 8}},
		 {"lm_head.weight", BF, 2, {100, 8}},
		 {0},
		 {"say dp_lm_head=1", "only pads it otherwise"}},
		{{"m.x.weigth", BF, 1, {4}}, {"m.x.weight", BF, 1, {4}}, {0}, {"m.x.weigth: "}},
	};
	const size_t last = sizeof(rows) / sizeof(rows[0]) - 1;

	(void)state;
	for (size_t i = 0; i <= last; i++) {
		struct row here[2] = {rows[i].here, rows[i].beside};
		struct row there[2] = {rows[i].there, rows[i].beside};
		size_t first_here = !here[0].name, first_there = !there[0].name;
		size_t end = rows[i].beside.name ? 2 : 1;
		struct live_report report = {0};
		struct layout layout;
		struct live live;
		struct error error;

		make_layout(&layout, here + first_here, end - first_here);
		make_live(&live, there + first_there, end - first_there);
		assert_int_equal(live_compare(&live, &layout, &report, &error), 0);
		assert_true(report.differences.count >= 1);
		assert_int_equal(report.equal, rows[i].beside.name ? 1 : 0);
		for (size_t k = 0; k < 3 && rows[i].says[k]; k++)
			if (!strstr(report.differences.items[0], rows[i].says[k]))
				fail_msg("'%s' does not say '%s'", report.differences.items[0],
					 rows[i].says[k]);
		if (i == last)
			assert_non_null(strstr(
				report.differences.items[1],
				"of those that the engine lacks the closest are m.x.weigth"));
		live_report_fini(&report);
		live_fini(&live);
		layout_fini(&layout);
	}
}

static void test_compare__hints_at_other_names_only_where_the_engine_has_them(void **state)
{
	static const struct row here = {"m.fused_qkv_a_proj_with_mqa.weight", BF, 2, {6, 8}};
	static const struct row there = {"n.fused_qkv_a_proj.weight", BF, 2, {6, 8}};
	struct live_report report = {0};
	struct layout layout;
	struct live live;
	struct error error;

	(void)state;
	make_layout(&layout, &here, 1);
	make_live(&live, &there, 1);
	assert_int_equal(live_compare(&live, &layout, &report, &error), 0);
	assert_int_equal(report.differences.count, 2);
	for (size_t i = 0; i < report.differences.count; i++)
		assert_null(strstr(report.differences.items[i], "names="));
	live_report_fini(&report);
	live_fini(&live);
	layout_fini(&layout);
}

static void test_compare__knows_fused_shared_experts_by_their_slot(void **state)
{
	static const struct row here[] = {
		{"m.mlp.experts.w13_weight", BF, 3, {8, 4, 4}},
		{"m.mlp.shared_experts.gate_up_proj.weight", BF, 2, {4, 4}},
	};
	static const struct row there[] = {{"m.mlp.experts.w13_weight", BF, 3, {9, 4, 4}}};
	struct live_report report = {0};
	struct layout layout;
	struct live live;
	struct error error;

	(void)state;
	make_layout(&layout, here, 2);
	make_live(&live, there, 1);
	assert_int_equal(live_compare(&live, &layout, &report, &error), 0);
	assert_int_equal(report.differences.count, 2);
	for (size_t i = 0; i < 2; i++)
		assert_non_null(strstr(report.differences.items[i], "; say fuse_shared=1"));
	live_report_fini(&report);
	live_fini(&live);
	layout_fini(&layout);
}

static const struct row some[] = {
	{"m.self_attn.o_proj.weight", BF, 2, {4, 8}},
	{"m.norm.weight", DTYPE_F32, 1, {8}},
};
static const struct row more[] = {
	{"m.self_attn.attn_mqa.k_scale", DTYPE_F32, 0, {0}},
	{"m.norm.weight", DTYPE_F32, 1, {8}},
	{"m.self_attn.attn.v_scale", DTYPE_F32, 0, {0}},
	{"m.self_attn.o_proj.weight", BF, 2, {4, 8}},
	{"m.self_attn.rotary_emb.cos_sin_cache", BF, 2, {64, 8}},
};

static void test_compare__is_equal_in_any_order_and_leaves_scales_and_caches_alone(void **state)
{
	struct live_report report = {0};
	struct layout layout;
	struct live live;
	struct error error;

	(void)state;
	make_layout(&layout, some, 2);
	make_live(&live, more, 5);
	assert_int_equal(live_compare(&live, &layout, &report, &error), 0);
	assert_int_equal(report.differences.count, 0);
	assert_int_equal(report.equal, 2);
	assert_int_equal(report.left_alone.count, 3);
	assert_string_equal(report.left_alone.items[2], "m.self_attn.rotary_emb.cos_sin_cache");
	live_report_fini(&report);
	live_fini(&live);
	layout_fini(&layout);
}

static void test_compare__shows_a_dtype_that_weft_cannot_write(void **state)
{
	static const struct row here[] = {{"m.x_scale_inv", DTYPE_F32, 1, {4}}};
	const uint64_t shape[1] = {4};
	struct live_report report = {0};
	struct layout layout;
	struct live live = {0};
	struct error error;

	(void)state;
	make_layout(&layout, here, 1);
	assert_int_equal(
		live_add(&live, "m.x_scale_inv", "torch.float8_e8m0fnu", 1, shape, "here", NULL),
		0);
	assert_int_equal(live_compare(&live, &layout, &report, &error), 0);
	assert_int_equal(report.differences.count, 1);
	assert_string_equal(
		report.differences.items[0],
		"m.x_scale_inv: F32 [4] in the layout, float8_e8m0fnu [4] in the engine");
	live_report_fini(&report);
	live_fini(&live);
	layout_fini(&layout);
}

static void test_memory__every_allocation_may_fail(void **state)
{
	static const char text[] =
		A "\n{\"name\":\"b\",\"shape\":[2],\"dtype\":\"F8_E4M3\"}\n"
		  "{\"name\":\"rotary_emb.inv_freq\",\"shape\":[2],\"dtype\":\"F32\"}";
	struct layout layout;
	bool failed = true;

	(void)state;
	make_layout(&layout, some, 2);
	for (uint64_t k = 1; failed; k++) {
		struct live_report report = {0};
		struct live live = {0};
		struct error error = {0};
		int rc;

		memory_fail_at(k);
		rc = live_read(&live, text, sizeof(text) - 1, "list", &error);
		if (!rc)
			rc = live_compare(&live, &layout, &report, &error);
		memory_fail_at(0);
		failed = rc != 0;
		if (failed)
			assert_int_equal(error.code, ERROR_MEMORY);
		else
			assert_int_equal(report.differences.count, 4);
		live_report_fini(&report);
		live_fini(&live);
	}
	layout_fini(&layout);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read__takes_a_list_an_object_and_lines),
		cmocka_unit_test(test_read__takes_a_parameter_alone_and_one_named_name),
		cmocka_unit_test(test_read__refuses_with_the_place),
		cmocka_unit_test(test_read__refuses_what_is_too_long),
		cmocka_unit_test(test_compare__says_every_kind_of_difference_with_its_option),
		cmocka_unit_test(test_compare__hints_at_other_names_only_where_the_engine_has_them),
		cmocka_unit_test(test_compare__knows_fused_shared_experts_by_their_slot),
		cmocka_unit_test(
			test_compare__is_equal_in_any_order_and_leaves_scales_and_caches_alone),
		cmocka_unit_test(test_compare__shows_a_dtype_that_weft_cannot_write),
		cmocka_unit_test(test_memory__every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
