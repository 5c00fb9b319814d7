/* SPDX-License-Identifier: Apache-2.0
 *
 * balanced_keep.c -- parts of a plan that follows another one (keep.h). The bound says what each trainer sends of each holder set.
 * Rows stay with who sent them, up to that and a hundredth of all that it sends; what is left goes to those who have less:
 *
 *   sent before   [ 0          )[ 1      )[ 2        )[ 3     )     trainer 2 is away,
 *   kept          [ 0          )[ 1      )[ -        )[ 3     )     so the bound gives each of the others more
 *   parts         [ 0          )[ 1      )[0  )[1 )[3         )
 *
 * Who has too much gives away first what a plan from the beginning gives somebody else, and that one gets it: so where 2 comes back it
 * gets what it had, and many changes leave few small parts. With too many of them, or where no less moves than in a plan from the
 * beginning, it is that.
 */
#include "routing/plan/balanced.h"

#include "base/compare.h"
#include "base/memory.h"
#include "routing/plan/keep.h"
#include "routing/plan/sent.h"

#define PARTS_MAX      4 /* times as many as there are shares, and borders between trainers */
#define REST_BYTES_MIN (UINT64_C(1) << 20) /* for each target */

/* Of a share, that one trainer sent, and one would send in a plan from the beginning; SENT_BY_NOBODY. */
struct rows {
	uint64_t lo, hi;
	uint64_t kept; /* up to there they stay with who sent them */
	uint32_t share, before, fresh;
};

struct keeper {
	struct balanced *b;
	struct sent *sent;
	uint64_t *room;	 /* by trainer: what the bound gives it of this set, and it has not */
	uint64_t *slack; /* .. and what it may have beyond, of all sets */
	ARRAY(struct part) fresh; /* of a plan from the beginning */
	size_t *fresh_first;	  /* by share: into them */
	ARRAY(struct rows) rows;  /* of this set */
	uint64_t moved,
		fresh_moved; /* bytes that others send than before, here and in a plan from the beginning */
};

static int no_memory(struct error *error)
{
	return memory_error(error, "keeping parts", sizeof(struct part));
}

/* ---- who keeps what ---- */

/* A rank that has been sent these rows: the share's first one, or one that wants the same of everything, or any; SENT_BY_NOBODY: none.
 * An engine that has just come may have the lowest ranks, and a layout that nobody else has. */
static uint32_t rank_before(const struct keeper *k, const struct share *share)
{
	uint64_t until;

	if (sent_row(k->sent, share->tensor, share->first_target, share->lo, NULL, &until) !=
	    SENT_BY_NOBODY)
		return share->first_target;
	return sent_rank(k->sent, share->tensor, share->lo, k->b->units->kind, share->first_target);
}

static uint64_t row_up(const struct share *share, uint64_t row)
{
	uint64_t up;

	if (share->grain == BALANCED_WHOLE || row >= share->hi)
		return share->hi;
	up = (row + share->grain - 1) / share->grain * share->grain;
	return up < share->hi ? up : share->hi;
}

/* The last row to cut at of those that so many bytes pay for, from lo on. */
static uint64_t row_down(const struct share *share, uint64_t lo, uint64_t bytes)
{
	uint64_t row = lo + bytes / (share->row_bytes * share->targets);

	if (row >= share->hi)
		return share->hi;
	row = share->grain == BALANCED_WHOLE ? lo : row / share->grain * share->grain;
	return row > lo ? row : lo;
}

static void take(struct keeper *k, uint32_t trainer, uint64_t bytes)
{
	uint64_t room = bytes < k->room[trainer] ? bytes : k->room[trainer];
	uint64_t beyond = bytes - room;

	k->room[trainer] -= room;
	k->slack[trainer] -= beyond < k->slack[trainer] ? beyond : k->slack[trainer];
}

/* Rows of a share, cut where another trainer sent them, or would. */
static int find_rows(struct keeper *k, uint32_t index, struct error *error)
{
	const struct share *share = &k->b->shares.items.items[index];
	const struct holder_set *set = &k->b->units->sets[share->holders];
	const struct part *fresh = &k->fresh.items[k->fresh_first[index]];
	uint32_t rank = rank_before(k, share);
	uint64_t until;

	for (uint64_t lo = share->lo; lo < share->hi; lo = until) {
		struct rows rows = {.lo = lo, .kept = lo, .share = index, .before = SENT_BY_NOBODY};

		until = share->hi;
		if (rank != SENT_BY_NOBODY) {
			rows.before = sent_row(k->sent, share->tensor, rank, lo, set, &until);
			until = row_up(share, until);
		}
		while (fresh->hi <= lo)
			fresh++;
		rows.fresh = fresh->trainer;
		rows.hi = until = until < fresh->hi ? until : fresh->hi;
		if (!array_add(&k->rows, rows))
			return no_memory(error);
	}
	return 0;
}

