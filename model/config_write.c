/* SPDX-License-Identifier: Apache-2.0
 *
 * config_write.c -- a config back to JSON, and the spelling of its dtype. Apart from config.c,
 * because jansson and json_write.h share names.
 */
#include "model/config.h"

#include "base/array.h"
#include "base/json_write.h"
#include "model/config_fields.h"
#include "model/family.h"
#include "model/tower.h"
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

static void write_sizes(const struct model_config *config, struct json *json)
{
	struct model_config copy = *config; /* the table's accessors are for writing too */

	for (const struct size_field *row = config_sizes; row->name; row++) {
		uint64_t value = *config_size(&copy, row);

		if (!config_has(config, row))
			continue;
		if (value >= row->min) {
			json_put_key_u64(json, row->name, value);
		} else if (row->presence == FIELD_NULLABLE) {
			json_put_key(json, row->name);
			json_put_null(json);
		}
	}
	if (!family_has(config->family, FEATURE_GQA))
		return;
	json_put_key_u64(json, "num_key_value_heads", config->kv_heads);
	json_put_key_u64(json, "head_dim", config->head_dim);
}

static void write_flags(const struct model_config *config, struct json *json)
{
	struct model_config copy = *config;

	for (const struct flag_field *row = config_flags; row->name; row++)
		if (family_has(config->family, row->features) &&
		    (config->own_head || row->offset != offsetof(struct model_config, own_head)))
			json_put_key_bool(json, row->name, *config_flag(&copy, row));
	if (family_has(config->family, FEATURE_TOPK_METHOD))
		json_put_key_string(json, "topk_method",
				    config->router_bias ? "noaux_tc" : "greedy");
}

static void write_quantization(const struct model_config *config, struct json *json)
{
	if (!config->block_rows && !config->mxfp4)
		return;
	json_put_key_object(json, "quantization_config");
	json_put_key_string(json, "quant_method", config->mxfp4 ? "mxfp4" : "fp8");
	if (config->mxfp4) {
		json_put_object_end(json);
		return;
	}
	json_put_key_string(json, "fmt", "e4m3");
	json_put_key_string(json, "activation_scheme", "dynamic");
	json_put_key_range(json, "weight_block_size", config->block_rows, config->block_columns);
	json_put_object_end(json);
}

void config_write(const struct model_config *config, struct text *out)
{
	struct json json;

	json_to_text(&json, out);
	json_put_object(&json);
	json_put_key_array(&json, "architectures");
	json_put_string(&json,
			config->tower ? config->tower->architecture : config->family->architecture);
	json_put_array_end(&json);
	if (config->tower)
		json_put_key_object(&json, "text_config");
	json_put_key_string(&json, "model_type", config->family->model_type);
	write_sizes(config, &json);
	write_flags(config, &json);
	if (config->tower)
		json_put_object_end(&json);
	json_put_key_string(&json, "torch_dtype", weight_dtype_name(config->dtype));
	write_quantization(config, &json);
	json_put_object_end(&json);
	text_add(out, "\n");
}
