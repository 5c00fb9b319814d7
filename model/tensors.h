/* SPDX-License-Identifier: Apache-2.0
 *
 * tensors.h -- the tensors that a family's rows and a config make, one after the other.
 */
#ifndef MODEL_TENSORS_H
#define MODEL_TENSORS_H

#include "model/model.h"
#include <stdbool.h>

/* As many as the messages of a job can name; a hostile config cannot ask for more memory. */
#define MODEL_TENSORS_MAX 1000000u

/* `tensor` has everything but its name; `mtp` is true for those of MTP layers, which come after
 * all others. Anything but 0 ends the walk and is what it returns. */
typedef int tensor_visit(void *context, const struct model_tensor *tensor, bool mtp);

/* Is it one of the model's parameters? Scales and rotary frequencies are not. */
bool tensor_counts(const struct model *model, const struct model_tensor *tensor);

int tensors_each(const struct model_config *config, tensor_visit *visit, void *context,
		 struct error *error);

#endif
