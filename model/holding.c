/* SPDX-License-Identifier: Apache-2.0
 *
 * holding.c -- what one trainer can read, by the source of its spec.
 */
#include "model/source.h"

#include "base/array.h"

static source_hold *const sources[] = {
	[TRAIN_GATHERED] = source_rows,	    [TRAIN_SHARDED] = source_rows,
	[TRAIN_MEGATRON] = source_megatron, [TRAIN_DTENSOR] = source_dtensor,
	[TRAIN_ZERO3] = source_zero3,	    [TRAIN_FSDP1] = source_fsdp1,
};

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
	struct source_job job = {.model = model, .train = train, .rank = rank, .holding = holding};
	int rc = check_train(train, rank, error);

	holding_init(holding);
	if (rc == 0)
		rc = check_stages(model, train, error);
	if (rc == 0) {
		job.place = train_place(train, rank);
		rc = sources[train->source](&job, error);
	}
	if (rc == 0)
		rc = holding_finish(holding, error);
	if (rc == 0)
		return 0;
	holding_fini(holding);
	error_wrap(error, "%s, trainer %u of %u", model->name, rank, train->world);
	return rc;
}
