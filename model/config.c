/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include "model/config_fields.h"
#include "model/config_reader.h"
#include "model/family.h"
#include "model/tower.h"
#include <jansson.h>
#include <string.h>

#define REFUSE(code, format, ...) CONFIG_REFUSE(reader, code, format, ##__VA_ARGS__)

static int read_sizes(const struct config_reader *reader, struct model_config *config)
{
	for (const struct size_field *row = config_sizes; row->name; row++) {
		bool there = config_field(reader, row->name);
		int rc;

		if (!config_has(config, row))
			continue;
		if (row->presence == FIELD_NULLABLE)
			there = config_mentions(reader, row->name);
		if (!there && config_nested(reader))
			there = config_default(reader, row->name, config_size(config, row));
		if (!there && row->presence != FIELD_OPTIONAL)
			return config_missing(reader, row->name);
		rc = config_read_size(reader, row->name, row->min, row->max,
				      config_size(config, row));
		if (rc)
			return rc;
	}
	return 0;
}

/* Fields that would change the tensors in a way that no row says. */
static int check_fixed(const struct config_reader *reader, const struct model_config *config)
{
	for (const struct fixed_field *row = config_fixed; row->name; row++) {
		const json_t *found = config_field(reader, row->name);
		bool same;

		if (!found || !family_has(config->family, row->features))
			continue;
		same = row->flag
			       ? json_is_boolean(found) && json_is_true(found) == row->value
			       : json_is_integer(found) && json_integer_value(found) == row->value;
		if (!same)
			return REFUSE(ERROR_UNSUPPORTED, "%s is not %s; only that is possible: %s",
				      row->name, row->text, row->why);
	}
	return 0;
}

/* Newer configs list the layers too: "full" has an indexer, "shared" uses another's choice. */
static int check_indexer_types(const struct config_reader *reader,
			       const struct model_config *config)
{
	const json_t *types = config_field(reader, "indexer_types");

	if (!types || !family_has(config->family, FEATURE_INDEXER))
		return 0;
	if (!json_is_array(types) || json_array_size(types) < config->layers)
		return REFUSE(ERROR_CONFIG, "indexer_types is not a list of %llu names",
			      (unsigned long long)config->layers);
	for (uint64_t layer = 0; layer < config->layers; layer++) {
		const char *type = json_string_value(json_array_get(types, layer));
		bool full = condition_holds(IF_INDEXER, config, (int64_t)layer);

		if (!type || strcmp(type, full ? "full" : "shared") != 0)
			return REFUSE(ERROR_UNSUPPORTED,
				      "indexer_types says %.20s of layer %llu, but "
				      "index_topk_freq and index_skip_topk_offset make it %s",
				      type ? type : "nothing", (unsigned long long)layer,
				      full ? "full" : "shared");
	}
	return 0;
}

/* Lists that would do so. */
static int check_lists(const struct config_reader *reader, const struct model_config *config)
{
	const json_t *dense = config_field(reader, "mlp_only_layers");

	if (dense && family_has(config->family, FEATURE_EXPERTS) &&
	    (!json_is_array(dense) || json_array_size(dense)))
		return REFUSE(ERROR_UNSUPPORTED,
			      "mlp_only_layers is not an empty list; only that is possible: "
			      "every layer has experts");
	if (config_field(reader, "index_topk_pattern") &&
	    family_has(config->family, FEATURE_INDEXER))
		return REFUSE(ERROR_UNSUPPORTED,
			      "index_topk_pattern is not possible; index_topk_freq and "
			      "index_skip_topk_offset are");
	return check_indexer_types(reader, config);
}

/* The class of the text model of a multimodal one. */
static int read_tower(struct config_reader *reader, struct model_config *config)
{
	const json_t *nested = json_object_get(reader->root, "text_config");
	const char *type;

	if (json_is_object(nested))
		reader->text = nested;
	reader->family = config->tower->family; /* whose sizes have other defaults there */
	if (reader->family)
		return 0;
	type = json_string_value(json_object_get(reader->text, "model_type"));
	if (!type || !config_nested(reader))
		return config_missing(reader, "text_config.model_type");
	reader->family = family_named(type);
	if (reader->family) {
		reader->defaults = reader->family->defaults;
		return 0;
	}
	return REFUSE(ERROR_CONFIG,
		      "text_config.model_type of %s is %.100s, which is not known here",
		      config->tower->architecture, type);
}

