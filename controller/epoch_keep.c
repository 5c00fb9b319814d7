/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_keep.c -- pairs that keep the endpoint that they have from the epoch before. Two workers that were connected to each
 * other, are who they were, and have said that what they have is whole, open nothing anew and are told nothing of each other but
 * regions that have changed; so what is said in a pause is what has changed:
 *
 *   trainer 0 ═══ inference 0        kept
 *   trainer 0 ─── inference 2'       another process: opened, told, connected as at the start
 *
 * What such a worker does not say again is taken from what it said before, so that newcomers hear all of it.
 */
#include "controller/epoch.h"

#include "base/assert.h"
#include "base/compare.h"
#include <stdlib.h>
#include <string.h>

static bool is_same(const struct epoch *epoch, const struct epoch *before, uint32_t party)
{
	return before->parties[party].worker == epoch->parties[party].worker &&
	       !before->parties[party].away && !epoch->parties[party].away;
}

/* Between those that copy to each other once there is nothing to keep. */
static bool is_peer(const struct epoch *epoch, uint32_t party, uint32_t peer)
{
	const struct party *of = &epoch->parties[party];

	return of->peer_count &&
	       bsearch(&peer, of->peers, of->peer_count, sizeof(peer), compare_u32s) &&
	       epoch_copy_of(of, &epoch->parties[peer]) == COPY_NONE;
}

static bool keeps(const struct epoch *epoch, const struct epoch *before, uint32_t party,
		  uint32_t peer)
{
	struct member a = epoch->parties[party].worker->who, b = epoch->parties[peer].worker->who;

	return is_peer(epoch, party, peer) && is_peer(before, party, peer) &&
	       strcmp(epoch_pair_transport(epoch, a, b), epoch_pair_transport(before, a, b)) == 0;
}

int epoch_keep(struct epoch *epoch, struct epoch *before, const bool *whole)
{
	if (before->count != epoch->count || before->adopted || !before->ran)
		return 0;
	for (uint32_t i = 0; i < epoch->count; i++) {
		struct party *party = &epoch->parties[i];

		if (!whole[i] || !is_same(epoch, before, i))
			continue;
		party->kept = pool_array(&epoch->pool, party->peer_count + 1, sizeof(bool));
		if (!party->kept)
			return -ERROR_MEMORY;
		for (size_t k = 0; k < party->peer_count; k++) {
			uint32_t peer = party->peers[k];

			party->kept[k] = whole[peer] && is_same(epoch, before, peer) &&
					 keeps(epoch, before, i, peer);
			party->kept_count += party->kept[k];
		}
		if (!party->kept_count)
			continue;
		party->before = before->parties[i].endpoints;
		before->parties[i].endpoints = (struct message_endpoints){0};
	}
	return 0;
}

bool epoch_keeps(const struct party *party, size_t peer)
{
	return party->kept && party->kept[peer];
}

void epoch_leave_out_peers(const struct party *party, struct message_plan *plan)
{
	size_t left = 0;

	for (size_t i = 0; plan->rows_of && i < plan->peer_count; i++) {
		struct plan_peer *peer = &plan->peers[i];

		if (peer->kept && !peer->lacks && known_has_peer(party->had, peer)) {
			memory_free(peer->host);
			memory_free(peer->transport);
			continue;
		}
		plan->peers[left++] = *peer;
	}
	if (plan->rows_of)
		plan->peer_count = left;
}

static int copy_regions(struct party *party, const struct message_endpoints *said)
{
	party->changed = memory_zalloc(said->region_count, sizeof(*party->changed));
	for (size_t i = 0; party->changed && i < said->region_count; i++) {
		const struct region_record *from = &said->regions[i];
		unsigned char *bytes = memory_alloc(from->length);

		if (!bytes)
			return -ERROR_MEMORY;
		if (from->length)
			memcpy(bytes, from->bytes, from->length);
		party->changed[i] = (struct region_record){from->region, bytes, from->length};
		party->changed_count++;
	}
	return party->changed ? 0 : -ERROR_MEMORY;
}

/* Those of peers that are kept are empty; more, or others, are found by who checks them. */
static int complete_records(const struct epoch *epoch, const struct party *party,
			    struct message_endpoints *said)
{
	size_t count = said->record_count + party->kept_count, from = 0;
	struct endpoint_record *all = memory_zalloc(count, sizeof(*all));

	if (!all)
		return -ERROR_MEMORY;
	for (size_t k = 0; k < count; k++) {
		if (k < party->peer_count && party->kept[k])
			all[k].peer = epoch->parties[party->peers[k]].worker->who;
		else if (from < said->record_count)
			all[k] = said->records[from++];
	}
	WEFT_ASSERT_OP(from, ==, said->record_count);
	memory_free(said->records);
	said->records = all;
	said->record_count = count;
	return 0;
}

/* A region that is no more, and its parameters lie in. */
static bool lacks_place(const struct message_endpoints *before,
			const struct message_endpoints *said)
{
	for (size_t r = 0; r < said->region_count; r++)
		for (size_t i = 0; !said->regions[r].length && i < before->place_count; i++)
			if (before->places[i].region == said->regions[r].region)
				return true;
	return false;
}

int epoch_complete(const struct epoch *epoch, struct party *party, struct message_endpoints *said,
		   struct error *why)
{
	struct message_endpoints *before = &party->before, whole;
	int rc = 0;

	if (!party->kept_count)
		return 0;
	if (lacks_place(before, said))
		return error_set(
			why, ERROR_MESSAGE,
			"%s %u says that a region is no more in which parameters of its lie",
			role_name(party->worker->who.role), party->worker->who.rank);
	if (said->place_count || said->copies)
		return error_set(
			why, ERROR_MESSAGE,
			"%s %u says once more where its parameters lie, and keeps endpoints",
			role_name(party->worker->who.role), party->worker->who.rank);
	if (complete_records(epoch, party, said) || copy_regions(party, said))
		rc = memory_error(why, "taking endpoints", said->region_count);
	if (!rc)
		rc = message_regions_change(&before->regions, &before->region_count, said->regions,
					    said->region_count, why);
	if (!rc)
		rc = message_regions_change(&before->shared, &before->shared_count, said->shared,
					    said->shared_count, why);
	if (!rc && before->region_count > LIMIT_REGIONS)
		rc = error_set(why, ERROR_MESSAGE, "%s %u has %zu regions by now, the limit is %u",
			       role_name(party->worker->who.role), party->worker->who.rank,
			       before->region_count, LIMIT_REGIONS);
	if (rc)
		return rc;
	/* they change places, but for records: what is left of both is freed with the party */
	whole = *before;
	whole.attempt = said->attempt;
	whole.records = said->records;
	whole.record_count = said->record_count;
	said->records = before->records;
	said->record_count = before->record_count;
	*before = *said;
	*said = whole;
	return 0;
}

void epoch_forget_kept(struct party *party)
{
	endpoints_fini(&party->before);
	for (size_t i = 0; party->changed && i < party->changed_count; i++)
		memory_free(party->changed[i].bytes);
	memory_free(party->changed);
	party->changed = NULL;
	party->changed_count = 0;
}
