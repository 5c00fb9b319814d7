/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c -- one item of an update: (row, part). The first item of a source's part has it made once
 * for all (engine_make.c). Each item then posts its own row.
 *
 *   rows in send order      a0 a1 | b0 | c0 c1 | a0' a1'         a, b, c: sources; a': again a
 *   items                   pack,   pack  ..      find the slot,
 *                           post    post          post
 *
 * A thread whose item is just being packed by another packs one of the next instead, which then waits
 * in its slot for its row's turn.
 */
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/copy.h"

#include <sched.h>

#define SPINS_BEFORE_SLEEP 1000
#define AHEAD_ROWS	   256u /* of the cursor, that a thread looks at before it waits */

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

/* ---- rows ---- */

const struct target *row_target(const struct weft_worker *worker, const struct send_row *row)
{
	return &worker->trainer.targets[row->target + worker->peers[row->peer].accept.copy];
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

/* With the lock held: of a slot that is held, for who packs it or when it is packed. */
static int wait_packed(struct weft_worker *worker, uint32_t block, bool first, void **memory,
		       struct error *error)
{
	struct replica *replica = &worker->trainer.replica;
	int rc = 0;

	while (!first && !replica_slot(replica, block)->packed && !rc) {
		engine_pause(&worker->trainer);
		rc = engine_check(worker, error);
	}
	*memory = replica_find(replica, block);
	return rc;
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

/* With the lock held: it is in its slot, from which rows can be posted now. */
static void slot_made(struct weft_worker *worker, const struct source *source, uint32_t part)
{
	struct trainer *trainer = &worker->trainer;
	uint32_t block = source->first_block + part;
	uint64_t from;

	replica_slot(&trainer->replica, block)->packed = true;
	trainer->blocks[block] = BLOCK_MADE;
	worker->stats.packed_bytes += source_part(source, part, &from);
	pthread_cond_broadcast(&trainer->changed);
}

/* The lanes beside the item's own, which nobody waits in line for. */
static void finish_lanes(struct weft_worker *worker, const struct item *item)
{
	struct trainer *trainer = &worker->trainer;

	for (uint32_t i = 0; i < item->lanes; i++) {
		struct source *source = &trainer->sources[item->lanes_first + i];

		if (item->lanes_first + i == item->source)
			continue;
		if (source->slots) {
			slot_made(worker, source, item->part);
			replica_slot(&trainer->replica, source->first_block + item->part)
				->holders--;
		}
		worker->stats.parts_copacked++;
		if (!--source->parts_left)
			finish_source(worker, source);
	}
}

/* The first item of a part: makes it, into its slot if it has one, and its lanes. */
static void make_first(struct weft_worker *worker, const struct item *item, void *into)
{
	struct trainer *trainer = &worker->trainer;
	struct lane lanes[PACK_LANES_MAX];

	pthread_mutex_lock(&trainer->lock);
	for (uint32_t i = 0; i < item->lanes; i++) {
		struct source *source = &trainer->sources[item->lanes_first + i];
		uint32_t block = source->first_block + item->part;
		void *slot = source->slots ? replica_find(&trainer->replica, block) : NULL;

		lanes[i] = (struct lane){source, slot};
	}
	pthread_mutex_unlock(&trainer->lock);
	engine_make(worker, lanes, item->lanes, item->part);
	pthread_mutex_lock(&trainer->lock);
	if (into)
		slot_made(worker, &trainer->sources[item->source], item->part);
	finish_lanes(worker, item);
	pthread_mutex_unlock(&trainer->lock);
}

/* Through the ring: finds or makes the slot, posts, notes who reads it. */
static int through_slot(struct weft_worker *worker, const struct item *item, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct source *source = &trainer->sources[item->source];
	const struct send_row *row = &trainer->rows[item->row];
	uint32_t block = source->first_block + item->part;
	uint64_t from, bytes = source_part(source, item->part, &from), write;
	bool fresh = false, posts = row->how == HOW_REPLICA && !item->ahead;
	void *memory = NULL;
	int rc = 0;

	pthread_mutex_lock(&trainer->lock);
	if (item->held)
		rc = wait_packed(worker, block, item->first, &memory, error);
	else
		rc = hold_slot(worker, block, bytes, item->first, &memory, &fresh, error);
	pthread_mutex_unlock(&trainer->lock);
	if (rc)
		return rc;
	if (item->first) {
		make_first(worker, item, memory);
	} else if (fresh) {
		engine_make_again(worker, source, item->part, memory);
		pthread_mutex_lock(&trainer->lock);
		slot_made(worker, source, item->part);
		pthread_mutex_unlock(&trainer->lock);
	}
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
	row->open++;
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

/* The row's part that nobody packs yet, from `part` on, if the ring has room for it now. */
static bool pack_ahead(struct weft_worker *worker, uint32_t index, uint32_t part, struct item *item)
{
	struct trainer *trainer = &worker->trainer;
	const struct source *source = &trainer->sources[trainer->rows[index].source];

	while (part < source->parts && trainer->blocks[source->first_block + part] != BLOCK_WAITS)
		part++;
	if (part == source->parts)
		return false;
	*item = (struct item){.row = index, .source = trainer->rows[index].source, .part = part};
	engine_take(worker, item);
	item->ahead = item->held;
	if (!item->held) /* back: its turn will come */
		trainer->blocks[source->first_block + part] = BLOCK_WAITS;
	return item->held;
}

/* The cursor's block is being packed by somebody: meanwhile, one of those after it. */
static bool look_ahead(struct weft_worker *worker, const struct write_job *job, struct item *item)
{
	struct trainer *trainer = &worker->trainer;
	size_t end = job->count - job->at > AHEAD_ROWS ? job->at + AHEAD_ROWS : job->count;

	for (size_t at = job->at; at < end; at++) {
		uint32_t index = job->rows ? job->rows[at] : (uint32_t)at;
		struct send_row *row = &trainer->rows[index];
		const struct source *source = &trainer->sources[row->source];

		if (row->how != HOW_REPLICA || !source->slots || !ready(worker, source) ||
		    (row->taken && at != job->at) ||
		    !pack_ahead(worker, index, at == job->at ? job->part + 1 : 0, item))
			continue;
		row->open++;
		return true;
	}
	return false;
}

/* Nobody takes it away any more, though it may still be being packed: who packs it has his room. */
static bool hold_block(struct trainer *trainer, uint32_t block)
{
	bool found = replica_find(&trainer->replica, block) != NULL;

	if (found)
		replica_slot(&trainer->replica, block)->holders++;
	return found;
}

bool engine_next(struct weft_worker *worker, struct write_job *job, struct item *item)
{
	struct trainer *trainer = &worker->trainer;

	for (; job->at < job->count; job->at++, job->part = 0) {
		uint32_t index = job->rows ? job->rows[job->at] : (uint32_t)job->at;
		struct send_row *row = &trainer->rows[index];
		const struct source *source = &trainer->sources[row->source];

		if (!job->on_row && !take_row(worker, job, index))
			continue;
		for (job->on_row = true; job->part < source->parts; job->part++) {
			unsigned char *block = &trainer->blocks[source->first_block + job->part];

			if (*block != BLOCK_WAITS && row->stored)
				continue;
			if (*block == BLOCK_TAKEN && source->slots && look_ahead(worker, job, item))
				return true;
			*item = (struct item){.row = index,
					      .source = row->source,
					      .part = job->part++,
					      .repeat = job->repeat};
			if (*block == BLOCK_WAITS)
				engine_take(worker, item);
			else if (source->slots && row->how == HOW_REPLICA)
				item->held = hold_block(trainer, source->first_block + item->part);
			row->open++;
			return true;
		}
		job->on_row = false;
		engine_close_row(trainer, index);
	}
	return false;
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
		make_first(worker, item, NULL);
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
