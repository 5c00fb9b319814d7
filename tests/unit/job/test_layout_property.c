/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layout_property.c -- random small models of every class, at random parallel layouts and
 * options: each engine byte has one source, each element of a tensor is used by some rank, ranks of
 * one place in a group hold the same, and a layout is refused exactly where the divisions that an
 * engine needs do not come out (said here once more, by class name and not by the rows).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "model/family.h"
#include "model/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define RANKS_MAX 12

static uint64_t state;

/* splitmix64 */
static uint64_t random_u64(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t below(uint64_t n)
{
	return random_u64() % n;
}

static bool one_in(uint64_t n)
{
	return below(n) == 0;
}

#define PICK(...)            \
	((const uint64_t[]){ \
		__VA_ARGS__}[below(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))])

/* What a class is, by its name alone. */
struct class
{
	bool llama, qwen2, qwen3_moe, glm4, latent, deepseek, indexer, experts, shared, fp8;
	bool own_head[NAMES_COUNT]; /* of engines whose class never ties it */
	bool other;		    /* other: of a shape that this test has no picture of */
};

static struct class class_of(const struct family *family)
{
	const char *name = family->architecture;
	struct class class = {
		.llama = strcmp(name, "LlamaForCausalLM") == 0,
		.qwen2 = strcmp(name, "Qwen2ForCausalLM") == 0,
		.qwen3_moe = strcmp(name, "Qwen3MoeForCausalLM") == 0,
		.glm4 = strcmp(name, "Glm4ForCausalLM") == 0,
		.deepseek = strncmp(name, "Deepseek", 8) == 0 || strncmp(name, "GlmMoeDsa", 9) == 0,
		.indexer = strstr(name, "V32") || strstr(name, "Dsa"),
		.experts = strstr(name, "Moe") || strstr(name, "Deepseek"),
	};

	class.other = !class.llama && !class.qwen2 && strncmp(name, "Qwen3For", 8) != 0 &&
		      !class.qwen3_moe && strncmp(name, "Glm4", 4) != 0 && !class.deepseek;
	class.own_head[NAMES_SGLANG] = strstr(name, "Moe") && !strstr(name, "Dsa");
	class.own_head[NAMES_VLLM] = class.experts && !class.qwen3_moe;
	class.latent = class.deepseek || strstr(name, "Lite");
	class.shared = class.experts && !class.qwen3_moe;
	class.fp8 = class.experts || strcmp(name, "Qwen3ForCausalLM") == 0;
	return class;
}

static struct model_config random_config(const struct family *family)
{
	const struct class class = class_of(family);
	uint64_t unit = PICK(2, 4, 4, 6), kv = PICK(1, 2, 4);
	struct model_config config = {.family = family,
				      .hidden_size = 4 * unit,
				      .vocab_size = PICK(64, 100, 128),
				      .layers = PICK(1, 2, 3),
				      .heads = kv * PICK(1, 2, 4),
				      .tied = one_in(3),
				      .dtype = DTYPE_BF16};

	if (!class.latent) {
		config.kv_heads = kv;
		config.head_dim = PICK(unit, 2 * unit);
		config.attention_bias = class.qwen2 || one_in(2);
		config.qk_norm = one_in(2);
	}
	config.own_head = config.tied && (class.experts || one_in(2));
	config.expert_groups = class.shared ? PICK(0, 1, 2, 4) : 0;
	config.mlp_bias = class.llama && one_in(2);
	config.intermediate_size = unit * PICK(4, 8, 3);
	if (class.experts) {
		config.experts = PICK(2, 4, 8, 6);
		config.moe_intermediate_size = unit * PICK(2, 4, 3);
		config.router_bias = one_in(2);
	}
	if (class.shared) {
		config.shared_experts = PICK(0, 1, 1, 2);
		config.dense_layers = below(config.layers + 1);
		config.router_bias_cast = config.router_bias && one_in(3);
		config.mtp_layers = below(2);
	}
	if (class.latent) {
		config.q_lora_rank = class.indexer ? 2 * unit : PICK(0, 2 * unit, 3 * unit);
		config.kv_lora_rank = PICK(unit, 3);
		config.qk_nope_head_dim = unit;
		config.qk_rope_head_dim = PICK(2, unit);
		config.v_head_dim = PICK(unit, 2 * unit);
		config.rotary_tensors = config.hidden_size / config.heads >= 2 && one_in(3);
	}
	if (class.indexer) {
		config.index_heads = 2;
		config.index_head_dim = PICK(2, 6);
		config.index_every = PICK(1, 2);
		config.index_offset = PICK(0, 2);
	}
	if (class.fp8 && one_in(2)) {
		config.block_rows = PICK(1, 2, unit, 3);
		config.block_columns = PICK(1, 2, unit);
	}
	return config;
}

