/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layout_options.c -- what each option of --infer makes of published models: names, shapes,
 * dtypes, slots, how bytes are transformed; and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/memory.h"
#include "model/config.h"
#include "model/model.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LAYERS	8u
#define MLP	"mlp."
#define SHARED	"mlp.shared_experts."
#define EXPERTS "mlp.experts."
#define SCALES	"_scale_inv"

/* A built-in model with its first layers only: the others are as they are. */
static struct model *open_model(const char *name)
{
	size_t count;
	const struct model_builtin *builtins = model_builtins(&count);
	struct model *model = NULL;
	struct model_config config;
	struct error error = {0};

	for (size_t i = 0; i < count; i++) {
		if (strcmp(builtins[i].name, name) != 0)
			continue;
		if (config_parse(builtins[i].config_json, strlen(builtins[i].config_json), name,
				 &config, &error))
			fail_msg("%s", error.text);
		config.layers = LAYERS;
		config.mtp_layers = 0;
		if (model_from_config(&model, name, &config, &error))
			fail_msg("%s", error.text);
	}
	assert_non_null(model);
	return model;
}

static void cut_model(const char *name, const char *spec, uint32_t rank, struct layout *layout)
{
	struct model *model = open_model(name);
	struct infer_spec infer;
	struct error error = {0};

	if (infer_spec_parse(&infer, spec, &error) ||
	    model_layout(model, &infer, rank, layout, &error))
		fail_msg("%s %s: %s", name, spec, error.text);
	model_close(&model);
}

static const struct tensor_info *find_param(const struct layout *layout, const char *name)
{
	uint32_t index;

	return strmap_get(&layout->param_names, name, &index) ? &layout->params[index] : NULL;
}

/* "F8_E4M3 [512, 7168]" of a parameter, or "none". */
static void expect_param(const struct layout *layout, const char *name, const char *want)
{
	const struct tensor_info *param = find_param(layout, name);
	char text[100] = "none";
	size_t n = 0;

	if (param)
		n = (size_t)snprintf(text, sizeof(text), "%s", dtype_name(param->dtype));
	for (uint32_t d = 0; param && d < param->dims; d++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%" PRIu64 "%s", d ? " " : " [",
				      param->shape[d], d + 1 == param->dims ? "]" : ",");
	if (strcmp(text, want) != 0)
		fail_msg("%s is %s, not %s", name, text, want);
}

/* "[0..4, 0..8] -> row 3 of parameter, copy": each piece of a tensor; rows are counted through all
 * dimensions but the last. */
static void expect_pieces(const struct layout *layout, const char *tensor, const char *want)
{
	char text[500] = "";
	size_t n = 0;

	for (size_t i = 0; i < layout->piece_count; i++) {
		const struct piece *piece = &layout->pieces[i];
		const struct tensor_info *source = &layout->tensors[piece->tensor];
		const struct tensor_info *param = &layout->params[piece->param];
		uint64_t row = param->shape[param->dims - 1] * dtype_bytes(param->dtype);
		const char *leaf = strstr(param->name, "layers.");
		char box[100], transformed[TRANSFORM_TEXT_BYTES];

		if (strcmp(source->name, tensor) != 0)
			continue;
		assert_int_equal(piece->offset % row, 0);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s -> %" PRIu64 " %s %s",
				      n ? "; " : "", box_text(&piece->src, box, sizeof(box)),
				      piece->offset / row,
				      leaf ? strchr(leaf + 7, '.') + 1 : param->name,
				      transform_text(&piece->transform,
						     source->dtype != param->dtype, transformed));
	}
	if (strcmp(text, want) != 0)
		fail_msg("%s:\n %s\nnot\n %s", tensor, text, want);
}

static uint64_t rank_bytes(const struct layout *layout)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < layout->param_count; i++)
		bytes += layout->params[i].bytes;
	return bytes;
}

/* The same parameters, whatever they are made of. */
static void expect_same_params(const struct layout *a, const struct layout *b)
{
	assert_int_equal(a->param_count, b->param_count);
	for (size_t i = 0; i < a->param_count; i++) {
		const struct tensor_info *one = &a->params[i], *other = find_param(b, one->name);

		if (!other || one->dtype != other->dtype || one->dims != other->dims ||
		    memcmp(one->shape, other->shape, one->dims * sizeof(one->shape[0])) != 0)
			fail_msg("%s differs", one->name);
	}
}

