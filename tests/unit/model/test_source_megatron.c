/* SPDX-License-Identifier: Apache-2.0
 *
 * test_source_megatron.c -- what ranks of Megatron-Core hold: boxes of runs of it, and for each class that the rows know that all
 * ranks together have the checkpoint, each element of a local parameter once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "source_rig.h"

#define L0  "model.layers.0."
#define D0  "decoder.layers.0."
#define QKV D0 "self_attention.linear_qkv.weight"
#define FC1 D0 "mlp.linear_fc1.weight"
#define E   D0 "mlp.experts."

struct vector {
	const char *tensor;
	uint64_t row, row_end, column, column_end;
	const char *local;
	uint64_t offset, stride[2];
};

/* Exactly these boxes of that tensor. */
static void check_vectors(const char *architecture, const char *fields, const char *spec,
			  uint32_t rank, const struct vector *vectors, size_t count)
{
	struct model *model = source_open(architecture, fields, 2);
	struct holding holding;

	source_hold_rank(model, spec, rank, &holding);
	for (size_t v = 0; v < count; v++) {
		const struct vector *want = &vectors[v];
		const struct box box = {
			2, {want->row, want->column}, {want->row_end, want->column_end}};
		const struct held *held;
		uint32_t tensor;

		if (!strmap_get(&holding.tensor_names, want->tensor, &tensor))
			fail_msg("%s of rank %u of %s", want->tensor, rank, spec);
		held = holding_find(&holding, tensor, &box);
		if (!held || !box_equal(&held->box, &box))
			fail_msg("vector %zu, %s of rank %u of %s", v, want->tensor, rank, spec);
		assert_string_equal(holding.locals[held->local].name, want->local);
		assert_int_equal(held->place.offset, want->offset);
		assert_int_equal(held->place.stride[0], want->stride[0]);
		assert_int_equal(held->place.stride[1], want->stride[1]);
	}
	holding_fini(&holding);
	model_close(&model);
}

#define CHECK_VECTORS(class, fields, spec, rank, ...)                                  \
	check_vectors(class, fields, spec, rank, (const struct vector[]){__VA_ARGS__}, \
		      ARRAY_SIZE(((const struct vector[]){__VA_ARGS__})))

#define Q_PROJ L0 "self_attn.q_proj.weight"
#define K_PROJ L0 "self_attn.k_proj.weight"
#define V_PROJ L0 "self_attn.v_proj.weight"

static void test_megatron__heads_lie_group_by_group(void **state)
{
	(void)state;
	CHECK_VECTORS("Qwen3ForCausalLM", SOURCE_DENSE, "world=2,source=megatron,tp=2,vocab_pad=8",
		      1, {Q_PROJ, 16, 24, 0, 16, QKV, 0, {16, 1}},
		      {K_PROJ, 8, 12, 0, 16, QKV, 128, {16, 1}},
		      {V_PROJ, 8, 12, 0, 16, QKV, 192, {16, 1}},
		      {Q_PROJ, 24, 32, 0, 16, QKV, 256, {16, 1}},
		      {K_PROJ, 12, 16, 0, 16, QKV, 384, {16, 1}},
		      {V_PROJ, 12, 16, 0, 16, QKV, 448, {16, 1}});
	CHECK_VECTORS("Qwen3ForCausalLM", SOURCE_DENSE, "world=8,source=megatron,tp=8", 0,
		      {Q_PROJ, 0, 8, 0, 16, QKV, 0, {16, 1}});
	CHECK_VECTORS("Qwen3ForCausalLM", SOURCE_DENSE, "world=8,source=megatron,tp=8", 1,
		      {K_PROJ, 0, 4, 0, 16, QKV, 0, {16, 1}},
		      {V_PROJ, 0, 4, 0, 16, QKV, 64, {16, 1}});
	CHECK_VECTORS("Qwen3ForCausalLM", SOURCE_DENSE, "world=8,source=megatron,tp=8", 5,
		      {K_PROJ, 8, 12, 0, 16, QKV, 0, {16, 1}},
		      {V_PROJ, 8, 12, 0, 16, QKV, 64, {16, 1}});
}

/* With more ranks than groups a rank has queries alone, or keys and values alone. */
static void test_megatron__a_cut_may_lie_inside_of_a_group(void **state)
{
	struct model *model = source_open("Qwen3ForCausalLM", SOURCE_DENSE, 2);

	(void)state;
	for (uint32_t rank = 0; rank < 8; rank++) {
		struct holding holding;
		uint32_t index;

		source_hold_rank(model, "world=8,source=megatron,tp=8", rank, &holding);
		assert_int_equal(strmap_get(&holding.tensor_names, Q_PROJ, &index), rank % 2 == 0);
		assert_int_equal(strmap_get(&holding.tensor_names, K_PROJ, &index), rank % 2 == 1);
		assert_int_equal(strmap_get(&holding.tensor_names, V_PROJ, &index), rank % 2 == 1);
		assert_true(strmap_get(&holding.local_names, QKV, &index));
		assert_int_equal(holding.locals[index].shape[0], 8);
		assert_int_equal(holding.locals[index].shape[1], 16);
		holding_fini(&holding);
	}
	model_close(&model);
}

