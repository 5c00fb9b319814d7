/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/fault/fault.h"

#include "base/array.h"
#include "base/text.h"
#include "transport/provider.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {
	[FAULT_NONE] = "none", [FAULT_FAIL] = "fail", [FAULT_DELAY] = "delay",
	[FAULT_DROP] = "drop", [FAULT_FLIP] = "flip", [FAULT_REPEAT] = "repeat",
	[FAULT_KILL] = "kill",
};
_Static_assert(ARRAY_SIZE(kinds) == FAULT_KIND_COUNT, "a name for every kind");

/* What takes a value into a field; false where it is no such value. */
typedef bool set_field(void *field, size_t bytes, const char *value);

static bool set_text(void *field, size_t bytes, const char *value)
{
	snprintf(field, bytes, "%s", value);
	return *value && strlen(value) < bytes;
}

static bool set_op(void *field, size_t bytes, const char *value)
{
	bool known = !strcmp(value, "any") || !strcmp(value, "completion");

	for (int op = 0; op < PROVIDER_OP_COUNT; op++)
		known = known || !strcmp(value, provider_op_name((enum provider_op)op));
	return set_text(field, bytes, value) && known;
}

static bool set_kind(void *field, size_t bytes, const char *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i], value) == 0) {
			*(enum fault_kind *)field = (enum fault_kind)i;
			return true;
		}
	return false;
}

static bool set_number(void *field, size_t bytes, const char *value)
{
	return parse_u64(value, field);
}

static bool set_rate(void *field, size_t bytes, const char *value)
{
	double *rate = field;
	char *end;

	*rate = strtod(value, &end);
	return *value && !*end && *rate >= 0 && *rate <= 1;
}

static bool set_duration(void *field, size_t bytes, const char *value)
{
	return parse_duration_ms(value, field);
}

#define FIELD(name) \
	offsetof(struct fault_options, name), sizeof(((struct fault_options *)NULL)->name)

static const struct {
	const char *key;
	size_t offset, bytes;
	set_field *set;
	const char *allowed;
} rows[] = {
	{"inner", FIELD(inner), set_text, "a provider's name"},
	{"op", FIELD(op), set_op, "an op of transport/provider.h, completion or any"},
	{"kind", FIELD(kind), set_kind, "none, fail, delay, drop, flip or repeat"},
	{"at", FIELD(at), set_number, "a whole number"},
	{"rate", FIELD(rate), set_rate, "a number from 0 to 1"},
	{"seed", FIELD(seed), set_number, "a whole number"},
	{"delay", FIELD(delay_ms), set_duration, "a duration such as 50ms"},
	{"trace", FIELD(trace), set_text, "a file's name of at most 255 bytes"},
};

static int set_pair(struct fault_options *options, char *pair, struct error *error)
{
	char *value = strchr(pair, '=');

	if (!value)
		return error_set(error, ERROR_CONFIG, "WEFT_FAULT: '%s' is not key=value", pair);
	*value++ = 0;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (strcmp(rows[i].key, pair) != 0)
			continue;
		if (rows[i].set((char *)options + rows[i].offset, rows[i].bytes, value))
			return 0;
		return error_set(error, ERROR_CONFIG, "WEFT_FAULT: %s is '%s', not %s", pair, value,
				 rows[i].allowed);
	}
	return error_set(error, ERROR_CONFIG,
			 "WEFT_FAULT: there is no key '%s'; there are inner, op, kind, at, rate, "
			 "seed, delay, trace",
			 pair);
}

static int check_kind(const struct fault_options *options, struct error *error)
{
	bool completion = strcmp(options->op, "completion") == 0;

	if (options->kind >= FAULT_DROP && !completion)
		return error_set(error, ERROR_CONFIG, "WEFT_FAULT: kind %s needs op=completion",
				 kinds[options->kind]);
	if (options->kind == FAULT_FAIL && completion)
		return error_set(error, ERROR_CONFIG,
				 "WEFT_FAULT: a completion cannot fail by itself: use kind=flip");
	return 0;
}

int fault_options_parse(struct fault_options *options, const char *text, struct error *error)
{
	char copy[512], *save = NULL;
	int rc = 0;

	*options = (struct fault_options){.inner = "shm", .op = "any", .kind = FAULT_FAIL};
	if (strlen(text) >= sizeof(copy))
		return error_set(error, ERROR_CONFIG, "WEFT_FAULT has %zu characters; at most %zu",
				 strlen(text), sizeof(copy) - 1);
	strcpy(copy, text);
	for (char *pair = strtok_r(copy, ",", &save); pair && !rc;
	     pair = strtok_r(NULL, ",", &save))
		rc = set_pair(options, pair, error);
	return rc ? rc : check_kind(options, error);
}

int fault_wanted(const char *provider, struct error *error)
{
	const char *text = getenv("WEFT_FAULT");
	struct fault_options options;
	int rc;

	if (!text || !*text)
		return 0;
	rc = fault_options_parse(&options, text, error);
	return rc ? rc : strcmp(options.inner, provider) == 0;
}
