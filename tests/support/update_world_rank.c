/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_rank.c -- a rank: opens its memory, hears trainers, publishes.
 */
#include "tests/support/update_world_parts.h"

#include <inttypes.h>

bool world_trainers_over(const struct world *world)
{
	for (uint32_t t = 0; t < world->trainer_count; t++)
		if (world->trainers[t].script != SCRIPT_OVER)
			return false;
	return true;
}

static void open_wait(struct world *world, struct world_rank *rank)
{
	uint64_t timeout = world->options.slow_target && world_chance(world, 30) ? 5 : 1000000;
	bool leaves = rank->published == world->options.versions ||
		      world_rank_pauses(world, (uint32_t)(rank - world->ranks)) ||
		      (world_trainers_over(world) && rank->waits);

	if (world->options.hedge && (leaves || !receive_goes_on(&rank->receiver, 0))) {
		rank->clears = true;
		rank->leaves = leaves;
		rank->clear_until = 0;
		rank->at = world->now + world_takes(world);
	}
	if (leaves) {
		rank->over = !rank->clears;
		rank->at = rank->over ? NEVER : rank->at;
		return;
	}
	rank->waits = true;
	rank->event = (struct receive_event){.kind = RECEIVE_OPENS,
					     .published = rank->published,
					     .deadline_ns = world->now + timeout * MS};
	rank->at = world->now + world_takes(world) +
		   (world->options.slow_target && world_chance(world, 30) ? 50 * MS : 0);
	rank->event.deadline_ns += rank->at - world->now;
	rank->waited_ns = rank->event.deadline_ns - rank->at;
}

/* Nobody may write what was published last, and its wait begins. */
static void opens(struct world *world, struct world_rank *rank)
{
	rank->clears = false;
	rank->over = rank->leaves;
	rank->at = rank->over ? NEVER : world->now;
	rank->event.published = rank->published;
	rank->event.deadline_ns = world->now + rank->waited_ns;
}

/* As update_payload.c has it. */
static void check_opening(struct world *world, uint32_t r, uint32_t t,
			  const struct world_signal *signal)
{
	const struct receive_link *link = &world->ranks[r].links[t];
	uint64_t opening = signal->word == UPDATE_LANDED ? signal->landed.opening
			   : signal->word == UPDATE_END	 ? signal->end.opening
							 : signal->gone.opening;

	if (!link->outstanding || opening != link->opening)
		world_find(world, "trainer %u uses permission %" PRIu64 " of rank %u, which %s", t,
			   opening, r, link->outstanding ? "gave it another" : "gave it none");
}

static bool hear_trainers(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];

	for (uint32_t t = 0; t < world->trainer_count; t++) {
		struct world_signal *signal = &world->links[t][r].to_rank;

		if (!signal->there || signal->at > world->now)
			continue;
		signal->there = false;
		check_opening(world, r, t, signal);
		rank->end = signal->end;
		rank->gone = signal->gone;
		rank->landed = signal->landed;
		rank->event = (struct receive_event){.kind = RECEIVE_SIGNAL,
						     .peer = t,
						     .word = signal->word,
						     .heard_ns = world->now,
						     .end = &rank->end,
						     .gone = &rank->gone,
						     .landed = &rank->landed};
		return true;
	}
	return false;
}

static void send_accept(struct world *world, uint32_t r, uint32_t t)
{
	const struct world_rank *rank = &world->ranks[r];
	struct world_link *link = &world->links[t][r];
	struct world_trainer *trainer = &world->trainers[t];

	link->to_trainer = (struct world_signal){
		.there = true,
		.at = world->now,
		.word = UPDATE_ACCEPT,
		.accept = {.opening = rank->links[t].opening,
			   .min_version = rank->receiver.min_version,
			   .max_version = rank->receiver.max_version,
			   .taken = rank->links[t].taken,
			   .base = rank->based[t] == rank->links[t].opening ||
						   world->options.bug == BUG_BASE_KEPT
					   ? rank->published
					   : 0}};
	if (rank->window_bytes)
		link->to_trainer.accept.window_bytes = WINDOW_HEAD_BYTES + rank->window_bytes;
	world_wake(world, trainer, THREAD_ACCEPT);
	world_wake(world, trainer, THREAD_TAKEN);
}

