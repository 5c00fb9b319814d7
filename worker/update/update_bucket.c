/* SPDX-License-Identifier: Apache-2.0
 *
 * update_bucket.c -- tensors by name and many at once, as a framework's all-gather has them; and
 * what a host asks for between buckets: its memory back, or the last version once more.
 */
#include "worker/api/worker.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- buckets ---- */

static int bad_slice(const struct weft_worker *worker, const char *name, const char *what,
		     struct error *error)
{
	return error_set(error, ERROR_USAGE, "update %llu: tensor %.300s %s; nothing was sent",
			 (unsigned long long)worker->trainer.version, name, what);
}

static int check_shape(const struct weft_worker *worker, const struct bucket_slice *slice,
		       uint32_t id, struct error *error)
{
	const struct tensor_info *tensor = &worker->holding.tensors[id];
	const struct held_rows *held = &worker->held[id];
	char what[160];

	if (!slice->dtype || dtype_from_name(slice->dtype) != tensor->dtype) {
		snprintf(what, sizeof(what), "is given as %.20s, declared as %s",
			 slice->dtype ? slice->dtype : "no dtype", dtype_name(tensor->dtype));
		return bad_slice(worker, slice->name, what, error);
	}
	if (slice->dims != tensor->dims) {
		snprintf(what, sizeof(what), "is given with %u dimensions, declared with %u",
			 slice->dims, tensor->dims);
		return bad_slice(worker, slice->name, what, error);
	}
	for (uint32_t d = 0; d < tensor->dims; d++) {
		uint64_t wanted = d ? tensor->shape[d] : held->hi - held->lo;

		if (slice->shape[d] == wanted)
			continue;
		snprintf(what, sizeof(what), "has %llu in dimension %u, %llu are %s",
			 (unsigned long long)slice->shape[d], d, (unsigned long long)wanted,
			 d ? "declared" : "the rows held here");
		return bad_slice(worker, slice->name, what, error);
	}
	if (slice->data && slice->bytes == held->bytes)
		return 0;
	snprintf(what, sizeof(what), "has %llu bytes here, given %llu%s",
		 (unsigned long long)held->bytes, (unsigned long long)slice->bytes,
		 slice->data ? "" : " at NULL");
	return bad_slice(worker, slice->name, what, error);
}

/* The slice's tensor; *wanted says whether anybody is sent part of it. */
static int check_slice(struct weft_worker *worker, const struct bucket_slice *slice, uint32_t *id,
		       struct error *error)
{
	int rc;

	if (!slice->name)
		return bad_slice(worker, "(NULL)", "has no name", error);
	if (!strmap_get(&worker->holding.tensor_names, slice->name, id))
		return bad_slice(worker, slice->name, "is not declared", error);
	rc = check_shape(worker, slice, *id, error);
	if (!rc && update_wanted(worker, *id))
		rc = update_check_tensor(worker, *id, slice->data, error);
	return rc;
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The bucket's tensors, sorted: a tensor that comes twice stands beside itself. */
static int check_bucket(struct weft_worker *worker, const struct bucket_slice *slices, size_t count,
			uint32_t *ids, struct error *error)
{
	uint32_t *sorted = ids + count;

	for (size_t i = 0; i < count; i++) {
		int rc = check_slice(worker, &slices[i], &ids[i], error);

		if (rc)
			return rc;
		sorted[i] = ids[i];
	}
	qsort(sorted, count, sizeof(*sorted), compare_u32);
	for (size_t i = 1; i < count; i++)
		if (sorted[i] == sorted[i - 1])
			return bad_slice(worker, worker->holding.tensors[sorted[i]].name,
					 "is in the bucket twice", error);
	return 0;
}

/* Rows of all its tensors in send order, each once. NULL: no memory. */
static uint32_t *rows_of(const struct trainer *trainer, const uint32_t *ids, size_t tensors,
			 size_t *count)
{
	size_t most = 0, kept = 0;
	uint32_t *rows;

	for (size_t i = 0; i < tensors; i++)
		most += trainer->tensor_first[ids[i] + 1] - trainer->tensor_first[ids[i]];
	rows = memory_zalloc(most, sizeof(*rows));
	if (!rows)
		return NULL;
	*count = 0;
	for (size_t i = 0; i < tensors; i++)
		for (uint32_t k = trainer->tensor_first[ids[i]];
		     k < trainer->tensor_first[ids[i] + 1]; k++)
			rows[(*count)++] = trainer->tensor_rows[k];
	qsort(rows, *count, sizeof(*rows), compare_u32);
	for (size_t i = 0; i < *count; i++)
		if (!kept || rows[i] != rows[kept - 1])
			rows[kept++] = rows[i];
	*count = kept;
	return rows;
}

static int write_bucket(struct weft_worker *worker, const struct bucket_slice *slices, size_t count,
			struct error *error)
{
	uint32_t *ids, *rows = NULL;
	struct write_job job = {0};
	int rc;

