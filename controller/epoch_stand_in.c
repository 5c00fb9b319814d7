/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_stand_in.c -- which trainer can send another one's pieces, where that one is late (--hedge): one that holds the same,
 * and reaches the same ranks by the same transports in the same way, so that its rows are the other one's as they stand.
 *
 *   trainer 0 ◄── stands in for ── trainer 1 ◄── trainer 2 ◄── trainer 0        three that hold all
 *
 * Each stands in for one at most: between a trainer and a rank there is one permission at a time. Where it has nothing of its own to
 * send a rank that the other one writes to, the two are a pair all the same, without pieces.
 */
#include "controller/epoch.h"

#include <string.h>

/* A piece leaves both in the same way. Without a list what is mapped is memory of the own host. */
static bool sends_alike(const struct worker *a, const struct worker *b, const char *transport)
{
	const struct transport_offer *x = epoch_offer(a, transport), *y = epoch_offer(b, transport);

	if (x && y)
		return x->mapped == y->mapped && x->registered == y->registered;
	return !x && !y && a->declare.mapped == b->declare.mapped &&
	       a->declare.registered == b->declare.registered &&
	       (!a->declare.mapped || strcmp(a->hello.host_id, b->hello.host_id) == 0);
}

static bool can_stand_in(const struct epoch *epoch, const struct party *one,
			 const struct party *late)
{
	const struct worker *a = one->worker, *b = late->worker;

	if (one == late || one->away || one->stands_for || !a->declare.stands_in ||
	    a->body != b->body || a->declare.device != b->declare.device)
		return false;
	for (size_t i = 0; i < late->peer_count; i++) {
		struct member rank = epoch->parties[late->peers[i]].worker->who;
		const char *transport = epoch_pair_transport(epoch, b->who, rank);

		if (strcmp(epoch_pair_transport(epoch, a->who, rank), transport) != 0 ||
		    !sends_alike(a, b, transport))
			return false;
	}
	return true;
}

static int pair_up(struct epoch *epoch, uint32_t one, const struct party *late)
{
	int rc = 0;

	for (size_t i = 0; i < late->served_count && !rc; i++) {
		uint32_t rank = late->served[i];

		if (epoch_has_peer(&epoch->parties[one], rank))
			continue;
		rc = epoch_add_peer(epoch, &epoch->parties[one], rank);
		if (!rc)
			rc = epoch_add_peer(epoch, &epoch->parties[rank], one);
	}
	return rc;
}

int epoch_stand_ins(struct epoch *epoch)
{
	int rc = 0;

	for (uint32_t t = 0; t < epoch->trainers; t++) {
		struct party *late = &epoch->parties[t];

		late->served = late->peers;
		late->served_count = late->peer_count;
		for (uint32_t i = 1; i < epoch->trainers && late->served_count && !late->stand_in;
		     i++) {
			uint32_t next = (t + i) % epoch->trainers;

			if (!can_stand_in(epoch, &epoch->parties[next], late))
				continue;
			late->stand_in = next + 1;
			epoch->parties[next].stands_for = t + 1;
		}
	}
	for (uint32_t t = 0; t < epoch->trainers && !rc; t++)
		if (epoch->parties[t].stand_in)
			rc = pair_up(epoch, epoch->parties[t].stand_in - 1, &epoch->parties[t]);
	return rc;
}

uint32_t epoch_lacks_stand_in(const struct epoch *epoch)
{
	uint32_t count = 0;

	for (uint32_t t = 0; t < epoch->trainers; t++)
		count += epoch->parties[t].served_count && !epoch->parties[t].stand_in;
	return count;
}
