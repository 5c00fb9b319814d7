/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_plan.c -- a random trainer's plan: sources of a few parts, columns that are packed
 * together, scales that follow their values, pieces made of two tensors; each for some of the ranks.
 */
#include "tests/support/update_world_parts.h"

#include "base/memory.h"

#include <string.h>

static struct send_source *add_source(struct world *world, struct world_trainer *trainer,
				      uint32_t tensor, uint64_t part_bytes, uint32_t parts)
{
	struct send_plan *plan = &trainer->plan;
	struct send_source *source = &trainer->sources[plan->source_count++];

	*source = (struct send_source){.tensor = tensor,
				       .scales = NO_TENSOR,
				       .first_block = (uint32_t)plan->block_count,
				       .parts = parts,
				       .follower = NO_SOURCE,
				       .group_max = 1,
				       .part_bytes = part_bytes};
	source->pack.bytes =
		(parts - 1) * part_bytes + 8 * (1 + world_random(world, part_bytes / 8));
	plan->block_count += parts;
	return source;
}

/* The job of a story: see update_world.h. */
static void make_small(struct world *world, struct world_trainer *trainer)
{
	static const struct send_row rows[] = {
		{.peer = 0, .source = 0, .path = PATH_REPLICA},
		{.peer = 0, .source = 1, .path = PATH_MAPPED, .stored = true},
		{.peer = 1, .source = 2, .path = PATH_DIRECT},
		{.peer = 1, .source = 0, .path = PATH_REPLICA},
	};
	struct send_plan *plan = &trainer->plan;

	plan->tensor_count = 2;
	for (uint32_t s = 0; s < 3; s++)
		add_source(world, trainer, s != 0, 64, s ? 1 : 2)->pack.bytes = s ? 64 : 128;
	trainer->sources[0].slots = true;
	memcpy(trainer->rows, rows, sizeof(rows));
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		trainer->rows[i].landed = trainer->lands[rows[i].peer];
	plan->row_count = sizeof(rows) / sizeof(rows[0]);
	plan->posts = true;
}

static void add_sources(struct world *world, struct world_trainer *trainer)
{
	uint32_t tensors = 2 + (uint32_t)world_random(world, WORLD_TENSORS - 2);

	trainer->plan.tensor_count = tensors;
	while (trainer->plan.source_count + 3 <= WORLD_SOURCES) {
		uint32_t tensor = (uint32_t)world_random(world, tensors);
		uint32_t parts = 1 + (uint32_t)world_random(world, WORLD_PARTS);
		uint64_t part_bytes = 64 * (1 + world_random(world, 2));
		uint64_t kind = world_random(world, 5), first = trainer->plan.source_count;
		struct send_source *source = add_source(world, trainer, tensor, part_bytes, parts);

		if (kind == 0) { /* columns: of equally many bytes */
			for (uint32_t k = 0; k < 2; k++) {
				trainer->sources[first + k].joins_next = true;
				trainer->sources[first + k].group_max = 3;
				add_source(world, trainer, tensor, part_bytes, parts)->pack.bytes =
					source->pack.bytes;
			}
			trainer->sources[first + 2].group_max = 3;
		} else if (kind == 1) { /* values, and scales that follow */
			source->follower = (uint32_t)first + 1;
			add_source(world, trainer, tensor, 64, 1)->follows = true;
		} else if (kind == 2) {
			source->scales = (tensor + 1) % tensors;
		}
		if (world_chance(world, 30))
			break;
	}
}

/* Where trainers stand in for each other the first is, for one of several ranks and by chance, a peer only because it may be
 * asked for another one's pieces. */
static bool is_idle(const struct world *world, const struct world_trainer *trainer, uint32_t r)
{
	return world->options.hedge && !world->options.full && !trainer->owner && r &&
	       r + 1 == world->rank_count && world->options.seed % 3 == 0;
}

/* A row for each rank that wants the source; the ring and the mapped way may be mixed. */
static void add_rows(struct world *world, struct world_trainer *trainer, uint32_t s)
{
	struct send_source *source = &trainer->sources[s];
	struct send_plan *plan = &trainer->plan;

	for (uint32_t r = 0; r < world->rank_count; r++) {
		bool needed = world->options.hedge && trainer->owner && !s;
		enum route_path path = (enum route_path)world_random(world, PATH_LANDED);
		struct send_row *row = &trainer->rows[plan->row_count];
		bool lands = trainer->lands[r] && world_chance(world, 80);

		if ((r && !needed && world_chance(world, 30)) || plan->row_count == WORLD_ROWS)
			continue;
		if (is_idle(world, trainer, r))
			continue;
		if (source->follows && path == PATH_REPLICA)
			path = PATH_DIRECT; /* its bytes lie in scratch */
		if (lands && path == PATH_MAPPED)
			path = PATH_DIRECT;
		*row = (struct send_row){.peer = r, .source = s, .path = path, .landed = lands};
		row->stored =
			path == PATH_MAPPED || (path == PATH_DIRECT && world_chance(world, 50));
		if (world->options.full)
			row->stored = r % 2;
		row->stored = row->stored && !row->landed;
		plan->row_count++;
		plan->posts = plan->posts || !row->stored;
		source->slots |= path == PATH_REPLICA && !world->options.full;
	}
}

