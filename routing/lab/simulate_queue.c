/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/simulate_queue.h"

int event_queue_init(struct event_queue *queue, uint32_t ids, struct error *error)
{
	*queue = (struct event_queue){0};
	queue->seconds = pool_array(&queue->pool, ids, sizeof(*queue->seconds));
	queue->heap = pool_array(&queue->pool, ids, sizeof(*queue->heap));
	queue->place = pool_array(&queue->pool, ids, sizeof(*queue->place));
	if (pool_ok(&queue->pool))
		return 0;
	event_queue_fini(queue);
	return memory_error(error, "simulating", ids * sizeof(*queue->seconds));
}

void event_queue_fini(struct event_queue *queue)
{
	pool_free(&queue->pool);
	*queue = (struct event_queue){0};
}

static bool before(const struct event_queue *queue, uint32_t a, uint32_t b)
{
	if (queue->seconds[a] != queue->seconds[b])
		return queue->seconds[a] < queue->seconds[b];
	return a < b;
}

static void set(struct event_queue *queue, uint32_t at, uint32_t id)
{
	queue->heap[at] = id;
	queue->place[id] = at + 1;
}

static void rise(struct event_queue *queue, uint32_t at, uint32_t id)
{
	while (at && before(queue, id, queue->heap[(at - 1) / 2])) {
		set(queue, at, queue->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	set(queue, at, id);
}

static void sink(struct event_queue *queue, uint32_t at, uint32_t id)
{
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= queue->count)
			break;
		if (child + 1 < queue->count &&
		    before(queue, queue->heap[child + 1], queue->heap[child]))
			child++;
		if (!before(queue, queue->heap[child], id))
			break;
		set(queue, at, queue->heap[child]);
		at = child;
	}
	set(queue, at, id);
}

void event_queue_put(struct event_queue *queue, uint32_t id, double seconds)
{
	uint32_t at = queue->place[id];
	double old = queue->seconds[id];

	queue->seconds[id] = seconds;
	if (!at)
		rise(queue, queue->count++, id);
	else if (seconds < old)
		rise(queue, at - 1, id);
	else
		sink(queue, at - 1, id);
}

void event_queue_drop(struct event_queue *queue, uint32_t id)
{
	uint32_t at = queue->place[id], last;

	if (!at)
		return;
	queue->place[id] = 0;
	last = queue->heap[--queue->count];
	if (last == id)
		return;
	if (before(queue, last, id))
		rise(queue, at - 1, last);
	else
		sink(queue, at - 1, last);
}

bool event_queue_first(const struct event_queue *queue, uint32_t *id, double *seconds)
{
	if (!queue->count)
		return false;
	*id = queue->heap[0];
	*seconds = queue->seconds[*id];
	return true;
}
