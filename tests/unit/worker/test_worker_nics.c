/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker's declaration, and its metrics, say about the NICs that its transport uses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/file.h"
#include "transport/mock/mock.h"
#include "transport/provider.h"
#include "transport/verbs/facts.h"
#include "transport/verbs/topology.h"
#include "worker/api/weft.h"
#include "worker/api/worker.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_worker *opened(const char *transport)
{
	weft_options options = {.size = sizeof(options),
				.controller = "tcp://127.0.0.1:9",
				.job = "nics",
				.role = WEFT_TRAINER,
				.transport = transport};
	weft_tensor tensor = {sizeof(weft_tensor), "w", "F32", 1, {4}};
	weft_worker *worker;
	weft_error error = WEFT_ERROR_INIT;

	if (weft_open(&worker, &options, &error))
		fail_msg("%s", error.text);
	assert_int_equal(weft_declare_tensor(worker, &tensor, 0, 0, 4, NULL, NULL), 0);
	return worker;
}

static void test_declaration__has_the_nics_of_the_domain_in_its_order(void **unused)
{
	static const struct transport_nic nics[] = {
		{"mlx5_3:1", 3, UINT64_C(50000000000), DISTANCE_NODE},
		{"mlx5_0:1", 0, 0, DISTANCE_PIX},
	};
	const struct mock_options options = {.nics = nics, .nic_count = 2};
	struct message_declare declare;
	struct error error = {0};
	weft_worker *worker;

	(void)unused;
	mock_options_default(&options);
	worker = opened("mock");
	for (int join = 0; join < 2; join++) { /* a join that failed is tried again */
		if (declare_finish(worker, &declare, &error))
			fail_msg("%s", error.text);
		assert_int_equal(declare.nic_count, 2);
		for (int i = 0; i < 2; i++) {
			assert_string_equal(declare.nics[i].name, nics[i].name);
			assert_int_equal(declare.nics[i].rail, nics[i].rail);
			assert_int_equal(declare.nics[i].bytes_per_second,
					 nics[i].bytes_per_second);
			assert_int_equal(declare.nics[i].distance, nics[i].distance);
		}
	}
	weft_close(&worker);
	mock_options_default(NULL);
}

static void test_declaration__over_shared_memory_has_none(void **unused)
{
	struct message_declare declare;
	weft_worker *worker = opened("shm");

	(void)unused;
	assert_int_equal(declare_finish(worker, &declare, NULL), 0);
	assert_int_equal(declare.nic_count, 0);
	weft_close(&worker);
}

static void add(struct verbs_facts *facts, const char *name, bool soft, bool active,
		uint64_t speed_mbps)
{
	struct verbs_device *device = array_push(&facts->devices);
	struct verbs_port *port;

	assert_non_null(device);
	strcpy(device->name, name);
	device->soft = soft;
	port = array_push(&device->ports);
	assert_non_null(port);
	*port = (struct verbs_port){.number = 1,
				    .active = active,
				    .link = VERBS_LINK_ETHERNET,
				    .speed_mbps = speed_mbps};
}

