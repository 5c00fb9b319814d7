/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.h -- well-formed UTF-8 as Unicode's table 3-7 has it: no overlong forms, no surrogates,
 * nothing above U+10FFFF. NUL counts as malformed: our strings end with one.
 */
#ifndef WIRE_UTF8_H
#define WIRE_UTF8_H

#include <stddef.h>

/* How many leading bytes are whole well-formed characters; `bytes` when all are. */
size_t utf8_prefix(const char *text, size_t bytes);

#endif
