/* SPDX-License-Identifier: Apache-2.0
 *
 * receive_late.c -- of receive.h: a trainer that is late, and the one that stands in for it.
 *
 *   late      accepted ─────────────────────── SPARE ──► stood ── END, ABORT, gone ──► nothing is out
 *   stand-in  ended ── hedge_ns ── ASK ── stands ── END ┘
 *             ended ── the other ended ── RELEASE
 */
#include "worker/update/receive.h"

bool receive_may_be_stood_in_for(const struct receiver *receiver, uint32_t p)
{
	const struct receive_link *late = &receiver->links[p], *by;

	/* where it has no pieces nobody waits to be asked for them */
	if (!receiver->peers[p].stand_in || !receiver->peers[p].pieces || !late->accepted ||
	    !receiver->hedge_ns)
		return false;
	by = &receiver->links[receiver->peers[p].stand_in - 1];
	/* who was told that it will not be asked is past that */
	return !by->gone && (late->asked ? by->stands == p + 1 : !by->released);
}

/* By `asked_ns` it is asked for, unless the trainer ends before; false: nobody can be asked (now). */
static bool can_ask(const struct receiver *receiver, uint32_t p, uint64_t *asked_ns)
{
	const struct receive_link *late = &receiver->links[p], *by;

	if (!receive_may_be_stood_in_for(receiver, p) || late->ended || late->ending || late->asked)
		return false;
	by = &receiver->links[receiver->peers[p].stand_in - 1];
	*asked_ns = late->gone ? 0 : by->ended_ns + receiver->hedge_ns;
	return by->ended && !by->outstanding;
}

/* It has ended its own pieces, and may be asked for another one's, or is sending them. */
static bool waits(const struct receive_link *by)
{
	return by->opening && (!by->outstanding || by->stands) && !by->released && !by->gone;
}

static bool all_ended(const struct receiver *receiver)
{
	bool all = true;

	for (size_t p = 0; p < receiver->peer_count; p++)
		all = all && receiver->links[p].ended;
	return all;
}

/* Its permission may be used for a version that was given up here. With that it is through before it begins this one, for which it
 * would have none if memory were open for the next by then. */
static bool begins_older(const struct receive_link *link)
{
	return link->outstanding && !link->accepted;
}

/* Who is a peer only because it may be asked for another one's pieces is not waited for, once all others have ended. */
static void count_idle(struct receiver *receiver)
{
	const struct receive_link *ended = NULL;

	for (size_t p = 0; p < receiver->peer_count; p++) {
		const struct receive_link *link = &receiver->links[p];

		if (link->ended && receiver->peers[p].pieces)
			ended = link;
		else if (!link->ended && (receiver->peers[p].pieces || begins_older(link)))
			return;
	}
	for (size_t p = 0; p < receiver->peer_count && ended; p++) {
		struct receive_link *link = &receiver->links[p];

		if (link->ended)
			continue;
		link->end = (struct update_end){.version = ended->end.version};
		link->ended = true;
		link->ending = false;
		link->stood = link->outstanding;
	}
}

bool receive_hedge(struct receiver *receiver, uint64_t now_ns, struct receive_step *step)
{
	if (receiver->hedge_ns)
		count_idle(receiver);
	for (uint32_t p = 0; p < receiver->peer_count && receiver->hedge_ns; p++) {
		struct receive_link *late = &receiver->links[p], *by;
		uint32_t stand_in = receiver->peers[p].stand_in - 1;
		uint64_t asked_ns;

		*step = (struct receive_step){.kind = RECEIVE_SPARE,
					      .peer = p,
					      .version = late->end.version,
					      .until_ns = receiver->deadline_ns};
		if (late->stood && !late->spared && !late->gone && !all_ended(receiver))
			return late->spared = true;
		/* nor is it asked for another one's, when it has ended */
		step->kind = RECEIVE_RELEASE;
		if (late->stood && !late->released && !late->gone && all_ended(receiver))
			return late->released = true;
		if (!receiver->peers[p].stand_in)
			continue;
		by = &receiver->links[stand_in];
		if (can_ask(receiver, p, &asked_ns) && now_ns >= asked_ns) {
			late->asked = by->outstanding = true;
			by->released = false;
			by->stands = p + 1;
			by->opening++;
			by->landed = by->taken = by->taken_bytes = 0;
			*step = (struct receive_step){.kind = RECEIVE_ASK,
						      .peer = stand_in,
						      .version = by->end.version,
						      .until_ns = receiver->deadline_ns};
			return true;
		}
		step->peer = stand_in;
		if (late->ended && waits(by) && (!late->asked || by->stands))
			return by->released = true;
	}
	return false;
}

uint64_t receive_hedge_until(const struct receiver *receiver)
{
	uint64_t until = receiver->deadline_ns, asked_ns;

	for (uint32_t p = 0; p < receiver->peer_count; p++)
		if (can_ask(receiver, p, &asked_ns) && asked_ns < until)
			until = asked_ns;
	return until;
}

bool receive_unreleased(struct receiver *receiver, uint32_t *peer)
{
	for (uint32_t p = 0; p < receiver->peer_count && receiver->hedge_ns; p++) {
		uint32_t stand_in = receiver->peers[p].stand_in;
		struct receive_link *by = stand_in ? &receiver->links[stand_in - 1] : NULL;

		if (!by || !waits(by))
			continue;
		by->released = true;
		*peer = stand_in - 1;
		return true;
	}
	return false;
}

bool receive_owes(const struct receiver *receiver, uint32_t *peer)
{
	for (uint32_t p = 0; p < receiver->peer_count; p++) {
		const struct receive_link *link = &receiver->links[p];

		*peer = p;
		if (link->outstanding && (link->stood || link->stands))
			return true;
	}
	return false;
}

void receive_settle(struct receiver *receiver, uint32_t peer)
{
	struct receive_link *link = &receiver->links[peer];

	link->outstanding = link->stood = link->stands_ending = false;
	link->stands = 0;
	link->landed = link->taken;
}

bool receive_goes_on(const struct receiver *receiver, uint64_t version)
{
	for (size_t p = 0; p < receiver->peer_count; p++) {
		const struct receive_link *link = &receiver->links[p];

		if ((link->ended || link->ending) && (!version || link->end.version == version))
			return true;
	}
	return false;
}
