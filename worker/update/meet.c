/* SPDX-License-Identifier: Apache-2.0
 *
 * meet.c -- an inference rank and those that it agrees with on what they show: does what commit.h says, by signals and by
 * the word that they all look at.
 *
 *   the word of who decides     looked at by itself, and by ranks that have it mapped: one store shows a version on all
 *   a rank's own word           looked at where it has not, and where it decides for others in its turn; who decides
 *                               writes it before its RELEASE, over the same path, and behind it its complement
 *   none                        where only ranks of other engines are mates, in a job that goes on without some: each engine shows
 *                               what its own ranks do, and who comes in shows nothing yet
 */
#include "worker/update/wait.h"

#include "base/clock.h"
#include "base/log.h"
#include "worker/update/update_payload.h"

#include <string.h>

#define LAST_WORDS_MS 1000u
#define SLEEP_NS      50000u

static _Atomic uint64_t *own_word(const struct waiter *waiter)
{
	return transport_region_memory(waiter->epoch->word);
}

static void store_word(const struct waiter *waiter, uint64_t version)
{
	_Atomic uint64_t *word = own_word(waiter);

	atomic_store(&word[0], version);
	atomic_store(&word[1], ~version);
}

static struct peer *mate_of(const struct waiter *waiter, uint32_t m)
{
	return &waiter->epoch->mates[waiter->mates_from + m];
}

/* Some mate looks at the same word, or at the one that is stored with it. */
static bool shares_word(const struct waiter *waiter)
{
	const struct epoch *epoch = waiter->epoch;

	for (size_t m = 0; m < epoch->mate_count; m++)
		if (waiter_shares_word(waiter, &epoch->mates[m]))
			return true;
	return false;
}

const struct peer *waiter_leader(const struct waiter *waiter)
{
	const struct peer *decider = epoch_decider(waiter->epoch);

	return decider && waiter->epoch->mate_count == 1 && waiter_shares_word(waiter, decider)
		       ? decider
		       : NULL;
}

/* That one has its word mapped here, or NULL. */
static const _Atomic uint64_t *mapped_word(const struct waiter *waiter)
{
	const struct peer *decider = waiter_leader(waiter);

	return decider ? transport_remote_pointer(peer_remote(decider, 0)) : NULL;
}

/* Who decides for this rank writes its word: others look at none of it, and it at none of another's. */
static bool is_written(const struct waiter *waiter)
{
	return waiter_leader(waiter) && !mapped_word(waiter) && !waiter->versions->by_host;
}

int waiter_meets_open(struct waiter *waiter, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	size_t count = epoch->mate_count;
	const _Atomic uint64_t *word;

	if (!count)
		return 0;
	waiter->mates = pool_array(&waiter->pool, count, sizeof(*waiter->mates));
	waiter->mates_seen = pool_array(&waiter->pool, count, sizeof(*waiter->mates_seen));
	waiter->mates_later = pool_array(&waiter->pool, count, sizeof(*waiter->mates_later));
	waiter->mates_written = pool_array(&waiter->pool, count, sizeof(*waiter->mates_written));
	if (!pool_ok(&waiter->pool))
		return memory_error(error, "preparing updates", count * sizeof(*waiter->mates));
	for (size_t m = 0; m < count; m++) {
		waiter->mates[m].name = epoch->mates[m].name;
		waiter->mates_seen[m] = epoch->mates[m].heard;
	}
	committer_init(&waiter->committer, waiter->mates + waiter->mates_from,
		       (uint32_t)waiter->mates_count,
		       waiter->mates_count &&
			       mate_of(waiter, 0)->plan->member.rank < epoch->options.self.rank);
	/* Ranks that have this rank's word mapped have heard the plan by now, and hide by themselves: a rank connects when all its
	 * peers have told their endpoints of the same plan. */
	if (atomic_load(&waiter->versions->hidden))
		store_word(waiter, atomic_load(&waiter->versions->published));
	word = mapped_word(waiter);
	if (!waiter->versions->by_host && shares_word(waiter))
		versions_follow(waiter->versions, word ? word : own_word(waiter),
				is_written(waiter));
	return 0;
}

void waiter_meets_close(struct waiter *waiter)
{
	if (!waiter->receiver.meets || waiter->versions->by_host)
		return;
	atomic_store(&waiter->versions->published, versions_published(waiter->versions));
	versions_follow(waiter->versions, NULL, false);
}

static int write_word(struct waiter *waiter, const struct peer *mate, uint64_t version,
		      uint64_t until_ns, struct error *error)
{
	unsigned char *out = (unsigned char *)own_word(waiter) + WORD_OUT_AT;

	memcpy(out, (uint64_t[]){version, ~version}, WORD_BYTES);
	return transport_write(mate->endpoint, out, waiter->epoch->word, peer_remote(mate, 0), 0,
			       WORD_BYTES, until_ns, error);
}