static void shuffle_rows(struct world *world, struct world_trainer *trainer)
{
	for (size_t i = trainer->plan.row_count; i > 1; i--) {
		size_t j = world_random(world, i);
		struct send_row row = trainer->rows[i - 1];

		trainer->rows[i - 1] = trainer->rows[j];
		trainer->rows[j] = row;
	}
}

static void index_rows(struct world_trainer *trainer)
{
	struct send_plan *plan = &trainer->plan;
	uint32_t at = 0;

	for (uint32_t i = 0; i < plan->row_count; i++)
		trainer->rows[i].ordinal = i;
	for (uint32_t s = 0; s < plan->source_count; s++) {
		struct send_source *source = &trainer->sources[s];

		source->first_row = at;
		for (uint32_t i = 0; i < plan->row_count; i++)
			if (trainer->rows[i].source == s)
				trainer->source_rows[at++] = i;
		source->row_count = at - source->first_row;
	}
	at = 0;
	for (uint32_t t = 0; t < plan->tensor_count; t++) {
		trainer->tensor_first[t] = at;
		for (uint32_t i = 0; i < plan->row_count; i++) {
			const struct send_source *source =
				&trainer->sources[trainer->rows[i].source];

			if (source->tensor == t || source->scales == t)
				trainer->tensor_rows[at++] = i;
		}
	}
	trainer->tensor_first[plan->tensor_count] = at;
}

/* As worker/epoch/send_sources.c and worker/epoch/send_memory.c find it. */
static void find_work(struct world *world, struct world_trainer *trainer)
{
	struct send_plan *plan = &trainer->plan;

	plan->ring_bytes = WORLD_RING;
	if (world->options.small_ring)
		plan->ring_bytes = world->options.small ? 64 : 128 + 64 * world_random(world, 4);
	for (uint32_t s = 0; s < plan->source_count; s++) {
		struct send_source *source = &trainer->sources[s];
		uint64_t most = plan->ring_bytes / source->pack.bytes;

		if (source->slots && source->group_max > most)
			source->group_max = (uint8_t)most;
		source->packs = world->options.full || source->slots ||
				source->follower != NO_SOURCE ||
				(!world->options.small && world_chance(world, 50));
		for (uint32_t i = 0; i < source->row_count; i++)
			source->packs |=
				trainer->rows[trainer->source_rows[source->first_row + i]].stored;
		if (s && !(source->packs && source[-1].packs))
			source[-1].joins_next = false;
		/* three sources take turns in a home, but scales, which lie in parameters of their own; alone, each keeps its version */
		trainer->places[s] = (struct full_place){
			.param = world->options.replay || source->follows ? s
									  : WORLD_SOURCES + s / 3,
			.bytes = source->pack.bytes};
	}
	if (world->options.full)
		plan->ring_bytes = 0;
}

int world_make_plan(struct world *world, struct world_trainer *trainer)
{
	struct send_plan *plan = &trainer->plan;
	struct error error;

	*plan = (struct send_plan){.rows = trainer->rows,
				   .sources = trainer->sources,
				   .source_rows = trainer->source_rows,
				   .tensor_first = trainer->tensor_first,
				   .tensor_rows = trainer->tensor_rows,
				   .peer_count = world->rank_count,
				   .lands = trainer->lands,
				   .deltas = trainer->deltas,
				   .merges = trainer->merges,
				   .full = world->options.full};
	for (uint32_t r = 0; r < world->rank_count; r++) {
		trainer->lands[r] = world->ranks[r].window_bytes != 0;
		if (world->options.deltas && trainer->lands[r] && world_chance(world, 70)) {
			trainer->deltas[r] = true;
			trainer->lands[r] = world_chance(world, 50);
		}
		if (trainer->deltas[r])
			trainer->merges[r].bytes = 128 * (1 + world_random(world, 4));
		else if (trainer->lands[r] && (world->options.small ? world->options.small_merged
								    : world_chance(world, 50)))
			trainer->merges[r].bytes =
				world->options.small ? 256 : 128 * (1 + world_random(world, 4));
	}
	if (world->options.small) {
		make_small(world, trainer);
	} else {
		add_sources(world, trainer);
		for (uint32_t s = 0; s < plan->source_count; s++)
			add_rows(world, trainer, s);
		shuffle_rows(world, trainer);
	}
	index_rows(trainer);
	find_work(world, trainer);
	if (!world->options.full)
		return 0;
	return full_open(&plan->homes, trainer->places, plan->source_count, &error);
}
