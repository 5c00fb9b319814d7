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

	if (rank->published == world->options.versions ||
	    (world_trainers_over(world) && rank->waits)) {
		rank->over = true;
		rank->at = NEVER;
		return;
	}
	rank->waits = true;
	rank->event = (struct receive_event){.kind = RECEIVE_OPENS,
					     .published = rank->published,
					     .deadline_ns = world->now + timeout * MS};
	rank->at = world->now + world_takes(world) +
		   (world->options.slow_target && world_chance(world, 30) ? 50 * MS : 0);
	rank->event.deadline_ns += rank->at - world->now;
}

static bool hear_trainers(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];

	for (uint32_t t = 0; t < world->trainer_count; t++) {
		struct world_signal *signal = &world->links[t][r].to_rank;

		if (!signal->there || signal->at > world->now)
			continue;
		signal->there = false;
		rank->end = signal->end;
		rank->gone = signal->gone;
		rank->landed = signal->landed;
		rank->event = (struct receive_event){.kind = RECEIVE_SIGNAL,
						     .peer = t,
						     .word = signal->word,
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
	if (link->ending)
		return;
	world->links[t][r].to_trainer =
		(struct world_signal){.there = true,
				      .at = world->now,
				      .word = UPDATE_TAKEN,
				      .taken = {link->opening, rank->event.entries}};
	world_wake(world, &world->trainers[t], THREAD_TAKEN);
}

void world_rank_acts(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];
	struct receive_step step;

	if (rank->event.kind == RECEIVE_ASKS && rank->heard_until) {
		rank->heard_until = 0;
		if (!hear_trainers(world, r) && world->failed) {
			error_set(&rank->error, ERROR_PEER_LOST, "the job failed");
			rank->event = (struct receive_event){
				.kind = RECEIVE_FAILED, .error = &rank->error, .broken = true};
		}
	}
	if (rank->event.kind == RECEIVE_TAKEN)
		take(world, r);
	rank->event.now_ns = world->now;
	step = receive_next(&rank->receiver, &rank->event);
	rank->event = (struct receive_event){.kind = RECEIVE_ASKS};
	rank->at = world->now;
	switch (step.kind) {
	case RECEIVE_ACCEPT:
		send_accept(world, r, step.peer);
		break;
	case RECEIVE_TAKE:
		rank->event = (struct receive_event){.kind = RECEIVE_TAKEN,
						     .peer = step.peer,
						     .entries = rank->links[step.peer].landed};
		rank->at = world->now + world_takes(world);
		break;
	case RECEIVE_WAIT:
		rank->heard_until = step.until_ns;
		rank->at = step.until_ns;
		break;
	case RECEIVE_VERIFY:
	case RECEIVE_LOAD:
		rank->at = world->now + world_takes(world);
		break;
	case RECEIVE_PUBLISH:
		world_tell(world, "rank %u publishes version %" PRIu64, r, step.version);
		world_check_publication(world, r, step.version);
		if (step.version <= rank->published)
			world_find(world, "rank %u published %" PRIu64 " after %" PRIu64, r,
				   step.version, rank->published);
		rank->published = step.version;
		for (uint32_t t = 0; t < world->trainer_count; t++)
			rank->based[t] = rank->links[t].opening + 1;
		world->publications++;
		open_wait(world, rank);
		break;
	case RECEIVE_ASK: /* nobody stands in here */
	case RECEIVE_SPARE:
	case RECEIVE_RELEASE:
		world_find(world, "rank %u asks for a stand-in", r);
		break;
	case RECEIVE_MEET: /* these decide by themselves: see test_sim_commit.c */
		world_find(world, "rank %u meets others", r);
		break;
	case RECEIVE_FAIL:
		world_tell(world, "rank %u: %s", r, rank->receiver.error.text);
		rank->over = step.broken;
		rank->at = NEVER;
		if (!step.broken)
			open_wait(world, rank);
		break;
	}
}

uint64_t world_rank_next(const struct world *world, uint32_t r)
{
	const struct world_rank *rank = &world->ranks[r];
	uint64_t at = rank->at;

	for (uint32_t t = 0; t < world->trainer_count && rank->heard_until; t++) {
		const struct world_signal *signal = &world->links[t][r].to_rank;

		if (signal->there && signal->at < at)
			at = signal->at;
	}
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
	open_wait(world, rank);
}
