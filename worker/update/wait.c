/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c -- one wait of an inference rank, step by step.
 */
#include "worker/update/wait.h"

#include "base/assert.h"
#include "base/clock.h"
#include "worker/update/traced.h"
#include "worker/update/update_payload.h"

#include <string.h>

/* From here on trainers may be told that they may write. */
static void open_memory(struct waiter *waiter)
{
	waiter->copy = versions_spare(waiter->versions);
	waiter->installing = false;
	waiter->opened = true;
	waiter->paused_ns = clock_ns();
	if (!waiter->epoch->options.params->landing)
		versions_open(waiter->versions, waiter->copy);
}

/* ---- what is heard ---- */

struct heard {
	struct update_end end;
	struct update_abort gone;
	struct update_landed landed;
	struct error error;
};

/* A new signal of the peer as an event: 1. ends: not of what landed. */
static int read_signal(struct waiter *waiter, uint32_t p, bool ends, struct heard *heard,
		       struct receive_event *event)
{
	const struct receive_link *link = &waiter->now->links[p];
	const struct update_pair pair = {.name = waiter->now->peers[p].name,
					 .opening = link->outstanding ? link->opening : 0};
	struct transport_signal signal;

	if (link->gone || transport_signal_read(waiter->now->from[p].endpoint, &signal) != 0 ||
	    signal.sequence == waiter->now->seen[p] || (ends && signal.tag == UPDATE_LANDED))
		return 0;
	waiter->now->seen[p] = signal.sequence;
	if (waiter_hears_no_copy(waiter, &signal)) {
		*event = (struct receive_event){.kind = RECEIVE_GONE, .peer = p};
		return 1;
	}
	*event = (struct receive_event){.kind = RECEIVE_SIGNAL,
					.peer = p,
					.heard_ns = clock_ns(),
					.end = &heard->end,
					.gone = &heard->gone,
					.landed = &heard->landed,
					.error = &heard->error};
	if (update_read_use(&signal, &pair, &event->word, &heard->end, &heard->gone, &heard->landed,
			    &heard->error))
		event->kind = RECEIVE_FAILED;
	else if (event->word == UPDATE_END)
		traced_word(waiter, p, "end", heard->end.version, heard->end.bytes);
	/* all ends that came were read before, so the deadline may pass */
	else if (event->word == UPDATE_LANDED)
		event->now_ns = clock_ns();
	return 1;
}

/* A trainer that is gone without having ended, after its last signal was read: 1. */
static int find_gone(struct waiter *waiter, struct heard *heard, struct receive_event *event)
{
	bool broken;

	waiter_hear_gone(waiter);
	for (uint32_t p = 0; p < waiter->now->count; p++) {
		/* of one that has ended the bytes are here, and only the controller knows better */
		if (waiter->now->links[p].gone ||
		    (waiter->now->links[p].ended && !waiter->now->from[p].gone) ||
		    !waiter_misses(waiter, p, &broken, &heard->error))
			continue;
		/* its last signal may have come after we looked */
		if (read_signal(waiter, p, false, heard, event))
			return 1;
		*event = (struct receive_event){
			.kind = RECEIVE_GONE, .peer = p, .broken = broken, .error = &heard->error};
		return 1;
	}
	return 0;
}

/* A mate has stopped for a pause. What this rank has of the version a trainer sent who is gone, and the others have not begun it:
 * it comes again, or a later one does. */
static bool only_pauses(struct waiter *waiter, struct receive_event *event)
{
	uint64_t *version = &waiter->committer.given_up.version;

	if (event->kind != RECEIVE_FAILED || event->broken || *version != GIVE_UP_PAUSES)
		return false;
	*version = 0;
	waiter->started_over = true;
	receive_start_over(&waiter->receiver);
	*event = (struct receive_event){.kind = RECEIVE_ASKS};
	return true;
}

static bool hear_mates(struct waiter *waiter, struct heard *heard, struct receive_event *event)
{
	return waiter_hear_mates(waiter, &heard->error, event) && !only_pauses(waiter, event);
}

