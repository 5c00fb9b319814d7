/* SPDX-License-Identifier: Apache-2.0
 *
 * flow.c -- the window of posts of one endpoint: ids, credit, writes done in order.
 */
#include "transport/provider.h"

#include "base/memory.h"

#define WINDOW_FACTOR 4 /* posts may pass this many times the slowest one before waiting */

int flow_init(struct flow *flow, uint32_t inflight_max, struct error *error)
{
	uint64_t wanted = (uint64_t)inflight_max * WINDOW_FACTOR;
	uint32_t capacity = 1;

	while (capacity < wanted && capacity < 1u << 20)
		capacity *= 2;
	*flow = (struct flow){.capacity = capacity, .inflight_max = inflight_max};
	flow->ring = memory_zalloc(capacity, sizeof(*flow->ring));
	if (!flow->ring)
		return memory_error(error, "opening an endpoint's window",
				    capacity * sizeof(*flow->ring));
	return 0;
}

void flow_fini(struct flow *flow)
{
	memory_free(flow->ring);
	flow->ring = NULL;
}

bool flow_room(const struct flow *flow)
{
	return flow->inflight < flow->inflight_max && flow->next - flow->head < flow->capacity;
}

static struct flow_entry *entry_of(const struct flow *flow, uint64_t id)
{
	return &flow->ring[id & (flow->capacity - 1)];
}

void flow_add(struct flow *flow, uint64_t bytes, uint32_t writes_ended)
{
	*entry_of(flow, flow->next) =
		(struct flow_entry){.bytes = bytes, .writes_ended = writes_ended};
	flow->next++;
	flow->inflight++;
	flow->bytes_posted += bytes;
}

void flow_end_write(struct flow *flow)
{
	if (flow->head == flow->next)
		flow->writes_done++;
	else
		entry_of(flow, flow->next - 1)->writes_ended++;
}

int flow_complete(struct flow *flow, uint64_t id, struct error *error)
{
	struct flow_entry *entry = entry_of(flow, id);

	if (id < flow->head || id >= flow->next || entry->complete)
		return error_set(error, ERROR_TRANSPORT,
				 "a completion came for post %llu, which is not in flight "
				 "(%llu to %llu are)",
				 (unsigned long long)id, (unsigned long long)flow->head,
				 (unsigned long long)flow->next);
	entry->complete = true;
	flow->inflight--;
	flow->bytes_done += entry->bytes;
	while (flow->head < flow->next && entry_of(flow, flow->head)->complete) {
		flow->writes_done += entry_of(flow, flow->head)->writes_ended;
		flow->head++;
	}
	return 0;
}
