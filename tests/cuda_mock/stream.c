/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c -- the order in which operations run, and when.
 *
 *   stream   done ........ queued        an operation runs once all before it in its stream did
 *   event    (stream, upto)              complete when the stream has done that many
 *
 * Who waits runs what is needed for it, in his own thread; with order=random a thread also runs what it likes.
 */
#include "tests/cuda_mock/mock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool value_reached(const struct gpu_op *op)
{
	uint64_t piece = 0;
	const _Atomic uint64_t *word = (void *)(uintptr_t)op->to;

	if (gpu_range_of(op->to))
		word = (void *)gpu_reach(op->to, sizeof(*word), &piece);
	return !word || atomic_load(word) >= op->least;
}

/* One operation, if it need not wait for a value, or (unless `deep`) for another stream. */
static bool step(struct cuda_stream *stream, bool deep)
{
	struct gpu_op *op = stream->first;
	int rc = 0;

	if (op->work == GPU_WAIT_VALUE && !value_reached(op))
		return false;
	if (op->work == GPU_WAIT_EVENT && op->other->done < op->upto &&
	    (!deep || !gpu_stream_run(op->other, op->upto)))
		return false;
	if (op->work <= GPU_KERNEL && !gpu.lost[stream->device]) {
		rc = ++gpu.works == gpu.options.lose_at ? CUDA_LAUNCH_FAILED : gpu_run(stream, op);
		if (rc)
			gpu.lost[stream->device] = rc;
	}
	stream->first = op->next;
	if (!stream->first)
		stream->last = &stream->first;
	stream->done++;
	free(op->staged);
	free(op);
	return true;
}

bool gpu_stream_run(struct cuda_stream *stream, uint64_t upto)
{
	while (stream->done < upto)
		if (!step(stream, true))
			return false;
	return true;
}

void gpu_device_wait(int device)
{
	for (struct cuda_stream *stream = gpu.streams; stream; stream = stream->next)
		if (device < 0 || stream->device == device)
			gpu_stream_run(stream, stream->queued);
}

/* ---- the thread of order=random ---- */

static struct cuda_stream *any_stream(void)
{
	struct cuda_stream *found = NULL;
	unsigned count = 0;

	for (struct cuda_stream *stream = gpu.streams; stream; stream = stream->next)
		if (stream->first && gpu_random() % ++count == 0)
			found = stream;
	return found;
}

static void *run_some(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&gpu.lock);
	while (!gpu.stop) {
		struct cuda_stream *stream = any_stream();
		uint64_t pause = gpu_random() % 200;

		if (stream && gpu_random() % 4)
			step(stream, false);
		if (!stream) {
			pthread_cond_wait(&gpu.work, &gpu.lock);
			continue;
		}
		pthread_mutex_unlock(&gpu.lock);
		usleep((useconds_t)pause);
		pthread_mutex_lock(&gpu.lock);
	}
	pthread_mutex_unlock(&gpu.lock);
	return NULL;
}

void gpu_thread_start(void)
{
	gpu.stop = false;
	gpu.threaded = pthread_create(&gpu.thread, NULL, run_some, NULL) == 0;
}

void gpu_thread_stop(void)
{
	if (!gpu.threaded)
		return;
	pthread_mutex_lock(&gpu.lock);
	gpu.stop = true;
	pthread_cond_signal(&gpu.work);
	pthread_mutex_unlock(&gpu.lock);
	pthread_join(gpu.thread, NULL);
	gpu.threaded = false;
}

/* ---- streams ---- */

struct cuda_stream *gpu_stream_new(int device)
{
	struct cuda_stream *stream = calloc(1, sizeof(*stream));

	stream->device = device;
	stream->last = &stream->first;
	stream->next = gpu.streams;
	gpu.streams = stream;
	return stream;
}

struct cuda_stream *gpu_stream(cuda_stream stream, int device)
{
	if (!stream)
		return gpu.defaults[device];
	if (stream->destroyed)
		gpu_violation("a stream is used that was destroyed");
	else if (stream->device != device)
		gpu_violation("a stream of cuda:%d is used, and cuda:%d was entered",
			      stream->device, device);
	else
		return stream;
	return NULL;
}

static int enqueue(struct cuda_stream *stream, const struct gpu_op *op)
{
	struct gpu_op *queued = malloc(sizeof(*queued));

	*queued = *op;
	queued->next = NULL;
	*stream->last = queued;
	stream->last = &queued->next;
	stream->queued++;
	if (gpu.options.order == CUDA_MOCK_EAGER)
		gpu_stream_run(stream, stream->queued);
	if (gpu.threaded)
		pthread_cond_signal(&gpu.work);
	return gpu.lost[stream->device] && gpu.options.order == CUDA_MOCK_EAGER
		       ? gpu.lost[stream->device]
		       : 0;
}

