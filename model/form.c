/* SPDX-License-Identifier: Apache-2.0 */
#include "model/form.h"

#include "base/array.h"
#include "model/config.h"
#include <stddef.h>
#include <string.h>

#define INFER(field) offsetof(struct infer_spec, field)

static uint32_t option(const struct infer_spec *infer, size_t offset)
{
	return *(const uint32_t *)(const void *)((const char *)infer + offset);
}

/* Parameters that are called otherwise, or join others, where an option has a value. */
static const struct rename {
	size_t option;
	uint32_t value;
	const char *from, *to;
	bool plain; /* and are not in fp8 blocks there, whatever the checkpoint has */
} renames[] = {
	{INFER(names), NAMES_VLLM, LAYER_PREFIX "self_attn.fused_qkv_a_proj_with_mqa.weight",
	 LAYER_PREFIX "self_attn.fused_qkv_a_proj.weight", false},
	{INFER(fuse_shared), 1, LAYER_PREFIX "mlp.shared_experts.gate_up_proj.weight",
	 LAYER_PREFIX "mlp.experts.w13_weight", false},
	{INFER(fuse_shared), 1, LAYER_PREFIX "mlp.shared_experts.down_proj.weight",
	 LAYER_PREFIX "mlp.experts.w2_weight", false},
	{INFER(indexer_fused), 1, LAYER_PREFIX "self_attn.indexer.wk.weight",
	 LAYER_PREFIX "self_attn.indexer.wk_weights_proj.weight", true},
	{INFER(indexer_fused), 1, LAYER_PREFIX "self_attn.indexer.weights_proj.weight",
	 LAYER_PREFIX "self_attn.indexer.wk_weights_proj.weight", true},
};

static const struct rename *rename_of(const struct rule *rule, const struct infer_spec *infer)
{
	for (size_t i = 0; i < ARRAY_SIZE(renames); i++)
		if (option(infer, renames[i].option) == renames[i].value &&
		    strcmp(renames[i].from, rule_param(rule)) == 0)
			return &renames[i];
	return NULL;
}

const char *form_param(const struct rule *rule, const struct infer_spec *infer)
{
	const struct rename *rename = rename_of(rule, infer);

	return rename ? rename->to : rule_param(rule);
}

/* A part of the name, if it has it; false when the new name is too long. */
static bool replace(char name[RULE_NAME_BYTES], const char *part, const char *by)
{
	char *at = strstr(name, part);
	size_t old = strlen(part), new = strlen(by);

	if (!at)
		return true;
	if (strlen(name) - old + new >= RULE_NAME_BYTES)
		return false;
	memmove(at + new, at + old, strlen(at + old) + 1);
	memcpy(at, by, new);
	return true;
}

bool form_param_name(const struct family *family, const struct infer_spec *infer,
		     char name[RULE_NAME_BYTES])
{
	for (const struct param_name *row = family->names; row && row->name; row++)
		if (!replace(name, row->name, infer->names == NAMES_VLLM ? row->vllm : row->sglang))
			return false;
	return !infer->routed_experts || replace(name, ".experts.w", ".experts.routed_experts.w");
}

/* Of a tied model, where the checkpoint has an lm_head: the engine's class never ties, or found the two to differ. */
static bool has_head(const struct model_config *config, const struct infer_spec *infer)
{
	return !config->tied || infer->untied ||
	       (config->family->own_head & OWN_HEAD(infer->names));
}

bool form_absent(const struct model_config *config, const struct rule *rule,
		 const struct infer_spec *infer)
{
	if (strcmp(rule->tensor, HEAD_TENSOR) == 0 && !has_head(config, infer))
		return true;
	for (const struct absence *row = config->family->absences; row && row->param; row++)
		if (row->names == infer->names && strcmp(row->param, rule_param(rule)) == 0)
			return true;
	return rule->cut == CUT_NONE;
}