static void test_megatron__linears_and_vocabulary_are_cut_by_tp(void **state)
{
	(void)state;
	CHECK_VECTORS(
		"Qwen3ForCausalLM", SOURCE_DENSE, "world=2,source=megatron,tp=2,vocab_pad=8", 1,
		{L0 "self_attn.o_proj.weight",
		 0,
		 16,
		 16,
		 32,
		 D0 "self_attention.linear_proj.weight",
		 0,
		 {16, 1}},
		{L0 "mlp.gate_proj.weight", 12, 24, 0, 16, FC1, 0, {16, 1}},
		{L0 "mlp.up_proj.weight", 12, 24, 0, 16, FC1, 192, {16, 1}},
		{L0 "mlp.down_proj.weight", 0, 16, 12, 24, D0 "mlp.linear_fc2.weight", 0, {12, 1}},
		{"model.embed_tokens.weight",
		 128,
		 250,
		 0,
		 16,
		 "embedding.word_embeddings.weight",
		 0,
		 {16, 1}},
		{"lm_head.weight", 128, 250, 0, 16, "output_layer.weight", 0, {16, 1}});
	/* rows of both in one tensor, as GLM-4 has them */
	CHECK_VECTORS("Glm4ForCausalLM", SOURCE_DENSE, "world=2,source=megatron,tp=2", 1,
		      {L0 "mlp.gate_up_proj.weight", 12, 24, 0, 16, FC1, 0, {16, 1}},
		      {L0 "mlp.gate_up_proj.weight", 36, 48, 0, 16, FC1, 192, {16, 1}});
	/* and of all three, as Phi has them: groups 2 and 3 */
	CHECK_VECTORS("Phi3ForCausalLM", SOURCE_DENSE, "world=2,source=megatron,tp=2", 1,
		      {L0 "self_attn.qkv_proj.weight", 16, 24, 0, 16, QKV, 0, {16, 1}},
		      {L0 "self_attn.qkv_proj.weight", 40, 44, 0, 16, QKV, 128, {16, 1}},
		      {L0 "self_attn.qkv_proj.weight", 56, 60, 0, 16, QKV, 192, {16, 1}},
		      {L0 "self_attn.qkv_proj.weight", 24, 32, 0, 16, QKV, 256, {16, 1}});
}

static void test_megatron__experts_are_cut_by_ep_and_etp(void **state)
{
#define EXPERT(n, part) L0 "mlp.experts." #n "." part "_proj.weight"
#define SPARSE		"Qwen3MoeForCausalLM"
#define FIELDS		SOURCE_DENSE SOURCE_NUM_EXPERTS
#define GRID		"world=8,source=megatron,tp=4,ep=2,etp=2"
	(void)state;
	CHECK_VECTORS(SPARSE, FIELDS, GRID, 3,
		      {EXPERT(4, "gate"), 6, 12, 0, 16, E "linear_fc1.weight0", 0, {16, 1}},
		      {EXPERT(4, "up"), 6, 12, 0, 16, E "linear_fc1.weight0", 96, {16, 1}},
		      {EXPERT(4, "down"), 0, 16, 6, 12, E "linear_fc2.weight0", 0, {6, 1}},
		      {EXPERT(7, "gate"), 6, 12, 0, 16, E "linear_fc1.weight3", 0, {16, 1}});
	CHECK_VECTORS(SPARSE, FIELDS, GRID ",grouped=legacy", 3,
		      {EXPERT(4, "gate"), 6, 12, 0, 16, E "weight1", 0, {1, 12}},
		      {EXPERT(4, "up"), 6, 12, 0, 16, E "weight1", 6, {1, 12}},
		      {EXPERT(5, "gate"), 6, 12, 0, 16, E "weight1", 192, {1, 12}},
		      {EXPERT(5, "up"), 6, 12, 0, 16, E "weight1", 198, {1, 12}},
		      {EXPERT(4, "down"), 0, 16, 6, 12, E "weight2", 0, {1, 16}},
		      {EXPERT(7, "down"), 0, 16, 6, 12, E "weight2", 288, {1, 16}});
	CHECK_VECTORS(SPARSE, FIELDS, GRID ",grouped=one", 3,
		      {EXPERT(4, "gate"), 6, 12, 0, 16, E "linear_fc1.weight", 0, {16, 1}},
		      {EXPERT(4, "up"), 6, 12, 0, 16, E "linear_fc1.weight", 96, {16, 1}},
		      {EXPERT(5, "gate"), 6, 12, 0, 16, E "linear_fc1.weight", 192, {16, 1}},
		      {EXPERT(5, "down"), 0, 16, 6, 12, E "linear_fc2.weight", 96, {6, 1}});
}