static struct infer_spec random_infer(const struct class *class, const struct model_config *config)
{
	struct infer_spec infer = {.engines = 1, .tp = (uint32_t)PICK(1, 2, 4, 4, 8, 12)};

	do
		infer.dp = (uint32_t)PICK(1, 1, 2, 3, 4);
	while (infer.tp % infer.dp);
	do
		infer.ep = (uint32_t)(class->experts ? PICK(1, 1, 2, 4, 3, infer.tp) : 1);
	while (infer.tp % infer.ep);
	infer.names = one_in(3) ? NAMES_VLLM : NAMES_SGLANG;
	infer.experts = one_in(infer.names == NAMES_VLLM ? 2 : 30) ? (uint32_t)PICK(1, 1, 2) : 0;
	infer.untied = one_in(infer.names == NAMES_VLLM && config->own_head ? 2 : 30);
	infer.routed_experts = one_in(infer.names == NAMES_VLLM ? (class->experts ? 2 : 20) : 30);
	if (infer.names == NAMES_SGLANG || one_in(12)) {
		infer.dp_lm_head = one_in(3);
		infer.moe_dense_tp = one_in(class->experts ? 3 : 20);
		infer.embed_replicated = one_in(class->deepseek ? 3 : 20);
		infer.fuse_shared = one_in(class->shared ? 4 : 20);
	}
	infer.a2a = one_in(class->experts ? 4 : 20);
	infer.gate = (uint32_t)(one_in(class->experts ? 3 : 20) ? PICK(DTYPE_F32, DTYPE_F16) : 0);
	infer.dtype = (uint32_t)(one_in(3) ? PICK(DTYPE_F32, DTYPE_F16, DTYPE_BF16) : 0);
	infer.indexer_fused = one_in(class->indexer ? 2 : 20);
	infer.fp8 = (uint32_t)(one_in(class->fp8 ? 2 : 20) ? PICK(FP8_BLOCKS, FP8_NONE) : 0);
	if (infer.fp8 == FP8_BLOCKS) {
		infer.fp8_rows = (uint32_t)PICK(1, 2, 3, 4);
		infer.fp8_columns = (uint32_t)PICK(1, 2, 4);
	}
	return infer;
}

/* The sizes of the groups that cut something. */
struct sizes {
	uint64_t all, attention, embedding, head, dense, shared, expert;
};

static struct sizes sizes_of(const struct class *class, const struct infer_spec *infer)
{
	uint64_t attention = infer->tp / infer->dp;
	uint64_t all = infer->names == NAMES_VLLM ? attention : infer->tp;
	struct sizes sizes = {.all = all,
			      .attention = class->qwen2 ? all : attention,
			      .embedding = class->llama || class->qwen2 ? all : attention,
			      .head = all,
			      .dense = infer->moe_dense_tp ? 1 : all,
			      .shared = infer->a2a ? 1 : all,
			      .expert = infer->tp / infer->ep};

	if (infer->embed_replicated)
		sizes.embedding = 1;
	if (infer->dp_lm_head && !class->qwen2 && !class->glm4)
		sizes.head = attention;
	if (infer->fuse_shared)
		sizes.shared = sizes.expert;
	return sizes;
}

/* Experts in turn: of a model with groups of them and, between dp's ranks, with a kernel that does it. */
static bool in_turn(const struct model_config *config, const struct infer_spec *infer)
{
	bool between = infer->ep > 1 && infer->dp > 1;

	if (infer->experts == EXPERTS_LINEAR)
		return true;
	return (infer->ep == 1 || config->expert_groups > 1) &&
	       between == (infer->experts == EXPERTS_ROUND_ROBIN_A2A);
}

