/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_meet.c -- a rank and those that it agrees with: what worker/update/meet.c does, on the simulator's clock; and what
 * readers are shown by it.
 */
#include "tests/support/simulator_wait.h"

#include "job/commit.h"

static void store_word(struct waiting *waiting, uint64_t version)
{
	waiting->word[0] = version;
	waiting->word[1] = ~version;
}

/* Some mate looks at the same word, or at the one that is stored with it. */
static bool shares_word(const struct worker *worker)
{
	const struct waiting *waiting = worker->waiting;

	for (uint32_t m = 0; m < waiting->all_count; m++)
		if (!together_is_other_engine(worker, waiting->mate_at[m]))
			return true;
	return false;
}

/* It decides for nobody, and who decides for it shares a word with it. */
static bool leads(const struct worker *worker)
{
	const struct waiting *waiting = worker->waiting;

	return waiting->all_count == 1 &&
	       worker->plan->peers[waiting->mate_at[0]].member.rank < worker->what.rank &&
	       !together_is_other_engine(worker, waiting->mate_at[0]);
}

/* Who decides for this rank alone has its word on this host, unless words are written. */
static const _Atomic uint64_t *mapped_word(struct simulation *simulation,
					   const struct worker *worker)
{
	const struct waiting *waiting = worker->waiting;
	uint32_t decider = pairs_peer(simulation, worker, waiting->mate_at[0]);

	if (!leads(worker) || simulation->options.words_written)
		return NULL;
	if (decider == CONTROLLER) /* it has another plan by now, and this one never runs */
		return NULL;
	return simulation->workers.items[decider]->waiting->word;
}

void meet_decides(const struct worker *worker)
{
	struct waiting *waiting = worker->waiting;

	waiting->decided_for =
		waiting->mate_count &&
		worker->plan->peers[mate_peer(waiting, 0)].member.rank < worker->what.rank;
}

bool meet_shows(struct simulation *simulation, uint32_t index, uint64_t version)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;

	if (leads(worker))
		return versions_shown(&waiting->versions) == version;
	store_word(waiting, version);
	meet_notes(simulation);
	for (uint32_t m = 0; m < waiting->all_count; m++) {
		uint32_t p = waiting->mate_at[m];

		if (!together_is_other_engine(worker, p) &&
		    worker->plan->peers[p].member.rank > worker->what.rank)
			pairs_say(
				simulation, index, p,
				&(struct said){.tag = SAID_WORD, .writes = true, .word = version});
	}
	return true;
}

/* The worker's plan may be the next one already. */
bool meet_hides(struct waiting *waiting, uint64_t version)
{
	uint64_t shown;

	return waiting->shares && !(versions_begin(&waiting->versions, &shown) && shown == version);
}

void meet_runs(struct waiting *waiting)
{
	uint64_t shown;

	if (!waiting->versions.hidden)
		return;
	versions_hide(&waiting->versions, false);
	assert_true(versions_begin(&waiting->versions, &shown));
	assert_int_equal(shown, waiting->versions.published);
}

void meet_opens(struct simulation *simulation, uint32_t index)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	const _Atomic uint64_t *word;

	meet_decides(worker);
	memset(waiting->mates, 0, sizeof(waiting->mates));
	for (uint32_t m = 0; m < waiting->all_count; m++)
		waiting->mates[m].name = waiting->names[waiting->mate_at[m]];
	committer_init(&waiting->committer, waiting->mates + waiting->mates_from,
		       waiting->mate_count, waiting->decided_for);
	waiting->mapped = waiting->written = false;
	waiting->shares = shares_word(worker);
	if (!waiting->all_count)
		return;
	if (waiting->versions.hidden)
		store_word(waiting, waiting->versions.published);
	word = mapped_word(simulation, worker);
	waiting->mapped = word != NULL;
	waiting->written = leads(worker) && !word;
	if (waiting->shares)
		versions_follow(&waiting->versions, word ? word : waiting->word, waiting->written);
}

bool meet_is_shown(struct waiting *waiting)
{
	struct committer *committer = &waiting->committer;

	if (waiting->receiver.phase != RECEIVE_PREPARED || committer->phase != COMMIT_MEETING ||
	    committer->round != MEET_PUBLISH || !committer->decided_for ||
	    committer->link_count > 1 ||
	    versions_shown(&waiting->versions) != committer->own.min_version)
		return false;
	commit_shown(committer);
	return true;
}

/* ---- what is shown ---- */