/* What was heard: a signal first, for what is complete is published even when the job ends now. False:
 * nothing. */
static bool listen(struct waiter *waiter, struct heard *heard, struct receive_event *event)
{
	uint32_t count = (uint32_t)waiter->now->count;

	/* in turn, so that a trainer that says much does not keep the others from being heard */
	for (uint32_t i = 1; i <= 2 * count; i++)
		if (read_signal(waiter, (waiter->heard + i) % count, i <= count, heard, event)) {
			waiter->heard = event->peer;
			return true;
		}
	if (!health_check(waiter->health, &heard->error))
		return find_gone(waiter, heard, event) || hear_mates(waiter, heard, event);
	*event = (struct receive_event){.kind = RECEIVE_FAILED, .error = &heard->error};
	return true;
}

static void sleep_until(struct waiter *waiter, const struct receive_step *step)
{
	uint64_t slice = clock_deadline_ns(WAIT_SLICE_MS), until_ns = step->until_ns;

	waiter_show_whom(waiter, step);
	waiter_push(waiter);
	waiter_excuse(waiter);
	waiter->signals = transport_signal_wait(waiter->epoch->options.domain, waiter->signals,
						slice < until_ns ? slice : until_ns);
}

/* ---- what is done ---- */

int post_load_outside(const struct post_load *load, const char *call, struct error *error)
{
	if (!load->running)
		return 0;
	return error_set(error, ERROR_STATE,
			 "%s is not possible inside the post-load hook, which weft_update_wait "
			 "waits for",
			 call);
}

static int run_hook(struct waiter *waiter, uint64_t version, struct error *error)
{
	struct post_load *load = &waiter->post_load;
	uint64_t begin = clock_ns();
	int answer = 0;

	if (load->hook) {
		load->running = true;
		answer = load->hook(load->context, version);
		load->running = false;
	}
	waiter->stats.post_load_ns = clock_ns() - begin;
	if (load->hook)
		traced_receiving(waiter, "post_load", version, begin);
	if (!answer)
		return 0;
	return error_set(error, ERROR_POST_LOAD,
			 "update %llu: the post-load hook returned %d; all bytes had arrived, the "
			 "version is not published",
			 (unsigned long long)version, answer);
}

/* From where it landed to where it is read, and only now readers lose their version. */
static int install(struct waiter *waiter, uint64_t version, struct error *error)
{
	struct params *params = waiter->epoch->options.params;
	int rc = 0;

	if (params->landing) {
		waiter->installing = true;
		waiter->paused_ns = clock_ns();
		versions_open(waiter->versions, waiter->copy);
		rc = params_commit(params, clock_deadline_ns(waiter->epoch->wait_ms), error);
	}
	if (rc)
		return error_wrap(
			error, "update %llu: all bytes had arrived, the version is not published",
			(unsigned long long)version);
	return run_hook(waiter, version, error);
}

static void count_clocks(struct waiter *waiter)
{
	const struct params *params = waiter->epoch->options.params;
	uint64_t now = clock_ns();

	waiter->stats.update_ns = now - waiter->receiver.began_ns;
	waiter->stats.install_ns = now - waiter->installs_ns;
	waiter->stats.pause_ns = params->copies > 1 ? 0 : now - waiter->paused_ns;
}

static void tell_published(struct waiter *waiter, uint64_t version)
{
	waiter_tell_device(waiter, version);
	control_version(waiter->health->control, version);
	watch_tell(waiter->watch);
}

/* Or all but the last store, which is the host's to order. */
static void publish(struct waiter *waiter, uint64_t version)
{
	waiter->opened = false;
	waiter->stats.updates++;
	for (size_t p = 0; p < waiter->now->count; p++)
		waiter->stats.bytes += waiter->now->from[p].plan->bytes;
	count_clocks(waiter);
	traced_published(waiter, version);
	if (!waiter->copies) /* of which trainers know nothing */
		waiter_base_note(waiter, version);
	if (waiter->versions->by_host) {
		versions_prepare(waiter->versions, waiter->copy, version);
		waiter->versions->prepared = version;
		return;
	}
	versions_publish(waiter->versions, waiter->copy, version);
	tell_published(waiter, version);
}

