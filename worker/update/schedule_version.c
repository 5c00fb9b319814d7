/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule_version.c -- a version from its begin to its end, seen from the trainer:
 *
 *   CLOSED ── begin: every target accepts ──► OPEN ── write, drain: any thread, many at once
 *     ▲                                        │
 *     └── every target is signalled ◄── ENDING ┘ end or abort, when nobody is inside
 *
 *   end      SUMS ─► TELL ─► SETTLE ─► FLUSH ─► SIGNAL      peer by peer in each phase: nobody
 *   abort                    SETTLE ─► FLUSH ─► SIGNAL      hears of the end before everything has
 *   drain    HALVES ─► SETTLE                               arrived everywhere, so an endpoint that
 *                                                           breaks leaves all targets on their last
 *                                                           version, not some of them
 */
#include "worker/update/schedule.h"

#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"
#include "worker/update/path.h"
#include <string.h>

#define NAMED_MAX 4 /* peers or tensors named in a message */

/* ---- begin ---- */

static bool permitted(const struct send_link *link)
{
	return link->accept.opening > link->used_opening;
}

static bool accepts(const struct send_link *link, uint64_t version)
{
	return link_out(link) || (permitted(link) && version >= link->accept.min_version &&
				  version <= link->accept.max_version);
}

bool schedule_accepts(const struct schedule *schedule, uint32_t peer, uint64_t version)
{
	return accepts(&schedule->links[peer], version);
}

static int begin_late(const struct schedule *schedule, const struct call *call)
{
	size_t peers = schedule->options.plan->peer_count, count = 0;
	struct text missing = {0}, paths = {0};
	int rc;

	for (size_t p = 0; p < peers; p++) {
		const struct send_link *link = &schedule->links[p];

		if (accepts(link, call->version) || ++count > NAMED_MAX)
			continue;
		if (schedule->options.peer_paths)
			path_add(&paths, schedule->options.peer_paths[p]);
		text_format(&missing, "%s%s", count > 1 ? ", " : "",
			    schedule->options.peer_names[p]);
		if (permitted(link))
			text_format(&missing, ", which accepts version %llu instead",
				    (unsigned long long)link->accept.max_version);
	}
	if (count > NAMED_MAX)
		text_format(&missing, " and %zu more", count - NAMED_MAX);
	rc = error_set(call->error, ERROR_TIMEOUT,
		       "update %llu: not accepted for %.1f s by %s; %zu of "
		       "%zu targets accept (none does while its post-load hook runs); raise the "
		       "update timeout (--update-timeout) if this is expected%s",
		       (unsigned long long)call->version, (double)schedule->options.begin_ns / 1e9,
		       text_string(&missing), peers - count, peers, text_string(&paths));
	text_fini(&paths);
	text_fini(&missing);
	return rc;
}

/* The next version starts with nothing submitted, packed or known. */
static int open_version(struct schedule *schedule, uint64_t version, struct error *error)
{
	const struct send_plan *plan = schedule->options.plan;
	int rc = schedule_open_windows(schedule, error);

	if (rc)
		return rc;
	WEFT_ASSERT_OP(schedule->state, ==, UPDATE_CLOSED);
	WEFT_ASSERT(version > schedule->last_version || version == schedule->repeat);
	WEFT_ASSERT(!schedule->calls && !schedule->writers);
	for (size_t p = 0; p < plan->peer_count; p++) {
		struct send_link *link = &schedule->links[p];

		if (!link->rests)
			link->used_opening = link->accept.opening;
		link->spared =
			link->accept.kind != ACCEPT_WRITES && link->accept.kind != ACCEPT_STAND_IN;
		link->released = link->accept.kind == ACCEPT_RELEASES;
	}
	schedule->repeat = 0;
	schedule->unsubmitted = 0;
	for (uint32_t t = 0; t < plan->tensor_count; t++) {
		schedule->submitted[t] = false;
		schedule->unsubmitted += send_plan_wants(plan, t);
	}
	memset(schedule->rows, 0, plan->row_count * sizeof(*schedule->rows));
	for (size_t s = 0; s < plan->source_count; s++)
		schedule->sources[s] =
			(struct source_state){plan->sources[s].parts, plan->sources[s].parts};
	memset(schedule->blocks, BLOCK_WAITING, plan->block_count);
	if (schedule->options.full)
		full_settle(&schedule->full);
	else if (plan->ring_bytes)
		replica_reset(&schedule->replica);
	schedule->state = UPDATE_OPEN;
	schedule->version = schedule->last_version = version;
	return 0;
}