static int read_architecture(struct config_reader *reader, struct model_config *config)
{
	const json_t *list = config_field(reader, "architectures");
	const json_t *first;
	char known[FAMILY_LIST_BYTES];

	if (!list)
		return config_missing(reader, "architectures");
	first = json_is_array(list) ? json_array_get(list, 0) : NULL;
	if (!json_is_string(first))
		return REFUSE(ERROR_CONFIG, "architectures is not a list of names");
	config->tower = tower_find(json_string_value(first));
	if (config->tower)
		return read_tower(reader, config);
	reader->family = family_find(json_string_value(first));
	if (reader->family) {
		reader->defaults = reader->family->defaults;
		return 0;
	}
	return REFUSE(ERROR_CONFIG,
		      "architectures names %.100s, which is not known here; known are %s; %s",
		      json_string_value(first), family_list(false, known, sizeof(known)),
		      family_unknown_hint());
}

static int read_family(struct config_reader *reader, const char *as, struct model_config *config)
{
	char known[FAMILY_LIST_BYTES];
	int rc;

	if (!as) {
		rc = read_architecture(reader, config);
		config->family = reader->family;
		return rc;
	}
	reader->family = config->family = family_named(as);
	if (config->family)
		return 0; /* and no defaults: the class is another one */
	return REFUSE(ERROR_CONFIG, "no family is called '%.100s'; --as takes one of %s", as,
		      family_list(true, known, sizeof(known)));
}

/* One of the two spellings of the weights' dtype: torch_dtype, since 2025 dtype. */
static int read_dtype_field(const struct config_reader *reader, const char *name, enum dtype *dtype)
{
	const json_t *found = config_field_anywhere(reader, name);
	const char *text;

	if (!found)
		return 0;
	text = json_string_value(found);
	if (!text)
		return REFUSE(ERROR_CONFIG, "%s is %s; a name is needed", name,
			      config_type_text(found));
	if (strncmp(text, "torch.", 6) == 0)
		text += 6;
	*dtype = config_dtype(text);
	if (*dtype)
		return 0;
	return REFUSE(ERROR_CONFIG, "%s is %.100s; bfloat16, float16 or float32 is possible", name,
		      text);
}

static int read_dtype(const struct config_reader *reader, struct model_config *config)
{
	enum dtype older = DTYPE_NONE, newer = DTYPE_NONE;
	int rc = read_dtype_field(reader, "torch_dtype", &older);

	if (rc == 0)
		rc = read_dtype_field(reader, "dtype", &newer);
	if (rc)
		return rc;
	if (older && newer && older != newer)
		return REFUSE(ERROR_CONFIG, "torch_dtype says %s and dtype says %s",
			      dtype_name(older), dtype_name(newer));
	if (!older && !newer)
		return config_missing(reader, "torch_dtype (or dtype)");
	config->dtype = newer ? newer : older;
	return 0;
}

static int check_product(const struct config_reader *reader, const char *what, uint64_t product,
			 uint64_t max)
{
	if (product <= max)
		return 0;
	return REFUSE(ERROR_CONFIG, "%s is %llu; at most %llu is possible", what,
		      (unsigned long long)product, (unsigned long long)max);
}

/* Heads: num_key_value_heads and head_dim may follow from the others. */
static int read_heads(const struct config_reader *reader, struct model_config *config)
{
	int rc;

	config->kv_heads = config->family->kv_heads_optional ? config->heads : 0;
	if (config_nested(reader))
		config_default(reader, "num_key_value_heads", &config->kv_heads);
	rc = config_read_size(reader, "num_key_value_heads", 1, config->heads, &config->kv_heads);
	if (rc)
		return rc;
	if (!config->kv_heads)
		return config_missing(reader, "num_key_value_heads");
	if (config->heads % config->kv_heads)
		return REFUSE(ERROR_CONFIG,
			      "num_key_value_heads %llu does not divide num_attention_heads %llu",
			      (unsigned long long)config->kv_heads,
			      (unsigned long long)config->heads);
	if (!config_field(reader, "head_dim") &&
	    !config_default(reader, "head_dim", &config->head_dim)) {
		if (config->hidden_size % config->heads)
			return REFUSE(ERROR_CONFIG,
				      "head_dim is missing and num_attention_heads %llu does not "
				      "divide hidden_size %llu",
				      (unsigned long long)config->heads,
				      (unsigned long long)config->hidden_size);
		config->head_dim = config->hidden_size / config->heads;
	}
	rc = config_read_size(reader, "head_dim", 1, CONFIG_HEAD_DIM_MAX, &config->head_dim);
	return rc ? rc
		  : check_product(reader, "num_attention_heads times head_dim",
				  config->heads * config->head_dim, CONFIG_HEAD_ROWS_MAX);
}

