/* SPDX-License-Identifier: Apache-2.0
 *
 * balanced_sessions.c -- `balanced` when no trainer may write to more than `most` inference
 * ranks. What the ranks need of a holder set is laid on a line, rank after rank, those with the
 * same layout side by side; each trainer gets an arc that touches at most `most` ranks:
 *
 *   ranks   [ 0        )[ 8        )[ 1        )[ 9        )     0 and 8 have one layout
 *   arcs    |   trainer 0     |   trainer 1   |  trainer 2  |    most = 2
 *
 * The least longest arc is found by halving; an arc that goes as far as it may is never worse.
 * Where trainers belong to several sets, arcs of one set would use up the ranks of another: there
 * all that a rank needs of a set goes to one trainer, to one that writes to the rank already if
 * there is one, else to the one with the fewest ranks.
 */
#include "routing/plan/balanced.h"

#include "base/compare.h"
#include "base/memory.h"
#include "routing/plan/explain.h"
#include "routing/plan/maxflow.h"
#include <inttypes.h>

#define NONE UINT32_MAX

/* Units of one holder set and inference rank: order[first] .. order[end]. */
struct group {
	uint32_t holders, rank;
	size_t first, end;
	uint64_t bytes;
};

/* From row `lo` of the unit on, it is this trainer's. */
struct cut {
	size_t unit;
	uint64_t lo;
	uint32_t trainer;
};

struct work {
	struct pool pool; /* owns the arrays below, and scratch */
	const struct problem *problem;
	const struct plan_options *options;
	struct units *units;
	uint32_t *trainer; /* by unit: of its first rows */
	uint32_t *place;   /* by inference rank: in the line */
	uint32_t *order;   /* units by (set, place, unit) */
	uint64_t *rate;	   /* by trainer */
	uint64_t rate_most;
	ARRAY(struct group) groups;
	ARRAY(struct cut) cuts;
	struct error *error;
};

static int no_memory(struct work *w)
{
	return memory_error(w->error, "limiting sessions", w->units->count * sizeof(uint32_t));
}

/* ---- the line ---- */

static int by_line(const void *x, const void *y, void *context)
{
	const struct work *w = context;
	uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;
	const struct unit *a = &w->units->items[i], *b = &w->units->items[k];

	return compare_u64(a->holders, b->holders) ?:
	       compare_u64(w->place[a->inference], w->place[b->inference]) ?: compare_u64(i, k);
}

static int make_line(struct work *w)
{
	const struct problem *problem = w->problem;
	uint32_t *seen = pool_array(&w->pool, problem->layout_count, sizeof(*seen));
	uint32_t next = 0;

	if (!seen)
		return no_memory(w);
	for (uint32_t i = 0; i < problem->inference_count; i++) {
		if (seen[problem->inference_layout[i]]++)
			continue;
		for (uint32_t k = i; k < problem->inference_count; k++)
			if (problem->inference_layout[k] == problem->inference_layout[i])
				w->place[k] = next++;
	}
	for (size_t u = 0; u < w->units->count; u++)
		w->order[u] = (uint32_t)u;
	qsort_r(w->order, w->units->count, sizeof(*w->order), by_line, w);
	for (size_t k = 0; k < w->units->count; k++) {
		const struct unit *unit = &w->units->items[w->order[k]];
		struct group *group =
			w->groups.count ? &w->groups.items[w->groups.count - 1] : NULL;

		if (!group || group->holders != unit->holders || group->rank != unit->inference) {
			if (!array_add(&w->groups,
				       (struct group){unit->holders, unit->inference, .first = k}))
				return no_memory(w);
			group = &w->groups.items[w->groups.count - 1];
		}
		group->end = k + 1;
		group->bytes += unit->bytes;
	}
	return 0;
}

static bool sets_meet(struct work *w, bool *meet)
{
	bool *used = pool_array(&w->pool, w->problem->trainer_count, sizeof(*used));

	if (!used)
		return false;
	*meet = false;
	for (size_t g = 0; g < w->groups.count; g++) {
		const struct holder_set *set = &w->units->sets[w->groups.items[g].holders];

		if (g && w->groups.items[g - 1].holders == w->groups.items[g].holders)
			continue;
		for (uint32_t k = 0; k < set->count; k++) {
			*meet = *meet || used[set->trainers[k]];
			used[set->trainers[k]] = true;
		}
	}
	return true;
}

/* ---- arcs ---- */

/* Where the line of one set is: in group `group`, `done` bytes into it. */
struct spot {
	size_t group;
	uint64_t done;
};

