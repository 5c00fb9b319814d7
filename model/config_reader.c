/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config_reader.h"

#include "model/config_fields.h"
#include <jansson.h>
#include <string.h>

const char *config_type_text(const json_t *value)
{
	static const char *const words[] = {
		[JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",
		[JSON_STRING] = "a string",  [JSON_INTEGER] = "an integer",
		[JSON_REAL] = "a fraction",  [JSON_TRUE] = "a boolean",
		[JSON_FALSE] = "a boolean",  [JSON_NULL] = "null",
	};

	return words[json_typeof(value)];
}

static const json_t *exactly(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	return value && !json_is_null(value) ? value : NULL;
}

/* The next spelling of `name` behind *row that this class has and that `object` carries. */
static const char *other_spelling(const struct config_reader *reader, const json_t *object,
				  const char *name, const struct spelling **row)
{
	while ((*row)->name) {
		const struct spelling *at = (*row)++;

		if (strcmp(at->name, name) == 0 && reader->family &&
		    family_has(reader->family, at->features) && exactly(object, at->other))
			return at->other;
	}
	return NULL;
}

static const json_t *spelled(const struct config_reader *reader, const json_t *object,
			     const char *name)
{
	const struct spelling *row = config_spellings;
	const json_t *value = exactly(object, name);
	const char *other = value ? NULL : other_spelling(reader, object, name, &row);

	return other ? exactly(object, other) : value;
}

const json_t *config_field(const struct config_reader *reader, const char *name)
{
	return spelled(reader, reader->text, name);
}

const json_t *config_field_anywhere(const struct config_reader *reader, const char *name)
{
	const json_t *value = spelled(reader, reader->root, name);

	return value ? value : config_field(reader, name);
}

bool config_mentions(const struct config_reader *reader, const char *name)
{
	return json_object_get(reader->text, name);
}

/* Of messages: where the text model's fields stand. */
static const char *inside(const struct config_reader *reader)
{
	return config_nested(reader) ? "text_config." : "";
}

int config_missing(const struct config_reader *reader, const char *name)
{
	return CONFIG_REFUSE(reader, ERROR_CONFIG, "%s%s is %s", inside(reader), name,
			     json_object_get(reader->text, name) ? "null; a value is needed"
								 : "missing");
}

/* Two spellings of one size must say the same: which one wins depends on transformers' version. */
static int check_spellings(const struct config_reader *reader, const char *name,
			   const json_t *first)
{
	const struct spelling *row = config_spellings;
	const char *other;

	while ((other = other_spelling(reader, reader->text, name, &row)))
		if (!json_equal(first, exactly(reader->text, other)))
			return CONFIG_REFUSE(reader, ERROR_CONFIG,
					     "%s%s and %s are two names of one field and differ",
					     inside(reader), name, other);
	return 0;
}

int config_read_size(const struct config_reader *reader, const char *name, uint64_t min,
		     uint64_t max, uint64_t *value)
{
	const json_t *found = config_field(reader, name);
	json_int_t number;
	int rc;

	if (!found)
		return 0;
	rc = check_spellings(reader, name, found);
	if (rc)
		return rc;
	if (!json_is_integer(found))
		return CONFIG_REFUSE(reader, ERROR_CONFIG, "%s%s is %s; an integer is needed",
				     inside(reader), name, config_type_text(found));
	number = json_integer_value(found);
	if (number < (json_int_t)min || (uint64_t)number > max)
		return CONFIG_REFUSE(reader, ERROR_CONFIG, "%s%s is %lld; %llu to %llu is possible",
				     inside(reader), name, (long long)number,
				     (unsigned long long)min, (unsigned long long)max);
	*value = (uint64_t)number;
	return 0;
}

int config_read_flag(const struct config_reader *reader, const char *name, bool whole, bool *value)
{
	const json_t *found =
		whole ? config_field_anywhere(reader, name) : config_field(reader, name);

	if (!found)
		return 0;
	if (!json_is_boolean(found))
		return CONFIG_REFUSE(reader, ERROR_CONFIG, "%s is %s; true or false is needed",
				     name, config_type_text(found));
	*value = json_is_true(found);
	return 0;
}

bool config_default(const struct config_reader *reader, const char *name, uint64_t *value)
{
	const struct size_default *row = reader->defaults;

	for (; row && row->name; row++)
		if (strcmp(row->name, name) == 0) {
			*value = row->value;
			return true;
		}
	return false;
}
