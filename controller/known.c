/* SPDX-License-Identifier: Apache-2.0
 *
 * known.c -- a plan told by what differs (wire/message_rows.c): the rows that the worker has are found by their marks, and follow each
 * other in runs. Where two plans send the same rows in another order there are more runs, and no more rows.
 */
#include "controller/known.h"

#include "base/compare.h"
#include "base/hash.h"

#include <string.h>

struct known_peer {
	struct member member;
	uint64_t mark;
};

struct known_row {
	uint64_t mark;
	uint32_t peer, ordinal; /* peer: its place in the plan */
};

/* One of them, to be found. */
struct known_mark {
	uint64_t mark;
	uint32_t at;
};

/* A row that is kept. */
struct kept_row {
	uint32_t peer, ordinal, at; /* as it is now, and where it is */
};

struct known {
	uint32_t uses, attempt;
	struct digest whole, spares;
	size_t peer_count, row_count;
	struct known_peer *peers; /* but for copies; in the order of members */
	struct known_row *rows;
};

static uint64_t mark_peer(const struct plan_peer *peer)
{
	const uint64_t words[] = {peer->bytes, peer->pieces, peer->stand_in,
				  hash_keyed(peer->transport, strlen(peer->transport))};

	return hash_keyed(words, sizeof(words));
}

int known_new(struct known **out, const struct message_plan *plan)
{
	struct known *known = memory_zalloc(1, sizeof(*known));

	*out = known;
	if (!known)
		return -ERROR_MEMORY;
	known->uses = 1;
	known->attempt = plan->attempt;
	known->peers = memory_zalloc(plan->peer_count, sizeof(*known->peers));
	known->rows = memory_zalloc(plan->row_count, sizeof(*known->rows));
	if (!known->peers || !known->rows) {
		known_release(out);
		return -ERROR_MEMORY;
	}
	for (size_t i = 0; i < plan->peer_count; i++)
		if (plan->peers[i].copy == COPY_NONE)
			known->peers[known->peer_count++] = (struct known_peer){
				plan->peers[i].member, mark_peer(&plan->peers[i])};
	for (size_t i = 0; i < plan->row_count; i++)
		known->rows[known->row_count++] =
			(struct known_row){message_row_mark(plan, &plan->rows[i]),
					   plan->rows[i].peer, plan->rows[i].ordinal};
	known->whole = message_plan_digest(plan);
	known->spares = message_spares_digest(plan);
	return 0;
}

struct known *known_hold(struct known *known)
{
	if (known)
		known->uses++;
	return known;
}

void known_release(struct known **out)
{
	struct known *known = *out;

	*out = NULL;
	if (!known || --known->uses)
		return;
	memory_free(known->peers);
	memory_free(known->rows);
	memory_free(known);
}

static int compare_peers(const void *a, const void *b)
{
	return member_compare(&((const struct known_peer *)a)->member,
			      &((const struct known_peer *)b)->member);
}

static const struct known_peer *find_peer(const struct known *known, struct member member)
{
	const struct known_peer key = {.member = member};

	return known->peer_count ? bsearch(&key, known->peers, known->peer_count,
					   sizeof(*known->peers), compare_peers)
				 : NULL;
}

bool known_has_peer(const struct known *had, const struct plan_peer *peer)
{
	const struct known_peer *known = had ? find_peer(had, peer->member) : NULL;

	return known && peer->copy == COPY_NONE && known->mark == mark_peer(peer);
}

static bool is_peer(const struct message_plan *plan, struct member member)
{
	size_t at = search_first(i, 0, plan->peer_count,
				 member_compare(&plan->peers[i].member, &member) >= 0);

	return at < plan->peer_count && member_compare(&plan->peers[at].member, &member) == 0;
}

static int drop_peers(const struct known *had, struct message_plan *plan)
{
	plan->dropped = memory_zalloc(had->peer_count, sizeof(*plan->dropped));
	if (!plan->dropped)
		return -ERROR_MEMORY;
	for (size_t i = 0; i < had->peer_count; i++)
		if (!is_peer(plan, had->peers[i].member))
			plan->dropped[plan->dropped_count++] = had->peers[i].member;
	return 0;
}

