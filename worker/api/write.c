/* SPDX-License-Identifier: Apache-2.0
 *
 * write.c -- a trainer's calls of an update: the arguments and the worker are looked at here, the update is
 * made in worker/update/.
 */
#include "worker/api/abi.h"
#include "worker/api/metrics.h"
#include "worker/api/worker.h"

static int call_begins(weft_worker *worker, const char *call, struct error *error)
{
	join_call_begins(worker);
	return worker_may_update(worker, ROLE_TRAINER, call, error);
}

static int call_ends(weft_worker *worker, int rc, const struct error *inner, weft_error *error)
{
	rc = worker_answer(worker, rc, inner, error);
	join_call_ends(worker);
	return rc;
}

static int begin(weft_worker *worker, const char *call, uint64_t version, bool block,
		 weft_error *error)
{
	struct error inner;
	int rc = call_begins(worker, call, &inner);
	bool begun = !rc && !sender_open_version(&worker->sender);

	if (begun)
		metrics_starts(worker);
	while (!rc) {
		if (worker->pausing)
			rc = join_again(worker, block, &inner);
		if (!rc)
			rc = sender_begin(&worker->sender, version, block, &inner);
		if (rc != SENDER_PAUSES)
			break;
		rc = join_pause(worker,
				&(struct stop){.next = version, .version = worker->sender.ended},
				&inner);
	}
	if (begun && rc < 0) {
		metrics_fails(worker, inner.code);
		worker_is_between(worker, false);
	}
	return call_ends(worker, rc, &inner, error);
}

/* What was to be the update's last call. */
static void over(weft_worker *worker, int rc, enum sync_result result, const struct error *why)
{
	if (worker && rc < 0)
		metrics_fails(worker, why->code);
	else if (worker)
		metrics_ends(worker, result);
	/* what was cut by an interrupt is still open */
	if (worker && worker->self.role == ROLE_TRAINER && worker->stage == STAGE_JOINED &&
	    !sender_open_version(&worker->sender))
		worker_is_between(worker, !rc && result == SYNC_OK);
}

int weft_update_begin(weft_worker *worker, uint64_t version, weft_error *error)
{
	return begin(worker, "weft_update_begin", version, true, error);
}

int weft_update_try_begin(weft_worker *worker, uint64_t version, weft_error *error)
{
	return begin(worker, "weft_update_try_begin", version, false, error);
}

/* Memory that was judged before anything was sent: what the caller has wrong leaves the update as it is, a device that
 * is lost ends it for everybody. */
static int judged(weft_worker *worker, int rc, struct error *error)
{
	return rc == -(int)ERROR_TRANSPORT
		       ? health_fail(&worker->health, error, sender_open_version(&worker->sender))
		       : rc;
}

int weft_update_write(weft_worker *worker, uint32_t id, const weft_memory *memory,
		      weft_error *error)
{
	weft_memory taken;
	struct error inner;
	int rc = call_begins(worker, "weft_update_write", &inner);

	if (!rc)
		rc = judged(worker,
			    worker_take_memory(worker, "weft_update_write", memory, &taken, &inner),
			    &inner);
	if (!rc)
		rc = sender_write(&worker->sender, id, taken.pointer, taken.bytes, &inner);
	return call_ends(worker, rc, &inner, error);
}

/* Where tensor `id` lies; NULL: nowhere, which the update judges. */
static int take_tensor(const struct weft_worker *worker, uint32_t id, const weft_memory *array,
		       size_t stride, weft_memory *before, const void **data, struct error *error)
{
	static const char call[] = "weft_update_write_all";
	const struct local *local = &worker->locals.items[id];
	weft_memory memory;
	int rc = abi_take_at(ABI_MEMORY, call, array, stride, id, &memory, error);

	*data = memory.pointer;
	if (rc || !memory.pointer)
		return rc;
	rc = worker_check_memory(worker, call, &memory, error);
	if (!rc && memory.bytes != local->bytes)
		rc = error_set(error, ERROR_USAGE, "%s: tensor %s has %llu bytes here, given %llu",
			       call, local_info(&worker->holding, local)->name,
			       (unsigned long long)local->bytes, (unsigned long long)memory.bytes);
	if (!rc)
		rc = worker_after(worker, &memory, before, error);
	*before = memory;
	return rc;
}