static struct step begin(struct schedule *schedule, struct call *call, const struct event *event)
{
	/* nothing is decided before all have been heard */
	bool all = event->kind != EVENT_ACCEPTED;
	struct step wait = {.kind = STEP_WAIT, .wait = WAIT_ACCEPT, .until_ns = call->deadline_ns};

	if (!all)
		return wait;

	for (size_t p = 0; p < schedule->options.plan->peer_count; p++) {
		struct send_link *link = &schedule->links[p];

		/* it waits for a later one, and takes no part in what others lack, or has given this one up since a trainer
		 * is gone */
		if (permitted(link) && link->accept.min_version > call->version &&
		    (call->version == schedule->repeat || call->lacks_trainer))
			link->rests = true;
		all = all && accepts(link, call->version);
		if (link_out(link) || !permitted(link) || link->accept.min_version <= call->version)
			continue;
		error_set(call->error, ERROR_VERSION,
			  "update %llu: %s accepts version %llu and later only",
			  (unsigned long long)call->version, schedule->options.peer_names[p],
			  (unsigned long long)link->accept.min_version);
		return (struct step){.kind = STEP_FAIL};
	}
	if (all) {
		if (!open_version(schedule, call->version, call->error))
			return (struct step){.kind = STEP_DONE};
		schedule_fail(schedule, call->error);
		return (struct step){.kind = STEP_FAIL};
	}
	if (event->now_ns >= call->deadline_ns) {
		begin_late(schedule, call);
		return (struct step){.kind = STEP_FAIL};
	}
	return wait;
}

/* ---- drain, end, abort ---- */

enum phase {
	PHASE_HALVES,
	PHASE_SUMS,
	PHASE_TELL,
	PHASE_SETTLE,
	PHASE_FLUSH,
	PHASE_SIGNAL,
	PHASE_DONE
};

/* The phase of the call from that one on. */
static enum phase phase_from(enum call_kind kind, enum phase phase)
{
	static const bool skipped[][PHASE_DONE + 1] = {
		[CALL_DRAIN] = {[PHASE_SUMS] = true,
				[PHASE_TELL] = true,
				[PHASE_FLUSH] = true,
				[PHASE_SIGNAL] = true},
		[CALL_END] = {[PHASE_HALVES] = true},
		[CALL_ABORT] = {[PHASE_HALVES] = true, [PHASE_SUMS] = true, [PHASE_TELL] = true}};

	while (skipped[kind][phase])
		phase++;
	return phase;
}

/* What is transformed from two tensors can be in work in the call that brought the second one, long
 * after that of the first has returned. */
static bool halves_done(const struct schedule *schedule)
{
	const struct send_plan *plan = schedule->options.plan;

	for (size_t i = 0; i < plan->row_count; i++) {
		const struct send_source *source = &plan->sources[plan->rows[i].source];

		if (source->scales != NO_TENSOR && schedule->submitted[source->tensor] &&
		    schedule->submitted[source->scales] &&
		    (!schedule->rows[i].taken || schedule->rows[i].open))
			return false;
	}
	return true;
}

bool schedule_telling(const struct task *task)
{
	return task->own && task->own->kind != CALL_BEGIN && task->own->kind != CALL_WRITE &&
	       task->own->phase == PHASE_SIGNAL;
}

static struct step at_peer(enum step_kind kind, enum step_wait wait, const struct call *call)
{
	return (struct step){
		.kind = kind, .wait = wait, .peer = call->peer, .until_ns = call->deadline_ns};
}

/* The phase's step for call->peer; false: none is needed (any more). `answered`: the step before was
 * for this peer, and it was done. */
static bool peer_step(struct schedule *schedule, struct task *task, bool answered, uint64_t now_ns,
		      struct step *step)
{
	struct call *call = task->own;
	const struct send_window *window = &schedule->windows[call->peer];
	const struct send_link *link = &schedule->links[call->peer];

