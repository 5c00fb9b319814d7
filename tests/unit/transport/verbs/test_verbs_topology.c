/* SPDX-License-Identifier: Apache-2.0
 *
 * Distances on hosts kept as hwloc's XML (golden/topology):
 *
 *   two_nodes        node 0: switch {GPU 03:00.0, NIC 04:00.0 and .1}, NIC 10:00.0 on another root
 *                    port, NIC 41:00.0 on another host bridge; node 1: switch {GPU 83:, NIC 84:}
 *   flat_vm          GPU 00:04.0, NICs 00:05.0 and 00:06.0, all on the one host bridge
 *   vm_root_ports    GPU 01:00.0 and NIC 02:00.0, each behind a root port, one node
 *   nodeless_bridge  two nodes, and firmware that does not say which the bridges belong to
 *   no_pci           two nodes, nothing plugged in
 */
#include "base/array.h"
#include "transport/verbs/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int open_host(struct verbs_topology **topology, const char *name, const char *cores,
		     struct error *error)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s/tests/unit/golden/topology/%s.xml",
		 getenv("WEFT_SOURCE_DIR"), name);
	return verbs_topology_open_xml(topology, path, cores, error);
}

static void test_distances__are_what_the_tree_says(void **unused)
{
	static const struct {
		const char *host, *cores, *from, *to;
		enum verbs_topology_distance distance;
	} rows[] = {
		/* from a GPU */
		{"two_nodes", "0-3", "0000:03:00.0", "0000:04:00.0", TOPOLOGY_SAME_SWITCH},
		{"two_nodes", "0-3", "0000:03:00.0", "0000:04:00.1", TOPOLOGY_SAME_SWITCH},
		{"two_nodes", "2", "0000:03:00.0", "0000:04:00.0", TOPOLOGY_SAME_SWITCH},
		{"two_nodes", "0-3", "0000:03:00.0", "0000:10:00.0", TOPOLOGY_SAME_ROOT},
		{"two_nodes", "0-3", "0000:03:00.0", "0000:41:00.0", TOPOLOGY_SAME_NUMA},
		{"two_nodes", "0-3", "0000:03:00.0", "0000:84:00.0", TOPOLOGY_OTHER_NUMA},
		{"two_nodes", "0-3", "0000:83:00.0", "0000:84:00.0", TOPOLOGY_SAME_SWITCH},
		{"two_nodes", "0-3", "0000:83:00.0", "0000:10:00.0", TOPOLOGY_OTHER_NUMA},
		/* two functions of one card, and the card itself */
		{"two_nodes", "0-3", "0000:04:00.0", "0000:04:00.1", TOPOLOGY_SAME_SWITCH},
		{"two_nodes", "0-3", "0000:10:00.0", "0000:10:00.0", TOPOLOGY_SAME_SWITCH},
		/* from the cores of the process */
		{"two_nodes", "0-1", NULL, "0000:04:00.0", TOPOLOGY_SAME_NUMA},
		{"two_nodes", "0-1", "", "0000:10:00.0", TOPOLOGY_SAME_NUMA},
		{"two_nodes", "1", NULL, "0000:84:00.0", TOPOLOGY_OTHER_NUMA},
		{"two_nodes", "3", NULL, "0000:84:00.0", TOPOLOGY_SAME_NUMA},
		{"two_nodes", "3", NULL, "0000:41:00.0", TOPOLOGY_OTHER_NUMA},
		{"two_nodes", "0-3", NULL, "0000:04:00.0", TOPOLOGY_SAME_NUMA},
		{"two_nodes", "0-3", NULL, "0000:84:00.0", TOPOLOGY_SAME_NUMA},
		/* on the host bridge itself: of two nodes that still tells which */
		{"two_nodes", "1", NULL, "0000:40:02.0", TOPOLOGY_SAME_NUMA},
		{"two_nodes", "2", NULL, "0000:40:02.0", TOPOLOGY_OTHER_NUMA},
		/* what is not there */
		{"two_nodes", "0-3", NULL, "0000:77:00.0", TOPOLOGY_UNKNOWN},
		{"two_nodes", "0-3", NULL, "", TOPOLOGY_UNKNOWN},
		{"two_nodes", "0-3", NULL, NULL, TOPOLOGY_UNKNOWN},
		{"two_nodes", "0-3", "0000:77:00.0", "0000:04:00.0", TOPOLOGY_UNKNOWN},
		{"two_nodes", "0-3", NULL, "no address", TOPOLOGY_UNKNOWN},
		{"no_pci", "0-3", NULL, "0000:04:00.0", TOPOLOGY_UNKNOWN},
		/* virtual machines */
		{"flat_vm", "0-3", NULL, "0000:00:05.0", TOPOLOGY_UNKNOWN},
		{"flat_vm", "0", "0000:00:04.0", "0000:00:05.0", TOPOLOGY_UNKNOWN},
		{"flat_vm", "0", "0000:00:04.0", "0000:00:06.0", TOPOLOGY_UNKNOWN},
		{"vm_root_ports", "0-3", NULL, "0000:02:00.0", TOPOLOGY_SAME_NUMA},
		{"vm_root_ports", "0-3", "0000:01:00.0", "0000:02:00.0", TOPOLOGY_SAME_ROOT},
		/* firmware that keeps silent */
		{"nodeless_bridge", "0", NULL, "0000:02:00.0", TOPOLOGY_UNKNOWN},
		{"nodeless_bridge", "0", "0000:01:00.0", "0000:02:00.0", TOPOLOGY_SAME_ROOT},
		{"nodeless_bridge", "0", "0000:01:00.0", "0000:21:00.0", TOPOLOGY_UNKNOWN},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct verbs_topology *topology;
		struct error error = {0};

		if (open_host(&topology, rows[i].host, rows[i].cores, &error))
			fail_msg("%s", error.text);
		enum verbs_topology_distance got =
			verbs_topology_distance(topology, rows[i].from, rows[i].to);

		verbs_topology_close(&topology);
		if (got != rows[i].distance)
			fail_msg("row %zu, %s from %s to %s: %s, not %s", i, rows[i].host,
				 rows[i].from ? rows[i].from : "the cores",
				 rows[i].to ? rows[i].to : "nothing",
				 verbs_topology_distance_name(got),
				 verbs_topology_distance_name(rows[i].distance));
	}
}