static int write_all(struct weft_worker *worker, const weft_memory *array, size_t count,
		     size_t stride, struct error *error)
{
	weft_memory before = {.pointer = NULL};
	const void **data;
	int rc = 0;

	if (count != worker->locals.count)
		return error_set(error, ERROR_USAGE,
				 "weft_update_write_all: memory of %zu tensors; %zu are declared",
				 count, worker->locals.count);
	data = memory_zalloc(count + 1, sizeof(*data));
	if (!data)
		return memory_error(error, "writing all tensors", count * sizeof(*data));
	for (size_t i = 0; i < count && !rc; i++)
		rc = judged(
			worker,
			take_tensor(worker, (uint32_t)i, array, stride, &before, &data[i], error),
			error);
	if (!rc)
		rc = sender_write_all(&worker->sender, data, error);
	memory_free(data);
	return rc;
}

int weft_update_write_all(weft_worker *worker, const weft_memory *memory, size_t count,
			  size_t stride, weft_error *error)
{
	struct error inner;
	int rc = call_begins(worker, "weft_update_write_all", &inner);

	if (!rc)
		rc = write_all(worker, memory, count, stride, &inner);
	return call_ends(worker, rc, &inner, error);
}

static int take_slice(const struct weft_worker *worker, const weft_slice *array, size_t stride,
		      size_t at, struct bucket_slice *slices, struct error *error)
{
	static const char call[] = "weft_update_write_bucket";
	struct bucket_slice *slice = &slices[at];
	int rc = abi_take_at(ABI_SLICE, call, array, stride, at, &slice->tensor, error);

	if (!rc)
		rc = abi_take(ABI_MEMORY, call, slice->tensor.memory, &slice->memory, error);
	if (!rc)
		rc = worker_check_memory(worker, call, &slice->memory, error);
	return rc ? rc
		  : worker_after(worker, &slice->memory, at ? &slices[at - 1].memory : NULL, error);
}

static int write_bucket(struct weft_worker *worker, const weft_slice *array, size_t count,
			size_t stride, struct error *error)
{
	struct bucket_slice *slices;
	int rc = 0;

	if (count && !array)
		return error_set(error, ERROR_USAGE, "weft_update_write_bucket: slices is NULL");
	slices = memory_zalloc(count + 1, sizeof(*slices));
	if (!slices)
		return memory_error(error, "writing a bucket", count * sizeof(*slices));
	for (size_t i = 0; i < count && !rc; i++)
		rc = judged(worker, take_slice(worker, array, stride, i, slices, error), error);
	if (!rc)
		rc = sender_write_bucket(&worker->sender, slices, count, error);
	memory_free(slices);
	return rc;
}

int weft_update_write_bucket(weft_worker *worker, const weft_slice *slices, size_t count,
			     size_t stride, weft_error *error)
{
	struct error inner;
	int rc = call_begins(worker, "weft_update_write_bucket", &inner);

	if (!rc)
		rc = write_bucket(worker, slices, count, stride, &inner);
	return call_ends(worker, rc, &inner, error);
}

int weft_update_drain(weft_worker *worker, weft_error *error)
{
	struct error inner;
	int rc = call_begins(worker, "weft_update_drain", &inner);

	if (!rc)
		rc = sender_drain(&worker->sender, &inner);
	return call_ends(worker, rc, &inner, error);
}

int weft_update_end(weft_worker *worker, weft_error *error)
{
	struct error inner;
	int rc = call_begins(worker, "weft_update_end", &inner);

	if (!rc)
		rc = sender_end(&worker->sender, &inner);
	if (!rc && worker->stand_in.sender.epoch) {
		activity_is(&worker->health.activity, ACTIVITY_STANDS_BY, worker->sender.ended);
		rc = stand_in_run(&worker->stand_in, &inner);
	}
	over(worker, rc, SYNC_OK, &inner);
	return call_ends(worker, rc, &inner, error);
}

