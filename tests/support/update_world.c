/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world.c -- threads of trainers, and ranks: who acts next, and what a step does.
 */
#include "tests/support/update_world_parts.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- chance, findings, story ---- */

uint64_t world_random(struct world *world, uint64_t below)
{
	world->random ^= world->random << 13;
	world->random ^= world->random >> 7;
	world->random ^= world->random << 17;
	return world->random % below;
}

bool world_chance(struct world *world, uint32_t percent)
{
	return world_random(world, 100) < percent;
}

uint64_t world_takes(struct world *world)
{
	uint64_t most;

	if (world->options.small)
		return MS;
	most = world->options.delay && world_chance(world, 10) ? 40 * MS : MS;

	return 1 + world_random(world, most);
}

uint64_t world_lands(struct world *world)
{
	return world->options.small ? 4 * MS : world_takes(world);
}

void world_find(struct world *world, const char *format, ...)
{
	va_list arguments;

	if (world->finding[0])
		return;
	va_start(arguments, format);
	vsnprintf(world->finding, sizeof(world->finding), format, arguments);
	va_end(arguments);
}

void world_tell(struct world *world, const char *format, ...)
{
	char line[256];
	va_list arguments;

	if (!world->options.story)
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	text_format(&world->story, "[%6.2f] %s\n", (double)world->now / MS, line);
}

tag tag_of(uint64_t version, uint32_t owner, uint32_t source, uint32_t part)
{
	return version << 32 | (uint64_t)owner << 16 | (uint64_t)(source + 1) << 8 | part;
}

tag world_content(const struct world *world, uint32_t sender, uint64_t version, uint32_t source,
		  uint32_t part)
{
	const struct world_trainer *trainer = &world->trainers[sender];

	return tag_of(version, trainer->owner, source, part) |
	       (trainer->standing.other_bytes ? OTHER_BYTES : 0);
}

/* ---- bugs ---- */

static void spoil(struct world *world, struct world_trainer *trainer, struct world_thread *thread)
{
	struct schedule *schedule = &trainer->schedule;
	const struct step *step = &thread->step;
	uint32_t block = trainer->sources[step->source].first_block + step->part;

	switch (world->options.bug) {
	case BUG_SLOT_LET_GO:
		uses_clear(&schedule->replica.uses);
		for (size_t i = 0; i < schedule->replica.ring.capacity; i++)
			schedule->replica.slots[i].first_use = 0;
		break;
	case BUG_SLOT_UNHELD:
		if (thread->task.held && step->kind == STEP_PACK)
			replica_slot(&schedule->replica, block)->holders = 0;
		break;
	case BUG_ROW_SKIPPED:
		for (size_t i = 0; i < trainer->plan.row_count && step->kind == STEP_PACK; i++)
			if (!schedule->rows[i].taken) {
				schedule->rows[i].taken = true;
				break;
			}
		break;
	case BUG_PACKED_TOO_EARLY:
		if (step->kind == STEP_PACK && thread->task.held && !thread->task.fresh) {
			schedule->blocks[block] = BLOCK_PACKED;
			replica_slot(&schedule->replica, block)->packed = true;
		}
		break;
	case BUG_NO_SETTLE:
		for (uint32_t p = 0; p < trainer->plan.peer_count; p++)
			schedule->links[p].posted = 0;
		break;
	case BUG_ROW_LEFT_OPEN:
		if (step->kind == STEP_PACK)
			schedule->rows[step->row].open++;
		break;
	case BUG_SPARED_WRITES_ON:
		for (uint32_t p = 0; p < trainer->plan.peer_count; p++)
			if (schedule->links[p].spared)
				schedule->links[p].posted = 0;
		break;
	case BUG_PERMISSION_KEPT:
		for (uint32_t p = 0; p < trainer->plan.peer_count; p++)
			if (schedule->links[p].used_opening)
				schedule->links[p].used_opening--;
		break;
	case BUG_WINDOW_LET_GO:
		for (uint32_t p = 0; p < trainer->plan.peer_count; p++) {
			struct send_window *window = &schedule->windows[p];

			for (uint64_t n = window->taken; n < window->posted; n++)
				if (window->states[n % WINDOW_ENTRIES].merge_id)
					ring_give_back(&window->merge,
						       window->states[n % WINDOW_ENTRIES].merge_id);
			while (window->ring.first < window->first_id + window->posted)
				ring_give_back(&window->ring, window->ring.first);
			window->taken = window->posted;
		}
		break;
	case BUG_TOLD_TOO_EARLY:
		if (step->kind == STEP_POST && step->lands)
			schedule->windows[step->peer].posted =
				schedule->windows[step->peer].ring.next -
				schedule->windows[step->peer].first_id;
		break;
	case BUG_TAIL_UNTOLD:
		if (step->kind == STEP_SIGNAL && !step->tells && step->entries)
			thread->step.entries--;
		break;
	case BUG_NONE:
	case BUG_EVENT_LOST:
	case BUG_BASE_KEPT:
	case BUG_OPENED_TOO_EARLY: /* a rank's: update_world_late.c, update_world_rank.c */
	case BUG_STOOD_FORGOTTEN:
	case BUG_LATE_UNVERIFIED:
	case BUG_ASK_IS_OWN: /* update_world_hedge.c */
	case BUG_UNRELEASED:
	case BUG_ASK_KEPT:
	case BUG_OLDER_TOO:
	case BUG_COUNT:
		break;
	}
}