static void test_this_host__opens_and_knows_nothing_of_soft_devices(void **unused)
{
	struct verbs_topology *topology;
	struct error error = {0};

	(void)unused;
	assert_int_equal(verbs_topology_open(&topology, &error), 0);
	assert_int_equal(verbs_topology_distance(topology, NULL, ""), TOPOLOGY_UNKNOWN);
	verbs_topology_close(&topology);
	assert_null(topology);
	verbs_topology_close(&topology);
}

static void test_open__refuses_what_is_no_topology(void **unused)
{
	static const struct {
		const char *host, *cores, *message;
	} rows[] = {
		{"not_there", "0", "the topology of this host cannot be read: "},
		{"two_nodes", "many", "the topology of this host cannot be read: "},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct verbs_topology *topology;
		struct error error = {0};

		assert_int_equal(open_host(&topology, rows[i].host, rows[i].cores, &error),
				 -ERROR_UNSUPPORTED);
		assert_memory_equal(error.text, rows[i].message, strlen(rows[i].message));
		assert_null(strstr(error.text, "Success"));
		assert_null(topology);
	}
}

static void test_open__says_when_memory_ends(void **unused)
{
	struct verbs_topology *topology;
	struct error error = {0};

	(void)unused;
	memory_fail_at(1);
	assert_int_equal(verbs_topology_open(&topology, &error), -ERROR_MEMORY);
	memory_fail_at(0);
	assert_null(topology);
}

static void test_names__are_there_for_every_distance(void **unused)
{
	(void)unused;
	assert_string_equal(verbs_topology_distance_name(TOPOLOGY_SAME_SWITCH), "same PCI switch");
	assert_string_equal(verbs_topology_distance_name(TOPOLOGY_UNKNOWN), "unknown");
	assert_string_equal(verbs_topology_distance_name((enum verbs_topology_distance)17),
			    "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_distances__are_what_the_tree_says),
		cmocka_unit_test(test_this_host__opens_and_knows_nothing_of_soft_devices),
		cmocka_unit_test(test_open__refuses_what_is_no_topology),
		cmocka_unit_test(test_open__says_when_memory_ends),
		cmocka_unit_test(test_names__are_there_for_every_distance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
