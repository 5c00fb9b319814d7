/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_wait_open.c -- what an inference rank waits with: a plan, whom it takes from, and who of them is gone; what
 * worker/update/wait_open.c, wait_copy.c and wait_gone.c do.
 */
#include "tests/support/simulator_wait.h"

void wait_new(struct simulation *simulation, struct worker *worker)
{
	worker->waiting = memory_zalloc(1, sizeof(*worker->waiting));
	assert_non_null(worker->waiting);
	worker->waiting->versions.copies = simulation->options.shadow ? 2 : 1;
}

/* There is another plan: nobody looks at words of the one before. */
void wait_closes(struct simulation *simulation, uint32_t index)
{
	struct waiting *waiting = simulation->workers.items[index]->waiting;
	_Atomic uint64_t **word = array_push(&simulation->words);
	uint64_t shown;

	if (waiting->versions.hidden)
		shown = 0;
	else if (waiting->settled)
		shown = waiting->settled;
	else if (!versions_begin(&waiting->versions, &shown))
		shown = 0;
	assert_non_null(word);
	*word = memory_zalloc(2, sizeof(**word));
	assert_non_null(*word);
	(*word)[0] = shown;
	(*word)[1] = ~shown;
	if (waiting->word &&
	    waiting->receiver
		    .meets) { /* it is the same memory: mates may look at it by the plan before */
		waiting->word[0] = shown;
		waiting->word[1] = ~shown;
	}
	waiting->past = waiting->receiver.past;
	waiting->word = *word;
	if (waiting->receiver.meets) {
		waiting->versions.published = versions_published(&waiting->versions);
		versions_follow(&waiting->versions, NULL, false);
	}
	waiting->receiver.meets = false;
	waiting->waits = waiting->loading = false;
	memset(waiting->links, 0, sizeof(waiting->links));
	memset(waiting->gone, 0, sizeof(waiting->gone));
}

static void use(struct waiting *waiting, const struct worker *worker, uint32_t first,
		uint32_t count)
{
	waiting->first = first;
	waiting->count = count;
	receiver_init(&waiting->receiver, &waiting->peers[first], count, &waiting->links[first],
		      worker->plan->digest, false);
	if (waiting->mate_count)
		receiver_meets(&waiting->receiver, false);
}

static uint32_t trainers(const struct worker *worker)
{
	uint32_t count = 0;

	while (count < worker->plan->peer_count &&
	       worker->plan->peers[count].member.role == ROLE_TRAINER)
		count++;
	return count;
}

void wait_opens(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	const struct message_plan *plan = worker->plan;
	uint32_t donor = UINT32_MAX;

	assert_true(plan->peer_count <= PEERS_MAX);
	waiting->all_count = 0;
	for (uint32_t p = 0; p < plan->peer_count; p++) {
		const struct plan_peer *peer = &plan->peers[p];

		member_text(peer->member, waiting->names[p]);
		waiting->peers[p] = (struct receive_peer){
			.name = waiting->names[p], .bytes = peer->bytes, .pieces = peer->pieces};
		if (peer->copy == COPY_FROM)
			donor = p;
		else if (peer->member.role == ROLE_INFERENCE && peer->copy == COPY_NONE)
			waiting->mate_at[waiting->all_count++] = p;
	}
	memset(waiting->later, 0, sizeof(waiting->later));
	together_chooses(worker);
	worker->copies = donor == UINT32_MAX ? 0 : plan->copy;
	waiting->copy_until = 0;
	waiting->copy_used = false;
	if (worker->copies)
		use(waiting, worker, donor, 1);
	else
		use(waiting, worker, 0, trainers(worker));
	waiting->receiver.past = waiting->past;
	waiting->mates_past = 0;
	if (plan->next > versions_published(&waiting->versions))
		waiting->receiver.past = plan->next - 1;
	waiting->seen_past = waiting->receiver.past;
	meet_opens(simulation, index);
}

/* Whose process has ended, as this rank sees, it tells the controller, unless it would only have sent a copy. */
bool wait_misses(struct simulation *simulation, uint32_t index, uint32_t p)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	struct member who = worker->plan->peers[p].member;
	struct worker_event drop = {.type = WORKER_EVENT_DROP,
				    .member = who,
				    .attempt = worker->plan->attempt,
				    .version = worker->version};
	struct error error;

	waiting->gone[p] =
		waiting->gone[p] || (who.role == ROLE_TRAINER ? worker->gone >> who.rank & 1
							      : worker->gone_ranks >> who.rank & 1);
	if (waiting->gone[p])
		return true;
	if (!pairs_sees_end(simulation, worker, p))
		return false;
	waiting->gone[p] = true;
	error_set(&error, ERROR_PEER_LOST, "its process has ended");
	drop.error = &error;
	if (who.role == ROLE_TRAINER)
		worker_does(simulation, index, &drop);
	return true;
}

/* ---- a copy that comes first ---- */

static bool may_be_copied(const struct worker *worker)
{
	const struct waiting *waiting = worker->waiting;

	return worker->copies && waiting->links[waiting->first].opening && !waiting->copy_used;
}

/* Trainers are waited for after it. False: who sends it may still write. */
static bool end_copy(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	uint64_t past = waiting->receiver.past;
	struct said declines = {.tag = UPDATE_ACCEPT};

	declines.u.accept = (struct update_accept){
		.opening = 1, .min_version = worker->copies + 1, .max_version = worker->copies + 1};
	if (!waiting->links[waiting->first].opening && !waiting->gone[waiting->first])
		pairs_say(simulation, index, waiting->first, &declines);
	if (may_be_copied(worker) && worker->ends->unread[waiting->first])
		waiting->copy_used = true;
	if (may_be_copied(worker) && !wait_misses(simulation, index, waiting->first) &&
	    simulation->now < waiting->copy_until)
		return false;
	worker->ends->unread[waiting->first] = false;
	use(waiting, worker, 0, trainers(worker));
	waiting->receiver.past = past > worker->copies ? past : worker->copies;
	waiting->seen_past = waiting->receiver.past;
	worker->copies = 0;
	return true;
}

bool wait_begins_copy(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	uint64_t version = worker->copies;

	if (!version)
		return true;
	if (!waiting->copy_until) {
		waiting->copy_until = simulation->now + UPDATE_TIMEOUT_MS / 8 * 7;
		wait_looks_at(simulation, index, waiting->copy_until);
	}
	if (waiting->receiver.phase == RECEIVE_CLOSED &&
	    (waiting->receiver.past >= version || waiting->mates_past >= version ||
	     versions_published(&waiting->versions) >= version))
		return end_copy(simulation, index);
	return true;
}