static bool is_led(const struct waiter *waiter, const struct peer *mate)
{
	return waiter_shares_word(waiter, mate) && mate != epoch_decider(waiter->epoch);
}

static int wait_written(const struct peer *mate, uint64_t writes, uint64_t until_ns,
			struct error *error)
{
	uint64_t done = 0;
	int rc;

	/* no wait of the transport's, which the host's interrupt would cut, and with it the endpoint */
	while (!(rc = transport_progress(mate->endpoint, &done, error)) && done < writes) {
		if (clock_ns() >= until_ns)
			return error_set(error, ERROR_TIMEOUT,
					 "it has not taken what is shown in %u ms", LAST_WORDS_MS);
		clock_sleep_ns(SLEEP_NS);
	}
	return rc;
}

/* A rank that cannot be told would be left at another version than the rest: its engine leaves. */
static void lose_led(struct waiter *waiter, const struct peer *mate, const struct error *why,
		     uint64_t version)
{
	log_warn("%s was not told that update %llu is shown: %s", mate->name,
		 (unsigned long long)version, why->text);
	control_drop(waiter->health->control, mate->plan->member, why, version);
}

bool waiter_shows(struct waiter *waiter, uint64_t version)
{
	const struct epoch *epoch = waiter->epoch;
	uint64_t until_ns = clock_deadline_ns(LAST_WORDS_MS);
	struct error error;

	if (waiter->versions->by_host)
		return true;
	if (waiter_leader(waiter))
		return versions_shown(waiter->versions) == version;
	for (size_t m = 0; m < epoch->mate_count; m++) {
		const struct peer *mate = &epoch->mates[m];

		waiter->mates_written[m] = 0;
		if (!is_led(waiter, mate))
			continue;
		if (transport_progress(mate->endpoint, &waiter->mates_written[m], &error) ||
		    write_word(waiter, mate, version, until_ns, &error))
			lose_led(waiter, mate, &error, version);
		else
			waiter->mates_written[m]++;
	}
	store_word(waiter, version);
	for (size_t m = 0; m < epoch->mate_count; m++)
		if (waiter->mates_written[m] &&
		    wait_written(&epoch->mates[m], waiter->mates_written[m], until_ns, &error))
			lose_led(waiter, &epoch->mates[m], &error, version);
	return true;
}

bool waiter_hides(const struct waiter *waiter, uint64_t version)
{
	uint64_t shown;

	return !waiter->versions->by_host && shares_word(waiter) &&
	       !(versions_begin(waiter->versions, &shown) && shown == version);
}

bool waiter_is_shown(struct waiter *waiter)
{
	struct committer *committer = &waiter->committer;

	if (waiter->receiver.phase != RECEIVE_PREPARED || committer->phase != COMMIT_MEETING ||
	    committer->round != MEET_PUBLISH || !committer->decided_for ||
	    committer->link_count > 1 ||
	    versions_shown(waiter->versions) != committer->own.min_version)
		return false;
	commit_shown(committer);
	return true;
}

bool waiter_is_let_go(struct waiter *waiter)
{
	struct receive_event event;
	struct error error;

	return waiter->receiver.phase == RECEIVE_PREPARED &&
	       waiter->committer.phase == COMMIT_MEETING &&
	       waiter_hear_mates(waiter, &error, &event) && event.kind == RECEIVE_MET;
}

/* ---- saying ---- */

/* Its word before its release, where it looks at its own. */
static int release(struct waiter *waiter, const struct commit_step *step, uint64_t until_ns,
		   struct error *error)
{
	const struct peer *mate = mate_of(waiter, step->link);
	int rc = step->writes ? write_word(waiter, mate, step->word, until_ns, error) : 0;

	return rc ? rc
		  : transport_signal(mate->endpoint, UPDATE_RELEASE, &waiter->committer.release,
				     sizeof(waiter->committer.release), until_ns, error);
}

static int say(struct waiter *waiter, const struct commit_step *step, uint64_t until_ns,
	       struct error *error)
{
	const struct committer *committer = &waiter->committer;
	struct transport_endpoint *endpoint = mate_of(waiter, step->link)->endpoint;

	if (step->kind == COMMIT_TELL)
		return transport_signal(endpoint, UPDATE_ARRIVE, &committer->all,
					sizeof(committer->all), until_ns, error);
	if (step->kind == COMMIT_RELEASE)
		return release(waiter, step, until_ns, error);
	return transport_signal(endpoint, UPDATE_GIVE_UP, &committer->given_up,
				sizeof(committer->given_up), until_ns, error);
}

/* A rank that cannot be told of what was decided is gone, or as good as gone: the others are told all the same. */
static bool may_be_unheard(const struct waiter *waiter, const struct commit_step *step)
{
	return step->kind == COMMIT_SAY ||
	       (step->kind == COMMIT_RELEASE && waiter->committer.round == MEET_PUBLISH);
}

