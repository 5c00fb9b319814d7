/* SPDX-License-Identifier: Apache-2.0
 *
 * executor.c -- one thread and its task: ask the schedule, do it, tell it.
 */
#include "worker/update/executor.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/copy.h"
#include "worker/update/traced.h"
#include "worker/update/update_payload.h"

#include <sched.h>
#include <stdio.h>

#define SPINS_BEFORE_SLEEP 1000

void executor_pause(struct sender *sender)
{
	uint64_t until = clock_deadline_ns(WAIT_SLICE_MS);
	struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
			      .tv_nsec = (long)(until % 1000000000u)};

	pthread_cond_timedwait(&sender->changed, &sender->lock, &at);
}

pthread_mutex_t *executor_wire(struct sender *sender, uint32_t peer)
{
	return &sender->wire[sender->wire_of[peer]];
}

/* ---- looking up ---- */

static void *slot_or_home(struct sender *sender, uint32_t index, uint32_t part)
{
	const struct send_plan *plan = &sender->epoch->send;
	const struct send_source *source = &plan->sources[index];
	uint64_t from;

	source_part(source, part, &from);
	if (plan->full)
		return (unsigned char *)transport_region_memory(plan->replica_region) +
		       plan->homes.places[index].at + from;
	return source->slots ? replica_find(&sender->schedule.replica, source->first_block + part)
			     : NULL;
}

static void look_up_post(struct sender *sender, const struct step *step, struct doing *doing)
{
	const struct send_plan *plan = &sender->epoch->send;
	const struct send_source *source = &plan->sources[step->source];

	doing->rows = NULL;
	if (step->run) {
		doing->from = sender->sent.coded + step->run->at;
		doing->bytes = step->run->bytes;
		return;
	}
	doing->bytes = source_part(source, step->part, &doing->offset);
	doing->region = plan->replica_region;
	if (plan->full || (source->slots && plan->rows[step->row].path == PATH_REPLICA)) {
		doing->from = slot_or_home(sender, step->source, step->part);
		WEFT_ASSERT(doing->from);
	} else if (source->follows) {
		doing->from = plan->scratch + source->scratch + doing->offset;
		doing->region = plan->scratch_region;
	} else {
		const unsigned char *first = (const unsigned char *)sender->data[source->tensor] +
					     source->pack.runs.offset;
		const struct range *range =
			ranges_find(sender->epoch->options.ranges, first, source->pack.bytes);

		doing->rows = source->gathers ? source : NULL;
		doing->from = doing->rows ? first : first + doing->offset;
		doing->region = range ? range->region : NULL;
	}
	if (!step->lands)
		return;
	if (!doing->rows)
		doing->from += step->from - doing->offset;
	doing->offset = step->from;
	doing->bytes = step->bytes;
}

static void look_up(struct sender *sender, const struct step *step, struct doing *doing)
{
	if (step->kind == STEP_POST && !step->sums)
		look_up_post(sender, step, doing);
	if (step->kind != STEP_PACK)
		return;
	if (!step->group)
		doing->into.memory[0] = slot_or_home(sender, step->source, step->part);
	for (uint32_t i = 0; i < step->group; i++)
		doing->into.memory[i] = slot_or_home(sender, step->group_first + i, step->part);
}

/* ---- doing, with no lock held ---- */

static int write_bytes(struct sender *sender, const struct step *step, const struct doing *doing,
		       uint64_t *number, struct error *error)
{
	const struct peer *peer = &sender->epoch->peers[step->peer];
	uint64_t deadline_ns = clock_deadline_ns(executor_wait_ms(sender));
	struct transport_rows rows;
	struct send_target place;
	int rc = executor_place(sender, step, doing, &place, error);

	if (!rc && doing->rows) {
		rows = (struct transport_rows){doing->from, doing->rows->pack.runs.row_bytes,
					       doing->rows->pack.runs.stride_bytes};
		rc = transport_write_rows(peer->endpoint, &rows, doing->offset, place.remote,
					  place.offset, doing->bytes, deadline_ns, error);
	} else if (!rc) {
		rc = transport_write(peer->endpoint, doing->from, doing->region, place.remote,
				     place.offset, doing->bytes, deadline_ns, error);
	}
	if (!rc)
		*number = ++sender->writes[step->peer];
	return rc;
}

