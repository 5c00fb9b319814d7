/* SPDX-License-Identifier: Apache-2.0
 *
 * declare.c -- labels, what a trainer holds, and both sides of a model that weft knows.
 */
#include "worker/api/abi.h"
#include "worker/api/worker.h"

#include "job/parallel.h"
#include "model/model.h"

#include <stdio.h>

static int set_labels(struct weft_worker *worker, const char *model, const char *train,
		      const char *infer, struct error *error)
{
	int rc = declare_set_label(&worker->model, model, "model", error);

	if (!rc)
		rc = declare_set_label(&worker->train, train, "train", error);
	if (!rc)
		rc = declare_set_label(&worker->infer, infer, "infer", error);
	return rc;
}

int weft_declare_labels(weft_worker *worker, const char *model, const char *train,
			const char *infer, weft_error *error)
{
	struct error inner;
	int rc = worker_stage(worker, STAGE_OPEN, "weft_declare_labels", &inner);

	if (!rc)
		rc = set_labels(worker, model, train, infer, &inner);
	return worker_answer(worker, rc, &inner, error);
}

static int declare_tensor(struct weft_worker *worker, const weft_tensor *tensor, uint32_t order,
			  uint64_t row_lo, uint64_t row_hi, uint32_t *id, struct error *error)
{
	uint32_t there;
	enum dtype dtype;
	struct box box;
	int64_t index;
	int rc;

	rc = declare_check_shape("tensor", tensor->name, tensor->dtype, tensor->dims, &dtype,
				 error);
	if (rc)
		return rc;
	if (row_lo >= row_hi || row_hi > tensor->shape[0])
		return error_set(error, ERROR_USAGE,
				 "tensor %s: rows %llu..%llu of %llu; hold at "
				 "least one row, or do not declare the tensor",
				 tensor->name, (unsigned long long)row_lo,
				 (unsigned long long)row_hi, (unsigned long long)tensor->shape[0]);
	if (strmap_get(&worker->holding.tensor_names, tensor->name, &there))
		return error_set(error, ERROR_USAGE,
				 "tensor %s is declared twice; one trainer "
				 "holds one range of its rows",
				 tensor->name);
	index = holding_add_tensor(&worker->holding, tensor->name, dtype, tensor->dims,
				   tensor->shape, order, error);
	if (index < 0)
		return (int)index;
	box = box_whole(tensor->dims, tensor->shape);
	box.lo[0] = row_lo;
	box.hi[0] = row_hi;
	rc = locals_add_rows(&worker->locals, &worker->holding, (uint32_t)index, row_lo, row_hi,
			     error);
	if (!rc)
		rc = holding_add(&worker->holding, (uint32_t)index, &box, error);
	if (!rc && id)
		*id = (uint32_t)worker->locals.count - 1;
	return rc;
}

int weft_declare_tensor(weft_worker *worker, const weft_tensor *tensor, uint32_t order,
			uint64_t row_lo, uint64_t row_hi, uint32_t *id, weft_error *error)
{
	struct error inner;
	weft_tensor taken;
	int rc = worker_may_declare(worker, ROLE_TRAINER, "weft_declare_tensor", &inner);

	if (!rc)
		rc = abi_take(ABI_TENSOR, "weft_declare_tensor", tensor, &taken, &inner);
	if (!rc)
		rc = declare_tensor(worker, &taken, order, row_lo, row_hi, id, &inner);
	return worker_answer(worker, rc, &inner, error);
}

static int declare_trainer(struct weft_worker *worker, const struct model *model,
			   const struct train_spec *train, struct error *error)
{
	struct holding *holding = &worker->holding;
	int rc;

	if (worker->self.rank >= train->world)
		return error_set(error, ERROR_CONFIG,
				 "trainer rank %u is not below world=%u of the "
				 "train spec",
				 worker->self.rank, train->world);
	rc = model_holding(model, train, worker->self.rank, holding, error);
	for (uint32_t i = 0; i < holding->local_count && !rc; i++)
		rc = locals_add_param(&worker->locals, holding, i, error);
	for (size_t i = 0; i < holding->held_count && !rc; i++) {
		const struct held *held = &holding->held[i];

		if (held->local == HELD_OWN)
			rc = locals_add_rows(&worker->locals, holding, held->tensor,
					     held->box.lo[0], held->box.hi[0], error);
	}
	return rc;
}

