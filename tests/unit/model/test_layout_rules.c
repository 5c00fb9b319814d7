/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layout_rules.c -- rank layouts of random small models at every tp, against a plain
 * restatement of the rules that says for one row at a time where it comes from.
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
#include <string.h>

/* Where one row (or element) of a parameter comes from; tensor "" is a fill. */
struct origin {
	char tensor[RULE_NAME_BYTES];
	uint64_t row, column, columns; /* columns 0: a one-dimensional tensor */
};

/* A parameter of the restatement: its rows, in order. */
struct expected {
	char name[RULE_NAME_BYTES];
	ARRAY(struct origin) rows;
};

struct case_ {
	struct model_config c;
	uint32_t tp, dp, dp_lm_head;
	bool llama, qwen2, glm4;
};

static void row(struct expected *param, const char *tensor, uint64_t at, uint64_t column,
		uint64_t columns)
{
	struct origin *origin = array_push(&param->rows);

	assert_non_null(origin);
	assert_true(strlen(tensor) < sizeof(origin->tensor));
	strcpy(origin->tensor, tensor);
	origin->row = at;
	origin->column = column;
	origin->columns = columns;
}

static void start(struct expected *param, const char *prefix, const char *name)
{
	int length = snprintf(param->name, sizeof(param->name), "%s%s", prefix, name);

	assert_true(length > 0 && (size_t)length < sizeof(param->name));
	param->rows.count = 0;
}

/* True when the layout gives exactly these rows to the parameter. */
static void compare(const struct layout *layout, const struct expected *expected)
{
	uint32_t param, element;
	uint64_t row_bytes = 0;

	if (!strmap_get(&layout->param_names, expected->name, &param))
		fail_msg("no parameter %s", expected->name);
	element = dtype_bytes(layout->params[param].dtype);
	assert_int_equal(layout->params[param].shape[0], expected->rows.count);
	row_bytes = layout->params[param].bytes / expected->rows.count;
	for (size_t r = 0; r < expected->rows.count; r++) {
		const struct origin *origin = &expected->rows.items[r];
		uint64_t offset = r * row_bytes;
		bool found = false;

		for (size_t f = 0; f < layout->fill_count && !origin->tensor[0]; f++)
			found |= layout->fills[f].param == param &&
				 layout->fills[f].offset <= offset &&
				 offset + row_bytes <=
					 layout->fills[f].offset + layout->fills[f].bytes;
		for (size_t p = 0; p < layout->piece_count && !found; p++) {
			const struct piece *piece = &layout->pieces[p];
			uint64_t in;

			if (piece->param != param || offset < piece->offset ||
			    offset >= piece->offset + piece->bytes)
				continue;
			in = (offset - piece->offset) / row_bytes;
			assert_string_equal(layout->tensors[piece->tensor].name, origin->tensor);
			assert_int_equal(piece->src.lo[0] + in, origin->row);
			if (origin->columns) {
				assert_int_equal(piece->src.lo[1], origin->column);
				assert_int_equal(piece->src.hi[1],
						 origin->column + origin->columns);
				assert_int_equal(row_bytes, origin->columns * element);
			} else {
				assert_int_equal(piece->src.dims, 1);
				assert_int_equal(row_bytes, element);
			}
			found = true;
		}
		if (!found)
			fail_msg("%s row %zu has no source", expected->name, r);
	}
}

static void expect_whole(const struct layout *layout, const char *prefix, const char *name,
			 uint64_t n, struct expected *param)
{
	start(param, prefix, name);
	for (uint64_t r = 0; r < n; r++)
		row(param, param->name, r, 0, 0);
	compare(layout, param);
}

static void expect_vocab(const struct layout *layout, const struct case_ *k, const char *name,
			 uint32_t rank, uint32_t n, struct expected *param)
{
	uint64_t each = (k->c.vocab_size + 63) / 64 * 64 / n;

	start(param, "", name);
	for (uint64_t r = rank * each; r < (rank + 1) * each; r++)
		row(param, r < k->c.vocab_size ? name : "", r, 0, k->c.hidden_size);
	compare(layout, param);
}