/* ---- threads ---- */

void world_wake(struct world *world, struct world_trainer *trainer, enum thread_state state)
{
	for (uint32_t i = 0; i < trainer->thread_count; i++) {
		struct world_thread *thread = &trainer->threads[i];

		if (thread->state != state)
			continue;
		thread->state = THREAD_READY;
		thread->at = world->now;
		thread->event = (struct event){.kind = EVENT_ASK};
	}
}

static bool hear_accepts(struct world *world, uint32_t t, struct world_thread *thread)
{
	bool heard = false;

	for (uint32_t r = 0; r < world->rank_count && !heard; r++) {
		struct world_signal *signal = &world->links[t][r].to_trainer;

		if (!signal->there || signal->at > world->now)
			continue;
		signal->there = false;
		if (signal->word == UPDATE_TAKEN || /* of the update before */
		    !world_takes_accept(world, t, r, thread->call.version, &signal->accept))
			continue;
		thread->event = (struct event){
			.kind = EVENT_ACCEPTED, .peer = r, .accept = &signal->accept};
		heard = true;
	}
	world_hands_back(world, t);
	return heard;
}

static void hear_taken(struct world *world, uint32_t t, struct world_thread *thread)
{
	const struct world_trainer *trainer = &world->trainers[t];
	struct world_signal *signal = &world->links[trainer->wire][thread->step.peer].to_trainer;
	bool accept = signal->word == UPDATE_ACCEPT, released;

	if (world_is_spared(world, t, thread->step.peer, &released)) {
		thread->event = (struct event){
			.kind = EVENT_SPARED, .peer = thread->step.peer, .released = released};
		return;
	}
	if (!signal->there || signal->at > world->now)
		return;
	signal->there = false;
	thread->event =
		(struct event){.kind = EVENT_TAKEN,
			       .peer = thread->step.peer,
			       .entries = accept ? signal->accept.taken : signal->taken.entries};
	if ((accept ? signal->accept.opening : signal->taken.opening) !=
	    trainer->schedule.links[thread->step.peer].used_opening)
		world_find(world, "rank %u takes what another permission brought",
			   thread->step.peer);
}

