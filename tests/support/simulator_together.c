/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_together.c -- ranks of a job whose engines show versions together (commit=job): what worker/update/wait_together.c does,
 * and waiter_settle, on the simulator's clock.
 */
#include "tests/support/simulator_wait.h"

#define HALF_MS (UPDATE_TIMEOUT_MS / 2)

bool together_is_other_engine(const struct worker *worker, uint32_t peer)
{
	uint32_t ranks = worker->plan->together;

	return ranks && worker->plan->peers[peer].member.rank / ranks != worker->what.rank / ranks;
}

static void meet_those(struct waiting *waiting, uint32_t from, uint32_t count)
{
	waiting->mates_from = from;
	waiting->mate_count = count;
}

void together_chooses(struct worker *worker)
{
	struct waiting *waiting = worker->waiting;
	uint32_t first = 0, end = waiting->all_count;

	waiting->by_plan = waiting->holds = false;
	waiting->said = waiting->settled = 0;
	waiting->alone = worker->plan->alone;
	while (waiting->alone && first < end &&
	       together_is_other_engine(worker, waiting->mate_at[first]))
		first++;
	while (waiting->alone && end > first &&
	       together_is_other_engine(worker, waiting->mate_at[end - 1]))
		end--;
	meet_those(waiting, first, end - first);
}

void together_meets_all(struct simulation *simulation, uint32_t index)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	uint64_t alone = waiting->alone;

	if (!alone || worker->copies ||
	    (waiting->receiver.past < alone && waiting->mates_past < alone &&
	     versions_published(&waiting->versions) < alone))
		return;
	if (waiting->committer.phase != COMMIT_IDLE)
		meet_cannot(simulation, index, alone, "it waits for another version");
	waiting->alone = 0;
	meet_those(waiting, 0, waiting->all_count);
	meet_decides(worker);
	waiting->committer.links = waiting->mates;
	waiting->committer.link_count = waiting->all_count;
	waiting->committer.decided_for = waiting->decided_for;
	if (waiting->all_count)
		receiver_meets(&waiting->receiver, false);
}

bool together_is_by_plan(const struct worker *worker)
{
	struct waiting *waiting = worker->waiting;

	if (!worker->plan->together || waiting->alone || !waiting->receiver.meets)
		return false;
	waiting->by_plan = waiting->by_plan || worker->gone_ranks;
	return waiting->by_plan;
}

bool together_may_be_let_go(const struct waiting *waiting)
{
	const struct committer *committer = &waiting->committer;

	return !waiting->holds && committer->round == MEET_PUBLISH &&
	       (committer->phase == COMMIT_MEETING || committer->phase == COMMIT_LETTING_GO);
}

bool together_loses(struct simulation *simulation, uint32_t index, uint32_t peer,
		    const struct error *why)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	struct worker_event drop = {.type = WORKER_EVENT_DROP,
				    .member = worker->plan->peers[peer].member,
				    .error = why,
				    .attempt = worker->plan->attempt,
				    .version = worker->version};

	if (!worker->plan->together || !together_is_other_engine(worker, peer))
		return false;
	waiting->by_plan = true;
	if (waiting->gone[peer])
		return true;
	waiting->gone[peer] = true;
	worker_does(simulation, index, &drop);
	return true;
}

/* ---- who is late ---- */

static bool is_late(const struct simulation *simulation, const struct waiting *waiting, uint32_t m)
{
	uint64_t since = waiting->later[mate_peer(waiting, m)];

	since = since > waiting->arrived_at ? since : waiting->arrived_at;
	return simulation->now >= since + HALF_MS;
}

static bool waits_for_a_trainer(const struct waiting *waiting)
{
	const struct committer *committer = &waiting->committer;

	if (waiting->receiver.phase == RECEIVE_COUNTING)
		return true;
	for (uint32_t m = 0; m < waiting->mate_count && committer->round != MEET_OPEN; m++)
		if (commit_lacks(committer, m) &&
		    waiting->later[mate_peer(waiting, m)] > waiting->excused_at)
			return true;
	return false;
}

