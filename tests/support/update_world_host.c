/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_host.c -- what a trainer's host does: begins, writes tensors from its threads in one call
 * or many, drains, ends or gives up, and begins the next version.
 */
#include "tests/support/update_world_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void world_start_call(struct world *world, struct world_thread *thread, enum call_kind kind)
{
	bool shared = thread->call.shared;

	call_init(&thread->call, kind, world->now + 1000000 * (uint64_t)MS, &thread->error);
	thread->call.shared = shared;
	task_init(&thread->task, &thread->call);
	thread->event = (struct event){.kind = EVENT_ASK};
	thread->state = THREAD_READY;
	thread->at = world->now + world_takes(world);
}

static uint32_t index_of(const struct world *world, const struct world_trainer *trainer)
{
	return (uint32_t)(trainer - world->trainers);
}

static void begin_writing(struct world *world, struct world_trainer *trainer)
{
	uint32_t callers = 0, tensors = (uint32_t)trainer->plan.tensor_count;

	for (uint32_t i = 0; i < trainer->thread_count; i++)
		trainer->threads[i].tensor_count = trainer->threads[i].tensor_next = 0;
	while (callers < trainer->thread_count && !trainer->threads[callers].helper)
		callers++;
	for (uint32_t k = 0; k < tensors; k++) {
		struct world_thread *thread = &trainer->threads[world_random(world, callers)];

		if (trainer->tensor_first[k] != trainer->tensor_first[k + 1])
			thread->tensors[thread->tensor_count++] = k;
	}
	trainer->script = SCRIPT_WRITING;
}

/* All tensors at once, or one of those that are this thread's. */
static bool write_next(struct world *world, struct world_trainer *trainer,
		       struct world_thread *thread, bool all)
{
	uint32_t tensor;

	if (!all && thread->tensor_next == thread->tensor_count)
		return false;
	thread->call.shared = world->options.small || world_chance(world, 70);
	world_start_call(world, thread, CALL_WRITE);
	if (all) {
		for (uint32_t k = 0; k < trainer->plan.tensor_count; k++)
			if (send_plan_wants(&trainer->plan, k))
				schedule_submit(&trainer->schedule, k);
		thread->call.count = trainer->plan.row_count;
	} else {
		tensor = thread->tensors[thread->tensor_next++];
		schedule_submit(&trainer->schedule, tensor);
		thread->call.rows = trainer->tensor_rows + trainer->tensor_first[tensor];
		thread->call.count =
			trainer->tensor_first[tensor + 1] - trainer->tensor_first[tensor];
	}
	trainer->schedule.writers++;
	if (thread->call.shared) {
		thread->call.next = trainer->schedule.calls;
		trainer->schedule.calls = &thread->call;
		world_wake(world, trainer, THREAD_WORK);
	}
	return true;
}

static void replay_all(struct world *world, struct world_trainer *trainer)
{
	struct world_thread *thread = &trainer->threads[0];

	thread->call.shared = true;
	world_start_call(world, thread, CALL_WRITE);
	thread->call.count = trainer->plan.row_count;
	thread->call.replay = true;
	trainer->schedule.writers++;
	trainer->schedule.unsubmitted = 0;
	trainer->schedule.calls = &thread->call;
	world_wake(world, trainer, THREAD_WORK);
}

static void end_version(struct world *world, struct world_trainer *trainer)
{
	bool whole = !trainer->schedule.unsubmitted;
	bool given_up = world->options.small ? trainer->version == world->options.abort_version
					     : world->options.abort && world_chance(world, 30);
	enum call_kind kind = given_up ? CALL_ABORT : CALL_END;
	struct error error;

	if (kind == CALL_END && !whole)
		world_find(world, "not every tensor was submitted");
	if (schedule_check_end(&trainer->schedule, "a test", &error) &&
	    trainer->schedule.state != UPDATE_ENDING)
		world_find(world, "an end is refused: %s", error.text);
	trainer->schedule.state = UPDATE_ENDING;
	trainer->script = SCRIPT_ENDING;
	world_start_call(world, &trainer->threads[0], kind);
}