int waiter_commit(struct waiter *waiter, uint64_t version, struct error *error)
{
	struct versions *versions = waiter->versions;

	if (version && version == versions->prepared) {
		versions_commit(versions);
		tell_published(waiter, version);
		return 0;
	}
	if (version && version == versions_published(versions))
		return 0;
	if (versions->prepared)
		return error_set(error, ERROR_STATE,
				 "weft_commit_at: update %llu is not prepared here, but %llu is",
				 (unsigned long long)version,
				 (unsigned long long)versions->prepared);
	return error_set(
		error, ERROR_STATE,
		"weft_commit_at: update %llu is not prepared here, and no other is: weft_update_wait "
		"prepares one when it answers 0",
		(unsigned long long)version);
}

/* Until the host has said when: nothing else can begin. */
static int wait_prepared(const struct waiter *waiter, uint64_t version, uint64_t *published,
			 struct error *error)
{
	uint64_t prepared = waiter->versions->prepared;

	if (version != prepared)
		return error_set(error, ERROR_STATE,
				 "update %llu is prepared here and not shown: weft_commit_at shows "
				 "it, and then the next one can be waited for",
				 (unsigned long long)prepared);
	if (published)
		*published = prepared;
	return 0;
}

static bool says_accept(const struct receive_step *step)
{
	return step->kind == RECEIVE_ACCEPT || step->kind == RECEIVE_ASK ||
	       step->kind == RECEIVE_SPARE || step->kind == RECEIVE_RELEASE;
}

/* Not of this rank's device, which puts in place what landed. */
static bool is_the_peers(struct waiter *waiter, const struct receive_step *step)
{
	struct error error;
	bool broken;

	return says_accept(step) ||
	       (step->kind == RECEIVE_TAKE && !waiter->now->links[step->peer].ending &&
		(waiter->untold || waiter_misses(waiter, step->peer, &broken, &error)));
}

/* --on-miss leave: all came from trainers, and this rank makes no version of it. */
static bool leaves(const struct waiter *waiter, const struct error *error)
{
	return waiter->epoch->plan->misses_leave && !waiter->copies &&
	       error->code != ERROR_TIMEOUT && error->code != ERROR_INTERRUPTED &&
	       error->code != ERROR_ABORTED;
}

static struct receive_event act(struct waiter *waiter, const struct receive_step *step,
				struct heard *heard)
{
	struct receive_event event = {.kind = RECEIVE_ASKS, .error = &heard->error};
	int rc;

	if (says_accept(step)) {
		rc = waiter_accept(waiter, step, &heard->error);
		if (!rc && step->kind == RECEIVE_ACCEPT)
			traced_word(waiter, step->peer, "accept", waiter->receiver.wanted, 0);
		event.broken = rc != 0;
	} else if (step->kind == RECEIVE_TAKE) {
		rc = waiter_take(waiter, step->peer, step->until_ns, &event.broken, &heard->error);
		event.kind = RECEIVE_TAKEN;
		event.peer = step->peer;
		event.entries = waiter->now->taking[step->peer].entries;
		event.bytes = waiter->now->taking[step->peer].bytes;
		if (!rc)
			waiter_forget(waiter, step->peer);
	} else if (step->kind == RECEIVE_VERIFY) {
		waiter->installs_ns = clock_ns();
		waiter->stats.wait_ns = waiter->installs_ns - waiter->receiver.began_ns;
		rc = waiter_verify(waiter, step->version, &heard->error);
		event.broken = rc && leaves(waiter, &heard->error);
	} else {
		WEFT_ASSERT_OP(step->kind, ==, RECEIVE_LOAD);
		rc = install(waiter, step->version, &heard->error);
		event.broken = rc && leaves(waiter, &heard->error);
	}
	if (rc && event.broken && is_the_peers(waiter, step) &&
	    !waiter_fails_by(waiter, &waiter->now->from[step->peer], &heard->error))
		return (struct receive_event){.kind = RECEIVE_GONE, .peer = step->peer};
	if (rc)
		event.kind = RECEIVE_FAILED;
	return event;
}

