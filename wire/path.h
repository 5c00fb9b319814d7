/* SPDX-License-Identifier: Apache-2.0
 *
 * path.h -- where in a message a reader or writer stands, for its errors:
 * "plan message, rows[17].src". Keys are borrowed literals of the field tables.
 */
#ifndef WIRE_PATH_H
#define WIRE_PATH_H

#include <stddef.h>

/* The tables nest no deeper: layout . pieces[i] . src; a deeper table is an assert. */
#define PATH_STEPS_MAX  8
#define PATH_TEXT_BYTES 256
#define PATH_NO_INDEX   ((size_t)-1)

struct path {
	const char *message; /* "plan"; NULL until the type is known */
	unsigned depth;
	struct {
		const char *key;
		size_t index; /* of the item in a list, or PATH_NO_INDEX */
	} steps[PATH_STEPS_MAX];
};

void path_push(struct path *path, const char *key);
void path_pop(struct path *path);
void path_index(struct path *path, size_t index); /* of the innermost step */
/* "plan message, rows[17].src" into out (always terminated). Returns out. */
char *path_text(const struct path *path, char out[PATH_TEXT_BYTES]);

#endif
