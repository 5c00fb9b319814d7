/* SPDX-License-Identifier: Apache-2.0
 *
 * spec_keys.h -- strings like "world=4,pp=2" into a struct of uint32_t and back, by tables of keys.
 */
#ifndef JOB_SPEC_KEYS_H
#define JOB_SPEC_KEYS_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A word that a key may have as its value. */
struct spec_choice {
	const char *name;
	uint32_t value;
};

/* A number from `min` to `max` or, with choices, one of their words; kept at `offset` of the
 * struct. `absent` is the value of a key that is not given. At most 32 keys a spec. */
struct spec_key {
	const char *name;
	size_t offset;
	uint32_t min, max, absent;
	const struct spec_choice *choices; /* ends with a NULL name */
	bool told;                         /* in the text even where it is what absence means */
};

/* A spec being taken apart: each key at most once. */
struct spec_parse {
	const char *flag, *spec; /* "--train" and the whole string, for messages */
	const char *example;
	const struct spec_key *rows;
	size_t row_count;
	void *target;
	/* keys of another form; 1 when it took the key */
	int (*other)(struct spec_parse *parse, const char *key, const char *value,
		     struct error *error);
	const char *other_keys; /* their names */
	const char *listed;     /* the key whose value may have commas: what follows it without a '=' is of it. NULL: none */
	uint32_t seen;
};

/* ERROR_CONFIG names the key, the value and what is allowed. */
int spec_parse_keys(struct spec_parse *parse, struct error *error);
/* Keys that are not what absence means, and those that are always told. Returns how many characters
 * are in out, which holds PARALLEL_TEXT_BYTES. */
size_t spec_keys_text(const struct spec_key *rows, size_t count, const void *spec, char *out);

#endif