/* What is added behind the vocabulary is in no box, and a rank may have nothing else. */
static void test_megatron__a_padded_vocabulary_is_held_as_far_as_it_goes(void **state)
{
	static const uint64_t ends[2][4] = {{63, 126, 189, 250}, {128, 250, 250, 250}};
	struct model *model = source_open("Qwen3ForCausalLM", SOURCE_DENSE, 2);

	(void)state;
	for (int padded = 0; padded < 2; padded++)
		for (uint32_t rank = 0; rank < 4; rank++) {
			static const char *const names[2] = {"model.embed_tokens.weight",
							     "lm_head.weight"};
			uint64_t from = rank ? ends[padded][rank - 1] : 0, to = ends[padded][rank];
			struct holding holding;

			source_hold_rank(model,
					 padded ? "world=4,source=megatron,tp=4"
						: "world=4,source=megatron,tp=4,vocab_pad=1",
					 rank, &holding);
			for (int n = 0; n < 2; n++) {
				struct box box = {2, {from, 0}, {to, 16}};
				uint32_t tensor;
				bool has = strmap_get(&holding.tensor_names, names[n], &tensor);

				assert_int_equal(has, from < to);
				if (!has)
					continue;
				const struct held *held = holding_find(&holding, tensor, &box);

				assert_non_null(held);
				assert_true(box_equal(&held->box, &box));
				assert_int_equal(holding.locals[held->local].shape[0],
						 padded ? 128 : 63);
			}
			holding_fini(&holding);
		}
	model_close(&model);
}

static bool has_local(const struct holding *holding, const char *name)
{
	uint32_t index;

	return strmap_get(&holding->local_names, name, &index);
}

static void test_megatron__a_tied_last_stage_has_a_copy_of_the_embedding(void **state)
{
	static const char *const fields[2] = {SOURCE_DENSE,
					      SOURCE_DENSE ", \"tie_word_embeddings\": true"};
	static const struct {
		const char *spec, *embedding, *head;
		uint32_t first, last; /* ranks */
	} rows[] = {
		{"world=2,source=megatron,tp=2", "embedding.word_embeddings.weight",
		 "output_layer.weight", 1, 1},
		{"world=4,source=megatron,tp=2,pp=2", "embedding.word_embeddings.weight",
		 "output_layer.weight", 1, 3},
		{"world=4,source=megatron,tp=2,pp=2,vpp=2",
		 "chunk0.embedding.word_embeddings.weight", "chunk1.output_layer.weight", 1, 3},
	};

	(void)state;
	for (int tied = 0; tied < 2; tied++)
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
			struct model *model = source_open("Qwen3ForCausalLM", fields[tied], 4);
			struct holding first, last;
			bool stages = rows[i].first != rows[i].last;
			uint32_t index;

			source_hold_rank(model, rows[i].spec, rows[i].first, &first);
			source_hold_rank(model, rows[i].spec, rows[i].last, &last);
			assert_true(has_local(&first, rows[i].embedding));
			assert_int_equal(has_local(&last, rows[i].embedding), !stages);
			assert_int_equal(has_local(&last, rows[i].head), !tied || stages);
			assert_int_equal(has_local(&first, rows[i].head), !tied && !stages);
			assert_int_equal(
				strmap_get(&last.tensor_names, "model.embed_tokens.weight", &index),
				tied || !stages);
			holding_fini(&first);
			holding_fini(&last);
			model_close(&model);
		}
}

/* Gemma has a norm behind each half of a layer too, and the one behind attention is called as that before the second half
 * is elsewhere. */