static void expect_attention(const struct layout *layout, const struct case_ *k, const char *prefix,
			     uint32_t t, struct expected *param)
{
	const struct model_config *c = &k->c;
	uint64_t A = k->tp / k->dp, a = t % A, d = c->head_dim, nh = c->heads / A;
	uint64_t nkv = A >= c->kv_heads ? 1 : c->kv_heads / A;
	uint64_t kv = A >= c->kv_heads ? a / (A / c->kv_heads) : a * nkv;
	uint64_t columns = c->heads * d / A;
	char name[RULE_NAME_BYTES];

	for (int bias = 0; bias <= (c->attention_bias ? 1 : 0); bias++) {
		const char *what = bias ? "bias" : "weight";
		uint64_t width = bias ? 0 : c->hidden_size;

		snprintf(name, sizeof(name), "self_attn.qkv_proj.%s", what);
		start(param, prefix, name);
		snprintf(name, sizeof(name), "%sself_attn.q_proj.%s", prefix, what);
		for (uint64_t r = a * nh * d; r < (a + 1) * nh * d; r++)
			row(param, name, r, 0, width);
		snprintf(name, sizeof(name), "%sself_attn.k_proj.%s", prefix, what);
		for (uint64_t r = kv * d; r < (kv + nkv) * d; r++)
			row(param, name, r, 0, width);
		snprintf(name, sizeof(name), "%sself_attn.v_proj.%s", prefix, what);
		for (uint64_t r = kv * d; r < (kv + nkv) * d; r++)
			row(param, name, r, 0, width);
		compare(layout, param);
	}
	start(param, prefix, "self_attn.o_proj.weight");
	for (uint64_t r = 0; r < c->hidden_size; r++)
		row(param, param->name, r, a * columns, columns);
	compare(layout, param);
	if (c->attention_bias && !k->qwen2 && !k->glm4)
		expect_whole(layout, prefix, "self_attn.o_proj.bias", c->hidden_size, param);
}

static void expect_mlp(const struct layout *layout, const struct case_ *k, const char *prefix,
		       uint32_t t, struct expected *param)
{
	uint64_t I = k->c.intermediate_size, each = I / k->tp, lo = t * each;
	static const char *const halves[] = {"gate", "up"};
	char name[RULE_NAME_BYTES];

	start(param, prefix, "mlp.gate_up_proj.weight");
	for (int half = 0; half < 2; half++) {
		snprintf(name, sizeof(name), "%smlp.%s_proj.weight", prefix,
			 k->glm4 ? "gate_up" : halves[half]);
		for (uint64_t r = lo; r < lo + each; r++)
			row(param, name, r + (k->glm4 && half ? I : 0), 0, k->c.hidden_size);
	}
	compare(layout, param);
	start(param, prefix, "mlp.down_proj.weight");
	for (uint64_t r = 0; r < k->c.hidden_size; r++)
		row(param, param->name, r, lo, each);
	compare(layout, param); /* SGLang's Llama has no biases here, whatever the config says */
}

static void expect_layout(const struct layout *layout, const struct case_ *k, uint32_t t)
{
	uint32_t attention = k->tp / k->dp;
	struct expected param = {0};
	size_t params = 2;

	expect_vocab(layout, k, "model.embed_tokens.weight",
		     k->llama || k->qwen2 ? t : t % attention,
		     k->llama || k->qwen2 ? k->tp : attention, &param);
	for (uint64_t layer = 0; layer < k->c.layers; layer++) {
		char prefix[64];

		snprintf(prefix, sizeof(prefix), "model.layers.%" PRIu64 ".", layer);
		expect_attention(layout, k, prefix, t, &param);
		expect_mlp(layout, k, prefix, t, &param);
		expect_whole(layout, prefix, "input_layernorm.weight", k->c.hidden_size, &param);
		expect_whole(layout, prefix, "post_attention_layernorm.weight", k->c.hidden_size,
			     &param);
		params += 6;
		if (k->c.attention_bias)
			params += k->qwen2 || k->glm4 ? 1 : 2;
		if (k->glm4) {
			expect_whole(layout, prefix, "post_self_attn_layernorm.weight",
				     k->c.hidden_size, &param);
			expect_whole(layout, prefix, "post_mlp_layernorm.weight", k->c.hidden_size,
				     &param);
			params += 2;
		} else if (!k->llama && !k->qwen2) {
			expect_whole(layout, prefix, "self_attn.q_norm.weight", k->c.head_dim,
				     &param);
			expect_whole(layout, prefix, "self_attn.k_norm.weight", k->c.head_dim,
				     &param);
			params += 2;
		}
	}
	expect_whole(layout, "", "model.norm.weight", k->c.hidden_size, &param);
	if (!k->c.tied) {
		bool own = k->dp_lm_head && !k->qwen2 && !k->glm4;

		expect_vocab(layout, k, "lm_head.weight", own ? t % attention : t,
			     own ? attention : k->tp, &param);
		params++;
	}
	assert_int_equal(layout->param_count, params);
	array_free(&param.rows);
}

static bool can_be_cut(const struct case_ *k)
{
	uint32_t A = k->tp / k->dp;
	uint64_t vocab = (k->c.vocab_size + 63) / 64 * 64;

	if (k->c.heads % A || k->c.intermediate_size % k->tp)
		return false;
	if (A >= k->c.kv_heads ? A % k->c.kv_heads : k->c.kv_heads % A)
		return false;
	if (vocab % (k->llama || k->qwen2 ? k->tp : A))
		return false;
	if (!k->c.tied && vocab % (k->dp_lm_head && !k->glm4 && !k->qwen2 ? A : k->tp))
		return false;
	return !((k->qwen2 || k->llama || k->glm4) && (k->dp > 1 || k->dp_lm_head));
}

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

