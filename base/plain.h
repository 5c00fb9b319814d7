/* SPDX-License-Identifier: Apache-2.0
 *
 * plain.h -- text of others (files, peers, the system) made fit for a line of ours. What is not plain:
 *
 *   C0, DEL, C1                      moves the cursor, colours, begins a line: \x1b, \x0a, \u0085
 *   U+2028, U+2029                   begin a line: \u2028
 *   marks of writing direction       show a line in another order than it is: \u202e
 *   bytes that are no UTF-8          make the whole line something else: \xff
 */
#ifndef BASE_PLAIN_H
#define BASE_PLAIN_H

#include "base/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plain_character {
	uint32_t code;     /* or the byte, when it is no UTF-8 */
	uint8_t bytes;     /* that it takes */
	bool utf8, plain;
};
/* What the text, which is not empty, begins with. */
struct plain_character plain_first(const char *text);

#define PLAIN_SHOWN_BYTES 8
/* That character as it stands in a line, terminated; `text` is moved past it. Returns the bytes. */
size_t plain_next(const char **text, char out[PLAIN_SHOWN_BYTES]);
bool plain_is(const char *text); /* all of it */
/* As it is where plain, else escaped; at most room - 1 bytes and the terminator, and "..." at the end of what
 * had no room (of 8 bytes at least). Returns the bytes. */
size_t plain_put(char *out, size_t room, const char *text);
void plain_add(struct text *out, const char *text);
/* In place: '?' for each byte that is not plain. */
void plain_mask(char *text);

#endif
