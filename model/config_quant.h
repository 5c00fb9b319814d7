/* SPDX-License-Identifier: Apache-2.0
 *
 * config_quant.h -- the quantization_config of a config.json: fp8 in blocks, or a refusal.
 */
#ifndef MODEL_CONFIG_QUANT_H
#define MODEL_CONFIG_QUANT_H

#include "base/error.h"
#include "model/model.h"
#include <jansson.h>

/* `object` is the field's value, `where` the file's name for the messages. Sets block_rows and
 * block_columns; config->family is set already. ERROR_UNSUPPORTED for any other quantisation,
 * and for exceptions that the family's rows do not know. */
int config_quantization(const json_t *object, const char *where, struct model_config *config,
			struct error *error);

#endif