uint64_t waiter_next(const struct waiter *waiter)
{
	uint64_t shown = versions_published(waiter->versions), past = waiter->receiver.past;

	return (past > shown ? past : shown) + 1;
}

/* ---- the call ---- */

/* What is staged has touched nothing that is read, up to its installation. */
static void taint(struct waiter *waiter)
{
	if (!waiter->epoch->options.params->landing || waiter->installing)
		versions_fail(waiter->versions, waiter->copy);
}

void waiter_lost(struct waiter *waiter)
{
	if (!waiter->epoch) /* between two plans nothing is open */
		return;
	waiter_ends(waiter);
	if (waiter->receiver.phase != RECEIVE_CLOSED &&
	    waiter->receiver.phase != RECEIVE_PREPARED && waiter->opened)
		taint(waiter);
}

static int give_up(struct waiter *waiter, const struct receive_step *step, struct error *error)
{
	uint64_t gave_up = waiter->committer.given_up.version;

	*error = waiter->receiver.error;
	if (!step->broken && error->code == ERROR_ABORTED && gave_up != GIVE_UP_PAUSES &&
	    gave_up > waiter->mates_past)
		waiter->mates_past = gave_up;
	if (!waiter->stats.wait_ns)
		waiter->stats.wait_ns = clock_ns() - waiter->receiver.began_ns;
	if (waiter->receiver.phase == RECEIVE_PREPARED && !step->broken)
		return -(int)error->code; /* all of it is here, and it may be shown yet */
	traced_given_up(waiter, error->text);
	waiter_release_all(waiter);
	/* that the job is over, or this worker, the controller tells everybody */
	if (!step->broken && !waiter->health->failed && error->code != ERROR_TIMEOUT &&
	    error->code != ERROR_INTERRUPTED)
		waiter_cannot(waiter, waiter->receiver.past, error->text);
	if (waiter->opened)
		taint(waiter);
	if (step->broken)
		return health_fail(waiter->health, error, waiter->receiver.wanted);
	return -(int)error->code;
}

/* A try that the host interrupts goes on with its clock. */
static bool only_interrupted(const struct waiter *waiter, const struct receive_event *event)
{
	return event->kind == RECEIVE_FAILED && !event->broken &&
	       event->error->code == ERROR_INTERRUPTED && !waiter->health->failed;
}

/* An engine is gone: what trainers have begun is waited for, whoever is there, and shown if the next plan says so. */
static bool meet_nobody(struct waiter *waiter, const struct receive_step *step, bool shown,
			struct receive_event *event)
{
	const struct receiver *receiver = &waiter->receiver;

	if ((step->round == MEET_PUBLISH && !shown) ||
	    (step->round == MEET_OPEN && !waiter_has_begun(waiter, receiver->min_version)))
		return false;
	*event = (struct receive_event){.kind = RECEIVE_MET,
					.min_version = receiver->min_version,
					.max_version = receiver->max_version,
					.now_ns = clock_ns()};
	if (step->round == MEET_OPEN)
		open_memory(waiter);
	return true;
}

static bool ends_by_plan(struct waiter *waiter, const struct receive_step *step,
			 struct heard *heard, struct receive_event *event)
{
	if (health_check(waiter->health, &heard->error)) {
		*event = (struct receive_event){.kind = RECEIVE_FAILED, .error = &heard->error};
		return true;
	}
	return step->round == MEET_PUBLISH && waiter_loses_leader(waiter, &heard->error, event);
}

static bool meet(struct waiter *waiter, const struct receive_step *step, struct heard *heard,
		 struct receive_event *event)
{
	bool by_plan = waiter_is_by_plan(waiter), shown;

