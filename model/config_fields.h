/* SPDX-License-Identifier: Apache-2.0
 *
 * config_fields.h -- the fields of a config.json that are plain sizes or flags: one table for
 * reading and writing, so that what is written reads back the same.
 */
#ifndef MODEL_CONFIG_FIELDS_H
#define MODEL_CONFIG_FIELDS_H

#include "model/model.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum presence {
	FIELD_NEEDED,   /* missing or null is an error */
	FIELD_NULLABLE, /* must be there; null means 0, "there is none" */
	FIELD_OPTIONAL, /* missing or null means 0 */
};

struct size_field {
	const char *name;
	size_t offset;          /* of a uint64_t in struct model_config */
	uint64_t min, max;
	enum presence presence;
	uint32_t features;      /* classes with all of these have it */
	uint32_t without;       /* and with none of these */
};

struct flag_field {
	const char *name;
	size_t offset;          /* of a bool */
	uint32_t features;
	bool whole;             /* a nested text model has what the whole config says of it, if it does */
};

/* A field that must be missing, null or this value: anything else changes the tensors in a way
 * that no row says. Flags are 0 and 1. */
struct fixed_field {
	const char *name;
	int64_t value;
	bool flag;
	const char *text;       /* the value for messages */
	uint32_t features;
	const char *why;
};

/* Another name that a class takes for a field: its attribute_map in transformers. */
struct spelling {
	const char *name, *other;
	uint32_t features;
};

extern const struct spelling config_spellings[]; /* ending with a NULL name, as the others */
extern const struct size_field config_sizes[];
extern const struct flag_field config_flags[];
extern const struct fixed_field config_fixed[];

static inline uint64_t *config_size(struct model_config *config, const struct size_field *field)
{
	return (uint64_t *)(void *)((char *)config + field->offset);
}

static inline bool *config_flag(struct model_config *config, const struct flag_field *field)
{
	return (bool *)(void *)((char *)config + field->offset);
}

bool config_has(const struct model_config *config, const struct size_field *field);

#endif
