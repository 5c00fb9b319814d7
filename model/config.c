/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include "model/family.h"
#include <jansson.h>
#include <string.h>

/* The object being read, and its name for the sentences. */
struct reader {
	const json_t *root;
	const char *where;
	struct error *error;
};

static const char *type_text(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
		return "an integer";
	case JSON_REAL:
		return "a fraction";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	case JSON_NULL:
		break;
	}
	return "null";
}

/* NULL for a missing field and for null: HuggingFace writes either. */
static const json_t *field(const struct reader *reader, const char *name)
{
	const json_t *value = json_object_get(reader->root, name);

	return value && !json_is_null(value) ? value : NULL;
}

static int missing(const struct reader *reader, const char *name)
{
	return error_set(reader->error, ERROR_CONFIG, "%s: %s is missing", reader->where, name);
}

/* 1..max into *value. A missing field keeps what *value holds, unless that is 0. */
static int read_size(const struct reader *reader, const char *name, uint64_t max, uint64_t *value)
{
	const json_t *found = field(reader, name);
	json_int_t number;

	if (!found)
		return *value ? 0 : missing(reader, name);
	if (!json_is_integer(found))
		return error_set(reader->error, ERROR_CONFIG, "%s: %s is %s; an integer is needed",
				 reader->where, name, type_text(found));
	number = json_integer_value(found);
	if (number < 1 || (uint64_t)number > max)
		return error_set(reader->error, ERROR_CONFIG,
				 "%s: %s is %lld; 1 to %llu is possible", reader->where, name,
				 (long long)number, (unsigned long long)max);
	*value = (uint64_t)number;
	return 0;
}

static int read_flag(const struct reader *reader, const char *name, bool *value)
{
	const json_t *found = field(reader, name);

	if (!found)
		return 0;
	if (!json_is_boolean(found))
		return error_set(reader->error, ERROR_CONFIG,
				 "%s: %s is %s; true or false is needed", reader->where, name,
				 type_text(found));
	*value = json_is_true(found);
	return 0;
}

static int read_family(const struct reader *reader, struct model_config *config)
{
	const json_t *list = field(reader, "architectures");
	const json_t *first;
	char known[512];

	if (!list)
		return missing(reader, "architectures");
	first = json_is_array(list) ? json_array_get(list, 0) : NULL;
	if (!json_is_string(first))
		return error_set(reader->error, ERROR_CONFIG,
				 "%s: architectures is not a list of names", reader->where);
	config->family = family_find(json_string_value(first));
	if (!config->family)
		return error_set(
			reader->error, ERROR_CONFIG,
			"%s: architectures names %.100s, which is not known here; known are %s",
			reader->where, json_string_value(first), family_list(known, sizeof(known)));
	return 0;
}

/* One of the two spellings of the weights' dtype: torch_dtype, since 2025 dtype. */
static int read_dtype_field(const struct reader *reader, const char *name, enum dtype *dtype)
{
	const json_t *found = field(reader, name);
	const char *text;

	if (!found)
		return 0;
	text = json_string_value(found);
	if (!text)
		return error_set(reader->error, ERROR_CONFIG, "%s: %s is %s; a name is needed",
				 reader->where, name, type_text(found));
	if (strncmp(text, "torch.", 6) == 0)
		text += 6;
	*dtype = config_dtype(text);
	if (*dtype)
		return 0;
	return error_set(reader->error, ERROR_CONFIG,
			 "%s: %s is %.100s; bfloat16, float16 or float32 is possible",
			 reader->where, name, text);
}

static int read_dtype(const struct reader *reader, struct model_config *config)
{
	enum dtype older = DTYPE_NONE, newer = DTYPE_NONE;
	int rc = read_dtype_field(reader, "torch_dtype", &older);

	if (rc == 0)
		rc = read_dtype_field(reader, "dtype", &newer);
	if (rc)
		return rc;
	if (older && newer && older != newer)
		return error_set(reader->error, ERROR_CONFIG,
				 "%s: torch_dtype says %s and dtype says %s", reader->where,
				 dtype_name(older), dtype_name(newer));
	if (!older && !newer)
		return missing(reader, "torch_dtype (or dtype)");
	config->dtype = newer ? newer : older;
	return 0;
}