int gpu_stream_create(cuda_stream *stream)
{
	int device, rc = gpu_begin_on(CUDA_CALL_stream_create, &device);

	if (rc)
		return rc;
	*stream = gpu_stream_new(device);
	return gpu_end(0);
}

int gpu_stream_destroy(cuda_stream stream)
{
	int device, rc = gpu_begin_on(CUDA_CALL_stream_destroy, &device);
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = stream ? gpu_stream(stream, device) : NULL;
	if (!one)
		return gpu_end(CUDA_INVALID_HANDLE);
	one->destroyed = true; /* what it has still to do is done */
	return gpu_end(0);
}

/* Whether that much is done, for one who asks and does not wait: with order=late the third time. */
static int ask(struct cuda_stream *stream, uint64_t upto, unsigned *queries)
{
	if (stream->done < upto && gpu.options.order == CUDA_MOCK_LATE &&
	    ++*queries >= GPU_STREAM_LATE_QUERIES)
		gpu_stream_run(stream, upto);
	if (stream->done < upto && gpu.options.order == CUDA_MOCK_EAGER)
		gpu_stream_run(stream, upto);
	if (gpu.lost[stream->device])
		return gpu.lost[stream->device];
	if (stream->done < upto)
		return CUDA_NOT_READY;
	*queries = 0;
	return 0;
}

/* Gives the lock away while something waits for a value. */
static int wait_for(struct cuda_stream *stream, uint64_t upto)
{
	while (!gpu_stream_run(stream, upto)) {
		pthread_mutex_unlock(&gpu.lock);
		usleep(100);
		pthread_mutex_lock(&gpu.lock);
	}
	return gpu.lost[stream->device];
}

int gpu_stream_query(cuda_stream stream)
{
	int device, rc = gpu_begin_on(CUDA_CALL_stream_query, &device);
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = gpu_stream(stream, device);
	return gpu_end(one ? ask(one, one->queued, &one->queries) : CUDA_INVALID_HANDLE);
}

int gpu_stream_synchronize(cuda_stream stream)
{
	int device, rc = gpu_begin_on(CUDA_CALL_stream_synchronize, &device);
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = gpu_stream(stream, device);
	return gpu_end(one ? wait_for(one, one->queued) : CUDA_INVALID_HANDLE);
}

/* ---- events ---- */

int gpu_event_create(cuda_event *event)
{
	int device, rc = gpu_begin_on(CUDA_CALL_event_create, &device);

	if (rc)
		return rc;
	*event = calloc(1, sizeof(**event));
	(*event)->device = device;
	(*event)->next = gpu.events;
	gpu.events = *event;
	return gpu_end(0);
}

static bool bad_event(cuda_event event)
{
	if (event->destroyed)
		gpu_violation("an event is used that was destroyed");
	return event->destroyed;
}

int gpu_event_destroy(cuda_event event)
{
	int rc = gpu_begin(CUDA_CALL_event_destroy);

	if (rc)
		return rc;
	if (bad_event(event))
		return gpu_end(CUDA_INVALID_HANDLE);
	event->destroyed = true;
	return gpu_end(0);
}

int gpu_event_record(cuda_event event, cuda_stream stream)
{
	int device, rc = gpu_begin_on(CUDA_CALL_event_record, &device);
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = gpu_stream(stream, device);
	if (!one || bad_event(event))
		return gpu_end(CUDA_INVALID_HANDLE);
	if (event->device != device) {
		gpu_violation("an event of cuda:%d is recorded in a stream of cuda:%d",
			      event->device, device);
		return gpu_end(CUDA_INVALID_HANDLE);
	}
	event->stream = one;
	event->upto = one->queued;
	return gpu_end(0);
}

int gpu_event_query(cuda_event event)
{
	int rc = gpu_begin(CUDA_CALL_event_query);

	if (rc)
		return rc;
	if (bad_event(event))
		return gpu_end(CUDA_INVALID_HANDLE);
	return gpu_end(event->stream ? ask(event->stream, event->upto, &event->queries) : 0);
}

int gpu_event_synchronize(cuda_event event)
{
	int rc = gpu_begin(CUDA_CALL_event_synchronize);

	if (rc)
		return rc;
	if (bad_event(event))
		return gpu_end(CUDA_INVALID_HANDLE);
	return gpu_end(event->stream ? wait_for(event->stream, event->upto) : 0);
}

