/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/fault/fault.h"

#include "base/array.h"
#include "base/text.h"
#include "transport/provider.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {
	[FAULT_NONE] = "none", [FAULT_FAIL] = "fail", [FAULT_DELAY] = "delay",
	[FAULT_DROP] = "drop", [FAULT_FLIP] = "flip", [FAULT_REPEAT] = "repeat",
};
_Static_assert(ARRAY_SIZE(kinds) == FAULT_KIND_COUNT, "a name for every kind");

static bool set_inner(struct fault_options *options, const char *value)
{
	snprintf(options->inner, sizeof(options->inner), "%s", value);
	return *value && strlen(value) < sizeof(options->inner);
}

static bool set_op(struct fault_options *options, const char *value)
{
	bool known = !strcmp(value, "any") || !strcmp(value, "completion");

	for (int op = 0; op < PROVIDER_OP_COUNT; op++)
		known = known || !strcmp(value, provider_op_name((enum provider_op)op));
	snprintf(options->op, sizeof(options->op), "%s", value);
	return known;
}

static bool set_kind(struct fault_options *options, const char *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(kinds[i], value) == 0) {
			options->kind = (enum fault_kind)i;
			return true;
		}
	return false;
}

static bool set_at(struct fault_options *options, const char *value)
{
	return parse_u64(value, &options->at);
}

static bool set_rate(struct fault_options *options, const char *value)
{
	char *end;

	options->rate = strtod(value, &end);
	return *value && !*end && options->rate >= 0 && options->rate <= 1;
}

static bool set_seed(struct fault_options *options, const char *value)
{
	return parse_u64(value, &options->seed);
}

static bool set_delay(struct fault_options *options, const char *value)
{
	return parse_duration_ms(value, &options->delay_ms);
}

static bool set_trace(struct fault_options *options, const char *value)
{
	snprintf(options->trace, sizeof(options->trace), "%s", value);
	return *value && strlen(value) < sizeof(options->trace);
}

static const struct {
	const char *key;
	bool (*set)(struct fault_options *options, const char *value);
	const char *allowed;
} rows[] = {
	{"inner", set_inner, "a provider's name"},
	{"op", set_op, "an op of transport/provider.h, completion or any"},
	{"kind", set_kind, "none, fail, delay, drop, flip or repeat"},
	{"at", set_at, "a whole number"},
	{"rate", set_rate, "a number from 0 to 1"},
	{"seed", set_seed, "a whole number"},
	{"delay", set_delay, "a duration such as 50ms"},
	{"trace", set_trace, "a file's name of at most 255 bytes"},
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
		if (rows[i].set(options, value))
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
