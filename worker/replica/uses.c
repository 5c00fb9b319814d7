/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/replica/uses.h"

#include "base/array.h"

static struct use *new_use(struct uses *uses)
{
	struct use *use;

	if (!uses->unused)
		return array_push(uses);
	use = &uses->items[uses->unused - 1];
	uses->unused = use->next;
	return use;
}

int uses_add(struct uses *uses, uint32_t *first, uint32_t peer, uint64_t write, struct error *error)
{
	struct use *use = new_use(uses);

	if (!use)
		return memory_error(error, "noting a write from the CPU replica", sizeof(*use));
	*use = (struct use){.peer = peer, .write = write, .next = *first};
	*first = (uint32_t)(use - uses->items) + 1;
	return 0;
}

bool uses_wait(struct uses *uses, uint32_t *first, const _Atomic uint64_t *done, uint32_t *peer,
	       uint64_t *write)
{
	while (*first) {
		struct use *use = &uses->items[*first - 1];
		uint32_t index = *first;

		if (atomic_load(&done[use->peer]) < use->write) {
			*peer = use->peer;
			*write = use->write;
			return true;
		}
		*first = use->next;
		use->next = uses->unused;
		uses->unused = index;
	}
	return false;
}

void uses_clear(struct uses *uses)
{
	uses->count = 0;
	uses->unused = 0;
}

void uses_free(struct uses *uses)
{
	array_free(uses);
	uses->unused = 0;
}
