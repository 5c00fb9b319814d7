/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/simulate.h"

#include <inttypes.h>
#include <stdio.h>

struct bottleneck simulation_bottleneck(const struct simulation *simulation)
{
	struct bottleneck most = {0};

	for (uint32_t w = 0; w < simulation->wire_count; w++) {
		double work = simulation->wire[w].bytes / simulation->wire[w].bytes_per_second;

		/* rounding must not choose among equals */
		if (work > most.seconds * (1 + 1e-9))
			most = (struct bottleneck){.wire = w, .seconds = work};
	}
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t r = 0; r < simulation->rank_count[role]; r++)
			for (int s = 0; s < STAGE_COUNT; s++) {
				double work = simulation->ranks[role][r].stage_seconds[s];

				if (work > most.seconds * (1 + 1e-9))
					most = (struct bottleneck){.is_stage = true,
								   .stage = (enum stage)s,
								   .rank = r,
								   .seconds = work};
			}
	return most;
}

static void nic_text(const struct topology *topology, uint32_t nic, const char *what,
		     char out[BOTTLENECK_TEXT_BYTES])
{
	const struct topology_nic *it = &topology->nics[nic];
	const char *host = topology->hosts[it->host].name;

	if (topology->flat) /* a host is a rank there, and says it all */
		snprintf(out, BOTTLENECK_TEXT_BYTES, "the NIC of %s, %s", host, what);
	else
		snprintf(out, BOTTLENECK_TEXT_BYTES, "NIC %s of host %s, %s", it->name, host, what);
}

char *bottleneck_text(const struct simulation *simulation, const struct bottleneck *bottleneck,
		      const struct topology *topology, char out[BOTTLENECK_TEXT_BYTES])
{
	const struct wire_resource *wire = &simulation->wire[bottleneck->wire];
	uint32_t rank = bottleneck->rank;

	if (bottleneck->is_stage) {
		snprintf(out, BOTTLENECK_TEXT_BYTES, "%s of %s %" PRIu32,
			 stage_name(bottleneck->stage),
			 role_name(bottleneck->stage == STAGE_VERIFY ? ROLE_INFERENCE
								     : ROLE_TRAINER),
			 rank);
		return out;
	}
	switch (wire->wire) {
	case WIRE_NIC_SEND:
	case WIRE_NIC_RECEIVE:
		nic_text(topology, wire->index,
			 wire->wire == WIRE_NIC_SEND ? "sending" : "receiving", out);
		break;
	case WIRE_UPLINK_OUT:
	case WIRE_UPLINK_IN:
		snprintf(out, BOTTLENECK_TEXT_BYTES, "the uplink of host %s, %s",
			 topology->hosts[wire->index].name,
			 wire->wire == WIRE_UPLINK_OUT ? "out" : "in");
		break;
	default:
		snprintf(out, BOTTLENECK_TEXT_BYTES, "slowed %s %" PRIu32,
			 role_name(wire->wire == WIRE_TRAINER ? ROLE_TRAINER : ROLE_INFERENCE),
			 wire->index);
	}
	return out;
}