#define KIMI "tp=32,ep=32,dp=8,dp_lm_head=1,moe_dense_tp=1"

static void test_a2a__leaves_shared_experts_whole_on_every_rank(void **state)
{
	struct layout layout;

	(void)state;
	/* in blocks of 128 the shared expert cannot be cut for 32 ranks; whole, it is no matter */
	cut_model("Kimi-K2", KIMI ",a2a=1", 13, &layout);
	expect_param(&layout, "model.layers.1." SHARED "gate_up_proj.weight",
		     "F8_E4M3 [4096, 7168]");
	expect_param(&layout, "model.layers.1." SHARED "gate_up_proj.weight" SCALES,
		     "F32 [32, 56]");
	expect_param(&layout, "model.layers.1." SHARED "down_proj.weight", "F8_E4M3 [7168, 2048]");
	expect_param(&layout, "model.layers.1." SHARED "down_proj.weight" SCALES, "F32 [56, 16]");
	expect_pieces(&layout, "model.layers.1." SHARED "up_proj.weight",
		      "[0..2048, 0..7168] -> 2048 " SHARED "gate_up_proj.weight copy");
	expect_param(&layout, "model.layers.1." EXPERTS "w13_weight", "F8_E4M3 [12, 4096, 7168]");
	layout_fini(&layout);
	/* without dense layers' own flag those are still cut for all ranks */
	cut_model("GLM-4.5-Air", "tp=8,ep=8,a2a=1", 2, &layout);
	expect_param(&layout, "model.layers.1." SHARED "gate_up_proj.weight", "BF16 [2816, 4096]");
	expect_param(&layout, "model.layers.0." MLP "gate_up_proj.weight", "BF16 [2736, 4096]");
	layout_fini(&layout);
}

static void test_embed_replicated__leaves_the_embedding_whole_and_cuts_the_head(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("DeepSeek-V3", "tp=16,ep=16,embed_replicated=1", 5, &layout);
	expect_param(&layout, "model.embed_tokens.weight", "BF16 [129280, 7168]");
	expect_param(&layout, "lm_head.weight", "BF16 [8080, 7168]");
	expect_pieces(&layout, "model.embed_tokens.weight",
		      "[0..129280, 0..7168] -> 0 model.embed_tokens.weight copy");
	layout_fini(&layout);
}

static void test_fuse_shared__makes_the_shared_expert_the_last_slot(void **state)
{
	struct layout apart, layout;

	(void)state;
	cut_model("DeepSeek-V3", "tp=8", 3, &apart);
	cut_model("DeepSeek-V3", "tp=8,fuse_shared=1", 3, &layout);
	expect_param(&layout, "model.layers.3." EXPERTS "w13_weight", "F8_E4M3 [257, 512, 7168]");
	expect_param(&layout, "model.layers.3." EXPERTS "w13_weight" SCALES, "F32 [257, 4, 56]");
	expect_param(&layout, "model.layers.3." EXPERTS "w2_weight", "F8_E4M3 [257, 7168, 256]");
	expect_param(&layout, "model.layers.3." EXPERTS "w2_weight" SCALES, "F32 [257, 56, 2]");
	expect_pieces(&layout, "model.layers.3." SHARED "gate_proj.weight",
		      "[768..1024, 0..7168] -> 131072 " EXPERTS "w13_weight copy");
	expect_pieces(&layout, "model.layers.3." SHARED "up_proj.weight",
		      "[768..1024, 0..7168] -> 131328 " EXPERTS "w13_weight copy");
	expect_pieces(&layout, "model.layers.3." SHARED "down_proj.weight",
		      "[0..7168, 768..1024] -> 1835008 " EXPERTS "w2_weight copy");
	expect_pieces(&layout, "model.layers.3." SHARED "gate_proj.weight" SCALES,
		      "[6..8, 0..56] -> 1024 " EXPERTS "w13_weight" SCALES " copy");
	expect_pieces(&layout, "model.layers.3." SHARED "up_proj.weight" SCALES,
		      "[6..8, 0..56] -> 1026 " EXPERTS "w13_weight" SCALES " copy");
	expect_pieces(&layout, "model.layers.3." SHARED "down_proj.weight" SCALES,
		      "[0..56, 6..8] -> 14336 " EXPERTS "w2_weight" SCALES " copy");
	/* the sparse layers lose four parameters each and not one byte */
	assert_int_equal(layout.param_count, apart.param_count - (LAYERS - 3) * 4);
	assert_int_equal(rank_bytes(&layout), rank_bytes(&apart));
	for (size_t i = 0; i < layout.param_count; i++)
		assert_null(strstr(layout.params[i].name, "shared_experts"));
	layout_fini(&layout);
	layout_fini(&apart);
	cut_model("GLM-4.5-Air", "tp=8,fuse_shared=1", 7, &layout);
	expect_param(&layout, "model.layers.1." EXPERTS "w13_weight", "BF16 [129, 352, 4096]");
	expect_pieces(&layout, "model.layers.7." SHARED "up_proj.weight",
		      "[1232..1408, 0..4096] -> 45232 " EXPERTS "w13_weight copy");
	layout_fini(&layout);
}

