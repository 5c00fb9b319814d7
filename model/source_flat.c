/* SPDX-License-Identifier: Apache-2.0
 *
 * source_flat.c -- ZeRO-3 and FSDP1, which cut parameters as rows of numbers, wherever a row of the tensor ends:
 *
 *   zero3    each parameter alone: shard r of n has elements [r S, (r+1) S), S = ceil(numel / n)
 *   fsdp1    all parameters of a unit behind each other; shard r has elements [r S, (r+1) S) of that. A unit is a layer, and one
 *            more has all that is in none. With orig=1 each parameter begins at 16 bytes.
 *
 * Sources: DeepSpeed's partition_parameters (ds_tensor), torch's FlatParameter.
 */
#include "model/source.h"

#include <stdio.h>
#include <string.h>

#define LOCAL_NAME_BYTES 300
#define ALIGN_BYTES	 16u

static uint64_t elements_of(const struct model_tensor *tensor)
{
	return tensor->bytes / dtype_bytes(tensor->dtype);
}

static uint64_t ceiling(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

/* Elements [from, to) of it lie `offset` elements into the local parameter. */
static int hold_flat(const struct source_job *job, size_t order, uint64_t from, uint64_t to,
		     int64_t local, uint64_t offset, struct error *error)
{
	int64_t index = local < 0 ? local : source_tensor(job, order, error);

	return index < 0 ? (int)index
			 : holding_add_flat(job->holding, (uint32_t)index, from, to,
					    (uint32_t)local, offset, error);
}

int source_zero3(const struct source_job *job, struct error *error)
{
	uint32_t shards = job->train->world / job->train->pp;
	int rc = 0;

	for (size_t t = 0; t < job->model->tensor_count && rc == 0; t++) {
		const struct model_tensor *tensor = &job->model->tensors[t];
		uint64_t all = elements_of(tensor), size = ceiling(all, shards);
		uint64_t from = size * job->place.dp, to = from + size < all ? from + size : all;
		uint32_t stage;

		rc = source_stage(job, tensor, &stage, error);
		if (rc || stage != job->place.pp || from >= to ||
		    source_is_buffer(job->model, tensor))
			continue;
		rc = hold_flat(job, t, from, to,
			       source_local(job, tensor->name, tensor->dtype, 1, &size, error), 0,
			       error);
	}
	return rc;
}

/* ---- FSDP1 ---- */

/* -1: the unit of all that is in no layer; -2: of no unit. */
static int64_t unit_of(const struct source_job *job, const struct model_tensor *tensor)
{
	if (source_is_buffer(job->model, tensor))
		return -2;
	return tensor->layer >= 0 && tensor->layer < (int64_t)job->model->config.layers
		       ? tensor->layer
		       : -1;
}

static uint64_t begin_at(const struct source_job *job, uint64_t at,
			 const struct model_tensor *tensor)
{
	uint64_t align = job->train->orig ? ALIGN_BYTES / dtype_bytes(tensor->dtype) : 1;

	return ceiling(at, align) * align;
}

/* Tensors of the unit in the checkpoint's order: how many elements they span, and, where `local` is not negative, this rank's. */
static int walk_unit(const struct source_job *job, int64_t unit, uint64_t shard, int64_t local,
		     uint64_t *span, struct error *error)
{
	uint64_t lo = shard * job->place.dp, at = 0;
	int rc = 0;

	for (size_t t = 0; t < job->model->tensor_count && rc == 0; t++) {
		const struct model_tensor *tensor = &job->model->tensors[t];
		uint64_t begin, end;

		if (unit_of(job, tensor) != unit)
			continue;
		begin = begin_at(job, at, tensor);
		end = at = begin + elements_of(tensor);
		if (local < 0 || end <= lo || begin >= lo + shard)
			continue;
		begin = begin > lo ? begin : lo;
		end = end < lo + shard ? end : lo + shard;
		rc = hold_flat(job, t, begin - (at - elements_of(tensor)),
			       end - (at - elements_of(tensor)), local, begin - lo, error);
	}
	*span = at;
	return rc;
}

static int one_dtype(const struct source_job *job, int64_t unit, enum dtype *dtype,
		     struct error *error)
{
	const struct model_tensor *first = NULL;

	for (size_t t = 0; t < job->model->tensor_count; t++) {
		const struct model_tensor *tensor = &job->model->tensors[t];

		if (unit_of(job, tensor) != unit)
			continue;
		if (!first)
			first = tensor;
		if (tensor->dtype != first->dtype)
			return error_set(
				error, ERROR_UNSUPPORTED,
				"source=fsdp1: %s is %s and %s is %s, and a unit is of one dtype: declare such a "
				"trainer box by box (weft_declare_flat)",
				first->name, dtype_name(first->dtype), tensor->name,
				dtype_name(tensor->dtype));
	}
	*dtype = first ? first->dtype : DTYPE_NONE;
	return 0;
}

int source_fsdp1(const struct source_job *job, struct error *error)
{
	uint32_t shards = job->train->world;

	if (job->train->pp > 1)
		return error_set(
			error, ERROR_CONFIG,
			"--train: source=fsdp1 has no stages (pp=%u): its units are layers",
			job->train->pp);
	for (int64_t unit = -1; unit < (int64_t)job->model->config.layers; unit++) {
		char name[LOCAL_NAME_BYTES];
		enum dtype dtype = DTYPE_NONE;
		uint64_t span, shard;
		int64_t local;
		int rc = one_dtype(job, unit, &dtype, error);

		if (rc)
			return rc;
		rc = walk_unit(job, unit, 0, -1, &span, error);
		if (rc || !span)
			continue;
		shard = ceiling(span, shards);
		snprintf(name, sizeof(name), unit < 0 ? "_flat_param" : "layers.%lld._flat_param",
			 (long long)unit);
		local = source_local(job, name, dtype, 1, &shard, error);
		rc = local < 0 ? (int)local : walk_unit(job, unit, shard, local, &span, error);
		if (rc)
			return rc;
	}
	return 0;
}