/* Marks what the pieces read; at the end every element of every tensor was read by some rank. */
static void mark_used(const struct model *model, const struct layout *layout, bool **used)
{
	for (size_t p = 0; p < layout->piece_count; p++) {
		const struct piece *piece = &layout->pieces[p];
		int64_t t = model_find(model, layout->tensors[piece->tensor].name);
		const struct model_tensor *tensor;
		uint64_t columns, lo, hi;

		assert_true(t >= 0);
		tensor = &model->tensors[t];
		columns = tensor->dims > 1 ? tensor->shape[1] : 1;
		lo = tensor->dims > 1 ? piece->src.lo[1] : 0;
		hi = tensor->dims > 1 ? piece->src.hi[1] : 1;
		for (uint64_t r = piece->src.lo[0]; r < piece->src.hi[0]; r++)
			for (uint64_t c = lo; c < hi; c++)
				used[t][r * columns + c] = true;
	}
}

static void check_case(const struct case_ *k, int *cut, int *refused)
{
	struct infer_spec infer = {
		.engines = 1, .tp = k->tp, .ep = 1, .dp = k->dp, .dp_lm_head = k->dp_lm_head};
	struct model *model;
	bool **used;

	assert_int_equal(model_from_config(&model, "small", &k->c, NULL), 0);
	used = memory_zalloc(model->tensor_count, sizeof(*used));
	for (size_t t = 0; t < model->tensor_count; t++)
		used[t] = memory_zalloc(model->tensors[t].bytes, 1);
	for (uint32_t t = 0; t < k->tp; t++) {
		struct error error = {0};
		struct layout layout;
		int rc = model_layout(model, &infer, t, &layout, &error);

		if ((rc == 0) != can_be_cut(k))
			fail_msg("tp %u dp %u heads %" PRIu64 "/%" PRIu64 " V %" PRIu64
				 " I %" PRIu64 ": %s",
				 k->tp, k->dp, k->c.heads, k->c.kv_heads, k->c.vocab_size,
				 k->c.intermediate_size, rc ? error.text : "was cut");
		if (rc) {
			assert_int_equal(rc, -ERROR_CONFIG);
			assert_int_equal(layout.param_count, 0);
			(*refused)++;
			continue;
		}
		expect_layout(&layout, k, t);
		mark_used(model, &layout, used);
		layout_fini(&layout);
		(*cut)++;
	}
	for (size_t t = 0; t < model->tensor_count; t++) {
		bool skipped = strstr(model->tensors[t].name, "mlp.") &&
			       strstr(model->tensors[t].name, ".bias");

		for (uint64_t e = 0; e < model->tensors[t].bytes / 2 && can_be_cut(k); e++)
			assert_int_equal(used[t][e], !skipped);
		memory_free(used[t]);
	}
	memory_free(used);
	model_close(&model);
}

static void test_layout__random_small_models_at_every_tp_equal_the_restatement(void **state)
{
	static const char *const classes[] = {"LlamaForCausalLM", "Qwen2ForCausalLM",
					      "Qwen3ForCausalLM", "Glm4ForCausalLM"};
	static const uint64_t groups[] = {1, 2, 4, 3};
	uint64_t seed = 20261121;
	int cut = 0, refused = 0;

	(void)state;
	for (int round = 0; round < 240; round++) {
		struct case_ k = {0};
		uint64_t kind = next_random(&seed) % 4;
		uint32_t dps;
		bool without;

		k.llama = kind == 0;
		k.qwen2 = kind == 1;
		k.glm4 = kind == 3;
		k.c = (struct model_config){
			.family = family_find(classes[kind]),
			.hidden_size = 1 + next_random(&seed) % 6,
			.vocab_size = 1 + next_random(&seed) % 200,
			.layers = 1 + next_random(&seed) % 2,
			.kv_heads = groups[next_random(&seed) % 4],
			.head_dim = 1 + next_random(&seed) % 3,
			.intermediate_size =
				(1 + next_random(&seed) % 4) * (next_random(&seed) % 3 ? 8 : 1),
			.tied = next_random(&seed) % 2,
			.attention_bias = k.qwen2 || next_random(&seed) % 2,
			.mlp_bias = k.llama && next_random(&seed) % 2,
			.dtype = DTYPE_BF16,
		};
		k.c.heads = k.c.kv_heads * groups[next_random(&seed) % 4];
		/* what three of the classes never have, is not to be all that they are asked for */
		without = (k.llama || k.qwen2 || k.glm4) && next_random(&seed) % 4;
		dps = without ? 1 : 1u << next_random(&seed) % 3;
		for (uint32_t tp = 1; tp <= 8; tp++) {
			if (tp % dps)
				continue;
			k.tp = tp;
			k.dp = dps;
			k.dp_lm_head = !without && next_random(&seed) % 2;
			check_case(&k, &cut, &refused);
		}
	}
	/* the generator must give both kinds, or the test proves nothing */
	assert_true(cut > 500 && refused > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_layout__random_small_models_at_every_tp_equal_the_restatement),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