/* What the sizes must be to each other. */
static int check_sizes(const struct config_reader *reader, const struct model_config *config)
{
	uint64_t wider = config->qk_rope_head_dim > config->v_head_dim ? config->qk_rope_head_dim
								       : config->v_head_dim;
	int rc = check_product(reader, "first_k_dense_replace", config->dense_layers,
			       config->layers);

	if (rc == 0)
		rc = check_product(reader, "num_attention_heads times head sizes",
				   config->heads * (config->qk_nope_head_dim + wider),
				   CONFIG_HEAD_ROWS_MAX);
	if (rc == 0)
		rc = check_product(reader, "index_n_heads times index_head_dim",
				   config->index_heads * config->index_head_dim,
				   CONFIG_HEAD_ROWS_MAX);
	if (rc == 0)
		rc = check_product(reader, "moe_intermediate_size times n_shared_experts",
				   config->moe_intermediate_size * config->shared_experts,
				   CONFIG_INTERMEDIATE_MAX);
	if (rc == 0 && config->index_every > 1 && !config_field(reader, "index_skip_topk_offset"))
		rc = REFUSE(ERROR_CONFIG,
			    "index_topk_freq is %llu, but index_skip_topk_offset is missing",
			    (unsigned long long)config->index_every);
	if (rc == 0 && config->rotary_tensors && config->hidden_size / config->heads < 2)
		rc = REFUSE(ERROR_CONFIG,
			    CONFIG_ROTARY_FIELD " needs two elements of hidden_size a "
						"head; there are %llu for %llu heads",
			    (unsigned long long)config->hidden_size,
			    (unsigned long long)config->heads);
	return rc;
}

static int read_flags(const struct config_reader *reader, struct model_config *config)
{
	config->tied = config->family->tied;
	config->attention_bias = config->family->attention_bias;
	for (const struct flag_field *row = config_flags; row->name; row++) {
		int rc = 0;

		if (family_has(config->family, row->features))
			rc = config_read_flag(reader, row->name, row->whole,
					      config_flag(config, row));
		if (rc)
			return rc;
	}
	return 0;
}

static int read_router(const struct config_reader *reader, struct model_config *config)
{
	const json_t *found = config_field(reader, "topk_method");
	const char *text;

	config->router_bias = config->family->router_bias;
	if (!found || !family_has(config->family, FEATURE_TOPK_METHOD))
		return 0;
	text = json_string_value(found);
	if (!text)
		return REFUSE(ERROR_CONFIG, "topk_method is %s; a name is needed",
			      config_type_text(found));
	config->router_bias = strcmp(text, "noaux_tc") == 0;
	if (config->router_bias || strcmp(text, "greedy") == 0 ||
	    strcmp(text, "group_limited_greedy") == 0)
		return 0;
	return REFUSE(ERROR_UNSUPPORTED,
		      "topk_method is %.60s; noaux_tc, greedy or group_limited_greedy is "
		      "possible",
		      text);
}

/* As many key and value heads as query heads, all of one size; an MLP of four times the width. */
static int read_gpt2(const struct config_reader *reader, struct model_config *config)
{
	if (config->hidden_size % config->heads)
		return REFUSE(ERROR_CONFIG, "n_head %llu does not divide n_embd %llu",
			      (unsigned long long)config->heads,
			      (unsigned long long)config->hidden_size);
	config->kv_heads = config->heads;
	config->head_dim = config->hidden_size / config->heads;
	if (!config->intermediate_size)
		config->intermediate_size = 4 * config->hidden_size;
	return 0;
}

