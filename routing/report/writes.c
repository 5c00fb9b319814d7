/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/writes.h"

#include "base/array.h"
#include "base/compare.h"

struct merged {
	uint64_t pair, bytes;
};

struct work {
	ARRAY(uint64_t) sizes;
	ARRAY(struct merged) merged;
	uint64_t *of_trainer;
};

static int by_pair(const void *a, const void *b)
{
	return compare_u64(((const struct merged *)a)->pair, ((const struct merged *)b)->pair);
}

static bool add_route(struct work *work, const struct table *table, const struct route *route)
{
	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];
		bool merged = write_is_merged(piece);

		work->of_trainer[route->trainer] += !merged;
		if (merged ? !array_add(&work->merged,
					(struct merged){table_pair(route), piece->bytes})
			   : !array_add(&work->sizes, piece->bytes))
			return false;
	}
	return true;
}

/* Of each pair as few as hold it, all but the last of one size. */
static bool add_merged(struct work *work)
{
	if (work->merged.count)
		sort_items(work->merged.items, work->merged.count, by_pair);
	for (size_t i = 0; i < work->merged.count;) {
		uint64_t pair = work->merged.items[i].pair, bytes = 0;

		for (; i < work->merged.count && work->merged.items[i].pair == pair; i++)
			bytes += work->merged.items[i].bytes;
		for (uint64_t size; bytes; bytes -= size) {
			size = bytes < MERGE_WRITE_BYTES ? bytes : MERGE_WRITE_BYTES;
			work->of_trainer[pair >> 32]++;
			if (!array_add(&work->sizes, size))
				return false;
		}
	}
	return true;
}

int writes_of(struct writes *writes, const struct table *table, struct error *error)
{
	uint32_t trainers = table->problem->trainer_count;
	struct work work = {.of_trainer = memory_zalloc(trainers, sizeof(uint64_t))};
	bool memory = work.of_trainer != NULL;

	*writes = (struct writes){0};
	for (size_t r = 0; memory && r < table->route_count; r++)
		memory = add_route(&work, table, &table->routes[r]);
	memory = memory && add_merged(&work);
	if (memory && work.sizes.count) {
		sort_items(work.sizes.items, work.sizes.count, compare_u64s);
		writes->count = work.sizes.count;
		writes->smallest_bytes = work.sizes.items[0];
		writes->median_bytes = work.sizes.items[work.sizes.count / 2];
	}
	for (uint32_t t = 0; memory && t < trainers; t++)
		if (work.of_trainer[t] > writes->most) {
			writes->most = work.of_trainer[t];
			writes->trainer = t;
		}
	array_free(&work.sizes);
	array_free(&work.merged);
	memory_free(work.of_trainer);
	return memory ? 0
		      : memory_error(error, "counting writes",
				     table->piece_count * sizeof(uint64_t));
}
