/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.h -- well-formed UTF-8 as Unicode's table 3-7 has it: no overlong forms, no surrogates,
 * nothing above U+10FFFF. NUL counts as malformed: our strings end with one.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/* Bytes of the character that the text, which is not empty, begins with; 0: it is malformed or cut off. */
size_t utf8_character(const char *text, size_t bytes);
/* How many leading bytes are whole well-formed characters; `bytes` when all are. */
size_t utf8_prefix(const char *text, size_t bytes);

#endif
