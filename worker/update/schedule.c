/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c -- the way of one part of one row, in the order in which it is gone:
 *
 *   ring    TAKE ─► ROOM: its slot, found or taken ─► PACK, once for all rows ─► POST, this row
 *   full    TAKE ─► ROOM: its source's turn at home ─► PACK ─► POST, every row of the source
 *
 * What needs no packing has its room at once. Scales that are packed along with their values follow
 * when the last part of these is gone: the same task goes their rows.
 */
#include "worker/update/schedule.h"

#include "base/assert.h"
#include "worker/update/path.h"

#include <string.h>

void task_init(struct task *task, struct call *call)
{
	*task = (struct task){.own = call, .call = call, .follower = NO_SOURCE};
}

void call_init(struct call *call, enum call_kind kind, uint64_t deadline_ns, struct error *error)
{
	*call = (struct call){.kind = kind, .deadline_ns = deadline_ns, .error = error};
}

static struct step wait_change(void)
{
	return (struct step){.kind = STEP_WAIT, .wait = WAIT_CHANGE};
}

void schedule_fail(struct schedule *schedule, const struct error *error)
{
	if (schedule->failed)
		return;
	schedule->error = *error;
	schedule->failed = schedule->changed = true;
}

static uint32_t block_of(const struct schedule *schedule, const struct task *task)
{
	return schedule->options.plan->sources[task->source].first_block + task->part;
}

static struct replica_slot *slot_of(struct schedule *schedule, const struct task *task)
{
	return replica_slot(&schedule->replica, block_of(schedule, task));
}

/* ---- room ---- */

struct step schedule_late(struct schedule *schedule, uint32_t peer, const struct error *late)
{
	if (!schedule->options.drops) {
		schedule_fail(schedule, late);
		return (struct step){.kind = STEP_WAIT, .wait = WAIT_CHANGE}; /* not looked at */
	}
	schedule->late = *late;
	return (struct step){.kind = STEP_DROP, .peer = peer};
}

/* A write that is not complete by the deadline never will be. */
static struct step wait_write(struct schedule *schedule, struct task *task, uint32_t peer,
			      uint64_t write, uint64_t now_ns)
{
	struct text path = {0};
	struct error late;

	if (!task->deadline_ns || task->late_peer != peer || task->late_write != write) {
		task->deadline_ns = now_ns + schedule->options.wait_ns;
		task->late_peer = peer;
		task->late_write = write;
	}
	if (now_ns >= task->deadline_ns) {
		if (schedule->options.peer_paths)
			path_add(&path, schedule->options.peer_paths[peer]);
		error_set(&late, ERROR_TIMEOUT,
			  "write %llu to %s is not complete after %.1f s; %llu are; raise the "
			  "update timeout (--update-timeout) if this is expected%s",
			  (unsigned long long)write, schedule->options.peer_names[peer],
			  (double)schedule->options.wait_ns / 1e9,
			  (unsigned long long)schedule->done[peer], text_string(&path));
		text_fini(&path);
		return schedule_late(schedule, peer, &late);
	}
	return (struct step){.kind = STEP_WAIT,
			     .wait = WAIT_WRITE,
			     .peer = peer,
			     .write = write,
			     .until_ns = task->deadline_ns};
}

/* The part's slot: there, or taken now for who packs it. False: *step waits for one. */
static bool find_slot(struct schedule *schedule, struct task *task, uint64_t now_ns,
		      struct step *step)
{
	const struct send_source *source = &schedule->options.plan->sources[task->source];
	struct replica *replica = &schedule->replica;
	uint32_t block = block_of(schedule, task), peer;
	uint64_t from, bytes = source_part(source, task->part, &from), write;
	bool packed = !task->first && schedule->blocks[block] == BLOCK_PACKED;
	bool found = packed && replica_find(replica, block);