static enum dtype plain_dtype(enum store store, const struct model_config *config,
			      const struct infer_spec *infer)
{
	if (store == STORE_F32 || store == STORE_F32_IN_ENGINE || store == STORE_F32_WITH_FP8)
		return DTYPE_F32;
	if (store == STORE_MXFP4 || store == STORE_MXFP4_SCALES)
		return DTYPE_U8;
	if (store == STORE_EXPERT_BIAS && infer->names == NAMES_SGLANG && !config->mxfp4)
		return DTYPE_F32;
	if (store == STORE_ROUTER && infer->gate)
		return (enum dtype)infer->gate;
	return infer->dtype ? (enum dtype)infer->dtype : config->dtype;
}

struct form form_of(const struct rule *rule, const struct model_config *config,
		    const struct infer_spec *infer)
{
	struct form form = {.dtype = plain_dtype(rule->store, config, infer)};
	const struct rename *rename = rename_of(rule, infer);
	uint32_t from[2] = {(uint32_t)config->block_rows, (uint32_t)config->block_columns};

	if (rule->store == STORE_CONV1D && !infer->experts_in_out)
		form.transform.part = TRANSFORM_TRANSPOSED;
	if (rule->store != STORE_LINEAR)
		return form;
	if (infer->fp8 == FP8_AS_STORED)
		memcpy(form.block, from, sizeof(from));
	else if (infer->fp8 == FP8_BLOCKS)
		memcpy(form.block, (uint32_t[2]){infer->fp8_rows, infer->fp8_columns},
		       sizeof(form.block));
	if (rename && rename->plain)
		memset(form.block, 0, sizeof(form.block));
	if (form.block[0])
		form.dtype = DTYPE_F8_E4M3;
	form.copy_scales = form.block[0] && memcmp(form.block, from, sizeof(from)) == 0;
	if (!form.copy_scales)
		form.transform = (struct transform){TRANSFORM_VALUES, from[0], from[1],
						    form.block[0], form.block[1]};
	return form;
}

/* Options that are about a part that not every class has. */
static const struct {
	const char *text; /* as it stands in --infer, with a value where it has more than one */
	size_t option;
	uint32_t value;	   /* the one that is refused; 0: any but 0 */
	uint32_t features; /* that the class needs */
	const char *about;
} needs[] = {
	{"moe_dense_tp=1", INFER(moe_dense_tp), 1, FEATURE_EXPERTS,
	 "the dense layers of a model with experts"},
	{"a2a=1", INFER(a2a), 1, FEATURE_EXPERTS, "experts"},
	{"routed_experts=1", INFER(routed_experts), 1, FEATURE_EXPERTS, "experts"},
	{"expert_halves=up_gate", INFER(up_gate), 1, FEATURE_EXPERTS, "experts"},
	{"expert_weights=in_out", INFER(experts_in_out), 1, FEATURE_STACKED,
	 "tensors of all experts"},
	{"mxfp4_pad", INFER(pad_share), 0, FEATURE_STACKED, "experts in MXFP4"},
	{"gate", INFER(gate), 0, FEATURE_EXPERTS, "the router of experts"},
	{"fuse_shared=1", INFER(fuse_shared), 1, FEATURE_SHARED, "shared experts"},
	{"indexer=fused", INFER(indexer_fused), 1, FEATURE_INDEXER, "sparse attention's indexer"},
	{"fp8=RxC", INFER(fp8), FP8_BLOCKS, FEATURE_FP8, "linears in fp8 blocks"},
};

/* SGLang's triton_kernel has gate and up side by side in each row of w13_weight: every row of a transposed half would be a piece. */
static int check_in_out(const struct model *model, const struct infer_spec *infer,
			struct error *error)
{
	const struct family *family = model->config.family;

	if (!infer->experts_in_out || !family_has(family, FEATURE_EXPERTS) ||
	    family_has(family, FEATURE_STACKED))
		return 0;
	return error_set(
		error, ERROR_CONFIG,
		"--infer: expert_weights=in_out, but %s (%s) has a tensor for each expert, and "
		"transposed its gate and up lie side by side in each row of w13_weight, which no "
		"layout has; run SGLang with another --moe-runner-backend than triton_kernel "
		"(triton), and leave it out",
		model->name, family->architecture);
}

