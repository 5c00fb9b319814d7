/* SPDX-License-Identifier: Apache-2.0
 *
 * config_write.c -- a config back to JSON, and the spelling of its dtype. Apart from config.c,
 * because jansson and json_write.h share names.
 */
#include "model/config.h"

#include "common/array.h"
#include "common/json_write.h"
#include "model/family.h"
#include <string.h>

static const struct {
	const char *name;
	enum dtype dtype;
} weight_dtypes[] = {
	{"bfloat16", DTYPE_BF16},
	{"float16", DTYPE_F16},
	{"float32", DTYPE_F32},
};

enum dtype config_dtype(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(weight_dtypes); i++)
		if (strcmp(weight_dtypes[i].name, name) == 0)
			return weight_dtypes[i].dtype;
	return DTYPE_NONE;
}

static const char *weight_dtype_name(enum dtype dtype)
{
	for (size_t i = 0; i < ARRAY_SIZE(weight_dtypes); i++)
		if (weight_dtypes[i].dtype == dtype)
			return weight_dtypes[i].name;
	return dtype_name(dtype);
}

void config_write(const struct model_config *config, struct text *out)
{
	struct json json;

	json_to_text(&json, out);
	json_put_object(&json);
	json_put_key(&json, "architectures");
	json_put_array(&json);
	json_put_string(&json, config->family->architecture);
	json_put_array_end(&json);
	json_put_key_string(&json, "model_type", config->family->model_type);
	json_put_key_u64(&json, "hidden_size", config->hidden_size);
	json_put_key_u64(&json, "intermediate_size", config->intermediate_size);
	json_put_key_u64(&json, "num_hidden_layers", config->layers);
	json_put_key_u64(&json, "num_attention_heads", config->heads);
	json_put_key_u64(&json, "num_key_value_heads", config->kv_heads);
	json_put_key_u64(&json, "head_dim", config->head_dim);
	json_put_key_u64(&json, "vocab_size", config->vocab_size);
	json_put_key_bool(&json, "tie_word_embeddings", config->tied);
	if (config->family->reads_attention_bias)
		json_put_key_bool(&json, "attention_bias", config->attention_bias);
	if (config->family->reads_mlp_bias)
		json_put_key_bool(&json, "mlp_bias", config->mlp_bias);
	json_put_key_string(&json, "torch_dtype", weight_dtype_name(config->dtype));
	json_put_object_end(&json);
	text_add(out, "\n");
}