	WEFT_ASSERT(!task->held);
	if (found && replica_slot(replica, block)->packed) {
		replica_slot(replica, block)->holders++;
		task->held = true;
		task->stage = TASK_POST;
		return true;
	}
	*step = wait_change();
	if (found || (!task->first && !packed))
		return false; /* another task packs it */
	while (!replica_take(replica, block, bytes))
		switch (replica_make_room(replica, schedule->done, &peer, &write)) {
		case REPLICA_FREED:
			break;
		case REPLICA_HELD:
			return false;
		case REPLICA_WRITTEN:
			*step = wait_write(schedule, task, peer, write, now_ns);
			return false;
		}
	WEFT_ASSERT_OP(replica_slot(replica, block)->holders, ==, 1);
	task->deadline_ns = 0;
	task->held = true;
	task->fresh = !task->first;
	task->stage = TASK_PACK;
	return true;
}

/* A source's turn in its home: its group's last owner is written out. */
static bool take_turn(struct schedule *schedule, struct task *task, uint64_t now_ns,
		      struct step *step)
{
	struct full_group *group = full_group_of(&schedule->full, task->source);
	uint32_t peer;
	uint64_t write;

	if (group->busy && group->owner != task->source) {
		*step = wait_change();
		return false;
	}
	if (!group->busy &&
	    uses_wait(&schedule->full.uses, &group->first_use, schedule->done, &peer, &write)) {
		*step = wait_write(schedule, task, peer, write, now_ns);
		return false;
	}
	WEFT_ASSERT(!group->busy || group->owner == task->source);
	group->owner = task->source;
	group->busy = true;
	if (!task->call->replay)
		schedule->whole_version = 0;
	task->stage = TASK_PACK;
	return true;
}

/* Nothing of it has to be packed: it counts as if it were. */
static void skip_pack(struct schedule *schedule, struct task *task)
{
	WEFT_ASSERT_OP(task->group, <=, 1); /* who packs nothing takes nobody along */
	if (task->first) {
		WEFT_ASSERT_OP(schedule->blocks[block_of(schedule, task)], ==, BLOCK_PACKING);
		WEFT_ASSERT_OP(schedule->sources[task->source].unpacked, >, 0);
		schedule->blocks[block_of(schedule, task)] = BLOCK_PACKED;
		schedule->sources[task->source].unpacked--;
		schedule->changed = true;
	}
	task->stage = TASK_POST;
}

static bool find_room(struct schedule *schedule, struct task *task, uint64_t now_ns,
		      struct step *step)
{
	const struct send_plan *plan = schedule->options.plan;
	const struct send_source *source = &plan->sources[task->source];

	if (schedule->options.full)
		return take_turn(schedule, task, now_ns, step);
	if (!task->first && schedule->links[plan->rows[task->row].peer].deltas &&
	    schedule->blocks[block_of(schedule, task)] == BLOCK_PACKING) {
		*step = wait_change(); /* who packs it finds out what differs */
		return false;
	}
	if (!task->held && !task->first && schedule_delta(schedule, task, task->row)) {
		task->stage = TASK_POST; /* its slot may be lost: that is not looked at */
		return true;
	}
	if (!source->slots || (!task->first && plan->rows[task->row].path != PATH_REPLICA)) {
		if (task->first && source->packs)
			task->stage = TASK_PACK;
		else
			skip_pack(schedule, task);
		return true;
	}
	if (!task->held)
		return find_slot(schedule, task, now_ns, step);
	if (!task->first && !slot_of(schedule, task)->packed) {
		*step = wait_change();
		return false;
	}
	task->stage = task->first ? TASK_PACK : TASK_POST;
	return true;
}

/* ---- pack ---- */

static struct step pack(const struct task *task)
{
	return (struct step){.kind = STEP_PACK,
			     .row = task->row,
			     .source = task->source,
			     .part = task->part,
			     .group_first = task->group_first,
			     .group = task->fresh || task->call->replay ? 0 : task->group,
			     .fresh = task->fresh,
			     .replay = task->call->replay};
}

