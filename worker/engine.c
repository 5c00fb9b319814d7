/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c -- one item of an update: (row, part). The first item of a source's part packs it once
 * for all: into a slot of the ring if some row is posted from there, into every target that is
 * mapped here, into its sum. Each item then posts its own row.
 *
 *   rows in send order      a0 a1 | b0 | c0 c1 | a0' a1'         a, b, c: sources; a': again a
 *   items                   pack,   pack  ..      find the slot,
 *                           post    post          post
 */
#include "common/digest.h"
#include "worker/worker.h"

#include "common/clock.h"
#include "common/copy.h"

#include <sched.h>

#define SPINS_BEFORE_SLEEP 1000
#define TARGETS_AT_ONCE	   32

/* ---- waiting ---- */

int engine_check(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;

	if (!trainer->broken)
		return worker_check(worker, error);
	*error = trainer->error;
	return -(int)error->code;
}

void engine_break(struct trainer *trainer, const struct error *error)
{
	if (trainer->broken)
		return;
	trainer->error = *error;
	trainer->broken = true;
	pthread_cond_broadcast(&trainer->changed);
}

void engine_pause(struct trainer *trainer)
{
	uint64_t until = worker_deadline_ns(WAIT_SLICE_MS);
	struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
			      .tv_nsec = (long)(until % 1000000000u)};

	pthread_cond_timedwait(&trainer->changed, &trainer->lock, &at);
}

static int late(struct weft_worker *worker, const struct peer *peer, uint64_t write,
		struct error *error)
{
	return error_set(
		error, ERROR_TIMEOUT, "write %llu to %s is not complete after %.1f s; %llu are",
		(unsigned long long)write, peer->name, worker->wait_ms / 1000.0,
		(unsigned long long)atomic_load(&worker->trainer.done[peer - worker->peers]));
}

int engine_wait_write(struct weft_worker *worker, uint32_t p, uint64_t write, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct peer *peer = &worker->peers[p];
	uint64_t deadline = worker_deadline_ns(worker->wait_ms), done;
	int rc = 0;

	for (unsigned spins = 0; !rc && atomic_load(&trainer->done[p]) < write; spins++) {
		rc = engine_check(worker, error);
		pthread_mutex_unlock(&trainer->lock);
		if (!rc) {
			pthread_mutex_lock(&trainer->wire);
			rc = transport_progress(peer->endpoint, &done, error);
			atomic_store(&trainer->done[p], done);
			pthread_mutex_unlock(&trainer->wire);
		}
		if (!rc && done < write && clock_ns() >= deadline)
			rc = late(worker, peer, write, error);
		if (!rc && done < write && spins >= SPINS_BEFORE_SLEEP)
			clock_sleep_ms(1);
		else if (!rc && done < write && spins % 16 == 15)
			sched_yield();
		pthread_mutex_lock(&trainer->lock);
	}
	return rc;
}

/* ---- packing ---- */

uint64_t source_part(const struct source *source, uint32_t part, uint64_t *from)
{
	uint64_t left;

	*from = (uint64_t)part * source->part_bytes;
	left = source->pack.bytes - *from;
	return left < source->part_bytes ? left : source->part_bytes;
}