static int post(struct sender *sender, const struct step *step, struct doing *doing,
		struct event *event, struct error *error)
{
	const struct epoch *epoch = sender->epoch;
	int rc = 0;

	event->kind = EVENT_POSTED;
	if (executor_is_spared(sender, step->peer, &event->released)) {
		event->kind = EVENT_SPARED;
		return 0;
	}
	if (step->sums) {
		const struct peer *peer = &epoch->peers[step->peer];

		doing->rows = NULL;
		doing->from = (const unsigned char *)(epoch->send.sums + peer->first_piece);
		doing->region = epoch->send.sums_region;
		doing->offset = 0;
		doing->bytes = peer->plan->pieces * sizeof(uint64_t);
		if (!doing->bytes)
			return 0;
	}
	/* an interrupt wakes the one call that is blocked, not those that waited behind it; and
	 * where that call failed, nobody waits for his own deadline too */
	if (sender->failed || health_check(sender->health, error))
		event->kind = EVENT_ASK; /* and the loop looks at why */
	else if (step->merges)
		event->write = executor_merge(sender, step, doing);
	else
		rc = write_bytes(sender, step, doing, &event->write, error);
	/* where a post is the copy itself: another thread will send the signal */
	copy_fence();
	return rc;
}

static int signal_peer(struct sender *sender, const struct step *step, struct event *event,
		       struct error *error)
{
	const struct peer *peer = &sender->epoch->peers[step->peer];
	uint64_t opening = sender->schedule.links[step->peer].used_opening;
	struct update_end end = {
		.opening = opening,
		.version = sender->schedule.version,
		.plan = sender->epoch->plan->digest,
		.bytes = peer->plan->bytes,
		.pieces = peer->plan->pieces,
		.sums = sender->epoch->sums ? peer->plan->pieces : 0,
		.landed = step->entries,
		.beside_bytes = step->beside_bytes,
	};
	struct update_abort gone = {.opening = opening, .version = end.version};

	if (step->tells)
		return executor_tell(sender, step, event, error);
	event->kind = EVENT_SIGNALLED;
	snprintf(gone.why, sizeof(gone.why), "%s",
		 sender->schedule.links[step->peer].spared ? "others send it" : sender->why);
	return step->abort ? transport_signal(peer->endpoint, UPDATE_ABORT, &gone, sizeof(gone),
					      step->until_ns, error)
			   : transport_signal(peer->endpoint, UPDATE_END, &end, sizeof(end),
					      step->until_ns, error);
}

static int wait_writes(struct sender *sender, const struct step *step, struct event *event,
		       struct error *error)
{
	const struct peer *peer = &sender->epoch->peers[step->peer];
	int rc;

	event->kind = EVENT_COMPLETED;
	if (step->wait == WAIT_FLUSH) {
		event->write = sender->writes[step->peer];
		return transport_flush(peer->endpoint, step->until_ns, error);
	}
	rc = peer_progress(peer, &event->write, error);
	return rc || event->write >= step->write ? rc : peer_check_alive(peer, error);
}

static void relax(uint32_t spins)
{
	if (spins >= SPINS_BEFORE_SLEEP)
		clock_sleep_ms(1);
	else if (spins % 16 == 15)
		sched_yield();
}

static struct event act(struct sender *sender, const struct step *step, struct doing *doing,
			struct error *error)
{
	struct event event = {.peer = step->peer, .error = error};
	struct activity_board *board = &sender->health->activity;
	pthread_mutex_t *wire = executor_wire(sender, step->peer);
	uint64_t begin_ns = 0;
	bool waits;
	int rc;