	switch ((enum phase)call->phase) {
	case PHASE_SUMS:
		*step = at_peer(STEP_POST, WAIT_CHANGE, call);
		step->sums = true;
		return !answered && !link->spared && schedule->options.sums;
	case PHASE_TELL:
		return !answered && !link->spared &&
		       schedule_tell(schedule, task, call->peer, call->deadline_ns, step);
	case PHASE_SETTLE:
		/* others may go on posting while one drains */
		if (!call->sampled)
			call->wanted = link->posted;
		call->sampled = true;
		*step = at_peer(STEP_WAIT, WAIT_WRITE, call);
		step->write = call->wanted;
		/* late: a flush says what is missing, and breaks the endpoint */
		if (now_ns >= call->deadline_ns)
			step->wait = WAIT_FLUSH;
		return schedule->done[call->peer] < call->wanted;
	case PHASE_FLUSH:
		*step = at_peer(STEP_WAIT, WAIT_FLUSH, call);
		return !answered;
	case PHASE_SIGNAL:
		WEFT_ASSERT_OP(schedule->done[call->peer], >=, link->posted);
		*step = at_peer(STEP_SIGNAL, WAIT_CHANGE, call);
		step->abort = call->kind == CALL_ABORT || link->spared;
		step->entries = window->told;
		step->beside_bytes = window->beside_bytes;
		WEFT_ASSERT(step->abort || link->spared || !window->ring.bytes ||
			    window->told == window->ring.next - window->first_id);
		return !answered;
	case PHASE_HALVES:
	case PHASE_DONE:
		break;
	}
	return false;
}

/* The event by which a phase's step for a peer is done; 0, which is none of these: it looks at the state. */
static const enum event_kind answers[PHASE_DONE + 1] = {[PHASE_SUMS] = EVENT_POSTED,
							[PHASE_TELL] = EVENT_TOLD,
							[PHASE_FLUSH] = EVENT_COMPLETED,
							[PHASE_SIGNAL] = EVENT_SIGNALLED};
_Static_assert(EVENT_ASK == 0, "no event answers a phase that looks at the state");

/* Every row was taken, packed, and is in nobody's hands; every write of it is complete. */
static bool all_sent(const struct schedule *schedule)
{
	const struct send_plan *plan = schedule->options.plan;

	for (size_t i = 0; i < plan->row_count; i++)
		if (!schedule->rows[i].taken || schedule->rows[i].open)
			return false;
	for (size_t s = 0; s < plan->source_count; s++)
		if (schedule->sources[s].unsent)
			return false;
	for (size_t p = 0; p < plan->peer_count; p++)
		if (schedule->done[p] < schedule->links[p].posted)
			return false;
	return true;
}

static struct step closed(struct schedule *schedule, const struct call *call)
{
	if (call->kind == CALL_DRAIN)
		return (struct step){.kind = STEP_DONE};
	WEFT_ASSERT_OP(schedule->state, ==, UPDATE_ENDING);
	WEFT_ASSERT(!schedule->writers && !schedule->calls);
	WEFT_ASSERT(call->kind != CALL_END || all_sent(schedule));
	if (call->kind == CALL_END && schedule->options.full)
		schedule->whole_version = schedule->version;
	if (call->kind == CALL_END)
		schedule->ended_version = schedule->version;
	schedule->state = UPDATE_CLOSED;
	return (struct step){.kind = STEP_DONE};
}

static struct step close_version(struct schedule *schedule, struct task *task,
				 const struct event *event)
{
	struct call *call = task->own;
	bool answered = event->kind == answers[call->phase] && answers[call->phase];
	struct step step;

	if (task->stage == TASK_TAKE) {
		/* an end that was interrupted tells again what it may not have told */
		if (call->kind == CALL_END)
			schedule_untell(schedule);
		call->phase = phase_from(call->kind, PHASE_HALVES);
		task->stage = TASK_ROOM; /* of such a call: under way */
		answered = false;
	}
	if (call->phase == PHASE_HALVES && !halves_done(schedule))
		return (struct step){.kind = STEP_WAIT, .wait = WAIT_CHANGE};
	while (call->phase != PHASE_DONE) {
		for (;
		     call->phase != PHASE_HALVES && call->peer < schedule->options.plan->peer_count;
		     call->peer++, answered = call->sampled = false)
			if (!link_out(&schedule->links[call->peer]) &&
			    peer_step(schedule, task, answered, event->now_ns, &step))
				return step;
		if (call->phase == PHASE_HALVES) /* which had no deadline of ours */
			call->deadline_ns = event->now_ns + schedule->options.wait_ns;
		call->phase = phase_from(call->kind, (enum phase)(call->phase + 1));
		call->peer = 0;
	}
	return closed(schedule, call);
}