/* One trainer's arc: as many bytes as `room`, as many ranks as allowed. */
static void advance(const struct work *w, size_t end, uint64_t room, struct spot *spot)
{
	for (uint32_t ranks = 0; spot->group < end && ranks < w->options->sessions_max; ranks++) {
		uint64_t left = w->groups.items[spot->group].bytes - spot->done;

		if (room < left) {
			spot->done += room;
			return;
		}
		room -= left;
		spot->group++;
		spot->done = 0;
	}
}

/* How long an arc may be: `span` bytes for the fastest trainer, less for others by their rates.
 * Where a slow one must serve a rank alone, span is that many times what the rank needs, and
 * NICs of 1 and of 10^15 bytes a second are both allowed: hence 128 bits. */
static uint64_t room_of(const struct work *w, uint32_t trainer, wide span)
{
	wide room = span / w->rate_most * w->rate[trainer] +
		    span % w->rate_most * w->rate[trainer] / w->rate_most;

	return room < UINT64_MAX ? (uint64_t)room : UINT64_MAX;
}

static bool reaches(const struct work *w, const struct holder_set *set, size_t first, size_t end,
		    wide span)
{
	struct spot spot = {first, 0};

	for (uint32_t k = 0; k < set->count; k++)
		advance(w, end, room_of(w, set->trainers[k], span), &spot);
	return spot.group == end;
}

static uint64_t rows_bytes(const struct work *w, const struct unit *unit, uint64_t lo, uint64_t hi)
{
	const struct problem_layout *layout =
		&w->problem->layouts[w->problem->inference_layout[unit->inference]];
	uint64_t bytes = 0;

	for (uint32_t p = layout->pieces_of[unit->tensor]; p < layout->pieces_of[unit->tensor + 1];
	     p++) {
		struct piece part;

		if (unit_cut(w->units, unit, lo, hi, &layout->pieces[p], &part))
			bytes += part.bytes;
	}
	return bytes;
}

/* The highest row where this unit may be cut with at most `room` bytes before it. */
static uint64_t row_within(const struct work *w, const struct unit *unit, uint64_t room)
{
	const struct problem_layout *layout =
		&w->problem->layouts[w->problem->inference_layout[unit->inference]];
	uint64_t grain = pieces_grain(w->problem, layout, unit->tensor);
	uint64_t from = unit->lo / grain, to = unit->hi / grain; /* in grains */

	if (unit->cell != UNIT_FULL)
		return unit->lo; /* whole */
	while (from < to) {
		uint64_t middle = to - (to - from) / 2;

		if (rows_bytes(w, unit, unit->lo, middle * grain) <= room)
			from = middle;
		else
			to = middle - 1;
	}
	return from * grain > unit->lo ? from * grain : unit->lo;
}

/* A place in w->order, and the row of that unit. */
struct mark {
	size_t at;
	uint64_t row;
};

static struct mark mark_of(const struct work *w, const struct spot *spot, size_t end)
{
	const struct group *group = &w->groups.items[spot->group];
	uint64_t passed = 0;

	if (spot->group == end)
		return (struct mark){w->groups.items[end - 1].end, 0};
	for (size_t k = group->first; k < group->end; k++) {
		const struct unit *unit = &w->units->items[w->order[k]];

		if (passed + unit->bytes > spot->done)
			return (struct mark){k, row_within(w, unit, spot->done - passed)};
		passed += unit->bytes;
	}
	return (struct mark){group->end, 0};
}

static int give(struct work *w, const struct mark *from, const struct mark *to, uint32_t trainer)
{
	for (size_t k = from->at; k < w->units->count && k <= to->at; k++) {
		uint32_t u = w->order[k];
		const struct unit *unit = &w->units->items[u];
		uint64_t lo = k == from->at && from->row > unit->lo ? from->row : unit->lo;
		uint64_t hi = k == to->at ? to->row : unit->hi;

		if (lo >= hi)
			continue;
		if (lo == unit->lo) {
			w->trainer[u] = trainer;
			continue;
		}
		if (!array_add(&w->cuts, (struct cut){u, lo, trainer}))
			return no_memory(w);
	}
	return 0;
}

/* The least longest arc, as bytes of the fastest trainer. */
static wide shortest(const struct work *w, const struct holder_set *set, size_t first, size_t end)
{
	wide low = 0, high = 1;

	while (!reaches(w, set, first, end, high))
		high *= 2;
	while (low < high) {
		wide middle = low + (high - low) / 2;

		if (reaches(w, set, first, end, middle))
			high = middle;
		else
			low = middle + 1;
	}
	return high;
}

static int give_arcs(struct work *w, size_t first, size_t end)
{
	const struct holder_set *set = &w->units->sets[w->groups.items[first].holders];
	wide longest = shortest(w, set, first, end);
	struct spot spot = {first, 0};
	struct mark from = mark_of(w, &spot, end);
	int rc = 0;

	for (uint32_t k = 0; !rc && k < set->count; k++) {
		advance(w, end, room_of(w, set->trainers[k], longest), &spot);
		struct mark to = mark_of(w, &spot, end);

		rc = give(w, &from, &to, set->trainers[k]);
		from = to;
	}
	return rc;
}

