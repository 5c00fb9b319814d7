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
 * The tensors of one parameter always stand in one layer (or outside all layers), so the walk
 * keeps the parameters of the current layer only: few enough to look for by name.
 */
#include "model/model.h"

#include "common/array.h"
#include "common/memory.h"
#include "model/cut.h"
#include "model/family.h"
#include <string.h>

/* A tensor of the current layer and this rank's share of it. */
struct part {
	const struct model_tensor *tensor;
	const struct rule *rule;
	struct share share;
};

struct walk {
	const struct model *model;
	const struct infer_spec *infer;
	uint32_t engine_rank;
	struct layout *layout;
	ARRAY(struct part) parts;
	struct error *error;
};

static struct place group_of(const struct walk *walk, enum group group)
{
	const struct infer_spec *infer = walk->infer;
	uint32_t attention = infer->tp / infer->dp;

	if (group == GROUP_ATTENTION || (group == GROUP_LM_HEAD && infer->dp_lm_head))
		return (struct place){walk->engine_rank % attention, attention};
	return (struct place){walk->engine_rank, infer->tp};
}

/* First byte of part `i` in its parameter: what the earlier parts of the same name take. A
 * parameter with expert slots adds its slot's first byte here. */
static uint64_t stack_offset(const struct walk *walk, size_t i)
{
	uint64_t rows = 0, row_elements = 1;
	const struct part *part = &walk->parts.items[i];

	for (size_t j = 0; j < i; j++)
		if (strcmp(rule_param(walk->parts.items[j].rule), rule_param(part->rule)) == 0)
			rows += walk->parts.items[j].share.shape[0];
	for (uint32_t d = 1; d < part->share.dims; d++)
		row_elements *= part->share.shape[d];
	return rows * row_elements * dtype_bytes(part->tensor->dtype);
}

/* The parameter that part `i` opens: the sum of all parts of that name. */
static int64_t add_param(const struct walk *walk, size_t i)
{
	const struct part *first = &walk->parts.items[i];
	uint64_t shape[BOX_DIMS_MAX], rows = 0;
	char name[RULE_NAME_BYTES];

	for (size_t j = i; j < walk->parts.count; j++) {
		const struct part *part = &walk->parts.items[j];

		if (strcmp(rule_param(part->rule), rule_param(first->rule)) != 0)
			continue;
		if (part->share.dims != first->share.dims ||
		    memcmp(part->share.shape + 1, first->share.shape + 1,
			   (first->share.dims - 1) * sizeof(shape[0])) != 0)
			return error_set(walk->error, ERROR_INTERNAL,
					 "%s and %s cannot stack: their rows differ",
					 first->tensor->name, part->tensor->name);
		rows += part->share.shape[0];
	}
	memcpy(shape, first->share.shape, sizeof(shape));
	shape[0] = rows;
	if (!rule_name(rule_param(first->rule), (uint64_t)first->tensor->layer, name))
		return error_set(walk->error, ERROR_INTERNAL, "parameter name of %s is too long",
				 first->tensor->name);
	return layout_add_param(walk->layout, name, first->tensor->dtype, first->share.dims, shape,
				walk->error);
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
		struct piece piece = {(uint32_t)index, param, *box, offset,
				      box_elements(box) * element};

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

/* Turns the collected parts into parameters and pieces, and starts anew. */
static int flush_parts(struct walk *walk)
{
	int rc = 0;

	for (size_t i = 0; i < walk->parts.count && rc == 0; i++) {
		const struct part *part = &walk->parts.items[i];
		uint64_t offset = stack_offset(walk, i);
		char name[RULE_NAME_BYTES];
		uint32_t param;

		if (!rule_name(rule_param(part->rule), (uint64_t)part->tensor->layer, name) ||
		    !strmap_get(&walk->layout->param_names, name, &param)) {
			int64_t added = add_param(walk, i);

			if (added < 0)
				return (int)added;
			param = (uint32_t)added;
		}
		rc = add_pieces(walk, part, param, offset);
	}
	walk->parts.count = 0;
	return rc;
}

static int walk_tensors(struct walk *walk)
{
	const struct model *model = walk->model;
	int rc = 0;

	for (size_t t = 0; t < model->tensor_count && rc == 0; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		struct part *part;

		if (t && tensor->layer != model->tensors[t - 1].layer) {
			rc = flush_parts(walk);
			if (rc)
				return rc;
		}
		part = array_push(&walk->parts);
		if (!part)
			return memory_error(walk->error, "cutting a layer", sizeof(*part));
		part->tensor = tensor;
		part->rule = &model->config.family->rules[tensor->rule];
		rc = cut_share(part->rule, tensor, &model->config,
			       group_of(walk, part->rule->group), &part->share, walk->error);
	}
	return rc ? rc : flush_parts(walk);
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
	return 0;
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
		rc = walk_tensors(&walk);
	array_free(&walk.parts);
	if (rc == 0)
		rc = layout_finish(layout, error);
	if (rc == 0)
		return 0;
	layout_fini(layout);
	error_wrap(error, "%s, engine rank %u of %u", model->name, engine_rank, infer->tp);
	return rc;
}