static void test_megatron__norms_are_where_the_class_has_them(void **state)
{
#define NORM_FC1  D0 "mlp.linear_fc1.layer_norm_weight"
#define NORM_POST D0 "self_attention.linear_proj.post_layernorm.weight"
	static const struct {
		const char *architecture, *tensor, *local;
	} rows[] = {
		{"Qwen3ForCausalLM", L0 "post_attention_layernorm.weight", NORM_FC1},
		{"Gemma3ForCausalLM", L0 "post_attention_layernorm.weight", NORM_POST},
		{"Gemma2ForCausalLM", L0 "post_attention_layernorm.weight", NORM_POST},
		{"Gemma2ForCausalLM", L0 "pre_feedforward_layernorm.weight", NORM_FC1},
		{"Gemma2ForCausalLM", L0 "post_feedforward_layernorm.weight",
		 D0 "mlp.linear_fc2.post_layernorm.weight"},
		{"Gemma2ForCausalLM", L0 "input_layernorm.weight",
		 D0 "self_attention.linear_qkv.layer_norm_weight"},
		{SPARSE, L0 "post_attention_layernorm.weight", D0 "pre_mlp_layernorm.weight"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct model *model = source_open(
			rows[i].architecture,
			strcmp(rows[i].architecture, SPARSE) == 0 ? FIELDS : SOURCE_DENSE, 2);
		static const struct box box = {1, {0}, {16}};
		struct holding holding;
		uint32_t tensor;

		source_hold_rank(model, "world=2,source=megatron,tp=2", 1, &holding);
		assert_true(strmap_get(&holding.tensor_names, rows[i].tensor, &tensor));
		assert_string_equal(
			holding.locals[holding_find(&holding, tensor, &box)->local].name,
			rows[i].local);
		holding_fini(&holding);
		model_close(&model);
	}
}

static bool is_vocabulary(const char *local)
{
	return strstr(local, "word_embeddings") || strstr(local, "output_layer");
}

#define GPT2                                                                        \
	"\"n_embd\": 16, \"n_head\": 8, \"n_positions\": 32, \"vocab_size\": 250, " \
	"\"torch_dtype\": \"float32\""
#define GPT_OSS SOURCE_DENSE ", \"num_local_experts\": 8"
#define QWEN3_NEXT                                                                                           \
	SOURCE_DENSE SOURCE_NUM_EXPERTS                                                                      \
		", \"shared_expert_intermediate_size\": 24, \"linear_num_key_heads\": 8, "                   \
		"\"linear_num_value_heads\": 16, \"linear_key_head_dim\": 3, \"linear_value_head_dim\": 5, " \
		"\"linear_conv_kernel_dim\": 4, \"full_attention_interval\": 2"

/* What Megatron's trainers alone are known to cut, and what they say beside. */
static const struct {
	struct source_class class;
	const char *keys;
} own_classes[] = {
	{{"GPT2LMHeadModel", GPT2, false}, ""},
	{{"GptOssForCausalLM", GPT_OSS, true}, ",etp=1,glu_interleave=1"},
	{{"Qwen3NextForCausalLM", QWEN3_NEXT, true}, ",out_norm=plus_one"},
	{{"Qwen3NextForCausalLM", QWEN3_NEXT, true},
	 ",out_norm=plus_one,glu_interleave=3,shared_glu_interleave=3"},
	{{"DeepseekV3ForCausalLM", SOURCE_LATENT SOURCE_SHARED ", \"q_lora_rank\": 8", true},
	 ",mtp=1"},
	{{"Glm4MoeForCausalLM", SOURCE_DENSE SOURCE_SHARED ", \"use_qk_norm\": true", true},
	 ",mtp=1,glu_interleave=3,shared_glu_interleave=3"},
};

static void check_all_ranks(const struct source_class *class, const char *text)
{
	struct model *model = source_open(class->architecture, class->fields, 4);
	struct train_spec spec = source_spec(text);
	struct source_union all;

	source_union_init(&all, model);
	if (spec.mtp)
		all.count = model->all_count;
	for (uint32_t rank = 0; rank < spec.world; rank++) {
		uint64_t covered[1024];
		struct holding holding;

		source_hold_rank(model, text, rank, &holding);
		assert_true(holding.local_count <= ARRAY_SIZE(covered));
		source_count_places(&holding, covered);
		for (size_t l = 0; l < holding.local_count; l++)
			if (covered[l] * dtype_bytes(holding.locals[l].dtype) !=
				    holding.locals[l].bytes &&
			    !is_vocabulary(holding.locals[l].name))
				fail_msg("%s of %s, %s: %llu elements of it",
					 holding.locals[l].name, model->name, text,
					 (unsigned long long)covered[l]);
		source_union_add(&all, &holding, true);
		holding_fini(&holding);
	}
	source_union_check(&all);
	model_close(&model);
}

static void test_megatron__all_ranks_have_the_checkpoint_whatever_the_class(void **state)
{
	static const char *const specs[] = {
		"world=1,source=megatron",
		"world=2,source=megatron,tp=2,vocab_pad=8",
		"world=8,source=megatron,tp=4,ep=2,etp=2",
		"world=8,source=megatron,tp=4,ep=2,etp=2,grouped=one",
		"world=8,source=megatron,tp=4,ep=2,etp=2,grouped=legacy",
		"world=8,source=megatron,tp=8,ep=8,etp=1",
		"world=8,source=megatron,tp=2,cp=2,pp=2,ep=1,etp=4",
		"world=8,source=megatron,tp=2,pp=2,vpp=2,ep=4,etp=1",
		"world=4,source=megatron,tp=1,pp=4,order=tp-cp-ep-pp-dp",
		"world=6,source=megatron,tp=2,pp=3,layers=1/3/0",
		"world=4,source=megatron,tp=4",
		"world=4,source=megatron,tp=2,pp=2,layout=Ett|(t|)*2L",
	};

	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
		bool of_experts = strstr(specs[s], "ep=") != NULL;

		for (size_t c = 0; c < ARRAY_SIZE(source_classes); c++)
			if (source_classes[c].experts || !of_experts)
				check_all_ranks(&source_classes[c], specs[s]);
		for (size_t c = 0; c < ARRAY_SIZE(own_classes); c++) {
			char text[256];

			if ((!own_classes[c].class.experts && of_experts) ||
			    (own_classes[c].keys[0] && strstr(specs[s], "grouped=")) ||
			    (strstr(own_classes[c].keys, "etp=") && strstr(specs[s], "etp=")) ||
			    (strstr(own_classes[c].keys, "mtp=") && strstr(specs[s], "layout=")) ||
			    (strstr(own_classes[c].keys, "glu_interleave=3") &&
			     source_spec(specs[s]).tp == 8))
				continue;
			snprintf(text, sizeof(text), "%s%s", specs[s], own_classes[c].keys);
			check_all_ranks(&own_classes[c].class, text);
		}
	}
}

