/* SPDX-License-Identifier: Apache-2.0
 *
 * model_verbs.h -- the verbs of `weft model` that have a file of their own, and what they share.
 */
#ifndef CLI_MODEL_VERBS_H
#define CLI_MODEL_VERBS_H

#include "base/json_write.h"
#include <stdint.h>

int model_check(int argc, char **argv);        /* model_check.c */
int model_layout_print(int argc, char **argv); /* model_layout.c */
int model_plan_memory(int argc, char **argv);  /* model_memory.c */

#define MODEL_SHAPE_BYTES 96
/* "[4096, 512]" into out; returns out. */
char *model_shape_text(uint32_t dims, const uint64_t *shape, char out[MODEL_SHAPE_BYTES]);
void model_json_shape(struct json *json, const char *key, uint32_t dims, const uint64_t *shape);

#endif