static int check_needs(const struct model *model, const struct infer_spec *infer,
		       struct error *error)
{
	const struct family *family = model->config.family;

	for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
		uint32_t value = option(infer, needs[i].option);

		if (value == 0 || (needs[i].value && value != needs[i].value) ||
		    family_has(family, needs[i].features))
			continue;
		return error_set(error, ERROR_CONFIG,
				 "--infer: %s is about %s; %s (%s) has none; leave it out",
				 needs[i].text, needs[i].about, model->name, family->architecture);
	}
	return 0;
}

static int check_shared(const struct model *model, const struct infer_spec *infer,
			struct error *error)
{
	if (!infer->fuse_shared || model->config.shared_experts == 1)
		return 0;
	return error_set(error, ERROR_CONFIG,
			 "--infer: fuse_shared=1, but %s has %llu shared experts as one MLP and "
			 "engines make a slot of exactly 1; leave it out",
			 model->name, (unsigned long long)model->config.shared_experts);
}

static int check_head(const struct model *model, const struct infer_spec *infer,
		      struct error *error)
{
	const struct model_config *config = &model->config;

	if (infer->untied && !config->tied)
		return error_set(
			error, ERROR_CONFIG,
			"--infer: untied=1 is about a model whose config.json ties lm_head to "
			"the embedding; %s has its own anyway; leave it out",
			model->name);
	if (!config->tied || config->own_head || !has_head(config, infer))
		return 0;
	if (infer->untied)
		return error_set(
			error, ERROR_CONFIG,
			"--infer: untied=1, but the checkpoint of %s has no lm_head.weight that "
			"differs from its embedding; leave it out (with config.json alone, "
			"\"" CONFIG_HEAD_FIELD "\": true in it says that there is one)",
			model->name);
	return error_set(
		error, ERROR_UNSUPPORTED,
		"--infer: the engine's %s never ties lm_head to the embedding and computes "
		"with one that nothing fills, for %s is tied and its checkpoint has no "
		"lm_head.weight; save it with one (tie_word_embeddings false)",
		config->family->architecture, model->name);
}

/* vLLM falls back to linear, and says so in its log alone. */
static int check_groups(const struct model *model, const struct infer_spec *infer,
			struct error *error)
{
	const struct model_config *config = &model->config;

	if (infer->experts == EXPERTS_LINEAR || infer->ep == 1 || config->expert_groups > 1)
		return 0;
	return error_set(
		error, ERROR_CONFIG,
		"--infer: experts=round_robin, which vLLM does for models with several expert "
		"groups alone and %s (%s) has %s (n_group): its --expert-placement-strategy "
		"round_robin falls back to linear there; say experts=linear",
		model->name, config->family->architecture, config->expert_groups ? "one" : "none");
}

static int check_experts(const struct model *model, const struct infer_spec *infer,
			 struct error *error)
{
	unsigned long long experts = model->config.experts;

	if (!family_has(model->config.family, FEATURE_EXPERTS)) {
		if (infer->ep == 1)
			return 0;
		return error_set(error, ERROR_CONFIG,
				 "--infer: ep=%u, but %s (%s) has no experts; leave ep out",
				 infer->ep, model->name, model->config.family->architecture);
	}
	if (infer->names == NAMES_VLLM ? experts >= infer->ep : experts % infer->ep == 0)
		return 0;
	return error_set(error, ERROR_CONFIG,
			 "mlp.experts of %s: %llu experts cannot be shared out to ep=%u %s; "
			 "choose another ep",
			 model->name, experts, infer->ep,
			 infer->names == NAMES_VLLM ? "with one each" : "in equal parts");
}

/* SGLang replicates attention inside of one engine, where the class can. */
static int check_attention(const struct model *model, const struct infer_spec *infer,
			   struct error *error)
{
	const struct family *family = model->config.family;

