/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule_take.c -- which part of which row a task takes: the next one in send order.
 *
 *   rows in send order      a0 a1 | b0 | c0 c1 | a0' a1'         a, b, c: sources; a': once more
 *   tasks                   pack,   pack  ..      find the slot,
 *                           post    post          post
 *
 * Column slices of the same rows are packed together by the first task of any of them. A task whose
 * part is being packed by another packs one of the next instead, which then waits in its slot for
 * its row's turn. Where endpoints can be posted to at once a call has a cursor for each of a few
 * groups of peers, and so threads that do not queue for the same one:
 *
 *   rows      a→0  a→1  b→0  b→1  c→0 ...
 *   cursors   0 ^                              peers 0, 2, ..
 *             1      ^                         peers 1, 3, ..
 */
#include "worker/update/schedule.h"

#include "base/assert.h"

#define AHEAD_ROWS 256u /* of the cursor, that a task looks at before it waits */

/* ---- rows ---- */

static bool ready(const struct schedule *schedule, const struct send_source *source)
{
	return schedule->submitted[source->tensor] &&
	       (source->scales == NO_TENSOR || schedule->submitted[source->scales]) &&
	       !source->follows;
}

static void count_row(struct schedule *schedule, const struct send_row *row)
{
	schedule->counts.pieces[row->landed		 ? PATH_LANDED
				: schedule->options.full ? PATH_REPLICA
							 : row->path]++;
	schedule->counts.bytes += schedule->options.plan->sources[row->source].pack.bytes;
}

static void mark_row(struct schedule *schedule, uint32_t index)
{
	if (schedule->rows[index].taken)
		return;
	schedule->rows[index].taken = true;
	count_row(schedule, &schedule->options.plan->rows[index]);
}

static void mark_source(struct schedule *schedule, const struct send_source *source)
{
	for (uint32_t i = 0; i < source->row_count; i++)
		mark_row(schedule, schedule->options.plan->source_rows[source->first_row + i]);
}

/* With a full replica it takes all rows of the source: they leave together. */
static bool take_row(struct schedule *schedule, const struct call *call, uint32_t index)
{
	const struct send_plan *plan = schedule->options.plan;
	const struct send_source *source = &plan->sources[plan->rows[index].source];

	if (schedule->rows[index].taken || plan->rows[index].by_device ||
	    (!call->replay && !ready(schedule, source)))
		return false;
	mark_row(schedule, index);
	if (schedule->options.full)
		mark_source(schedule, source);
	schedule->rows[index].open++;
	return true;
}

void schedule_sent(struct schedule *schedule, uint32_t tensor)
{
	const struct send_plan *plan = schedule->options.plan;

	for (uint32_t i = plan->tensor_first[tensor]; i < plan->tensor_first[tensor + 1]; i++) {
		const struct send_row *row = &plan->rows[plan->tensor_rows[i]];
		const struct send_source *source = &plan->sources[row->source];

		if (!row->by_device || !schedule->submitted[source->tensor] ||
		    (source->scales != NO_TENSOR && !schedule->submitted[source->scales]))
			continue;
		mark_row(schedule, plan->tensor_rows[i]);
		if (!source->scheduled)
			schedule->sources[row->source] = (struct source_state){0, 0};
	}
}

static uint32_t row_at(const struct call *call, size_t at)
{
	return call->rows ? call->rows[at] : (uint32_t)at;
}

/* ---- parts ---- */

/* With a slot where one is needed. */
static bool take_part(struct schedule *schedule, const struct send_source *source, uint32_t part)
{
	uint32_t block = source->first_block + part;
	uint64_t from, bytes = source_part(source, part, &from);

	if (schedule->blocks[block] != BLOCK_WAITING ||
	    (source->slots &&
	     !replica_take_spare(&schedule->replica, block, bytes, schedule->done)))
		return false;
	schedule->blocks[block] = BLOCK_PACKING;
	return true;
}