/* Can an engine of this class be started with these options at all? */
static bool has_sense(const struct class *class, const struct model_config *config,
		      const struct infer_spec *infer)
{
	if (!in_turn(config, infer) ||
	    (infer->untied && (infer->names != NAMES_VLLM || !config->own_head)))
		return false;
	if (infer->names == NAMES_VLLM) {
		if (infer->dp_lm_head || infer->moe_dense_tp || infer->embed_replicated ||
		    infer->fuse_shared || (infer->ep != 1 && infer->ep != infer->tp))
			return false;
		if (class->experts && config->experts < infer->ep)
			return false;
	} else {
		if (infer->experts || infer->routed_experts ||
		    ((class->qwen2 || class->llama || class->glm4) &&
		     (infer->dp > 1 || infer->dp_lm_head)))
			return false;
		if (class->experts && config->experts % infer->ep)
			return false;
	}
	if (!class->experts && (infer->ep > 1 || infer->moe_dense_tp || infer->a2a || infer->gate ||
				infer->routed_experts))
		return false;
	if (infer->fuse_shared && (infer->ep > 1 || infer->a2a || config->shared_experts != 1))
		return false;
	return (class->deepseek || !infer->embed_replicated) &&
	       (class->indexer || !infer->indexer_fused) &&
	       (class->fp8 || infer->fp8 != FP8_BLOCKS);
}

static bool all_divide(const struct class *class, const struct model_config *c,
		       const struct infer_spec *infer, const struct sizes *n)
{
	uint64_t vocab = (c->vocab_size + 63) / 64 * 64;
	bool sparse = class->experts && c->dense_layers < c->layers;
	bool dense = !class->qwen3_moe && (!class->experts || c->dense_layers);

	if (c->heads % n->attention || vocab % n->embedding)
		return false;
	if ((!c->tied || class->own_head[infer->names] || infer->untied) && vocab % n->head)
		return false;
	if (!class->latent &&
	    (n->attention < c->kv_heads ? c->kv_heads % n->attention : n->attention % c->kv_heads))
		return false;
	if (dense && c->intermediate_size % n->dense)
		return false;
	return !sparse || (c->moe_intermediate_size % n->expert == 0 &&
			   c->moe_intermediate_size * c->shared_experts % n->shared == 0);
}

/* gate on up, and down beside them: shares of `size` in `n`, checked as a whole when `strict`. */
static bool mlp_aligned(uint64_t size, uint64_t n, bool strict, const uint64_t block[2])
{
	return size / n % block[0] == 0 && ((n == 1 && !strict) || size / n % block[1] == 0);
}

static bool all_aligned(const struct class *class, const struct model_config *c,
			const struct sizes *n, uint32_t tp, const uint64_t block[2])
{
	uint64_t heads = c->heads / n->attention, kv;
	bool cut = n->attention > 1;

	if (!class->latent) {
		kv = n->attention < c->kv_heads ? c->kv_heads / n->attention : 1;
		if (heads * c->head_dim % block[0] || kv * c->head_dim % block[0] ||
		    (cut && heads * c->head_dim % block[1]))
			return false;
	} else {
		if (cut && (heads * (c->qk_nope_head_dim + c->qk_rope_head_dim) % block[0] ||
			    heads * (c->qk_nope_head_dim + c->v_head_dim) % block[0] ||
			    heads * c->v_head_dim % block[1]))
			return false;
		if (c->q_lora_rank % block[0])
			return false;
	}
	if (!class->qwen3_moe && (!class->experts || c->dense_layers) &&
	    !mlp_aligned(c->intermediate_size, n->dense, false, block))
		return false;
	if (!class->experts || c->dense_layers == c->layers)
		return true;
	return mlp_aligned(c->moe_intermediate_size, n->expert, tp > 1, block) &&
	       mlp_aligned(c->moe_intermediate_size * c->shared_experts, n->shared, false, block);
}

static bool can_be_cut(const struct class *class, const struct model_config *config,
		       const struct infer_spec *infer)
{
	uint64_t block[2] = {config->block_rows, config->block_columns};
	struct sizes sizes;

	if (!has_sense(class, config, infer))
		return false;
	sizes = sizes_of(class, infer);
	if (infer->fp8 == FP8_BLOCKS) {
		block[0] = infer->fp8_rows;
		block[1] = infer->fp8_columns;
	}
	if (!all_divide(class, config, infer, &sizes))
		return false;
	return infer->fp8 == FP8_NONE || !block[0] ||
	       all_aligned(class, config, &sizes, infer->tp, block);
}

/* Ranks with one key hold the same of a parameter. */
static uint64_t key_of(const char *param, const struct sizes *n, const struct infer_spec *infer,
		       uint32_t rank)
{
	if (strstr(param, "mlp.experts."))
		return rank / n->expert % infer->ep * RANKS_MAX + rank % n->expert;
	if (strstr(param, "shared_experts"))
		return rank % n->shared;
	if (strstr(param, "self_attn"))
		return rank % n->attention;
	if (strstr(param, "gate_up_proj") || strstr(param, "down_proj"))
		return rank % n->dense;
	if (strstr(param, "embed_tokens"))
		return rank % n->embedding;
	return strstr(param, "lm_head") ? rank % n->head : 0;
}

