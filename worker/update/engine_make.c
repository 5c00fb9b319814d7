/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_make.c -- a part is made, once for all that want it: into a slot of the ring or its home, into
 * every target that is mapped here, into its sum. Column slices of the same rows are made together.
 *
 *   tensor   |aaaa|bbbb|cccc|     a, b, c: sources that different ranks want
 *            |aaaa|bbbb|cccc|     read once, as it lies ─► slots and targets of a, of b, of c
 */
#include "worker/api/worker.h"

#include "base/copy.h"
#include "job/digest.h"

#define TARGETS_AT_ONCE 32
/* A reader is fast from here on, and more lanes would keep other threads waiting for them. */
#define LANES_ROW_BYTES 4096u

uint64_t source_part(const struct source *source, uint32_t part, uint64_t *from)
{
	uint64_t left;

	*from = (uint64_t)part * source->part_bytes;
	left = source->pack.bytes - *from;
	return left < source->part_bytes ? left : source->part_bytes;
}

/* What a source is made of. Its tensors were given before any item of it was taken. */
static struct pack_part part_of(const struct weft_worker *worker, const struct source *source,
				uint64_t from, uint64_t bytes)
{
	const struct trainer *trainer = &worker->trainer;

	return (struct pack_part){
		.data = trainer->given[source->tensor],
		.scales = source->scales == NO_TENSOR ? NULL : trainer->given[source->scales],
		.from = from,
		.bytes = bytes,
	};
}

/* Where the ring is smaller than a block of the sum, the sum has a pass of its own. It is taken from
 * the source, not from a packed copy: what goes wrong in between is then found at the target. */
static uint64_t sum_alone(const struct weft_worker *worker, const struct source *source)
{
	const struct pack *pack = &source->pack;
	struct digest_stream all;
	uint64_t sum = 0;

	checksum_begin(&all);
	for (uint64_t from = 0; from < pack->bytes; from += pack->block_bytes) {
		uint64_t left = pack->bytes - from;
		struct pack_part part = part_of(
			worker, source, from, left < pack->block_bytes ? left : pack->block_bytes);

		part.sum = &sum;
		pack_run(pack, &part);
		digest_add_u64(&all, sum);
	}
	return pack->bytes <= pack->block_bytes ? sum : checksum_end(&all);
}

/* Mapped targets of the source's part, from row *next of it on; at most room. */
static size_t mapped_targets(const struct weft_worker *worker, const struct source *source,
			     uint64_t from, uint32_t *next, void **out, size_t room)
{
	const struct trainer *trainer = &worker->trainer;
	size_t count = 0;

	for (; *next < source->row_count && count < room; ++*next) {
		const struct send_row *row =
			&trainer->rows[trainer->source_rows[source->first_row + *next]];
		const struct target *target = row_target(worker, row);

		if (row->stored)
			out[count++] = target->pointer + target->offset + from;
	}
	return count;
}

/* What has no row of its own in the packer's pass: more targets than it takes at once. */
static void make_rest(const struct weft_worker *worker, const struct source *source,
		      struct pack_part *part, void **targets, uint32_t next)
{
	part->sum = NULL;
	part->made_scales = NULL;
	part->targets = targets;
	while (next < source->row_count) {
		part->target_count =
			mapped_targets(worker, source, part->from, &next, targets, TARGETS_AT_ONCE);
		if (part->target_count)
			pack_run(&source->pack, part);
	}
}

static void add_made(const struct weft_worker *worker, const struct source *source, uint32_t number,
		     struct pack_part *part)
{
	const struct trainer *trainer = &worker->trainer;
	const struct source *follower;

	if (worker->sums && source->sum_parts)
		part->sum = &trainer->block_sums[source->first_block + number];
	if (source->follower == NO_SOURCE)
		return;
	follower = &trainer->sources[source->follower];
	part->made_scales = (float *)(void *)(trainer->kept + follower->kept) +
			    part->from / source->pack.grain_bytes *
				    (follower->pack.grain_bytes / sizeof(float));
}