/* The task is the first of its part. With it go the columns beside it that have room now. */
static void take_group(struct schedule *schedule, struct task *task)
{
	const struct send_plan *plan = schedule->options.plan;
	const struct send_source *sources = plan->sources, *own = &sources[task->source];
	uint32_t first = task->source, last = task->source;

	task->first = true;
	task->group_first = task->source;
	task->group = 1;
	if (schedule->options.full || !take_part(schedule, own, task->part)) {
		/* its slot will be waited for, with nothing held */
		schedule->blocks[own->first_block + task->part] = BLOCK_PACKING;
		return;
	}
	task->held = own->slots;
	while (last - first + 1 < own->group_max && sources[last].joins_next &&
	       take_part(schedule, &sources[last + 1], task->part))
		last++;
	while (last - first + 1 < own->group_max && first && sources[first - 1].joins_next &&
	       take_part(schedule, &sources[first - 1], task->part))
		first--;
	WEFT_ASSERT(last == first || own->packs);
	task->group_first = first;
	task->group = last - first + 1;
}

/* Nobody takes it away any more, though it may still be being packed. */
static bool hold_block(struct schedule *schedule, uint32_t block)
{
	bool found = replica_find(&schedule->replica, block) != NULL;

	if (found)
		replica_slot(&schedule->replica, block)->holders++;
	return found;
}

static void begin(struct schedule *schedule, struct task *task, struct call *call, uint32_t cursor,
		  uint32_t row, uint32_t part)
{
	*task = (struct task){.stage = TASK_ROOM,
			      .own = task->own,
			      .call = call,
			      .cursor = cursor,
			      .row = row,
			      .source = schedule->options.plan->rows[row].source,
			      .part = part,
			      .follower = task->follower,
			      .follower_row = task->follower_row,
			      .follower_part = task->follower_part};
	WEFT_ASSERT_OP(part, <, schedule->options.plan->sources[task->source].parts);
	schedule->rows[row].open++;
	call->active++;
	call->cursors[cursor].tasks++;
}

/* ---- ahead of the cursor ---- */

/* The row's part that nobody packs yet, from `part` on, if the ring has room for it now. */
static bool pack_ahead(struct schedule *schedule, struct task *task, struct call *call,
		       uint32_t cursor, uint32_t row, uint32_t part)
{
	const struct send_plan *plan = schedule->options.plan;
	const struct send_source *source = &plan->sources[plan->rows[row].source];
	struct task ahead = *task;

	while (part < source->parts &&
	       schedule->blocks[source->first_block + part] != BLOCK_WAITING)
		part++;
	if (part == source->parts)
		return false;
	ahead.source = plan->rows[row].source;
	ahead.part = part;
	ahead.held = false;
	take_group(schedule, &ahead);
	if (!ahead.held) { /* back: its turn will come */
		schedule->blocks[source->first_block + part] = BLOCK_WAITING;
		return false;
	}
	begin(schedule, task, call, cursor, row, part);
	task->first = task->held = task->ahead = true;
	task->group_first = ahead.group_first;
	task->group = ahead.group;
	return true;
}

static bool in_cursor(const struct schedule *schedule, uint32_t cursor, uint32_t row)
{
	return schedule->cursors == 1 ||
	       schedule->options.plan->rows[row].peer % schedule->cursors == cursor;
}

/* The cursor's block is being packed by another task: meanwhile, one of those after it. */
static bool look_ahead(struct schedule *schedule, struct task *task, struct call *call,
		       uint32_t cursor)
{
	const struct send_plan *plan = schedule->options.plan;
	size_t begin_at = call->cursors[cursor].at;
	size_t end = call->count - begin_at > AHEAD_ROWS ? begin_at + AHEAD_ROWS : call->count;

	for (size_t at = begin_at; at < end; at++) {
		uint32_t index = row_at(call, at);
		const struct send_row *row = &plan->rows[index];
		const struct send_source *source = &plan->sources[row->source];
		bool here = at == begin_at;

		if (row->path == PATH_REPLICA && source->slots && ready(schedule, source) &&
		    in_cursor(schedule, cursor, index) && (here || !schedule->rows[index].taken) &&
		    pack_ahead(schedule, task, call, cursor, index,
			       here ? call->cursors[cursor].part + 1 : 0))
			return true;
	}
	return false;
}

