/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.h -- a folder that peft wrote of an adapter alone: adapter_config.json and
 * adapter_model.safetensors, and no model.
 */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H

#include "base/error.h"

#define ADAPTER_CONFIG_FILE "adapter_config.json"
#define ADAPTER_FILE	    "adapter_model.safetensors"

/* ERROR_UNSUPPORTED, with the base model that the adapter names, when the folder has an adapter and
 * no config.json; 0 for every other folder. */
int adapter_refuse(const char *folder, struct error *error);

#endif
