/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_pairs.c -- what workers say to each other, late and in order, and what the judge is told of it.
 */
#include "tests/support/simulator_wait.h"

#define HALF_LOST \
	2 /* one in so many words that a process had on its way when it ended comes no more */

uint32_t pairs_peer(const struct simulation *simulation, const struct worker *worker, uint32_t peer)
{
	struct member who = worker->plan->peers[peer].member;

	for (uint32_t i = (uint32_t)simulation->workers.count; i-- > 0;) {
		const struct worker *other = simulation->workers.items[i];

		if (other->what.role == who.role && other->what.rank == who.rank && other->plan &&
		    other->plan->attempt == worker->plan->attempt)
			return i;
	}
	return CONTROLLER;
}

bool pairs_sees_end(const struct simulation *simulation, const struct worker *worker, uint32_t peer)
{
	uint32_t other = pairs_peer(simulation, worker, peer);
	const struct worker *it = other == CONTROLLER ? NULL : simulation->workers.items[other];

	return it && !it->alive && simulation->now >= it->ended_at + SEEN_MS &&
	       (!it->ends_unseen || worker->what.role == it->what.role);
}

static struct happening *later(struct simulation *simulation, uint32_t from, uint32_t to,
			       const struct said *said)
{
	uint64_t at =
		simulation->now + 1 + simulation_dice(simulation, simulation->options.said_ms);
	struct happening *event;

	for (size_t i = 0; i < simulation->events.count; i++) {
		const struct happening *other = &simulation->events.items[i];

		if (other->type == EVENT_SAID && other->to == to && other->from == from &&
		    other->at > at)
			at = other->at;
	}
	event = simulation_later(simulation, at, EVENT_SAID);
	event->to = to;
	event->from = from;
	event->attempt = simulation->workers.items[from]->plan->attempt;
	event->bytes = memory_alloc(sizeof(*said));
	assert_non_null(event->bytes);
	memcpy(event->bytes, said, sizeof(*said));
	return event;
}

void pairs_say(struct simulation *simulation, uint32_t index, uint32_t peer,
	       const struct said *said)
{
	const struct worker *worker = simulation->workers.items[index];
	uint32_t to = pairs_peer(simulation, worker, peer);

	if (to == CONTROLLER || !simulation->workers.items[to]->alive)
		return;
	if (said->writes)
		later(simulation, index, to, &(struct said){.word = said->word});
	later(simulation, index, to, said);
}

/* All that a trainer, or another rank, sends of a version is there. */
static void arrives(struct simulation *simulation, const struct worker *worker,
		    const struct worker *from, const struct update_end *end)
{
	bool copy = from->what.role == ROLE_INFERENCE;
	struct fact *fact =
		worker_note(simulation, worker, copy ? FACT_COPIES : FACT_ARRIVES, end->version);

	fact->from = (struct member){from->what.role, from->what.rank};
	fact->from_process = from->what.incarnation;
	fact->digest = end->plan;
	if (copy)
		simulation_line(simulation, "%s sends version %llu to %s", from->name,
				(unsigned long long)end->version, worker->name);
}

static void word_comes(struct worker *worker, const struct said *said)
{
	_Atomic uint64_t *word = worker->waiting->word;

	if (!said->tag)
		word[0] = said->word;
	else
		word[1] = ~said->word;
}

void pairs_hear(struct simulation *simulation, const struct happening *event)
{
	struct worker *worker = simulation->workers.items[event->to];
	const struct worker *from = simulation->workers.items[event->from];
	struct said said;

	memcpy(&said, event->bytes, sizeof(said));
	if (!worker->alive || !worker->plan || worker->plan->attempt != event->attempt ||
	    (!from->alive && simulation_dice(simulation, HALF_LOST) == 0))
		return;
	if (!said.tag || said.writes)
		word_comes(worker, &said);
	if (said.tag == SAID_WORD) {
		wait_acts(simulation, event->to);
		return;
	}
	for (uint32_t p = 0; said.tag && p < worker->plan->peer_count; p++) {
		if (worker->plan->peers[p].member.role != from->what.role ||
		    worker->plan->peers[p].member.rank != from->what.rank)
			continue;
		worker->ends->said[p] = said;
		worker->ends->unread[p] = true;
		if (said.tag == UPDATE_ACCEPT)
			worker->ends->accept[p] = said.u.accept;
		if (said.tag == UPDATE_END && worker_runs(worker))
			arrives(simulation, worker, from, &said.u.end);
	}
	if (worker->sending)
		send_acts(simulation, event->to);
	else if (said.tag)
		wait_acts(simulation, event->to);
}

enum permission pairs_permission(const struct worker *worker, uint32_t peer, uint64_t version)
{
	const struct update_accept *accept = &worker->ends->accept[peer];

	if (accept->opening == worker->ends->used[peer])
		return PERMISSION_LATER;
	if (accept->min_version > version)
		return PERMISSION_NEVER;
	return accept->max_version >= version ? PERMISSION_GIVEN : PERMISSION_LATER;
}

void pairs_end(struct simulation *simulation, uint32_t index, uint32_t peer, uint64_t opening,
	       uint64_t version)
{
	const struct worker *worker = simulation->workers.items[index];
	const struct plan_peer *to = &worker->plan->peers[peer];
	struct said said = {.tag = UPDATE_END};

	said.u.end = (struct update_end){.opening = opening,
					 .version = version,
					 .plan = worker->plan->digest,
					 .bytes = to->bytes,
					 .pieces = to->pieces};
	pairs_say(simulation, index, peer, &said);
}