/* ---- what the checkpoint has in another form ---- */

#define IN_PROJ	  D0 "self_attention.in_proj.weight"
#define QKVZ	  L0 "linear_attn.in_proj_qkvz.weight"
#define BA	  L0 "linear_attn.in_proj_ba.weight"
#define NEXT_SPEC "world=4,source=megatron,tp=4,out_norm=plus_one"

/* Two key heads of 3 rows, each with two value heads of 5, of 8 on rank 1 of 4; the gates of queries behind the queries. */
static void test_megatron__linear_attention_lies_kind_by_kind(void **state)
{
	(void)state;
	CHECK_VECTORS("Qwen3NextForCausalLM", QWEN3_NEXT, NEXT_SPEC, 1,
		      {QKVZ, 52, 55, 0, 16, IN_PROJ, 0, {16, 1}},
		      {QKVZ, 78, 81, 0, 16, IN_PROJ, 3 * 16, {16, 1}},
		      {QKVZ, 55, 58, 0, 16, IN_PROJ, 6 * 16, {16, 1}},
		      {QKVZ, 58, 68, 0, 16, IN_PROJ, 12 * 16, {16, 1}},
		      {QKVZ, 84, 94, 0, 16, IN_PROJ, 22 * 16, {16, 1}},
		      {QKVZ, 68, 78, 0, 16, IN_PROJ, 32 * 16, {16, 1}},
		      {BA, 8, 10, 0, 16, IN_PROJ, 52 * 16, {16, 1}},
		      {BA, 12, 14, 0, 16, IN_PROJ, 54 * 16, {16, 1}},
		      {BA, 10, 12, 0, 16, IN_PROJ, 56 * 16, {16, 1}});
#define L1 "model.layers.1.self_attn."
#define D1 "decoder.layers.1.self_attention.linear_qkv.weight"
	CHECK_VECTORS("Qwen3NextForCausalLM", QWEN3_NEXT, NEXT_SPEC, 1,
		      {L1 "q_proj.weight", 16, 20, 0, 16, D1, 0, {16, 1}},
		      {L1 "q_proj.weight", 24, 28, 0, 16, D1, 4 * 16, {16, 1}},
		      {L1 "q_proj.weight", 20, 24, 0, 16, D1, 8 * 16, {16, 1}},
		      {L1 "q_proj.weight", 28, 32, 0, 16, D1, 12 * 16, {16, 1}},
		      {L1 "k_proj.weight", 4, 8, 0, 16, D1, 16 * 16, {16, 1}},
		      {L1 "v_proj.weight", 4, 8, 0, 16, D1, 20 * 16, {16, 1}});
}

