/* SPDX-License-Identifier: Apache-2.0 */
#include "job/spec_keys.h"

#include "job/parallel.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define REFUSE(format, ...) \
	error_set(error, ERROR_CONFIG, "%s %s: " format, parse->flag, parse->spec, ##__VA_ARGS__)

static uint32_t *field(void *target, const struct spec_key *row)
{
	return (uint32_t *)(void *)((char *)target + row->offset);
}

static int unknown_key(const struct spec_parse *parse, const char *key, struct error *error)
{
	char known[512] = "";
	size_t n = 0;

	for (size_t i = 0; i < parse->row_count; i++)
		n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", i ? ", " : "",
				      parse->rows[i].name);
	return REFUSE("unknown key '%s'; keys are %s, %s", key, known, parse->other_keys);
}

static int take_number(const struct spec_parse *parse, const struct spec_key *row,
		       const char *value, struct error *error)
{
	uint64_t number;

	if (!parse_u64(value, &number) || number < row->min || number > row->max)
		return REFUSE("%s is '%s'; it must be a number from %u to %u", row->name, value,
			      row->min, row->max);
	*field(parse->target, row) = (uint32_t)number;
	return 0;
}

static int take_choice(const struct spec_parse *parse, const struct spec_key *row,
		       const char *value, struct error *error)
{
	char known[128] = "";
	size_t n = 0;

	for (const struct spec_choice *choice = row->choices; choice->name; choice++) {
		if (strcasecmp(choice->name, value) == 0) {
			*field(parse->target, row) = choice->value;
			return 0;
		}
		n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s",
				      n == 0	       ? ""
				      : choice[1].name ? ", "
						       : " or ",
				      choice->name);
	}
	return REFUSE("%s is '%s'; use %s", row->name, value, known);
}

static int take_key(struct spec_parse *parse, const char *key, const char *value,
		    struct error *error)
{
	int rc = parse->other(parse, key, value, error);

	if (rc)
		return rc < 0 ? rc : 0;
	for (size_t i = 0; i < parse->row_count; i++) {
		const struct spec_key *row = &parse->rows[i];

		if (strcmp(row->name, key) != 0)
			continue;
		if (parse->seen & 1u << i)
			return REFUSE("key '%s' is given twice", key);
		parse->seen |= 1u << i;
		return (row->choices ? take_choice : take_number)(parse, row, value, error);
	}
	return unknown_key(parse, key, error);
}

/* What stands behind the item and is no key=value is of it too: the comma between them comes back. */
static void join(char **rest)
{
	while (*rest && (*rest)[strcspn(*rest, ",=")] != '=') {
		(*rest)[-1] = ',';
		strsep(rest, ",");
	}
}

int spec_parse_keys(struct spec_parse *parse, struct error *error)
{
	char copy[PARALLEL_TEXT_BYTES];
	char *rest = copy, *item;

	if (strlen(parse->spec) >= sizeof(copy))
		return error_set(error, ERROR_CONFIG, "%s is longer than %d characters",
				 parse->flag, PARALLEL_TEXT_BYTES - 1);
	if (!*parse->spec)
		return error_set(error, ERROR_CONFIG, "%s is empty; give it like %s", parse->flag,
				 parse->example);
	strcpy(copy, parse->spec);
	for (size_t i = 0; i < parse->row_count; i++)
		*field(parse->target, &parse->rows[i]) = parse->rows[i].absent;
	while ((item = strsep(&rest, ",")) != NULL) {
		char *value = strchr(item, '=');
		int rc;

		if (!value)
			return REFUSE("'%s' is not key=value", item);
		*value++ = '\0';
		if (parse->listed && strcmp(item, parse->listed) == 0)
			join(&rest);
		rc = take_key(parse, item, value, error);
		if (rc)
			return rc;
	}
	return 0;
}

static const char *choice_name(const struct spec_choice *choices, uint32_t value)
{
	while (choices->name && choices->value != value)
		choices++;
	return choices->name ? choices->name : "?";
}

size_t spec_keys_text(const struct spec_key *rows, size_t count, const void *spec, char *out)
{
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		uint32_t value =
			*(const uint32_t *)(const void *)((const char *)spec + rows[i].offset);

		if (!rows[i].told && value == rows[i].absent)
			continue;
		n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%s%s=", n ? "," : "",
				      rows[i].name);
		if (rows[i].choices)
			n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%s",
					      choice_name(rows[i].choices, value));
		else
			n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%u", value);
	}
	return n;
}