	if (step->round == MEET_PUBLISH)
		versions_prepare(waiter->versions, waiter->copy, step->version);
	shown = by_plan && step->round == MEET_PUBLISH && waiter_promises(waiter, step->version);
	if (by_plan && !waiter_may_be_let_go(waiter))
		return meet_nobody(waiter, step, shown, event) ||
		       ends_by_plan(waiter, step, heard, event);
	if (step->round != MEET_OPEN && waiter->committer.phase == COMMIT_IDLE) {
		/* a mate has given up, and that was heard outside of a wait */
		heard->error = waiter->committer.error;
		*event = (struct receive_event){.kind = RECEIVE_FAILED, .error = &heard->error};
		return true;
	}
	if (!waiter_meet(waiter, step, &heard->error, event) || only_pauses(waiter, event))
		return false;
	event->error = &heard->error;
	if (event->kind == RECEIVE_MET && step->round == MEET_OPEN) {
		waiter->started_over = false;
		open_memory(waiter);
	}
	return true;
}

static struct receive_event late(struct waiter *waiter, const struct receive_step *step,
				 struct heard *heard)
{
	struct text missing = {0}, update = {0};

	if (step->version)
		text_format(&update, "update %llu", (unsigned long long)step->version);
	else
		text_add(&update, "the next update");
	waiter_missing(waiter, &missing);
	error_set(
		&heard->error, ERROR_TIMEOUT,
		"%s: %s after %.1f s; raise the update timeout (--update-timeout) if this is expected",
		text_string(&update), text_string(&missing),
		(double)(waiter->receiver.deadline_ns - waiter->receiver.began_ns) / 1e9);
	text_fini(&missing);
	text_fini(&update);
	return (struct receive_event){.kind = RECEIVE_FAILED, .error = &heard->error};
}

/* The job is to make a pause, and of what is waited for nothing is on its way: what trainers have ended, up to that version, is
 * published or past. */
bool waiter_pauses(struct waiter *waiter, uint64_t version)
{
	const struct receiver *receiver = &waiter->receiver;
	struct control *control = waiter->health->control;
	uint64_t ended, done = versions_published(waiter->versions);

	if (!control || !control_pause(control, &ended))
		return false;
	if (receiver->phase > RECEIVE_COUNTING)
		return receiver->phase == RECEIVE_PREPARED && waiter_is_by_plan(waiter) &&
		       !waiter_is_to_show(waiter);
	done = receiver->past > done ? receiver->past : done;
	/* a trainer is gone, and the others have begun that version: it does not come by this plan, whatever this rank has heard of it */
	if (waiter->mates_past > done && waiter->mates_past <= control_over(control))
		done = waiter->mates_past;
	return done >= ended || version > ended;
}

/* All who were to send this version here are gone, or what they had ended is forgotten, and the others are past it. */
static bool never_comes(struct waiter *waiter, struct heard *heard, struct receive_event *event)
{
	struct receiver *receiver = &waiter->receiver;
	struct control *control = waiter->health->control;
	uint64_t version = receiver->min_version;

	if (!control || version > control_over(control) ||
	    !(waiter->started_over || receive_is_alone(receiver)))
		return false;
	receiver->past = version > receiver->past ? version : receiver->past;
	error_set(&heard->error, ERROR_ABORTED,
		  "update %llu was given up: trainers that were to send it have left the job",
		  (unsigned long long)version);
	*event = (struct receive_event){.kind = RECEIVE_FAILED, .error = &heard->error};
	return true;
}

/* What a trainer who is gone had begun lies there in part, if it wrote here. Whoever it had told of the end of it has all, and
 * shall not wait for this rank. */
