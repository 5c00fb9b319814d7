/* SPDX-License-Identifier: Apache-2.0
 *
 * holding.c -- what one trainer can read: the tensors of its pipeline stage, whole or its
 * rows of them.
 */
#include "model/model.h"

/* Stage of a tensor: embeddings on the first, final norm and lm_head on the last. */
static int tensor_stage(const struct model *model, const struct train_spec *train,
			const struct model_tensor *tensor, uint32_t *stage, struct error *error)
{
	uint32_t layers = (uint32_t)model->config.layers;

	if (tensor->layer >= 0 && tensor->layer < (int64_t)layers)
		return train_layer_stage(train, layers, (uint32_t)tensor->layer, stage, error);
	*stage = tensor->layer < 0 ? 0 : train->pp - 1;
	return 0;
}

static int hold(const struct model *model, const struct train_spec *train, uint32_t rank,
		size_t order, struct holding *holding, struct error *error)
{
	const struct model_tensor *tensor = &model->tensors[order];
	struct box box = box_whole(tensor->dims, tensor->shape);
	int64_t index;

	if (train->source == TRAIN_SHARDED)
		train_shard_rows(tensor->shape[0], train->fsdp, rank % train->fsdp, &box.lo[0],
				 &box.hi[0]);
	if (box.lo[0] == box.hi[0])
		return 0;
	index = holding_add_tensor(holding, tensor->name, tensor->dtype, tensor->dims,
				   tensor->shape, (uint32_t)order, error);
	return index < 0 ? (int)index : holding_add(holding, (uint32_t)index, &box, error);
}

/* Without layers nothing says which tensors are whose. */
static int check_stages(const struct model *model, const struct train_spec *train,
			struct error *error)
{
	if (train->pp == 1 || model->config.layers)
		return 0;
	return error_set(
		error, ERROR_CONFIG,
		"--train: pp=%u stages, but the layout file says nothing of layers: give it "
		"\"layers\", and its tensors their \"layer\"",
		train->pp);
}

static int check_train(const struct train_spec *train, uint32_t rank, struct error *error)
{
	if (rank >= train->world)
		return error_set(error, ERROR_CONFIG, "trainer %u is not below world=%u", rank,
				 train->world);
	if (train->pp == 0 || train->world % train->pp)
		return error_set(error, ERROR_CONFIG, "--train: pp=%u does not divide world=%u",
				 train->pp, train->world);
	/* a shard group inside one stage, else shards of a tensor would sit nowhere */
	if (train->source == TRAIN_SHARDED &&
	    (train->fsdp == 0 || (train->world / train->pp) % train->fsdp))
		return error_set(error, ERROR_CONFIG,
				 "--train: fsdp=%u does not divide the %u trainers of a stage",
				 train->fsdp, train->world / train->pp);
	return 0;
}

int model_holding(const struct model *model, const struct train_spec *train, uint32_t rank,
		  struct holding *holding, struct error *error)
{
	int rc = check_train(train, rank, error);

	holding_init(holding);
	if (rc == 0)
		rc = check_stages(model, train, error);
	for (size_t t = 0; t < model->tensor_count && rc == 0; t++) {
		uint32_t stage;

		rc = tensor_stage(model, train, &model->tensors[t], &stage, error);
		if (rc == 0 && stage == train_stage(train, rank))
			rc = hold(model, train, rank, t, holding, error);
	}
	if (rc == 0)
		rc = holding_finish(holding, error);
	if (rc == 0)
		return 0;
	holding_fini(holding);
	error_wrap(error, "%s, trainer %u of %u", model->name, rank, train->world);
	return rc;
}
