/* SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const struct family *const families[] = {
	&family_llama, &family_qwen2, &family_qwen3, &family_glm4, NULL,
};

const struct family *family_find(const char *architecture)
{
	for (size_t i = 0; families[i]; i++)
		if (strcmp(families[i]->architecture, architecture) == 0)
			return families[i];
	return NULL;
}

char *family_list(char *out, size_t out_bytes)
{
	size_t at = 0;

	out[0] = '\0';
	for (size_t i = 0; families[i] && at < out_bytes; i++) {
		int n = snprintf(out + at, out_bytes - at, "%s%s", i ? ", " : "",
				 families[i]->architecture);

		if (n < 0)
			break;
		at += (size_t)n;
	}
	return out;
}

bool condition_holds(enum condition when, const struct model_config *config)
{
	switch (when) {
	case IF_UNTIED:
		return !config->tied;
	case IF_ATTENTION_BIAS:
		return config->attention_bias;
	case IF_MLP_BIAS:
		return config->mlp_bias;
	case ALWAYS:
	case CONDITION_COUNT:
		break;
	}
	return true;
}

uint64_t dim_value(enum dim dim, const struct model_config *config)
{
	switch (dim) {
	case DIM_HIDDEN:
		return config->hidden_size;
	case DIM_VOCAB:
		return config->vocab_size;
	case DIM_Q_ROWS:
		return config->heads * config->head_dim;
	case DIM_KV_ROWS:
		return config->kv_heads * config->head_dim;
	case DIM_HEAD:
		return config->head_dim;
	case DIM_INTERMEDIATE:
		return config->intermediate_size;
	case DIM_INTERMEDIATE_2:
		return 2 * config->intermediate_size;
	case DIM_END:
	case DIM_COUNT:
		break;
	}
	assert(!"a row has a dimension without a value");
	return 0;
}

uint32_t rule_dims(const struct rule *rule)
{
	uint32_t n = 0;

	while (n < RULE_DIMS_MAX && rule->dims[n] != DIM_END)
		n++;
	return n;
}

bool rule_in_layer(const struct rule *rule)
{
	return strstr(rule->tensor, "{i}") != NULL;
}

bool rule_name(const char *pattern, uint64_t layer, char out[RULE_NAME_BYTES])
{
	const char *at = strstr(pattern, "{i}");
	int n;

	if (!at)
		n = snprintf(out, RULE_NAME_BYTES, "%s", pattern);
	else
		n = snprintf(out, RULE_NAME_BYTES, "%.*s%llu%s", (int)(at - pattern), pattern,
			     (unsigned long long)layer, at + 3);
	return n > 0 && n < RULE_NAME_BYTES;
}