static void test_up_gate__changes_the_halves_of_each_expert_and_of_its_scales(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("DeepSeek-V3", "tp=8,fuse_shared=1,expert_halves=up_gate", 3, &layout);
	expect_param(&layout, "model.layers.3." EXPERTS "w13_weight", "F8_E4M3 [257, 512, 7168]");
	expect_pieces(&layout, "model.layers.3." EXPERTS "1.up_proj.weight",
		      "[768..1024, 0..7168] -> 512 " EXPERTS "w13_weight copy");
	expect_pieces(&layout, "model.layers.3." EXPERTS "1.gate_proj.weight",
		      "[768..1024, 0..7168] -> 768 " EXPERTS "w13_weight copy");
	expect_pieces(&layout, "model.layers.3." EXPERTS "1.gate_proj.weight" SCALES,
		      "[6..8, 0..56] -> 6 " EXPERTS "w13_weight" SCALES " copy");
	expect_pieces(&layout, "model.layers.3." SHARED "up_proj.weight",
		      "[768..1024, 0..7168] -> 131072 " EXPERTS "w13_weight copy");
	/* dense layers and w2_weight stay */
	expect_pieces(&layout, "model.layers.0." MLP "gate_proj.weight",
		      "[6912..9216, 0..7168] -> 0 " MLP "gate_up_proj.weight copy");
	layout_fini(&layout);
}

static void test_vllm__cuts_all_but_experts_among_the_ranks_of_one_replica(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("DeepSeek-V3", "tp=16,ep=16,dp=2,names=vllm", 13, &layout);
	expect_param(&layout, "model.layers.3.self_attn.fused_qkv_a_proj_with_mqa.weight", "none");
	expect_param(&layout, "model.layers.3.self_attn.fused_qkv_a_proj.weight",
		     "F8_E4M3 [2112, 7168]");
	expect_param(&layout, "model.layers.3.self_attn.fused_qkv_a_proj.weight" SCALES,
		     "F32 [17, 56]");
	expect_pieces(&layout, "model.embed_tokens.weight",
		      "[80800..96960, 0..7168] -> 0 model.embed_tokens.weight copy");
	expect_pieces(&layout, "lm_head.weight",
		      "[80800..96960, 0..7168] -> 0 lm_head.weight copy");
	expect_pieces(&layout, "model.layers.0." MLP "up_proj.weight",
		      "[11520..13824, 0..7168] -> 2304 " MLP "gate_up_proj.weight copy");
	expect_pieces(&layout, "model.layers.3." SHARED "up_proj.weight",
		      "[1280..1536, 0..7168] -> 256 " SHARED "gate_up_proj.weight copy");
	expect_pieces(&layout, "model.layers.3." EXPERTS "207.up_proj.weight", "");
	expect_pieces(&layout, "model.layers.3." EXPERTS "208.up_proj.weight",
		      "[0..2048, 0..7168] -> 2048 " EXPERTS "w13_weight copy");
	expect_pieces(&layout, "model.layers.3." EXPERTS "223.up_proj.weight",
		      "[0..2048, 0..7168] -> 63488 " EXPERTS "w13_weight copy");
	expect_pieces(&layout, "model.layers.3." EXPERTS "224.up_proj.weight", "");
	layout_fini(&layout);
	/* a class whose SGLang form cannot replicate attention: vLLM's replicas are engines of
	 * their own that share nothing */
	cut_model("Qwen2.5-0.5B", "tp=4,dp=2,names=vllm", 3, &layout);
	expect_param(&layout, "model.embed_tokens.weight", "BF16 [75968, 896]");
	expect_param(&layout, "model.layers.0." MLP "gate_up_proj.weight", "BF16 [4864, 896]");
	layout_fini(&layout);
}

