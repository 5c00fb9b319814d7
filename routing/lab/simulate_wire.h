/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_wire.h -- a topology as resources that flows share: every NIC in each direction,
 * every limited uplink in each direction, and a rank that was slowed down.
 */
#ifndef ROUTING_LAB_SIMULATE_WIRE_H
#define ROUTING_LAB_SIMULATE_WIRE_H

#include "routing/lab/fluid.h"
#include "routing/lab/simulate.h"

struct wire_map {
	const struct topology *topology;
	struct wire_resource *resources;
	uint32_t count;
	uint32_t *uplinks;              /* by host: resource out + 1 (in follows); 0: no limit */
	uint32_t *slowed[ROLE_COUNT];   /* by rank: resource + 1; 0: none */
	double *stage_factor[ROLE_COUNT]; /* by rank */
	bool *nic_lost;
	uint32_t path_max;
	struct pool pool;               /* of all but the resources */
};

/* ERROR_USAGE names a `slow` or failure that points nowhere. */
int wire_map_init(struct wire_map *map, const struct topology *topology,
		  const struct simulate_options *options, struct error *error);
void wire_map_fini(struct wire_map *map); /* but for resources, if they were taken */

/* What a flow from a trainer to an inference rank loads; path has map.path_max entries. Bytes
 * spread over NICs of equal rail in proportion to the slower of each two; where no rails meet,
 * over each rank's NICs in proportion to their speed. Uplinks are for other hosts only. */
uint32_t wire_path(const struct wire_map *map, uint32_t trainer, uint32_t inference,
		   struct fluid_load *path);
/* No NIC of the rank works any more. */
bool wire_rank_lost(const struct wire_map *map, enum role role, uint32_t rank);

#endif
