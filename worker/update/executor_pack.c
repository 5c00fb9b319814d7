/* SPDX-License-Identifier: Apache-2.0
 *
 * executor_pack.c -- a part is packed, once for all that want it: into a slot of the ring or its home,
 * into every target that is mapped here, into its sum. Column slices of the same rows are packed
 * together.
 *
 *   tensor   |aaaa|bbbb|cccc|     a, b, c: sources that different ranks want
 *            |aaaa|bbbb|cccc|     read once, as it lies ─► slots and targets of a, of b, of c
 */
#include "worker/update/executor.h"

#include "base/clock.h"
#include "base/copy.h"
#include "job/digest.h"
#include "worker/update/await.h"

#define TARGETS_AT_ONCE 32

const struct send_target *executor_target(const struct sender *sender, const struct send_row *row)
{
	return &sender->epoch->send
			.targets[row->target + sender->schedule.links[row->peer].accept.copy];
}

/* What a source is made of. Its tensors were submitted before any task of it was taken. */
static struct pack_part part_of(const struct sender *sender, const struct send_source *source,
				uint64_t from, uint64_t bytes)
{
	return (struct pack_part){
		.data = sender->data[source->tensor],
		.scales = source->scales == NO_TENSOR ? NULL : sender->data[source->scales],
		.from = from,
		.bytes = bytes,
	};
}

/* Where the ring is smaller than a block of the sum, the sum has a pass of its own. It is taken from
 * the source, not from a packed copy: what goes wrong in between is then found at the target. */
static uint64_t sum_alone(const struct sender *sender, const struct send_source *source)
{
	const struct pack *pack = &source->pack;
	struct digest_stream all;
	uint64_t sum = 0;

	checksum_begin(&all);
	for (uint64_t from = 0; from < pack->bytes; from += pack->block_bytes) {
		uint64_t left = pack->bytes - from;
		struct pack_part part = part_of(
			sender, source, from, left < pack->block_bytes ? left : pack->block_bytes);

		part.sum = &sum;
		pack_run(pack, &part);
		digest_add_u64(&all, sum);
	}
	return pack->bytes <= pack->block_bytes ? sum : checksum_end(&all);
}

static bool is_stored(const struct sender *sender, const struct send_row *row)
{
	return row->stored && executor_serves(sender, row->peer);
}

/* The pages that a part of the source is stored into, where they are not mapped yet. */
static void map_targets(const struct sender *sender, const struct send_source *source,
			uint64_t from, uint64_t bytes)
{
	const struct send_plan *plan = &sender->epoch->send;

	for (uint32_t i = 0; i < source->row_count && bytes; i++) {
		uint32_t number = plan->source_rows[source->first_row + i];
		const struct send_row *row = &plan->rows[number];
		const struct spread *spread = &sender->epoch->plan->rows[number].spread;
		const struct send_target *target = executor_target(sender, row);
		uint64_t first = from, last = from + bytes - 1;

		if (!is_stored(sender, row))
			continue;
		if (row->spread) {
			spread_next(spread, from, 1, &first);
			spread_next(spread, from + bytes - 1, 1, &last);
		}
		send_plan_map(plan, target, target->offset + first, last + 1 - first);
	}
}

static void map_step(const struct sender *sender, const struct step *step)
{
	bool alone = step->replay || sender->epoch->send.sources[step->source].follows;
	const struct send_source *sources =
		&sender->epoch->send.sources[alone ? step->source : step->group_first];

	for (uint32_t i = 0; !step->fresh && i < (alone ? 1 : step->group); i++) {
		uint64_t from, bytes = source_part(&sources[i], step->part, &from);

		map_targets(sender, &sources[i], from, bytes);
	}
}

/* Mapped targets of the source's part, from row *next of it on; at most room. */
static size_t mapped_targets(const struct sender *sender, const struct send_source *source,
			     uint64_t from, uint32_t *next, void **out, size_t room)
{
	const struct send_plan *plan = &sender->epoch->send;
	size_t count = 0;

	for (; *next < source->row_count && count < room; ++*next) {
		const struct send_row *row =
			&plan->rows[plan->source_rows[source->first_row + *next]];
		const struct send_target *target = executor_target(sender, row);

		if (is_stored(sender, row) && !row->spread)
			out[count++] = target->pointer + target->offset + from;
	}
	return count;
}