/* As executor.c has it: what happened is noted, or, of a step that the interrupt cut short, is not known. */
static bool interrupted(struct world *world, struct world_trainer *trainer,
			struct world_thread *thread)
{
	if (!world->options.interrupt || thread->helper || thread->call.kind != CALL_END ||
	    trainer->script != SCRIPT_ENDING || trainer->schedule.failed ||
	    thread->event.kind == EVENT_FAILED || schedule_telling(&thread->task) ||
	    !world_chance(world, 10))
		return false;
	if (thread->event.kind == EVENT_SPARED || world_chance(world, 50))
		schedule_note(&trainer->schedule, &thread->task, &thread->event);
	return true;
}

/* One of several ranks dies, and what is on its way to it and from it is lost. */
static void maybe_die(struct world *world)
{
	uint32_t r;

	if (!world->options.dies || world->dead || world->rank_count == 1 ||
	    world_random(world, 300))
		return;
	r = (uint32_t)world_random(world, world->rank_count);
	world->dead = r + 1;
	world->ranks[r].over = true;
	for (uint32_t t = 0; t < world->trainer_count; t++) {
		world->links[t][r].broken = true;
		world->links[t][r].to_rank.there = world->links[t][r].to_trainer.there = false;
		world_wake(world, &world->trainers[t], THREAD_ACCEPT);
		world_wake(world, &world->trainers[t], THREAD_TAKEN);
		world_wake(world, &world->trainers[WORLD_TRAINERS + t], THREAD_TAKEN);
		world_standing_wakes(world, t);
	}
	world_tell(world, "rank %u dies", r);
}

/* A trainer learns of it from the controller, or by a step that fails: as executor_gone.c has it. */
static void maybe_hear_of_death(struct world *world, uint32_t t, struct world_thread *thread)
{
	struct world_trainer *trainer = &world->trainers[t];
	bool fails = thread->event.kind == EVENT_FAILED;

	if (!world->dead || (!fails && !world_chance(world, 20)))
		return;
	if (!trainer->schedule.links[world->dead - 1].gone) {
		world_tell(world, "%s goes on without rank %u", world->senders[t], world->dead - 1);
		schedule_note(&trainer->schedule, NULL,
			      &(struct event){.kind = EVENT_GONE, .peer = world->dead - 1});
		for (enum thread_state state = THREAD_CHANGE; state < THREAD_OUT; state++)
			world_wake(world, trainer, state);
	}
	if (fails)
		schedule_for_nobody(&trainer->schedule, &thread->step, &thread->event);
}

static void act_thread(struct world *world, uint32_t t, struct world_thread *thread)
{
	struct world_trainer *trainer = &world->trainers[t];
	enum event_kind kind;

	if (thread->state == THREAD_OUT || world_stops(world, t)) /* lost just now */
		return;
	if (world->lost && thread->call.kind == CALL_BEGIN && !thread->helper) {
		thread->call.lacks_trainer = true;
		if (world_pauses(world, thread->call.version)) {
			thread->state = THREAD_OUT;
			thread->at = NEVER;
			trainer->script = SCRIPT_OVER;
			return;
		}
	}
	if (thread->event.kind == EVENT_PACKED)
		world_pack_ends(world, t, &thread->step);
	if (thread->event.kind == EVENT_POSTED)
		world_post_ends(world, t, thread);
	maybe_hear_of_death(world, t, thread);
	if (world->failed && thread->event.kind != EVENT_FAILED && !trainer->schedule.failed) {
		error_set(&thread->error, ERROR_PEER_LOST, "the job failed");
		thread->event = (struct event){.kind = EVENT_FAILED, .error = &thread->error};
	}
	if (!thread->helper && thread->call.kind == CALL_BEGIN && thread->event.kind == EVENT_ASK)
		hear_accepts(world, t, thread);
	if (thread->step.kind == STEP_WAIT && thread->step.wait == WAIT_TAKEN &&
	    thread->event.kind == EVENT_ASK && thread->task.stage != TASK_TAKE)
		hear_taken(world, t, thread);
	if (t >= WORLD_TRAINERS ? world_standing_is_interrupted(world, t, thread)
				: interrupted(world, trainer, thread)) {
		if (t < WORLD_TRAINERS)
			world_host_ends_again(world, thread);
		return;
	}
	thread->event.now_ns = world->now;
	kind = thread->event.kind;
	if (world->options.bug == BUG_EVENT_LOST && kind == EVENT_PACKED &&
	    world_chance(world, 20)) {
		thread->state = THREAD_CHANGE;
		thread->at = NEVER;
		return;
	}
	thread->step = schedule_next(&trainer->schedule, &thread->task, &thread->event);
	if (world->options.bug)
		spoil(world, trainer, thread);
	if (trainer->schedule.failed && trainer->schedule.error.code != ERROR_INTERRUPTED)
		world->failed = true;
	if (trainer->schedule.failed && !world->options.loss &&
	    strstr(trainer->schedule.error.text, "taken nothing"))
		world_find(world, "%s gives up on a rank that is there: %s", world->senders[t],
			   trainer->schedule.error.text);
	if (trainer->schedule.changed)
		world_wake(world, trainer, THREAD_CHANGE);
	if (kind == EVENT_SPARED) /* who waits for that rank looks again and again */
		world_wake(world, trainer, THREAD_TAKEN);
	trainer->schedule.changed = false;
	if (kind == EVENT_ACCEPTED && thread->step.kind == STEP_WAIT) {
		thread->event = (struct event){.kind = EVENT_ASK}; /* and what else was said? */
		thread->state = THREAD_READY;
		thread->at = world->now;
		return;
	}
	world_do_step(world, t, thread);
}

