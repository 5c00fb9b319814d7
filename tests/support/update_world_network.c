/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_network.c -- writes in flight and signals. Writes of a pair complete in order of their
 * posting, as the transport's contract has it; a signal keeps behind the writes posted before it.
 */
#include "tests/support/update_world_parts.h"

#include <inttypes.h>

static struct flight *flight_at(struct world_link *link, uint32_t index)
{
	return &link->flights[index % (sizeof(link->flights) / sizeof(link->flights[0]))];
}

bool world_post(struct world *world, uint32_t t, uint32_t r, const struct flight *flight)
{
	const struct world_trainer *trainer = &world->trainers[t];
	struct world_link *link = &world->links[trainer->wire][r];
	uint64_t at = world->now + world_lands(world);

	if (link->slow)
		at += world_random(world, 30 * MS);
	if (world->options.loss && world_random(world, 200) == 0)
		link->broken = true;
	if (++world->posts == world->options.lose_post)
		link->broken = true;
	if (link->broken) {
		/* a signal that is behind writes which never complete does not come either */
		link->to_rank.there = link->to_rank.there && link->to_rank.at <= world->now;
		return false;
	}
	if (at < link->last_at)
		at = link->last_at;
	link->last_at = at;
	*flight_at(link, link->next) = *flight;
	flight_at(link, link->next)->owner = trainer->owner;
	flight_at(link, link->next)->number = ++link->posted;
	flight_at(link, link->next)->complete_at = at;
	link->next++;
	return true;
}

/* The write reads its source now, and lands. */
static void land(struct world *world, uint32_t t, uint32_t r, const struct flight *flight)
{
	struct world_rank *rank = &world->ranks[r];
	tag *cell = &rank->cells[flight->owner][flight->row][flight->part];

	if (flight->from && *flight->from != flight->wanted)
		world_find(world,
			   "a write to rank %u read %" PRIx64 " where %" PRIx64
			   " was posted: its slot was reused before it completed",
			   r, *flight->from, flight->wanted);
	if (!rank->links[t].outstanding)
		world_find(world, "trainer %u wrote row %u into rank %u, which accepts nothing", t,
			   flight->row, r);
	world_check_write(world, t, r, (flight->from ? *flight->from : flight->wanted) >> 32);
	if (flight->bytes)
		world_land(world, r, t, flight);
	else
		*cell = flight->from ? *flight->from : flight->wanted;
}

static void complete(struct world *world, uint32_t t, uint32_t r)
{
	struct world_link *link = &world->links[t][r];

	while (link->first != link->next && !link->broken) {
		const struct flight *flight = flight_at(link, link->first);

		if (flight->complete_at > world->now)
			return;
		if (flight->row != UINT32_MAX)
			land(world, t, r, flight);
		else if (flight->sums)
			world_land_sums(world, t, r, flight);
		link->completed = flight->number;
		link->first++;
	}
}

void world_network(struct world *world)
{
	for (uint32_t t = 0; t < world->trainer_count; t++)
		for (uint32_t r = 0; r < world->rank_count; r++)
			complete(world, t, r);
}

uint64_t world_network_next(const struct world *world)
{
	uint64_t next = NEVER;

	for (uint32_t t = 0; t < world->trainer_count; t++)
		for (uint32_t r = 0; r < world->rank_count; r++) {
			struct world_link *link =
				(struct world_link *)(uintptr_t)&world->links[t][r];

			if (link->first != link->next && !link->broken &&
			    flight_at(link, link->first)->complete_at < next)
				next = flight_at(link, link->first)->complete_at;
		}
	return next;
}

void world_check_publication(struct world *world, uint32_t r, uint64_t version)
{
	/* where trainers do not hold the same it may have been verified before the other one wrote: found when that has ended */
	tag alike = world->options.clash ? OTHER_BYTES : 0;

	for (uint32_t t = 0; t < world->trainer_count; t++) {
		const struct world_trainer *trainer = &world->trainers[t];

		for (uint32_t i = 0; i < trainer->plan.row_count; i++) {
			const struct send_row *row = &trainer->rows[i];

			for (uint32_t part = 0;
			     row->peer == r && part < trainer->sources[row->source].parts; part++)
				if ((world->ranks[r].cells[t][i][part] & ~alike) !=
				    tag_of(version, t, row->source, part))
					world_find(world,
						   "rank %u published version %" PRIu64
						   ", but row %u part %u of trainer %u is %" PRIx64,
						   r, version, i, part, t,
						   world->ranks[r].cells[t][i][part]);
		}
		if (world->ranks[r].links[t].outstanding && !world->options.hedge)
			world_find(world, "rank %u published while trainer %u may write", r, t);
	}
}
