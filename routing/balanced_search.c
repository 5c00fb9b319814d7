/* SPDX-License-Identifier: Apache-2.0
 *
 * balanced_search.c -- where parts cannot be cut finely enough, whole ones change places: from
 * the limit that is passed longest, the move or swap that leaves the least, until the plan is
 * within 0.5 % of the bound, nothing helps, or STEPS_MAX. Ties: the first part, the lowest
 * trainer.
 */
#include "routing/balanced.h"

#include "common/memory.h"

#define STEPS_MAX 500
#define SWAPS_MAX 4000000 /* pairs of parts that all swaps together may look at */
#define NONE	  BOUND_NO_LIMIT

struct search {
	struct balanced *b;
	long double enough; /* seconds */
	uint64_t looked;    /* at pairs of parts */
};

struct move {
	size_t part, other; /* other: SIZE_MAX, or the part that comes back */
	uint32_t to;
	long double seconds; /* of the limits that it changes */
};

static uint64_t part_bytes(const struct balanced *b, const struct part *part)
{
	const struct share *share = &b->shares.items.items[part->share];

	return share->row_bytes * share->targets * (part->hi - part->lo);
}

static long double limit_seconds(const struct balanced *b, uint32_t limit)
{
	const struct bound_limit *l = &b->limits.items[limit];
	uint64_t bytes = b->limit_bytes[limit];

	return bytes > l->free_bytes ? (long double)(bytes - l->free_bytes) / (long double)l->rate
				     : 0;
}

static void pass(struct balanced *b, uint32_t trainer, uint64_t bytes, bool out)
{
	for (uint32_t l = b->limits.of[trainer]; l != NONE; l = b->limits.items[l].parent)
		b->limit_bytes[l] += out ? -bytes : bytes;
}

static bool passes(const struct balanced *b, uint32_t trainer, uint32_t limit)
{
	for (uint32_t l = b->limits.of[trainer]; l != NONE; l = b->limits.items[l].parent)
		if (l == limit)
			return true;
	return false;
}

static long double trainer_seconds(const struct balanced *b, uint32_t trainer)
{
	long double most = 0;

	for (uint32_t l = b->limits.of[trainer]; l != NONE; l = b->limits.items[l].parent)
		if (limit_seconds(b, l) > most)
			most = limit_seconds(b, l);
	return most;
}

static bool holds(const struct balanced *b, uint32_t trainer, const struct part *part)
{
	const struct holder_set *set = &b->units->sets[b->shares.items.items[part->share].holders];
	uint32_t from = 0, to = set->count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (set->trainers[middle] < trainer)
			from = middle + 1;
		else
			to = middle;
	}
	return from < set->count && set->trainers[from] == trainer;
}

/* The slowest limit of both trainers if `there` bytes went to `to` and `back` came. */
static long double try_move(struct balanced *b, uint32_t from, uint32_t to, uint64_t there,
			    uint64_t back)
{
	long double one, two;

	pass(b, from, there - back, true);
	pass(b, to, there - back, false);
	one = trainer_seconds(b, from);
	two = trainer_seconds(b, to);
	pass(b, to, there - back, true);
	pass(b, from, there - back, false);
	return one > two ? one : two;
}

static uint32_t slowest(const struct balanced *b)
{
	uint32_t worst = 0;

	for (uint32_t l = 1; l < b->limits.count; l++)
		if (limit_seconds(b, l) > limit_seconds(b, worst))
			worst = l;
	return worst;
}

static void best_move(struct search *s, uint32_t limit, struct move *best)
{
	struct balanced *b = s->b;

	for (size_t p = 0; p < b->parts.count; p++) {
		const struct part *part = &b->parts.items[p];
		const struct holder_set *set =
			&b->units->sets[b->shares.items.items[part->share].holders];

		if (!passes(b, part->trainer, limit))
			continue;
		uint64_t bytes = part_bytes(b, part);

		for (uint32_t k = 0; k < set->count; k++) {
			if (passes(b, set->trainers[k], limit))
				continue;
			long double seconds =
				try_move(b, part->trainer, set->trainers[k], bytes, 0);

			if (seconds < best->seconds)
				*best = (struct move){p, SIZE_MAX, set->trainers[k], seconds};
		}
	}
}

static void best_swap(struct search *s, uint32_t limit, struct move *best)
{
	struct balanced *b = s->b;

	for (size_t p = 0; p < b->parts.count; p++) {
		const struct part *part = &b->parts.items[p];

		if (!passes(b, part->trainer, limit))
			continue;
		uint64_t bytes = part_bytes(b, part);

		for (size_t q = 0; q < b->parts.count && s->looked < SWAPS_MAX; q++) {
			const struct part *other = &b->parts.items[q];
			uint64_t back = part_bytes(b, other);

			s->looked++;
			if (back >= bytes || passes(b, other->trainer, limit) ||
			    !holds(b, other->trainer, part) || !holds(b, part->trainer, other))
				continue;
			long double seconds =
				try_move(b, part->trainer, other->trainer, bytes, back);

			if (seconds < best->seconds)
				*best = (struct move){p, q, other->trainer, seconds};
		}
	}
}

static bool step(struct search *s)
{
	struct balanced *b = s->b;
	uint32_t limit = slowest(b);
	struct move best = {.seconds = limit_seconds(b, limit)};

	if (best.seconds <= s->enough)
		return false;
	best.part = SIZE_MAX;
	best_move(s, limit, &best);
	if (best.part == SIZE_MAX)
		best_swap(s, limit, &best);
	if (best.part == SIZE_MAX)
		return false;
	struct part *part = &b->parts.items[best.part];
	uint32_t from = part->trainer;

	pass(b, from, part_bytes(b, part), true);
	pass(b, best.to, part_bytes(b, part), false);
	part->trainer = best.to;
	if (best.other != SIZE_MAX) {
		struct part *other = &b->parts.items[best.other];

		pass(b, best.to, part_bytes(b, other), true);
		pass(b, from, part_bytes(b, other), false);
		other->trainer = from;
	}
	return true;
}

int balanced_search(struct balanced *b, struct error *error)
{
	struct search s = {.b = b,
			   .enough = (long double)b->bound.bytes / (long double)b->bound.rate *
				     1.005L};

	b->limit_bytes = memory_zalloc(b->limits.count, sizeof(*b->limit_bytes));
	if (!b->limit_bytes)
		return memory_error(error, "balancing trainers",
				    b->limits.count * sizeof(*b->limit_bytes));
	for (size_t p = 0; p < b->parts.count; p++)
		pass(b, b->parts.items[p].trainer, part_bytes(b, &b->parts.items[p]), false);
	for (int k = 0; b->limits.count && k < STEPS_MAX && step(&s); k++)
		;
	return 0;
}
