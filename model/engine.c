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
 * its slots. A linear in fp8 blocks has a second stack beside it, of scales: the checkpoint's own
 * or computed from the weight (model/form.h). The tensors of one parameter always stand in one
 * layer (or outside all layers), so the walk keeps one layer's shares at a time.
 */
#include "model/model.h"

#include "base/array.h"
#include "base/memory.h"
#include "model/cut.h"
#include "model/family.h"
#include "model/form.h"
#include "model/layout_file.h"
#include "model/pad.h"
#include "model/ranks.h"
#include "model/tower.h"
#include <string.h>

#define PARAM_NONE UINT32_MAX

/* What the rows of the family are in this engine, once, so that no tensor needs to ask again. */
struct row {
	uint32_t head; /* the first row of the same parameter */
	struct form form;
};

/* This rank's share of a tensor of the current layer. */
struct part {
	const struct rule *rule;
	const struct model_tensor *tensor, *scales; /* of the checkpoint; NULL: it has none */
	bool scale;				    /* a part of the parameter of scales */
	enum dtype dtype;			    /* of the parameter */
	struct transform transform;
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
	struct owned owned; /* experts of this rank */
	uint32_t slots;	    /* of them and of fused shared experts */
	struct layout *layout;
	ARRAY(struct part) parts;
	struct row *rows;     /* by row of the family */
	struct stack *stacks; /* by head; two each, weights and scales */
	struct error *error;
};

static const struct row *row_of(const struct walk *walk, const struct part *part)
{
	return &walk->rows[part->tensor->rule];
}

static struct stack *stack_of(const struct walk *walk, const struct part *part)
{
	return &walk->stacks[2 * row_of(walk, part)->head + part->scale];
}

static uint64_t row_bytes(const struct part *part)
{
	uint64_t bytes = dtype_bytes(part->dtype);

	for (uint32_t d = 1; d < part->share.dims; d++)
		bytes *= part->share.shape[d];
	return bytes;
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
		shape[0] = walk->slots;
		shape[1] /= walk->slots;
		dims++;
	}
	if (first->rule->store == STORE_MXFP4) {
		dims--;
		shape[dims - 1] *= shape[dims];
	}
	if (!rule_name(form_param(first->rule, walk->infer), (uint64_t)tensor->layer, 0,
		       first->scale, name) ||
	    !form_param_name(walk->model->config.family, walk->infer, name) ||
	    !tower_param_name(walk->model->config.tower, walk->infer, name))
		return error_set(walk->error, ERROR_INTERNAL, "parameter name of %s is too long",
				 tensor->name);
	added = layout_add_param(walk->layout, name, first->dtype, dims, shape, walk->error);
	if (added < 0)
		return (int)added;
	stack->param = (uint32_t)added;
	return 0;
}

static int64_t add_tensor(const struct walk *walk, const struct model_tensor *tensor)
{
	return layout_add_tensor(walk->layout, tensor->name, tensor->dtype, tensor->dims,
				 tensor->shape, walk->error);
}

/* One box of a part, the next bytes of the parameter: one piece or, of matrices that are transposed,
 * one each. */
static int add_box(const struct walk *walk, const struct part *part, const struct box *box,
		   struct piece *piece)
{
	const struct model_tensor *tensor = part->tensor;
	bool apart = piece->transform.part == TRANSFORM_TRANSPOSED && tensor->dims == 3;
	uint64_t step = apart ? 1 : box->hi[0] - box->lo[0];
	int rc = 0;

	for (uint64_t at = box->lo[0]; at < box->hi[0] && rc == 0; at += step) {
		piece->src = *box;
		piece->src.lo[0] = at;
		piece->src.hi[0] = at + step;
		if (!transform_bytes(&piece->transform, &piece->src, tensor->dims, tensor->shape,
				     part->dtype, &piece->bytes))
			return error_set(walk->error, ERROR_INTERNAL,
					 "a part of %s has no size as a parameter", tensor->name);
		rc = layout_add_piece(walk->layout, piece, walk->error);
		piece->offset += piece->bytes;
	}
	return rc;
}

