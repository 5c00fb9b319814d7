/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/scenario.h"

#include "base/array.h"
#include "base/text.h"
#include <jansson.h>
#include <string.h>

void scenarios_fini(struct scenarios *scenarios)
{
	pool_free(&scenarios->pool);
	memory_free(scenarios->items);
	*scenarios = (struct scenarios){0};
}

static int take_seconds(double *out, const json_t *item, const char *key, const char *file,
			size_t index, struct error *error)
{
	const json_t *value = json_object_get(item, key);

	if (!json_is_number(value) || json_number_value(value) <= 0)
		return error_set(error, ERROR_FILE,
				 "%s: scenario %zu needs \"%s\", a number of seconds above 0", file,
				 index, key);
	*out = json_number_value(value);
	return 0;
}

static int take_scenario(struct scenarios *scenarios, const json_t *item, const char *file,
			 size_t index, struct error *error)
{
	struct scenario *scenario = &scenarios->items[index];
	const struct {
		const char *key, **to, **otherwise;
	} strings[] = {{"name", &scenario->name, NULL},
		       {"model", &scenario->model, NULL},
		       {"train", &scenario->train, NULL},
		       {"infer", &scenario->infer, NULL},
		       {"topology", &scenario->topology, NULL},
		       {"cut", &scenario->cut, NULL},
		       {"cut_model", &scenario->cut_model, &scenario->model},
		       {"cut_infer", &scenario->cut_infer, &scenario->infer}};
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		const json_t *value = json_object_get(item, strings[i].key);
		const char *text = !value && strings[i].otherwise ? *strings[i].otherwise
								  : json_string_value(value);

		if (!text)
			return error_set(error, ERROR_FILE,
					 "%s: scenario %zu needs a string \"%s\"", file, index,
					 strings[i].key);
		*strings[i].to = pool_string(&scenarios->pool, text);
		if (!*strings[i].to)
			return memory_error(error, "reading scenarios", strlen(text));
	}
	rc = take_seconds(&scenario->nccl_seconds, item, "nccl_seconds", file, index, error);
	return rc ? rc
		  : take_seconds(&scenario->rdma_seconds, item, "rdma_seconds", file, index, error);
}

static int take_all(struct scenarios *scenarios, const json_t *root, const char *file,
		    struct error *error)
{
	const char *schema = json_string_value(json_object_get(root, "schema"));
	const json_t *list = json_object_get(root, "scenarios");
	int rc = 0;

	if (!schema || strcmp(schema, SCENARIO_SCHEMA))
		return error_set(error, ERROR_FILE, "%s: its schema is %s, not %s", file,
				 schema ? schema : "missing", SCENARIO_SCHEMA);
	if (!json_is_array(list))
		return error_set(error, ERROR_FILE, "%s: it needs a list \"scenarios\"", file);
	for (size_t i = 0; !rc && i < json_array_size(list); i++) {
		struct scenario *scenario = array_push(scenarios);

		rc = scenario ? take_scenario(scenarios, json_array_get(list, i), file, i, error)
			      : memory_error(error, "reading scenarios", sizeof(*scenario));
	}
	return rc;
}

int scenarios_parse(struct scenarios *scenarios, const char *text, size_t bytes, const char *name,
		    struct error *error)
{
	json_error_t trouble;
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &trouble);
	int rc;

	*scenarios = (struct scenarios){0};
	if (!root)
		return error_set(error, ERROR_FILE, "%s: line %d: %s", name, trouble.line,
				 trouble.text);
	rc = take_all(scenarios, root, name, error);
	json_decref(root);
	if (rc)
		scenarios_fini(scenarios);
	return rc;
}

int scenarios_published(struct scenarios *scenarios, struct error *error)
{
	return scenarios_parse(scenarios, (const char *)scenario_published_json,
			       scenario_published_bytes, "published.json", error);
}

int scenarios_select(struct scenarios *scenarios, const char *name, struct error *error)
{
	struct text known = {0};
	int rc;

	for (size_t i = 0; name && i < scenarios->count; i++) {
		struct scenario *found = &scenarios->items[i], kept = *found;

		if (strcmp(found->name, name) != 0)
			continue;
		*found = scenarios->items[0];
		scenarios->items[0] = kept;
		scenarios->count = 1;
		return 0;
	}
	if (!name)
		return 0;
	for (size_t i = 0; i < scenarios->count; i++)
		text_format(&known, "%s%s", i ? ", " : "", scenarios->items[i].name);
	rc = error_set(error, ERROR_USAGE, "--row %s is not known; these are: %s", name,
		       text_string(&known));
	text_fini(&known);
	return rc;
}