	if (!count)
		return 0;
	ids = memory_zalloc(2 * count, sizeof(*ids));
	if (!ids)
		return memory_error(error, "writing a bucket", 2 * count * sizeof(*ids));
	rc = check_bucket(worker, slices, count, ids, error);
	if (!rc)
		rows = rows_of(&worker->trainer, ids, count, &job.count);
	if (!rc && !rows)
		rc = memory_error(error, "writing a bucket", count * sizeof(*rows));
	for (size_t i = 0; i < count && !rc; i++)
		if (update_wanted(worker, ids[i]))
			update_give(worker, ids[i], slices[i].data);
	job.rows = rows;
	if (!rc)
		rc = job_run(worker, &job, true, error);
	memory_free(rows);
	memory_free(ids);
	return rc;
}

int update_write_bucket(struct weft_worker *worker, const struct bucket_slice *slices, size_t count,
			struct error *error)
{
	int rc = update_enter(worker, "weft_update_write_bucket", error);

	return rc ? rc : update_leave(worker, write_bucket(worker, slices, count, error), error);
}

/* ---- drain ---- */

/* A tensor whose pieces need another one too has not left. */
static int check_halves(const struct weft_worker *worker, struct error *error)
{
	const struct trainer *trainer = &worker->trainer;

	for (size_t s = 0; s < trainer->source_count; s++) {
		const struct source *source = &trainer->sources[s];
		bool data = trainer->given[source->tensor] != NULL;
		bool scales = source->scales != NO_TENSOR && trainer->given[source->scales];

		if (source->scales == NO_TENSOR || data == scales)
			continue;
		return error_set(
			error, ERROR_STATE,
			"weft_update_drain: tensor %s was written, but what is made from it needs "
			"%s too; write that first",
			worker->holding.tensors[data ? source->tensor : source->scales].name,
			worker->holding.tensors[data ? source->scales : source->tensor].name);
	}
	return 0;
}

/* What is made of two tensors can be in work in the call that brought the second one, long after that
 * of the first has returned. With the lock held. */
static void wait_halves(struct trainer *trainer)
{
	for (size_t i = 0; i < trainer->row_count; i++) {
		const struct send_row *row = &trainer->rows[i];
		const struct source *source = &trainer->sources[row->source];

		while (source->scales != NO_TENSOR && trainer->given[source->tensor] &&
		       trainer->given[source->scales] && (!row->taken || row->open) &&
		       !trainer->broken)
			engine_pause(trainer);
	}
}

int update_drain(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc = update_enter(worker, "weft_update_drain", error);

	if (rc)
		return rc;
	rc = check_halves(worker, error);
	if (!rc) {
		wait_halves(trainer);
		pthread_mutex_unlock(&trainer->lock);
		rc = update_settle(worker, worker_deadline_ns(worker->wait_ms), error);
		pthread_mutex_lock(&trainer->lock);
		/* a drain that the host interrupts has done nothing that it cannot do again */
		if (rc && rc != -(int)ERROR_INTERRUPTED)
			engine_break(trainer, error);
	}
	return update_leave(worker, rc, error);
}

/* ---- repeat ---- */

static int repeat(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct write_job job = {.count = trainer->row_count, .repeat = true};
	int rc;

	pthread_mutex_lock(&trainer->lock);
	trainer->writers++;
	trainer->writing_since_ns = clock_ns();
	trainer->unwritten = 0;
	trainer->state = UPDATE_ENDING; /* nobody else writes */
	rc = job_run(worker, &job, true, error);
	rc = update_leave(worker, rc, error);
	return rc ? rc : update_finish(worker, error);
}

int update_repeat(struct weft_worker *worker, uint64_t version, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc = 0;

	pthread_mutex_lock(&trainer->lock);
	if (trainer->state == UPDATE_CLOSED)
		rc = engine_repeatable(worker, error);
	pthread_mutex_unlock(&trainer->lock);
	if (!rc)
		rc = update_begin(worker, version, error);
	return rc ? rc : repeat(worker, error);
}