struct trial {
	const struct model *model;
	const struct infer_spec *infer;
	const struct sizes *sizes;
	unsigned char **used; /* elements of each tensor of the model */
	struct layout layouts[RANKS_MAX];
};

static void mark_used(const struct trial *trial, const struct layout *layout, uint32_t tensor,
		      const struct box *box)
{
	const struct tensor_info *info = &layout->tensors[tensor];
	int64_t at = model_find(trial->model, info->name);
	uint64_t columns = info->dims > 1 ? info->shape[1] : 1;
	uint64_t lo = info->dims > 1 ? box->lo[1] : 0, hi = info->dims > 1 ? box->hi[1] : 1;

	assert_true(at >= 0 && at < (int64_t)trial->model->tensor_count);
	for (uint64_t row = box->lo[0]; row < box->hi[0]; row++)
		memset(trial->used[at] + row * columns + lo, 1, hi - lo);
}

/* Every byte of every parameter once, and what it is made of. */
static void check_rank(const struct trial *trial, const struct layout *layout)
{
	unsigned char **bytes = calloc(layout->param_count, sizeof(*bytes));

	for (size_t p = 0; p < layout->param_count; p++)
		bytes[p] = calloc(1, layout->params[p].bytes);
	for (size_t i = 0; i < layout->piece_count; i++) {
		const struct piece *piece = &layout->pieces[i];

		for (uint64_t b = 0; b < piece->bytes; b++)
			bytes[piece->param][piece->offset + b]++;
		mark_used(trial, layout, piece->tensor, &piece->src);
		if (piece->transform.from_rows) {
			struct box box = transform_scales_box(&piece->transform, &piece->src);

			mark_used(trial, layout, piece->scales, &box);
		}
	}
	for (size_t i = 0; i < layout->fill_count; i++)
		for (uint64_t b = 0; b < layout->fills[i].bytes; b++)
			bytes[layout->fills[i].param][layout->fills[i].offset + b]++;
	for (size_t p = 0; p < layout->param_count; p++) {
		for (uint64_t b = 0; b < layout->params[p].bytes; b++)
			if (bytes[p][b] != 1)
				fail_msg("byte %llu of %s has %d sources", (unsigned long long)b,
					 layout->params[p].name, bytes[p][b]);
		free(bytes[p]);
	}
	free(bytes);
}

/* A number of all that a rank has of a parameter. */
static uint64_t param_digest(const struct layout *layout, uint32_t param)
{
	const struct tensor_info *info = &layout->params[param];
	uint64_t sum = XXH3_64bits(info->shape, info->dims * sizeof(info->shape[0])) + info->dtype;

	for (size_t i = 0; i < layout->piece_count; i++) {
		const struct piece *piece = &layout->pieces[i];
		const char *name = layout->tensors[piece->tensor].name;
		uint64_t words[] = {piece->offset,
				    piece->bytes,
				    piece->src.lo[0],
				    piece->src.hi[0],
				    piece->src.lo[1],
				    piece->src.hi[1],
				    piece->transform.part,
				    piece->transform.from_rows,
				    piece->transform.to_rows,
				    XXH3_64bits(name, strlen(name))};

		if (piece->param == param)
			sum += XXH3_64bits(words, sizeof(words));
	}
	return sum;
}

static void check_equals(const struct trial *trial)
{
	const struct layout *first = &trial->layouts[0];
	uint64_t digests[RANKS_MAX], keys[RANKS_MAX];

	for (uint32_t p = 0; p < first->param_count; p++) {
		const char *name = first->params[p].name;

		for (uint32_t r = 0; r < trial->infer->tp; r++) {
			uint32_t at;

			assert_int_equal(trial->layouts[r].param_count, first->param_count);
			assert_true(strmap_get(&trial->layouts[r].param_names, name, &at));
			digests[r] = param_digest(&trial->layouts[r], at);
			keys[r] = key_of(name, trial->sizes, trial->infer, r);
			for (uint32_t o = 0; o < r; o++)
				if (keys[o] == keys[r] && digests[o] != digests[r])
					fail_msg("%s differs on ranks %u and %u", name, o, r);
		}
	}
}

