/* SPDX-License-Identifier: Apache-2.0
 *
 * problem_model.c -- the problem of a job that does not run: the layouts and holdings that its
 * workers would declare, made from the model and the two parallel specs.
 */
#include "routing/plan/problem.h"

#include "base/compare.h"

#include "base/memory.h"
#include "model/model.h"
#include <inttypes.h>

struct problem_storage {
	struct pool pool;
	struct layout *layouts; /* by engine rank */
	uint32_t layout_count;
	struct holding *holdings; /* by stage, and by shard where sharded */
	uint32_t holding_count;
	struct layout no_layout; /* of who is away */
	struct holding nothing;
	/* what problem_input points at */
	const struct layout **inference;
	struct digest *inference_digests, *layout_digests;
	bool *inference_mapped;
	const struct holding **trainers;
	struct digest *trainer_digests, *holding_digests;
	uint32_t *trainer_stages;
};

void problem_storage_free(struct problem_storage **pointer)
{
	struct problem_storage *storage = *pointer;

	if (!storage)
		return;
	*pointer = NULL;
	for (uint32_t i = 0; i < storage->layout_count; i++)
		layout_fini(&storage->layouts[i]);
	for (uint32_t i = 0; i < storage->holding_count; i++)
		holding_fini(&storage->holdings[i]);
	pool_free(&storage->pool);
	memory_free(storage);
}

static int allocate(struct problem_storage *storage, const struct train_spec *train,
		    const struct infer_spec *infer, struct error *error)
{
	uint32_t ranks = infer_ranks(infer), world = train->world;
	uint32_t holdings = world; /* at most */
	struct pool *pool = &storage->pool;

	storage->layouts = pool_array(pool, infer->tp, sizeof(*storage->layouts));
	storage->layout_digests = pool_array(pool, infer->tp, sizeof(struct digest));
	storage->holdings = pool_array(pool, holdings, sizeof(struct holding));
	storage->holding_digests = pool_array(pool, holdings, sizeof(struct digest));
	storage->inference = pool_array(pool, ranks, sizeof(*storage->inference));
	storage->inference_digests = pool_array(pool, ranks, sizeof(struct digest));
	storage->inference_mapped = pool_array(pool, ranks, sizeof(bool));
	storage->trainers = pool_array(pool, world, sizeof(*storage->trainers));
	storage->trainer_digests = pool_array(pool, world, sizeof(struct digest));
	storage->trainer_stages = pool_array(pool, world, sizeof(uint32_t));
	if (!pool_ok(pool))
		return memory_error(error, "describing the job", (size_t)ranks + world);
	storage->layout_count = infer->tp;
	storage->holding_count = holdings;
	return 0; /* zeroed: empty */
}

/* A trainer, and the number of what it holds. */
struct alike {
	uint64_t key;
	uint32_t rank;
};

static int by_key(const void *x, const void *y)
{
	const struct alike *a = x, *b = y;

	return compare_u64(a->key, b->key) ?: compare_u64(a->rank, b->rank);
}

/* Trainers that hold the same: made once, shared. */
static int make_holdings(struct problem_storage *storage, const struct model *model,
			 const struct train_spec *train, const struct problem_away *away,
			 struct error *error)
{
	struct alike *alike = pool_array(&storage->pool, train->world, sizeof(*alike));

	if (!alike)
		return memory_error(error, "describing trainers", storage->holding_count);
	for (uint32_t rank = 0; rank < train->world; rank++)
		alike[rank] = (struct alike){train_alike(train, rank), rank};
	sort_items(alike, train->world, by_key);
	for (uint32_t i = 0, made = 0; i < train->world; i++) {
		uint32_t rank = alike[i].rank;

		if (!i || alike[i].key != alike[i - 1].key) {
			if (model_holding(model, train, rank, &storage->holdings[made], error))
				return error_wrap(error, "what trainer %" PRIu32 " holds", rank);
			storage->holding_digests[made] = holding_digest(&storage->holdings[made]);
			made++;
		}
		storage->trainer_stages[rank] = train_stage(train, rank);
		if (away && away->trainers && away->trainers[rank]) {
			storage->trainers[rank] = &storage->nothing;
			continue;
		}
		storage->trainers[rank] = &storage->holdings[made - 1];
		storage->trainer_digests[rank] = storage->holding_digests[made - 1];
	}
	return 0;
}

static int make_layouts(struct problem_storage *storage, const struct model *model,
			const struct infer_spec *infer, const struct problem_away *away,
			bool mapped, struct error *error)
{
	for (uint32_t r = 0; r < infer->tp; r++) {
		int rc = model_layout(model, infer, r, &storage->layouts[r], error);

		if (rc)
			return rc;
		storage->layout_digests[r] = layout_digest(&storage->layouts[r]);
	}
	for (uint32_t i = 0; i < infer_ranks(infer); i++) {
		bool is_away = away && away->inference && away->inference[i];

		storage->inference[i] =
			is_away ? &storage->no_layout : &storage->layouts[i % infer->tp];
		if (!is_away)
			storage->inference_digests[i] = storage->layout_digests[i % infer->tp];
		storage->inference_mapped[i] = mapped;
	}
	return 0;
}

int problem_from_model(struct problem **problem, struct problem_storage **storage,
		       const struct model *model, const struct train_spec *train,
		       const struct infer_spec *infer, bool mapped, struct error *error)
{
	return problem_from_model_without(problem, storage, model, train, infer, NULL, mapped,
					  error);
}

int problem_from_model_without(struct problem **problem, struct problem_storage **out,
			       const struct model *model, const struct train_spec *train,
			       const struct infer_spec *infer, const struct problem_away *away,
			       bool mapped, struct error *error)
{
	char train_text[PARALLEL_TEXT_BYTES], infer_text[PARALLEL_TEXT_BYTES];
	struct problem_storage *storage = memory_zalloc(1, sizeof(*storage));
	int rc;

	*problem = NULL;
	*out = NULL;
	if (!storage)
		return memory_error(error, "describing the job", sizeof(*storage));
	rc = allocate(storage, train, infer, error);
	if (!rc)
		rc = make_holdings(storage, model, train, away, error);
	if (!rc)
		rc = make_layouts(storage, model, infer, away, mapped, error);
	if (!rc) {
		struct problem_input input = {
			.model = model->name,
			.train = train_spec_text(train, train_text),
			.infer = infer_spec_text(infer, infer_text),
			.ranks_per_engine = infer->tp,
			.trainers = storage->trainers,
			.trainer_digests = storage->trainer_digests,
			.trainer_stages = storage->trainer_stages,
			.trainer_count = train->world,
			.inference = storage->inference,
			.inference_digests = storage->inference_digests,
			.inference_mapped = storage->inference_mapped,
			.inference_count = infer_ranks(infer),
			.trainer_away = away ? away->trainers : NULL,
			.inference_away = away ? away->inference : NULL,
		};

		rc = problem_build(problem, &input, error);
	}
	if (rc)
		problem_storage_free(&storage);
	*out = storage;
	return rc;
}