int gpu_stream_wait(cuda_stream stream, cuda_event event)
{
	int device, rc = gpu_begin_on(CUDA_CALL_stream_wait, &device);
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = gpu_stream(stream, device);
	if (!one || bad_event(event))
		return gpu_end(CUDA_INVALID_HANDLE);
	if (!event->stream)
		return gpu_end(0);
	return gpu_end(enqueue(one, &(struct gpu_op){
					    .work = GPU_WAIT_EVENT,
					    .other = event->stream,
					    .upto = event->upto,
				    }));
}

int gpu_stream_wait_value(cuda_stream stream, uint64_t address, uint64_t least)
{
	int device, rc = gpu_begin_on(CUDA_CALL_stream_wait_value, &device);
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = gpu_stream(stream, device);
	if (!one || (!gpu_range_of(address) && !gpu_host_of(address, 8)) || address % 8)
		return gpu_end(CUDA_INVALID_VALUE);
	return gpu_end(enqueue(
		one, &(struct gpu_op){.work = GPU_WAIT_VALUE, .to = address, .least = least}));
}

/* ---- work ---- */

/* Of the host, and not registered. */
static bool pageable(uint64_t address, uint64_t bytes)
{
	return !gpu_range_of(address) && !gpu_host_of(address, bytes);
}

int gpu_copy(uint64_t to, uint64_t from, uint64_t bytes, cuda_stream stream)
{
	int device, rc = gpu_begin_on(CUDA_CALL_copy, &device);
	struct gpu_op op = {.work = GPU_COPY, .to = to, .from = from, .bytes = bytes};
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = gpu_stream(stream, device);
	if (!one)
		return gpu_end(CUDA_INVALID_HANDLE);
	if (!bytes)
		return gpu_end(0);
	if (pageable(from, bytes)) {
		op.staged = malloc(bytes);
		memcpy(op.staged, (void *)(uintptr_t)from, bytes);
	}
	rc = enqueue(one, &op);
	return gpu_end(!rc && pageable(to, bytes) ? wait_for(one, one->queued) : rc);
}

int gpu_copy_rows(uint64_t to, uint64_t from, uint64_t row_bytes, uint64_t from_stride,
		  uint64_t rows, cuda_stream stream)
{
	int device, rc = gpu_begin_on(CUDA_CALL_copy_rows, &device);
	struct gpu_op op = {.work = GPU_ROWS,
			    .to = to,
			    .from = from,
			    .bytes = row_bytes,
			    .stride = from_stride,
			    .rows = rows};
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = gpu_stream(stream, device);
	if (!one)
		return gpu_end(CUDA_INVALID_HANDLE);
	if (!row_bytes || !rows)
		return gpu_end(0);
	if (pageable(from, (rows - 1) * from_stride + row_bytes)) {
		op.staged = malloc(rows * row_bytes);
		for (uint64_t i = 0; i < rows; i++)
			memcpy((char *)op.staged + i * row_bytes,
			       (void *)(uintptr_t)(from + i * from_stride), row_bytes);
	}
	rc = enqueue(one, &op);
	return gpu_end(!rc && pageable(to, rows * row_bytes) ? wait_for(one, one->queued) : rc);
}

int gpu_fill(uint64_t to, uint8_t byte, uint64_t bytes, cuda_stream stream)
{
	int device, rc = gpu_begin_on(CUDA_CALL_fill, &device);
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = gpu_stream(stream, device);
	if (!one || pageable(to, bytes))
		return gpu_end(CUDA_INVALID_VALUE);
	return gpu_end(enqueue(
		one, &(struct gpu_op){.work = GPU_FILL, .to = to, .byte = byte, .bytes = bytes}));
}

int gpu_launch(cuda_kernel kernel, struct cuda_dim dim, void *argument, cuda_stream stream)
{
	int device, rc = gpu_begin_on(CUDA_CALL_launch, &device);
	struct gpu_op op = {.work = GPU_KERNEL, .blocks = dim.blocks};
	struct cuda_stream *one;

	if (rc)
		return rc;
	one = gpu_stream(stream, device);
	if (!one || kernel->device != device || !dim.blocks || dim.threads != PACK_CUDA_THREADS)
		return gpu_end(CUDA_INVALID_VALUE);
	memcpy(&op.launch, argument, sizeof(op.launch));
	return gpu_end(enqueue(one, &op));
}
