/* SPDX-License-Identifier: Apache-2.0
 *
 * source_dtensor.c -- ranks of FSDP2, alone, with replicas (HSDP), with tensor parallelism and with expert parallelism, as
 * torch's DTensor cuts: in chunks of ceil(n / parts), the last ones short or empty.
 *
 *   a linear     tp first: rows (Shard(0)) or columns (Shard(1)) or all; then fsdp, Shard(0) of what is left
 *   experts      [E, rows, columns] in one parameter a kind. ep=1: tp cuts rows or columns of each, fsdp experts, or rows where
 *                there are more shards than experts. ep>1: ep cuts experts, then fsdp * tp / ep cut experts, or rows where these
 *                are too few
 *
 * Source: torch.distributed.tensor's Shard and _StridedShard, torchtitan's parallelize plans (docs/sources.md).
 */
#include "model/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOCAL_NAME_BYTES 320

struct range {
	uint64_t lo, hi;
};

static struct range chunk(struct range of, uint64_t parts, uint64_t part)
{
	uint64_t size = (of.hi - of.lo + parts - 1) / parts, lo = of.lo + part * size,
		 hi = lo + size;

	return (struct range){lo < of.hi ? lo : of.hi, hi < of.hi ? hi : of.hi};
}

static bool cuts_columns(enum source_cut cut)
{
	return cut == SOURCE_COLUMNS;
}

static bool cuts_rows(enum source_cut cut)
{
	return cut != SOURCE_WHOLE && cut != SOURCE_COLUMNS;
}

static int hold_dense(const struct source_job *job, size_t order, enum source_cut cut,
		      struct error *error)
{
	const struct model_tensor *tensor = &job->model->tensors[order];
	const struct train_spec *train = job->train;
	struct box box = box_whole(tensor->dims, tensor->shape);
	uint64_t shape[BOX_DIMS_MAX];
	struct range rows = {0, tensor->shape[0]};
	int64_t local;

	if (cuts_rows(cut))
		rows = chunk(rows, train->mesh_tp, job->place.tp);
	rows = chunk(rows, train->mesh_fsdp, job->place.dp);
	box.lo[0] = rows.lo;
	box.hi[0] = rows.hi;
	if (cuts_columns(cut)) {
		const struct range columns =
			chunk((struct range){0, tensor->shape[1]}, train->mesh_tp, job->place.tp);

		box.lo[1] = columns.lo;
		box.hi[1] = columns.hi;
	}
	for (uint32_t d = 0; d < tensor->dims; d++) {
		shape[d] = box.hi[d] - box.lo[d];
		if (!shape[d])
			return 0; /* a shard without elements */
	}
	local = source_local(job, tensor->name, tensor->dtype, tensor->dims, shape, error);
	return local < 0 ? (int)local
			 : source_box(job, order, &box, (uint32_t)local, 0, NULL, error);
}

/* What this rank has of [E, rows, columns]. */
static void cut_experts(const struct source_job *job, enum source_cut cut, struct range of[3])
{
	const struct train_spec *train = job->train;
	const struct train_place *place = &job->place;
	uint64_t shards = train->mesh_fsdp, shard = place->dp, experts = of[0].hi;

	if (train->ep > 1) {
		of[0] = chunk(of[0], train->ep, place->ep);
		shards = (uint64_t)train->mesh_fsdp * train->mesh_tp / train->ep;
		shard = place->edp;
	} else if (cuts_columns(cut)) {
		of[2] = chunk(of[2], train->mesh_tp, place->tp);
	} else {
		of[1] = chunk(of[1], train->mesh_tp, place->tp);
	}
	if (shards * train->ep <= experts)
		of[0] = chunk(of[0], shards, shard);
	else
		of[1] = chunk(of[1], shards, shard);
}

static int hold_expert(const struct source_job *job, size_t order, enum source_cut cut,
		       struct error *error)
{
	static const char *const names[] = {
		[SOURCE_GATE] = "w1", [SOURCE_UP] = "w3", [SOURCE_COLUMNS] = "w2"};
	const struct model_tensor *tensor = &job->model->tensors[order];
	struct range of[3] = {
		{0, job->model->config.experts}, {0, tensor->shape[0]}, {0, tensor->shape[1]}};
	struct box box = box_whole(2, tensor->shape);
	char name[LOCAL_NAME_BYTES];
	uint64_t shape[3];
	int64_t local;

	cut_experts(job, cut, of);
	for (int d = 0; d < 3; d++)
		if (!(shape[d] = of[d].hi - of[d].lo))
			return 0;
	if (tensor->expert < of[0].lo || tensor->expert >= of[0].hi)
		return 0;
	snprintf(name, sizeof(name), "layers.%lld.moe.experts.%s", (long long)tensor->layer,
		 names[cut]);
	local = source_local(job, name, tensor->dtype, 3, shape, error);
	for (uint32_t d = 0; d < 2; d++) {
		box.lo[d] = of[d + 1].lo;
		box.hi[d] = of[d + 1].hi;
	}
	return local < 0
		       ? (int)local
		       : source_box(job, order, &box, (uint32_t)local,
				    (tensor->expert - of[0].lo) * shape[1] * shape[2], NULL, error);
}

/* Ranks without an expert would wait for those that have them. */
static int check_ep(const struct source_job *job, struct error *error)
{
	uint64_t experts = job->model->config.experts;
	uint32_t ep = job->train->ep;

	if (ep > 1 && !experts)
		return error_set(
			error, ERROR_CONFIG,
			"--train: ep=%u is of experts, and %s has none: leave it out; mesh= "
			"says all else",
			ep, job->model->name);
	if (ep > experts && ep > 1)
		return error_set(error, ERROR_CONFIG,
				 "--train: ep=%u is more than the %" PRIu64
				 " experts of %s: each rank of ep has one at least",
				 ep, experts, job->model->name);
	return 0;
}

int source_dtensor(const struct source_job *job, struct error *error)
{
	bool cut = job->train->mesh_tp > 1;
	int rc = check_ep(job, error);

	for (size_t t = 0; t < job->model->tensor_count && !rc; t++) {
		const struct model_tensor *tensor = &job->model->tensors[t];
		struct source_row row = {.cut = SOURCE_WHOLE};
		uint32_t stage;

		rc = source_stage(job, tensor, &stage, error);
		if (rc || stage != job->place.pp || source_is_buffer(job->model, tensor))
			continue;
		if (tensor->scale || tensor->dtype == DTYPE_F8_E4M3)
			return source_unknown(
				job, tensor,
				"such trainers hold what is not quantised: name the model that is not, and give "
				"engines fp8=128x128 in --infer",
				error);
		/* FSDP cuts whatever there is by rows; only tensor and expert parallelism ask what it is */
		if (cut || tensor->expert != EXPERT_NONE)
			rc = source_find_row(job, tensor, &row, error);
		if (rc)
			break;
		rc = tensor->expert != EXPERT_NONE ? hold_expert(job, t, row.cut, error)
						   : hold_dense(job, t, row.cut, error);
	}
	return rc;
}
