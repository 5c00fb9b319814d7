/* SPDX-License-Identifier: Apache-2.0 */
#include "job/transports.h"

#include <string.h>

bool transports_listed(const char *text)
{
	return strchr(text, ',') || strcmp(text, "auto") == 0;
}

uint32_t transports_find(const struct transports *transports, const char *name)
{
	uint32_t i = 0;

	while (i < transports->count && strcmp(transports->names[i], name) != 0)
		i++;
	return i;
}

static bool is_name(const char *text, size_t length)
{
	static const char known[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

	return length && length < TRANSPORTS_NAME_BYTES && strspn(text, known) >= length;
}

int transports_parse(struct transports *transports, const char *text, struct error *error)
{
	const char *at = strcmp(text, "auto") ? text : TRANSPORTS_AUTO;

	*transports = (struct transports){0};
	for (;; at++) {
		char *name = transports->names[transports->count];
		size_t length = strcspn(at, ",");

		if (!is_name(at, length))
			return error_set(
				error, ERROR_CONFIG,
				"transport '%.100s': '%.*s' is no name of a transport; one "
				"name, a list such as shm,verbs, or auto is possible",
				text, length > 40 ? 40 : (int)length, at);
		if (transports->count == TRANSPORTS_MAX)
			return error_set(error, ERROR_CONFIG,
					 "transport '%.100s' lists more than %d names", text,
					 TRANSPORTS_MAX);
		memcpy(name, at, length);
		name[length] = 0;
		if (transports_find(transports, name) < transports->count)
			return error_set(error, ERROR_CONFIG, "transport '%.100s' lists %s twice",
					 text, name);
		transports->count++;
		at += length;
		if (!*at)
			return 0;
	}
}

char *transports_text(const struct transports *transports, char out[TRANSPORTS_TEXT_BYTES])
{
	char *at = out;

	*at = 0;
	for (uint32_t i = 0; i < transports->count; i++) {
		if (i)
			*at++ = ',';
		at = stpcpy(at, transports->names[i]);
	}
	return out;
}