/* ---- cursors ---- */

/* The next part of the row that the cursor is on. */
static bool take_on_row(struct schedule *schedule, struct task *task, struct call *call, uint32_t c,
			uint32_t index)
{
	const struct send_plan *plan = schedule->options.plan;
	const struct send_row *row = &plan->rows[index];
	const struct send_source *source = &plan->sources[row->source];
	struct cursor *cursor = &call->cursors[c];

	for (; cursor->part < source->parts; cursor->part++) {
		uint32_t block = source->first_block + cursor->part;
		enum block_state state = schedule->blocks[block];

		if (state != BLOCK_WAITING && row->stored)
			continue;
		if (state == BLOCK_PACKING && source->slots && look_ahead(schedule, task, call, c))
			return true;
		begin(schedule, task, call, c, index, cursor->part++);
		if (state == BLOCK_WAITING)
			take_group(schedule, task);
		else if (source->slots && row->path == PATH_REPLICA)
			task->held = hold_block(schedule, block);
		return true;
	}
	return false;
}

static bool take_at(struct schedule *schedule, struct task *task, struct call *call, uint32_t c)
{
	struct cursor *cursor = &call->cursors[c];

	for (; cursor->at < call->count; cursor->at++, cursor->part = 0) {
		uint32_t index = row_at(call, cursor->at);

		if (!cursor->on_row &&
		    (!in_cursor(schedule, c, index) || !take_row(schedule, call, index)))
			continue;
		cursor->on_row = true;
		if (take_on_row(schedule, task, call, c, index))
			return true;
		WEFT_ASSERT(schedule->rows[index].taken);
		cursor->on_row = false;
		schedule_close_row(schedule, index);
	}
	return false;
}

/* From the cursor with the fewest tasks behind it, of these the one that is least far. */
static bool take_from(struct schedule *schedule, struct task *task, struct call *call)
{
	bool tried[CURSORS_MAX] = {false};

	for (uint32_t turn = 0; turn < schedule->cursors; turn++) {
		uint32_t best = CURSORS_MAX;

		for (uint32_t c = 0; c < schedule->cursors; c++) {
			const struct cursor *it = &call->cursors[c], *than;

			if (tried[c])
				continue;
			than = best == CURSORS_MAX ? it : &call->cursors[best];
			if (best == CURSORS_MAX || it->tasks < than->tasks ||
			    (it->tasks == than->tasks && it->at < than->at))
				best = c;
		}
		if (take_at(schedule, task, call, best))
			return true;
		tried[best] = true;
	}
	return false;
}

/* ---- followers ---- */

/* The rows of scales whose values are all packed, by the task that packed the last of these. */
static bool take_follower(struct schedule *schedule, struct task *task)
{
	const struct send_plan *plan = schedule->options.plan;
	const struct send_source *source = &plan->sources[task->follower];
	uint32_t rows = schedule->options.full ? 1 : source->row_count;

	WEFT_ASSERT(source->follows && !source->slots);
	if (!task->follower_row && !task->follower_part)
		mark_source(schedule, source);
	for (; task->follower_row < rows; task->follower_row++, task->follower_part = 0) {
		uint32_t row = plan->source_rows[source->first_row + task->follower_row];
		bool first = !task->follower_row;

		if (task->follower_part == source->parts ||
		    (!first && (plan->rows[row].stored || plan->rows[row].by_device)))
			continue;
		begin(schedule, task, task->call, task->cursor, row, task->follower_part);
		if (first)
			schedule->blocks[source->first_block + task->part] = BLOCK_PACKING;
		task->follower_part++;
		task->first = first;
		task->group_first = task->source;
		task->group = 1;
		return true;
	}
	task->follower = NO_SOURCE;
	return false;
}

bool schedule_take(struct schedule *schedule, struct task *task)
{
	if (task->follower != NO_SOURCE && take_follower(schedule, task))
		return true;
	if (task->own)
		return take_from(schedule, task, task->own);
	for (struct call *call = schedule->calls; call; call = call->next)
		if (take_from(schedule, task, call))
			return true;
	return false;
}
