/* SPDX-License-Identifier: Apache-2.0
 *
 * balanced_search.c -- where parts cannot be cut finely enough, whole ones change places: from
 * the limit that is passed longest, the move or swap that leaves the least, until the plan is
 * within 0.5 % of the bound, nothing helps, or STEPS_MAX. Ties: the first part, the lowest
 * trainer.
 */
#include "routing/plan/balanced.h"

#include "base/compare.h"
#include "base/memory.h"
#include "routing/plan/keep.h"
#include "routing/plan/maxflow.h"
#include <stdlib.h>

#define STEPS_MAX 500
#define SWAPS_MAX 4000000 /* pairs of parts that all swaps together may look at */
#define NONE	  BOUND_NO_LIMIT

/* bytes / rate seconds: compared exactly, so that ties are the same on every machine. */
struct seconds {
	uint64_t bytes, rate; /* both below 2^63 */
};

struct search {
	struct balanced *b;
	struct seconds enough;
	uint64_t looked; /* at pairs of parts */
};

struct move {
	size_t part, other; /* other: SIZE_MAX, or the part that comes back */
	uint32_t to;
	struct seconds seconds; /* of the limits that it changes */
};

static bool less(struct seconds a, struct seconds b)
{
	return (wide)a.bytes * b.rate < (wide)b.bytes * a.rate;
}

static uint64_t part_bytes(const struct balanced *b, const struct part *part)
{
	const struct share *share = &b->shares.items.items[part->share];

	return share->row_bytes * share->targets * (part->hi - part->lo);
}

static struct seconds limit_seconds(const struct balanced *b, uint32_t limit)
{
	const struct bound_limit *l = &b->limits.items[limit];
	uint64_t bytes = b->limit_bytes[limit];

	return (struct seconds){bytes > l->free_bytes ? bytes - l->free_bytes : 0, l->rate};
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

static struct seconds trainer_seconds(const struct balanced *b, uint32_t trainer)
{
	struct seconds most = {0, 1};

	for (uint32_t l = b->limits.of[trainer]; l != NONE; l = b->limits.items[l].parent)
		if (less(most, limit_seconds(b, l)))
			most = limit_seconds(b, l);
	return most;
}

static bool holds(const struct balanced *b, uint32_t trainer, const struct part *part)
{
	const struct holder_set *set = &b->units->sets[b->shares.items.items[part->share].holders];

	return bsearch(&trainer, set->trainers, set->count, sizeof(trainer), compare_u32s);
}

/* The slowest limit of both trainers if `there` bytes went to `to` and `back` came. */
static struct seconds try_move(struct balanced *b, uint32_t from, uint32_t to, uint64_t there,
			       uint64_t back)
{
	struct seconds one, two;

	pass(b, from, there - back, true);
	pass(b, to, there - back, false);
	one = trainer_seconds(b, from);
	two = trainer_seconds(b, to);
	pass(b, to, there - back, true);
	pass(b, from, there - back, false);
	return less(two, one) ? one : two;
}

static uint32_t slowest(const struct balanced *b)
{
	uint32_t worst = 0;

	for (uint32_t l = 1; l < b->limits.count; l++)
		if (less(limit_seconds(b, worst), limit_seconds(b, l)))
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
			struct seconds seconds =
				try_move(b, part->trainer, set->trainers[k], bytes, 0);

			if (less(seconds, best->seconds))
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
			struct seconds seconds =
				try_move(b, part->trainer, other->trainer, bytes, back);

			if (less(seconds, best->seconds))
				*best = (struct move){p, q, other->trainer, seconds};
		}
	}
}

static bool step(struct search *s)
{
	struct balanced *b = s->b;
	uint32_t limit = slowest(b);
	struct move best = {.seconds = limit_seconds(b, limit)};

	if (!less(s->enough, best.seconds))
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
	uint64_t bytes = b->bound.bytes;
	/* what a plan that follows another one may have too much is not worth a move */
	struct search s = {.b = b,
			   .enough = {bytes + bytes / (b->kept ? KEEP_SLACK : 200), b->bound.rate}};

	b->limit_bytes = pool_array(&b->pool, b->limits.count, sizeof(*b->limit_bytes));
	if (!b->limit_bytes)
		return memory_error(error, "balancing trainers",
				    b->limits.count * sizeof(*b->limit_bytes));
	for (size_t p = 0; p < b->parts.count; p++)
		pass(b, b->parts.items[p].trainer, part_bytes(b, &b->parts.items[p]), false);
	for (int k = 0; b->limits.count && k < STEPS_MAX && step(&s); k++)
		;
	return 0;
}
