/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c -- one engine rank's parameters: the shares of a family's rows, stacked.
 *
 *   shares of one layer, in row order        the parameter
 *     q_proj  [nh d, H]                  ┌────────────┐ offset 0
 *     k_proj  [nkv d, H]                 │ q          │
 *     v_proj  [nkv d, H]                 ├────────────┤ nh d H bytes
 *                                        │ k          │
 *                                        ├────────────┤ (nh + nkv) d H bytes
 *                                        │ v          │
 *                                        └────────────┘
 * Experts stack the same way, expert by expert: the parameter only shows one dimension more,
 * its slots. The tensors of one parameter always stand in one layer (or outside all layers), so
 * the walk keeps one layer's shares at a time.
 */
#include "model/model.h"

#include "common/array.h"
#include "common/memory.h"
#include "model/cut.h"
#include "model/family.h"
#include <string.h>

#define PARAM_NONE UINT32_MAX

/* A tensor of the current layer and this rank's share of it. */
struct part {
	const struct model_tensor *tensor;
	const struct rule *rule;
	struct share share;
};

/* A parameter of the current layer while its shares are stacked. */
struct stack {
	uint64_t rows, at;	  /* of all shares; of those placed already */
	uint32_t param;		  /* PARAM_NONE: not added yet */
	const struct part *below; /* the last one placed */
};

struct walk {
	const struct model *model;
	const struct infer_spec *infer;
	uint32_t engine_rank;
	uint32_t first_expert, experts; /* the slots of this rank */
	struct layout *layout;
	ARRAY(struct part) parts;
	uint32_t *heads;      /* of each row, the first one of the same parameter */
	struct stack *stacks; /* by head; two each, weights and scales */
	struct error *error;
};

static struct place group_of(const struct walk *walk, enum group group)
{
	const struct infer_spec *infer = walk->infer;
	uint32_t attention = infer->tp / infer->dp, expert = infer->tp / infer->ep;

	if (group == GROUP_ATTENTION || (group == GROUP_LM_HEAD && infer->dp_lm_head))
		return (struct place){walk->engine_rank % attention, attention, false};
	if (group == GROUP_EXPERT)
		return (struct place){walk->engine_rank % expert, expert, infer->tp > 1};
	if (group == GROUP_DENSE && infer->moe_dense_tp)
		return (struct place){0, 1, false};
	return (struct place){walk->engine_rank, infer->tp, false};
}

static struct stack *stack_of(const struct walk *walk, const struct part *part)
{
	return &walk->stacks[2 * walk->heads[part->tensor->rule] + part->tensor->scale];
}

/* The parameter that this part opens: the rows of all parts of its stack. */
static int add_param(const struct walk *walk, const struct part *first, struct stack *stack)
{
	const struct model_tensor *tensor = first->tensor;
	uint64_t shape[BOX_DIMS_MAX];
	uint32_t dims = first->share.dims;
	char name[RULE_NAME_BYTES];
	int64_t added;

	memcpy(shape, first->share.shape, sizeof(shape));
	shape[0] = stack->rows;
	if (tensor->expert != EXPERT_NONE) {
		memmove(shape + 1, shape, dims * sizeof(*shape));
		shape[0] = walk->experts;
		shape[1] /= walk->experts;
		dims++;
	}
	if (!rule_name(rule_param(first->rule), (uint64_t)tensor->layer, 0, tensor->scale, name))
		return error_set(walk->error, ERROR_INTERNAL, "parameter name of %s is too long",
				 tensor->name);
	added = layout_add_param(walk->layout, name, tensor->dtype, dims, shape, walk->error);
	if (added < 0)
		return (int)added;
	stack->param = (uint32_t)added;
	return 0;
}

