/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

/* First byte, length, and the range of the second byte: where overlong forms, surrogates and
 * code points past the end would hide. Later bytes are always 80..BF. */
static const struct {
	unsigned char first, last, length, low, high;
} rows[] = {
	{0x01, 0x7f, 1, 0x00, 0x00}, {0xc2, 0xdf, 2, 0x80, 0xbf}, {0xe0, 0xe0, 3, 0xa0, 0xbf},
	{0xe1, 0xec, 3, 0x80, 0xbf}, {0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf},
	{0xf0, 0xf0, 4, 0x90, 0xbf}, {0xf1, 0xf3, 4, 0x80, 0xbf}, {0xf4, 0xf4, 4, 0x80, 0x8f},
};

static size_t character(const unsigned char *text, size_t bytes)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (text[0] < rows[i].first || text[0] > rows[i].last)
			continue;
		if (rows[i].length > bytes)
			return 0;
		if (rows[i].length > 1 && (text[1] < rows[i].low || text[1] > rows[i].high))
			return 0;
		for (size_t k = 2; k < rows[i].length; k++)
			if (text[k] < 0x80 || text[k] > 0xbf)
				return 0;
		return rows[i].length;
	}
	return 0;
}

size_t utf8_character(const char *text, size_t bytes)
{
	return character((const unsigned char *)text, bytes);
}

size_t utf8_prefix(const char *text, size_t bytes)
{
	size_t at = 0;

	while (at < bytes) {
		size_t n = character((const unsigned char *)text + at, bytes - at);

		if (n == 0)
			break;
		at += n;
	}
	return at;
}