/* In its slot, from which rows can be posted now. */
static void slot_packed(struct schedule *schedule, uint32_t source, uint32_t part)
{
	const struct send_source *from = &schedule->options.plan->sources[source];
	struct replica_slot *slot = replica_slot(&schedule->replica, from->first_block + part);
	uint64_t offset;

	WEFT_ASSERT(replica_find(&schedule->replica, from->first_block + part));
	WEFT_ASSERT_OP(slot->holders, >, 0);
	WEFT_ASSERT(!slot->packed);
	slot->packed = true;
	schedule->counts.packed_bytes += source_part(from, part, &offset);
}

/* The first task of a part and what was packed with it, which nobody waits in line for. */
static void group_packed(struct schedule *schedule, struct task *task)
{
	const struct send_source *sources = schedule->options.plan->sources;

	for (uint32_t s = task->group_first; s < task->group_first + task->group; s++) {
		uint32_t block = sources[s].first_block + task->part;

		WEFT_ASSERT_OP(schedule->blocks[block], ==, BLOCK_PACKING);
		WEFT_ASSERT_OP(schedule->sources[s].unpacked, >, 0);
		schedule->blocks[block] = BLOCK_PACKED;
		schedule->sources[s].unpacked--;
		if (sources[s].slots)
			slot_packed(schedule, s, task->part);
		if (s == task->source)
			continue;
		if (sources[s].slots)
			replica_slot(&schedule->replica, block)->holders--;
		WEFT_ASSERT_OP(schedule->sources[s].unsent, >, 0);
		schedule->sources[s].unsent--;
		schedule->counts.copacked++;
	}
}

static void packed(struct schedule *schedule, struct task *task)
{
	const struct send_source *source = &schedule->options.plan->sources[task->source];
	uint64_t from;

	WEFT_ASSERT_OP(task->stage, ==, TASK_PACK);
	WEFT_ASSERT(task->first || task->fresh);
	task->stage = TASK_POST;
	schedule->changed = true;
	if (task->fresh) {
		slot_packed(schedule, task->source, task->part);
	} else if (!task->call->replay) {
		group_packed(schedule, task);
		if (schedule->options.full)
			schedule->counts.packed_bytes += source_part(source, task->part, &from);
	}
}

/* ---- post ---- */

static bool lands(const struct schedule *schedule, const struct task *task, uint32_t row)
{
	const struct send_row *it = &schedule->options.plan->rows[row];

	return (it->landed || schedule_delta(schedule, task, row)) &&
	       !link_needs_none(&schedule->links[it->peer]);
}

/* False: there is nothing (more) to post. */
static bool post(struct schedule *schedule, struct task *task, uint64_t now_ns, struct step *step)
{
	const struct send_plan *plan = schedule->options.plan;
	const struct send_source *source = &plan->sources[task->source];
	uint32_t row = task->row;

	if (!schedule->options.full &&
	    (task->ahead || task->sent || plan->rows[row].stored || plan->rows[row].by_device))
		return false;
	for (; schedule->options.full; task->sent++) {
		if (task->sent == source->row_count)
			return false;
		row = plan->source_rows[source->first_row + task->sent];
		if (!plan->rows[row].stored)
			break;
	}
	if (lands(schedule, task, row))
		return schedule_land(schedule, task, row, now_ns, step);
	*step = (struct step){.kind = STEP_POST,
			      .row = row,
			      .source = task->source,
			      .part = task->part,
			      .peer = plan->rows[row].peer};
	return true;
}

static uint32_t row_of(const struct schedule *schedule, const struct task *task)
{
	const struct send_plan *plan = schedule->options.plan;

	return schedule->options.full
		       ? plan->source_rows[plan->sources[task->source].first_row + task->sent]
		       : task->row;
}

