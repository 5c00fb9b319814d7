/* SPDX-License-Identifier: Apache-2.0
 *
 * config.h -- a HuggingFace config.json as far as shapes go.
 */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "job/dtype.h"
#include "base/error.h"
#include "base/text.h"
#include "model/model.h"
#include <stddef.h>

struct json_t; /* jansson's */

/* So that no product of sizes comes near 2^62, and a hostile file cannot ask for much. */
#define CONFIG_BYTES_MAX        (4u << 20)
#define CONFIG_HIDDEN_MAX       (1u << 18)
#define CONFIG_VOCAB_MAX        (1u << 24)
#define CONFIG_INTERMEDIATE_MAX (1u << 22)
#define CONFIG_LAYERS_MAX       1024u
#define CONFIG_POSITIONS_MAX    (1u << 24)
#define CONFIG_HEADS_MAX        (1u << 14)
#define CONFIG_HEAD_DIM_MAX     (1u << 14)
#define CONFIG_HEAD_ROWS_MAX    (1u << 20) /* heads times head_dim */
#define CONFIG_EXPERTS_MAX      4096u
#define CONFIG_SHARED_MAX       64u
#define CONFIG_MTP_MAX          64u
#define CONFIG_BLOCK_MAX        (1u << 16)
/* and, of all tensors together, MODEL_TENSORS_MAX of model/tensors.h */

/* A field of Weft's own: the checkpoint has rotary_emb.inv_freq tensors. */
#define CONFIG_ROTARY_FIELD "weft_rotary_inv_freq"
/* Another: it has e_score_correction_bias in the model's dtype. A checkpoint beside config.json says so
 * itself (model/router_bias.h). */
#define CONFIG_BIAS_FIELD "weft_router_bias_cast"
/* And one more, of a tied model: its checkpoint has an lm_head of its own, which the checkpoint says too (model/own_head.h). It
 * is written where it is true. */
#define CONFIG_HEAD_FIELD "weft_own_lm_head"

/* Pure: `text` is the file's bytes, `where` its name for the messages. ERROR_FILE when it is
 * not JSON, ERROR_CONFIG naming the field that is missing, mistyped or out of range,
 * ERROR_UNSUPPORTED for a checkpoint quantised in another way than
 * fp8 blocks. *config is only written on success. */
int config_parse(const char *text, size_t bytes, const char *where,
		 struct model_config *config, struct error *error);
/* The same, taken as of a family whatever its architectures say: `as` is a family's model_type or
 * class ("llama", "LlamaForCausalLM"), or NULL. */
int config_parse_as(const char *text, size_t bytes, const char *where, const char *as,
		    struct model_config *config, struct error *error);
/* Its quantization_config: `object` is the field's value, `where` the file's name for the messages.
 * Sets block_rows and block_columns; config->family is set already. ERROR_UNSUPPORTED for any other
 * quantisation than fp8 in blocks, and for exceptions that the family's rows do not know. */
int config_quantization(const struct json_t *object, const char *where,
			struct model_config *config, struct error *error);
/* The config.json of these shapes, ending in a newline; config_parse() reads it back. */
void config_write(const struct model_config *config, struct text *out);
/* "bfloat16", "float16", "float32"; DTYPE_NONE for any other. */
enum dtype config_dtype(const char *name);

#endif