static int declare_inference(struct weft_worker *worker, const struct model *model,
			     const struct infer_spec *infer, struct error *error)
{
	int rc;

	if (worker->self.rank >= infer_ranks(infer))
		return error_set(error, ERROR_CONFIG,
				 "inference rank %u is not below engines=%u * "
				 "tp=%u of the infer spec",
				 worker->self.rank, infer->engines, infer->tp);
	rc = model_layout(model, infer, worker->self.rank % infer->tp, &worker->layout, error);
	for (uint32_t i = 0; i < worker->layout.param_count && !rc && worker->own_memory; i++)
		rc = declare_set_memory(worker, i, NULL, error);
	return rc;
}

static int declare_model(struct weft_worker *worker, const char *name, const char *as,
			 const char *train_text, const char *infer_text, struct error *error)
{
	char train_label[PARALLEL_TEXT_BYTES], infer_label[PARALLEL_TEXT_BYTES];
	struct train_spec train;
	struct infer_spec infer;
	struct model *model;
	int rc;

	if (!name || !train_text || !infer_text)
		return error_set(error, ERROR_USAGE,
				 "weft_declare_model: model, train or infer is NULL");
	if (worker->layout.param_count || worker->holding.tensor_count)
		return error_set(error, ERROR_STATE,
				 "weft_declare_model: something was declared before");
	rc = train_spec_parse(&train, train_text, error);
	if (!rc)
		rc = infer_spec_parse(&infer, infer_text, error);
	if (!rc)
		rc = model_open_as(&model, name, as, error);
	if (rc)
		return rc;
	rc = worker->self.role == ROLE_TRAINER ? declare_trainer(worker, model, &train, error)
					       : declare_inference(worker, model, &infer, error);
	if (!rc)
		rc = set_labels(worker, model->name, train_spec_text(&train, train_label),
				infer_spec_text(&infer, infer_label), error);
	if (rc) {
		/* nothing changed: the host may correct its specs and try again */
		layout_fini(&worker->layout);
		layout_init(&worker->layout);
		locals_fini(&worker->locals);
		holding_fini(&worker->holding);
		holding_init(&worker->holding);
	}
	model_close(&model);
	return rc;
}

int weft_declare_model_as(weft_worker *worker, const char *model, const char *as, const char *train,
			  const char *infer, weft_error *error)
{
	struct error inner;
	int rc = worker_stage(worker, STAGE_OPEN, "weft_declare_model", &inner);

	if (!rc)
		rc = declare_model(worker, model, as, train, infer, &inner);
	return worker_answer(worker, rc, &inner, error);
}

int weft_declare_model(weft_worker *worker, const char *model, const char *train, const char *infer,
		       weft_error *error)
{
	return weft_declare_model_as(worker, model, NULL, train, infer, error);
}

int weft_count_ranks(const char *train, const char *infer, uint32_t *trainers, uint32_t *inference,
		     weft_error *error)
{
	struct train_spec train_spec;
	struct infer_spec infer_spec;
	struct error inner;
	int rc = train ? train_spec_parse(&train_spec, train, &inner) : 0;

	if (!rc && infer)
		rc = infer_spec_parse(&infer_spec, infer, &inner);
	if (!rc && train && trainers)
		*trainers = train_spec.world;
	if (!rc && infer && inference)
		*inference = infer_ranks(&infer_spec);
	return worker_result(rc, &inner, error);
}

/* A transport that reads any memory gains nothing from it, and shm would have to open this process to its peers; one
 * that reads no memory of GPUs is sent what they pack. */
static int register_source(struct weft_worker *worker, const weft_memory *memory,
			   struct error *error)
{
	const struct transport_caps *caps = transport_domain_caps(worker->domain);
	bool host = memory->kind == WEFT_MEMORY_HOST;
	bool registers = caps->local_registration && (host || caps->gpu_direct);
	const struct device *pins = host ? worker->device : NULL;

	if (!registers && !pins)
		return 0;
	return ranges_add(&worker->ranges, registers ? worker->domain : NULL, pins, memory->pointer,
			  memory->bytes, error);
}

int weft_source_register(weft_worker *worker, const weft_memory *memory, weft_error *error)
{
	static const char call[] = "weft_source_register";
	struct error inner;
	weft_memory taken;
	int rc = worker_may_declare(worker, ROLE_TRAINER, call, &inner);

	if (!rc)
		rc = abi_take(ABI_MEMORY, call, memory, &taken, &inner);
	/* host memory is named here so that a GPU may read it */
	if (!rc)
		rc = worker->device && taken.kind == WEFT_MEMORY_HOST
			     ? abi_check_memory(call, &taken, &inner)
			     : worker_check_memory(worker, call, &taken, &inner);
	if (!rc)
		rc = ranges_check(&worker->ranges, taken.pointer, taken.bytes, &inner);
	if (!rc)
		rc = register_source(worker, &taken, &inner);
	return worker_answer(worker, rc, &inner, error);
}