void together_excuses(struct simulation *simulation, uint32_t index)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	struct said said = {.tag = UPDATE_LATER};
	uint64_t since =
		waiting->began_at > waiting->excused_at ? waiting->began_at : waiting->excused_at;

	if (!worker->plan->together || waiting->alone || waiting->by_plan || !waiting->mate_count ||
	    !waiting->committer.decided_for || simulation->now < since + HALF_MS / EXCUSES ||
	    !waits_for_a_trainer(waiting))
		return;
	said.u.later.turn = waiting->committer.turn;
	waiting->excused_at = simulation->now;
	pairs_say(simulation, index, mate_peer(waiting, 0), &said);
}

void together_drops_late(struct simulation *simulation, uint32_t index)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	struct error late;

	if (!worker->plan->together || waiting->alone || waiting->committer.round == MEET_OPEN)
		return;
	for (uint32_t m = 0; m < waiting->mate_count; m++) {
		uint32_t peer = mate_peer(waiting, m);

		if (waiting->gone[peer] || !commit_lacks(&waiting->committer, m) ||
		    !is_late(simulation, waiting, m))
			continue;
		error_set(&late, ERROR_TIMEOUT, "it has not loaded its version for %u ms", HALF_MS);
		together_loses(simulation, index, peer, &late);
	}
}

/* ---- by plan ---- */

bool together_has_begun(const struct worker *worker, uint64_t version)
{
	return worker->asked.number && version <= worker->asked.version;
}

bool together_is_to_show(const struct worker *worker)
{
	const struct waiting *waiting = worker->waiting;
	uint64_t version = receive_promised(&waiting->receiver);

	return version && (versions_published(&waiting->versions) == version ||
			   worker->asked.shows == version);
}

bool together_promises(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	struct worker_event event = {.type = WORKER_EVENT_PAUSED,
				     .number = worker->asked.number,
				     .version = versions_published(&waiting->versions),
				     .promised = version};

	if (!worker->asked.number)
		return false;
	waiting->holds = true;
	if (waiting->news != worker->news || waiting->said != version) {
		waiting->news = worker->news;
		waiting->said = version;
		worker_does(simulation, index, &event);
	}
	return versions_published(&waiting->versions) == version ||
	       (worker->asked.shows == version && meet_shows(simulation, index, version));
}

uint64_t together_promised(const struct waiting *waiting)
{
	uint64_t version = receive_promised(&waiting->receiver);

	return version > versions_published(&waiting->versions) ? version : 0;
}

void together_settles(struct simulation *simulation, uint32_t index,
		      const struct message_plan *plan)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	uint64_t version = worker->plan ? receive_promised(&waiting->receiver) : 0;
	struct receive_event event = {.kind = RECEIVE_MET};
	struct error why;

	if (!version || !worker->plan->together)
		return;
	waiting->loading = false;
	if (version == plan->shows || version == versions_published(&waiting->versions)) {
		struct receive_step step = receive_next(&waiting->receiver, &event);

		assert_int_equal(step.kind, RECEIVE_PUBLISH);
		waiting->settled = version;
		worker_note(simulation, worker, FACT_SETTLES, version);
		versions_hide(&waiting->versions, meet_hides(waiting, version));
		wait_publishes(simulation, index, step.version);
		return;
	}
	error_set(&why, ERROR_ABORTED, "update %llu was given up: an engine has left the job",
		  (unsigned long long)version);
	event = (struct receive_event){.kind = RECEIVE_FAILED, .error = &why};
	receive_next(&waiting->receiver, &event);
	versions_fail(&waiting->versions, waiting->copy);
	worker_note(simulation, worker, FACT_BREAKS, version);
	simulation_line(simulation, "%s gives up version %llu, which it had promised", worker->name,
			(unsigned long long)version);
}
