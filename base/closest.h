/* SPDX-License-Identifier: Apache-2.0
 *
 * closest.h -- "the closest are ..": of many names the few that are most like the one that was
 * asked for, for messages about unknown names.
 */
#ifndef BASE_CLOSEST_H
#define BASE_CLOSEST_H

#include <stddef.h>

#define CLOSEST_MAX 3

/* Zeroed but for `wanted`; names are borrowed. The closest name first, of equals the one that
 * was offered first. */
struct closest {
	const char *wanted;
	const char *names[CLOSEST_MAX];
	size_t distances[CLOSEST_MAX];
	size_t count;
};

void closest_offer(struct closest *closest, const char *name);
/* "a, b, c", cut to the room there is; "" when nothing was offered. Returns out. */
char *closest_text(const struct closest *closest, char *out, size_t out_bytes);

#endif
