/* SPDX-License-Identifier: Apache-2.0
 *
 * stand_in.c -- of a trainer that stands in for another one: the rows that it may send in that one's place, as an epoch of their own
 * over the endpoints of this one, so that they are sent as all rows are.
 *
 *   epoch             peers 0 1 2 ── endpoints ◄──┐
 *   epoch.stand_in    peers 0 2 ──────────────────┘    rows of the other trainer, a ring and checksums of their own
 */
#include "worker/epoch/epoch.h"

#include "base/assert.h"
#include "base/memory.h"
#include <string.h>

static struct peer *peer_of(const struct epoch *epoch, struct member member)
{
	for (size_t p = 0; p < epoch->peer_count; p++)
		if (member_compare(&epoch->peers[p].plan->member, &member) == 0)
			return &epoch->peers[p];
	return NULL;
}

/* What is imported of a peer, and what windows are there, is for both. */
int stand_in_find_landed(struct epoch *epoch, struct error *error)
{
	const struct message_plan *plan = epoch->plan;

	for (size_t i = 0; i < plan->spare_count; i++)
		if (!peer_of(epoch, plan->spares[i].member))
			return error_set(
				error, ERROR_MESSAGE,
				"%s: spares[%zu] of the plan is %s %u, to which it has no pair",
				epoch->options.name, i, role_name(plan->spares[i].member.role),
				plan->spares[i].member.rank);
	for (size_t i = 0; i < plan->spare_row_count; i++) {
		const struct plan_row *row = &plan->spare_rows[i];
		struct peer *peer = peer_of(epoch, plan->spares[row->peer].member);

		peer->written = peer->written || row->path != PATH_LANDED;
		peer->landed = peer->landed || row->path == PATH_LANDED;
	}
	return 0;
}

void stand_in_find_windows(struct epoch *epoch)
{
	for (size_t p = 0; p < epoch->peer_count; p++) {
		const struct peer *late = &epoch->peers[p];
		struct peer *peer =
			late->plan->stand_in
				? peer_of(epoch,
					  (struct member){ROLE_TRAINER, late->plan->stand_in - 1})
				: NULL;

		if (!peer || !late->landed_bytes)
			continue;
		peer->landed = true;
		peer->spare_bytes = late->landed_bytes;
		peer->spare_pieces = late->plan->pieces;
	}
}

static void copy_peers(struct epoch *to, const struct epoch *from, struct plan_peer *plans)
{
	const struct message_plan *plan = from->plan;

	for (size_t i = 0; i < plan->spare_count; i++) {
		const struct peer *peer = peer_of(from, plan->spares[i].member);

		plans[i] = *peer->plan;
		plans[i].bytes = plan->spares[i].bytes;
		plans[i].pieces = plan->spares[i].pieces;
		plans[i].delta = false;
		to->peers[i] = (struct peer){.plan = &plans[i],
					     .endpoint = peer->endpoint,
					     .health = peer->health,
					     .theirs = peer->theirs,
					     .imports = peer->imports,
					     .import_count = peer->import_count};
		memcpy(to->peers[i].name, peer->name, sizeof(peer->name));
	}
	for (size_t i = 0; i < plan->spare_row_count; i++)
		if (plan->spare_rows[i].path == PATH_LANDED)
			to->peers[plan->spare_rows[i].peer].landed = true;
}

int stand_in_open(struct epoch *epoch, struct error *error)
{
	const struct message_plan *plan = epoch->plan;
	struct plan_peer *plans;
	struct epoch *other;

	if (!plan->spare_count)
		return 0;
	epoch->stand_in = other = memory_zalloc(1, sizeof(*other));
	if (!other)
		return memory_error(error, "standing in for a trainer", sizeof(*other));
	other->options = epoch->options;
	other->own_plan = *plan;
	other->own_plan.peers = plans = memory_zalloc(plan->spare_count, sizeof(*plans));
	other->own_plan.peer_count = plan->spare_count;
	other->own_plan.rows = plan->spare_rows;
	other->own_plan.row_count = plan->spare_row_count;
	other->plan = &other->own_plan;
	other->sums = epoch->sums;
	other->wait_ms = epoch->wait_ms;
	other->holders = 1;
	other->peers = memory_zalloc(plan->spare_count, sizeof(*other->peers));
	if (!plans || !other->peers)
		return memory_error(error, "standing in for a trainer",
				    plan->spare_count * sizeof(*other->peers));
	other->peer_count = other->all_count = plan->spare_count;
	copy_peers(other, epoch, plans);
	return send_plan_open(&other->send, other, error);
}

void stand_in_follow(struct epoch *epoch)
{
	struct epoch *other = epoch->stand_in;

	for (size_t i = 0; other && i < other->peer_count; i++) {
		const struct peer *peer = peer_of(epoch, other->peers[i].plan->member);

		other->peers[i].gone = other->peers[i].gone || !peer || peer->gone;
		other->peers[i].endpoint = peer ? peer->endpoint : NULL;
	}
}

void stand_in_close(struct epoch *epoch)
{
	struct epoch *other = epoch->stand_in;

	epoch->stand_in = NULL;
	if (!other)
		return;
	WEFT_ASSERT_OP(other->holders, ==, 1);
	send_plan_close(&other->send);
	memory_free(other->own_plan.peers);
	memory_free(other->peers);
	memory_free(other);
}
