/* SPDX-License-Identifier: Apache-2.0
 *
 * test_derived.c -- what engines keep beside their parameters: shapes, memory order, dtype and
 * who makes it again, for each way of storing kv_b_proj.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/memory.h"
#include "model/derived.h"
#include "model/model.h"
#include <string.h>

struct fixture {
	struct model *model;
	struct infer_spec infer;
	struct layout layout;
	struct derived_list list;
};

static void open_rank(struct fixture *f, const char *name, const char *spec, uint32_t rank)
{
	struct error error = {0};

	if (model_open(&f->model, name, &error) || infer_spec_parse(&f->infer, spec, &error) ||
	    model_layout(f->model, &f->infer, rank, &f->layout, &error) ||
	    derived_list(&f->list, f->model, &f->infer, &f->layout, &error))
		fail_msg("%s", error.text);
}

static void close_rank(struct fixture *f)
{
	derived_list_fini(&f->list);
	layout_fini(&f->layout);
	model_close(&f->model);
}

static const struct derived *find(const struct fixture *f, const char *name)
{
	for (size_t i = 0; i < f->list.count; i++)
		if (strcmp(f->list.items[i].name, name) == 0)
			return &f->list.items[i];
	return NULL;
}

static void expect(const struct fixture *f, const char *name, enum derived_state state,
		   enum dtype dtype, uint32_t dims, const uint64_t *shape, const uint64_t *strides,
		   uint64_t bytes)
{
	const struct derived *derived = find(f, name);

	if (!derived)
		fail_msg("%s is not listed", name);
	assert_int_equal(derived->kind->state, state);
	assert_int_equal(derived->dtype, dtype);
	assert_int_equal(derived->dims, dims);
	assert_memory_equal(derived->shape, shape, dims * sizeof(*shape));
	assert_memory_equal(derived->strides, strides, dims * sizeof(*strides));
	assert_int_equal(derived->bytes, bytes);
}

#define U64(...)  ((const uint64_t[]){__VA_ARGS__})
#define ATTENTION "model.layers.3.self_attn."

static void test_bf16_kv_b_proj__is_split_into_two_transposed_views(void **state)
{
	struct fixture f;

	(void)state;
	open_rank(&f, "Moonlight-16B-A3B", "tp=4,ep=4", 1); /* 16 heads, 128 + 64, values 128 */
	expect(&f, ATTENTION "w_kc", DERIVED_REBUILT, DTYPE_BF16, 3, U64(4, 128, 512),
	       U64(65536, 1, 128), 4 * 128 * 512 * 2);
	expect(&f, ATTENTION "w_vc", DERIVED_REBUILT, DTYPE_BF16, 3, U64(4, 512, 128),
	       U64(65536, 1, 512), 4 * 128 * 512 * 2);
	assert_string_equal(f.layout.params[find(&f, ATTENTION "w_kc")->param].name,
			    ATTENTION "kv_b_proj.weight");
	assert_int_equal(find(&f, ATTENTION "w_kc")->scales, DERIVED_NO_PARAM);
	assert_int_equal(f.list.count, 2 * 27); /* and nothing else, on any layer */
	close_rank(&f);
}

static void test_blocks_of_128__are_dequantised_and_may_be_packed(void **state)
{
	struct fixture f;

	(void)state;
	open_rank(&f, "DeepSeek-V3", "tp=8", 0); /* 128 heads, 128 + 128 */
	expect(&f, ATTENTION "w_kc", DERIVED_REBUILT, DTYPE_BF16, 3, U64(16, 128, 512),
	       U64(65536, 1, 128), 16 * 128 * 512 * 2);
	expect(&f, ATTENTION "w_scale_k", DERIVED_OPTIONAL, DTYPE_F32, 3, U64(16, 4, 1),
	       U64(4, 1, 1), 16 * 4 * 4);
	expect(&f, ATTENTION "w_scale_v", DERIVED_OPTIONAL, DTYPE_F32, 3, U64(16, 1, 4),
	       U64(4, 4, 1), 16 * 4 * 4);
	assert_null(find(&f, ATTENTION "w_scale"));
	assert_string_equal(f.layout.params[find(&f, ATTENTION "w_kc")->scales].name,
			    ATTENTION "kv_b_proj.weight_scale_inv");
	/* 2112 rows, 7168 columns: 56 blocks, 14 words a row */
	expect(&f, ATTENTION "fused_qkv_a_proj_with_mqa.weight_scale_inv", DERIVED_OPTIONAL,
	       DTYPE_I32, 2, U64(2112, 14), U64(1, 2112), 2112 * 14 * 4);
	/* 256 slots of [512, 7168] */
	expect(&f, "model.layers.3.mlp.experts.w13_weight_scale_inv", DERIVED_OPTIONAL, DTYPE_I32,
	       3, U64(256, 512, 14), U64(512 * 14, 1, 512), UINT64_C(256) * 512 * 14 * 4);
	expect(&f, ATTENTION "attn_mqa.k_scale", DERIVED_CONSTANT, DTYPE_F32, 1, U64(1), U64(1), 4);
	expect(&f, ATTENTION "attn_mha.v_scale", DERIVED_CONSTANT, DTYPE_F32, 1, U64(1), U64(1), 4);
	close_rank(&f);
}