/* The write reads the slot or the home until it is complete, and all before it then are. */
static void posted(struct schedule *schedule, struct task *task, uint32_t peer, uint64_t write)
{
	struct error error;
	int rc = 0;

	WEFT_ASSERT(!task->held || slot_of(schedule, task)->packed);
	if (lands(schedule, task, row_of(schedule, task)) && !schedule_landed(schedule, task, peer))
		return;
	/* who is spared needs no more of it, and what was posted of it before reads it still */
	if (!write && !link_out(&schedule->links[peer]))
		write = schedule->links[peer].posted;
	task->landed = 0;
	task->run = 0;
	task->placed = false;
	task->sent++;
	if (schedule->options.full)
		rc = uses_add(&schedule->full.uses,
			      &full_group_of(&schedule->full, task->source)->first_use, peer, write,
			      &error);
	else if (schedule->options.plan->rows[task->row].path == PATH_REPLICA && task->held)
		rc = replica_used(&schedule->replica, block_of(schedule, task), peer, write,
				  &error);
	if (rc)
		schedule_fail(schedule, &error);
}

/* ---- the end of a part ---- */

void schedule_close_row(struct schedule *schedule, uint32_t row)
{
	WEFT_ASSERT_OP(schedule->rows[row].open, >, 0);
	schedule->rows[row].open--;
	schedule->changed = true;
}

static void leave_call(struct schedule *schedule, struct task *task)
{
	WEFT_ASSERT_OP(task->call->active, >, 0);
	WEFT_ASSERT_OP(task->call->cursors[task->cursor].tasks, >, 0);
	schedule_close_row(schedule, task->row);
	task->call->active--;
	task->call->cursors[task->cursor].tasks--;
	task->stage = TASK_TAKE;
	task->deadline_ns = 0;
}

/* Every part of the source is gone that somebody had to send first. */
static void source_done(struct schedule *schedule, struct task *task)
{
	const struct send_source *source = &schedule->options.plan->sources[task->source];
	struct full_group *group =
		schedule->options.full ? full_group_of(&schedule->full, task->source) : NULL;

	WEFT_ASSERT(task->call->replay || !schedule->sources[task->source].unpacked);
	WEFT_ASSERT(!group || (group->busy && group->owner == task->source));
	if (group)
		group->busy = false;
	if (task->call->replay || source->follower == NO_SOURCE)
		return;
	task->follower = source->follower;
	task->follower_row = task->follower_part = 0;
}

static void finish(struct schedule *schedule, struct task *task)
{
	WEFT_ASSERT(!task->held || slot_of(schedule, task)->holders);
	WEFT_ASSERT(!task->first || schedule->sources[task->source].unsent);
	if (task->held)
		slot_of(schedule, task)->holders--;
	leave_call(schedule, task);
	if (task->first && !--schedule->sources[task->source].unsent)
		source_done(schedule, task);
}

/* ---- the call ---- */

static void unlink_call(struct schedule *schedule, const struct call *call)
{
	struct call **at = &schedule->calls;

	while (*at && *at != call)
		at = &(*at)->next;
	if (*at)
		*at = call->next;
}

/* A row that needs two tensors can be in two calls, and in one of all rows besides. Whoever did not
 * get it waits for who did: when his call returns, nobody reads his tensor for it any more. Calls do
 * not wait for each other in a circle: one that is here has no row open. */
static bool others_done(const struct schedule *schedule, struct call *call)
{
	for (; call->settled < call->count; call->settled++) {
		size_t at = call->settled;

		if (schedule->rows[call->rows ? call->rows[at] : at].open)
			return false;
	}
	return true;
}

static struct step no_part(struct schedule *schedule, struct task *task)
{
	struct call *call = task->own;

	if (!call)
		return (struct step){.kind = STEP_WAIT, .wait = WAIT_WORK};
	unlink_call(schedule, call);
	if (call->active || !others_done(schedule, call))
		return wait_change();
	return (struct step){.kind = STEP_DONE};
}