static void note_shown(struct simulation *simulation, const struct worker *worker)
{
	struct waiting *waiting = worker->waiting;
	uint64_t version;

	if (!worker->alive || worker_core_state(worker->core) >= WORKER_LEFT)
		return;
	if (!versions_begin(&waiting->versions, &version))
		version = 0;
	if (version == waiting->seen_shown)
		return;
	waiting->seen_shown = version;
	worker_note(simulation, worker, version ? FACT_SHOWS : FACT_HIDES, version);
	if (version)
		simulation_line(simulation, "%s shows version %llu", worker->name,
				(unsigned long long)version);
	else
		simulation_line(simulation, "%s shows no version", worker->name);
}

void meet_notes(struct simulation *simulation)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++)
		if (simulation->workers.items[i]->waiting)
			note_shown(simulation, simulation->workers.items[i]);
}

/* ---- saying ---- */

static void say(struct simulation *simulation, uint32_t index, const struct commit_step *step)
{
	const struct waiting *waiting = simulation->workers.items[index]->waiting;
	const struct committer *committer = &waiting->committer;
	struct said said = {0};

	if (step->kind == COMMIT_TELL) {
		said.tag = UPDATE_ARRIVE;
		said.u.arrive = committer->all;
	} else if (step->kind == COMMIT_RELEASE) {
		said.tag = UPDATE_RELEASE;
		said.u.release = committer->release;
		said.writes = step->writes;
		said.word = step->word;
	} else {
		said.tag = UPDATE_GIVE_UP;
		said.u.give_up = committer->given_up;
	}
	pairs_say(simulation, index, mate_peer(waiting, step->link), &said);
}

/* From the event on, as long as there is something to do. True: *out. */
static bool run(struct simulation *simulation, uint32_t index, struct commit_event event,
		struct error *error, struct receive_event *out)
{
	struct waiting *waiting = simulation->workers.items[index]->waiting;
	struct committer *committer = &waiting->committer;

	for (;;) {
		struct commit_step step = commit_next(committer, &event);

		event = (struct commit_event){.kind = COMMIT_ASKS};
		switch (step.kind) {
		case COMMIT_WAIT:
			return false;
		case COMMIT_STORE:
			store_word(waiting, step.word);
			meet_notes(simulation);
			break;
		case COMMIT_MET:
			*out = (struct receive_event){.kind = RECEIVE_MET,
						      .min_version = committer->release.min_version,
						      .max_version = committer->release.max_version,
						      .now_ns = wait_now_ns(simulation)};
			return true;
		case COMMIT_FAIL:
			*error = committer->error;
			*out = (struct receive_event){.kind = RECEIVE_FAILED, .error = error};
			return true;
		case COMMIT_TELL:
		case COMMIT_RELEASE:
		case COMMIT_SAY:
			say(simulation, index, &step);
			break;
		}
	}
}

/* ---- hearing ---- */

static bool read_mate(const struct worker *worker, uint64_t now, uint32_t m,
		      struct commit_event *event)
{
	uint32_t p = mate_peer(worker->waiting, m);
	const struct said *said = &worker->ends->said[p];

	if (!worker->ends->unread[p])
		return false;
	worker->ends->unread[p] = false;
	if (said->tag == UPDATE_LATER) {
		if (said->u.later.turn == worker->waiting->committer.links[m].turn)
			worker->waiting->later[p] = now;
		return false;
	}
	*event = (struct commit_event){.kind = COMMIT_HEARS, .link = m, .tag = said->tag};
	if (said->tag == UPDATE_ARRIVE)
		event->arrive = said->u.arrive;
	else if (said->tag == UPDATE_RELEASE)
		event->release = said->u.release;
	else if (said->tag == UPDATE_GIVE_UP)
		event->give_up = said->u.give_up;
	return true;
}

static bool listen(struct simulation *simulation, uint32_t index, struct error *error,
		   struct receive_event *out)
{
	const struct worker *worker = simulation->workers.items[index];
	struct commit_event event;

	for (uint32_t m = 0; m < worker->waiting->mate_count; m++)
		if (read_mate(worker, simulation->now, m, &event) &&
		    run(simulation, index, event, error, out))
			return true;
	return false;
}

/* Who decides is gone, and what it decided last may be shown elsewhere: this rank shows it too, or, where it cannot know,
 * none. */
static bool decided_before(struct waiting *waiting)
{
	if (meet_is_shown(waiting))
		return true;
	if (!waiting->mapped)
		store_word(waiting, 0);
	return false;
}