/* The part run by run, to mapped targets that it is spread over: out of what lies packed, or of the tensor (packed NULL). */
static void store_runs(const struct sender *sender, const struct send_source *source,
		       const unsigned char *packed, uint64_t from, uint64_t bytes)
{
	const struct send_plan *plan = &sender->epoch->send;
	uint64_t n, place;

	for (uint32_t i = 0; i < source->row_count; i++) {
		uint32_t number = plan->source_rows[source->first_row + i];
		const struct send_row *row = &plan->rows[number];
		const struct spread *spread = &sender->epoch->plan->rows[number].spread;
		const struct send_target *target = executor_target(sender, row);

		for (uint64_t done = 0; is_stored(sender, row) && row->spread && done < bytes;
		     done += n) {
			struct pack_part part;
			void *to;

			n = spread_next(spread, from + done, bytes - done, &place);
			to = target->pointer + target->offset + place;
			if (packed) {
				copy_bytes(to, packed + done, n);
				continue;
			}
			part = part_of(sender, source, from + done, n);
			part.targets = &to;
			part.target_count = 1;
			pack_run(&source->pack, &part);
		}
	}
}

/* Bytes that lie packed, to every mapped target of their part. */
static void copy_to_targets(const struct sender *sender, const struct send_source *source,
			    const void *packed, uint64_t from, uint64_t bytes)
{
	void *target;

	for (uint32_t next = 0; mapped_targets(sender, source, from, &next, &target, 1);)
		copy_bytes(target, packed, bytes);
	store_runs(sender, source, packed, from, bytes);
}

/* What has no room in the packer's pass: more targets than it takes at once. */
static void pack_rest(const struct sender *sender, const struct send_source *source,
		      struct pack_part *part, void **targets, uint32_t next)
{
	part->sum = NULL;
	part->transformed_scales = NULL;
	part->targets = targets;
	while (next < source->row_count) {
		part->target_count =
			mapped_targets(sender, source, part->from, &next, targets, TARGETS_AT_ONCE);
		if (part->target_count)
			pack_run(&source->pack, part);
	}
}

static void add_products(const struct sender *sender, const struct send_source *source,
			 uint32_t number, struct pack_part *part)
{
	const struct send_plan *plan = &sender->epoch->send;
	const struct send_source *follower;

	if (sender->block_sums && source->sum_parts)
		part->sum = &sender->block_sums[source->first_block + number];
	if (source->follower == NO_SOURCE)
		return;
	follower = &plan->sources[source->follower];
	part->transformed_scales = (float *)(void *)(plan->scratch + follower->scratch) +
				   part->from / source->pack.grain_bytes *
					   (follower->pack.grain_bytes / sizeof(float));
}

/* What is transformed in blocks is packed before it is taken apart: a run is of one row of them. */
static int store_spread(const struct sender *sender, const struct send_source *source,
			const unsigned char *packed, uint64_t from, uint64_t bytes,
			struct error *error)
{
	struct pack_part part = part_of(sender, source, from, bytes);
	bool spread = false;
	void *here;

	for (uint32_t i = 0; i < source->row_count && !spread; i++) {
		const struct send_row *row =
			&sender->epoch->send
				 .rows[sender->epoch->send.source_rows[source->first_row + i]];

		spread = is_stored(sender, row) && row->spread;
	}
	if (!spread)
		return 0;
	if (packed || !source->pack.transform.to_rows) {
		store_runs(sender, source, packed, from, bytes);
		return 0;
	}
	here = memory_alloc(bytes);
	if (!here)
		return memory_error(error, "packing what is spread over its target", bytes);
	part.targets = &here;
	part.target_count = 1;
	pack_run(&source->pack, &part);
	copy_fence();
	store_runs(sender, source, here, from, bytes);
	memory_free(here);
	return 0;
}

static int pack_group(struct sender *sender, const struct step *step, const struct pack_into *into,
		      struct error *error)
{
	const struct send_source *sources = &sender->epoch->send.sources[step->group_first];
	void *targets[PACK_COLUMNS_MAX][TARGETS_AT_ONCE];
	struct pack_column columns[PACK_COLUMNS_MAX];
	uint32_t next[PACK_COLUMNS_MAX];
	size_t wanted = 0;
	int rc = 0;