/* ---- hearing ---- */

static bool read_mate(struct waiter *waiter, uint32_t m, struct commit_event *event,
		      struct error *error)
{
	uint64_t *seen = &waiter->mates_seen[waiter->mates_from + m];
	bool decides = m == 0 && waiter->committer.decided_for;
	struct transport_signal signal;
	struct update_meet meet;

	error->code = ERROR_NONE;
	if (transport_signal_read(mate_of(waiter, m)->endpoint, &signal) ||
	    signal.sequence == *seen)
		return false;
	*seen = signal.sequence;
	if (update_read_meet(&signal, mate_of(waiter, m)->name, decides, &meet, error))
		return true;
	if (meet.tag == UPDATE_LATER) {
		if (meet.later.turn == waiter->committer.links[m].turn)
			waiter->mates_later[waiter->mates_from + m] = clock_ns();
		return false;
	}
	*event = (struct commit_event){.kind = COMMIT_HEARS,
				       .link = m,
				       .tag = meet.tag,
				       .arrive = meet.arrive,
				       .release = meet.release,
				       .give_up = meet.give_up};
	return true;
}

/* True: somebody said something, or with an error, something that is wrong. */
static bool hear(struct waiter *waiter, struct commit_event *event, struct error *error)
{
	for (uint32_t m = 0; m < waiter->mates_count; m++)
		if (read_mate(waiter, m, event, error))
			return true;
	return false;
}

bool waiter_loses_leader(struct waiter *waiter, struct error *error, struct receive_event *out)
{
	if (!waiter_leader(waiter) || waiter->versions->by_host ||
	    !peer_check_alive(&waiter->epoch->mates[0], error))
		return false;
	if (waiter_sees_promised(waiter))
		*out = (struct receive_event){.kind = RECEIVE_MET};
	else
		*out = (struct receive_event){
			.kind = RECEIVE_FAILED, .broken = true, .error = error};
	return true;
}

/* Others may show what was decided, and this rank would not see that. Who decides for the first rank of an engine of a job that goes on
 * decides nothing alone: what is shown the plan says then. */
static bool may_miss_decision(const struct waiter *waiter)
{
	return waiter->mates_count && receive_promised(&waiter->receiver) &&
	       waiter->committer.decided_for && !waiter->versions->by_host &&
	       !mapped_word(waiter) && !waiter_sees_promised(waiter) &&
	       (waiter->committer.told || waiter->holds) &&
	       (!waiter->epoch->plan->together || waiter_shares_word(waiter, mate_of(waiter, 0)));
}

/* Who decides for this rank, or for that one. Or this rank is, for the others: what was written may not have reached it. */
static bool decider_is_lost(const struct waiter *waiter)
{
	const struct message_plan *plan = waiter->epoch->plan;
	const struct peer *decider = mate_of(waiter, 0);
	struct control *control = waiter->health->control;
	struct error error;

	if (peer_check_alive(decider, &error))
		return true;
	return control &&
	       (control_blames(control, decider->plan->member) ||
		control_blames(control, waiter->epoch->options.self) ||
		(!plan->together && plan->decider &&
		 control_blames(control, (struct member){ROLE_INFERENCE, plan->decider - 1})));
}

void waiter_ends(struct waiter *waiter)
{
	if (waiter->receiver.meets && may_miss_decision(waiter) && decider_is_lost(waiter))
		store_word(waiter, 0);
}

static bool find_gone(struct waiter *waiter, struct commit_event *event, struct error *error,
		      struct receive_event *out)
{
	for (uint32_t m = 0; m < waiter->mates_count; m++) {
		if (!peer_check_alive(mate_of(waiter, m), error))
			continue;
		/* its last word may have come after we looked */
		if (read_mate(waiter, m, event, error))
			return error->code != ERROR_NONE;
		peer_check_alive(mate_of(waiter, m), error);
		if (waiter_loses_mate(waiter, mate_of(waiter, m), error))
			continue;
		*out = (struct receive_event){.kind = RECEIVE_FAILED, .broken = true};
		if (m == 0 && waiter->committer.decided_for &&
		    waiter->receiver.phase == RECEIVE_PREPARED && waiter_is_shown(waiter))
			*out = (struct receive_event){.kind = RECEIVE_MET};
		return true;
	}
	return false;
}

/* ---- meeting ---- */

/* From the event on, as long as there is something to do. True: *out. */
static bool run(struct waiter *waiter, struct commit_event event, uint64_t until_ns,
		struct error *error, struct receive_event *out)
{
	struct committer *committer = &waiter->committer;

