/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_lost.c -- a trainer is lost, in a job that goes on: what it had posted and has not landed never does, ranks hear of it,
 * and nobody begins a version that none of the others had begun (there the job would pause for another plan).
 *
 *   trainer 0   begin 8 ── writes ── ✕
 *   trainer 1   begin 8 ── writes ── end 8: asked by ranks that know ── begin 9: stops
 *   rank        ................................ all of 8 is here ── shows 8 ── stops
 */
#include "tests/support/update_world_parts.h"

#include <inttypes.h>

static void stop_threads(struct world_trainer *trainer)
{
	for (uint32_t i = 0; i < trainer->thread_count; i++) {
		trainer->threads[i].state = THREAD_OUT;
		trainer->threads[i].at = NEVER;
	}
}

/* The first version that none of the others has begun. */
static uint64_t first_unbegun(const struct world *world)
{
	uint64_t begun = 0;

	for (uint32_t t = 0; t < world->trainer_count; t++)
		if (t + 1 != world->lost && world->trainers[t].version > begun)
			begun = world->trainers[t].version;
	return begun + 1;
}

void world_may_lose_trainer(struct world *world)
{
	uint32_t lost;

	if (!world->options.loses || world->lost || world_random(world, 400))
		return;
	lost = (uint32_t)world_random(world, world->trainer_count);
	if (world->trainers[lost].script == SCRIPT_OVER)
		return;
	world->lost = lost + 1;
	world->pause_from = first_unbegun(world);
	world_tell(world, "trainer %u is lost, and nobody begins version %" PRIu64, lost,
		   world->pause_from);
	stop_threads(&world->trainers[lost]);
	stop_threads(&world->trainers[WORLD_TRAINERS + lost]);
	world->trainers[lost].script = SCRIPT_OVER;
	world->trainers[lost].standing.stopped_until = 0;
	for (uint32_t r = 0; r < world->rank_count; r++) {
		struct world_link *link = &world->links[lost][r];

		link->broken = true;
		link->first = link->next;
		link->to_rank.there = link->to_rank.there && link->to_rank.at <= world->now;
		link->to_trainer.there = false;
		world->ranks[r].lost_heard_at = world->now + world_random(world, 50 * MS);
	}
	for (uint32_t t = 0; t < world->trainer_count; t++)
		world_wake(world, &world->trainers[t], THREAD_ACCEPT);
}

bool world_pauses(const struct world *world, uint64_t version)
{
	return world->lost && version >= world->pause_from;
}

bool world_rank_pauses(const struct world *world, uint32_t r)
{
	const struct world_rank *rank = &world->ranks[r];
	uint64_t past = rank->receiver.past;

	return world_pauses(world, (past > rank->published ? past : rank->published) + 1);
}

bool world_rank_lacks(const struct world *world, uint32_t r)
{
	return world->lost && !world->ranks[r].links[world->lost - 1].gone;
}

/* After the last that it has said. */
bool world_hear_lost(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];

	if (!world_rank_lacks(world, r) || rank->lost_heard_at > world->now)
		return false;
	world->links[world->lost - 1][r].to_rank.there = false;
	rank->event = (struct receive_event){.kind = RECEIVE_GONE, .peer = world->lost - 1};
	return true;
}