	if (infer->names == NAMES_VLLM || family->attention_dp)
		return 0;
	if (infer->dp > 1)
		return error_set(
			error, ERROR_CONFIG,
			"--infer: dp=%u, but the engine's %s cannot replicate attention (%s); "
			"leave dp out and use more engines",
			infer->dp, family->architecture, model->name);
	if (infer->dp_lm_head)
		return error_set(
			error, ERROR_CONFIG,
			"--infer: dp_lm_head=1 needs replicated attention, which the engine's "
			"%s (%s) has not; leave it out",
			family->architecture, model->name);
	return 0;
}

static int check_embedding(const struct model *model, const struct infer_spec *infer,
			   struct error *error)
{
	const struct family *family = model->config.family;

	if (!infer->embed_replicated)
		return 0;
	for (size_t r = 0; r < family->rule_count; r++)
		if (family->rules[r].group == GROUP_EMBEDDING)
			return 0;
	return error_set(error, ERROR_CONFIG,
			 "--infer: embed_replicated=1, but the engine's %s (%s) always cuts its "
			 "embedding; leave it out",
			 family->architecture, model->name);
}

/* Engines slice a tensor of all experts; each does it in one way. */
static int check_stacked(const struct model *model, const struct infer_spec *infer,
			 struct error *error)
{
	const struct model_config *config = &model->config;

	if (!family_has(config->family, FEATURE_STACKED))
		return 0;
	if (infer->up_gate)
		return error_set(
			error, ERROR_CONFIG,
			"--infer: expert_halves=up_gate, but %s (%s) has gate and up row by "
			"row in turn, and engines keep them so; leave it out",
			model->name, config->family->architecture);
	if (infer->experts != EXPERTS_LINEAR || config->experts % infer->ep)
		return error_set(error, ERROR_CONFIG,
				 "--infer: %s (%s) has tensors of all experts, of which engines "
				 "take equal blocks of neighbours: %llu experts, ep=%u, "
				 "experts=%s; choose an ep that divides them, and experts=linear",
				 model->name, config->family->architecture,
				 (unsigned long long)config->experts, infer->ep,
				 infer->experts == EXPERTS_LINEAR ? "linear" : "round_robin");
	if (config->mxfp4 ? infer->experts_in_out != 0 : infer->pad_share != 0)
		return error_set(error, ERROR_CONFIG,
				 "--infer: %s is about experts %s, and those of %s (%s) are %s; "
				 "leave it out",
				 config->mxfp4 ? "expert_weights=in_out" : "mxfp4_pad",
				 config->mxfp4 ? "that are not quantised" : "in MXFP4", model->name,
				 config->family->architecture,
				 config->mxfp4 ? "in MXFP4" : "not quantised");
	if (infer->ep == 1 || config->mxfp4 || infer->names == NAMES_VLLM)
		return 0;
	return error_set(error, ERROR_UNSUPPORTED,
			 "--infer: ep=%u, but SGLang's loader of %s takes experts apart only of "
			 "MXFP4 checkpoints, and %s is not one; leave ep out",
			 infer->ep, config->family->architecture, model->name);
}

int form_check(const struct model *model, const struct infer_spec *infer, struct error *error)
{
	int rc = infer_spec_check(infer, error);

	if (rc) {
		error_wrap(error, "--infer");
		return rc;
	}
	rc = check_attention(model, infer, error);
	if (rc == 0)
		rc = check_embedding(model, infer, error);
	if (rc == 0)
		rc = check_in_out(model, infer, error);
	if (rc == 0)
		rc = check_needs(model, infer, error);
	if (rc == 0)
		rc = check_shared(model, infer, error);
	if (rc == 0)
		rc = check_stacked(model, infer, error);
	if (rc == 0)
		rc = check_head(model, infer, error);
	if (rc == 0)
		rc = check_groups(model, infer, error);
	return rc ? rc : check_experts(model, infer, error);
}