	for (uint32_t i = 0; i < step->group; i++) {
		uint64_t from, bytes = source_part(&sources[i], step->part, &from);
		struct pack_part part = part_of(sender, &sources[i], from, bytes);

		next[i] = 0;
		targets[i][0] = into->memory[i];
		part.targets = targets[i];
		part.target_count = into->memory[i] ? 1 : 0;
		part.target_count += mapped_targets(sender, &sources[i], from, &next[i],
						    targets[i] + part.target_count,
						    TARGETS_AT_ONCE - part.target_count);
		add_products(sender, &sources[i], step->part, &part);
		wanted += part.target_count || part.sum || part.transformed_scales;
		columns[i] = (struct pack_column){&sources[i].pack, part};
	}
	if (step->group == 1 && wanted)
		pack_run(columns[0].pack, &columns[0].part);
	else if (wanted)
		pack_run_columns(columns, step->group);
	for (uint32_t i = 0; i < step->group; i++) {
		pack_rest(sender, &sources[i], &columns[i].part, targets[i], next[i]);
		if (!rc)
			rc = store_spread(sender, &sources[i], into->memory[i],
					  columns[i].part.from, columns[i].part.bytes, error);
		if (sender->block_sums && !sources[i].sum_parts && !step->part)
			sender->source_sums[step->group_first + i] = sum_alone(sender, &sources[i]);
	}
	return rc;
}

/* Scales that were made in the pass over their values. */
static void pack_follower(struct sender *sender, const struct step *step, void *into)
{
	const struct send_plan *plan = &sender->epoch->send;
	const struct send_source *source = &plan->sources[step->source];
	uint64_t from, bytes = source_part(source, step->part, &from);
	const unsigned char *packed = plan->scratch + source->scratch;

	if (into)
		copy_bytes(into, packed + from, bytes);
	copy_to_targets(sender, source, packed + from, from, bytes);
	if (sender->block_sums && !step->part)
		sender->source_sums[step->source] =
			pack_piece_sum(packed, source->pack.bytes, source->pack.block_bytes);
}

/* To its end, and the lane back. Nobody frees a tensor that is read, or has a lane that a kernel may use: whoever fails waits
 * for what is queued, if it can be. */
static int run_lane(struct sender *sender, struct lane *lane, uint64_t *sums[], uint32_t count,
		    struct error *error)
{
	const struct device *device = sender->epoch->options.device;
	cuda_event done;
	int rc = lane_run(lane, &done, error);

	if (!rc)
		rc = await_device(device, done, clock_deadline_ns(sender->epoch->wait_ms),
				  sender->health, error);
	for (uint32_t i = 0; i < count && !rc; i++)
		if (sums[i])
			*sums[i] = lane_sum(lane, i);
	if (rc && !device_quiet(device))
		lanes_break(sender->lanes, error);
	else
		lanes_give(sender->lanes, lane);
	return rc;
}

/* What lies on a GPU goes into slots alone: nothing that tasks pack for is mapped, and posts read no tensor but in place. */
static int pack_by_device(struct sender *sender, const struct step *step,
			  const struct pack_into *into, struct error *error)
{
	uint32_t first = step->fresh ? step->source : step->group_first;
	uint32_t count = step->fresh ? 1 : step->group;
	const struct send_source *sources = &sender->epoch->send.sources[first];
	struct pack_part parts[PACK_COLUMNS_MAX];
	uint64_t *sums[PACK_COLUMNS_MAX];
	struct lane *lane = lanes_take(sender->lanes);

	if (!lane)
		return lanes_broken(sender->lanes, error);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t from, bytes = source_part(&sources[i], step->part, &from);

		parts[i] = part_of(sender, &sources[i], from, bytes);
		if (!step->fresh)
			add_products(sender, &sources[i], step->part, &parts[i]);
		if (!i)
			lane_begin(lane, parts[i].data, parts[i].scales);
		lane_add(lane, &(struct lane_part){.pack = &sources[i].pack,
						   .from = from,
						   .bytes = bytes,
						   .target = into->memory[i],
						   .scales_target = parts[i].transformed_scales,
						   .sum = parts[i].sum != NULL});
		sums[i] = parts[i].sum;
	}
	return run_lane(sender, lane, sums, count, error);
}