#define FULL_EVERY 4 /* of Qwen3-Next, where a config says neither */

static bool is_full_attention(const json_t *types, size_t layer)
{
	const char *type = json_string_value(json_array_get(types, layer));

	return type && strcmp(type, "full_attention") == 0;
}

/* Which layers attend to all tokens: every n-th, said as n or layer by layer. */
static int read_layer_types(const struct config_reader *reader, struct model_config *config)
{
	const json_t *types = config_field(reader, "layer_types");
	size_t count = json_array_size(types), first = 0;

	if (!family_has(config->family, FEATURE_LINEAR))
		return 0;
	if (types && count != config->layers)
		return REFUSE(ERROR_CONFIG, "layer_types has %zu entries for %llu layers", count,
			      (unsigned long long)config->layers);
	while (first < count && !is_full_attention(types, first))
		first++;
	if (!config->full_every)
		config->full_every = types ? first + 1 : FULL_EVERY;
	for (size_t l = 0; l < count; l++)
		if (is_full_attention(types, l) != ((l + 1) % config->full_every == 0))
			return REFUSE(ERROR_UNSUPPORTED,
				      "layer_types[%zu] is %s, but with full_attention_interval "
				      "%llu %s; only every n-th layer can be full_attention",
				      l, is_full_attention(types, l) ? "full_attention" : "linear",
				      (unsigned long long)config->full_every,
				      (l + 1) % config->full_every ? "it is linear_attention"
								   : "it is full_attention");
	return 0;
}

static int check_linear(const struct config_reader *reader, const struct model_config *config)
{
	uint64_t keys = config->linear_k_heads, values = config->linear_v_heads;
	int rc;

	if (!family_has(config->family, FEATURE_LINEAR))
		return 0;
	if (values % keys)
		return REFUSE(
			ERROR_CONFIG,
			"linear_num_key_heads %llu does not divide linear_num_value_heads %llu",
			(unsigned long long)keys, (unsigned long long)values);
	rc = check_product(reader, "linear_num_key_heads times linear_key_head_dim",
			   keys * config->linear_k_head_dim, CONFIG_HEAD_ROWS_MAX);
	return rc ? rc
		  : check_product(reader, "linear_num_value_heads times linear_value_head_dim",
				  values * config->linear_v_head_dim, CONFIG_HEAD_ROWS_MAX);
}

static int read_config(struct config_reader *reader, const char *as, struct model_config *config)
{
	const json_t *quantization;
	int rc = read_family(reader, as, config);

	if (rc == 0)
		rc = read_sizes(reader, config);
	if (rc == 0 && family_has(config->family, FEATURE_GQA))
		rc = read_heads(reader, config);
	if (rc == 0 && family_has(config->family, FEATURE_GPT2))
		rc = read_gpt2(reader, config);
	if (rc == 0)
		rc = read_flags(reader, config);
	if (rc == 0)
		rc = read_router(reader, config);
	if (rc == 0)
		rc = read_layer_types(reader, config);
	if (rc == 0)
		rc = check_sizes(reader, config);
	if (rc == 0)
		rc = check_linear(reader, config);
	if (rc == 0)
		rc = check_fixed(reader, config);
	if (rc == 0)
		rc = check_lists(reader, config);
	quantization = config_field_anywhere(reader, "quantization_config");
	if (rc == 0 && quantization)
		rc = config_quantization(quantization, reader->where, config, reader->error);
	return rc ? rc : read_dtype(reader, config);
}

int config_parse_as(const char *text, size_t bytes, const char *where, const char *as,
		    struct model_config *config, struct error *error)
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
		rc = read_config(
			&(struct config_reader){
				.root = root, .text = root, .where = where, .error = error},
			as, &made);
	else
		rc = error_set(error, ERROR_FILE, "%s: the text is %s; an object is needed", where,
			       config_type_text(root));
	json_decref(root);
	if (rc == 0)
		*config = made;
	return rc;
}

int config_parse(const char *text, size_t bytes, const char *where, struct model_config *config,
		 struct error *error)
{
	return config_parse_as(text, bytes, where, NULL, config, error);
}
