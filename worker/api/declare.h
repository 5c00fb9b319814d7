/* SPDX-License-Identifier: Apache-2.0
 *
 * declare.h -- what the declaring calls share.
 */
#ifndef WORKER_API_DECLARE_H
#define WORKER_API_DECLARE_H

#include "base/error.h"
#include "job/dtype.h"
#include <stdint.h>

struct weft_worker;

/* declared.c. Name, dtype and shape as a host gives them. */
int declare_check_shape(const char *what, const char *name, const char *dtype_text, uint32_t dims,
			enum dtype *dtype, struct error *error);
/* The row range of a new tensor of the holding, at its id. */
int declare_note_rows(struct weft_worker *worker, uint32_t id, uint64_t lo, uint64_t hi,
		      struct error *error);
/* Where parameter `id` lies, with own_memory. */
int declare_set_memory(struct weft_worker *worker, uint32_t id, void *memory, struct error *error);
/* `what` names it in a message; value NULL: as it was. */
int declare_set_label(char **label, const char *value, const char *what, struct error *error);

#endif