static int add_pieces(const struct walk *walk, const struct part *part, uint32_t param,
		      uint64_t offset)
{
	const struct model_tensor *tensor = part->tensor;
	uint32_t element = dtype_bytes(tensor->dtype);
	uint64_t row_bytes = element;
	int64_t index = 0;
	int rc = 0;

	/* a rank whose vocabulary rows are all fill does not need the tensor at all */
	if (part->share.box_count)
		index = layout_add_tensor(walk->layout, tensor->name, tensor->dtype, tensor->dims,
					  tensor->shape, walk->error);
	if (index < 0)
		return (int)index;
	for (uint32_t b = 0; b < part->share.box_count && rc == 0; b++) {
		const struct box *box = &part->share.boxes[b];
		struct piece piece = {.tensor = (uint32_t)index,
				      .param = param,
				      .src = *box,
				      .offset = offset,
				      .bytes = box_elements(box) * element};

		rc = layout_add_piece(walk->layout, &piece, walk->error);
		offset += piece.bytes;
	}
	for (uint32_t d = 1; d < part->share.dims; d++)
		row_bytes *= part->share.shape[d];
	if (rc == 0 && part->share.fill_rows)
		rc = layout_add_fill(
			walk->layout,
			&(struct fill){param, offset, part->share.fill_rows * row_bytes},
			walk->error);
	return rc;
}

/* The next part on top of its stack. */
static int place_part(const struct walk *walk, const struct part *part)
{
	struct stack *stack = stack_of(walk, part);
	const struct part *below = stack->below;
	uint64_t row_bytes = dtype_bytes(part->tensor->dtype);
	int rc = 0;

	if (stack->param == PARAM_NONE)
		rc = add_param(walk, part, stack);
	else if (below->share.dims != part->share.dims ||
		 memcmp(below->share.shape + 1, part->share.shape + 1,
			(part->share.dims - 1) * sizeof(part->share.shape[0])) != 0)
		rc = error_set(walk->error, ERROR_INTERNAL,
			       "%s and %s cannot stack: their rows differ", below->tensor->name,
			       part->tensor->name);
	else if (below->tensor->expert == part->tensor->expert)
		rc = cut_stack(below->tensor, &below->share, &walk->model->config, walk->error);
	if (rc)
		return rc;
	for (uint32_t d = 1; d < part->share.dims; d++)
		row_bytes *= part->share.shape[d];
	rc = add_pieces(walk, part, stack->param, stack->at * row_bytes);
	stack->at += part->share.shape[0];
	stack->below = part;
	return rc;
}

/* Turns the collected parts into parameters and pieces, and starts anew. */
static int flush_parts(struct walk *walk)
{
	int rc = 0;

	for (size_t i = 0; i < walk->parts.count; i++)
		*stack_of(walk, &walk->parts.items[i]) = (struct stack){.param = PARAM_NONE};
	for (size_t i = 0; i < walk->parts.count; i++)
		stack_of(walk, &walk->parts.items[i])->rows += walk->parts.items[i].share.shape[0];
	for (size_t i = 0; i < walk->parts.count && rc == 0; i++)
		rc = place_part(walk, &walk->parts.items[i]);
	walk->parts.count = 0;
	return rc;
}

static bool wants(const struct walk *walk, const struct model_tensor *tensor,
		  const struct rule *rule)
{
	return rule->cut != CUT_NONE && (tensor->expert == EXPERT_NONE ||
					 tensor->expert - walk->first_expert < walk->experts);
}

static int walk_tensors(struct walk *walk)
{
	const struct model *model = walk->model;
	int rc = 0;

	for (size_t t = 0; t < model->tensor_count && rc == 0; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		const struct rule *rule = &model->config.family->rules[tensor->rule];
		struct part *part;

		if (t && tensor->layer != model->tensors[t - 1].layer) {
			rc = flush_parts(walk);
			if (rc)
				return rc;
		}
		if (!wants(walk, tensor, rule))
			continue;
		part = array_push(&walk->parts);
		if (!part)
			return memory_error(walk->error, "cutting a layer", sizeof(*part));
		part->tensor = tensor;
		part->rule = rule;
		rc = cut_share(rule, tensor, &model->config, group_of(walk, rule->group),
			       &part->share, walk->error);
	}
	return rc ? rc : flush_parts(walk);
}

