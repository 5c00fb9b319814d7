/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_copy.c -- inference ranks that send others what they show: two ranks of one layout hold the same bytes, so what
 * is missing at one can be written by the other, as it is, with no trainer:
 *
 *   inference 0 ── all parameters ──► inference 2        engines of tp=2: 0 and 2 have one layout,
 *   inference 1 ── all parameters ──► inference 3        1 and 3 another
 */
#include "controller/epoch.h"

#include "base/assert.h"
#include <string.h>

bool epoch_has_peer(const struct party *party, uint32_t peer)
{
	for (size_t i = 0; i < party->peer_count; i++)
		if (party->peers[i] == peer)
			return true;
	return false;
}

/* One that it agrees with has a path to it already, on which they do that. */
bool epoch_can_copy(const struct epoch *epoch, uint32_t donor, uint32_t rank)
{
	const struct party *from = &epoch->parties[donor], *to = &epoch->parties[rank];

	return from->worker->body == to->worker->body &&
	       from->worker->declare.device == to->worker->declare.device &&
	       !epoch_has_peer(to, donor) && epoch_copy_transport(epoch, from->worker, to->worker);
}

/* Peers stay in order. */
int epoch_add_peer(struct epoch *epoch, struct party *party, uint32_t peer)
{
	uint32_t *peers = pool_array(&epoch->pool, party->peer_count + 1, sizeof(*peers));
	size_t at = 0;

	if (!peers)
		return -ERROR_MEMORY;
	while (at < party->peer_count && party->peers[at] < peer)
		at++;
	WEFT_ASSERT(at == party->peer_count || party->peers[at] != peer);
	if (at)
		memcpy(peers, party->peers, at * sizeof(*peers));
	peers[at] = peer;
	if (at < party->peer_count)
		memcpy(peers + at + 1, party->peers + at,
		       (party->peer_count - at) * sizeof(*peers));
	party->peers = peers;
	party->peer_count++;
	return 0;
}

int epoch_copy(struct epoch *epoch, uint32_t donor, uint32_t rank)
{
	struct party *from = &epoch->parties[donor], *to = &epoch->parties[rank];
	int rc = epoch_add_peer(epoch, from, rank);

	WEFT_ASSERT(!to->donor && from->leg == LEG_PLANNED && to->leg == LEG_PLANNED);
	to->donor = from;
	return rc ? rc : epoch_add_peer(epoch, to, donor);
}

enum plan_copy epoch_copy_of(const struct party *party, const struct party *peer)
{
	return party->donor == peer ? COPY_FROM : peer->donor == party ? COPY_TO : COPY_NONE;
}