static int stop(struct waiter *waiter)
{
	bool by_plan = waiter_is_by_plan(waiter);

	waiter_release_all(waiter);
	waiter_push_out(waiter, true);
	waiter->holds = by_plan && waiter->receiver.phase == RECEIVE_PREPARED;
	if (waiter->holds || !control_lacks_trainer(waiter->health->control))
		return WAITER_PAUSES;
	if (!by_plan)
		waiter_cannot(waiter, GIVE_UP_PAUSES, "a trainer has left the job");
	/* while it meets at OPEN, what is open is an earlier version's: promised, or tainted by itself */
	if (waiter->opened && waiter->receiver.phase != RECEIVE_JOINING &&
	    waiter_lacks_peer(waiter))
		taint(waiter);
	return WAITER_PAUSES;
}

static int try_again(struct waiter *waiter, const struct receive_step *step)
{
	waiter_show_whom(waiter, step);
	waiter_push(waiter);
	waiter_excuse(waiter);
	return WEFT_AGAIN;
}

/* From the event on, to the end or, where it does not block, to where it would sleep. */
static int run(struct waiter *waiter, struct receive_event event, bool block, struct error *error)
{
	struct heard heard;

	for (;;) {
		struct receive_step step;

		if (event.kind == RECEIVE_FAILED && (event.broken || waiter->health->failed))
			waiter_ends(waiter);
		step = receive_next(&waiter->receiver, &event);
		waiter_show(waiter, &step);
		/* without the time, so that no deadline passes before all that came was heard */
		event = (struct receive_event){.kind = RECEIVE_ASKS};
		if (step.kind == RECEIVE_FAIL)
			return give_up(waiter, &step, error);
		if (step.kind == RECEIVE_PUBLISH) {
			publish(waiter, step.version);
			waiter_push_out(waiter, false);
			return 0;
		}
		if (step.kind == RECEIVE_MEET && waiter_pauses(waiter, waiter->receiver.wanted))
			return stop(waiter);
		if (step.kind != RECEIVE_WAIT && step.kind != RECEIVE_MEET)
			event = act(waiter, &step, &heard);
		else if (step.kind == RECEIVE_MEET && waiter->started_over && !waiter->copies &&
			 never_comes(waiter, &heard, &event))
			;
		else if (step.kind == RECEIVE_MEET && meet(waiter, &step, &heard, &event))
			;
		else if (step.kind == RECEIVE_MEET && clock_ns() >= step.until_ns)
			event = late(waiter, &step, &heard);
		else if (step.kind == RECEIVE_MEET && block)
			sleep_until(waiter, &step);
		else if (step.kind == RECEIVE_MEET)
			return try_again(waiter, &step);
		else if (listen(waiter, &heard, &event))
			;
		else if (waiter_pauses(waiter, waiter->receiver.wanted))
			return stop(waiter);
		else if (waiter->copies ? waiter_copy_never_comes(waiter, &heard.error, &event)
					: never_comes(waiter, &heard, &event))
			;
		else if (clock_ns() >= step.until_ns)
			event.now_ns = clock_ns();
		else if (!block)
			return try_again(waiter, &step);
		else
			sleep_until(waiter, &step);
		if (block || !only_interrupted(waiter, &event))
			continue;
		*error = heard.error;
		return -(int)ERROR_INTERRUPTED;
	}
}

static struct receive_event opens(struct waiter *waiter, uint64_t version, uint32_t timeout_ms)
{
	uint64_t deadline = clock_deadline_ns(timeout_ms ? timeout_ms : waiter->epoch->wait_ms);

	waiter->stats.wait_ns = waiter->stats.verify_ns = waiter->stats.post_load_ns = 0;
	waiter->asks_anew = true;
	waiter->started_over = false;
	if (!waiter->receiver.meets) /* else when all of them are there */
		open_memory(waiter);
	watch_deadline(waiter->watch, deadline);
	return (struct receive_event){
		.kind = RECEIVE_OPENS,
		.version = version,
		.published = versions_published(waiter->versions),
		.now_ns = clock_ns(),
		.deadline_ns = deadline,
	};
}