	for (;;) {
		struct commit_step step = commit_next(committer, &event);
		struct error unheard;
		int rc;

		event = (struct commit_event){.kind = COMMIT_ASKS};
		switch (step.kind) {
		case COMMIT_WAIT:
			return false;
		case COMMIT_STORE:
			store_word(waiter, step.word);
			break;
		case COMMIT_MET:
			*out = (struct receive_event){.kind = RECEIVE_MET,
						      .min_version = committer->release.min_version,
						      .max_version = committer->release.max_version,
						      .now_ns = clock_ns()};
			return true;
		case COMMIT_FAIL:
			*error = committer->error;
			*out = (struct receive_event){.kind = RECEIVE_FAILED};
			return true;
		case COMMIT_TELL:
		case COMMIT_RELEASE:
		case COMMIT_SAY:
			rc = say(waiter, &step, until_ns, &unheard);
			if (rc && may_be_unheard(waiter, &step)) {
				log_warn("%s was not told: %s", mate_of(waiter, step.link)->name,
					 unheard.text);
			} else if (rc && !waiter_loses_mate(waiter, mate_of(waiter, step.link),
							    &unheard)) {
				*error = unheard;
				*out = (struct receive_event){.kind = RECEIVE_FAILED,
							      .broken = true};
				return true;
			}
			break;
		}
	}
}

/* What all have said, up to what ends a wait. */
static bool listen(struct waiter *waiter, uint64_t until_ns, struct error *error,
		   struct receive_event *out)
{
	struct commit_event event;

	while (hear(waiter, &event, error)) {
		if (error->code != ERROR_NONE) {
			*out = (struct receive_event){.kind = RECEIVE_FAILED, .broken = true};
			return true;
		}
		if (run(waiter, event, until_ns, error, out))
			return true;
	}
	return false;
}

static struct commit_event arrival(struct waiter *waiter, const struct receive_step *step)
{
	const struct receiver *receiver = &waiter->receiver;
	const struct params *params = waiter->epoch->options.params;
	bool range = step->round == MEET_OPEN ||
		     !receiver->peer_count; /* whom nobody writes to has any of them */

	return (struct commit_event){
		.kind = COMMIT_ARRIVES,
		.round = step->round,
		.arrive = {.min_version = range ? receiver->min_version : step->version,
			   .max_version = range ? receiver->max_version : step->version,
			   .closes = params->copies == 1 && !params->landing,
			   .writes = is_written(waiter),
			   .by_host = waiter->versions->by_host},
	};
}

void waiter_cannot(struct waiter *waiter, uint64_t version, const char *why)
{
	struct receive_event out;
	struct error error;

	if (waiter->receiver.meets)
		run(waiter,
		    (struct commit_event){.kind = COMMIT_CANNOT, .version = version, .why = why},
		    clock_deadline_ns(LAST_WORDS_MS), &error, &out);
}

bool waiter_meet(struct waiter *waiter, const struct receive_step *step, struct error *error,
		 struct receive_event *event)
{
	struct commit_event asks = {.kind = COMMIT_ASKS};
	struct committer *committer = &waiter->committer;
	bool there = committer->phase == COMMIT_MEETING && committer->round == step->round;

	if (step->round == MEET_OPEN && waiter->asks_anew) {
		waiter->asks_anew = waiter->opened = false;
		/* else it may be let go any time, with what it had asked for */
		there = there && committer->own.min_version == waiter->receiver.min_version &&
			committer->own.max_version == waiter->receiver.max_version;
		if (committer->phase == COMMIT_BETWEEN ||
		    (committer->phase == COMMIT_MEETING && committer->round != MEET_OPEN))
			waiter_cannot(waiter, committer->own.min_version,
				      "it waits for another version");
	}
	if (!there)
		waiter->arrived_ns = clock_ns();
	if (!there && step->round == MEET_OPEN) /* another turn */
		memset(waiter->mates_later, 0,
		       waiter->epoch->mate_count * sizeof(*waiter->mates_later));
	if (run(waiter, there ? asks : arrival(waiter, step), step->until_ns, error, event) ||
	    listen(waiter, step->until_ns, error, event))
		return true;
	if (waiter_is_shown(waiter)) {
		*event = (struct receive_event){.kind = RECEIVE_MET};
		return true;
	}
	if (health_check(waiter->health, error)) {
		*event = (struct receive_event){.kind = RECEIVE_FAILED};
		return true;
	}
	waiter_drop_late(waiter);
	return find_gone(waiter, &asks, error, event);
}

bool waiter_hear_mates(struct waiter *waiter, struct error *error, struct receive_event *event)
{
	struct commit_event asks;
	bool ends;

	if (!waiter->receiver.meets || (waiter_is_by_plan(waiter) && !waiter_may_be_let_go(waiter)))
		return false;
	ends = listen(waiter, clock_deadline_ns(LAST_WORDS_MS), error, event) ||
	       find_gone(waiter, &asks, error, event);
	event->error = error;
	return ends;
}
