/* SPDX-License-Identifier: Apache-2.0 */
#include "model/checkpoint_names.h"

#include "base/array.h"
#include "base/memory.h"
#include "model/adapter.h"
#include "model/family.h"
#include "model/tower.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BASE_LAYER "base_layer."

/* A name that begins so, begins otherwise in the model. */
static const struct {
	const char *from, *to;
} beginnings[] = {
	{"base_model.model.", ""},    {"h.", "transformer.h."},	      {"wte.", "transformer.wte."},
	{"wpe.", "transformer.wpe."}, {"ln_f.", "transformer.ln_f."},
};

/* Of adapters, wherever they stand in a name; of older checkpoints, tensors that are no weights. */
static const char *const others[] = {"lora_A",
				     "lora_B",
				     "lora_embedding_A",
				     "lora_embedding_B",
				     "lora_magnitude_vector",
				     "attn.masked_bias"};

bool checkpoint_plain_name(const char *name, char out[CHECKPOINT_NAME_BYTES])
{
	const char *rest = name, *begin = "", *layer;
	int n;

	for (size_t i = 0; i < ARRAY_SIZE(beginnings) && rest == name; i++)
		if (strncmp(name, beginnings[i].from, strlen(beginnings[i].from)) == 0) {
			rest = name + strlen(beginnings[i].from);
			begin = beginnings[i].to;
		}
	layer = strstr(rest, "." BASE_LAYER);
	if (rest == name && !layer)
		return false;
	if (layer)
		n = snprintf(out, CHECKPOINT_NAME_BYTES, "%s%.*s%s", begin, (int)(layer + 1 - rest),
			     rest, layer + 1 + strlen(BASE_LAYER));
	else
		n = snprintf(out, CHECKPOINT_NAME_BYTES, "%s%s", begin, rest);
	return n > 0 && n < CHECKPOINT_NAME_BYTES;
}

/* What the part is called that is left alone, into out; false when it should be the model's. */
static bool part_of(const struct model *model, const char *name, char out[64])
{
	const struct tower *tower = model->config.tower;
	size_t at = 0;

	if (!model->config.family) /* a layout file names all that is left alone */
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (strstr(name, others[i])) {
			snprintf(out, 64, "%s", others[i]);
			return true;
		}
	/* GPT-2's causal mask, which older files carry; its projections are c_attn */
	if (text_ends(name, ".attn.bias")) {
		snprintf(out, 64, "attn.bias");
		return true;
	}
	/* Qwen3-Next's draft model; other classes' lies among the layers */
	if (family_has(model->config.family, FEATURE_LINEAR) && strncmp(name, "mtp.", 4) == 0) {
		snprintf(out, 64, "mtp");
		return true;
	}
	if (tower_has(tower, name))
		return false;
	/* as many parts of the name as it takes to differ from the text model's */
	do {
		at += strcspn(name + at, ".") + 1;
	} while (name[at - 1] && strncmp(name, tower->checkpoint.body, at) == 0);
	snprintf(out, 64, "%.*s", (int)(at - 1), name);
	return true;
}

bool checkpoint_leaves(const struct model *model, const char *name)
{
	char part[64];

	return part_of(model, name, part);
}

#define PARTS_MAX 8 /* that are named; what is more is counted */

struct left {
	struct {
		char name[64];
		size_t tensors;
	} parts[PARTS_MAX];
	size_t part_count, tensors;
	uint64_t bytes;
};

static void leave(struct left *left, const char *part, uint64_t bytes)
{
	size_t i = 0;

	left->tensors++;
	left->bytes += bytes;
	while (i < left->part_count && strcmp(left->parts[i].name, part) != 0)
		i++;
	if (i == PARTS_MAX)
		return;
	if (i == left->part_count)
		snprintf(left->parts[left->part_count++].name, sizeof(left->parts[i].name), "%s",
			 part);
	left->parts[i].tensors++;
}

/* An adapter in a file of its own. */
static int leave_adapter(struct left *left, const struct checkpoint *checkpoint,
			 struct error *error)
{
	char *path = memory_format("%s/" ADAPTER_FILE, checkpoint_folder(checkpoint));
	struct checkpoint *adapter;
	int rc = 0;

	if (!path)
		return memory_error(error, "looking for an adapter", sizeof(ADAPTER_FILE));
	if (access(path, F_OK) == 0 &&
	    (checkpoint_file_count(checkpoint) != 1 ||
	     strcmp(checkpoint_file(checkpoint, 0), ADAPTER_FILE) != 0)) {
		rc = checkpoint_open(&adapter, path, error);
		for (size_t i = 0; rc == 0 && i < checkpoint_count(adapter); i++)
			leave(left, ADAPTER_FILE, checkpoint_at(adapter, i)->bytes);
		checkpoint_close(&adapter);
	}
	memory_free(path);
	return rc;
}

int checkpoint_left_alone(const struct checkpoint *checkpoint, const struct model *model,
			  struct text *out, struct error *error)
{
	struct left left = {.tensors = 0};
	char part[64];
	int rc = leave_adapter(&left, checkpoint, error);

	if (rc)
		return rc;
	for (size_t i = 0; i < checkpoint_count(checkpoint); i++) {
		const struct checkpoint_tensor *tensor = checkpoint_at(checkpoint, i);

		if (model_find(model, tensor->name) < 0 && part_of(model, tensor->name, part))
			leave(&left, part, tensor->bytes);
	}
	if (!left.tensors)
		return 0;
	text_format(out, "left alone: %zu tensors, %s bytes:", left.tensors,
		    GROUPED_TEXT(left.bytes));
	for (size_t i = 0; i < left.part_count; i++)
		text_format(out, "%s %s (%zu)", i ? "," : "", left.parts[i].name,
			    left.parts[i].tensors);
	return text_ok(out) ? 0 : memory_error(error, "naming what is left alone", out->bytes);
}
