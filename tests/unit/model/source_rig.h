/* SPDX-License-Identifier: Apache-2.0
 *
 * source_rig.h -- small models of each class, what each trainer holds of them, and whether that adds up to the checkpoint.
 */
#ifndef TESTS_SOURCE_RIG_H
#define TESTS_SOURCE_RIG_H

#include "base/array.h"
#include "base/memory.h"
#include "job/box_cover.h"
#include "model/config.h"
#include "model/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of the vectors of Megatron: H16 h8 g4 d4 I24 V250, E8 M12. */
#define SOURCE_DENSE \
	"\"hidden_size\": 16, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 4, " \
	"\"intermediate_size\": 24, \"vocab_size\": 250, \"torch_dtype\": \"bfloat16\""
#define SOURCE_LATENT \
	SOURCE_DENSE ", \"kv_lora_rank\": 6, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, \"v_head_dim\": 3"
#define SOURCE_SHARED \
	", \"n_routed_experts\": 8, \"moe_intermediate_size\": 12, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, " \
	"\"num_nextn_predict_layers\": 1"
#define SOURCE_NUM_EXPERTS ", \"num_experts\": 8, \"moe_intermediate_size\": 12"

static const struct source_class {
	const char *architecture, *fields;
	bool experts;
} source_classes[] = {
	{"LlamaForCausalLM", SOURCE_DENSE ", \"attention_bias\": true, \"mlp_bias\": true", false},
	{"Qwen2ForCausalLM", SOURCE_DENSE ", \"tie_word_embeddings\": true", false},
	{"Qwen3ForCausalLM", SOURCE_DENSE, false},
	{"Glm4ForCausalLM", SOURCE_DENSE ", \"attention_bias\": true", false},
	{"MistralForCausalLM", SOURCE_DENSE, false},
	{"Phi3ForCausalLM", SOURCE_DENSE, false},
	{"Gemma2ForCausalLM", SOURCE_DENSE, false},
	{"Gemma2ForCausalLM", SOURCE_DENSE ", \"tie_word_embeddings\": false", false},
	{"Gemma3ForCausalLM", SOURCE_DENSE, false},
	{"Qwen3MoeForCausalLM", SOURCE_DENSE SOURCE_NUM_EXPERTS, true},
	{"Qwen2MoeForCausalLM",
	 SOURCE_DENSE SOURCE_NUM_EXPERTS ", \"shared_expert_intermediate_size\": 24", true},
	{"MixtralForCausalLM", SOURCE_DENSE ", \"num_local_experts\": 8", true},
	{"Glm4MoeForCausalLM", SOURCE_DENSE SOURCE_SHARED ", \"use_qk_norm\": true, \"attention_bias\": true", true},
	{"Glm4MoeLiteForCausalLM", SOURCE_LATENT SOURCE_SHARED ", \"q_lora_rank\": 8", true},
	{"DeepseekV2ForCausalLM", SOURCE_LATENT SOURCE_SHARED ", \"q_lora_rank\": null, \"topk_method\": \"greedy\", "
	 "\"weft_rotary_inv_freq\": true", true},
	{"DeepseekV3ForCausalLM",
	 SOURCE_LATENT SOURCE_SHARED ", \"q_lora_rank\": 8, \"weft_rotary_inv_freq\": true", true},
	{"DeepseekV32ForCausalLM",
	 SOURCE_LATENT SOURCE_SHARED ", \"q_lora_rank\": 8, \"index_n_heads\": 2, \"index_head_dim\": 4", true},
	{"GlmMoeDsaForCausalLM",
	 SOURCE_LATENT SOURCE_SHARED ", \"q_lora_rank\": 8, \"index_n_heads\": 2, \"index_head_dim\": 4", true},
};

/* Rotary frequencies, which some checkpoints have, are nobody's parameter. */
#define SOURCE_BUFFER "inv_freq"

static inline struct model *source_open(const char *architecture, const char *fields, int layers)
{
	char text[1024];
	struct model_config config;
	struct model *model;
	struct error error = {0};
	int n = snprintf(text, sizeof(text),
			 "{\"architectures\": [\"%s\"], \"num_hidden_layers\": %d, %s}",
			 architecture, layers, fields);

	assert_true(n < (int)sizeof(text));
	if (config_parse(text, strlen(text), "c.json", &config, &error) ||
	    model_from_config(&model, architecture, &config, &error))
		fail_msg("%s", error.text);
	return model;
}

static inline struct train_spec source_spec(const char *text)
{
	struct train_spec spec;
	struct error error = {0};

	if (train_spec_parse(&spec, text, &error))
		fail_msg("%s", error.text);
	return spec;
}