static int compare_marks(const void *a, const void *b)
{
	const struct known_mark *one = a, *other = b;

	return compare_u64(one->mark, other->mark) ?: compare_u64(one->at, other->at);
}

static int compare_kept(const void *a, const void *b)
{
	const struct kept_row *one = a, *other = b;

	return compare_u64(one->peer, other->peer) ?: compare_u64(one->ordinal, other->ordinal);
}

/* Where the worker has that row; ABSENT: nowhere. */
#define ABSENT UINT32_MAX

static uint32_t find_row(const struct known_mark *marks, size_t count, uint64_t mark)
{
	size_t found = search_first(i, 0, count, marks[i].mark >= mark);

	return found < count && marks[found].mark == mark ? marks[found].at : ABSENT;
}

/* A worker numbers what it keeps of a pair as it was numbered: a row that has changed places with others is told anew. */
static void keep_in_order(const struct known *had, const struct kept_row *kept, size_t count,
			  uint32_t *places)
{
	uint32_t next = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t ordinal = had->rows[places[kept[i].at]].ordinal;

		if (i == 0 || kept[i].peer != kept[i - 1].peer)
			next = 0;
		if (ordinal < next)
			places[kept[i].at] = ABSENT;
		else
			next = ordinal + 1;
	}
}

/* By row of the plan: its place in what the worker has. */
static int find_rows(const struct known *had, const struct known *now, uint32_t *places)
{
	struct known_mark *marks = memory_zalloc(had->row_count, sizeof(*marks));
	struct kept_row *kept = memory_zalloc(now->row_count, sizeof(*kept));
	size_t count = 0;

	if (!marks || !kept) {
		memory_free(marks);
		memory_free(kept);
		return -ERROR_MEMORY;
	}
	for (size_t i = 0; i < had->row_count; i++)
		marks[i] = (struct known_mark){had->rows[i].mark, (uint32_t)i};
	sort_items(marks, had->row_count, compare_marks);
	for (size_t i = 0; i < now->row_count; i++) {
		places[i] = find_row(marks, had->row_count, now->rows[i].mark);
		if (places[i] != ABSENT)
			kept[count++] = (struct kept_row){now->rows[i].peer, now->rows[i].ordinal,
							  (uint32_t)i};
	}
	sort_items(kept, count, compare_kept);
	keep_in_order(had, kept, count, places);
	memory_free(marks);
	memory_free(kept);
	return 0;
}

/* Rows that are new move to the front of the plan's, the others are run after run. */
static void make_runs(struct message_plan *plan, const uint32_t *places)
{
	struct plan_run run = {0};
	size_t fresh = 0;

	for (size_t i = 0; i < plan->row_count; i++) {
		if (run.count && places[i] == run.first + run.count) {
			run.count++;
			continue;
		}
		if (run.count) {
			plan->runs[plan->run_count++] = run;
			run = (struct plan_run){0};
		}
		if (places[i] != ABSENT) {
			run.first = places[i];
			run.count = 1;
		} else {
			run.fresh++;
			plan->rows[fresh++] = plan->rows[i];
		}
	}
	if (run.count)
		plan->runs[plan->run_count++] = run;
	plan->row_count = fresh;
}

static void leave_out_spares(struct message_plan *plan)
{
	plan->spared = true;
	memory_free(plan->spares);
	memory_free(plan->spare_rows);
	plan->spares = NULL;
	plan->spare_rows = NULL;
	plan->spare_count = plan->spare_row_count = 0;
	plan->stands_for = 0;
}

int known_leave_out(const struct known *had, const struct known *now, struct message_plan *plan)
{
	uint32_t *places = memory_zalloc(plan->row_count, sizeof(*places));
	int rc = -ERROR_MEMORY;

	plan->runs = memory_zalloc(plan->row_count, sizeof(*plan->runs));
	if (places && plan->runs && !drop_peers(had, plan))
		rc = find_rows(had, now, places);
	if (!rc)
		make_runs(plan, places);
	memory_free(places);
	if (rc)
		return rc;
	plan->rows_of = had->attempt;
	plan->whole = now->whole;
	if (digest_equal(had->spares, now->spares))
		leave_out_spares(plan);
	return 0;
}
