/* SPDX-License-Identifier: Apache-2.0
 *
 * nic.h -- what a worker says about a NIC that it uses.
 */
#ifndef JOB_NIC_H
#define JOB_NIC_H

#include <stdbool.h>
#include <stdint.h>

/* From a rank's device, or its cores, to the NIC; as `nvidia-smi topo -m` has them, nearest
 * first: one PCIe switch between them, several, the host bridge, the NUMA node, another node. */
enum nic_distance { DISTANCE_PIX, DISTANCE_PXB, DISTANCE_PHB, DISTANCE_NODE, DISTANCE_SYS,
		    DISTANCE_COUNT };

#define NIC_RATE_MAX UINT64_C(1000000000000000) /* bytes per second */
#define NIC_RAIL_MAX UINT16_MAX

struct nic_report {
	char *name;
	uint32_t rail;             /* NICs of one rail, on all hosts, hang on one switch */
	uint64_t bytes_per_second; /* each direction; 0: not known */
	enum nic_distance distance;
};

const char *nic_distance_name(enum nic_distance distance); /* "pix" .. "sys" */
bool nic_distance_parse(const char *name, enum nic_distance *distance);

#endif
