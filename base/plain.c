/* SPDX-License-Identifier: Apache-2.0 */
#include "base/plain.h"

#include "base/array.h"
#include "base/assert.h"
#include "base/utf8.h"
#include <stdio.h>
#include <string.h>

static bool is_shown(uint32_t code)
{
	static const struct {
		uint32_t from, to;
	} controls[] = {
		{0x00, 0x1f},	  {0x7f, 0x9f},	    {0x61c, 0x61c},
		{0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069},
	};

	for (size_t i = 0; i < ARRAY_SIZE(controls); i++)
		if (code >= controls[i].from && code <= controls[i].to)
			return false;
	return true;
}

struct plain_character plain_first(const char *text)
{
	size_t bytes = utf8_character(text, strnlen(text, 4));
	struct plain_character first = {.code = (unsigned char)text[0], .bytes = 1};

	if (!bytes)
		return first;
	if (bytes > 1)
		first.code &= 0x7fu >> bytes;
	for (size_t i = 1; i < bytes; i++)
		first.code = first.code << 6 | (text[i] & 0x3f);
	first.bytes = (uint8_t)bytes;
	first.utf8 = true;
	first.plain = is_shown(first.code);
	return first;
}

size_t plain_next(const char **text, char out[PLAIN_SHOWN_BYTES])
{
	struct plain_character first = plain_first(*text);
	size_t bytes = first.bytes;

	if (first.plain)
		memcpy(out, *text, bytes);
	else
		bytes = (size_t)snprintf(out, PLAIN_SHOWN_BYTES,
					 first.utf8 && first.code >= 0x80 ? "\\u%04x" : "\\x%02x",
					 (unsigned)first.code);
	out[bytes] = '\0';
	*text += first.bytes;
	return bytes;
}

bool plain_is(const char *text)
{
	while (*text) {
		struct plain_character first;

		if (*text >= 0x20 && *text < 0x7f) {
			text++; /* nearly all that there is */
			continue;
		}
		first = plain_first(text);
		if (!first.plain)
			return false;
		text += first.bytes;
	}
	return true;
}

size_t plain_put(char *out, size_t room, const char *text)
{
	size_t used = 0, cut = 0; /* cut: where "..." still has room */

	WEFT_ASSERT_OP(room, >=, PLAIN_SHOWN_BYTES);
	while (*text) {
		char shown[PLAIN_SHOWN_BYTES];
		size_t bytes = plain_next(&text, shown);

		if (used + 4 <= room)
			cut = used;
		if (used + bytes >= room) {
			used = cut + 3;
			memcpy(out + cut, "...", 3);
			break;
		}
		memcpy(out + used, shown, bytes);
		used += bytes;
	}
	out[used] = '\0';
	return used;
}

void plain_add(struct text *out, const char *text)
{
	char one[PLAIN_SHOWN_BYTES];

	while (*text)
		text_add_bytes(out, one, plain_next(&text, one));
}

void plain_mask(char *text)
{
	while (*text) {
		struct plain_character first = plain_first(text);

		if (!first.plain)
			memset(text, '?', first.bytes);
		text += first.bytes;
	}
}
