/* SPDX-License-Identifier: Apache-2.0
 *
 * tower.c -- the multimodal classes that are known. Sources: the files that transformers'
 * save_pretrained writes of each; the model classes of SGLang and vLLM.
 */
#include "model/tower.h"

#include "base/text.h"
#include <string.h>

#define BODY "model."
#define HEAD "lm_head."
#define AS_FAMILY          \
	{                  \
		BODY, HEAD \
	}
#define INSIDE                                                     \
	{                                                          \
		"language_model.model.", "language_model.lm_head." \
	}

#define VISION "vision_tower."
#define PROJECTOR                                \
	{                                        \
		VISION, "multi_modal_projector." \
	}
#define VISUAL            \
	{                 \
		"visual." \
	}

static const struct tower towers[] = {
	{"Gemma3ForConditionalGeneration", NULL, INSIDE, INSIDE, INSIDE, PROJECTOR},
	{"Mistral3ForConditionalGeneration", NULL, INSIDE, INSIDE, INSIDE, PROJECTOR},
	{"LlavaForConditionalGeneration", NULL, INSIDE, INSIDE, INSIDE, PROJECTOR},
	{"KimiK25ForConditionalGeneration",
	 &family_deepseek_v3,
	 INSIDE,
	 INSIDE,
	 INSIDE,
	 {VISION, "mm_projector."}},
	{"KimiVLForConditionalGeneration", &family_deepseek_v3, INSIDE, INSIDE, INSIDE, PROJECTOR},
	{"Qwen2VLForConditionalGeneration", &family_qwen2, AS_FAMILY, AS_FAMILY, INSIDE, VISUAL},
	{"Qwen2_5_VLForConditionalGeneration", &family_qwen2, AS_FAMILY, AS_FAMILY, INSIDE, VISUAL},
	{"Qwen3VLForConditionalGeneration",
	 &family_qwen3,
	 {"model.language_model.", HEAD},
	 AS_FAMILY,
	 INSIDE,
	 {"model.visual.", "visual."}},
	{0},
};

const struct tower *tower_find(const char *architecture)
{
	for (const struct tower *row = towers; row->architecture; row++)
		if (strcmp(row->architecture, architecture) == 0)
			return row;
	return NULL;
}

/* What of the name is replaced, by what; NULL when it stays. */
static const char *replaced(const struct tower_names *names, const char *name, const char **by)
{
	if (strncmp(name, BODY, strlen(BODY)) == 0) {
		*by = names->body;
		return BODY;
	}
	*by = names->head;
	return strncmp(name, HEAD, strlen(HEAD)) == 0 ? HEAD : NULL;
}

static bool rewrite(const struct tower_names *names, char name[RULE_NAME_BYTES])
{
	const char *by, *old = replaced(names, name, &by);
	size_t rest;

	if (!old)
		return true;
	rest = strlen(name + strlen(old)) + 1;
	if (strlen(by) + rest > RULE_NAME_BYTES)
		return false;
	memmove(name + strlen(by), name + strlen(old), rest);
	memcpy(name, by, strlen(by));
	return true;
}

bool tower_tensor_name(const struct tower *tower, char name[RULE_NAME_BYTES])
{
	return !tower || rewrite(&tower->checkpoint, name);
}

bool tower_param_name(const struct tower *tower, const struct infer_spec *infer,
		      char name[RULE_NAME_BYTES])
{
	return !tower || rewrite(infer->names == NAMES_VLLM ? &tower->vllm : &tower->sglang, name);
}

static bool begins(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool tower_has(const struct tower *tower, const char *tensor)
{
	return !tower || begins(tensor, tower->checkpoint.body) ||
	       begins(tensor, tower->checkpoint.head);
}
