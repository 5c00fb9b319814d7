/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_full.c -- an item of an update whose replica keeps everything: a source has its turn in its
 * home, and every part of it is packed there and written from there to all that want it.
 *
 *   group { a, b }    a packed ─► written to all ─► complete ─► b packed ─► ...
 *
 * Who waits for a turn waits for items that were taken before his own, and for writes; so turns
 * come round.
 */
#include "worker/api/worker.h"

#include "base/copy.h"

static int take_turn(struct weft_worker *worker, uint32_t source, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct full_group *group = full_group_of(&trainer->full, source);

	for (;;) {
		uint32_t peer;
		uint64_t write;
		int rc = engine_check(worker, error);

		if (rc || (group->busy && group->owner == source))
			return rc;
		if (group->busy) {
			engine_pause(trainer);
		} else if (uses_wait(&trainer->full.uses, &group->first_use, trainer->done, &peer,
				     &write)) {
			rc = engine_wait_write(worker, peer, write, error);
			if (rc)
				return rc;
		} else {
			group->owner = source;
			group->busy = true;
		}
	}
}

static int post_row(struct weft_worker *worker, const struct item *item, const struct send_row *row,
		    const unsigned char *memory, uint64_t from, uint64_t bytes, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t write;
	int rc = engine_post(worker, row->peer, memory, trainer->ring_region,
			     row_target(worker, row), from, bytes, &write, error);

	if (rc)
		return rc;
	pthread_mutex_lock(&trainer->lock);
	rc = uses_add(&trainer->full.uses, &full_group_of(&trainer->full, item->source)->first_use,
		      row->peer, write, error);
	pthread_mutex_unlock(&trainer->lock);
	return rc;
}

static int post_all(struct weft_worker *worker, const struct item *item,
		    const unsigned char *memory, uint64_t from, uint64_t bytes, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	const struct source *source = &trainer->sources[item->source];
	int rc = 0;

	for (uint32_t i = 0; i < source->row_count && !rc; i++) {
		const struct send_row *row =
			&trainer->rows[trainer->source_rows[source->first_row + i]];
		const struct target *target = row_target(worker, row);

		if (!row->stored)
			rc = post_row(worker, item, row, memory, from, bytes, error);
		else if (item->repeat)
			copy_bytes(target->pointer + target->offset + from, memory, bytes);
	}
	copy_fence();
	return rc;
}

int engine_do_full(struct weft_worker *worker, const struct item *item, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct source *source = &trainer->sources[item->source];
	uint64_t from, bytes = source_part(source, item->part, &from);
	unsigned char *memory = (unsigned char *)transport_region_memory(trainer->ring_region) +
				trainer->full.places[item->source].at + from;
	int rc;

	pthread_mutex_lock(&trainer->lock);
	rc = take_turn(worker, item->source, error);
	if (!rc && !item->repeat) {
		trainer->whole_version = 0;
		worker->stats.packed_bytes += bytes;
	}
	pthread_mutex_unlock(&trainer->lock);
	if (rc)
		return rc;
	if (!item->repeat && source->follows)
		engine_follow(worker, source, item->part, memory);
	else if (!item->repeat)
		engine_make(worker, &(struct lane){source, memory}, 1, item->part);
	return post_all(worker, item, memory, from, bytes, error);
}

int engine_repeatable(const struct weft_worker *worker, struct error *error)
{
	const struct trainer *trainer = &worker->trainer;

	if (!worker->full)
		return error_set(error, ERROR_STATE,
				 "weft_update_replay: the ring keeps no version; open the worker "
				 "with replica \"full\"");
	if (!trainer->whole_version)
		return error_set(
			error, ERROR_STATE,
			"weft_update_replay: the replica holds no whole version: none was ended, "
			"or a later update that was not ended has written into it");
	for (size_t s = 0; s < trainer->source_count; s++) {
		const struct full_group *group =
			&trainer->full.groups[trainer->full.places[s].group];

		if (group->shared)
			return error_set(error, ERROR_STATE,
					 "weft_update_replay: parameter %u, made from tensor %s, "
					 "differs between the inference ranks that this trainer "
					 "writes to, so its home keeps the last one's bytes only; "
					 "write the tensors again",
					 trainer->full.places[s].param,
					 worker->holding.tensors[trainer->sources[s].tensor].name);
	}
	return 0;
}