/* Those that would be sent by the same one in a plan from the beginning too, or the others. */
static void keep_rows(struct keeper *k, bool same)
{
	for (size_t i = 0; i < k->rows.count; i++) {
		struct rows *rows = &k->rows.items[i];
		const struct share *share = &k->b->shares.items.items[rows->share];
		uint64_t each = share->row_bytes * share->targets;

		if (rows->before == SENT_BY_NOBODY || (rows->before == rows->fresh) != same)
			continue;
		rows->kept = (rows->hi - rows->lo) * each <=
					     k->room[rows->before] + k->slack[rows->before]
				     ? rows->hi
				     : row_down(share, rows->lo, k->room[rows->before]);
		if (rows->kept > rows->hi)
			rows->kept = rows->hi;
		take(k, rows->before, (rows->kept - rows->lo) * each);
	}
}

/* ---- what is left ---- */

/* Who has most room for it. */
static uint32_t roomiest(const struct keeper *k, uint32_t set)
{
	const struct bound *bound = &k->b->bound;
	uint32_t best = SENT_BY_NOBODY;

	for (size_t s = bound->share_first[set]; s < bound->share_first[set + 1]; s++) {
		uint32_t trainer = bound->shares[s].trainer;

		if (best == SENT_BY_NOBODY || k->room[trainer] > k->room[best] ||
		    (k->room[trainer] == k->room[best] && k->slack[trainer] > k->slack[best]))
			best = trainer;
	}
	return best;
}

static int put(struct keeper *k, uint32_t index, uint64_t lo, uint64_t hi, uint32_t trainer,
	       struct error *error)
{
	struct balanced *b = k->b;
	struct share *share = &b->shares.items.items[index];

	if (share->part_count && b->parts.items[b->parts.count - 1].trainer == trainer) {
		b->parts.items[b->parts.count - 1].hi = hi;
		return 0;
	}
	if (!share->part_count)
		share->part_first = b->parts.count;
	share->part_count++;
	return array_add(&b->parts, (struct part){lo, hi, index, trainer}) ? 0 : no_memory(error);
}

/* As many of the rows from lo on as it has room for; all where hardly any would be left. */
static uint64_t fits(const struct keeper *k, const struct share *share, uint64_t lo, uint64_t hi,
		     uint32_t trainer)
{
	uint64_t small = REST_BYTES_MIN * share->targets, bytes = k->room[trainer], row;

	small = small < k->slack[trainer] ? small : k->slack[trainer];
	if ((hi - lo) * share->row_bytes * share->targets <= bytes + small)
		return hi;
	row = row_down(share, lo, bytes);
	return row < hi ? row : hi;
}

/* To who has them in a plan from the beginning, while there is room; then to one trainer after the other. */
static int give(struct keeper *k, const struct rows *rows, struct error *error)
{
	const struct share *share = &k->b->shares.items.items[rows->share];
	uint32_t trainer = rows->fresh;
	int rc = 0;

	for (uint64_t lo = rows->kept, hi; lo < rows->hi && !rc; lo = hi) {
		hi = fits(k, share, lo, rows->hi, trainer);
		if (hi == lo) {
			trainer = roomiest(k, share->holders);
			hi = fits(k, share, lo, rows->hi, trainer);
		}
		if (hi == lo) { /* nobody has room for as much as cannot be cut */
			hi = row_up(share, lo + 1);
			hi = hi < rows->hi ? hi : rows->hi;
		}
		take(k, trainer, (hi - lo) * share->row_bytes * share->targets);
		rc = put(k, rows->share, lo, hi, trainer, error);
	}
	return rc;
}

/* ---- all of it ---- */

static void count_moved(struct keeper *k)
{
	for (size_t i = 0; i < k->rows.count; i++) {
		const struct rows *rows = &k->rows.items[i];
		const struct share *share = &k->b->shares.items.items[rows->share];
		uint64_t each = share->row_bytes * share->targets;

		if (rows->before == SENT_BY_NOBODY)
			continue;
		k->moved += (rows->hi - rows->kept) * each;
		k->fresh_moved += rows->before != rows->fresh ? (rows->hi - rows->lo) * each : 0;
	}
}

