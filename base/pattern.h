/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern.h -- one name for a file of every process: %h is the host, %p the process, %r who (as "t3", "controller").
 */
#ifndef BASE_PATTERN_H
#define BASE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* False: it does not fit. */
bool pattern_expand(char *out, size_t room, const char *pattern, const char *who);

#endif
