/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/writes.h"

#include "base/compare.h"
#include "routing/plan/pair_sums.h"

struct work {
	bool sized; /* sizes are wanted */
	ARRAY(uint64_t) sizes;
	struct pair_sums merged;
	uint64_t *of_trainer;
};

static bool add_write(struct work *work, uint32_t trainer, uint64_t bytes)
{
	work->of_trainer[trainer]++;
	return !work->sized || array_add(&work->sizes, bytes);
}

static bool add_route(struct work *work, const struct table *table, const struct route *route)
{
	struct pair_sum merged = {.pair = table_pair(route)};

	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];

		if (write_is_merged(piece))
			merged.small_bytes += piece->bytes;
		else if (!add_write(work, route->trainer, piece->bytes))
			return false;
	}
	return !merged.small_bytes || array_add(&work->merged, merged);
}

/* Of each pair as few as hold it, all but the last of one size. */
static bool add_merged(struct work *work)
{
	pair_sums_unite(&work->merged);
	array_each(sum, &work->merged)
		for (uint64_t left = sum->small_bytes, size; left; left -= size) {
			size = left < MERGE_WRITE_BYTES ? left : MERGE_WRITE_BYTES;
			if (!add_write(work, (uint32_t)(sum->pair >> 32), size))
				return false;
		}
	return true;
}

static int count(struct writes *writes, const struct table *table, bool sized, struct error *error)
{
	uint32_t trainers = table->problem->trainer_count;
	struct work work = {.sized = sized,
			    .of_trainer = memory_zalloc(trainers, sizeof(uint64_t))};
	bool memory = work.of_trainer != NULL;

	*writes = (struct writes){0};
	for (size_t r = 0; memory && r < table->route_count; r++)
		memory = add_route(&work, table, &table->routes[r]);
	memory = memory && add_merged(&work);
	if (memory && work.sizes.count) {
		sort_items(work.sizes.items, work.sizes.count, compare_u64s);
		writes->smallest_bytes = work.sizes.items[0];
		writes->median_bytes = work.sizes.items[work.sizes.count / 2];
	}
	for (uint32_t t = 0; memory && t < trainers; t++) {
		writes->count += work.of_trainer[t];
		if (work.of_trainer[t] > writes->most) {
			writes->most = work.of_trainer[t];
			writes->trainer = t;
		}
	}
	array_free(&work.sizes);
	array_free(&work.merged);
	memory_free(work.of_trainer);
	return memory ? 0
		      : memory_error(error, "counting writes",
				     table->piece_count * sizeof(uint64_t));
}

int writes_of(struct writes *writes, const struct table *table, struct error *error)
{
	return count(writes, table, true, error);
}

int writes_count(struct writes *writes, const struct table *table, struct error *error)
{
	return count(writes, table, false, error);
}