static int keep_set(struct keeper *k, uint32_t set, size_t first, size_t end, struct error *error)
{
	const struct bound *bound = &k->b->bound;
	const struct holder_set *holders = &k->b->units->sets[set];
	int rc = 0;

	for (uint32_t i = 0; i < holders->count; i++)
		k->room[holders->trainers[i]] = 0;
	for (size_t s = bound->share_first[set]; s < bound->share_first[set + 1]; s++)
		k->room[bound->shares[s].trainer] = bound->shares[s].bytes;
	k->rows.count = 0;
	for (size_t i = first; i < end && !rc; i++)
		rc = find_rows(k, k->b->line[i], error);
	keep_rows(k, true);
	keep_rows(k, false);
	count_moved(k);
	for (size_t i = 0; i < k->rows.count && !rc; i++) {
		const struct rows *rows = &k->rows.items[i];

		if (rows->kept > rows->lo)
			rc = put(k, rows->share, rows->lo, rows->kept, rows->before, error);
		if (!rc)
			rc = give(k, rows, error);
	}
	return rc;
}

static int keep_sets(struct keeper *k, struct error *error)
{
	const struct balanced *b = k->b;
	size_t count = b->shares.items.count, end;
	int rc = 0;

	for (size_t s = 0; s < b->bound.share_first[b->units->set_count]; s++)
		k->slack[b->bound.shares[s].trainer] += b->bound.shares[s].bytes;
	for (uint32_t t = 0; t < b->problem->trainer_count; t++)
		k->slack[t] /= KEEP_SLACK;
	for (size_t first = 0; first < count && !rc; first = end) {
		uint32_t set = b->shares.items.items[b->line[first]].holders;

		for (end = first; end < count && b->shares.items.items[b->line[end]].holders == set;
		     end++)
			;
		rc = keep_set(k, set, first, end, error);
	}
	return rc;
}

/* They are looked at while others are made. */
static void set_fresh_aside(struct keeper *k)
{
	struct balanced *b = k->b;

	k->fresh.items = b->parts.items;
	k->fresh.count = b->parts.count;
	k->fresh.capacity = b->parts.capacity;
	b->parts.items = NULL;
	b->parts.count = b->parts.capacity = 0;
	for (size_t i = 0; i < b->shares.items.count; i++) {
		k->fresh_first[i] = b->shares.items.items[i].part_first;
		b->shares.items.items[i].part_count = 0;
	}
}

/* .. or taken after all. */
static void take_fresh(struct keeper *k)
{
	struct balanced *b = k->b;

	array_free(&b->parts);
	b->parts.items = k->fresh.items;
	b->parts.count = k->fresh.count;
	b->parts.capacity = k->fresh.capacity;
	k->fresh.items = NULL;
	for (size_t p = 0; p < b->parts.count; p++) {
		struct share *share = &b->shares.items.items[b->parts.items[p].share];

		share->part_first = k->fresh_first[b->parts.items[p].share];
		share->part_count = (uint32_t)(p + 1 - share->part_first);
	}
}

int balanced_keep(struct balanced *b, const struct table *before, struct error *error)
{
	struct keeper k = {.b = b};
	size_t shares = b->shares.items.count, most;
	uint32_t trainers = b->problem->trainer_count;
	int rc;

	k.room = pool_array(&b->pool, trainers, sizeof(*k.room));
	k.slack = pool_array(&b->pool, trainers, sizeof(*k.slack));
	k.fresh_first = pool_array(&b->pool, shares, sizeof(*k.fresh_first));
	if (!pool_ok(&b->pool))
		return no_memory(error);
	rc = sent_new(&k.sent, before, b->problem, error);
	if (rc)
		return rc;
	set_fresh_aside(&k);
	rc = keep_sets(&k, error);
	most = PARTS_MAX * (shares + b->bound.share_first[b->units->set_count]);
	b->kept = !rc && b->parts.count <= most && (k.moved < k.fresh_moved || k.fresh_moved == 0);
	if (!b->kept)
		take_fresh(&k);
	sent_free(&k.sent);
	array_free(&k.rows);
	array_free(&k.fresh);
	return rc;
}
