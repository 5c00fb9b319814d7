/* SPDX-License-Identifier: Apache-2.0
 *
 * config_reader.h -- the fields of one config.json by name, as transformers reads them:
 *
 *   nested      A multimodal config keeps its text model's fields in "text_config". What stands
 *               there alone is read there, and what it leaves out has the value that the text
 *               model's class gives it (family.h, defaults). At the top nothing is made up: a
 *               missing size is an error.
 *   spellings   A field may go by the other names of its class (attribute_map): num_experts and
 *               num_local_experts. Both in one config must agree.
 */
#ifndef MODEL_CONFIG_READER_H
#define MODEL_CONFIG_READER_H

#include "base/error.h"
#include "model/family.h"
#include <stdbool.h>
#include <stdint.h>

struct json_t; /* jansson's */

struct config_reader {
	const struct json_t *root;   /* the whole */
	const struct json_t *text;   /* the object of the text model: root, or what is nested in it */
	const struct family *family; /* once it is known */
	const struct size_default *defaults; /* its own, or NULL */
	const char *where;           /* name of the file, for messages */
	struct error *error;
};

/* An error that begins with the name of what is read. */
#define CONFIG_REFUSE(reader, code, format, ...) \
	error_set((reader)->error, code, "%s: " format, (reader)->where, ##__VA_ARGS__)

static inline bool config_nested(const struct config_reader *reader)
{
	return reader->text != reader->root;
}

/* "an object", "a string", .. */
const char *config_type_text(const struct json_t *value);
/* Of the text model, under whatever spelling; NULL for a missing field and for null: HuggingFace
 * writes either. */
const struct json_t *config_field(const struct config_reader *reader, const char *name);
/* What may stand at either place: the whole config is asked first, as transformers asks it. */
const struct json_t *config_field_anywhere(const struct config_reader *reader, const char *name);
/* Is it there, null or not? */
bool config_mentions(const struct config_reader *reader, const char *name);

/* ERROR_CONFIG, as the others on what they refuse. */
int config_missing(const struct config_reader *reader, const char *name);
/* min..max into *value. A missing field keeps what *value holds. */
int config_read_size(const struct config_reader *reader, const char *name, uint64_t min,
		     uint64_t max, uint64_t *value);
/* `whole`: config_field_anywhere(). */
int config_read_flag(const struct config_reader *reader, const char *name, bool whole, bool *value);
/* What the class gives a field that is not there: false when nothing. */
bool config_default(const struct config_reader *reader, const char *name, uint64_t *value);

#endif
