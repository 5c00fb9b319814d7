/* SPDX-License-Identifier: Apache-2.0
 *
 * numa.h -- which memory node a NIC, a processor or this thread is near, and memory taken there.
 * Plain system calls and /sys; a machine with one node, or none that it tells of, has node -1:
 * then nothing here does anything.
 *
 * `root` stands in for /sys (tests); NULL: /sys.
 */
#ifndef BASE_NUMA_H
#define BASE_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* Nodes with processors or memory; 1 when unknown. */
uint32_t numa_nodes(const char *root);
/* Of an RDMA device ("mlx5_0", or "mlx5_0:1" with its port); -1: not known, or one node only. */
int numa_node_of_nic(const char *root, const char *device);
/* Of the processor that this thread runs on; -1 with one node only. */
int numa_node_here(const char *root);
/* Leaves in *cpus those of the node. False, and *cpus as it was, when none would be left, or the
 * node is not known. */
bool numa_cpus(const char *root, int node, cpu_set_t *cpus);

/* What this thread touches first from now on comes from that node, as long as it has some. */
struct numa_policy {
	int mode;
	unsigned long nodes[16];
	bool set;
};
void numa_prefer(struct numa_policy *before, int node); /* -1: nothing */
void numa_restore(const struct numa_policy *before);
/* Moves there what may be moved of that memory, and lets the rest come from there. Best effort. */
void numa_place(void *memory, uint64_t bytes, int node);

#endif
