/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory nodes, read from a made /sys.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/numa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[64];

static void put(const char *path, const char *text)
{
	char command[256], name[160];
	FILE *file;

	snprintf(command, sizeof(command), "mkdir -p $(dirname %s/%s)", root, path);
	assert_int_equal(system(command), 0);
	snprintf(name, sizeof(name), "%s/%s", root, path);
	file = fopen(name, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int make_root(void **state)
{
	(void)state;
	strcpy(root, "/tmp/weft-numa-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

/* Nodes 0 and 2 are there, 1 is offline; 3 has memory and no processor. */
static void make_nodes(void)
{
	put("devices/system/node/online", "0,2-3\n");
	put("devices/system/node/node0/cpulist", "0-1,4\n");
	put("devices/system/node/node2/cpulist", "2-3,5-7\n");
	put("devices/system/node/node3/cpulist", "\n");
	put("class/infiniband/mlx5_0/device/numa_node", "2\n");
	put("class/infiniband/mlx5_1/device/numa_node", "-1\n");
	put("class/infiniband/mlx5_2/device/numa_node", "1\n");
	put("class/infiniband/mlx5_3/device/numa_node", "none\n");
	put("class/infiniband/mlx5_4/device/numa_node", "1000000\n");
	put("class/infiniband/mlx5_5/device/numa_node", "");
}

static cpu_set_t cpus_of(unsigned bits)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	for (int cpu = 0; cpu < 8; cpu++)
		if (bits >> cpu & 1)
			CPU_SET(cpu, &cpus);
	return cpus;
}

/* What is left of `allowed` near the node; allowed itself when the node is of no use. */
static void check_cpus(int node, unsigned allowed, bool found, unsigned left)
{
	cpu_set_t cpus = cpus_of(allowed), wanted = cpus_of(left);

	assert_int_equal(numa_cpus(root, node, &cpus), found);
	assert_true(CPU_EQUAL(&cpus, &wanted));
}

static void test_nodes__are_counted_from_the_list_of_those_online(void **state)
{
	static const struct {
		const char *text;
		uint32_t count;
	} lists[] = {
		{"0\n", 1},	{"0-1\n", 2},  {"0-3", 4},  {"0,2-3,7\n", 4},
		{"\n", 1},	{"", 1},       {"x\n", 1},  {"0-\n", 1},
		{"0-1;2\n", 1}, {"0,,1\n", 1}, {"-1\n", 1}, {"3-1\n", 1},
	};

	(void)state;
	assert_int_equal(numa_nodes("/nowhere"), 1);
	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		put("devices/system/node/online", lists[i].text);
		assert_int_equal(numa_nodes(root), lists[i].count);
	}
}

static void test_nic__has_a_node_only_where_the_kernel_names_one(void **state)
{
	(void)state;
	make_nodes();
	assert_int_equal(numa_node_of_nic(root, "mlx5_0"), 2);
	assert_int_equal(numa_node_of_nic(root, "mlx5_0:1"), 2);
	assert_int_equal(numa_node_of_nic(root, "mlx5_1"), -1);
	assert_int_equal(numa_node_of_nic(root, "mlx5_3"), -1);
	assert_int_equal(numa_node_of_nic(root, "mlx5_4"), -1);
	assert_int_equal(numa_node_of_nic(root, "mlx5_5"), -1);
	assert_int_equal(numa_node_of_nic(root, "mlx5_9"), -1);
	put("devices/system/node/online", "0\n");
	assert_int_equal(numa_node_of_nic(root, "mlx5_0"), -1);
	assert_int_equal(numa_node_here(root), -1);
}

static void test_processors__of_a_node_are_those_that_we_may_use(void **state)
{
	(void)state;
	make_nodes();
	check_cpus(0, 0xff, true, 0x13);
	check_cpus(2, 0xff, true, 0xec);
	check_cpus(2, 0x09, true, 0x08);  /* an affinity mask smaller than the node */
	check_cpus(2, 0x13, false, 0x13); /* and one that is elsewhere */
	check_cpus(1, 0xff, false, 0xff); /* offline */
	check_cpus(3, 0xff, false, 0xff); /* no processor */
	check_cpus(-1, 0xff, false, 0xff);
	put("devices/system/node/node0/cpulist", "0-1,x\n");
	check_cpus(0, 0xff, false, 0xff);
	put("devices/system/node/node0/cpulist", "0-99999999\n");
	check_cpus(0, 0xff, true, 0xff);
}

static void test_placing__on_a_node_that_is_not_there_does_no_harm(void **state)
{
	static const int nodes[] = {-1, 0, 1, 63, 1023};
	size_t bytes = 1 << 16;
	unsigned char *memory;

	(void)state;
	memory = aligned_alloc(4096, bytes);
	assert_non_null(memory);
	for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
		struct numa_policy before;

		numa_prefer(&before, nodes[i]);
		memset(memory, (int)i + 1, bytes);
		numa_restore(&before);
		numa_place(memory, bytes, nodes[i]);
		assert_int_equal(memory[bytes - 1], (int)i + 1);
	}
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_nodes__are_counted_from_the_list_of_those_online, make_root,
			remove_root),
		cmocka_unit_test_setup_teardown(
			test_nic__has_a_node_only_where_the_kernel_names_one, make_root,
			remove_root),
		cmocka_unit_test_setup_teardown(
			test_processors__of_a_node_are_those_that_we_may_use, make_root,
			remove_root),
		cmocka_unit_test(test_placing__on_a_node_that_is_not_there_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