	if (step->kind == STEP_PACK) {
		begin_ns = traced_now(sender->epoch);
		rc = executor_pack(sender, step, &doing->into, error);
		if (!rc)
			traced_pack(sender, step, begin_ns);
		event.kind = rc ? EVENT_FAILED : EVENT_PACKED;
		return event;
	}
	pthread_mutex_lock(wire);
	begin_ns = traced_now(sender->epoch);
	activity_at(board, sender->epoch->peers[step->peer].plan->member);
	rc = step->kind == STEP_POST	 ? post(sender, step, doing, &event, error)
	     : step->kind == STEP_SIGNAL ? signal_peer(sender, step, &event, error)
	     : step->wait == WAIT_TAKEN	 ? executor_taken(sender, step, &event, error)
					 : wait_writes(sender, step, &event, error);
	if (!rc && step->kind != STEP_POST)
		traced_wire(sender, step, begin_ns);
	else if (!rc && event.kind == EVENT_POSTED && doing->bytes)
		traced_post(sender, step, doing, begin_ns);
	pthread_mutex_unlock(wire);
	waits = !rc && (event.kind == EVENT_ASK || event.write < step->write);
	activity_past(board, !waits);
	if (rc)
		event.kind = EVENT_FAILED;
	else if (waits)
		relax(doing->spins++);
	return event;
}

/* ---- the loop ---- */

/* The host's interrupt ends a call that is not in the middle of writing or telling, and breaks nothing. */
static bool only_ends(const struct sender *sender, const struct task *task,
		      const struct error *error)
{
	return error->code == ERROR_INTERRUPTED && task->own && task->own->kind != CALL_WRITE &&
	       !control_failed(sender->health->control);
}

static struct step next(struct sender *sender, struct task *task, struct event *event,
			const struct step *last)
{
	struct schedule *schedule = &sender->schedule;
	/* who has nothing to do fails for nobody; who tells targets tells them all */
	bool idle = !task->own && task->stage == TASK_TAKE && !schedule->calls;
	struct step step;
	struct error error;

	executor_hear_gone(sender);
	if (!idle && !schedule->failed && !schedule_telling(task) &&
	    health_check(sender->health, &error)) {
		if (only_ends(sender, task, &error)) {
			if (event->kind != EVENT_FAILED)
				schedule_note(schedule, task, event);
			*task->own->error = error;
			return (struct step){.kind = STEP_FAIL};
		}
		schedule_fail(schedule, &error); /* what happened is noted all the same */
	}
	event->now_ns = clock_ns();
	step = schedule_next(schedule, task, event);
	if (event->kind == EVENT_PACKED)
		executor_sum(sender, last);
	executor_show_bytes(sender);
	if (schedule->failed)
		sender->failed = true;
	if (schedule->changed)
		pthread_cond_broadcast(&sender->changed);
	schedule->changed = false;
	return step;
}

int executor_go(struct sender *sender, struct task *task)
{
	struct event event = {.kind = EVENT_ASK};
	struct doing doing = {0};
	struct step last = {0};
	struct error error;

	for (;;) {
		struct step step = next(sender, task, &event, &last);

		last = step;
		event = (struct event){.kind = EVENT_ASK};
		if (step.kind == STEP_DONE)
			return 0;
		if (step.kind == STEP_FAIL)
			return -(int)task->own->error->code;
		if (step.kind == STEP_WAIT && step.wait == WAIT_CHANGE) {
			executor_pause(sender);
			continue;
		}
		if (step.kind == STEP_WAIT && step.wait == WAIT_WORK) {
			if (sender->stop)
				return 0;
			pthread_cond_wait(&sender->work, &sender->lock);
			continue;
		}
		if (schedule_for_nobody(&sender->schedule, &step, &event))
			continue;
		if (step.kind == STEP_DROP) { /* it is refused only where the next step fails */
			executor_drop(sender, step.peer, &sender->schedule.late);
			continue;
		}
		if (step.kind != STEP_WAIT)
			doing.spins = 0;
		look_up(sender, &step, &doing);
		pthread_mutex_unlock(&sender->lock);
		event = act(sender, &step, &doing, &error);
		pthread_mutex_lock(&sender->lock);
		if (event.kind == EVENT_FAILED && step.kind != STEP_PACK &&
		    executor_drop(sender, step.peer, &error))
			schedule_for_nobody(&sender->schedule, &step, &event);
	}
}

int executor_run(struct sender *sender, struct call *call)
{
	struct task task;

	task_init(&task, call);
	if (call->shared && sender->shares && sender->thread_count) {
		struct call **last = &sender->schedule.calls;

		while (*last)
			last = &(*last)->next;
		*last = call;
		pthread_cond_broadcast(&sender->work);
	}
	return executor_go(sender, &task);
}
