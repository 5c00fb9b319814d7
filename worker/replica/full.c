/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/replica/full.h"

#include "base/compare.h"
#include "base/memory.h"
#include "worker/replica/ring.h"

#include <stdlib.h>
#include <string.h>

static int compare_places(const void *a, const void *b, void *context)
{
	const struct full_place *places = context;
	const struct full_place *x = &places[*(const uint32_t *)a];
	const struct full_place *y = &places[*(const uint32_t *)b];

	return compare_u64(x->param, y->param) ?: compare_u64(x->offset, y->offset);
}

/* Sources by (parameter, offset): a group ends where nothing of it reaches any further. */
static void make_groups(struct full *full, const uint32_t *sorted)
{
	uint64_t home = 0, first = 0, reach = 0, home_end = 0;
	uint32_t param = 0;

	for (size_t i = 0; i < full->count; i++) {
		struct full_place *place = &full->places[sorted[i]];
		uint64_t end = place->offset + place->bytes;
		bool fresh = !i || place->param != param;

		if (fresh) {
			home = ring_aligned(home_end);
			first = place->offset;
			param = place->param;
		}
		if (fresh || place->offset >= reach) {
			full->groups[full->group_count++] =
				(struct full_group){.owner = FULL_NOBODY};
			reach = end;
		} else {
			full->groups[full->group_count - 1].shared = true;
		}
		reach = end > reach ? end : reach;
		place->group = (uint32_t)full->group_count - 1;
		place->at = home + (place->offset - first);
		if (place->at + place->bytes > home_end)
			home_end = place->at + place->bytes;
	}
	full->bytes = home_end;
}

int full_open(struct full *full, struct full_place *places, size_t count, struct error *error)
{
	uint32_t *sorted = memory_zalloc(count, sizeof(*sorted));

	*full = (struct full){.places = places, .count = count};
	full->groups = memory_zalloc(count, sizeof(*full->groups));
	if (sorted && full->groups) {
		for (size_t i = 0; i < count; i++)
			sorted[i] = (uint32_t)i;
		qsort_r(sorted, count, sizeof(*sorted), compare_places, places);
		make_groups(full, sorted);
	}
	memory_free(sorted);
	return full->group_count || !count ? 0
					   : memory_error(error, "laying out the CPU replica",
							  count * sizeof(*full->groups));
}

int full_begin(struct full *state, const struct full *layout, struct error *error)
{
	size_t bytes = layout->group_count * sizeof(*state->groups);

	*state = *layout;
	state->groups = memory_zalloc(1, bytes);
	if (!state->groups)
		return memory_error(error, "laying out the CPU replica", bytes);
	memcpy(state->groups, layout->groups, bytes);
	return 0;
}

void full_close(struct full *full)
{
	memory_free(full->groups);
	uses_free(&full->uses);
	*full = (struct full){0};
}

void full_settle(struct full *full)
{
	for (size_t g = 0; g < full->group_count; g++) {
		full->groups[g].busy = false;
		full->groups[g].first_use = 0;
	}
	uses_clear(&full->uses);
}
