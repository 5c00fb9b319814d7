/* SPDX-License-Identifier: Apache-2.0
 *
 * router_bias.h -- in which dtype a checkpoint has e_score_correction_bias. Published ones keep it in 32
 * bits, one that was cast as a whole has it in the model's dtype, and config.json looks the same.
 */
#ifndef MODEL_ROUTER_BIAS_H
#define MODEL_ROUTER_BIAS_H

#include "model/model.h"

/* Sets config->router_bias_cast to what the checkpoint beside the config.json at `path` has; leaves it
 * where there is none, or none that can be read, which is for who opens it to say. */
void router_bias_look(const char *path, struct model_config *config);

#endif