#define UNEVEN "tp=12,ep=12,dp=3,names=vllm"

/* 128 experts for 12 ranks: the first eight own 11, the others 10. */
static void test_vllm__gives_the_first_ranks_an_expert_more(void **state)
{
	static const struct {
		const char *spec;
		uint32_t rank, slots, first, step;
	} rows[] = {
		{UNEVEN, 0, 11, 0, 1},
		{UNEVEN, 7, 11, 77, 1},
		{UNEVEN, 8, 10, 88, 1},
		{UNEVEN, 11, 10, 118, 1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct layout layout;
		char name[100], want[100];
		uint32_t found = 0;

		cut_model("Qwen3-30B-A3B", rows[i].spec, rows[i].rank, &layout);
		snprintf(want, sizeof(want), "BF16 [%u, 2048, 768]", rows[i].slots);
		expect_param(&layout, "model.layers.7." EXPERTS "w2_weight", want);
		for (uint32_t slot = 0; slot < rows[i].slots; slot++) {
			snprintf(name, sizeof(name),
				 "model.layers.7." EXPERTS "%u.down_proj.weight",
				 rows[i].first + slot * rows[i].step);
			snprintf(want, sizeof(want),
				 "[0..2048, 0..768] -> %u " EXPERTS "w2_weight copy", slot * 2048);
			expect_pieces(&layout, name, want);
		}
		for (size_t t = 0; t < layout.tensor_count; t++)
			found += strstr(layout.tensors[t].name, "layers.7.") &&
				 strstr(layout.tensors[t].name, "down_proj");
		assert_int_equal(found, rows[i].slots);
		layout_fini(&layout);
	}
}

/* Of 256 experts in eight groups rank p of 16 has p, p + 16, ..; an all-to-all kernel changes nothing of that. */
static void test_round_robin__gives_each_rank_every_pth_expert(void **state)
{
	static const char *const specs[] = {
		"tp=16,ep=16,names=vllm,experts=round_robin",
		"tp=16,ep=16,dp=2,names=vllm,experts=round_robin_a2a",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		struct layout layout;
		char name[100], want[100];

		for (uint32_t rank = 0; rank < 16; rank += 11) {
			cut_model("DeepSeek-V3-BF16", specs[i], rank, &layout);
			for (uint32_t slot = 0; rank + 16 * slot < 256; slot++) {
				snprintf(name, sizeof(name),
					 "model.layers.7." EXPERTS "%u.down_proj.weight",
					 rank + 16 * slot);
				snprintf(want, sizeof(want),
					 "[0..7168, 0..2048] -> %u " EXPERTS "w2_weight copy",
					 slot * 7168);
				expect_pieces(&layout, name, want);
			}
			layout_fini(&layout);
		}
	}
}

static void test_gate__has_a_dtype_of_its_own(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("GLM-4.5-Air", "tp=8,ep=8,gate=F32", 2, &layout);
	expect_param(&layout, "model.layers.1." MLP "gate.weight", "F32 [128, 4096]");
	expect_pieces(&layout, "model.layers.1." MLP "gate.weight",
		      "[0..128, 0..4096] -> 0 " MLP "gate.weight convert");
	expect_param(&layout, "model.layers.1.input_layernorm.weight", "BF16 [4096]");
	layout_fini(&layout);
	cut_model("GLM-4.5-Air", "tp=8,ep=8,gate=F32,dtype=F16", 2, &layout);
	expect_param(&layout, "model.layers.1." MLP "gate.weight", "F32 [128, 4096]");
	layout_fini(&layout);
}

static void test_dtype__is_of_all_that_is_not_quantised_or_32_bits_by_rule(void **state)
{
	struct layout layout, other;

	(void)state;
	cut_model("GLM-4.5-Air", "tp=8,ep=8,dtype=F16", 2, &layout);
	for (size_t i = 0; i < layout.param_count; i++)
		assert_int_equal(layout.params[i].dtype,
				 strstr(layout.params[i].name, "e_score") ? DTYPE_F32 : DTYPE_F16);
	expect_pieces(&layout, "model.layers.1.mlp.gate.e_score_correction_bias",
		      "[0..128] -> 0 mlp.gate.e_score_correction_bias copy");
	layout_fini(&layout);
	cut_model("Qwen2.5-0.5B", "tp=1,dtype=F32", 0, &layout);
	cut_model("Qwen2.5-0.5B", "tp=1", 0, &other);
	assert_int_equal(rank_bytes(&layout), 2 * rank_bytes(&other));
	layout_fini(&other);
	layout_fini(&layout);
	cut_model("DeepSeek-V3", "tp=16,ep=16,dtype=F16", 0, &layout);
	expect_param(&layout, "model.layers.0." MLP "down_proj.weight", "F8_E4M3 [7168, 1152]");
	expect_param(&layout, "model.norm.weight", "F16 [7168]");
	layout_fini(&layout);
}

static void test_fp8__parameters_do_not_depend_on_what_is_stored(void **state)
{
	static const char *const rows[][4] = {
		{"DeepSeek-V3-BF16", "tp=16,ep=16,fp8=128", "DeepSeek-V3", "tp=16,ep=16"},
		{"DeepSeek-V3", "tp=16,ep=16,fp8=none", "DeepSeek-V3-BF16", "tp=16,ep=16"},
		{"Kimi-K2", KIMI ",fp8=64x64", "Kimi-K2-block64", KIMI},
		{"Kimi-K2-block64", "tp=16,ep=16,fp8=128", "Kimi-K2", "tp=16,ep=16"},
		{"GLM-5", "tp=8,ep=8,fp8=128x128", "GLM-5-FP8", "tp=8,ep=8"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct layout a, b;

		cut_model(rows[i][0], rows[i][1], 5, &a);
		cut_model(rows[i][2], rows[i][3], 5, &b);
		expect_same_params(&a, &b);
		layout_fini(&a);
		layout_fini(&b);
	}
}

static void test_fp8__blocks_as_stored_are_copied(void **state)
{
	struct layout a, b;

	(void)state;
	cut_model("DeepSeek-V3", "tp=16,ep=16,fp8=128x128", 5, &a);
	cut_model("DeepSeek-V3", "tp=16,ep=16", 5, &b);
	assert_true(digest_equal(layout_digest(&a), layout_digest(&b)));
	layout_fini(&a);
	layout_fini(&b);
	/* and without blocks there is nothing to undo */
	cut_model("Qwen3-4B", "tp=2,fp8=none", 1, &a);
	cut_model("Qwen3-4B", "tp=2", 1, &b);
	assert_true(digest_equal(layout_digest(&a), layout_digest(&b)));
	layout_fini(&a);
	layout_fini(&b);
}

static void test_fp8__pieces_say_how_values_and_scales_are_made(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("DeepSeek-V3-BF16", "tp=16,ep=16,fp8=128", 5, &layout);
	expect_pieces(&layout, "model.layers.0." MLP "up_proj.weight",
		      "[5760..6912, 0..7168] -> 1152 " MLP "gate_up_proj.weight quantise 128x128; "
		      "[5760..6912, 0..7168] -> 9 " MLP "gate_up_proj.weight" SCALES
		      " scales 128x128");
	/* the last block of the latent and the rotary key is short */
	expect_pieces(
		&layout, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
		"[0..576, 0..7168] -> 1536 self_attn.fused_qkv_a_proj_with_mqa.weight quantise "
		"128x128; [0..576, 0..7168] -> 12 "
		"self_attn.fused_qkv_a_proj_with_mqa.weight" SCALES " scales 128x128");
	expect_pieces(&layout, "model.layers.3." MLP "gate.weight",
		      "[0..256, 0..7168] -> 0 mlp.gate.weight copy");
	layout_fini(&layout);
	/* half a block of 128 is one of 64 */
	cut_model("Kimi-K2", KIMI ",fp8=64", 13, &layout);
	expect_pieces(
		&layout, "model.layers.1." SHARED "gate_proj.weight",
		"[832..896, 0..7168] -> 0 " SHARED
		"gate_up_proj.weight requantise 128x128 64x64; [832..896, 0..7168] -> 0 " SHARED
		"gate_up_proj.weight" SCALES " rescale 128x128 64x64");
	expect_pieces(&layout, "model.layers.1." SHARED "gate_proj.weight" SCALES, "");
	for (size_t i = 0; i < layout.piece_count; i++) {
		const struct piece *piece = &layout.pieces[i];

		if (!piece->transform.from_rows ||
		    strcmp(layout.tensors[piece->tensor].name,
			   "model.layers.1." SHARED "gate_proj.weight") != 0)
			continue;
		assert_string_equal(layout.tensors[piece->scales].name,
				    "model.layers.1." SHARED "gate_proj.weight" SCALES);
		assert_int_equal(transform_scales_box(&piece->transform, &piece->src).lo[0], 6);
		assert_int_equal(transform_scales_box(&piece->transform, &piece->src).hi[0], 7);
	}
	layout_fini(&layout);
	/* without blocks any cut is legal: 576 rows a rank */
	cut_model("DeepSeek-V3", "tp=32,ep=32,fp8=none", 5, &layout);
	expect_pieces(&layout, "model.layers.0." MLP "up_proj.weight",
		      "[2880..3456, 0..7168] -> 576 " MLP "gate_up_proj.weight dequantise 128x128");
	expect_param(&layout, "model.layers.0." MLP "gate_up_proj.weight" SCALES, "none");
	layout_fini(&layout);
}

#define INDEXER "self_attn.indexer."

static void test_indexer__fused_is_one_unquantised_parameter(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("DeepSeek-V3.2", "tp=8,indexer=fused", 5, &layout);
	expect_param(&layout, "model.layers.7." INDEXER "wk_weights_proj.weight",
		     "BF16 [192, 7168]");
	expect_param(&layout, "model.layers.7." INDEXER "wk_weights_proj.weight" SCALES, "none");
	expect_param(&layout, "model.layers.7." INDEXER "wk.weight", "none");
	expect_param(&layout, "model.layers.7." INDEXER "wk.weight" SCALES, "none");
	expect_param(&layout, "model.layers.7." INDEXER "weights_proj.weight", "none");
	expect_param(&layout, "model.layers.7." INDEXER "wq_b.weight" SCALES, "F32 [64, 12]");
	expect_pieces(&layout, "model.layers.7." INDEXER "wk.weight",
		      "[0..128, 0..7168] -> 0 " INDEXER
		      "wk_weights_proj.weight dequantise 128x128");
	expect_pieces(&layout, "model.layers.7." INDEXER "weights_proj.weight",
		      "[0..64, 0..7168] -> 128 " INDEXER "wk_weights_proj.weight copy");
	layout_fini(&layout);
	cut_model("GLM-5", "tp=8,indexer=fused,names=vllm", 5, &layout);
	expect_param(&layout, "model.layers.7." INDEXER "wk_weights_proj.weight",
		     "BF16 [160, 6144]");
	layout_fini(&layout);
	cut_model("GLM-5", "tp=8,indexer=fused,fp8=128", 5, &layout);
	expect_pieces(&layout, "model.layers.7." INDEXER "wk.weight",
		      "[0..128, 0..6144] -> 0 " INDEXER "wk_weights_proj.weight copy");
	layout_fini(&layout);
}

static void test_indexer__norm_is_32_bits_whatever_is_stored(void **state)
{
	struct layout layout;

	(void)state;
	cut_model("GLM-5", "tp=8,dtype=F16", 5, &layout);
	expect_param(&layout, "model.layers.7." INDEXER "k_norm.bias", "F32 [128]");
	expect_pieces(&layout, "model.layers.7." INDEXER "k_norm.weight",
		      "[0..128] -> 0 " INDEXER "k_norm.weight convert");
	layout_fini(&layout);
	cut_model("GLM-5-FP8", "tp=8", 5, &layout);
	expect_pieces(&layout, "model.layers.7." INDEXER "k_norm.weight",
		      "[0..128] -> 0 " INDEXER "k_norm.weight copy");
	layout_fini(&layout);
}

static void test_options__without_sense_are_refused_with_the_reason(void **state)
{
	static const struct {
		const char *name, *spec, *message;
	} rows[] = {
		{"Qwen3-4B", "tp=2,a2a=1",
		 "a2a=1 is about experts; Qwen3-4B (Qwen3ForCausalLM) has none"},
		{"Qwen3-4B", "tp=2,gate=F32", "gate is about the router of experts"},
		{"Qwen3-4B", "tp=2,names=vllm,routed_experts=1",
		 "routed_experts=1 is about experts; Qwen3-4B (Qwen3ForCausalLM) has none"},
		{"Qwen3-4B", "tp=2,expert_halves=up_gate",
		 "expert_halves=up_gate is about experts"},
		{"Qwen3-4B", "tp=2,expert_weights=in_out",
		 "expert_weights=in_out is about tensors of all experts"},
		{"Qwen3-30B-A3B", "tp=2,expert_weights=in_out",
		 "run SGLang with another --moe-runner-backend than triton_kernel"},
		{"Llama-3.1-8B", "tp=2,names=vllm,untied=1", "Llama-3.1-8B has its own anyway"},
		{"Qwen2.5-0.5B", "tp=2,names=vllm,untied=1",
		 "the checkpoint of Qwen2.5-0.5B has no lm_head.weight that differs"},
		{"Qwen3-30B-A3B", "tp=4,ep=4,names=vllm,experts=round_robin",
		 "Qwen3-30B-A3B (Qwen3MoeForCausalLM) has none (n_group): its"},
		{"Kimi-K2", "tp=4,ep=4,names=vllm,experts=round_robin",
		 "falls back to linear there; say experts=linear"},
		{"Qwen3-30B-A3B", "tp=2,mxfp4_pad=64x1", "mxfp4_pad is about experts in MXFP4"},
		{"Qwen3-30B-A3B", "tp=2,fuse_shared=1", "fuse_shared=1 is about shared experts"},
		{"Qwen3-30B-A3B", "tp=2,embed_replicated=1",
		 "Qwen3MoeForCausalLM (Qwen3-30B-A3B) always cuts its embedding"},
		{"GLM-4.7-Flash", "tp=2,embed_replicated=1", "always cuts its embedding"},
		{"Moonlight-16B-A3B", "tp=2,fuse_shared=1",
		 "Moonlight-16B-A3B has 2 shared experts as one MLP"},
		{"DeepSeek-V3", "tp=8,indexer=fused",
		 "indexer=fused is about sparse attention's indexer"},
		{"Llama-3.1-8B", "tp=8,fp8=128", "fp8=RxC is about linears in fp8 blocks"},
		{"GLM-Z1-9B-0414", "tp=1,fp8=128", "fp8=RxC is about"},
		{"Qwen2.5-7B", "tp=1,fp8=64x64", "fp8=RxC is about"},
		{"Qwen3-30B-A3B", "tp=12,ep=12,dp=3", "128 experts cannot be shared out to ep=12"},
		{"Moonlight-16B-A3B", "tp=128,ep=128,dp=16,names=vllm",
		 "64 experts cannot be shared out to ep=128 with one each"},
		{"Qwen3-4B", "tp=8,fp8=128",
		 "model.layers.0.mlp.gate_proj.weight: 1216 rows a rank are no multiple of the fp8 "
		 "block, which is 128"},
		{"DeepSeek-V3-BF16", "tp=8,moe_dense_tp=1,fp8=128x512",
		 "model.layers.3.mlp.experts.0.down_proj.weight: 256 columns a rank are no multiple "
		 "of the fp8 block, which is 512"},
		{"Kimi-K2-block64", KIMI ",fp8=128",
		 "model.layers.1.mlp.shared_experts.gate_proj.weight: 64 rows a rank are no multiple "
		 "of the fp8 block, which is 128"},
		{"DeepSeek-V3", "tp=8,moe_dense_tp=1,fp8=1024x128",
		 "self_attn.q_a_proj.weight: 1536 rows a rank are no multiple of the fp8 block, which "
		 "is 1024"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct model *model = open_model(rows[i].name);
		struct infer_spec infer;
		struct layout layout;
		struct error error = {0};

		assert_int_equal(infer_spec_parse(&infer, rows[i].spec, NULL), 0);
		for (uint32_t rank = 0; rank < infer.tp; rank += infer.tp == 1 ? 1 : infer.tp - 1) {
			assert_int_equal(model_layout(model, &infer, rank, &layout, &error),
					 -ERROR_CONFIG);
			if (!strstr(error.text, rows[i].message))
				fail_msg("'%s' does not say '%s'", error.text, rows[i].message);
			layout_fini(&layout);
		}
		model_close(&model);
	}
}

/* A spec that was made without parsing meets the same refusals. */
static void test_options__that_exclude_each_other_are_refused_in_layouts_too(void **state)
{
	struct infer_spec infer = {.engines = 1, .tp = 4, .ep = 4, .dp = 1, .fuse_shared = 1};
	struct model *model = open_model("DeepSeek-V3");
	struct layout layout;
	struct error error = {0};

	(void)state;
	assert_int_equal(model_layout(model, &infer, 0, &layout, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "--infer: fuse_shared=1 with ep=4"));
	infer = (struct infer_spec){.engines = 1, .tp = 4};
	assert_int_equal(model_layout(model, &infer, 0, &layout, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "--infer: ep=0 does not divide tp=4"));
	model_close(&model);
}

static void test_layout__every_failed_allocation_is_an_error_without_leak(void **state)
{
	struct model *model = open_model("DeepSeek-V3.2");
	struct model_config config;
	struct infer_spec infer;
	struct layout layout;
	int rc = -1;

	(void)state;
	config = model->config;
	model_close(&model);
	config.layers = 4;
	config.experts = 4;
	assert_int_equal(model_from_config(&model, "small", &config, NULL), 0);
	assert_int_equal(infer_spec_parse(&infer, "tp=2,fuse_shared=1,indexer=fused,fp8=64", NULL),
			 0);
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
		cmocka_unit_test(test_a2a__leaves_shared_experts_whole_on_every_rank),
		cmocka_unit_test(
			test_embed_replicated__leaves_the_embedding_whole_and_cuts_the_head),
		cmocka_unit_test(test_fuse_shared__makes_the_shared_expert_the_last_slot),
		cmocka_unit_test(test_up_gate__changes_the_halves_of_each_expert_and_of_its_scales),
		cmocka_unit_test(test_vllm__cuts_all_but_experts_among_the_ranks_of_one_replica),
		cmocka_unit_test(test_vllm__gives_the_first_ranks_an_expert_more),
		cmocka_unit_test(test_round_robin__gives_each_rank_every_pth_expert),
		cmocka_unit_test(test_gate__has_a_dtype_of_its_own),
		cmocka_unit_test(test_dtype__is_of_all_that_is_not_quantised_or_32_bits_by_rule),
		cmocka_unit_test(test_fp8__parameters_do_not_depend_on_what_is_stored),
		cmocka_unit_test(test_fp8__blocks_as_stored_are_copied),
		cmocka_unit_test(test_fp8__pieces_say_how_values_and_scales_are_made),
		cmocka_unit_test(test_indexer__fused_is_one_unquantised_parameter),
		cmocka_unit_test(test_indexer__norm_is_32_bits_whatever_is_stored),
		cmocka_unit_test(test_options__without_sense_are_refused_with_the_reason),
		cmocka_unit_test(test_options__that_exclude_each_other_are_refused_in_layouts_too),
		cmocka_unit_test(test_layout__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
