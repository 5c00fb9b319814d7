/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/dump_value.h"

#include "base/memory.h"
#include <inttypes.h>
#include <string.h>

int dump_failed(struct dump_reader *r, int rc)
{
	if (!r->failed)
		r->failed = rc;
	return r->failed;
}

/* "FILE: routes[12].pieces[0]: <message>" */
int dump_refuse(struct dump_reader *r, const char *format, ...)
{
	va_list args;

	if (r->failed)
		return r->failed;
	r->failed = -ERROR_FILE;
	va_start(args, format);
	error_vset(r->error, ERROR_FILE, format, args);
	va_end(args);
	if (r->at.inner)
		return error_wrap(r->error, "%s: %s[%zu].%s[%zu]", r->name, r->at.list, r->at.index,
				  r->at.inner, r->at.inner_index);
	if (r->at.list && r->at.index != SIZE_MAX)
		return error_wrap(r->error, "%s: %s[%zu]", r->name, r->at.list, r->at.index);
	if (r->at.list)
		return error_wrap(r->error, "%s: %s", r->name, r->at.list);
	return error_wrap(r->error, "%s", r->name);
}

int dump_no_memory(struct dump_reader *r, size_t bytes)
{
	return r->failed ? r->failed
			 : dump_failed(r, memory_error(r->error, "reading a routing dump", bytes));
}

static bool is_one_of(const char *key, const char *const *keys)
{
	for (size_t i = 0; keys && keys[i]; i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

/* The object has all of `needed` and nothing else than these and `optional` (may be NULL). */
int dump_keys(struct dump_reader *r, json_t *object, const char *const *needed,
	      const char *const *optional)
{
	const char *key;
	json_t *value;

	if (r->failed)
		return r->failed;
	if (!json_is_object(object))
		return dump_refuse(r, "not an object");
	for (size_t i = 0; needed[i]; i++)
		if (!json_object_get(object, needed[i]))
			return dump_refuse(r, "key \"%s\" is missing", needed[i]);
	json_object_foreach(object, key, value)
	{
		if (!is_one_of(key, needed) && !is_one_of(key, optional))
			return dump_refuse(r, "key \"%.64s\" is unknown", key);
	}
	return 0;
}

int dump_number(struct dump_reader *r, json_t *object, const char *key, uint64_t max, uint64_t *out)
{
	json_t *value = json_object_get(object, key);

	if (!json_is_integer(value))
		return dump_refuse(r, "\"%s\" is not a whole number", key);
	if (json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > max)
		return dump_refuse(r, "\"%s\" is %" PRId64 "; 0 to %" PRIu64 " are possible", key,
				   (int64_t)json_integer_value(value), max);
	*out = (uint64_t)json_integer_value(value);
	return r->failed;
}

int dump_number32(struct dump_reader *r, json_t *object, const char *key, uint32_t max,
		  uint32_t *out)
{
	uint64_t value = 0;
	int rc = dump_number(r, object, key, max, &value);

	*out = (uint32_t)value;
	return rc;
}

int dump_bool(struct dump_reader *r, json_t *object, const char *key, bool *out)
{
	json_t *value = json_object_get(object, key);

	*out = json_is_true(value);
	return json_is_boolean(value) ? r->failed
				      : dump_refuse(r, "\"%s\" is not true or false", key);
}

int dump_ratio(struct dump_reader *r, json_t *object, const char *key, double *out)
{
	json_t *value = json_object_get(object, key);

	if (!json_is_number(value))
		return dump_refuse(r, "\"%s\" is not a number", key);
	*out = json_number_value(value);
	return r->failed;
}

int dump_string(struct dump_reader *r, json_t *object, const char *key, const char **out)
{
	*out = json_string_value(json_object_get(object, key));
	return *out ? r->failed : dump_refuse(r, "\"%s\" is not a string", key);
}

int dump_copy(struct dump_reader *r, json_t *object, const char *key, char **out)
{
	const char *value;
	int rc = dump_string(r, object, key, &value);

	if (rc)
		return rc;
	*out = memory_string(value);
	return *out ? 0 : dump_no_memory(r, strlen(value));
}

int dump_list(struct dump_reader *r, json_t *object, const char *key, json_t **out)
{
	*out = json_object_get(object, key);
	return json_is_array(*out) ? r->failed : dump_refuse(r, "\"%s\" is not a list", key);
}

int dump_path(struct dump_reader *r, json_t *object, enum route_path *out)
{
	const char *name;
	int rc = dump_string(r, object, "how", &name);

	if (rc)
		return rc;
	for (int path = 0; path < PATH_COUNT; path++) {
		if (strcmp(name, route_path_name((enum route_path)path)) == 0) {
			*out = (enum route_path)path;
			return 0;
		}
	}
	return dump_refuse(r, "\"how\" is \"%.32s\"; direct, mapped and replica are known", name);
}

/* The index of a name, each kept once: routes repeat them by the million. */
int dump_name(struct dump_reader *r, json_t *object, const char *key, uint32_t *out)
{
	struct names *names = &r->dump->names;
	const char *name;
	int rc = dump_string(r, object, key, &name);

	if (rc || strmap_get(&r->known, name, out))
		return rc;
	rc = dump_failed(r, names_add(names, name, r->error));
	if (rc)
		return rc;
	*out = (uint32_t)names->count - 1;
	return strmap_put(&r->known, names->items[*out], *out) ? 0
							       : dump_no_memory(r, strlen(name));
}