/* [in, out] on disk: rows of Megatron's are columns of the tensor. Heads of 2 rows, each a group of its own. */
static void test_megatron__a_linear_that_is_transposed_on_disk_has_its_last_stride(void **state)
{
#define H0 "transformer.h.0."
	(void)state;
	CHECK_VECTORS(
		"GPT2LMHeadModel", GPT2, "world=4,source=megatron,tp=4", 1,
		{H0 "attn.c_attn.weight", 0, 16, 4, 6, QKV, 0, {1, 16}},
		{H0 "attn.c_attn.weight", 0, 16, 20, 22, QKV, 2 * 16, {1, 16}},
		{H0 "attn.c_attn.weight", 0, 16, 36, 38, QKV, 4 * 16, {1, 16}},
		{H0 "attn.c_attn.weight", 0, 16, 6, 8, QKV, 6 * 16, {1, 16}},
		{H0 "attn.c_proj.weight",
		 4,
		 8,
		 0,
		 16,
		 D0 "self_attention.linear_proj.weight",
		 0,
		 {1, 4}},
		{H0 "mlp.c_fc.weight", 0, 16, 16, 32, FC1, 0, {1, 16}},
		{H0 "mlp.c_proj.weight", 16, 32, 0, 16, D0 "mlp.linear_fc2.weight", 0, {1, 16}});
}

/* Runs of 3 rows of gate, each with 3 of up behind it. */
static void test_megatron__gate_and_up_may_be_interleaved(void **state)
{
#define INTERLEAVED(more) GRID ",glu_interleave=3" more
	(void)state;
	CHECK_VECTORS(SPARSE, FIELDS, INTERLEAVED(""), 3,
		      {EXPERT(4, "gate"), 6, 9, 0, 16, E "linear_fc1.weight0", 0, {16, 1}},
		      {EXPERT(4, "up"), 6, 9, 0, 16, E "linear_fc1.weight0", 3 * 16, {16, 1}},
		      {EXPERT(4, "gate"), 9, 12, 0, 16, E "linear_fc1.weight0", 6 * 16, {16, 1}},
		      {EXPERT(4, "up"), 9, 12, 0, 16, E "linear_fc1.weight0", 9 * 16, {16, 1}},
		      {EXPERT(4, "down"), 0, 16, 6, 12, E "linear_fc2.weight0", 0, {6, 1}});
	CHECK_VECTORS(
		SPARSE, FIELDS, INTERLEAVED(",grouped=one"), 3,
		{EXPERT(5, "gate"), 6, 9, 0, 16, E "linear_fc1.weight", 192, {16, 1}},
		{EXPERT(5, "up"), 9, 12, 0, 16, E "linear_fc1.weight", 192 + 9 * 16, {16, 1}});
	/* shared experts by a key of their own: 12 rows a rank, 6 and 6 */
	CHECK_VECTORS("Glm4MoeForCausalLM", SOURCE_DENSE SOURCE_SHARED,
		      "world=2,source=megatron,tp=2,shared_glu_interleave=6", 1,
		      {"model.layers.1.mlp.shared_experts.up_proj.weight",
		       18,
		       24,
		       0,
		       16,
		       "decoder.layers.1.mlp.shared_experts.linear_fc1.weight",
		       18 * 16,
		       {16, 1}},
		      {L0 "mlp.up_proj.weight", 12, 24, 0, 16, FC1, 192, {16, 1}});
}

static void test_megatron__mtp_layers_are_in_the_last_chunk_of_their_stage(void **state)
{
	static const struct {
		const char *spec, *prefix;
		uint32_t rank, norm; /* of their stage, and of the last norm's: tp rank 1 */
	} rows[] = {
		{"world=2,source=megatron,tp=2,mtp=1", "", 1, 1},
		{"world=4,source=megatron,tp=2,pp=2,mtp=1", "", 3, 3},
		{"world=4,source=megatron,tp=2,pp=2,vpp=2,mtp=1", "chunk1.", 3, 3},
		{"world=6,source=megatron,tp=2,pp=3,layout=Etttt|m|L", "", 3, 1},
		{"world=6,source=megatron,tp=2,pp=3,layers=4/0/0,mtp=1,mtp_stage=1", "", 3, 1},
	};
	static const char *const names[] = {
		"mtp.layers.0.enorm.weight",
		"mtp.layers.0.hnorm.weight",
		"mtp.layers.0.final_layernorm.weight",
		"mtp.layers.0.transformer_layer.mlp.router.expert_bias",
		"mtp.layers.0.transformer_layer.self_attention.linear_kv_up_proj.weight",
		"mtp.layers.0.transformer_layer.mlp.experts.linear_fc1.weight7",
		"embedding.word_embeddings.weight",
	};
	struct model *model = source_open("DeepseekV3ForCausalLM",
					  SOURCE_LATENT SOURCE_SHARED ", \"q_lora_rank\": 8", 4);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		static const struct box half = {2, {8, 0}, {16, 32}};
		char name[160];
		struct holding holding;
		uint32_t tensor;

		source_hold_rank(model, rows[i].spec, rows[i].rank, &holding);
		for (size_t n = 0; n < ARRAY_SIZE(names); n++) {
			bool first = rows[i].rank == 1 &&
				     !strcmp(names[n], "embedding.word_embeddings.weight");

			snprintf(name, sizeof(name), "%s%s", first ? "" : rows[i].prefix, names[n]);
			if (!has_local(&holding, name))
				fail_msg("%s of %s", name, rows[i].spec);
		}
		assert_true(strmap_get(&holding.tensor_names, "model.layers.4.eh_proj.weight",
				       &tensor));
		const struct held *held = holding_find(&holding, tensor, &half);

		assert_non_null(held);
		assert_int_equal(held->place.offset, 0);
		assert_false(strmap_get(&holding.tensor_names, "model.layers.4.embed_tokens.weight",
					&tensor));
		assert_false(strmap_get(&holding.tensor_names,
					"model.layers.4.shared_head.head.weight", &tensor));
		/* .. and the last norm behind the last layer */
		assert_int_equal(strmap_get(&holding.tensor_names, "model.norm.weight", &tensor),
				 rows[i].norm == rows[i].rank);
		holding_fini(&holding);
		if (rows[i].rank == 1)
			continue;
		source_hold_rank(model, rows[i].spec, 1, &holding);
		assert_false(strmap_get(&holding.tensor_names, "model.layers.4.eh_proj.weight",
					&tensor));
		holding_fini(&holding);
	}
	model_close(&model);
}

