/* SPDX-License-Identifier: Apache-2.0
 *
 * processor.c -- from which processor the lanes of a software NIC are posted.
 *
 * Behind soft RoCE there is no hardware. The thread that posts sends the packets itself, the
 * kernel goes on with them on the processor where that thread was, and receives them there too:
 *
 *   post to lane 0 on cpu 0 ──► cpu 0: send, receive, acknowledge    lane 0 lives on cpu 0
 *   post to lane 1 on cpu 0 ──► cpu 0                                 so does lane 1; cpu 1 idles
 *
 * A later post moves its lane to where the thread is by then. So chance decided whether two lanes
 * ran on two processors or on one (docs/verbs.md, "Software NICs"). Here each lane has a processor
 * of its own: its requests are posted from there, and the thread may run everywhere again after.
 * To get there it waits for a turn beside the packets of that lane, so a lane takes some bytes in
 * a row before the next one is due.
 *
 * A NIC of hardware reads its requests from memory, whoever wrote them: nothing is done there.
 */
#include "transport/verbs/verbs.h"

#include "base/log.h"

#define RUN_BYTES (UINT64_C(8) << 20)

int verbs_processor_of(const cpu_set_t *allowed, uint32_t number)
{
	int count = CPU_COUNT(allowed), left;

	if (!count)
		return -1;
	left = (int)(number % (uint32_t)count);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, allowed) && left-- == 0)
			return cpu;
	return -1;
}

/* Consecutive lanes of an endpoint on consecutive processors; endpoints begin at different ones,
 * since devices number their queue pairs one after the other. */
static uint32_t number_of(const struct verbs_lane *lane)
{
	return lane->endpoint->lanes[0].local.qpn + lane->index;
}

bool verbs_processor_enter(const struct verbs_lane *lane, cpu_set_t *allowed)
{
	cpu_set_t one;

	if (!lane->nic->limits.soft || sched_getaffinity(0, sizeof(*allowed), allowed) ||
	    CPU_COUNT(allowed) < 2)
		return false;
	CPU_ZERO(&one);
	CPU_SET(verbs_processor_of(allowed, number_of(lane)), &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0;
}

void verbs_processor_leave(const cpu_set_t *allowed)
{
	if (sched_setaffinity(0, sizeof(*allowed), allowed))
		log_warn("this thread cannot be let back to its %d processors", CPU_COUNT(allowed));
}

bool verbs_run_elsewhere(const struct verbs_endpoint *endpoint, uint32_t rail)
{
	const struct verbs_lane *due = &endpoint->lanes[endpoint->run_lane];

	return rail != endpoint->run_lane && endpoint->run_bytes &&
	       endpoint->run_bytes < RUN_BYTES && endpoint->lanes[rail].nic->limits.soft &&
	       verbs_lane_lives(due) && verbs_lane_room(due) &&
	       !atomic_load_explicit(&due->nic->down, memory_order_relaxed);
}

void verbs_run_took(struct verbs_endpoint *endpoint, uint32_t rail, uint64_t bytes)
{
	if (rail != endpoint->run_lane || endpoint->run_bytes >= RUN_BYTES)
		endpoint->run_bytes = 0;
	endpoint->run_lane = rail;
	endpoint->run_bytes += bytes;
}
