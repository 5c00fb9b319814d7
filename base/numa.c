/* SPDX-License-Identifier: Apache-2.0 */
#include "base/numa.h"

#include "base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/mempolicy.h; a stable kernel interface */
#define MPOL_PREFERRED 1
#define MPOL_MF_MOVE   2u
#define NODES_MAX      ((int)(8 * sizeof(((struct numa_policy *)0)->nodes)))

static bool read_line(const char *root, const char *path, char *line, size_t bytes)
{
	char name[512];
	int n = snprintf(name, sizeof(name), "%s/%s", root ? root : "/sys", path);

	return n < (int)sizeof(name) && file_read_small(name, line, bytes) > 0;
}

/* "0-3,8,10-11": each number is given to `take`; false when it is no such list. */
static bool each_in_list(const char *list, void (*take)(void *context, unsigned long number),
			 void *context)
{
	const char *at = list;

	while (*at && *at != '\n') {
		char *end;
		unsigned long first = strtoul(at, &end, 10), last = first;

		if (end == at)
			return false;
		if (*end == '-') {
			at = end + 1;
			last = strtoul(at, &end, 10);
			if (end == at)
				return false;
		}
		for (; first <= last && first < CPU_SETSIZE; first++)
			take(context, first);
		at = *end == ',' ? end + 1 : end;
		if (*at && *at != '\n' && at == end)
			return false;
	}
	return true;
}

static void count_one(void *context, unsigned long number)
{
	++*(uint32_t *)context;
}

uint32_t numa_nodes(const char *root)
{
	uint32_t count = 0;
	char line[4096];

	if (!read_line(root, "devices/system/node/online", line, sizeof(line)) ||
	    !each_in_list(line, count_one, &count) || !count)
		return 1;
	return count;
}

int numa_node_of_nic(const char *root, const char *device)
{
	char path[256], line[32], *end;
	long node;

	if (numa_nodes(root) < 2)
		return -1;
	snprintf(path, sizeof(path), "class/infiniband/%.*s/device/numa_node",
		 (int)strcspn(device, ":"), device);
	if (!read_line(root, path, line, sizeof(line)))
		return -1;
	node = strtol(line, &end, 10);
	return end != line && node >= 0 && node < NODES_MAX ? (int)node : -1;
}

int numa_node_here(const char *root)
{
	unsigned cpu, node;

	if (numa_nodes(root) < 2 || syscall(SYS_getcpu, &cpu, &node, NULL))
		return -1;
	return node < (unsigned)NODES_MAX ? (int)node : -1;
}

static void add_cpu(void *context, unsigned long cpu)
{
	CPU_SET(cpu, (cpu_set_t *)context);
}

bool numa_cpus(const char *root, int node, cpu_set_t *cpus)
{
	char path[64], line[4096];
	cpu_set_t near;

	if (node < 0)
		return false;
	CPU_ZERO(&near);
	snprintf(path, sizeof(path), "devices/system/node/node%d/cpulist", node);
	if (!read_line(root, path, line, sizeof(line)) || !each_in_list(line, add_cpu, &near))
		return false;
	CPU_AND(&near, &near, cpus);
	if (!CPU_COUNT(&near))
		return false;
	*cpus = near;
	return true;
}

static void only(unsigned long *nodes, size_t bytes, int node)
{
	memset(nodes, 0, bytes);
	nodes[(size_t)node / (8 * sizeof(*nodes))] |= 1ul << (size_t)node % (8 * sizeof(*nodes));
}

void numa_prefer(struct numa_policy *before, int node)
{
	unsigned long nodes[sizeof(before->nodes) / sizeof(*before->nodes)];

	memset(before, 0, sizeof(*before));
	if (node < 0 ||
	    syscall(SYS_get_mempolicy, &before->mode, before->nodes, NODES_MAX + 1ul, NULL, 0))
		return;
	only(nodes, sizeof(nodes), node);
	before->set = !syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, NODES_MAX + 1ul);
}

void numa_restore(const struct numa_policy *before)
{
	if (before->set)
		syscall(SYS_set_mempolicy, before->mode, before->mode ? before->nodes : NULL,
			before->mode ? NODES_MAX + 1ul : 0ul);
}

void numa_place(void *memory, uint64_t bytes, int node)
{
	unsigned long nodes[sizeof(((struct numa_policy *)0)->nodes) / sizeof(long)];

	if (node < 0)
		return;
	only(nodes, sizeof(nodes), node);
	syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes, NODES_MAX + 1ul, MPOL_MF_MOVE);
}
