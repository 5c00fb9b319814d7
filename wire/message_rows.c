/* SPDX-License-Identifier: Apache-2.0
 *
 * message_rows.c -- a plan that is told by what differs from the one that the worker has, so that what a pause costs grows with what
 * has changed:
 *
 *   the plan before    a b c d e f
 *   its runs           0 fresh, a b        1 fresh, d         0 fresh, f        rows: X Y
 *   the plan           a b                 X d                f                 Y
 *
 * Peers are named where something of them is new; those that are none any more are dropped; rows name peers by their place among
 * all of them. Rows that are kept have the ordinals that the new ones of their pair leave, in the order that they had:
 *
 *   a pair's rows before    a 0   b 1   d 2
 *   Y is new, and is 1      a 0   Y 1   d 2         b is no more: d stays the last one
 *
 * What was put together is compared by a digest: nobody writes by a plan that its controller did not mean.
 */
#include "wire/message_parts.h"

#include "base/array.h"
#include "base/compare.h"
#include "base/hash.h"

#include <string.h>

#define ROW_WORDS (15 + 2 * BOX_DIMS_MAX)

/* But for its ordinal, which the other rows of its pair decide. */
static size_t row_words(uint64_t words[ROW_WORDS], struct member peer, const struct plan_row *row)
{
	size_t n = 0;
	const uint64_t all[] = {peer.role,
				peer.rank,
				row->tensor,
				row->param,
				row->path,
				row->scales,
				row->offset,
				row->bytes,
				row->transform.part,
				(uint64_t)row->transform.from_rows << 32 |
					row->transform.from_columns,
				(uint64_t)row->transform.to_rows << 32 | row->transform.to_columns,
				row->to,
				row->spread.run_bytes,
				row->spread.stride_bytes,
				row->src.dims};

	for (; n < ARRAY_SIZE(all); n++)
		words[n] = all[n];
	for (uint32_t d = 0; d < row->src.dims; d++) {
		words[n++] = row->src.lo[d];
		words[n++] = row->src.hi[d];
	}
	return n;
}

static void add_row(struct digest_stream *stream, struct member peer, const struct plan_row *row)
{
	uint64_t words[ROW_WORDS];
	size_t n = row_words(words, peer, row);

	digest_add_u64(stream, row->ordinal);
	for (size_t i = 0; i < n; i++)
		digest_add_u64(stream, words[i]);
}

uint64_t message_row_mark(const struct message_plan *plan, const struct plan_row *row)
{
	uint64_t words[ROW_WORDS];

	return hash_keyed(words,
			  sizeof(*words) * row_words(words, plan->peers[row->peer].member, row));
}

static void add_spares(struct digest_stream *stream, const struct message_plan *plan)
{
	digest_add_u64(stream, plan->stands_for);
	for (size_t i = 0; i < plan->spare_count; i++) {
		digest_add_u64(stream, plan->spares[i].member.rank);
		digest_add_u64(stream, plan->spares[i].bytes);
		digest_add_u64(stream, plan->spares[i].pieces);
	}
	for (size_t i = 0; i < plan->spare_row_count; i++)
		add_row(stream, plan->spares[plan->spare_rows[i].peer].member,
			&plan->spare_rows[i]);
}

/* Copies come and go with a pause. */
struct digest message_plan_digest(const struct message_plan *plan)
{
	struct digest_stream stream;

	digest_begin(&stream);
	for (size_t i = 0; i < plan->peer_count; i++) {
		const struct plan_peer *peer = &plan->peers[i];

		if (peer->copy != COPY_NONE)
			continue;
		digest_add_u64(&stream, peer->member.role);
		digest_add_u64(&stream, peer->member.rank);
		digest_add_u64(&stream, peer->bytes);
		digest_add_u64(&stream, peer->pieces);
		digest_add_string(&stream, peer->transport);
		digest_add_u64(&stream, peer->stand_in);
	}
	for (size_t i = 0; i < plan->row_count; i++)
		add_row(&stream, plan->peers[plan->rows[i].peer].member, &plan->rows[i]);
	add_spares(&stream, plan);
	return digest_end(&stream);
}

struct digest message_spares_digest(const struct message_plan *plan)
{
	struct digest_stream stream;

	digest_begin(&stream);
	add_spares(&stream, plan);
	return digest_end(&stream);
}

/* ---- who hears it ---- */

static int compare_peers(const void *a, const void *b)
{
	return member_compare(&((const struct plan_peer *)a)->member,
			      &((const struct plan_peer *)b)->member);
}

/* Peers are in the order of roles and ranks. */
static struct plan_peer *find_peer(struct plan_peer *peers, size_t count, struct member member)
{
	const struct plan_peer key = {.member = member};

	return count ? bsearch(&key, peers, count, sizeof(*peers), compare_peers) : NULL;
}

static int keep_peer(struct plan_peer *out, const struct plan_peer *from, struct error *error)
{
	*out = *from;
	out->host = memory_string(from->host ? from->host : "");
	out->transport = memory_string(from->transport ? from->transport : "");
	out->kept = true;
	out->lacks = false;
	return out->host && out->transport ? 0 : memory_error(error, "taking peers", sizeof(*out));
}

