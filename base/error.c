/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include "base/plain.h"
#include <stdio.h>
#include <string.h>

/* A message may quote a file or a peer, and ends on a terminal or as a line of a log. */
static void mark_cut(char *text, int n)
{
	if (n >= ERROR_TEXT_BYTES)
		memcpy(text + ERROR_TEXT_BYTES - 4, "...", 4);
	plain_mask(text);
}

int error_vset(struct error *error, enum error_code code, const char *format, va_list args)
{
	if (error) {
		error->code = code;
		mark_cut(error->text, vsnprintf(error->text, sizeof(error->text), format, args));
	}
	return -(int)code;
}

int error_set(struct error *error, enum error_code code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_vset(error, code, format, args);
	va_end(args);
	return -(int)code;
}

int error_set_errno(struct error *error, enum error_code code, int errnum, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_vset(error, code, format, args);
	va_end(args);
	if (error) {
		size_t n = strlen(error->text);
		char words[128];
		/* GNU strerror_r may return a static string; both forms are thread safe */
		const char *text = strerror_r(errnum, words, sizeof(words));

		mark_cut(error->text,
			 (int)n + snprintf(error->text + n, sizeof(error->text) - n, ": %s", text));
	}
	return -(int)code;
}

int error_wrap(struct error *error, const char *format, ...)
{
	char inner[ERROR_TEXT_BYTES];
	va_list args;
	int n;

	if (!error)
		return -(int)ERROR_INTERNAL;
	memcpy(inner, error->text, sizeof(inner));
	va_start(args, format);
	n = vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	if (n < 0)
		n = 0;
	if (n < ERROR_TEXT_BYTES)
		n += snprintf(error->text + n, sizeof(error->text) - (size_t)n, ": %s", inner);
	mark_cut(error->text, n);
	return -(int)error->code;
}

int error_copy(struct error *error, const struct error *failure)
{
	if (error)
		*error = *failure;
	return -(int)failure->code;
}

struct code_row {
	int code;
	int exit_code;
	const char *words;
};

static const struct code_row code_rows[] = {
#define X(name, number, exit_code, words) {number, exit_code, words},
	ERROR_CODES(X)
#undef X
};

static const struct code_row *find(int code)
{
	for (size_t i = 0; i < sizeof(code_rows) / sizeof(code_rows[0]); i++)
		if (code_rows[i].code == code)
			return &code_rows[i];
	return NULL;
}

const char *error_strerror(enum error_code code)
{
	const struct code_row *row = find((int)code);

	return row ? row->words : "unknown error";
}

int error_exit_code(enum error_code code)
{
	const struct code_row *row = find((int)code);

	if (code == ERROR_NONE)
		return 0;
	return row ? row->exit_code : 1;
}

bool error_known(int code)
{
	return find(code) != NULL;
}