static void test_other_blocks__leave_one_scale_and_are_never_packed(void **state)
{
	struct fixture f;

	(void)state;
	open_rank(&f, "Kimi-K2-block64", "engines=8,tp=32,ep=32,dp=8,dp_lm_head=1,moe_dense_tp=1",
		  13);
	expect(&f, ATTENTION "w_kc", DERIVED_REBUILT, DTYPE_F8_E4M3, 3, U64(16, 128, 512),
	       U64(65536, 1, 128), 16 * 128 * 512);
	expect(&f, ATTENTION "w_vc", DERIVED_REBUILT, DTYPE_F8_E4M3, 3, U64(16, 512, 128),
	       U64(65536, 1, 512), 16 * 128 * 512);
	expect(&f, ATTENTION "w_scale", DERIVED_REBUILT, DTYPE_F32, 1, U64(1), U64(1), 4);
	for (size_t i = 0; i < f.list.count; i++)
		assert_int_not_equal(f.list.items[i].kind->state, DERIVED_OPTIONAL);
	close_rank(&f);
}

static void test_engine_blocks__count_not_those_of_the_checkpoint(void **state)
{
	struct fixture f;

	(void)state;
	open_rank(&f, "DeepSeek-V3", "tp=8,fp8=64x64", 0);
	assert_non_null(find(&f, ATTENTION "w_scale"));
	close_rank(&f);
	open_rank(&f, "DeepSeek-V3", "tp=8,fp8=none", 0);
	assert_null(find(&f, ATTENTION "w_scale"));
	assert_null(find(&f, ATTENTION "attn_mqa.k_scale"));
	assert_int_equal(find(&f, ATTENTION "w_kc")->dtype, DTYPE_BF16);
	assert_int_equal(f.list.count, 2 * 61);
	close_rank(&f);
}

static void test_glm_gate__is_kept_twice_until_the_engine_stores_it_in_32_bits(void **state)
{
	struct fixture f;

	(void)state;
	open_rank(&f, "GLM-4.5-Air", "tp=8,ep=8", 7);
	expect(&f, "model.layers.3.mlp.gate._weight_fp32", DERIVED_STALE, DTYPE_F32, 2,
	       U64(128, 4096), U64(4096, 1), 128 * 4096 * 4);
	assert_null(find(&f, "model.layers.0.mlp.gate._weight_fp32")); /* dense */
	assert_null(find(&f, "model.layers.3.mlp.gate._weight_fp32")->kind->by);
	close_rank(&f);
	open_rank(&f, "GLM-4.5-Air", "tp=8,ep=8,gate=F32", 7);
	assert_int_equal(f.list.count, 0);
	close_rank(&f);
	open_rank(&f, "Qwen3-30B-A3B", "tp=8,ep=8", 7); /* another class's gate */
	assert_int_equal(f.list.count, 0);
	close_rank(&f);
}

static void test_fp8_without_latent_attention__has_scalars_of_its_own(void **state)
{
	struct fixture f;

	(void)state;
	open_rank(&f, "Qwen3-30B-A3B-FP8", "tp=4,ep=4", 0);
	assert_non_null(find(&f, ATTENTION "attn.k_scale"));
	assert_non_null(find(&f, ATTENTION "attn.v_scale"));
	assert_null(find(&f, ATTENTION "attn_mqa.k_scale"));
	close_rank(&f);
}

static void test_vllm__looks_at_bf16_bytes_as_they_lie_and_copies_fp8(void **state)
{
	struct fixture f;

	(void)state;
	open_rank(&f, "Moonlight-16B-A3B", "tp=4,ep=4,names=vllm", 1);
	expect(&f, ATTENTION "mla_attn.W_UK_T", DERIVED_VIEW, DTYPE_BF16, 3, U64(4, 128, 512),
	       U64(256 * 512, 512, 1), 0);
	expect(&f, ATTENTION "mla_attn.W_UV", DERIVED_VIEW, DTYPE_BF16, 3, U64(4, 512, 128),
	       U64(256 * 512, 1, 512), 0);
	assert_null(find(&f, ATTENTION "w_kc"));
	close_rank(&f);
	open_rank(&f, "DeepSeek-V3", "tp=8,names=vllm", 0);
	expect(&f, ATTENTION "mla_attn.W_UV", DERIVED_REBUILT, DTYPE_BF16, 3, U64(16, 512, 128),
	       U64(256, 4096, 1), 16 * 128 * 512 * 2);
	close_rank(&f);
}

static void test_every_failed_allocation__is_reported_and_leaks_nothing(void **state)
{
	struct fixture f;

	(void)state;
	open_rank(&f, "GLM-4.7-Flash", "tp=4,ep=4", 0);
	for (uint64_t k = 1;; k++) {
		struct derived_list list;
		struct error error = {0};
		int rc;

		memory_fail_at(k);
		rc = derived_list(&list, f.model, &f.infer, &f.layout, &error);
		memory_fail_at(0);
		if (!rc) {
			assert_true(k > list.count);
			derived_list_fini(&list);
			break;
		}
		assert_int_equal(error.code, ERROR_MEMORY);
		assert_int_equal(list.count, 0);
	}
	close_rank(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bf16_kv_b_proj__is_split_into_two_transposed_views),
		cmocka_unit_test(test_blocks_of_128__are_dequantised_and_may_be_packed),
		cmocka_unit_test(test_other_blocks__leave_one_scale_and_are_never_packed),
		cmocka_unit_test(test_engine_blocks__count_not_those_of_the_checkpoint),
		cmocka_unit_test(
			test_glm_gate__is_kept_twice_until_the_engine_stores_it_in_32_bits),
		cmocka_unit_test(test_fp8_without_latent_attention__has_scalars_of_its_own),
		cmocka_unit_test(test_vllm__looks_at_bf16_bytes_as_they_lie_and_copies_fp8),
		cmocka_unit_test(test_every_failed_allocation__is_reported_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
