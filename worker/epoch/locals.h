/* SPDX-License-Identifier: Apache-2.0
 *
 * locals.h -- what a trainer's writes are of, by the ids that they are written with: a tensor's rows, which are memory of their own,
 * or a local parameter, which boxes of any tensors lie in (job/holding.h):
 *
 *   weft_declare_tensor   id 0   rows 0..8 of "embed"           ──► held box 0
 *   weft_declare_local    id 1   "linear_qkv.weight"            ──► held boxes 1, 2, 3: of q, k and v
 */
#ifndef WORKER_EPOCH_LOCALS_H
#define WORKER_EPOCH_LOCALS_H

#include "base/array.h"
#include "job/holding.h"

struct local {
	bool own;            /* rows of a tensor; else a local parameter */
	uint32_t index;      /* of that tensor, or of that parameter */
	uint64_t lo, hi;     /* rows; of a parameter all of its own */
	uint64_t bytes;
};

/* A zeroed struct is empty. */
struct locals {
	struct local *items; /* by id */
	size_t count, capacity;
	ARRAY(uint32_t) of_tensor, of_param; /* ids */
};

/* The next id, of rows of a tensor that the holding has, or of one of its local parameters. */
int locals_add_rows(struct locals *locals, const struct holding *holding, uint32_t tensor, uint64_t lo, uint64_t hi,
		    struct error *error);
int locals_add_param(struct locals *locals, const struct holding *holding, uint32_t param, struct error *error);
void locals_fini(struct locals *locals);

/* What it is: of rows, their whole tensor. */
const struct tensor_info *local_info(const struct holding *holding, const struct local *local);
/* The id of what a box lies in. */
uint32_t locals_of(const struct locals *locals, const struct held *held);
/* By the name of the tensor, or of the parameter. */
bool locals_named(const struct locals *locals, const struct holding *holding, const char *name, uint32_t *id);

#endif