/* Heads: num_key_value_heads and head_dim may follow from the others. */
static int read_heads(const struct reader *reader, struct model_config *config)
{
	uint64_t product;
	int rc = read_size(reader, "num_attention_heads", CONFIG_HEADS_MAX, &config->heads);

	if (rc)
		return rc;
	config->kv_heads = config->family->kv_heads_optional ? config->heads : 0;
	rc = read_size(reader, "num_key_value_heads", config->heads, &config->kv_heads);
	if (rc)
		return rc;
	if (config->heads % config->kv_heads)
		return error_set(
			reader->error, ERROR_CONFIG,
			"%s: num_key_value_heads %llu does not divide num_attention_heads %llu",
			reader->where, (unsigned long long)config->kv_heads,
			(unsigned long long)config->heads);
	if (!field(reader, "head_dim")) {
		if (config->hidden_size % config->heads)
			return error_set(
				reader->error, ERROR_CONFIG,
				"%s: head_dim is missing and num_attention_heads %llu does not "
				"divide hidden_size %llu",
				reader->where, (unsigned long long)config->heads,
				(unsigned long long)config->hidden_size);
		config->head_dim = config->hidden_size / config->heads;
	}
	rc = read_size(reader, "head_dim", CONFIG_HEAD_DIM_MAX, &config->head_dim);
	if (rc)
		return rc;
	product = config->heads * config->head_dim;
	if (product > CONFIG_HEAD_ROWS_MAX)
		return error_set(
			reader->error, ERROR_CONFIG,
			"%s: num_attention_heads times head_dim is %llu; at most %u is possible",
			reader->where, (unsigned long long)product, CONFIG_HEAD_ROWS_MAX);
	return 0;
}

static int read_flags(const struct reader *reader, struct model_config *config)
{
	const struct family *family = config->family;
	int rc = read_flag(reader, "tie_word_embeddings", &config->tied);

	if (rc == 0 && family->reads_attention_bias)
		rc = read_flag(reader, "attention_bias", &config->attention_bias);
	if (rc == 0 && family->reads_mlp_bias)
		rc = read_flag(reader, "mlp_bias", &config->mlp_bias);
	if (family->attention_bias_always)
		config->attention_bias = true;
	return rc;
}

static int read_config(const struct reader *reader, struct model_config *config)
{
	int rc = read_family(reader, config);

	if (rc == 0 && field(reader, "quantization_config"))
		rc = error_set(
			reader->error, ERROR_UNSUPPORTED,
			"%s: quantization_config says that the checkpoint is quantised; only "
			"unquantised ones are possible",
			reader->where);
	if (rc == 0)
		rc = read_size(reader, "hidden_size", CONFIG_HIDDEN_MAX, &config->hidden_size);
	if (rc == 0)
		rc = read_size(reader, "vocab_size", CONFIG_VOCAB_MAX, &config->vocab_size);
	if (rc == 0)
		rc = read_size(reader, "num_hidden_layers", CONFIG_LAYERS_MAX, &config->layers);
	if (rc == 0)
		rc = read_size(reader, "intermediate_size", CONFIG_INTERMEDIATE_MAX,
			       &config->intermediate_size);
	if (rc == 0)
		rc = read_heads(reader, config);
	if (rc == 0)
		rc = read_flags(reader, config);
	return rc ? rc : read_dtype(reader, config);
}

int config_parse(const char *text, size_t bytes, const char *where, struct model_config *config,
		 struct error *error)
{
	struct model_config made = {0};
	json_error_t json_error;
	json_t *root;
	int rc;

	if (bytes > CONFIG_BYTES_MAX)
		return error_set(error, ERROR_FILE,
				 "%s: %zu bytes are too many for a config; at most "
				 "%u are possible",
				 where, bytes, CONFIG_BYTES_MAX);
	root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &json_error);
	if (!root)
		return error_set(error, ERROR_FILE, "%s: not JSON at byte %d (line %d): %s", where,
				 json_error.position, json_error.line, json_error.text);
	if (json_is_object(root))
		rc = read_config(&(struct reader){root, where, error}, &made);
	else
		rc = error_set(error, ERROR_FILE, "%s: the text is %s; an object is needed", where,
			       type_text(root));
	json_decref(root);
	if (rc == 0)
		*config = made;
	return rc;
}
