/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/dump_value.h"

#include <string.h>

static const char doing[] = "reading a routing dump";

int dump_no_memory(struct json_reader *r, size_t bytes)
{
	return r->failed ? r->failed : json_failed(r, memory_error(r->error, doing, bytes));
}

int dump_keys(struct json_reader *r, json_t *object, const char *const *keys)
{
	json_needed_keys(r, object, keys);
	return json_known_keys(r, object, keys);
}

int dump_copy(struct json_reader *r, struct dump *dump, json_t *object, const char *key,
	      const char **out)
{
	const char *value;

	if (json_take_string(r, object, key, &value))
		return r->failed;
	*out = pool_string(&dump->pool, value);
	return *out ? 0 : dump_no_memory(r, strlen(value));
}

int dump_path(struct json_reader *r, json_t *object, enum route_path *out)
{
	const char *name;

	if (json_take_string(r, object, "how", &name))
		return r->failed;
	for (*out = 0; *out < PATH_COUNT; ++*out)
		if (strcmp(name, route_path_name(*out)) == 0)
			return 0;
	return json_refuse(r, "\"how\" is \"%.32s\"; direct, mapped, replica and landed are known",
			   name);
}

int dump_name_index(struct dump *dump, const char *name, uint32_t *out, struct error *error)
{
	int rc;

	if (strmap_get(&dump->known, name, out))
		return 0;
	rc = names_add(&dump->names, name, error);
	if (rc)
		return rc;
	*out = (uint32_t)dump->names.count - 1;
	return strmap_put(&dump->known, dump->names.items[*out], *out)
		       ? 0
		       : memory_error(error, doing, strlen(name));
}

int dump_name(struct json_reader *r, struct dump *dump, json_t *object, const char *key,
	      uint32_t *out)
{
	const char *name;

	if (json_take_string(r, object, key, &name))
		return r->failed;
	return json_failed(r, dump_name_index(dump, name, out, r->error));
}
