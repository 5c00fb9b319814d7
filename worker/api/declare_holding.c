/* SPDX-License-Identifier: Apache-2.0
 *
 * declare_holding.c -- a trainer that is cut otherwise than by rows: its own parameters, and what lies where in them.
 */
#include "worker/api/abi.h"
#include "worker/api/worker.h"

#include <string.h>

int weft_declare_local(weft_worker *worker, const weft_tensor *local, uint32_t *id,
		       weft_error *error)
{
	static const char call[] = "weft_declare_local";
	struct error inner;
	weft_tensor taken;
	enum dtype dtype;
	int64_t index = 0;
	int rc = worker_may_declare(worker, ROLE_TRAINER, call, &inner);

	if (!rc)
		rc = abi_take(ABI_TENSOR, call, local, &taken, &inner);
	if (!rc)
		rc = declare_check_shape("local parameter", taken.name, taken.dtype, taken.dims,
					 &dtype, &inner);
	if (!rc) {
		index = holding_add_local(&worker->holding, taken.name, dtype, taken.dims,
					  taken.shape, &inner);
		rc = index < 0 ? (int)index
			       : locals_add_param(&worker->locals, &worker->holding,
						  (uint32_t)index, &inner);
	}
	if (!rc && id)
		*id = (uint32_t)worker->locals.count - 1;
	return worker_answer(worker, rc, &inner, error);
}

/* The holding's number of the local parameter with that id, and of the tensor. */
static int find(struct weft_worker *worker, const char *call, const weft_tensor *tensor,
		uint32_t order, uint32_t id, uint32_t *local, uint32_t *index, struct error *error)
{
	enum dtype dtype;
	int64_t added;
	int rc = worker_check_id(call, "local parameter", id, worker->locals.count, error);

	if (!rc && worker->locals.items[id].own)
		rc = error_set(
			error, ERROR_USAGE,
			"%s: %u is tensor %s, which was declared with its rows; no box lies in it",
			call, id, worker->holding.tensors[worker->locals.items[id].index].name);
	if (!rc)
		rc = declare_check_shape("tensor", tensor->name, tensor->dtype, tensor->dims,
					 &dtype, error);
	if (rc)
		return rc;
	*local = worker->locals.items[id].index;
	added = holding_add_tensor(&worker->holding, tensor->name, dtype, tensor->dims,
				   tensor->shape, order, error);
	*index = (uint32_t)added;
	return added < 0 ? (int)added : 0;
}

static struct held held_of(const weft_tensor *tensor, const weft_holding *holding)
{
	struct held held = {.box.dims = tensor->dims};
	bool dense = true;

	for (uint32_t d = 0; d < tensor->dims && d < WEFT_DIMS_MAX; d++) {
		held.box.lo[d] = holding->lo[d];
		held.box.hi[d] = holding->hi[d];
		held.place.stride[d] = holding->stride[d];
		dense = dense && !holding->stride[d];
	}
	if (dense && tensor->dims <= WEFT_DIMS_MAX)
		held.place = placement_dense(&held.box);
	held.place.offset = holding->offset;
	return held;
}

/* Before the tensor is known with a shape that was given wrongly. */
static int check_inside(const weft_tensor *tensor, const struct box *box, struct error *error)
{
	char text[160], shape[160];

	if (tensor->dims < 1 || tensor->dims > WEFT_DIMS_MAX ||
	    box_in_shape(box, tensor->dims, tensor->shape))
		return 0; /* of the dimensions declare_check_shape says more */
	return error_set(error, ERROR_BOUNDS, "%s is outside of tensor %s, which is %s",
			 box_text(box, text, sizeof(text)), tensor->name ? tensor->name : "(NULL)",
			 shape_text(tensor->dims, tensor->shape, shape, sizeof(shape)));
}

int weft_declare_holding(weft_worker *worker, const weft_tensor *tensor,
			 const weft_holding *holding, weft_error *error)
{
	static const char call[] = "weft_declare_holding";
	struct error inner;
	weft_tensor taken;
	weft_holding given;
	struct held held;
	uint32_t local = 0, index = 0;
	int rc = worker_may_declare(worker, ROLE_TRAINER, call, &inner);

	if (!rc)
		rc = abi_take(ABI_TENSOR, call, tensor, &taken, &inner);
	if (!rc)
		rc = abi_take(ABI_HOLDING, call, holding, &given, &inner);
	if (!rc) {
		held = held_of(&taken, &given);
		rc = check_inside(&taken, &held.box, &inner);
	}
	if (!rc)
		rc = find(worker, call, &taken, given.order, given.local, &local, &index, &inner);
	if (!rc) {
		held.tensor = index;
		held.local = local;
		rc = holding_add_placed(&worker->holding, &held, &inner);
	}
	return worker_answer(worker, rc, &inner, error);
}

int weft_declare_flat(weft_worker *worker, const weft_tensor *tensor, uint32_t order, uint64_t from,
		      uint64_t to, uint32_t local, uint64_t offset, weft_error *error)
{
	static const char call[] = "weft_declare_flat";
	struct error inner;
	weft_tensor taken;
	uint32_t param = 0, index = 0;
	int rc = worker_may_declare(worker, ROLE_TRAINER, call, &inner);

	if (!rc)
		rc = abi_take(ABI_TENSOR, call, tensor, &taken, &inner);
	if (!rc)
		rc = find(worker, call, &taken, order, local, &param, &index, &inner);
	if (!rc)
		rc = holding_add_flat(&worker->holding, index, from, to, param, offset, &inner);
	return worker_answer(worker, rc, &inner, error);
}