static int refuse(struct work *w, size_t first, size_t ranks, uint64_t needed)
{
	const struct unit *unit = &w->units->items[w->order[w->groups.items[first].first]];
	const struct holder_set *set = &w->units->sets[unit->holders];

	return error_set(
		w->error, ERROR_CONFIG,
		"--sessions-max %" PRIu32 ": only %" PRIu32 " trainer%s (the first is %" PRIu32
		") hold%s tensor '%s' and what is like it, and %zu inference ranks need it, so "
		"one must write to %" PRIu64 " of those; use --sessions-max %" PRIu64 " or more",
		w->options->sessions_max, set->count, set->count == 1 ? "" : "s", set->trainers[0],
		set->count == 1 ? "s" : "", w->problem->tensors[unit->tensor].name, ranks, needed,
		needed);
}

static size_t set_end(const struct work *w, size_t first)
{
	size_t end = first;

	while (end < w->groups.count &&
	       w->groups.items[end].holders == w->groups.items[first].holders)
		end++;
	return end;
}

static int assign_arcs(struct work *w)
{
	size_t worst = 0, worst_ranks = 0;
	uint64_t most = 0;
	int rc = 0;

	for (size_t first = 0, end; first < w->groups.count; first = end) {
		uint64_t holders = w->units->sets[w->groups.items[first].holders].count;

		end = set_end(w, first);
		if ((end - first + holders - 1) / holders > most) {
			most = (end - first + holders - 1) / holders;
			worst_ranks = end - first;
			worst = first;
		}
	}
	if (most > w->options->sessions_max)
		return refuse(w, worst, worst_ranks, most);
	for (size_t first = 0, end; !rc && first < w->groups.count; first = end) {
		end = set_end(w, first);
		rc = give_arcs(w, first, end);
	}
	return rc;
}

/* ---- sets that meet ---- */

struct sharing {
	uint32_t *sessions; /* by trainer */
	uint64_t *load;	    /* by trainer */
	bool *writes;	    /* trainer * ranks + rank */
	size_t *by_choice;  /* groups: those with the fewest holders first */
};

static bool better(const struct work *w, const struct sharing *s, uint32_t rank, uint32_t a,
		   uint32_t b)
{
	uint32_t ranks = w->problem->inference_count;
	bool a_writes = s->writes[(size_t)a * ranks + rank];
	bool b_writes = s->writes[(size_t)b * ranks + rank];

	if (a_writes != b_writes)
		return a_writes;
	if (!a_writes && s->sessions[a] != s->sessions[b])
		return s->sessions[a] < s->sessions[b];
	return (wide)s->load[a] * w->rate[b] < (wide)s->load[b] * w->rate[a];
}

static int by_choice(const void *x, const void *y, void *context)
{
	const struct work *w = context;
	size_t i = *(const size_t *)x, k = *(const size_t *)y;
	uint32_t a = w->units->sets[w->groups.items[i].holders].count;
	uint32_t b = w->units->sets[w->groups.items[k].holders].count;

	return compare_u64(a, b) ?: compare_u64(i, k);
}

static int share_out(struct work *w, struct sharing *s)
{
	uint32_t ranks = w->problem->inference_count, most = 0;

	for (size_t g = 0; g < w->groups.count; g++)
		s->by_choice[g] = g;
	qsort_r(s->by_choice, w->groups.count, sizeof(size_t), by_choice, w);
	for (size_t k = 0; k < w->groups.count; k++) {
		const struct group *group = &w->groups.items[s->by_choice[k]];
		const struct holder_set *set = &w->units->sets[group->holders];
		uint32_t best = set->trainers[0];

		for (uint32_t m = 1; m < set->count; m++)
			if (better(w, s, group->rank, set->trainers[m], best))
				best = set->trainers[m];
		bool *writes = &s->writes[(size_t)best * ranks + group->rank];

		s->sessions[best] += !*writes;
		*writes = true;
		s->load[best] += group->bytes;
		most = s->sessions[best] > most ? s->sessions[best] : most;
		for (size_t u = group->first; u < group->end; u++)
			w->trainer[w->order[u]] = best;
	}
	if (most > w->options->sessions_max)
		return error_set(
			w->error, ERROR_CONFIG,
			"--sessions-max %" PRIu32
			": trainers hold overlapping parts of the model here, and balanced "
			"finds no plan with fewer than %" PRIu32
			" inference ranks for the busiest; use --sessions-max %" PRIu32 " or more",
			w->options->sessions_max, most, most);
	return 0;
}