static void test_verbs__says_port_speed_distance_and_the_place_among_its_like(void **unused)
{
	static const struct {
		uint32_t device, distance;
		const char *name;
		uint32_t rail;
		uint64_t rate;
		enum nic_distance word;
	} cases[] = {
		{0, TOPOLOGY_SAME_SWITCH, "mlx5_0:1", 0, UINT64_C(50000000000), DISTANCE_PIX},
		{2, TOPOLOGY_SAME_ROOT, "mlx5_2:1", 1, UINT64_C(50000000000), DISTANCE_PHB},
		{4, TOPOLOGY_SAME_NUMA, "mlx5_4:1", 2, UINT64_C(50000000000), DISTANCE_NODE},
		{1, TOPOLOGY_OTHER_NUMA, "mlx5_1:1", 0, UINT64_C(3125000000), DISTANCE_SYS},
		{5, TOPOLOGY_UNKNOWN, "rxe0:1", 0, 0, DISTANCE_SYS},
		{6, TOPOLOGY_UNKNOWN, "rxe1:1", 1, 0, DISTANCE_SYS},
	};
	struct verbs_facts facts = {0};

	(void)unused;
	add(&facts, "mlx5_0", false, true, 400000);
	add(&facts, "mlx5_1", false, true, 25000); /* management */
	add(&facts, "mlx5_2", false, true, 400000);
	add(&facts, "mlx5_3", false, false, 400000); /* down */
	add(&facts, "mlx5_4", false, true, 400000);
	add(&facts, "rxe0", true, true, 2500);
	add(&facts, "rxe1", true, true, 10000);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct verbs_nic_choice choice = {.device = cases[i].device,
						  .distance = cases[i].distance};
		struct transport_nic nic;

		verbs_nic_describe(&facts, &choice, &nic);
		assert_string_equal(nic.name, cases[i].name);
		assert_int_equal(nic.rail, cases[i].rail);
		assert_int_equal(nic.bytes_per_second, cases[i].rate);
		assert_int_equal(nic.distance, cases[i].word);
	}
	verbs_facts_free(&facts);
}

static const struct transport_nic pair_of_nics[] = {{"mlx5_0:1", 0, 0, DISTANCE_PIX},
						    {"mlx5_1:1", 1, 0, DISTANCE_PIX}};

static void test_traffic__of_a_nic_is_never_busy_for_less_than_was_said(void **unused)
{
	const struct mock_options options = {.nics = pair_of_nics, .nic_count = 2};
	struct transport_traffic first, now;
	struct provider_traffic *of;
	weft_worker *worker;

	(void)unused;
	mock_options_default(&options);
	worker = opened("mock");
	of = &worker->domain->traffic[0];
	of->busy_ns = 1000;
	of->busy_since_ns = 1; /* as long as this host is up */
	of->waiting_bytes = 7;
	transport_domain_traffic(worker->domain, 0, &first);
	assert_int_equal(first.waiting_bytes, 7);
	assert_true(first.busy_ns > 1000000);
	of->waiting_bytes = 0; /* complete, and its time is not added up yet */
	transport_domain_traffic(worker->domain, 0, &now);
	assert_int_equal(now.waiting_bytes, 0);
	assert_true(now.busy_ns == first.busy_ns);
	of->busy_ns = 2 * first.busy_ns;
	transport_domain_traffic(worker->domain, 0, &now);
	assert_true(now.busy_ns == 2 * first.busy_ns);
	weft_close(&worker);
	mock_options_default(NULL);
}

static void test_metrics__show_nics_that_carried_something(void **unused)
{
	const struct mock_options options = {.nics = pair_of_nics, .nic_count = 2};
	weft_options given = {.size = sizeof(given),
			      .controller = "tcp://127.0.0.1:9",
			      .job = "nics",
			      .role = WEFT_TRAINER,
			      .transport = "mock"};
	char folder[] = "/tmp/weft-nics-XXXXXX", path[64], page[16384];
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker;

	(void)unused;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/t0.prom", folder);
	given.metrics_file = path;
	mock_options_default(&options);
	if (weft_open(&worker, &given, &error))
		fail_msg("%s", error.text);
	worker->domain->traffic[1].bytes = 4096;
	worker->domain->traffic[1].busy_ns = 1500000000;
	weft_close(&worker);
	mock_options_default(NULL);
	assert_true(file_read_small(path, page, sizeof(page)) > 0);
	assert_non_null(strstr(page, ",nic=\"mlx5_1:1\"} 4096\n"));
	assert_non_null(strstr(page, ",nic=\"mlx5_1:1\"} 1.5\n"));
	assert_null(strstr(page, "mlx5_0"));
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_declaration__has_the_nics_of_the_domain_in_its_order),
		cmocka_unit_test(test_declaration__over_shared_memory_has_none),
		cmocka_unit_test(test_verbs__says_port_speed_distance_and_the_place_among_its_like),
		cmocka_unit_test(test_traffic__of_a_nic_is_never_busy_for_less_than_was_said),
		cmocka_unit_test(test_metrics__show_nics_that_carried_something),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