/* What landed until the step began, read at its end. */
static void take(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];
	uint32_t t = rank->event.peer;
	struct receive_link *link = &rank->links[t];

	if (world->options.slow_target && world_chance(world, 10)) {
		error_set(&rank->error, ERROR_TIMEOUT, "the GPU is held up");
		rank->event = (struct receive_event){.kind = RECEIVE_FAILED, .error = &rank->error};
		return;
	}
	rank->event.bytes = world_take(world, r, t, rank->event.entries);
	world_tell(world, "rank %u has taken %" PRIu64 " entries", r, rank->event.entries);
	if (link->ending || link->stands_ending)
		return;
	if (world->options.hedge) {
		world_say_taken(world, r, t, rank->event.entries);
		return;
	}
	world->links[t][r].to_trainer =
		(struct world_signal){.there = true,
				      .at = world->now,
				      .word = UPDATE_TAKEN,
				      .taken = {link->opening, rank->event.entries}};
	world_wake(world, &world->trainers[t], THREAD_TAKEN);
}

/* Mistakes of a rank that hedges. */
static void spoil(struct world *world, struct world_rank *rank)
{
	for (uint32_t t = 0; t < world->trainer_count; t++) {
		if (world->options.bug == BUG_STOOD_FORGOTTEN && rank->links[t].stood)
			receive_settle(&rank->receiver, t);
		if (world->options.bug == BUG_OLDER_TOO && rank->links[t].outstanding)
			rank->links[t].accepted = true;
	}
}

/* Its wait is over, or something has come: false, it stops. */
static bool listen(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];

	rank->heard_until = 0;
	if (hear_trainers(world, r) || world_hear_lost(world, r))
		return true;
	if (world_rank_pauses(world, r)) {
		world_rank_stops(world, r);
		return false;
	}
	if (world->failed) {
		error_set(&rank->error, ERROR_PEER_LOST, "the job failed");
		rank->event = (struct receive_event){
			.kind = RECEIVE_FAILED, .error = &rank->error, .broken = true};
	}
	return true;
}

static void count_stood(struct world *world, const struct world_rank *rank)
{
	uint32_t lost = world->lost - 1;

	for (uint32_t t = 0; t < world->trainer_count; t++)
		world->stood +=
			rank->peers[t].pieces && rank->links[t].asked && rank->links[t].stood;
	world->lost_shown += world->lost && rank->peers[lost].pieces && rank->links[lost].gone &&
			     rank->links[lost].asked;
}

static void publish(struct world *world, uint32_t r, uint64_t version)
{
	struct world_rank *rank = &world->ranks[r];

	world_tell(world, "rank %u publishes version %" PRIu64, r, version);
	world_check_publication(world, r, version);
	count_stood(world, rank);
	if (version <= rank->published)
		world_find(world, "rank %u published %" PRIu64 " after %" PRIu64, r, version,
			   rank->published);
	rank->published = version;
	for (uint32_t t = 0; t < world->trainer_count; t++)
		rank->based[t] = rank->links[t].opening + 1;
	world->publications++;
	rank->tainted = false;
	world_push_out(world, r);
	open_wait(world, rank);
}

static void wait_until(struct world *world, uint32_t r, uint64_t until_ns)
{
	struct world_rank *rank = &world->ranks[r];

	rank->heard_until = rank->at = until_ns;
	if (world->options.hedge && world_push(world, r) && world->now + 5 * MS < rank->at)
		rank->at = world->now + 5 * MS;
	if (world_rank_pauses(world, r) && !world_rank_lacks(world, r))
		rank->at = world->now;
}

