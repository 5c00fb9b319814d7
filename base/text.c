/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include "base/memory.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool reserve(struct text *text, size_t more)
{
	size_t wanted = text->capacity ? text->capacity : 64;
	char *grown;

	if (text->failed)
		return false;
	if (text->data && text->bytes + more < text->capacity)
		return true;
	while (wanted <= text->bytes + more)
		wanted *= 2;
	grown = memory_resize(text->data, wanted, 1);
	if (!grown) {
		text->failed = true;
		return false;
	}
	text->data = grown;
	text->capacity = wanted;
	return true;
}

void text_add_bytes(struct text *text, const void *data, size_t bytes)
{
	if (!reserve(text, bytes))
		return;
	memcpy(text->data + text->bytes, data, bytes);
	text->bytes += bytes;
	text->data[text->bytes] = '\0';
}

void text_add(struct text *text, const char *string)
{
	text_add_bytes(text, string, strlen(string));
}

/* Mostly there is room for it: then it is formatted once. */
void text_format(struct text *text, const char *format, ...)
{
	size_t room = text->data ? text->capacity - text->bytes : 0;
	va_list args, again;
	int n;

	va_start(args, format);
	va_copy(again, args);
	n = vsnprintf(room ? text->data + text->bytes : NULL, room, format, args);
	if (n >= 0 && reserve(text, (size_t)n)) {
		if ((size_t)n >= room)
			vsnprintf(text->data + text->bytes, (size_t)n + 1, format, again);
		text->bytes += (size_t)n;
	} else if (room) {
		text->data[text->bytes] = '\0';
	}
	va_end(again);
	va_end(args);
}

bool text_ok(const struct text *text)
{
	return !text->failed;
}

bool text_ends(const char *string, const char *tail)
{
	size_t bytes = strlen(string), end = strlen(tail);

	return bytes >= end && strcmp(string + bytes - end, tail) == 0;
}

const char *text_string(const struct text *text)
{
	return text->data ? text->data : "";
}

void text_fini(struct text *text)
{
	memory_free(text->data);
	*text = (struct text){0};
}

const char *text_line(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && line[n + strspn(line + n, " \t")] == ':')
			return line + n + strspn(line + n, " \t") + 1;
	}
	return NULL;
}

bool parse_u64(const char *string, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)*string))
		return false;
	errno = 0;
	*value = strtoull(string, &end, 10);
	return errno == 0 && *end == '\0';
}

bool parse_flag(const char *string, bool *on)
{
	*on = strcmp(string, "1") == 0;
	return *on || strcmp(string, "0") == 0 || !*string;
}

/* A non-negative decimal number, then a unit that the caller looks up. */
static bool parse_number(const char *string, double *value, const char **unit)
{
	char *end;

	if (!isdigit((unsigned char)*string) || (string[0] == '0' && string[1] == 'x'))
		return false;
	*value = strtod(string, &end);
	while (*end == ' ')
		end++;
	*unit = end;
	return isfinite(*value);
}

bool parse_bytes(const char *string, uint64_t *bytes)
{
	static const char letters[] = "KMGTP";
	const char *unit, *letter;
	double value, scale = 1;

	if (parse_u64(string, bytes))
		return true;
	if (!parse_number(string, &value, &unit))
		return false;
	letter = *unit ? strchr(letters, toupper((unsigned char)*unit)) : NULL;
	if (letter) {
		scale = pow(1024, (double)(letter - letters + 1));
		unit++;
		if (*unit == 'i')
			unit++;
	}
	if (toupper((unsigned char)*unit) == 'B')
		unit++;
	if (*unit || value * scale >= 0x1p63)
		return false;
	*bytes = (uint64_t)(value * scale);
	return true;
}

bool parse_duration_ms(const char *string, uint64_t *ms)
{
	static const struct {
		const char *unit;
		double ms;
	} units[] = {{"", 1000},   {"ms", 1},	   {"s", 1000},
		     {"m", 60000}, {"min", 60000}, {"h", 3600000}};
	const char *unit;
	double value;

	if (!parse_number(string, &value, &unit))
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcasecmp(unit, units[i].unit) == 0 && value * units[i].ms < 0x1p53) {
			*ms = (uint64_t)llround(value * units[i].ms);
			return true;
		}
	}
	return false;
}

char *bytes_text(uint64_t bytes, char out[TEXT_SHORT_BYTES])
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1000;
		unit++;
	}
	snprintf(out, TEXT_SHORT_BYTES, "%.*f %s",
		 unit == 0 || value >= 99.95 ? 0
		 : value >= 9.995	     ? 1
					     : 2,
		 value, units[unit]);
	return out;
}

char *grouped_text(uint64_t value, char out[TEXT_SHORT_BYTES])
{
	char digits[TEXT_SHORT_BYTES];
	int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
	int at = 0;

	for (int i = 0; i < n; i++) {
		if (i && (n - i) % 3 == 0)
			out[at++] = ',';
		out[at++] = digits[i];
	}
	out[at] = '\0';
	return out;
}

char *seconds_text(uint64_t ns, char out[TEXT_SHORT_BYTES])
{
	double seconds = (double)ns / 1e9;

	if (seconds < 1e-3)
		snprintf(out, TEXT_SHORT_BYTES, "%.0f us", seconds * 1e6);
	else if (seconds < 1)
		snprintf(out, TEXT_SHORT_BYTES, "%.1f ms", seconds * 1e3);
	else
		snprintf(out, TEXT_SHORT_BYTES, "%.2f s", seconds);
	return out;
}