struct step schedule_version_next(struct schedule *schedule, struct task *task,
				  const struct event *event)
{
	if (schedule->failed) {
		*task->own->error = schedule->error;
		return (struct step){.kind = STEP_FAIL};
	}
	return task->own->kind == CALL_BEGIN ? begin(schedule, task->own, event)
					     : close_version(schedule, task, event);
}

/* ---- checks ---- */

static int check_failed(const struct schedule *schedule, struct error *error)
{
	if (!schedule->failed)
		return 0;
	*error = schedule->error;
	return -(int)error->code;
}

uint64_t schedule_repeats(const struct schedule *schedule)
{
	bool any = false,
	     none = true; /* who serves none of them says what the others say, and sends nothing */

	for (size_t p = 0; p < schedule->options.plan->peer_count && schedule->repeat; p++) {
		any = any || (schedule->links[p].lacks && !schedule->links[p].gone);
		none = none && !schedule->links[p].lacks;
	}
	return any || none ? schedule->repeat : 0;
}

int schedule_check_begin(const struct schedule *schedule, uint64_t version, struct error *error)
{
	int rc = check_failed(schedule, error);

	if (rc)
		return rc;
	if (schedule->state != UPDATE_CLOSED)
		return error_set(error, ERROR_STATE,
				 "update %llu is still open; end or abort it before update %llu",
				 (unsigned long long)schedule->version,
				 (unsigned long long)version);
	if (version != schedule->repeat && schedule_repeats(schedule))
		return error_set(error, ERROR_STATE,
				 "update %llu: version %llu is to be sent once more first, to an "
				 "engine that lacks it and waits for it (weft_update_repeat)",
				 (unsigned long long)version, (unsigned long long)schedule->repeat);
	if (version <= schedule->last_version && version != schedule->repeat)
		return error_set(error, ERROR_VERSION,
				 "update %llu: versions grow, and the last one begun here was %llu",
				 (unsigned long long)version,
				 (unsigned long long)schedule->last_version);
	return 0;
}

/* A failure closes the update, a moment before the worker is known to have failed. */
int schedule_check_open(const struct schedule *schedule, const char *call, struct error *error)
{
	int rc = check_failed(schedule, error);

	if (rc || schedule->state == UPDATE_OPEN)
		return rc;
	if (schedule->state == UPDATE_ENDING)
		return error_set(error, ERROR_STATE, "%s: update %llu is being ended", call,
				 (unsigned long long)schedule->version);
	return error_set(error, ERROR_STATE, "%s: no update is open; call weft_update_begin first",
			 call);
}

int schedule_check_end(const struct schedule *schedule, const char *call, struct error *error)
{
	int rc = schedule_check_open(schedule, call, error);

	if (rc || !schedule->writers)
		return rc;
	return error_set(
		error, ERROR_STATE,
		"%s: %u calls are still writing update %llu; end it when they have returned", call,
		schedule->writers, (unsigned long long)schedule->version);
}

int schedule_check_whole(const struct schedule *schedule, struct error *error)
{
	const struct send_plan *plan = schedule->options.plan;
	size_t missing = schedule->unsubmitted, named = 0;
	struct text names = {0};
	int rc;

	if (!missing)
		return 0;
	for (uint32_t t = 0; t < plan->tensor_count && named < NAMED_MAX; t++)
		if (send_plan_wants(plan, t) && !schedule->submitted[t])
			text_format(&names, "%s%s", named++ ? ", " : "",
				    schedule->options.tensor_names[t]);
	rc = error_set(error, ERROR_STATE,
		       "update %llu cannot end: tensor%s %.700s%s not written (%zu missing)",
		       (unsigned long long)schedule->version, missing > 1 ? "s" : "",
		       text_string(&names),
		       missing > named ? " and others were"
		       : named > 1     ? " were"
				       : " was",
		       missing);
	text_fini(&names);
	return rc;
}

