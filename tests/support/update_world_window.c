/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_window.c -- windows of ranks: chunks land in them, and are put where they belong.
 *
 *   flight ── completes ──► ring [ tag tag | tag .. ]   ── taken ──► cells, when all bytes of a part are there
 */
#include "tests/support/update_world_parts.h"

#include <inttypes.h>
#include <string.h>

void world_land(struct world *world, uint32_t r, uint32_t t, const struct flight *flight)
{
	struct world_rank *rank = &world->ranks[r];
	tag what = flight->from ? *flight->from : flight->wanted;

	if (flight->at + flight->bytes > rank->window_bytes)
		world_find(world, "trainer %u wrote beyond its window of rank %u", t, r);
	for (uint64_t byte = 0; byte < flight->bytes && !world->finding[0]; byte += 8)
		rank->windows[t].ring[(flight->at + byte) / 8] = what;
}

/* owner: whose rows they are, that trainer t wrote. */
static void take_entry(struct world *world, uint32_t r, uint32_t t, uint32_t owner,
		       const struct window_entry *entry)
{
	const struct world_trainer *trainer = &world->trainers[owner];
	uint32_t i = entry->ordinal;
	const struct send_source *source = &trainer->sources[trainer->rows[i].source];
	uint32_t part = (uint32_t)(entry->from / source->part_bytes);
	struct world_window *window = &world->ranks[r].windows[t];
	tag first = window->ring[entry->at / 8], *cell;
	uint64_t from;

	if (trainer->rows[i].peer != r || part >= source->parts) {
		world_find(world, "rank %u took row %u part %u, which is not its own", r, i, part);
		return;
	}
	cell = &world->ranks[r].cells[owner][i][part];
	if (entry->coded && window->tags[i][part] != first &&
	    *cell >> 32 != trainer->sent_sources[trainer->rows[i].source].version)
		world_find(
			world,
			"rank %u took what differs of row %u part %u of trainer %u from version %" PRIu64
			", and has %" PRIx64,
			r, i, part, t, trainer->sent_sources[trainer->rows[i].source].version,
			*cell);
	for (uint64_t byte = 0; byte < window_entry_bytes(entry); byte += 8)
		if (window->ring[(entry->at + byte) / 8] != first)
			world_find(world, "rank %u took half of a chunk of trainer %u", r, t);
	if ((first & ~OTHER_BYTES) != tag_of(first >> 32, owner, trainer->rows[i].source, part))
		world_find(world,
			   "rank %u took %" PRIx64
			   " for row %u part %u of trainer %u: its place was "
			   "written again, or not yet",
			   r, first, i, part, t);
	if (window->tags[i][part] != first)
		window->bytes[i][part] = 0;
	window->tags[i][part] = first;
	window->bytes[i][part] += entry->bytes;
	/* the same bytes over what is whole change nothing */
	if (*cell != first)
		*cell = window->bytes[i][part] == source_part(source, part, &from) ? first : 0;
}

uint64_t world_take(struct world *world, uint32_t r, uint32_t t, uint64_t entries)
{
	struct world_window *window = &world->ranks[r].windows[t];
	const struct receive_link *link = &world->ranks[r].links[t];
	uint32_t owner = link->stands ? link->stands - 1 : t;
	uint64_t bytes = 0;

	if (window->opening != link->opening) {
		memset(window->tags, 0, sizeof(window->tags));
		window->opening = link->opening;
	}
	for (uint64_t n = link->taken; n < entries && !world->finding[0]; n++) {
		take_entry(world, r, t, owner, &window->entries[n % WINDOW_ENTRIES]);
		bytes += window->entries[n % WINDOW_ENTRIES].bytes;
	}
	return bytes;
}