/* ---- the clock ---- */

#define QUIET (5000 * (uint64_t)MS) /* nobody waits so long but for who is stopped */

/* A story is told without chance: the first of them. */
static bool chosen_now(struct world *world, uint64_t count)
{
	return world->options.small ? count == 1 : !world_random(world, count);
}

/* When something happens; NEVER: nothing ever will. */
static uint64_t next_event(const struct world *world)
{
	uint64_t next = world_network_next(world);

	for (uint32_t t = 0; t < WORLD_SENDERS; t++)
		for (uint32_t i = 0; i < world->trainers[t].thread_count; i++)
			if (world_thread_next(world, t, i) < next)
				next = world_thread_next(world, t, i);
	for (uint32_t t = 0; t < world->trainer_count; t++)
		if (world_standing_next(world, t) < next)
			next = world_standing_next(world, t);
	for (uint32_t r = 0; r < world->rank_count; r++)
		if (world_rank_next(world, r) < next)
			next = world_rank_next(world, r);
	return next;
}

struct actor {
	enum { ACTOR_NONE, ACTOR_THREAD, ACTOR_STANDING, ACTOR_RANK } kind;
	uint32_t index, thread;
};

/* Of all that are first the one that chance names. */
static struct actor choose(struct world *world)
{
	struct actor chosen = {ACTOR_NONE, 0, 0};
	uint64_t count = 0;

	for (uint32_t t = 0; t < WORLD_SENDERS; t++)
		for (uint32_t i = 0; i < world->trainers[t].thread_count; i++)
			if (world_thread_next(world, t, i) <= world->now &&
			    chosen_now(world, ++count))
				chosen = (struct actor){ACTOR_THREAD, t, i};
	for (uint32_t t = 0; t < world->trainer_count; t++)
		if (world_standing_next(world, t) <= world->now && chosen_now(world, ++count))
			chosen = (struct actor){ACTOR_STANDING, t, 0};
	for (uint32_t r = 0; r < world->rank_count; r++)
		if (world_rank_next(world, r) <= world->now && chosen_now(world, ++count))
			chosen = (struct actor){ACTOR_RANK, r, 0};
	return chosen;
}