/* A box that is smaller than its place: zeroes behind its rows are a part of the piece, those behind
 * the rows of an expert a fill. */
static int add_padded(const struct walk *walk, const struct part *part, struct piece *piece)
{
	const struct share *share = &part->share;
	const struct box *box = &share->boxes[0];
	uint64_t own = transform_row_elements(box), rows = box->hi[1] - box->lo[1];
	uint64_t step = rows == share->shape[1] ? box->hi[0] - box->lo[0] : 1;
	uint64_t expert = row_bytes(part), row = expert / share->shape[1];
	uint64_t width = row / dtype_bytes(part->dtype);
	struct fill fill = {piece->param, 0, (share->shape[1] - rows) * row};
	int rc = 0;

	if (width != own)
		piece->transform =
			(struct transform){.part = TRANSFORM_PADDED, .to_columns = (uint32_t)width};
	for (uint64_t at = box->lo[0]; at < box->hi[0] && rc == 0; at += step) {
		piece->src = *box;
		piece->src.lo[0] = at;
		piece->src.hi[0] = at + step;
		piece->bytes = step * rows * row;
		rc = layout_add_piece(walk->layout, piece, walk->error);
		fill.offset = piece->offset + rows * row;
		if (rc == 0 && fill.bytes)
			rc = layout_add_fill(walk->layout, &fill, walk->error);
		piece->offset += step * expert;
	}
	return rc;
}

/* The boxes of a part, one after the other. */
static int add_boxes(const struct walk *walk, const struct part *part, struct piece piece)
{
	int rc = 0;

	if (part->share.padded && part->share.box_count)
		return add_padded(walk, part, &piece);

	for (uint32_t b = 0; b < part->share.box_count && rc == 0; b++)
		rc = add_box(walk, part, &part->share.boxes[b], &piece);
	return rc;
}

static int add_pieces(const struct walk *walk, const struct part *part, uint32_t param,
		      uint64_t offset)
{
	int64_t tensor = 0, scales = 0;
	uint64_t fill = part->share.fill_rows * row_bytes(part);
	int rc;

	/* a rank whose vocabulary rows are all fill does not need the tensor at all */
	if (part->share.box_count)
		tensor = add_tensor(walk, part->tensor);
	if (tensor >= 0 && part->transform.from_rows)
		scales = add_tensor(walk, part->scales);
	if (tensor < 0 || scales < 0)
		return (int)(tensor < 0 ? tensor : scales);
	rc = add_boxes(walk, part,
		       (struct piece){.tensor = (uint32_t)tensor,
				      .param = param,
				      .offset = offset,
				      .transform = part->transform,
				      .scales = (uint32_t)scales});
	if (rc || !fill)
		return rc;
	offset += part->share.shape[0] * row_bytes(part) - fill;
	return layout_add_fill(walk->layout, &(struct fill){param, offset, fill}, walk->error);
}

/* The next part on top of its stack. */
static int place_part(const struct walk *walk, const struct part *part)
{
	struct stack *stack = stack_of(walk, part);
	const struct part *below = stack->below;
	int rc = 0;

	if (stack->param == PARAM_NONE)
		rc = add_param(walk, part, stack);
	else if (below->dtype != part->dtype || below->share.dims != part->share.dims ||
		 memcmp(below->share.shape + 1, part->share.shape + 1,
			(part->share.dims - 1) * sizeof(part->share.shape[0])) != 0)
		rc = error_set(walk->error, ERROR_INTERNAL,
			       "%s and %s cannot stack: their rows differ", below->tensor->name,
			       part->tensor->name);
	else if (below->tensor->expert == part->tensor->expert)
		rc = cut_stack(below->tensor, &below->share, row_of(walk, below)->form.block[0],
			       walk->error);
	if (rc)
		return rc;
	rc = add_pieces(walk, part, stack->param, stack->at * row_bytes(part));
	stack->at += part->share.shape[0];
	stack->below = part;
	return rc;
}