static bool is_dropped(const struct message_plan *plan, struct member member)
{
	for (size_t i = 0; i < plan->dropped_count; i++)
		if (member_compare(&plan->dropped[i], &member) == 0)
			return true;
	return false;
}

static int take_peers(struct message_plan *plan, const struct message_plan *from,
		      struct error *error)
{
	size_t named = plan->peer_count, room = named + from->peer_count;
	struct plan_peer *all = memory_zalloc(room, sizeof(*all));
	int rc = 0;

	if (!all)
		return memory_error(error, "taking peers", room * sizeof(*all));
	if (named)
		memcpy(all, plan->peers, named * sizeof(*all));
	memory_free(plan->peers);
	plan->peers = all;
	for (size_t i = 0; i < from->peer_count && !rc; i++) {
		const struct plan_peer *peer = &from->peers[i];

		if (peer->copy == COPY_NONE && !find_peer(all, named, peer->member) &&
		    !is_dropped(plan, peer->member))
			rc = keep_peer(&all[plan->peer_count++], peer, error);
	}
	sort_items(all, plan->peer_count, compare_peers);
	if (!rc && plan->peer_count > LIMIT_PEERS)
		rc = error_set(error, ERROR_MESSAGE, "%zu peers, and the limit is %u",
			       plan->peer_count, LIMIT_PEERS);
	return rc;
}

/* How many rows there are in all; what is said of them fits what is there. */
static int count_rows(const struct message_plan *plan, const struct message_plan *from,
		      size_t *count, struct error *error)
{
	size_t fresh = 0, taken = 0;

	for (size_t i = 0; i < plan->run_count; i++) {
		const struct plan_run *run = &plan->runs[i];

		fresh += run->fresh;
		taken += run->count;
		if (run->first > from->row_count || run->count > from->row_count - run->first ||
		    taken > LIMIT_ROUTES)
			return error_set(
				error, ERROR_MESSAGE,
				"runs[%zu] is %u rows from %u on of attempt %u's plan, which has %zu; in all %zu, and the limit is %u",
				i, run->count, run->first, from->attempt, from->row_count, taken,
				LIMIT_ROUTES);
	}
	if (fresh > plan->row_count || taken + plan->row_count > LIMIT_ROUTES)
		return error_set(
			error, ERROR_MESSAGE,
			"runs want %zu rows of the plan's own, and %zu of another one: it has %zu, and the limit is %u in all",
			fresh, taken, plan->row_count, LIMIT_ROUTES);
	*count = taken + plan->row_count;
	return 0;
}

/* What putting rows together needs at hand. */
struct putting {
	const struct message_plan *plan, *from;
	uint32_t
		*places; /* of that plan's peers, among those of this one; UINT32_MAX: it is none */
	struct plan_row *rows; /* of them all */
	size_t count;
	struct plan_row **by_ordinal; /* the same, pair by pair */
	bool *fresh;		      /* by place in rows */
};

/* The rows of a run. */
static int take_run(struct putting *putting, const struct plan_run *run, struct error *error)
{
	for (uint32_t i = 0; i < run->count; i++) {
		struct plan_row *row = &putting->rows[putting->count++];

		*row = putting->from->rows[run->first + i];
		if (putting->places[row->peer] == UINT32_MAX)
			return error_set(
				error, ERROR_MESSAGE,
				"row %u of attempt %u's plan is kept, and its peer is none any more",
				run->first + i, putting->from->attempt);
		row->peer = putting->places[row->peer];
	}
	return 0;
}

static void take_fresh(struct putting *putting, size_t *at)
{
	putting->fresh[putting->count] = true;
	putting->rows[putting->count++] = putting->plan->rows[(*at)++];
}

static int compare_rows(const void *a, const void *b)
{
	const struct plan_row *one = *(struct plan_row *const *)a,
			      *other = *(struct plan_row *const *)b;

	return compare_u64(one->peer, other->peer) ?: compare_u64(one->ordinal, other->ordinal);
}

/* Of one pair, fresh ones first, both in the order of their ordinals: the kept ones get what those leave. */
static void number_pair(struct plan_row **fresh, size_t fresh_count, struct plan_row **kept,
			size_t kept_count)
{
	size_t next = 0;
	uint32_t ordinal = 0;

	for (size_t i = 0; i < kept_count; i++) {
		while (next < fresh_count && fresh[next]->ordinal <= ordinal)
			ordinal += fresh[next++]->ordinal == ordinal;
		kept[i]->ordinal = ordinal++;
	}
}