/* False: nobody ever will. */
static bool act(struct world *world)
{
	uint64_t next = next_event(world);
	struct actor who;

	if ((next == NEVER || next > world->now + QUIET) && world_stops_end(world))
		return true;
	if (next == NEVER)
		return false;
	if (next > world->now)
		world->now = next;
	world_network(world);
	who = choose(world);
	world->steps++;
	maybe_die(world);
	world_may_lose_trainer(world);
	if (who.kind == ACTOR_RANK)
		world_rank_acts(world, who.index);
	else if (who.kind == ACTOR_STANDING)
		world_standing_acts(world, who.index);
	else if (who.kind == ACTOR_THREAD)
		act_thread(world, who.index, &world->trainers[who.index].threads[who.thread]);
	return true; /* ACTOR_NONE: writes completed */
}

static bool all_over(const struct world *world)
{
	for (uint32_t t = 0; t < WORLD_SENDERS; t++)
		for (uint32_t i = 0; i < world->trainers[t].thread_count; i++) {
			const struct world_thread *thread = &world->trainers[t].threads[i];

			if (!thread->helper && thread->state != THREAD_OUT)
				return false;
		}
	return world_trainers_over(world);
}

/* For whoever looks at a finding: where every thread is. */
static void tell_threads(struct world *world)
{
	for (uint32_t t = 0; t < WORLD_SENDERS; t++)
		for (uint32_t i = 0; i < world->trainers[t].thread_count; i++) {
			const struct world_thread *thread = &world->trainers[t].threads[i];
			const struct task *task = &thread->task;

			world_tell(
				world,
				"%s thread %u%s: state %d, call %d active %u at %zu of %zu settled %zu; task "
				"stage %d row %u source %u part %u%s%s%s%s group %u+%u",
				world->senders[t], i, thread->helper ? " (packs)" : "",
				(int)thread->state, (int)thread->call.kind, thread->call.active,
				thread->call.cursors[0].at, thread->call.count,
				thread->call.settled, (int)task->stage, task->row, task->source,
				task->part, task->first ? " first" : "", task->held ? " held" : "",
				task->fresh ? " fresh" : "", task->ahead ? " ahead" : "",
				task->group_first, task->group);
		}
}

void world_run(struct world *world)
{
	const struct world_options *options = &world->options;
	bool gentle;

	while (!world->finding[0] && act(world))
		if (world->steps > 20000)
			world_find(world, "no end after %u steps", world->steps);
	if (!world->finding[0] && !all_over(world))
		world_find(world, "stuck: a call never returns");
	if (world->finding[0])
		tell_threads(world);
	gentle = !options->loss && !options->abort && !options->slow_target &&
		 !options->lose_post && !options->clash && !world->lost;
	for (uint32_t r = 0; r < world->rank_count && gentle; r++)
		if (!world->finding[0] && r + 1 != world->dead &&
		    world->ranks[r].published != options->versions)
			world_find(world, "rank %u stays at version %" PRIu64, r,
				   world->ranks[r].published);
}

/* ---- life ---- */

int world_make_sender(struct world *world, struct world_trainer *trainer, uint32_t callers,
		      uint32_t threads)
{
	bool small = world->options.small;
	struct error error;

	trainer->thread_count = threads;
	for (uint32_t i = 0; i < trainer->thread_count; i++) {
		struct world_thread *thread = &trainer->threads[i];

		thread->helper = i >= callers;
		thread->state = thread->helper ? THREAD_WORK : THREAD_OUT;
		thread->at = NEVER;
		task_init(&thread->task, NULL);
	}
	return schedule_open(&trainer->schedule,
			     &(struct schedule_options){
				     .plan = &trainer->plan,
				     .peer_names = world->rank_names,
				     .tensor_names = world->tensor_names,
				     .full = world->options.full,
				     .sums = true,
				     .parallel = !small && world_chance(world, 50),
				     .begin_ns = 1000000 * (uint64_t)MS,
				     .wait_ns = 1000000 * (uint64_t)MS,
				     .ring = trainer->ring,
				     .entries = trainer->entries,
				     .sent = world->options.deltas ? &trainer->sent : NULL,
			     },
			     &error);
}