/* With expert_halves=up_gate. The shares of w13_weight (and of its scales) come in pairs, gate and up of an expert: they
 * change places. */
static void swap_halves(struct walk *walk)
{
	struct part *parts = walk->parts.items;

	for (size_t i = 0; i < walk->parts.count; i++) {
		struct stack *stack = stack_of(walk, &parts[i]);
		struct part up = parts[i];

		if (!strstr(form_param(up.rule, walk->infer), "experts.w13_weight"))
			continue;
		if (!stack->below) {
			stack->below = &parts[i];
			continue;
		}
		parts[i] = *stack->below;
		parts[stack->below - parts] = up;
		stack->below = NULL;
	}
}

/* Turns the collected parts into parameters and pieces, and starts anew. */
static int flush_parts(struct walk *walk)
{
	int rc = 0;

	for (size_t i = 0; i < walk->parts.count; i++)
		*stack_of(walk, &walk->parts.items[i]) = (struct stack){.param = PARAM_NONE};
	if (walk->infer->up_gate)
		swap_halves(walk);
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
	return !form_absent(&walk->model->config, rule, walk->infer) &&
	       (tensor->expert == EXPERT_NONE || owns_expert(&walk->owned, tensor->expert));
}

static int keep_part(struct walk *walk, const struct part *part)
{
	return array_add(&walk->parts, *part)
		       ? 0
		       : memory_error(walk->error, "cutting a layer", sizeof(*part));
}

static void swap(uint64_t *pair)
{
	uint64_t first = pair[0];

	pair[0] = pair[1];
	pair[1] = first;
}

/* What the row's cut comes to in this engine. */
static enum cut cut_of(const struct rule *rule, const struct infer_spec *infer)
{
	if (rule->cut != CUT_VOCAB_OR_WHOLE)
		return rule->cut;
	return infer->names == NAMES_VLLM ? CUT_VOCAB : CUT_WHOLE;
}

/* As cut_share(); what is transposed on disk is cut as the engine sees it, its boxes as they lie. */
static int cut_weight(const struct walk *walk, const struct rule *rule,
		      const struct model_tensor *weight, struct place place, struct share *share)
{
	const struct model_config *config = &walk->model->config;
	enum cut cut = cut_of(rule, walk->infer);
	struct model_tensor turned = *weight;
	uint32_t last = weight->dims - 2; /* of the dimensions of a matrix */
	int rc;

	if (walk->infer->pad_share && pad_row(rule))
		return pad_share(rule, weight, config, walk->infer, place, share, walk->error);
	if (rule->store != STORE_CONV1D) /* whose tensors are matrices, or stacks of them */
		return cut_share(rule, cut, weight, config, place, share, walk->error);
	swap(turned.shape + last);
	rc = cut_share(rule, cut, &turned, config, place, share, walk->error);
	for (uint32_t b = 0; b < share->box_count && rc == 0; b++) {
		swap(share->boxes[b].lo + last);
		swap(share->boxes[b].hi + last);
	}
	if (walk->infer->experts_in_out)
		swap(share->shape + last);
	return rc;
}