/* The first error stops the update for all; a call returns when nobody works for it any more. */
static struct step give_up(struct schedule *schedule, struct task *task)
{
	if (task->stage != TASK_TAKE)
		leave_call(schedule, task);
	task->follower = NO_SOURCE;
	if (!task->own)
		return (struct step){.kind = STEP_WAIT, .wait = WAIT_WORK};
	unlink_call(schedule, task->own);
	if (task->own->active)
		return wait_change();
	*task->own->error = schedule->error;
	return (struct step){.kind = STEP_FAIL};
}

/* Posted up to event->write, perhaps by one that did not know yet that the peer is gone. */
static void note_writes(struct schedule *schedule, const struct event *event)
{
	struct send_link *link = &schedule->links[event->peer];

	if (event->write > link->posted)
		link->posted = event->write;
	if (link->gone)
		schedule->done[event->peer] = link->posted;
}

void schedule_note(struct schedule *schedule, struct task *task, const struct event *event)
{
	struct send_link *link = &schedule->links[event->peer];

	switch (event->kind) {
	case EVENT_PACKED:
		packed(schedule, task);
		break;
	case EVENT_POSTED:
		note_writes(schedule, event);
		if (task->stage == TASK_POST)
			posted(schedule, task, event->peer, event->write);
		break;
	case EVENT_COMPLETED:
		if (event->write > schedule->done[event->peer])
			schedule->done[event->peer] = event->write;
		break;
	case EVENT_ACCEPTED:
		link->accept = *event->accept;
		break;
	case EVENT_TOLD:
		note_writes(schedule, event);
		schedule_told(schedule, task, event->peer, event->entries);
		break;
	case EVENT_TAKEN:
		schedule_taken(schedule, event->peer, event->entries);
		break;
	case EVENT_SPARED:
		link->spared = schedule->changed = true;
		link->released = event->released;
		break;
	case EVENT_GONE:
		link->gone = true;
		schedule->done[event->peer] = link->posted;
		schedule->changed = true;
		break;
	case EVENT_FAILED:
		schedule_fail(schedule, event->error);
		break;
	case EVENT_ASK:
	case EVENT_SIGNALLED:
		break;
	}
}

bool schedule_for_nobody(const struct schedule *schedule, const struct step *step,
			 struct event *event)
{
	bool to_peer =
		step->kind == STEP_POST || step->kind == STEP_SIGNAL ||
		(step->kind == STEP_WAIT && (step->wait == WAIT_WRITE || step->wait == WAIT_FLUSH ||
					     step->wait == WAIT_TAKEN));

	/* what was posted is waited for, and who is spared hears of the end */
	bool spared = step->kind == STEP_POST || step->tells ||
		      (step->kind == STEP_WAIT && step->wait == WAIT_TAKEN);

	if (!to_peer || !(spared ? link_needs_none(&schedule->links[step->peer])
				 : link_out(&schedule->links[step->peer])))
		return false;
	*event = (struct event){.kind = EVENT_COMPLETED, .peer = step->peer};
	if (step->kind == STEP_POST)
		event->kind = EVENT_POSTED;
	if (step->kind == STEP_SIGNAL)
		event->kind = step->tells ? EVENT_TOLD : EVENT_SIGNALLED;
	event->entries = step->entries;
	return true;
}

struct step schedule_next(struct schedule *schedule, struct task *task, const struct event *event)
{
	struct step step;

	schedule_note(schedule, task, event);
	if (task->own && task->own->kind != CALL_WRITE)
		return schedule_version_next(schedule, task, event);
	while (!schedule->failed)
		switch (task->stage) {
		case TASK_TAKE:
			if (!schedule_take(schedule, task))
				return no_part(schedule, task);
			break;
		case TASK_ROOM:
			if (!find_room(schedule, task, event->now_ns, &step) && !schedule->failed)
				return step;
			break;
		case TASK_PACK:
			return pack(task);
		case TASK_POST:
			if (!post(schedule, task, event->now_ns, &step))
				finish(schedule, task);
			else if (!schedule->failed)
				return step;
			break;
		}
	return give_up(schedule, task);
}