static int assign_sharing(struct work *w)
{
	uint32_t trainers = w->problem->trainer_count;
	struct sharing s = {
		.sessions = pool_array(&w->pool, trainers, sizeof(*s.sessions)),
		.load = pool_array(&w->pool, trainers, sizeof(*s.load)),
		.writes = pool_array(&w->pool, trainers, w->problem->inference_count),
		.by_choice = pool_array(&w->pool, w->groups.count, sizeof(*s.by_choice)),
	};

	return pool_ok(&w->pool) ? share_out(w, &s) : no_memory(w);
}

/* ---- to units ---- */

static int by_cut(const void *x, const void *y)
{
	const struct cut *a = x, *b = y;

	return compare_u64(a->unit, b->unit) ?: compare_u64(a->lo, b->lo);
}

static int tell(struct work *w, const uint32_t *trainer)
{
	uint64_t *loads = pool_array(&w->pool, w->problem->trainer_count, sizeof(*loads));
	int rc = 0;

	if (!loads)
		return no_memory(w);
	for (size_t u = 0; u < w->units->count; u++)
		loads[trainer[u]] += w->units->items[u].bytes;
	for (size_t u = 0; !rc && u < w->units->count; u++) {
		const struct unit *unit = &w->units->items[u];

		if (!explain_wants(w->options->explain, unit))
			continue;
		loads[trainer[u]] -= unit->bytes;
		rc = explain_add(w->options->explain, unit, &w->units->sets[unit->holders], loads,
				 trainer[u], w->error,
				 "trainer %" PRIu32 " is one of those that serve this inference "
				 "rank, so that none serves more than %" PRIu32
				 "; loads are those of the finished plan without this",
				 trainer[u], w->options->sessions_max);
		loads[trainer[u]] += unit->bytes;
	}
	return rc;
}

static int make_units(struct work *w, uint32_t **trainer)
{
	size_t count = w->units->count + w->cuts.count, next = 0, cut = 0;
	struct unit *items = memory_alloc(count * sizeof(*items));
	uint32_t *senders = memory_alloc(count * sizeof(*senders));

	if (!items || !senders) {
		memory_free(items);
		memory_free(senders);
		return no_memory(w);
	}
	sort_items(w->cuts.items, w->cuts.count, by_cut);
	for (size_t u = 0; u < w->units->count; u++) {
		const struct unit *whole = &w->units->items[u];

		items[next] = *whole;
		senders[next] = w->trainer[u];
		for (; cut < w->cuts.count && w->cuts.items[cut].unit == u; cut++) {
			struct unit *before = &items[next];
			uint64_t lo = w->cuts.items[cut].lo;

			before->bytes = rows_bytes(w, before, before->lo, lo);
			if (before->bytes) { /* else a hole: it belongs to what follows */
				before->hi = lo;
				items[++next] = *whole;
				items[next].lo = lo;
			}
			senders[next] = w->cuts.items[cut].trainer;
		}
		items[next].bytes = rows_bytes(w, &items[next], items[next].lo, items[next].hi);
		next++;
	}
	memory_free(w->units->items);
	memory_free(*trainer);
	w->units->items = items;
	w->units->count = next;
	*trainer = senders;
	return w->options->explain ? tell(w, senders) : 0;
}

int balanced_sessions(const struct problem *problem, const struct plan_options *options,
		      struct units *units, uint32_t **trainer, struct error *error)
{
	struct work w = {.problem = problem, .options = options, .units = units, .error = error};
	bool meet = false;
	int rc = 0;

	w.trainer = pool_array(&w.pool, units->count, sizeof(*w.trainer));
	w.place = pool_array(&w.pool, problem->inference_count, sizeof(*w.place));
	w.order = pool_array(&w.pool, units->count, sizeof(*w.order));
	w.rate = pool_array(&w.pool, problem->trainer_count, sizeof(*w.rate));
	if (!pool_ok(&w.pool))
		rc = no_memory(&w);
	for (uint32_t t = 0; !rc && t < problem->trainer_count; t++) {
		w.rate[t] = options->topology
				    ? topology_rank_rate(options->topology, ROLE_TRAINER, t)
				    : TOPOLOGY_FLAT_BYTES_PER_SECOND;
		w.rate_most = w.rate[t] > w.rate_most ? w.rate[t] : w.rate_most;
	}
	if (!rc)
		rc = make_line(&w);
	if (!rc && !sets_meet(&w, &meet))
		rc = no_memory(&w);
	if (!rc)
		rc = meet ? assign_sharing(&w) : assign_arcs(&w);
	if (!rc)
		rc = make_units(&w, trainer);
	pool_free(&w.pool);
	array_free(&w.groups);
	array_free(&w.cuts);
	return rc;
}
