/* SPDX-License-Identifier: Apache-2.0
 *
 * topology.h -- how far each NIC is from the cores this process may run on, and (given a PCI
 * address) from a GPU: NUMA node and common PCI ancestors, through hwloc. The only file of the
 * project that knows hwloc is topology.c.
 */
#ifndef TRANSPORT_VERBS_TOPOLOGY_H
#define TRANSPORT_VERBS_TOPOLOGY_H

#include "common/error.h"
#include "transport/verbs/facts.h"
#include <stdint.h>

struct topology;

/* NUMA nodes and PCI tree of this host. ERROR_UNSUPPORTED where hwloc cannot see them. */
int topology_open(struct topology **topology, struct error *error);
/* Another host's, from a file that lstopo wrote, seen by a process on `cores` ("0-7,16"): tests. */
int topology_open_xml(struct topology **topology, const char *path, const char *cores,
		      struct error *error);
void topology_close(struct topology **topology);

enum topology_distance {
	TOPOLOGY_SAME_SWITCH = 0, /* one PCI switch between them */
	TOPOLOGY_SAME_ROOT = 1,   /* one root port or host bridge */
	TOPOLOGY_SAME_NUMA = 2,
	TOPOLOGY_OTHER_NUMA = 3,
	TOPOLOGY_UNKNOWN = 4      /* soft device, flat VM */
};
const char *topology_distance_name(enum topology_distance distance);
/* From the cores of this process when near_pci is NULL or "", else from that device. */
enum topology_distance topology_distance(const struct topology *topology, const char *near_pci,
					 const char *pci);

#endif
