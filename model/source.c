/* SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"
#include "model/source.h"

#include <string.h>

int source_stage(const struct source_job *job, const struct model_tensor *tensor, uint32_t *stage,
		 struct error *error)
{
	const struct train_spec *train = job->train;
	uint32_t layers = (uint32_t)job->model->config.layers;

	if (tensor->layer >= 0 && tensor->layer < (int64_t)layers)
		return train_layer_stage(train, layers, (uint32_t)tensor->layer, stage, error);
	*stage = tensor->layer < 0 ? 0 : train->pp - 1;
	return 0;
}

int64_t source_tensor(const struct source_job *job, size_t order, struct error *error)
{
	const struct model_tensor *tensor = &job->model->tensors[order];

	return holding_add_tensor(job->holding, tensor->name, tensor->dtype, tensor->dims,
				  tensor->shape, (uint32_t)order, error);
}

int source_box(const struct source_job *job, size_t order, const struct box *box, uint32_t local,
	       uint64_t offset, const uint64_t *stride, struct error *error)
{
	struct held held = {.local = local, .box = *box};
	int64_t index = source_tensor(job, order, error);

	if (index < 0)
		return (int)index;
	held.tensor = (uint32_t)index;
	held.place = placement_dense(box);
	if (stride)
		memcpy(held.place.stride, stride, box->dims * sizeof(*stride));
	held.place.offset = offset;
	return holding_add_placed(job->holding, &held, error);
}

int64_t source_local(const struct source_job *job, const char *name, enum dtype dtype,
		     uint32_t dims, const uint64_t *shape, struct error *error)
{
	uint32_t known;

	if (strmap_get(&job->holding->local_names, name, &known))
		return known;
	return holding_add_local(job->holding, name, dtype, dims, shape, error);
}

bool source_is_buffer(const struct model *model, const struct model_tensor *tensor)
{
	return model->config.family && model->config.family->rules[tensor->rule].when == IF_ROTARY;
}

/* ---- gathered, sharded ---- */

static int hold_rows(const struct source_job *job, size_t order, struct error *error)
{
	const struct model_tensor *tensor = &job->model->tensors[order];
	struct box box = box_whole(tensor->dims, tensor->shape);
	int64_t index;

	if (job->train->source == TRAIN_SHARDED)
		train_shard_rows(tensor->shape[0], job->train->fsdp, job->place.dp, &box.lo[0],
				 &box.hi[0]);
	if (box.lo[0] == box.hi[0])
		return 0;
	index = source_tensor(job, order, error);
	return index < 0 ? (int)index : holding_add(job->holding, (uint32_t)index, &box, error);
}

int source_rows(const struct source_job *job, struct error *error)
{
	int rc = 0;

	for (size_t t = 0; t < job->model->tensor_count && rc == 0; t++) {
		uint32_t stage;

		rc = source_stage(job, &job->model->tensors[t], &stage, error);
		if (rc == 0 && stage == job->place.pp)
			rc = hold_rows(job, t, error);
	}
	return rc;
}