/* This rank's share of a weight and, in fp8 blocks, of its scales. */
static int take_weight(struct walk *walk, const struct model_tensor *weight,
		       const struct model_tensor *scales)
{
	const struct rule *rule = &walk->model->config.family->rules[weight->rule];
	const struct form *form = &walk->rows[weight->rule].form;
	struct place place = rank_place(walk->infer, walk->engine_rank, rule->group);
	struct part part = {.rule = rule,
			    .tensor = weight,
			    .scales = scales,
			    .dtype = form->dtype,
			    .transform = form->transform};
	int rc;

	place.first = walk->owned.first;
	place.experts = walk->owned.count;
	rc = cut_weight(walk, rule, weight, place, &part.share);

	if (rc == 0)
		rc = keep_part(walk, &part);
	if (rc || !form->block[0])
		return rc;
	part.scale = true;
	part.dtype = DTYPE_F32;
	part.transform.part = form->copy_scales ? TRANSFORM_VALUES : TRANSFORM_SCALES;
	part.tensor = form->copy_scales ? scales : weight;
	rc = cut_scales(rule, part.tensor, weight->shape, form->block, place, &part.share,
			walk->error);
	return rc ? rc : keep_part(walk, &part);
}

static int walk_tensors(struct walk *walk)
{
	const struct model *model = walk->model;
	const struct model_tensor *end = model->tensors + model->tensor_count;
	int rc = 0;

	for (const struct model_tensor *tensor = model->tensors; tensor < end && rc == 0;
	     tensor++) {
		bool quantised = tensor + 1 < end && tensor[1].scale;

		if (tensor > model->tensors && tensor->layer != tensor[-1].layer)
			rc = flush_parts(walk);
		if (rc || tensor->scale ||
		    !wants(walk, tensor, &model->config.family->rules[tensor->rule]))
			continue;
		rc = take_weight(walk, tensor, quantised ? tensor + 1 : NULL);
	}
	return rc ? rc : flush_parts(walk);
}

static int find_rows(struct walk *walk)
{
	const struct model_config *config = &walk->model->config;
	const struct rule *rules = config->family->rules;
	size_t count = config->family->rule_count;

	walk->rows = memory_zalloc(count, sizeof(*walk->rows));
	walk->stacks = memory_zalloc(2 * count, sizeof(*walk->stacks));
	if (!walk->rows || !walk->stacks)
		return memory_error(walk->error, "cutting a model", count * sizeof(*walk->stacks));
	for (uint32_t r = 0; r < count; r++) {
		struct row *row = &walk->rows[r];

		row->form = form_of(&rules[r], config, walk->infer);
		while (strcmp(form_param(&rules[row->head], walk->infer),
			      form_param(&rules[r], walk->infer)) != 0)
			row->head++;
	}
	return 0;
}

/* By the rows of the model's family. */
static int layout_by_rows(const struct model *model, const struct infer_spec *infer,
			  uint32_t engine_rank, struct layout *layout, struct error *error)
{
	const struct tower *tower = model->config.tower;
	struct walk walk = {.model = model,
			    .infer = infer,
			    .engine_rank = engine_rank,
			    .layout = layout,
			    .error = error};
	int rc = form_check(model, infer, error);

	if (rc == 0)
		rc = rank_check(infer, engine_rank, error);
	if (rc == 0)
		rc = find_rows(&walk);
	if (rc == 0) {
		walk.owned = rank_experts(infer, engine_rank, model->config.experts);
		walk.slots = walk.owned.count +
			     (infer->fuse_shared ? (uint32_t)model->config.shared_experts : 0);
		rc = walk_tensors(&walk);
	}
	array_free(&walk.parts);
	memory_free(walk.rows);
	memory_free(walk.stacks);
	for (size_t i = 0; tower && tower->left[i] && rc == 0; i++)
		rc = layout_leave(layout, tower->left[i], error);
	return rc;
}

int model_layout(const struct model *model, const struct infer_spec *infer, uint32_t engine_rank,
		 struct layout *layout, struct error *error)
{
	int rc;

	layout_init(layout);
	rc = (model->file ? layout_file_layout : layout_by_rows)(model, infer, engine_rank, layout,
								 error);
	if (rc == 0)
		rc = layout_finish(layout, error);
	if (rc == 0)
		return 0;
	layout_fini(layout);
	error_wrap(error, "%s, engine rank %u of %u", model->name, engine_rank, infer->tp);
	return rc;
}