/* Which rows share a parameter: by name, once, so that no tensor needs to ask again. */
static int find_heads(struct walk *walk)
{
	const struct family *family = walk->model->config.family;
	size_t count = family->rule_count;

	walk->heads = memory_zalloc(count, sizeof(*walk->heads));
	walk->stacks = memory_zalloc(2 * count, sizeof(*walk->stacks));
	if (!walk->heads || !walk->stacks)
		return memory_error(walk->error, "cutting a model", count * sizeof(*walk->stacks));
	for (uint32_t r = 0; r < count; r++)
		while (strcmp(rule_param(&family->rules[walk->heads[r]]),
			      rule_param(&family->rules[r])) != 0)
			walk->heads[r]++;
	return 0;
}

static int check_experts(const struct model *model, const struct infer_spec *infer,
			 struct error *error)
{
	const struct model_config *config = &model->config;
	const char *class = config->family->architecture;

	if (!family_has(config->family, FEATURE_EXPERTS)) {
		if (infer->ep > 1)
			return error_set(error, ERROR_CONFIG,
					 "--infer: ep=%u, but %s (%s) has no experts; leave ep out",
					 infer->ep, model->name, class);
		if (infer->moe_dense_tp)
			return error_set(
				error, ERROR_CONFIG,
				"--infer: moe_dense_tp=1 is about the dense layers of a model with "
				"experts; %s (%s) has none; leave it out",
				model->name, class);
		return 0;
	}
	if (infer->ep == 0 || infer->tp % infer->ep)
		return error_set(error, ERROR_CONFIG, "--infer: ep=%u does not divide tp=%u",
				 infer->ep, infer->tp);
	if (config->experts % infer->ep)
		return error_set(error, ERROR_CONFIG,
				 "mlp.experts of %s: %llu experts cannot be shared out to ep=%u "
				 "in equal parts; choose another ep",
				 model->name, (unsigned long long)config->experts, infer->ep);
	return 0;
}

/* What the engine's class cannot do, whatever the sizes. */
static int check_infer(const struct model *model, const struct infer_spec *infer,
		       uint32_t engine_rank, struct error *error)
{
	const char *class = model->config.family->architecture;

	if (infer->tp == 0 || infer->dp == 0 || infer->tp % infer->dp)
		return error_set(error, ERROR_CONFIG, "--infer: dp=%u does not divide tp=%u",
				 infer->dp, infer->tp);
	if (engine_rank >= infer->tp)
		return error_set(error, ERROR_CONFIG, "engine rank %u is not below tp=%u",
				 engine_rank, infer->tp);
	if (infer->dp > 1 && !model->config.family->attention_dp)
		return error_set(
			error, ERROR_CONFIG,
			"--infer: dp=%u, but the engine's %s cannot replicate attention (%s); "
			"leave dp out and use more engines",
			infer->dp, class, model->name);
	if (infer->dp_lm_head && !model->config.family->attention_dp)
		return error_set(
			error, ERROR_CONFIG,
			"--infer: dp_lm_head=1 needs replicated attention, which the engine's "
			"%s (%s) has not; leave it out",
			class, model->name);
	return check_experts(model, infer, error);
}

int model_layout(const struct model *model, const struct infer_spec *infer, uint32_t engine_rank,
		 struct layout *layout, struct error *error)
{
	struct walk walk = {.model = model,
			    .infer = infer,
			    .engine_rank = engine_rank,
			    .layout = layout,
			    .error = error};
	int rc = check_infer(model, infer, engine_rank, error);

	layout_init(layout);
	if (rc == 0)
		rc = find_heads(&walk);
	if (rc == 0) {
		walk.experts = (uint32_t)(model->config.experts / infer->ep);
		walk.first_expert = engine_rank / (infer->tp / infer->ep) * walk.experts;
		rc = walk_tensors(&walk);
	}
	array_free(&walk.parts);
	memory_free(walk.heads);
	memory_free(walk.stacks);
	if (rc == 0)
		rc = layout_finish(layout, error);
	if (rc == 0)
		return 0;
	layout_fini(layout);
	error_wrap(error, "%s, engine rank %u of %u", model->name, engine_rank, infer->tp);
	return rc;
}