int schedule_check_halves(const struct schedule *schedule, struct error *error)
{
	const struct send_plan *plan = schedule->options.plan;

	for (size_t s = 0; s < plan->source_count; s++) {
		const struct send_source *source = &plan->sources[s];
		bool data = schedule->submitted[source->tensor];

		if (source->scales == NO_TENSOR || data == schedule->submitted[source->scales])
			continue;
		return error_set(
			error, ERROR_STATE,
			"weft_update_drain: tensor %s was written, but what is made from "
			"it needs %s too; write that first",
			schedule->options.tensor_names[data ? source->tensor : source->scales],
			schedule->options.tensor_names[data ? source->scales : source->tensor]);
	}
	return 0;
}

int schedule_check_replay(const struct schedule *schedule, struct error *error)
{
	const struct send_plan *plan = schedule->options.plan;

	if (!schedule->options.full)
		return error_set(error, ERROR_STATE,
				 "weft_update_replay: the ring keeps no version; open the worker "
				 "with replica \"full\"");
	if (!schedule->whole_version)
		return error_set(
			error, ERROR_STATE,
			"weft_update_replay: the replica holds no whole version: none was ended, "
			"or a later update that was not ended has written into it");
	for (size_t s = 0; s < plan->source_count; s++) {
		const struct full_place *home = &schedule->full.places[s];

		if (schedule->full.groups[home->group].shared)
			return error_set(error, ERROR_STATE,
					 "weft_update_replay: parameter %u, made from tensor %s, "
					 "differs between the inference ranks that this trainer "
					 "writes to, so its home keeps the last one's bytes only; "
					 "write the tensors again",
					 home->param,
					 schedule->options.tensor_names[plan->sources[s].tensor]);
	}
	return 0;
}

void schedule_rest(struct schedule *schedule, uint64_t version)
{
	bool repeats = schedule->repeat && version == schedule->repeat;

	for (size_t p = 0; p < schedule->options.plan->peer_count; p++)
		schedule->links[p].rests = repeats && !schedule->links[p].lacks;
}

void schedule_submit(struct schedule *schedule, uint32_t tensor)
{
	WEFT_ASSERT(!schedule->submitted[tensor]);
	WEFT_ASSERT_OP(schedule->unsubmitted, >, 0);
	schedule->submitted[tensor] = true;
	schedule->unsubmitted--;
}

/* ---- life ---- */

int schedule_open(struct schedule *schedule, const struct schedule_options *options,
		  struct error *error)
{
	const struct send_plan *plan = options->plan;
	struct pool *pool = &schedule->pool;
	int rc;

	*schedule = (struct schedule){.options = *options, .cursors = 1};
	/* with homes one cursor: who waits for a turn waits for parts that were taken before his own */
	if (options->parallel && !options->full && plan->posts && plan->peer_count > 1)
		schedule->cursors =
			plan->peer_count < CURSORS_MAX ? (uint32_t)plan->peer_count : CURSORS_MAX;
	schedule->submitted = pool_array(pool, plan->tensor_count, sizeof(*schedule->submitted));
	schedule->rows = pool_array(pool, plan->row_count, sizeof(*schedule->rows));
	schedule->sources = pool_array(pool, plan->source_count, sizeof(*schedule->sources));
	schedule->blocks = pool_array(pool, plan->block_count, sizeof(*schedule->blocks));
	schedule->links = pool_array(pool, plan->peer_count, sizeof(*schedule->links));
	schedule->done = pool_array(pool, plan->peer_count, sizeof(*schedule->done));
	if (!pool_ok(pool))
		return memory_error(error, "preparing updates",
				    plan->row_count * sizeof(*schedule->rows));
	rc = schedule_make_windows(schedule, error);
	if (rc)
		return rc;
	if (options->full)
		return full_begin(&schedule->full, &plan->homes, error);
	return plan->ring_bytes ? replica_open(&schedule->replica, options->ring, plan->ring_bytes,
					       plan->block_count, error)
				: 0;
}

void schedule_close(struct schedule *schedule)
{
	schedule_close_windows(schedule);
	pool_free(&schedule->pool);
	replica_close(&schedule->replica);
	full_close(&schedule->full);
	memset(schedule, 0, sizeof(*schedule));
}
