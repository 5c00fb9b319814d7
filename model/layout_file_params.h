/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_file_params.h -- the values of a layout file, inside of its reader.
 */
#ifndef MODEL_LAYOUT_FILE_PARAMS_H
#define MODEL_LAYOUT_FILE_PARAMS_H

#include "model/json_read.h"
#include "model/model.h"

/* A name of 1 to LAYOUT_FILE_NAME_BYTES - 1 bytes. */
int layout_file_name(struct json_reader *r, json_t *object, const char *key, const char **out);
/* "dtype" and "shape"; `name` is whose. */
int layout_file_shape(struct json_reader *r, json_t *object, const char *name, enum dtype *dtype,
		      uint32_t *dims, uint64_t *shape, uint64_t *bytes);
/* One of "params" becomes an entry of model->file, checked at its first and its last place. */
int layout_file_param(struct json_reader *r, struct model *model, json_t *object);

#endif