static void do_step(struct world *world, uint32_t r, const struct receive_step *step)
{
	struct world_rank *rank = &world->ranks[r];

	switch (step->kind) {
	case RECEIVE_ACCEPT:
		if (world->options.hedge)
			world_say(world, r, step);
		else
			send_accept(world, r, step->peer);
		break;
	case RECEIVE_ASK:
	case RECEIVE_SPARE:
	case RECEIVE_RELEASE:
		world->asks += step->kind == RECEIVE_ASK;
		if (!world->options.hedge)
			world_find(world, "rank %u asks for a stand-in", r);
		else if (world->options.bug != BUG_UNRELEASED || step->kind != RECEIVE_RELEASE)
			world_say(world, r, step);
		break;
	case RECEIVE_TAKE:
		rank->event = (struct receive_event){.kind = RECEIVE_TAKEN,
						     .peer = step->peer,
						     .entries = rank->links[step->peer].landed};
		rank->at = world->now + world_takes(world);
		break;
	case RECEIVE_WAIT:
		wait_until(world, r, step->until_ns);
		break;
	case RECEIVE_VERIFY:
	case RECEIVE_LOAD:
		rank->verifies =
			world->options.hedge && step->kind == RECEIVE_VERIFY ? step->version : 0;
		rank->at = world->now + world_takes(world);
		break;
	case RECEIVE_PUBLISH:
		publish(world, r, step->version);
		break;
	case RECEIVE_MEET: /* these decide by themselves: see test_sim_commit.c */
		world_find(world, "rank %u meets others", r);
		break;
	case RECEIVE_FAIL:
		world_tell(world, "rank %u: %s", r, rank->receiver.error.text);
		rank->over = step->broken;
		rank->at = NEVER;
		rank->tainted = true; /* one copy: it was open */
		world_release_all(world, r);
		if (!step->broken)
			open_wait(world, rank);
		break;
	}
}

void world_rank_acts(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];
	bool listens = rank->event.kind == RECEIVE_ASKS && rank->heard_until;
	/* else no deadline passes before all that came was heard */
	bool in_time = !world->options.hedge || rank->event.kind == RECEIVE_OPENS || listens;
	struct receive_step step;

	if (rank->over) /* it has just died */
		return;
	if (rank->clears) {
		if (world_clear(world, r))
			opens(world, rank);
		return;
	}
	if (listens && !listen(world, r))
		return;
	if (rank->event.kind == RECEIVE_TAKEN)
		take(world, r);
	if (rank->verifies)
		world_verify(world, r);
	rank->event.now_ns = in_time ? world->now : 0;
	step = receive_next(&rank->receiver, &rank->event);
	if (world->options.bug)
		spoil(world, rank);
	rank->event = (struct receive_event){.kind = RECEIVE_ASKS};
	rank->at = world->now;
	do_step(world, r, &step);
}

uint64_t world_rank_next(const struct world *world, uint32_t r)
{
	const struct world_rank *rank = &world->ranks[r];
	uint64_t at = rank->at;

	for (uint32_t t = 0; t < world->trainer_count && rank->heard_until; t++) {
		const struct world_signal *signal = &world->links[t][r].to_rank;

		if (signal->there && signal->at < at && (!rank->clears || t == rank->owes))
			at = signal->at;
	}
	if (rank->heard_until && world_rank_lacks(world, r) && rank->lost_heard_at < at)
		at = rank->lost_heard_at;
	if (rank->heard_until && (world->failed || world_trainers_over(world)) && at > world->now) {
		bool comes = false;

		for (uint32_t t = 0; t < world->trainer_count; t++)
			comes = comes || world->links[t][r].to_rank.there;
		if (!comes && world->failed)
			at = world->now;
	}
	return rank->over ? NEVER : at;
}

void world_make_rank(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];

	for (uint32_t t = 0; t < world->trainer_count; t++) {
		const struct world_trainer *trainer = &world->trainers[t];
		struct receive_peer *peer = &rank->peers[t];

		peer->name = world->names[t];
		peer->lands = rank->window_bytes != 0;
		peer->deltas = trainer->deltas[r];
		peer->stand_in = trainer->standing.stand_in;
		for (uint32_t i = 0; i < trainer->plan.row_count; i++)
			if (trainer->rows[i].peer == r) {
				uint64_t bytes =
					trainer->sources[trainer->rows[i].source].pack.bytes;

				peer->pieces++;
				peer->bytes += bytes;
				peer->landed_bytes += trainer->rows[i].landed ? bytes : 0;
			}
	}
	receiver_init(&rank->receiver, rank->peers, world->trainer_count, rank->links,
		      (struct digest){0}, true);
	if (world->options.hedge)
		rank->receiver.hedge_ns =
			(world->options.small ? 10 : 1 + world_random(world, 20)) * MS;
	for (uint32_t t = 0; t < WORLD_TRAINERS; t++)
		rank->unsaid[t].kind = RECEIVE_WAIT;
	open_wait(world, rank);
}