/* What the trainer keeps a second time has names that no parameter of Megatron's has. */
static void test_megatron__what_is_a_copy_is_not_called_as_what_it_is_made_of(void **state)
{
	struct model *next = source_open("Qwen3NextForCausalLM", QWEN3_NEXT, 2),
		     *oss = source_open("GptOssForCausalLM", GPT_OSS, 2);
	struct holding holding;

	(void)state;
	source_hold_rank(next, NEXT_SPEC, 1, &holding);
	assert_true(has_local(&holding, D0 "self_attention.out_norm.weight_plus_one"));
	assert_false(has_local(&holding, D0 "self_attention.out_norm.weight"));
	assert_true(has_local(&holding, D0 "self_attention.in_proj.layer_norm_weight"));
	assert_true(has_local(&holding,
			      "decoder.layers.1.self_attention.linear_qkv.layer_norm_weight"));
	holding_fini(&holding);
	source_hold_rank(oss, "world=4,source=megatron,ep=4,glu_interleave=1", 1, &holding);
	assert_true(has_local(&holding, E "linear_fc1.weight1_in_turn"));
	assert_true(has_local(&holding, E "linear_fc1.bias0_in_turn"));
	assert_false(has_local(&holding, E "linear_fc1.weight0"));
	assert_true(has_local(&holding, E "linear_fc2.weight0"));
	assert_false(has_local(&holding, E "linear_fc2.weight2"));
	holding_fini(&holding);
	model_close(&next);
	model_close(&oss);
}

