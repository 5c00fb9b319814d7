/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/transport.h"
#include "transport/verbs/facts.h"
#include "transport/verbs/topology.h"

#include <stdio.h>

/* What is not known counts as far: nothing may be preferred for what nobody said. */
static enum nic_distance distance_of(uint32_t distance)
{
	static const enum nic_distance words[] = {
		[TOPOLOGY_SAME_SWITCH] = DISTANCE_PIX, [TOPOLOGY_SAME_ROOT] = DISTANCE_PHB,
		[TOPOLOGY_SAME_NUMA] = DISTANCE_NODE,  [TOPOLOGY_OTHER_NUMA] = DISTANCE_SYS,
		[TOPOLOGY_UNKNOWN] = DISTANCE_SYS,
	};

	return distance < ARRAY_SIZE(words) ? words[distance] : DISTANCE_SYS;
}

static bool alike(const struct verbs_device *a, const struct verbs_port *p,
		  const struct verbs_device *b, const struct verbs_port *q)
{
	return a->soft == b->soft && p->link == q->link && p->active && q->active &&
	       (a->soft || p->speed_mbps == q->speed_mbps);
}

void verbs_nic_describe(const struct verbs_facts *facts, const struct verbs_nic_choice *choice,
			struct transport_nic *out)
{
	const struct verbs_device *device = &facts->devices.items[choice->device];
	const struct verbs_port *port = &device->ports.items[choice->port];
	uint64_t rate = device->soft ? 0 : port->speed_mbps * 125000;

	*out = (struct transport_nic){
		.bytes_per_second = rate <= NIC_RATE_MAX ? rate : 0,
		.distance = distance_of(choice->distance),
	};
	snprintf(out->name, sizeof(out->name), "%s:%u", device->name, port->number);
	for (uint32_t d = 0; d <= choice->device; d++) {
		const struct verbs_device *other = &facts->devices.items[d];
		size_t end = d == choice->device ? choice->port : other->ports.count;

		for (size_t p = 0; p < end; p++)
			out->rail += alike(other, &other->ports.items[p], device, port);
	}
}