void engine_make(struct weft_worker *worker, const struct lane *lanes, size_t count,
		 uint32_t number)
{
	void *targets[PACK_LANES_MAX][TARGETS_AT_ONCE];
	struct pack_lane packs[PACK_LANES_MAX];
	uint32_t next[PACK_LANES_MAX];
	size_t wanted = 0;

	for (size_t i = 0; i < count; i++) {
		const struct source *source = lanes[i].source;
		uint64_t from, bytes = source_part(source, number, &from);
		struct pack_part part = part_of(worker, source, from, bytes);

		next[i] = 0;
		targets[i][0] = lanes[i].into;
		part.targets = targets[i];
		part.target_count = lanes[i].into ? 1 : 0;
		part.target_count += mapped_targets(worker, source, from, &next[i],
						    targets[i] + part.target_count,
						    TARGETS_AT_ONCE - part.target_count);
		add_made(worker, source, number, &part);
		wanted += part.target_count || part.sum || part.made_scales;
		packs[i] = (struct pack_lane){&source->pack, part};
	}
	if (count == 1 && wanted)
		pack_run(packs[0].pack, &packs[0].part);
	else if (wanted)
		pack_run_lanes(packs, count);
	for (size_t i = 0; i < count; i++) {
		struct source *source = lanes[i].source;

		make_rest(worker, source, &packs[i].part, targets[i], next[i]);
		if (worker->sums && !source->sum_parts && !number)
			source->sum = sum_alone(worker, source);
	}
	copy_fence();
}

void engine_make_again(const struct weft_worker *worker, const struct source *source,
		       uint32_t number, void *into)
{
	uint64_t from, bytes = source_part(source, number, &from);
	struct pack_part part = part_of(worker, source, from, bytes);

	part.targets = &into;
	part.target_count = 1;
	pack_run(&source->pack, &part);
	copy_fence();
}

/* With a slot where one is needed. */
static bool take_part(struct weft_worker *worker, const struct source *source, uint32_t part)
{
	struct trainer *trainer = &worker->trainer;
	uint32_t block = source->first_block + part;
	uint64_t from, bytes = source_part(source, part, &from);

	if (trainer->blocks[block] != BLOCK_WAITS ||
	    (source->slots && !replica_take_spare(&trainer->replica, block, bytes, trainer->done)))
		return false;
	trainer->blocks[block] = BLOCK_TAKEN;
	return true;
}

/* Neighbours in the list of sources: the next columns of the same rows. */
static bool beside(const struct source *a, const struct source *b)
{
	return a->tensor == b->tensor && a->part_bytes == b->part_bytes &&
	       pack_beside(&a->pack, &b->pack) &&
	       a->pack.runs.offset + a->pack.runs.row_bytes == b->pack.runs.offset;
}

void engine_take(struct weft_worker *worker, struct item *item)
{
	struct trainer *trainer = &worker->trainer;
	const struct source *sources = trainer->sources, *own = &sources[item->source];
	uint64_t lanes = LANES_ROW_BYTES / own->pack.runs.row_bytes;
	uint32_t first = item->source, last = item->source;

	item->first = true;
	item->lanes_first = item->source;
	item->lanes = 1;
	if (worker->full || !take_part(worker, own, item->part)) {
		/* its slot will be waited for, with nothing held */
		trainer->blocks[own->first_block + item->part] = BLOCK_TAKEN;
		return;
	}
	item->held = own->slots;
	lanes = lanes < PACK_LANES_MAX ? lanes : PACK_LANES_MAX;
	/* pieces larger than the ring together would lose their slots before their turn */
	if (own->slots && lanes > trainer->replica.ring.bytes / own->pack.bytes)
		lanes = trainer->replica.ring.bytes / own->pack.bytes;
	while (last + 1 < trainer->source_count && last - first + 1 < lanes &&
	       beside(&sources[last], &sources[last + 1]) &&
	       take_part(worker, &sources[last + 1], item->part))
		last++;
	while (first && last - first + 1 < lanes && beside(&sources[first - 1], &sources[first]) &&
	       take_part(worker, &sources[first - 1], item->part))
		first--;
	item->lanes_first = first;
	item->lanes = last - first + 1;
}

/* The same for scales that were made with their values. */
void engine_follow(struct weft_worker *worker, struct source *source, uint32_t number, void *into)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t from, bytes = source_part(source, number, &from);
	const unsigned char *kept = trainer->kept + source->kept + from;
	void *target;

	if (into)
		copy_bytes(into, kept, bytes);
	for (uint32_t next = 0; mapped_targets(worker, source, from, &next, &target, 1);)
		copy_bytes(target, kept, bytes);
	if (worker->sums && !number)
		source->sum = pack_piece_sum(trainer->kept + source->kept, source->pack.bytes,
					     source->pack.block_bytes);
	copy_fence();
}
