/* SPDX-License-Identifier: Apache-2.0
 *
 * greedy.c -- for each unit in decision order, among its holders the one with the fewest bytes
 * so far, the lowest rank on a tie; then its bytes are added to that trainer.
 *
 * Each holder set has a heap of its trainers by (load, rank). A trainer may be in many sets, and
 * only the set that chose it hears of its new load; elsewhere its key is stale. Loads never
 * shrink, so a stale key is too small, never too large: if the top's key is current, nothing
 * below it can be smaller, and if it is stale, it is brought up to date and sinks. The result is
 * the rule's, exactly, at O(log holders) a unit.
 */
#include "routing/policy.h"

#include "common/memory.h"
#include <string.h>

struct entry {
	uint64_t load; /* as this heap last saw it */
	uint32_t trainer;
};

static bool before(const struct entry *a, const struct entry *b)
{
	return a->load != b->load ? a->load < b->load : a->trainer < b->trainer;
}

static void sink(struct entry *heap, uint32_t count)
{
	struct entry moving = heap[0];
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

int greedy_assign(const struct problem *problem, const struct plan_options *options,
		  struct units *units, uint32_t **trainer, struct error *error)
{
	(void)options;
	size_t entries = 0;
	struct entry **heaps = memory_zalloc(units->set_count, sizeof(*heaps));
	uint64_t *loads = memory_zalloc(problem->trainer_count, sizeof(*loads));
	struct entry *storage = NULL;
	int rc = 0;

	for (size_t s = 0; s < units->set_count; s++)
		entries += units->sets[s].count;
	storage = memory_alloc(entries * sizeof(*storage));
	if (!heaps || !loads || !storage) {
		rc = memory_error(error, "balancing trainers", entries * sizeof(*storage));
		goto free_all;
	}
	struct entry *next = storage;

	for (size_t s = 0; s < units->set_count; s++) {
		heaps[s] = next; /* all loads 0, ranks ascending: a heap already */
		for (uint32_t k = 0; k < units->sets[s].count; k++)
			*next++ = (struct entry){0, units->sets[s].trainers[k]};
	}
	for (size_t i = 0; i < units->count; i++) {
		const struct unit *unit = &units->items[i];
		struct entry *heap = heaps[unit->holders];
		uint32_t count = units->sets[unit->holders].count;

		while (heap->load != loads[heap->trainer]) {
			heap->load = loads[heap->trainer];
			sink(heap, count);
		}
		(*trainer)[i] = heap->trainer;
		loads[heap->trainer] += unit->bytes;
		heap->load = loads[heap->trainer];
		sink(heap, count);
	}
free_all:
	memory_free(storage);
	memory_free(loads);
	memory_free(heaps);
	return rc;
}