static void test_megatron__refuses_what_it_has_no_row_for(void **state)
{
	static const struct {
		const char *architecture, *fields, *spec;
		int code;
		const char *message;
	} rows[] = {
		{"GptOssForCausalLM", GPT_OSS, "tp=1", ERROR_UNSUPPORTED,
		 "mlp.experts.gate_up_proj of family gpt_oss: its checkpoint has gate and up row by row in turn"},
		{"GptOssForCausalLM", GPT_OSS, "glu_interleave=2", ERROR_UNSUPPORTED,
		 "linear_fc1.weight0_in_turn), made anew before each update, and say glu_interleave=1"},
		{"GptOssForCausalLM", GPT_OSS, "tp=2,glu_interleave=1", ERROR_CONFIG,
		 "Megatron cuts no experts with biases"},
		{"GptOssForCausalLM", GPT_OSS, "glu_interleave=1,grouped=one", ERROR_UNSUPPORTED,
		 "leave grouped= out"},
		{"GptOssForCausalLM",
		 "\"hidden_size\": 32, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 4, "
		 "\"intermediate_size\": 32, \"vocab_size\": 250, \"num_local_experts\": 8, "
		 "\"torch_dtype\": \"bfloat16\", \"quantization_config\": {\"quant_method\": \"mxfp4\"}",
		 "glu_interleave=1", ERROR_UNSUPPORTED, "Megatron holds what is not quantised"},
		{"Qwen3NextForCausalLM", QWEN3_NEXT, "tp=1", ERROR_UNSUPPORTED,
		 "Megatron's out_norm is this tensor less 1"},
		{SPARSE, FIELDS, "out_norm=plus_one", ERROR_CONFIG,
		 "out_norm is of linear attention"},
		{SPARSE, FIELDS, "glu_interleave=5", ERROR_CONFIG,
		 "glu_interleave=5: tensor model.layers.0.mlp.experts.0.gate_proj.weight has 12 rows"},
		{SPARSE, FIELDS, "glu_interleave=3,grouped=legacy", ERROR_CONFIG,
		 "does not interleave"},
		{SPARSE, FIELDS, "shared_glu_interleave=3", ERROR_CONFIG, "has none"},
		{SPARSE, FIELDS, "mtp=1", ERROR_CONFIG, "has 0 MTP layers"},
		{"Glm4MoeForCausalLM", SOURCE_DENSE SOURCE_SHARED, "mtp=2", ERROR_CONFIG,
		 "mtp=2, and Glm4MoeForCausalLM has 1 MTP layers"},
		{"Qwen3ForCausalLM", SOURCE_DENSE, "ep=2", ERROR_CONFIG,
		 "ep is of experts, and Qwen3ForCausalLM has none"},
		{"Qwen3ForCausalLM", SOURCE_DENSE, "etp=1", ERROR_CONFIG, "etp is of experts"},
		{"Qwen3ForCausalLM", SOURCE_DENSE, "grouped=one", ERROR_CONFIG,
		 "grouped is of experts"},
		{"Qwen3ForCausalLM", SOURCE_DENSE, "glu_interleave=4", ERROR_CONFIG,
		 "glu_interleave is of experts"},
		{"Qwen3ForCausalLM",
		 SOURCE_DENSE
		 ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [8, 8]}",
		 "tp=1", ERROR_UNSUPPORTED, "Megatron holds what is not quantised"},
		{"Qwen3ForCausalLM", SOURCE_DENSE, "tp=3", ERROR_CONFIG,
		 "tp=3 does not divide the 8 attention heads"},
		{"Qwen3ForCausalLM", SOURCE_DENSE, "tp=16", ERROR_CONFIG,
		 "tp=16 does not divide the 8 attention heads"},
		{"Qwen3ForCausalLM", SOURCE_DENSE, "tp=64", ERROR_CONFIG,
		 "tp=64 does not divide the 8 attention heads"},
		{"Qwen3ForCausalLM", SOURCE_DENSE, "pp=3", ERROR_CONFIG,
		 "2 layers are not laid out evenly"},
		{SPARSE, FIELDS, "ep=3", ERROR_CONFIG, "ep=3 does not divide the 8 experts"},
		{SPARSE, FIELDS, "etp=8", ERROR_CONFIG,
		 "experts.0.gate_proj.weight has 12 rows to cut, which etp=8"},
		{SPARSE, FIELDS, "etp=8,grouped=one", ERROR_CONFIG,
		 "experts.0.gate_proj.weight has 12 rows to cut, which etp=8"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct model *model = source_open(rows[i].architecture, rows[i].fields, 2);
		char spec[128];

		snprintf(spec, sizeof(spec), "world=192,source=megatron,%s", rows[i].spec);
		source_refused(model, spec, rows[i].code, rows[i].message);
		model_close(&model);
	}
}

static void test_megatron__every_failed_allocation_is_an_error_without_leak(void **state)
{
	struct model *model = source_open(SPARSE, FIELDS, 2);

	(void)state;
	source_fail_each(model, GRID, 3);
	model_close(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_megatron__heads_lie_group_by_group),
		cmocka_unit_test(test_megatron__a_cut_may_lie_inside_of_a_group),
		cmocka_unit_test(test_megatron__linears_and_vocabulary_are_cut_by_tp),
		cmocka_unit_test(test_megatron__experts_are_cut_by_ep_and_etp),
		cmocka_unit_test(test_megatron__a_padded_vocabulary_is_held_as_far_as_it_goes),
		cmocka_unit_test(test_megatron__a_tied_last_stage_has_a_copy_of_the_embedding),
		cmocka_unit_test(test_megatron__norms_are_where_the_class_has_them),
		cmocka_unit_test(test_megatron__all_ranks_have_the_checkpoint_whatever_the_class),
		cmocka_unit_test(test_megatron__linear_attention_lies_kind_by_kind),
		cmocka_unit_test(
			test_megatron__a_linear_that_is_transposed_on_disk_has_its_last_stride),
		cmocka_unit_test(test_megatron__gate_and_up_may_be_interleaved),
		cmocka_unit_test(test_megatron__mtp_layers_are_in_the_last_chunk_of_their_stage),
		cmocka_unit_test(test_megatron__what_is_a_copy_is_not_called_as_what_it_is_made_of),
		cmocka_unit_test(test_megatron__refuses_what_it_has_no_row_for),
		cmocka_unit_test(test_megatron__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