static int make_trainer(struct world *world, uint32_t t)
{
	struct world_trainer *trainer = &world->trainers[t];
	bool small = world->options.small;
	uint32_t callers = small ? 1 : 1 + (uint32_t)world_random(world, 2);

	trainer->wire = trainer->owner = t;
	if (world_make_plan(world, trainer))
		return -1;
	trainer->sent = (struct sent){.sources = trainer->sent_sources,
				      .blocks = trainer->sent_blocks,
				      .runs = trainer->sent_runs};
	for (uint32_t b = 0; b < WORLD_BLOCKS; b++)
		trainer->sent_blocks[b].first_run = b * WORLD_RUNS;
	return world_make_sender(
		world, trainer, callers,
		small ? 2 : callers + (uint32_t)world_random(world, WORLD_THREADS - callers + 1));
}

struct world *world_new(const struct world_options *options)
{
	struct world *world = memory_zalloc(1, sizeof(*world));

	if (!world)
		return NULL;
	world->options = *options;
	world->random = (options->seed + 1) * 0x9e3779b97f4a7c15u | 1;
	for (int i = 0; i < 8; i++)
		world_random(world, 2);
	world->now = MS;
	world->trainer_count =
		1 + options->hedge + (options->small ? 0 : (uint32_t)world_random(world, 2));
	world->rank_count = options->small ? 2 : 1 + (uint32_t)world_random(world, WORLD_RANKS);
	for (uint32_t t = 0; t < WORLD_TRAINERS; t++) {
		snprintf(world->names[t], sizeof(world->names[t]), "trainer %u", t);
		snprintf(world->senders[t], sizeof(world->senders[t]), "trainer %u", t);
	}
	for (uint32_t r = 0; r < WORLD_RANKS; r++) {
		snprintf(world->names[WORLD_TRAINERS + r], sizeof(world->names[0]), "rank %u", r);
		world->rank_names[r] = world->names[WORLD_TRAINERS + r];
	}
	for (uint32_t k = 0; k < WORLD_TENSORS; k++)
		world->tensor_names[k] = "a tensor";
	for (uint32_t r = 0; r < world->rank_count; r++)
		if (options->small ? options->small_landed && r == 1
				   : options->landed && world_chance(world, 60))
			world->ranks[r].window_bytes =
				options->small ? 256 : 128 * (1 + world_random(world, 4));
	for (uint32_t t = 0; t < world->trainer_count; t++)
		if (make_trainer(world, t)) {
			world_free(&world);
			return NULL;
		}
	if (options->hedge && world_make_stand_ins(world)) {
		world_free(&world);
		return NULL;
	}
	for (uint32_t r = 0; r < world->rank_count; r++)
		world_make_rank(world, r);
	for (uint32_t t = 0; t < world->trainer_count; t++)
		world_host_begin(world, &world->trainers[t]);
	return world;
}

void world_free(struct world **where)
{
	struct world *world = *where;

	*where = NULL;
	if (!world)
		return;
	for (uint32_t t = 0; t < WORLD_SENDERS; t++) {
		schedule_close(&world->trainers[t].schedule);
		full_close(&world->trainers[t].plan.homes);
	}
	text_fini(&world->story);
	memory_free(world);
}

const char *world_finding(const struct world *world)
{
	return world->finding[0] ? world->finding : NULL;
}

const char *world_story(const struct world *world)
{
	return text_string(&world->story);
}

uint64_t world_published(const struct world *world, uint32_t rank)
{
	return world->ranks[rank].published;
}

uint32_t world_publications(const struct world *world)
{
	return world->publications;
}

uint32_t world_steps(const struct world *world)
{
	return world->steps;
}

uint32_t world_asks(const struct world *world)
{
	return world->asks;
}

uint32_t world_stood(const struct world *world)
{
	return world->stood;
}

uint32_t world_clashes(const struct world *world)
{
	return world->clashes;
}

uint32_t world_lost_shown(const struct world *world)
{
	return world->lost_shown;
}