static void number_rows(struct putting *putting)
{
	struct plan_row **order = putting->by_ordinal;
	size_t fresh = 0, kept;

	for (size_t i = 0; i < putting->count; i++)
		if (putting->fresh[i])
			order[fresh++] = &putting->rows[i];
	kept = fresh;
	for (size_t i = 0; i < putting->count; i++)
		if (!putting->fresh[i])
			order[kept++] = &putting->rows[i];
	sort_items(order, fresh, compare_rows);
	sort_items(order + fresh, kept - fresh, compare_rows);
	for (size_t f = 0, k = fresh; k < kept;) {
		uint32_t peer = order[k]->peer;
		size_t first, until;

		while (f < fresh && order[f]->peer < peer)
			f++;
		for (first = f; f < fresh && order[f]->peer == peer;)
			f++;
		for (until = k; until < kept && order[until]->peer == peer;)
			until++;
		number_pair(order + first, f - first, order + k, until - k);
		k = until;
	}
}

static int put_rows(struct putting *putting, struct error *error)
{
	const struct message_plan *plan = putting->plan, *from = putting->from;
	size_t fresh = 0;
	int rc = 0;

	for (size_t i = 0; i < from->peer_count; i++) {
		const struct plan_peer *peer =
			find_peer(plan->peers, plan->peer_count, from->peers[i].member);

		putting->places[i] = peer ? (uint32_t)(peer - plan->peers) : UINT32_MAX;
	}
	for (size_t i = 0; i < plan->run_count && !rc; i++) {
		for (uint32_t k = 0; k < plan->runs[i].fresh; k++)
			take_fresh(putting, &fresh);
		rc = take_run(putting, &plan->runs[i], error);
	}
	while (fresh < plan->row_count && !rc)
		take_fresh(putting, &fresh);
	if (!rc)
		number_rows(putting);
	return rc;
}

static int take_rows(struct message_plan *plan, const struct message_plan *from,
		     struct error *error)
{
	struct putting putting = {.plan = plan, .from = from};
	size_t count = 0;
	int rc = count_rows(plan, from, &count, error);

	if (rc)
		return rc;
	putting.places = memory_zalloc(from->peer_count, sizeof(*putting.places));
	putting.rows = memory_zalloc(count, sizeof(*putting.rows));
	putting.by_ordinal = memory_zalloc(count, sizeof(*putting.by_ordinal));
	putting.fresh = memory_zalloc(count, sizeof(*putting.fresh));
	if (!putting.places || !putting.rows || !putting.by_ordinal || !putting.fresh)
		rc = memory_error(error, "taking the rows of the plan before",
				  count * sizeof(*putting.rows));
	else
		rc = put_rows(&putting, error);
	memory_free(putting.places);
	memory_free(putting.by_ordinal);
	memory_free(putting.fresh);
	if (rc) {
		memory_free(putting.rows);
		return rc;
	}
	memory_free(plan->rows);
	plan->rows = putting.rows;
	plan->row_count = putting.count;
	return 0;
}

static int take_items(void *to, size_t *count, const void *from, size_t from_count, size_t size,
		      struct error *error)
{
	size_t bytes = from_count * size;
	void *items = memory_alloc(bytes);

	if (!items)
		return memory_error(error, "taking the rows of the plan before", bytes);
	if (bytes)
		memcpy(items, from, bytes);
	memory_free(*(void **)to);
	*(void **)to = items;
	*count = from_count;
	return 0;
}

static int take_spares(struct message_plan *plan, const struct message_plan *from,
		       struct error *error)
{
	int rc = take_items(&plan->spares, &plan->spare_count, from->spares, from->spare_count,
			    sizeof(*from->spares), error);

	plan->stands_for = from->stands_for;
	return rc ? rc
		  : take_items(&plan->spare_rows, &plan->spare_row_count, from->spare_rows,
			       from->spare_row_count, sizeof(*from->spare_rows), error);
}

/* It is a whole one from here on. */
static int check_whole(struct message_plan *plan, struct error *error)
{
	struct digest whole;
	int rc;

	plan->rows_of = 0;
	plan->spared = false;
	memory_free(plan->runs);
	memory_free(plan->dropped);
	plan->runs = NULL;
	plan->dropped = NULL;
	plan->run_count = plan->dropped_count = 0;
	rc = message_plan_check(plan, error);
	if (rc)
		return rc;
	whole = message_plan_digest(plan);
	return digest_equal(whole, plan->whole)
		       ? 0
		       : error_set(error, ERROR_MESSAGE,
				   "the plan of attempt %u, put together from the one before, has "
				   "%zu rows of digest %08x.. and is to have %08x..",
				   plan->attempt, plan->row_count, (uint32_t)(whole.high >> 32),
				   (uint32_t)(plan->whole.high >> 32));
}

int message_plan_complete(struct message_plan *plan, const struct message_plan *from,
			  struct error *error)
{
	int rc;

	if (plan->rows_of != from->attempt)
		return error_set(
			error, ERROR_MESSAGE,
			"the plan of attempt %u is told by what differs from that of attempt %u; "
			"this worker has the plan of attempt %u",
			plan->attempt, plan->rows_of, from->attempt);
	rc = take_peers(plan, from, error);
	if (!rc)
		rc = take_rows(plan, from, error);
	if (!rc && plan->spared)
		rc = take_spares(plan, from, error);
	return rc ? rc : check_whole(plan, error);
}