void world_host_begin(struct world *world, struct world_trainer *trainer)
{
	struct world_thread *thread = &trainer->threads[0];
	struct error error;

	trainer->script = trainer->version == world->options.versions ||
					  world_pauses(world, trainer->version + 1)
				  ? SCRIPT_OVER
				  : SCRIPT_BEGINNING;
	if (trainer->script == SCRIPT_OVER)
		return;
	world_start_call(world, thread, CALL_BEGIN);
	thread->call.version = trainer->version + 1;
	if (schedule_check_begin(&trainer->schedule, thread->call.version, &error))
		world_find(world, "a begin is refused: %s", error.text);
}

void world_host_ends_again(struct world *world, struct world_thread *thread)
{
	world_start_call(world, thread, CALL_END);
}

static bool anybody_writes(const struct world_trainer *trainer)
{
	return trainer->schedule.writers != 0;
}

static void writing_goes_on(struct world *world, struct world_trainer *trainer,
			    struct world_thread *thread)
{
	trainer->schedule.writers--;
	if (!thread->call.replay && thread->call.kind == CALL_WRITE && thread->call.rows) {
		if (world_chance(world, 15)) {
			trainer->schedule.writers++;
			trainer->standing.drained = true;
			world_start_call(world, thread, CALL_DRAIN);
			return;
		}
	}
	if (thread->tensor_count && write_next(world, trainer, thread, false))
		return;
	if (!anybody_writes(trainer))
		end_version(world, trainer);
}

static void begun(struct world *world, struct world_trainer *trainer)
{
	struct error error;

	trainer->version++;
	trainer->standing.drained = false;
	world_tell(world, "trainer %u begins version %" PRIu64, index_of(world, trainer),
		   trainer->version);
	begin_writing(world, trainer);
	if (world->options.replay && !schedule_check_replay(&trainer->schedule, &error) &&
	    world_chance(world, 60)) {
		for (uint32_t i = 0; i < trainer->thread_count; i++)
			trainer->threads[i].tensor_count = 0;
		replay_all(world, trainer);
		return;
	}
	if (world->options.small || world_chance(world, 50)) {
		for (uint32_t i = 0; i < trainer->thread_count; i++)
			trainer->threads[i].tensor_count = 0;
		write_next(world, trainer, &trainer->threads[0], true);
		return;
	}
	for (uint32_t i = 0; i < trainer->thread_count; i++)
		write_next(world, trainer, &trainer->threads[i], false);
	if (!anybody_writes(trainer))
		end_version(world, trainer);
}

void world_host_heard(struct world *world, struct world_trainer *trainer,
		      struct world_thread *thread, bool ok)
{
	if (trainer->wire != index_of(world, trainer)) {
		world_standing_heard(world, thread, ok);
		return;
	}
	if (!ok && trainer->schedule.failed) {
		if (thread->call.kind == CALL_WRITE || thread->call.kind == CALL_DRAIN)
			trainer->schedule.writers--;
		trainer->script = SCRIPT_OVER;
		return;
	}
	switch (trainer->script) {
	case SCRIPT_BEGINNING:
		if (ok)
			begun(world, trainer);
		else if (thread->error.code == ERROR_VERSION) /* the ranks are past it */
			trainer->version++, world_host_begin(world, trainer);
		else
			trainer->script = SCRIPT_OVER;
		break;
	case SCRIPT_WRITING:
		writing_goes_on(world, trainer, thread);
		break;
	case SCRIPT_ENDING:
		world_tell(world, "trainer %u has %s version %" PRIu64, index_of(world, trainer),
			   thread->call.kind == CALL_ABORT ? "given up" : "ended",
			   trainer->version);
		if (thread->call.kind == CALL_ABORT ||
		    !world_stands_by(world, index_of(world, trainer)))
			world_host_begin(world, trainer);
		break;
	case SCRIPT_STANDING:
	case SCRIPT_BEGIN:
	case SCRIPT_OVER:
		break;
	}
}

bool world_finds(const struct world_options *options)
{
	struct world *world;
	int status;
	pid_t child = fork();

	if (child < 0 || (child && waitpid(child, &status, 0) != child))
		abort();
	if (child)
		return status != 0;
	fclose(stderr); /* what an assertion says is expected */
	world = world_new(options);
	if (!world)
		_exit(0);
	world_run(world);
	_exit(world_finding(world) != NULL);
}