const struct target *row_target(const struct weft_worker *worker, const struct send_row *row)
{
	return &worker->trainer.targets[row->target + worker->peers[row->peer].accept.copy];
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

void engine_make(struct weft_worker *worker, struct source *source, uint32_t number, void *into)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t from, bytes = source_part(source, number, &from);
	struct pack_part part = part_of(worker, source, from, bytes);
	void *targets[TARGETS_AT_ONCE] = {into};
	uint32_t next = 0;
	bool first = true;

	part.targets = targets;
	if (worker->sums && source->sum_parts)
		part.sum = &trainer->block_sums[source->first_block + number];
	if (source->follower != NO_SOURCE)
		part.made_scales =
			(float *)(void *)(trainer->kept + trainer->sources[source->follower].kept) +
			from / source->pack.grain_bytes *
				(trainer->sources[source->follower].pack.grain_bytes /
				 sizeof(float));
	do {
		part.target_count = first && into ? 1 : 0;
		part.target_count +=
			mapped_targets(worker, source, from, &next, targets + part.target_count,
				       TARGETS_AT_ONCE - part.target_count);
		if (part.target_count || part.sum || part.made_scales)
			pack_run(&source->pack, &part);
		part.sum = NULL;
		part.made_scales = NULL;
		first = false;
	} while (next < source->row_count);
	if (worker->sums && !source->sum_parts && !number)
		source->sum = sum_alone(worker, source);
	copy_fence();
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

/* ---- posting ---- */

int engine_post(struct weft_worker *worker, uint32_t p, const void *source,
		const struct transport_region *region, const struct target *target, uint64_t from,
		uint64_t bytes, uint64_t *number, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct peer *peer = &worker->peers[p];
	int rc;

	pthread_mutex_lock(&trainer->wire);
	/* an interrupt wakes the one call that is blocked, not those that waited behind it; and
	 * where that call failed, nobody waits for his own deadline too */
	rc = worker_check(worker, error);
	if (!rc && trainer->broken) {
		pthread_mutex_unlock(&trainer->wire);
		pthread_mutex_lock(&trainer->lock);
		rc = engine_check(worker, error);
		pthread_mutex_unlock(&trainer->lock);
		return rc;
	}
	if (!rc)
		rc = transport_write(peer->endpoint, source, region, target->remote,
				     target->offset + from, bytes,
				     worker_deadline_ns(worker->wait_ms), error);
	if (!rc)
		*number = ++peer->writes;
	/* where a post is the copy itself: another thread will send the signal */
	copy_fence();
	pthread_mutex_unlock(&trainer->wire);
	return rc;
}

/* With the lock held: the part's slot, held; *fresh says that it is to be packed. */
static int hold_slot(struct weft_worker *worker, uint32_t block, uint64_t bytes, bool first,
		     void **memory, bool *fresh, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct replica *replica = &trainer->replica;

	*fresh = false;
	for (;;) {
		uint64_t write;
		uint32_t peer;
		int rc = engine_check(worker, error);

		if (rc)
			return rc;
		*memory = !first && trainer->blocks[block] == BLOCK_MADE
				  ? replica_find(replica, block)
				  : NULL;
		if (*memory && replica_slot(replica, block)->packed) {
			replica_slot(replica, block)->holders++;
			return 0;
		}
		if (*memory || (!first && trainer->blocks[block] != BLOCK_MADE)) {
			engine_pause(trainer); /* somebody is packing it */
			continue;
		}
		*memory = replica_take(replica, block, bytes);
		*fresh = *memory != NULL;
		if (*memory)
			return 0;
		switch (replica_make_room(replica, trainer->done, &peer, &write)) {
		case REPLICA_FREED:
			break;
		case REPLICA_HELD:
			engine_pause(trainer);
			break;
		case REPLICA_WRITTEN:
			rc = engine_wait_write(worker, peer, write, error);
			if (rc)
				return rc;
			break;
		}
	}
}

/* Through the ring: finds or makes the slot, posts, notes who reads it. */
static int through_slot(struct weft_worker *worker, const struct item *item, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct source *source = &trainer->sources[item->source];
	const struct send_row *row = &trainer->rows[item->row];
	uint32_t block = source->first_block + item->part;
	uint64_t from, bytes = source_part(source, item->part, &from), write;
	bool fresh, posts = row->how == HOW_REPLICA;
	void *memory;
	int rc;

	pthread_mutex_lock(&trainer->lock);
	rc = hold_slot(worker, block, bytes, item->first, &memory, &fresh, error);
	pthread_mutex_unlock(&trainer->lock);
	if (rc)
		return rc;
	if (item->first) {
		engine_make(worker, source, item->part, memory);
	} else if (fresh) {
		struct pack_part again = part_of(worker, source, from, bytes);

		again.targets = &memory;
		again.target_count = 1;
		pack_run(&source->pack, &again);
		copy_fence();
	}
	pthread_mutex_lock(&trainer->lock);
	if (fresh) {
		replica_slot(&trainer->replica, block)->packed = true;
		trainer->blocks[block] = BLOCK_MADE;
		worker->stats.packed_bytes += bytes;
		pthread_cond_broadcast(&trainer->changed);
	}
	pthread_mutex_unlock(&trainer->lock);
	if (posts)
		rc = engine_post(worker, row->peer, memory, trainer->ring_region,
				 row_target(worker, row), from, bytes, &write, error);
	pthread_mutex_lock(&trainer->lock);
	if (!rc && posts)
		rc = replica_used(&trainer->replica, block, row->peer, write, error);
	replica_slot(&trainer->replica, block)->holders--;
	pthread_cond_broadcast(&trainer->changed);
	pthread_mutex_unlock(&trainer->lock);
	return rc;
}

/* As it lies, or as it was kept. */
static int post_lying(struct weft_worker *worker, const struct item *item, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	const struct source *source = &trainer->sources[item->source];
	const struct send_row *row = &trainer->rows[item->row];
	uint64_t from, bytes = source_part(source, item->part, &from), write;
	const struct transport_region *region = trainer->kept_region;
	const unsigned char *first;

	if (source->follows) {
		first = trainer->kept + source->kept;
	} else {
		first = (const unsigned char *)trainer->given[source->tensor] +
			source->pack.runs.offset;
		region = sources_find(worker, first, source->pack.bytes);
	}
	return engine_post(worker, row->peer, first + from, region, row_target(worker, row), from,
			   bytes, &write, error);
}

/* ---- items ---- */

static bool ready(const struct weft_worker *worker, const struct source *source)
{
	const void *const *given = worker->trainer.given;

	return given[source->tensor] && (source->scales == NO_TENSOR || given[source->scales]) &&
	       !source->follows;
}

static void count_row(struct weft_worker *worker, const struct send_row *row)
{
	uint64_t *const counts[HOW_COUNT] = {
		[HOW_DIRECT] = &worker->stats.pieces_direct,
		[HOW_MAPPED] = &worker->stats.pieces_mapped,
		[HOW_REPLICA] = &worker->stats.pieces_replica,
	};

	++*counts[worker->full ? HOW_REPLICA : row->how];
	worker->stats.bytes += worker->trainer.sources[row->source].pack.bytes;
}

/* Takes the row, and with a full replica all rows of its source: they leave together. */
static bool take_row(struct weft_worker *worker, const struct write_job *job, uint32_t index)
{
	struct trainer *trainer = &worker->trainer;
	struct send_row *row = &trainer->rows[index];
	const struct source *source = &trainer->sources[row->source];

	if (row->taken || (!job->repeat && !ready(worker, source)))
		return false;
	row->taken = true;
	row->open = 1;
	count_row(worker, row);
	for (uint32_t i = 0; worker->full && i < source->row_count; i++) {
		struct send_row *other =
			&trainer->rows[trainer->source_rows[source->first_row + i]];

		if (!other->taken)
			count_row(worker, other);
		other->taken = true;
	}
	return true;
}

void engine_close_row(struct trainer *trainer, uint32_t row)
{
	if (!--trainer->rows[row].open)
		pthread_cond_broadcast(&trainer->changed);
}

bool engine_next(struct weft_worker *worker, struct write_job *job, struct item *item)
{
	struct trainer *trainer = &worker->trainer;

	for (; job->at < job->count; job->at++, job->part = 0) {
		uint32_t index = job->rows ? job->rows[job->at] : (uint32_t)job->at;
		struct send_row *row = &trainer->rows[index];
		const struct source *source = &trainer->sources[row->source];

		if (!job->part && !take_row(worker, job, index))
			continue;
		while (job->part < source->parts) {
			unsigned char *block = &trainer->blocks[source->first_block + job->part];

			*item = (struct item){.row = index,
					      .source = row->source,
					      .part = job->part++,
					      .first = *block == BLOCK_WAITS,
					      .repeat = job->repeat};
			if (item->first)
				*block = BLOCK_TAKEN;
			if (item->first || !row->stored) {
				row->open++;
				return true;
			}
		}
		engine_close_row(trainer, index);
	}
	return false;
}

/* The last part of a source is made: its sum is known, for all rows. */
static void finish_source(struct weft_worker *worker, struct source *source)
{
	struct trainer *trainer = &worker->trainer;

	if (!worker->sums)
		return;
	if (source->sum_parts)
		source->sum = pack_sum(&trainer->block_sums[source->first_block], source->parts);
	for (uint32_t i = 0; i < source->row_count; i++) {
		const struct send_row *row =
			&trainer->rows[trainer->source_rows[source->first_row + i]];

		trainer->sums[worker->peers[row->peer].sums_first + row->ordinal] = source->sum;
	}
}

static int do_ring(struct weft_worker *worker, const struct item *item, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct source *source = &trainer->sources[item->source];
	const struct send_row *row = &trainer->rows[item->row];

	if (source->slots && (item->first || row->how == HOW_REPLICA)) {
		int rc = through_slot(worker, item, error);

		if (rc || row->how == HOW_REPLICA || row->stored)
			return rc;
	} else if (item->first && source->follows)
		engine_follow(worker, source, item->part, NULL);
	else if (item->first)
		engine_make(worker, source, item->part, NULL);
	return row->stored ? 0 : post_lying(worker, item, error);
}

/* Scales made with values that are all packed now: their rows, here and now. */
static int do_follower(struct weft_worker *worker, uint32_t follower, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct source *source = &trainer->sources[follower];
	int rc = 0;

	pthread_mutex_lock(&trainer->lock);
	for (uint32_t i = 0; i < source->row_count; i++) {
		struct send_row *row = &trainer->rows[trainer->source_rows[source->first_row + i]];

		row->taken = true;
		count_row(worker, row);
	}
	pthread_mutex_unlock(&trainer->lock);
	for (uint32_t i = 0; i < (worker->full ? 1 : source->row_count) && !rc; i++)
		for (uint32_t part = 0; part < source->parts && !rc; part++) {
			struct item item = {.row = trainer->source_rows[source->first_row + i],
					    .source = follower,
					    .part = part,
					    .first = !i};

			if (item.first || !trainer->rows[item.row].stored)
				rc = engine_do(worker, &item, error);
		}
	return rc;
}

int engine_do(struct weft_worker *worker, const struct item *item, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct source *source = &trainer->sources[item->source];
	bool whole = false;
	int rc = worker->full ? engine_do_full(worker, item, error) : do_ring(worker, item, error);

	if (rc || !item->first)
		return rc;
	pthread_mutex_lock(&trainer->lock);
	whole = --source->parts_left == 0;
	if (whole && worker->full)
		full_group_of(&trainer->full, item->source)->busy = false;
	if (whole && !item->repeat)
		finish_source(worker, source);
	pthread_cond_broadcast(&trainer->changed);
	pthread_mutex_unlock(&trainer->lock);
	return whole && !item->repeat && source->follower != NO_SOURCE
		       ? do_follower(worker, source->follower, error)
		       : 0;
}