/* What an earlier wait has promised is shown by now, or, by_host, is every rank's to show: that one has ended well. */
static bool keeps_promise(struct waiter *waiter, struct error *error)
{
	if (!(waiter->versions->by_host ? waiter_is_let_go(waiter) : waiter_is_shown(waiter)) &&
	    !(waiter_is_by_plan(waiter) && waiter_sees_promised(waiter)))
		return false;
	run(waiter, (struct receive_event){.kind = RECEIVE_MET}, false, error);
	waiter->unfinished = false;
	watch_deadline(waiter->watch, 0);
	return true;
}

void waiter_settle(struct waiter *waiter, const struct message_plan *plan)
{
	uint64_t version = waiter->epoch ? receive_promised(&waiter->receiver) : 0;
	struct receive_event given_up = {.kind = RECEIVE_FAILED};
	struct error why;

	if (!version || !waiter->epoch->plan->together)
		return;
	given_up.error = &why;
	error_set(&why, ERROR_ABORTED,
		  "update %llu was given up: an engine has left the job, and not all others have "
		  "all of it",
		  (unsigned long long)version);
	if (version == plan->shows || version == versions_published(waiter->versions)) {
		versions_hide(waiter->versions, waiter_hides(waiter, version));
		run(waiter, (struct receive_event){.kind = RECEIVE_MET}, false, &why);
		waiter->settled = version;
		waiter->unfinished = false;
		watch_deadline(waiter->watch, 0);
		return;
	}
	receive_next(&waiter->receiver, &given_up);
	taint(waiter);
}

static int wait_once(struct waiter *waiter, uint64_t version, uint32_t timeout_ms, bool block,
		     uint64_t *published, struct error *error)
{
	/* what is promised the next plan settles, whatever the host asks for meanwhile */
	uint64_t asked = waiter_promised(waiter) && waiter_is_by_plan(waiter) ? 0 : version;
	bool tried = waiter->receiver.phase != RECEIVE_CLOSED &&
		     (waiter->receiver.wanted == version || asked != version);
	struct receive_event event = {.kind = RECEIVE_ASKS};
	bool done = false;
	int rc;

	watch_drain(waiter->watch);
	if (keeps_promise(waiter, error)) {
		if (!version) /* it is the next one */
			version = waiter->versions->by_host
					  ? waiter->versions->prepared
					  : atomic_load(&waiter->versions->published);
		tried = false;
	}
	if (waiter->versions->prepared)
		return wait_prepared(waiter, version, published, error);
	rc = receive_check(&waiter->receiver, version, versions_published(waiter->versions),
			   atomic_load(&waiter->versions->tainted), &done, error);
	if (!rc && !done && !receive_goes_on(&waiter->receiver, asked))
		rc = waiter_clear(waiter, version, timeout_ms, block, error);
	if (rc == WAITER_PAUSES)
		return stop(waiter);
	if (!rc && !done && waiter->receiver.phase == RECEIVE_CLOSED &&
	    waiter_pauses(waiter, version))
		return stop(waiter);
	if (!rc && !done) {
		if (block || !tried)
			event = opens(waiter, asked, timeout_ms);
		rc = run(waiter, event, block, error);
		waiter->unfinished = rc != 0;
		if (waiter->receiver.phase == RECEIVE_CLOSED)
			watch_deadline(waiter->watch, 0);
	}
	if (!rc && !done && version && !waiter->versions->prepared &&
	    versions_published(waiter->versions) < version)
		return wait_once(waiter, version, timeout_ms, block, published, error);
	if (!rc && published)
		*published = waiter->versions->prepared ? waiter->versions->prepared
							: versions_published(waiter->versions);
	return rc;
}

int waiter_wait(struct waiter *waiter, uint64_t version, uint32_t timeout_ms, bool block,
		uint64_t *published, struct error *error)
{
	int rc = waiter_begin_copy(waiter, version, block, error);

	if (!rc)
		waiter_meet_all(waiter, version);
	return rc ? rc : wait_once(waiter, version, timeout_ms, block, published, error);
}