/* A tensor that no parameter of this engine is made of. */
static bool is_skipped(const struct model *model, const char *tensor,
		       const struct infer_spec *infer)
{
	const struct class class = class_of(model->config.family);

	if (strcmp(tensor, "lm_head.weight") == 0)
		return model->config.tied && !infer->untied && !class.own_head[infer->names];
	if (infer->names == NAMES_VLLM)
		return strstr(tensor, "o_proj.bias") &&
		       strstr(model->config.family->architecture, "Qwen3");
	return class.llama && strstr(tensor, "mlp.") && strstr(tensor, ".bias");
}

static void check_trial(const struct model *model, const struct infer_spec *infer,
			const struct sizes *sizes)
{
	struct trial trial = {model, infer, sizes, NULL, {{0}}};
	struct error error = {0};

	trial.used = calloc(model->tensor_count, sizeof(*trial.used));
	for (size_t t = 0; t < model->tensor_count; t++)
		trial.used[t] = calloc(1, model->tensors[t].bytes);
	for (uint32_t rank = 0; rank < infer->tp; rank++) {
		if (model_layout(model, infer, rank, &trial.layouts[rank], &error))
			fail_msg("%s", error.text);
		check_rank(&trial, &trial.layouts[rank]);
	}
	check_equals(&trial);
	for (size_t t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		uint64_t elements = tensor->bytes / dtype_bytes(tensor->dtype), count = 0;

		for (uint64_t e = 0; e < elements; e++)
			count += trial.used[t][e];
		if (count !=
		    (strstr(tensor->name, "inv_freq") || is_skipped(model, tensor->name, infer)
			     ? 0
			     : elements))
			fail_msg("%llu of %llu elements of %s are used", (unsigned long long)count,
				 (unsigned long long)elements, tensor->name);
		free(trial.used[t]);
	}
	free(trial.used);
	for (uint32_t rank = 0; rank < infer->tp; rank++)
		layout_fini(&trial.layouts[rank]);
}

static void check_refused(const struct model *model, const struct infer_spec *infer,
			  const char *what)
{
	struct layout layout;
	struct error error = {0};

	for (uint32_t rank = 0; rank < infer->tp; rank++) {
		if (model_layout(model, infer, rank, &layout, &error) != -ERROR_CONFIG)
			fail_msg("rank %u is not refused: %s", rank, what);
		layout_fini(&layout);
	}
}

/* Options that were part of a layout that could be cut, so that none is only ever refused. */
static void note_options(const struct infer_spec *infer, uint32_t *seen)
{
	const bool options[] = {infer->dp > 1,
				infer->ep > 1,
				infer->dp_lm_head,
				infer->moe_dense_tp,
				infer->a2a,
				infer->fuse_shared,
				infer->embed_replicated,
				infer->names == NAMES_VLLM,
				infer->experts == EXPERTS_ROUND_ROBIN,
				infer->experts == EXPERTS_ROUND_ROBIN_A2A,
				infer->untied,
				infer->routed_experts,
				infer->gate,
				infer->indexer_fused,
				infer->dtype,
				infer->fp8 == FP8_BLOCKS,
				infer->fp8 == FP8_NONE};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		*seen |= (uint32_t)options[i] << i;
}

#define ALL_OPTIONS ((1u << 17) - 1)

static void test_layout__of_random_models_is_whole_or_refused_by_a_division(void **unused)
{
	uint32_t seen = 0;

	(void)unused;
	for (size_t f = 0; families[f]; f++) {
		const struct class class = class_of(families[f]);
		unsigned cut = 0, in_blocks = 0, refused = 0;

		if (class.other) /* held to what engines' own loaders did (tests/engines/compared) */
			continue;
		state = 1000 + f;
		while (cut < 60 || refused < 20 || (class.fp8 && in_blocks < 20)) {
			struct model_config config = random_config(families[f]);
			struct infer_spec infer = random_infer(&class, &config);
			struct sizes sizes = sizes_of(&class, &infer);
			char spec[PARALLEL_TEXT_BYTES], what[PARALLEL_TEXT_BYTES + 64];
			struct model *model;

			assert_int_equal(model_from_config(&model, "random", &config, NULL), 0);
			if (can_be_cut(&class, &config, &infer)) {
				check_trial(model, &infer, &sizes);
				note_options(&infer, &seen);
				in_blocks += infer.fp8 == FP8_BLOCKS;
				cut++;
			} else {
				infer_spec_text(&infer, spec);
				snprintf(what, sizeof(what), "%s %s", families[f]->architecture,
					 spec);
				check_refused(model, &infer, what);
				refused++;
			}
			model_close(&model);
			assert_true(cut + refused < 4000);
		}
	}
	assert_int_equal(seen, ALL_OPTIONS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout__of_random_models_is_whole_or_refused_by_a_division),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
