/* SPDX-License-Identifier: Apache-2.0
 *
 * balanced_line.c -- shares to parts. The bound says how many bytes of each holder set each
 * trainer sends when nothing could be better. The shares of a set are laid on a line, those of
 * the same inference ranks side by side, and the line is cut at those figures:
 *
 *   line      [ share a      )[ b  )[ c          )[ d  )[ e        )
 *   figures   |  trainer 0      |  trainer 1      |  trainer 2     |
 *   parts     [ a -> 0       )[ b -> 1)[c -> 1 )[c -> 2)[ d -> 2 )..
 *                             ^ nearly: no cut    ^ a cut, at a row
 *
 * The line has two stripes where that leaves trainers a good deal in each: the first half of a
 * set's shares by tensor, then the second. So a trainer's part is of twice as many ranks, each
 * half as much. One large flow to a receiver loses to many small ones when it is full; and what
 * more than an eighth of all ranks want (SPREAD) is spread as it is.
 *
 * Borders are measured from the line's beginning, so what one trainer has too much or too little
 * by the size of a row is not handed on.
 */
#include "routing/plan/balanced.h"

#include "base/compare.h"
#include "base/memory.h"
#include "routing/plan/maxflow.h"
#include <stdlib.h>

/* A border moves to the next share's if that changes no load by more than 1/400; by more than
 * 4/1000 if else a part of less than PART_BYTES_MIN for each target would be cut off. */
#define SNAP(bytes)	  ((bytes) / 400)
#define SNAP_SMALL(bytes) ((bytes) / 250)
#define PART_BYTES_MIN	  (UINT64_C(1) << 20)
#define STRIPES		  2u
#define STRIPE_BYTES_MIN  (UINT64_C(256) << 20) /* of one trainer */
#define SPREAD		  8u

static int no_memory(struct error *error)
{
	return memory_error(error, "cutting shares into parts", sizeof(struct part));
}

/* ---- the line ---- */

static int by_place(const void *x, const void *y, void *context)
{
	uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;
	const struct share *shares = context, *a = &shares[i], *b = &shares[k];

	return compare_u64(a->holders, b->holders) ?: compare_u64(a->stripe, b->stripe) ?:
	       compare_u64(a->first_target, b->first_target) ?:
	       compare_u64(a->targets, b->targets) ?: compare_u64(i, k);
}

/* `before`: bytes of the same holder set in earlier tensors. */
static uint32_t stripe_of(const struct balanced *b, const struct share *share, uint64_t before)
{
	uint64_t whole = b->set_bytes[share->holders];
	uint32_t trainers = b->units->sets[share->holders].count;

	if (whole / STRIPES / trainers < STRIPE_BYTES_MIN ||
	    (uint64_t)share->targets * SPREAD > b->problem->inference_count)
		return 0;
	return (uint32_t)((unsigned __int128)before * STRIPES / whole);
}

static int make_stripes(struct balanced *b, struct error *error)
{
	uint64_t *before = pool_array(&b->pool, b->units->set_count, sizeof(*before));

	if (!before)
		return no_memory(error);
	for (size_t i = 0; i < b->shares.items.count; i++) {
		struct share *share = &b->shares.items.items[i];

		share->stripe = stripe_of(b, share, before[share->holders]);
		before[share->holders] += share_bytes(share);
	}
	return 0;
}

static int make_line(struct balanced *b, struct error *error)
{
	size_t count = b->shares.items.count;
	int rc;

	b->line = pool_array(&b->pool, count, sizeof(*b->line));
	b->set_bytes = pool_array(&b->pool, b->units->set_count, sizeof(*b->set_bytes));
	if (!pool_ok(&b->pool))
		return no_memory(error);
	for (size_t i = 0; i < count; i++) {
		const struct share *share = &b->shares.items.items[i];

		b->line[i] = (uint32_t)i;
		b->set_bytes[share->holders] += share_bytes(share);
	}
	rc = make_stripes(b, error);
	if (rc)
		return rc;
	qsort_r(b->line, count, sizeof(*b->line), by_place, b->shares.items.items);
	return 0;
}

/* Uplinks may leave NICs idle, and then any division among NICs reaches the bound. The even one:
 * what uplinks pass by the bound is given, and the bound of the NICs is asked. */
static int solve_below_uplinks(struct balanced *b, struct bound_input *input, struct error *error)
{
	struct bound_limit *limits = pool_array(&b->pool, b->limits.count, sizeof(*limits));
	uint64_t all = 0; /* more than that passes nowhere */
	struct bound below;
	bool any = false;
	int rc = 0;

	if (!limits)
		return memory_error(error, "balancing trainers", b->limits.count * sizeof(*limits));
	for (size_t s = 0; s < b->units->set_count; s++)
		all += b->set_bytes[s];
	for (uint32_t l = 0; l < b->limits.count; l++) {
		limits[l] = b->limits.items[l];
		if (b->limits.what[l].kind != LIMITS_UPLINK)
			continue;
		wide passes = (wide)b->bound.bytes * limits[l].rate / b->bound.rate;

		limits[l].free_bytes = passes < all ? (uint64_t)passes : all;
		limits[l].rate = 1; /* what rounding lost */
		any = true;
	}
	input->limits = limits;
	rc = any ? bound_solve(&below, input, error) : 0;
	if (rc || !any)
		return rc;
	memory_free(b->bound.shares);
	memory_free(b->bound.share_first);
	b->bound.shares = below.shares;
	b->bound.share_first = below.share_first;
	below.shares = NULL;
	below.share_first = NULL;
	bound_fini(&below);
	return 0;
}

