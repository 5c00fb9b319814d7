/* SPDX-License-Identifier: Apache-2.0
 *
 * holding.h -- what a trainer holds, as plain data: the mirror of layout.h. There a box of a tensor becomes bytes of an
 * engine's parameter; here a box of a tensor is elements of a trainer's parameter:
 *
 *   tensor "k_proj.weight" [8, 16]          local parameter "linear_qkv.weight", 16 rows of 16
 *     rows 4..8 ◄──────── held ──────────── elements 128 .. 192: offset 128, strides 16 and 1
 *
 * One local parameter has boxes of many tensors (a fused one), and one tensor may have boxes in many (heads in groups). Strides
 * are free: a slice of columns has rows that are wider than the box, what is stored transposed has a last stride that is not 1.
 * What no box covers (padding) is nobody's affair. A box without a local parameter (HELD_OWN) is memory of its own: the box, row
 * after row; so are rows of dimension 0, and tensors that are held whole.
 *
 * A flat range of a tensor, as ZeRO and FSDP1 cut them, is at most 2 * dims - 1 boxes: holding_add_flat makes them.
 */
#ifndef JOB_HOLDING_H
#define JOB_HOLDING_H

#include "job/tensor_info.h"

#define HELD_OWN UINT32_MAX
/* Boxes of one tensor; of these that have a row in common, and boxes that mix in one local parameter. No trainer that is known has
 * nearly as many, and what is done with them is not linear in them. */
#define HELD_OF_TENSOR_MAX 4096
#define HELD_ABREAST_MAX 128

struct held {
	uint32_t tensor;
	uint32_t local;         /* index into locals, or HELD_OWN */
	struct box box;
	struct placement place; /* in elements of the local parameter; HELD_OWN: dense */
};

/* The boxes one trainer can read. */
struct holding {
	struct tensor_info *tensors;
	size_t tensor_count, tensor_capacity;
	struct tensor_info *locals;
	size_t local_count, local_capacity;
	struct held *held;
	size_t held_count, held_capacity;
	struct strmap tensor_names, local_names;
	struct pool names;
};

void holding_init(struct holding *holding);
void holding_fini(struct holding *holding); /* any state between init and fini; leaves it empty */

/* As layout_add_tensor. */
int64_t holding_add_tensor(struct holding *holding, const char *name, enum dtype dtype,
			   uint32_t dims, const uint64_t *shape, uint32_t order,
			   struct error *error);
/* A local parameter: once a name. */
int64_t holding_add_local(struct holding *holding, const char *name, enum dtype dtype, uint32_t dims,
			  const uint64_t *shape, struct error *error);
/* A box that is memory of its own. */
int holding_add(struct holding *holding, uint32_t tensor, const struct box *box,
		struct error *error);
/* A box in a local parameter, of the same dtype, which every element of it lies in, each at a place of its own: else
 * ERROR_BOUNDS or ERROR_CONFLICT. Strides are at least 1. */
int holding_add_placed(struct holding *holding, const struct held *held, struct error *error);
/* Elements [from, to) of the tensor as they follow each other, from element `offset` of the local parameter on. */
int holding_add_flat(struct holding *holding, uint32_t tensor, uint64_t from, uint64_t to, uint32_t local,
		     uint64_t offset, struct error *error);
/* Sorts `held` by (tensor, box); refuses two overlapping boxes of one tensor, and boxes that share elements of a local
 * parameter or whose strides do not show that they share none. */
int holding_finish(struct holding *holding, struct error *error);

/* After finish: the one that has the box, or NULL. */
const struct held *holding_find(const struct holding *holding, uint32_t tensor, const struct box *box);

/* xxh3-128 of the canonical content (names, dtypes, shapes, order, boxes, places). Call after finish. */
struct digest holding_digest(const struct holding *holding);

#endif
