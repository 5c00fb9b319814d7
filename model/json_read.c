/* SPDX-License-Identifier: Apache-2.0 */
#include "model/json_read.h"

#include <inttypes.h>
#include <string.h>

int json_failed(struct json_reader *r, int rc)
{
	if (!r->failed)
		r->failed = rc;
	return r->failed;
}

int json_refuse(struct json_reader *r, const char *format, ...)
{
	const struct json_place *at = &r->at;
	va_list args;

	if (r->failed)
		return r->failed;
	va_start(args, format);
	r->failed = error_vset(r->error, ERROR_FILE, format, args);
	va_end(args);
	if (at->inner)
		error_wrap(r->error, "%s[%zu].%s[%zu]", at->list, at->index, at->inner,
			   at->inner_index);
	else if (at->list)
		error_wrap(r->error, at->index == SIZE_MAX ? "%s" : "%s[%zu]", at->list, at->index);
	if (r->name)
		error_wrap(r->error, "%s", r->name);
	return r->failed;
}

/* ---- keys ---- */

static bool in_group(const char *group, const char *key)
{
	size_t length = strlen(key);

	for (const char *at = group; at; at = strchr(at, '|')) {
		at += *at == '|';
		if (strncmp(at, key, length) == 0 && (at[length] == '|' || !at[length]))
			return length > 0;
	}
	return false;
}

int json_known_keys(struct json_reader *r, json_t *object, const char *const *groups)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return json_refuse(r, "not an object");
	json_object_foreach(object, key, value)
	{
		size_t g = 0;

		while (groups[g] && !in_group(groups[g], key))
			g++;
		if (!groups[g])
			return json_refuse(r, "key \"%.64s\" is unknown", key);
	}
	return r->failed;
}

/* Of a group of several. */
static int need_one(struct json_reader *r, json_t *object, const char *group)
{
	const char *key, *found = NULL, *other = strchr(group, '|') + 1;
	json_t *value;

	json_object_foreach(object, key, value)
	{
		if (!in_group(group, key))
			continue;
		if (found)
			return json_refuse(r, "both \"%s\" and \"%s\" are given", found, key);
		found = key;
	}
	if (found || group[strlen(group) - 1] == '|')
		return r->failed;
	return json_refuse(r, "key \"%.*s\" or \"%s\" is missing", (int)(other - 1 - group), group,
			   other);
}

int json_needed_keys(struct json_reader *r, json_t *object, const char *const *groups)
{
	if (!json_is_object(object))
		return json_refuse(r, "not an object");
	for (size_t g = 0; groups[g]; g++) {
		if (strchr(groups[g], '|'))
			need_one(r, object, groups[g]);
		else if (!json_object_get(object, groups[g]))
			json_refuse(r, "key \"%s\" is missing", groups[g]);
	}
	return r->failed;
}

/* ---- values ---- */

int json_take_number(struct json_reader *r, json_t *object, const char *key, uint64_t least,
		     uint64_t most, uint64_t *out)
{
	json_t *value = json_object_get(object, key);
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value))
		return json_refuse(r, "\"%s\" is not a whole number", key);
	if (number < 0 || (uint64_t)number < least || (uint64_t)number > most)
		return json_refuse(r,
				   "\"%s\" is %" PRId64 "; %" PRIu64 " to %" PRIu64 " are possible",
				   key, (int64_t)number, least, most);
	*out = (uint64_t)number;
	return r->failed;
}

int json_take_number32(struct json_reader *r, json_t *object, const char *key, uint32_t most,
		       uint32_t *out)
{
	uint64_t value = 0;
	int rc = json_take_number(r, object, key, 0, most, &value);

	*out = (uint32_t)value;
	return rc;
}

int json_take_bool(struct json_reader *r, json_t *object, const char *key, bool *out)
{
	json_t *value = json_object_get(object, key);

	*out = json_is_true(value);
	return json_is_boolean(value) ? r->failed
				      : json_refuse(r, "\"%s\" is not true or false", key);
}

int json_take_ratio(struct json_reader *r, json_t *object, const char *key, double *out)
{
	json_t *value = json_object_get(object, key);

	*out = json_number_value(value);
	return json_is_number(value) ? r->failed : json_refuse(r, "\"%s\" is not a number", key);
}

int json_take_string(struct json_reader *r, json_t *object, const char *key, const char **out)
{
	*out = json_string_value(json_object_get(object, key));
	return *out ? r->failed : json_refuse(r, "\"%s\" is not a string", key);
}

int json_take_list(struct json_reader *r, json_t *object, const char *key, json_t **out)
{
	*out = json_object_get(object, key);
	return json_is_array(*out) ? r->failed : json_refuse(r, "\"%s\" is not a list", key);
}