static int solve(struct balanced *b, struct error *error)
{
	const struct topology *topology = b->options->topology;
	int rc = 0;

	if (!topology) {
		rc = topology_flat(&b->flat, b->problem->trainer_count, b->problem->inference_count,
				   error);
		topology = b->flat;
	}
	if (!rc)
		rc = limits_of(&b->limits, topology, ROLE_TRAINER, error);
	if (rc)
		return rc;
	struct bound_input input = {
		.sets = b->units->sets,
		.bytes = b->set_bytes,
		.set_count = b->units->set_count,
		.trainer_count = b->problem->trainer_count,
		.limits = b->limits.items,
		.limit_of = b->limits.of,
		.limit_count = b->limits.count,
	};
	rc = bound_solve(&b->bound, &input, error);
	return rc ? rc : solve_below_uplinks(b, &input, error);
}

/* ---- cutting ---- */

/* One set's line while it is cut. */
struct cutter {
	struct balanced *b;
	const uint64_t *loads;	   /* by trainer: what the bound gives it, of all sets / how many */
	size_t at, end;		   /* into bound.shares: trainers of this set */
	uint64_t position, border; /* bytes from the line's beginning; border: of trainer `at` */
};

static int add_part(struct cutter *c, uint32_t index, uint64_t lo, uint64_t hi, struct error *error)
{
	struct share *share = &c->b->shares.items.items[index];
	uint32_t trainer = c->b->bound.shares[c->at].trainer;

	if (!array_add(&c->b->parts, (struct part){lo, hi, index, trainer}))
		return no_memory(error);
	share->part_count++;
	c->position += share->row_bytes * share->targets * (hi - lo);
	return 0;
}

static uint64_t load_at(const struct cutter *c, size_t at)
{
	return c->loads[c->b->bound.shares[at].trainer];
}

/* How far this border may move: by the smaller of the two loads that it changes. */
static uint64_t border_room(const struct cutter *c, bool small)
{
	uint64_t load = load_at(c, c->at);

	if (c->at + 1 < c->end && load_at(c, c->at + 1) < load)
		load = load_at(c, c->at + 1);
	return small ? SNAP_SMALL(load) : SNAP(load);
}

static void next_trainer(struct cutter *c)
{
	c->at++;
	c->border += c->b->bound.shares[c->at].bytes;
}

/* The row to cut at, nearest to the border; lo or hi for none. */
static uint64_t cut_row(const struct cutter *c, const struct share *share, uint64_t lo)
{
	uint64_t grain = share->grain;
	uint64_t each = share->row_bytes * share->targets;
	uint64_t room = c->border > c->position ? c->border - c->position : 0;
	uint64_t rest = (share->hi - lo) * each;

	if (room >= rest)
		return share->hi;
	uint64_t row = lo + (room + each / 2) / each;
	uint64_t below = row / grain * grain, above = below + grain;

	if (grain == BALANCED_WHOLE) {
		below = lo;
		above = share->hi;
	}
	row = row - below < above - row || row == below ? below : above;
	row = row < lo ? lo : row > share->hi ? share->hi : row;
	bool begins = row - lo < share->hi - row;
	uint64_t rows = begins ? row - lo : share->hi - row;
	bool small = rows * share->row_bytes < PART_BYTES_MIN;
	uint64_t move = begins ? room : rest - room;

	if (rows && move <= border_room(c, small))
		row = begins ? lo : share->hi;
	return row;
}

static int cut_share(struct cutter *c, uint32_t index, struct error *error)
{
	struct share *share = &c->b->shares.items.items[index];
	uint64_t lo = share->lo, row;
	int rc = 0;

	share->part_first = c->b->parts.count;
	while (!rc && lo < share->hi) {
		row = c->at + 1 < c->end ? cut_row(c, share, lo) : share->hi;
		if (row > lo)
			rc = add_part(c, index, lo, row, error);
		lo = row;
		/* what is left, or the next share, is the next trainer's */
		while (c->at + 1 < c->end && (lo < share->hi || c->position >= c->border)) {
			next_trainer(c);
			if (c->position < c->border)
				break;
		}
	}
	return rc;
}

static int cut_line(struct balanced *b, struct error *error)
{
	uint32_t trainers = b->problem->trainer_count;
	uint64_t *loads = pool_array(&b->pool, trainers, sizeof(*loads));
	uint32_t *sets = pool_array(&b->pool, trainers, sizeof(*sets));
	size_t i = 0, count = b->shares.items.count;
	int rc = pool_ok(&b->pool) ? 0 : no_memory(error);

	for (size_t s = 0; !rc && s < b->bound.share_first[b->units->set_count]; s++) {
		loads[b->bound.shares[s].trainer] += b->bound.shares[s].bytes;
		sets[b->bound.shares[s].trainer]++;
	}
	for (uint32_t t = 0; !rc && t < trainers; t++)
		loads[t] /= sets[t] ? sets[t] : 1; /* each has two borders of its own */
	for (uint32_t s = 0; !rc && s < b->units->set_count; s++) {
		struct cutter c = {.b = b, .loads = loads};

		c.at = b->bound.share_first[s];
		c.end = b->bound.share_first[s + 1];
		c.border = c.at < c.end ? b->bound.shares[c.at].bytes : 0;
		for (; !rc && i < count && b->shares.items.items[b->line[i]].holders == s; i++)
			rc = cut_share(&c, b->line[i], error);
	}
	return rc;
}

int balanced_lay(struct balanced *b, struct error *error)
{
	int rc = make_line(b, error);

	if (!rc)
		rc = solve(b, error);
	if (!rc)
		rc = cut_line(b, error);
	if (!rc && b->options->before)
		rc = balanced_keep(b, b->options->before, error);
	return rc;
}