bool meet_loses_leader(struct simulation *simulation, uint32_t index, struct error *error,
		       struct receive_event *out)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;

	if (!leads(worker) || !pairs_sees_end(simulation, worker, waiting->mate_at[0]))
		return false;
	error_set(error, ERROR_PEER_LOST, "the process of %s has ended",
		  waiting->names[waiting->mate_at[0]]);
	*out = (struct receive_event){.kind = RECEIVE_FAILED, .broken = true, .error = error};
	if (versions_published(&waiting->versions) == receive_promised(&waiting->receiver))
		*out = (struct receive_event){.kind = RECEIVE_MET};
	else if (!waiting->mapped)
		store_word(waiting, 0);
	return true;
}

static bool find_gone(struct simulation *simulation, uint32_t index, struct error *error,
		      struct receive_event *out)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;

	for (uint32_t m = 0; m < waiting->mate_count; m++) {
		if (!pairs_sees_end(simulation, worker, mate_peer(waiting, m)))
			continue;
		error_set(error, ERROR_PEER_LOST, "the process of %s has ended",
			  waiting->names[mate_peer(waiting, m)]);
		if (together_loses(simulation, index, mate_peer(waiting, m), error))
			continue;
		*out = (struct receive_event){
			.kind = RECEIVE_FAILED, .broken = true, .error = error};
		if (m == 0 && waiting->decided_for && waiting->receiver.phase == RECEIVE_PREPARED &&
		    decided_before(waiting))
			*out = (struct receive_event){.kind = RECEIVE_MET};
		return true;
	}
	return false;
}

/* ---- meeting ---- */

static struct commit_event arrival(const struct waiting *waiting, const struct receive_step *step)
{
	const struct receiver *receiver = &waiting->receiver;
	bool range = step->round == MEET_OPEN || !receiver->peer_count;

	return (struct commit_event){
		.kind = COMMIT_ARRIVES,
		.round = step->round,
		.arrive = {.min_version = range ? receiver->min_version : step->version,
			   .max_version = range ? receiver->max_version : step->version,
			   .closes = waiting->versions.copies == 1,
			   .writes = waiting->written},
	};
}

void meet_cannot(struct simulation *simulation, uint32_t index, uint64_t version, const char *why)
{
	struct receive_event out;
	struct error error;

	if (simulation->workers.items[index]->waiting->receiver.meets)
		run(simulation, index,
		    (struct commit_event){.kind = COMMIT_CANNOT, .version = version, .why = why},
		    &error, &out);
}

bool meet_looks(struct simulation *simulation, uint32_t index, const struct receive_step *step,
		struct error *error, struct receive_event *event)
{
	struct waiting *waiting = simulation->workers.items[index]->waiting;
	struct committer *committer = &waiting->committer;
	struct commit_event asks = {.kind = COMMIT_ASKS};
	bool there = committer->phase == COMMIT_MEETING && committer->round == step->round;

	if (step->round == MEET_OPEN && waiting->asks_anew) {
		waiting->asks_anew = waiting->opened = false;
		there = there && committer->own.min_version == waiting->receiver.min_version &&
			committer->own.max_version == waiting->receiver.max_version;
		if (committer->phase == COMMIT_BETWEEN ||
		    (committer->phase == COMMIT_MEETING && committer->round != MEET_OPEN))
			meet_cannot(simulation, index, committer->own.min_version,
				    "it waits for another version");
	}
	if (!there)
		waiting->arrived_at = simulation->now;
	if (!there && step->round == MEET_OPEN)
		memset(waiting->later, 0, sizeof(waiting->later));
	if (run(simulation, index, there ? asks : arrival(waiting, step), error, event) ||
	    listen(simulation, index, error, event))
		return true;
	if (meet_is_shown(waiting)) {
		*event = (struct receive_event){.kind = RECEIVE_MET};
		return true;
	}
	together_drops_late(simulation, index);
	return find_gone(simulation, index, error, event);
}

bool meet_hears(struct simulation *simulation, uint32_t index, struct error *error,
		struct receive_event *event)
{
	const struct worker *worker = simulation->workers.items[index];

	if (!worker->waiting->receiver.meets ||
	    (together_is_by_plan(worker) && !together_may_be_let_go(worker->waiting)))
		return false;
	return listen(simulation, index, error, event) ||
	       find_gone(simulation, index, error, event);
}