static inline void source_hold_rank(const struct model *model, const char *text, uint32_t rank,
				    struct holding *holding)
{
	struct train_spec spec = source_spec(text);
	struct error error = {0};

	if (model_holding(model, &spec, rank, holding, &error))
		fail_msg("%s: %s", text, error.text);
}

/* The message of a refusal of that code. */
static inline void source_refused(const struct model *model, const char *text, int code,
				  const char *message)
{
	struct train_spec spec = source_spec(text);
	struct holding holding;
	struct error error = {0};
	int rc = model_holding(model, &spec, 0, &holding, &error);

	if (rc != -code || !strstr(error.text, message))
		fail_msg("%s: %d, '%s' does not say '%s'", text, rc, error.text, message);
	holding_fini(&holding);
}

/* How many elements of each local parameter are in a box; none is in two. */
static inline void source_count_places(const struct holding *holding, uint64_t *covered)
{
	uint8_t **seen = memory_zalloc(holding->local_count, sizeof(*seen));

	for (size_t l = 0; l < holding->local_count; l++) {
		seen[l] = memory_zalloc(holding->locals[l].bytes, 1);
		covered[l] = 0;
	}
	for (size_t i = 0; i < holding->held_count; i++) {
		const struct held *held = &holding->held[i];

		for (uint64_t n = 0; n < box_elements(&held->box); n++) {
			uint64_t left = n, to = held->place.offset;

			for (uint32_t d = held->box.dims; d-- > 0;) {
				uint64_t size = held->box.hi[d] - held->box.lo[d];

				to += left % size * held->place.stride[d];
				left /= size;
			}
			assert_int_equal(seen[held->local][to], 0);
			seen[held->local][to] = 1;
			covered[held->local]++;
		}
	}
	for (size_t l = 0; l < holding->local_count; l++)
		memory_free(seen[l]);
	memory_free(seen);
}

/* What all trainers hold of one tensor. */
struct source_union {
	struct box_cover *tensors;
	const struct model *model;
	size_t count; /* of all tensors: without MTP layers, or with them */
};

static inline void source_union_init(struct source_union *all, const struct model *model)
{
	all->model = model;
	all->count = model->tensor_count;
	all->tensors = memory_zalloc(model->all_count, sizeof(*all->tensors));
}

/* `parted`: a box that is there already counts as another holder; no other may have a part of it. */
static inline void source_union_add(struct source_union *all, const struct holding *holding,
				    bool parted)
{
	for (size_t i = 0; i < holding->held_count; i++) {
		const struct held *held = &holding->held[i];
		struct box_cover *cover = &all->tensors[holding->tensors[held->tensor].order];
		bool known = false;
		struct box both;

		array_each(other, &cover->boxes) {
			bool same = box_equal(other, &held->box);

			known |= same;
			if (!same && parted && box_intersect(other, &held->box, &both))
				fail_msg("%s is cut in two ways",
					 holding->tensors[held->tensor].name);
		}
		if (!known)
			assert_true(array_add(&cover->boxes, held->box));
	}
}

/* Buffers, and what an MTP layer shares with the model. */
static inline bool source_is_nobodys(const struct model *model, size_t t)
{
	const char *name = model->tensors[t].name;

	return strstr(name, SOURCE_BUFFER) ||
	       (t >= model->tensor_count && (strstr(name, ".embed_tokens.") || strstr(name, "shared_head.head")));
}

/* All of the checkpoint, but for these. */
static inline void source_union_check(struct source_union *all)
{
	for (size_t t = 0; t < all->count; t++) {
		const struct model_tensor *tensor = &all->model->tensors[t];
		struct box whole = box_whole(tensor->dims, tensor->shape), gap;
		char text[160];
		bool covered;

		assert_int_equal(box_cover_all(&all->tensors[t], &whole, &covered, &gap), 0);
		if (covered == source_is_nobodys(all->model, t))
			fail_msg("%s of %s: %s", box_text(&gap, text, sizeof(text)), tensor->name,
				 covered ? "held" : "held by nobody");
		box_cover_fini(&all->tensors[t]);
	}
	memory_free(all->tensors);
}

/* Every allocation fails once: an error and no leak, until there is none left to fail. */
static inline void source_fail_each(const struct model *model, const char *spec, uint32_t rank)
{
	struct train_spec train = source_spec(spec);
	struct holding holding;
	int rc = -1;

	for (uint64_t k = 1; rc; k += 1 + k / 20) {
		memory_fail_at(k);
		rc = model_holding(model, &train, rank, &holding, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	}
	holding_fini(&holding);
}

#endif
