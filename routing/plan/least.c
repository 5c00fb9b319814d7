/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/least.h"

#include "base/assert.h"
#include "base/text.h"
#include <inttypes.h>

struct least_entry {
	uint64_t load; /* as this heap last saw it */
	uint32_t trainer;
};

static bool before(const struct least_entry *a, const struct least_entry *b)
{
	return a->load != b->load ? a->load < b->load : a->trainer < b->trainer;
}

static void sink(struct least_entry *heap, uint32_t count)
{
	struct least_entry moving = heap[0];
	uint32_t at = 0;

	for (;;) {
		uint32_t child = at * 2 + 1;

		if (child >= count)
			break;
		if (child + 1 < count && before(&heap[child + 1], &heap[child]))
			child++;
		if (!before(&heap[child], &moving))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moving;
}

int least_init(struct least *least, const struct units *units, uint32_t trainers,
	       struct error *error)
{
	struct least_entry *next;
	size_t entries = 0;

	for (size_t s = 0; s < units->set_count; s++)
		entries += units->sets[s].count;
	*least = (struct least){.units = units};
	least->loads = pool_array(&least->pool, trainers, sizeof(*least->loads));
	least->heaps = pool_array(&least->pool, units->set_count, sizeof(*least->heaps));
	next = pool_array(&least->pool, entries, sizeof(*next));
	if (!pool_ok(&least->pool)) {
		least_fini(least);
		return memory_error(error, "balancing trainers", entries * sizeof(*next));
	}

	for (size_t s = 0; s < units->set_count; s++) {
		least->heaps[s] = next; /* all loads 0, ranks ascending: a heap already */
		for (uint32_t k = 0; k < units->sets[s].count; k++)
			*next++ = (struct least_entry){0, units->sets[s].trainers[k]};
	}
	return 0;
}

void least_fini(struct least *least)
{
	pool_free(&least->pool);
	*least = (struct least){0};
}

static int tell(struct least *least, const struct unit *unit, struct explain *explain,
		uint32_t chosen, struct error *error)
{
	const struct holder_set *set = &least->units->sets[unit->holders];
	char load[TEXT_SHORT_BYTES];
	uint32_t equal = 0;

	grouped_text(least->loads[chosen], load);
	for (uint32_t k = 0; k < set->count; k++)
		equal += least->loads[set->trainers[k]] == least->loads[chosen];
	if (set->count == 1)
		return explain_add(explain, unit, set, least->loads, chosen, error,
				   "nobody else can send it");
	if (equal == 1)
		return explain_add(explain, unit, set, least->loads, chosen, error,
				   "of its %" PRIu32 " holders trainer %" PRIu32
				   " has the fewest bytes so far, %s",
				   set->count, chosen, load);
	return explain_add(explain, unit, set, least->loads, chosen, error,
			   "%" PRIu32 " of its %" PRIu32
			   " holders have the fewest bytes so far, %s; of these trainer %" PRIu32
			   " is the lowest rank",
			   equal, set->count, load, chosen);
}

int least_decide(struct least *least, const struct unit *unit, struct explain *explain,
		 uint32_t *trainer, struct error *error)
{
	WEFT_ASSERT_OP(unit->holders, <, least->units->set_count);
	struct least_entry *heap = least->heaps[unit->holders];
	uint32_t count = least->units->sets[unit->holders].count;
	int rc = 0;

	WEFT_ASSERT_OP(count, >, 0);
	while (heap->load != least->loads[heap->trainer]) {
		WEFT_ASSERT_OP(heap->load, <, least->loads[heap->trainer]); /* loads only grow */
		heap->load = least->loads[heap->trainer];
		sink(heap, count);
	}
	*trainer = heap->trainer;
	if (explain_wants(explain, unit))
		rc = tell(least, unit, explain, heap->trainer, error);
	least->loads[heap->trainer] += unit->bytes;
	WEFT_ASSERT_OP(least->loads[heap->trainer], >=, heap->load + unit->bytes);
	heap->load = least->loads[heap->trainer];
	sink(heap, count);
	return rc;
}
