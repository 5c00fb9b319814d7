/* SPDX-License-Identifier: Apache-2.0
 *
 * topology.h -- how far each NIC is from the cores this process may run on, and (given a PCI
 * address) from a GPU: NUMA node and common PCI ancestors, through hwloc. The only file of the
 * project that knows hwloc is topology.c.
 */
#ifndef TRANSPORT_VERBS_TOPOLOGY_H
#define TRANSPORT_VERBS_TOPOLOGY_H

#include "base/error.h"
#include "transport/verbs/facts.h"

struct verbs_topology;

/* NUMA nodes and PCI tree of this host. ERROR_UNSUPPORTED where hwloc cannot see them. */
int verbs_topology_open(struct verbs_topology **topology, struct error *error);
/* Another host's, from a file that lstopo wrote, seen by a process on `cores` ("0-7,16"): tests. */
int verbs_topology_open_xml(struct verbs_topology **topology, const char *path, const char *cores,
		      struct error *error);
void verbs_topology_close(struct verbs_topology **topology);

enum verbs_topology_distance {
	TOPOLOGY_SAME_SWITCH = 0, /* one PCI switch between them */
	TOPOLOGY_SAME_ROOT = 1,   /* one root port or host bridge */
	TOPOLOGY_SAME_NUMA = 2,
	TOPOLOGY_OTHER_NUMA = 3,
	TOPOLOGY_UNKNOWN = 4      /* soft device, flat VM */
};
const char *verbs_topology_distance_name(enum verbs_topology_distance distance);
/* From the cores of this process when near_pci is NULL or "", else from that device. */
enum verbs_topology_distance verbs_topology_distance(const struct verbs_topology *topology,
						     const char *near_pci, const char *pci);

#endif