/* Scales that wait in the GPU's memory: they leave from there, and only their sum is wanted. */
static int sum_follower(struct sender *sender, const struct step *step, struct error *error)
{
	const struct send_plan *plan = &sender->epoch->send;
	const struct send_source *source = &plan->sources[step->source];
	const struct pack *pack = &source->pack;
	unsigned char *packed = plan->scratch + source->scratch;
	uint64_t sums[PACK_COLUMNS_MAX], *places[PACK_COLUMNS_MAX];
	uint32_t count = 0;
	struct lane *lane;
	int rc;

	if (!sender->block_sums || step->part)
		return 0;
	lane = lanes_take(sender->lanes);
	if (!lane)
		return lanes_broken(sender->lanes, error);
	lane_begin(lane, NULL, NULL);
	for (uint64_t from = 0; from < pack->bytes; from += pack->block_bytes, count++) {
		uint64_t left = pack->bytes - from;

		lane_add(lane, &(struct lane_part){
				       .target = packed + from,
				       .bytes = left < pack->block_bytes ? left : pack->block_bytes,
				       .sum = true});
		places[count] = &sums[count];
	}
	rc = run_lane(sender, lane, places, count, error);
	if (!rc)
		sender->source_sums[step->source] = pack_sum(sums, count);
	return rc;
}

/* What was packed against what was sent last. */
static void note_sent(struct sender *sender, const struct step *step, const struct pack_into *into)
{
	const struct send_plan *plan = &sender->epoch->send;

	for (uint32_t i = 0; i < step->group; i++) {
		const struct send_source *source = &plan->sources[step->group_first + i];
		const unsigned char *packed = into->memory[i];
		uint64_t from;

		source_part(source, step->part, &from);
		if (!packed && source->follows)
			packed = plan->scratch + source->scratch + from;
		else if (!packed)
			packed = (const unsigned char *)sender->data[source->tensor] +
				 source->pack.runs.offset + from;
		sent_note(&sender->sent, step->group_first + i, step->part, packed);
	}
}

int executor_pack(struct sender *sender, const struct step *step, const struct pack_into *into,
		  struct error *error)
{
	const struct send_source *source = &sender->epoch->send.sources[step->source];
	uint64_t from, bytes = source_part(source, step->part, &from);
	int rc = 0;

	if (mapper_lacks(&sender->epoch->send.mapper, 0))
		map_step(sender, step);
	if (sender->lanes && !source->follows) {
		rc = pack_by_device(sender, step, into, error);
	} else if (sender->epoch->send.ring_on_device) {
		rc = sum_follower(sender, step, error);
	} else if (step->replay) {
		copy_to_targets(sender, source, into->memory[0], from, bytes);
	} else if (step->fresh) {
		struct pack_part part = part_of(sender, source, from, bytes);

		part.targets = (void *const *)into->memory;
		part.target_count = 1;
		pack_run(&source->pack, &part);
	} else if (source->follows) {
		pack_follower(sender, step, into->memory[0]);
	} else {
		rc = pack_group(sender, step, into, error);
	}
	copy_fence();
	if (sender->schedule.options.sent && !step->replay && !step->fresh && !rc)
		note_sent(sender, step, into);
	return rc;
}

/* The source's sum, for all rows that want it. */
static void sum_source(struct sender *sender, uint32_t index)
{
	const struct send_plan *plan = &sender->epoch->send;
	const struct send_source *source = &plan->sources[index];
	uint64_t sum = source->sum_parts
			       ? pack_sum(&sender->block_sums[source->first_block], source->parts)
			       : sender->source_sums[index];

	for (uint32_t i = 0; i < source->row_count; i++) {
		const struct send_row *row = &plan->rows[plan->source_rows[source->first_row + i]];

		plan->sums[sender->epoch->peers[row->peer].first_piece + row->ordinal] = sum;
	}
}

void executor_sum(struct sender *sender, const struct step *step)
{
	for (uint32_t i = 0; sender->block_sums && i < step->group; i++)
		if (!sender->schedule.sources[step->group_first + i].unpacked)
			sum_source(sender, step->group_first + i);
}
