/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_links.c -- endpoints of simulated workers: a pair that keeps its own must have one, of the same two processes, that
 * both opened for the same plan.
 */
#include "tests/support/simulator_parts.h"

static struct link *find(struct worker *worker, struct member peer)
{
	for (size_t i = 0; i < worker->links.count; i++)
		if (member_within(worker->links.items[i].peer, peer, 1))
			return &worker->links.items[i];
	return NULL;
}

static const struct plan_peer *planned(const struct worker *worker, struct member peer)
{
	for (size_t i = 0; i < worker->plan->peer_count; i++)
		if (member_within(worker->plan->peers[i].member, peer, 1))
			return &worker->plan->peers[i];
	return NULL;
}

static void connect_one(struct worker *worker, const struct peer_endpoints *peer)
{
	const struct plan_peer *plan = planned(worker, peer->member);
	struct link *link = find(worker, peer->member);
	char expected[96], name[MEMBER_TEXT_BYTES];

	assert_non_null(plan);
	assert_int_equal(peer->place_count != 0, peer->copies != 0);
	if (plan->kept) {
		assert_non_null(link);
		assert_int_equal(link->incarnation, peer->incarnation);
		assert_int_equal(peer->record_length, 0);
		return;
	}
	snprintf(expected, sizeof(expected), "%s %llx > %s", member_text(peer->member, name),
		 (unsigned long long)peer->incarnation, worker->name);
	assert_int_equal(peer->record_length, strlen(expected));
	assert_memory_equal(peer->record, expected, strlen(expected));
	if (!link) {
		assert_true(array_add(&worker->links, (struct link){.peer = peer->member}));
		link = &worker->links.items[worker->links.count - 1];
	}
	link->incarnation = peer->incarnation;
	link->attempt = worker->plan->attempt;
}

void worker_connects(struct worker *worker, const struct message_peers *peers)
{
	assert_int_equal(peers->peer_count, worker->plan->peer_count);
	for (size_t i = 0; i < peers->peer_count; i++)
		connect_one(worker, &peers->peers[i]);
}

void worker_checks_links(struct simulation *simulation, struct worker *worker)
{
	struct member self = {worker->what.role, worker->what.rank};

	for (size_t w = 0; w < simulation->workers.count; w++) {
		struct worker *peer = simulation->workers.items[w];
		struct member who = {peer->what.role, peer->what.rank};
		const struct link *there = find(peer, self), *here = find(worker, who);

		/* who has failed before it was connected is gone on without by who takes the job over */
		if (here && peer->alive && worker_core_state(peer->core) <= WORKER_RUN &&
		    planned(worker, who) && here->incarnation == peer->what.incarnation && there &&
		    there->incarnation == worker->what.incarnation)
			assert_int_equal(here->attempt, there->attempt);
	}
}

void simulation_break(struct simulation *simulation, uint32_t worker)
{
	simulation->workers.items[worker]->anew = true;
	worker_pauses(simulation, worker); /* where it has stopped it says so */
}