int weft_update_replay(weft_worker *worker, uint64_t version, weft_error *error)
{
	struct error inner;
	int rc = call_begins(worker, "weft_update_replay", &inner);

	if (!rc && !sender_open_version(&worker->sender))
		metrics_starts(worker);
	while (!rc) {
		if (worker->pausing)
			rc = join_again(worker, true, &inner);
		if (!rc)
			rc = sender_replay(&worker->sender, version, &inner);
		if (rc != SENDER_PAUSES)
			break;
		rc = join_pause(worker,
				&(struct stop){.next = version, .version = worker->sender.ended},
				&inner);
	}
	over(worker, rc, SYNC_OK, &inner);
	return call_ends(worker, rc, &inner, error);
}

/* Who does not repeat, or has not ended what it began last, has nothing to send once more, and stops all the same: the others wait for it. Before
 * it has begun anything, it is where the plan it came with says. */
static int stop_between(weft_worker *worker, bool repeats, struct error *error)
{
	uint64_t ended = worker->sender.ended, begun = worker->sender.schedule.last_version, from;
	uint64_t next = begun ? begun + 1 : atomic_load(&worker->next);

	if (!control_pause(worker->control, &from) || next < from || !next)
		return 0;
	worker->sender.unfinished = true; /* who closes now has not done his work */
	return join_pause(worker,
			  &(struct stop){.next = next,
					 .version = ended,
					 .where = repeats && ended && ended == begun
							  ? STOPPED_REPEATS
							  : STOPPED_BETWEEN},
			  error);
}

static int between(weft_worker *worker, bool repeats, uint64_t *version, struct error *error)
{
	struct sender *sender = &worker->sender;
	int rc = sender_check_between(sender, repeats ? "weft_update_repeat" : "weft_update_admit",
				      error);

	if (rc || !worker->health.control)
		return rc;
	for (;;) { /* it may be woken to stop again, for another controller */
		if (!worker->pausing && !schedule_repeats(&sender->schedule))
			rc = stop_between(worker, repeats, error);
		if (rc || !worker->pausing)
			break;
		rc = join_again(worker, true, error);
		if (rc)
			break;
		sender->unfinished = schedule_repeats(&sender->schedule) ||
				     sender->ended != sender->schedule.last_version;
	}
	if (!rc)
		*version = schedule_repeats(&sender->schedule);
	return rc;
}

int weft_update_repeat(weft_worker *worker, uint64_t *version, weft_error *error)
{
	struct error inner;
	int rc = call_begins(worker, "weft_update_repeat", &inner);

	if (!rc && !version)
		rc = error_set(&inner, ERROR_USAGE, "weft_update_repeat: version is NULL");
	if (!rc) {
		*version = 0;
		rc = between(worker, true, version, &inner);
	}
	return call_ends(worker, rc, &inner, error);
}

/* What repeat has named has to be sent first. */
int weft_update_admit(weft_worker *worker, weft_error *error)
{
	struct error inner;
	uint64_t version = 0;
	int rc = call_begins(worker, "weft_update_admit", &inner);

	if (!rc)
		rc = between(worker, false, &version, &inner);
	if (!rc && version)
		rc = error_set(&inner, ERROR_STATE,
			       "weft_update_admit: weft_update_repeat has said that update %llu is "
			       "sent once more: begin it first",
			       (unsigned long long)version);
	return call_ends(worker, rc, &inner, error);
}

int weft_update_abort(weft_worker *worker, const char *why, weft_error *error)
{
	struct error inner;
	int rc = call_begins(worker, "weft_update_abort", &inner);

	if (!rc)
		rc = sender_abort(&worker->sender, why, &inner);
	over(worker, rc, SYNC_ABORTED, &inner);
	join_call_ends(worker);
	return worker_result(rc, &inner, error);
}
