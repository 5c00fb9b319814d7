/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking librdmacm. What needs RDMA runs in the test machine (tests/vm/test_vm_facts.py): its
 * rxe0 is 10.77.0.1, its rxe1 10.77.0.2, nobody is 10.77.0.99, and there is no default route.
 */
#include "base/array.h"
#include "base/clock.h"
#include "transport/verbs/resolver.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CM_NODE	   "/dev/infiniband/rdma_cm"
#define TIMEOUT_MS 20000 /* the test machine is emulated */

static bool here(void)
{
	return access(CM_NODE, F_OK) == 0 && access("/sys/class/infiniband/rxe1", F_OK) == 0;
}

static void refuse(const char *host, const char *source, uint32_t timeout_ms, enum error_code code,
		   const char *message)
{
	struct resolver_path path;
	struct error error = {0};
	int rc = resolver_resolve(host, source, timeout_ms, &path, &error);

	if (rc != -(int)code || strncmp(error.text, message, strlen(message)) != 0)
		fail_msg("%s: %d %s\nwanted: %d %s", host, rc, error.text, -(int)code, message);
	assert_null(strstr(error.text, "Success"));
	/* NULL is fine for those who want the code only */
	assert_int_equal(resolver_resolve(host, source, timeout_ms, &path, NULL), rc);
}

static void test_names__that_nobody_knows_are_told(void **unused)
{
	(void)unused;
	refuse("no such name", NULL, TIMEOUT_MS, ERROR_CONFIG,
	       "host 'no such name' is not known here: ");
	refuse("10.77.0.1", "elsewhere", TIMEOUT_MS, ERROR_CONFIG,
	       "source address 'elsewhere' is not known here: ");
	refuse("fe80::1", "10.77.0.1", TIMEOUT_MS, ERROR_CONFIG,
	       "host 'fe80::1' is not known here: ");
}

static void test_without_the_node__librdmacm_is_named_with_it(void **unused)
{
	(void)unused;
	if (access(CM_NODE, F_OK) == 0)
		skip();
	refuse("127.0.0.1", NULL, TIMEOUT_MS, ERROR_UNSUPPORTED,
	       "librdmacm cannot be used: there is no " CM_NODE
	       "; modprobe rdma_ucm, and in a container add --device " CM_NODE);
}

static void test_a_peer__is_reached_by_one_device_with_its_addresses(void **unused)
{
	static const struct {
		const char *host, *source, *device, *local, *remote;
	} rows[] = {
		{"10.77.0.2", NULL, "rxe1", "::ffff:10.77.0.2", "::ffff:10.77.0.2"},
		{"10.77.0.1", NULL, "rxe0", "::ffff:10.77.0.1", "::ffff:10.77.0.1"},
	};

	(void)unused;
	if (!here())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[VERBS_GID_TEXT_BYTES];
		struct resolver_path path;
		struct error error = {0};

		if (resolver_resolve(rows[i].host, rows[i].source, TIMEOUT_MS, &path, &error))
			fail_msg("%s", error.text);
		assert_string_equal(path.device, rows[i].device);
		assert_int_equal(path.port, 1);
		assert_string_equal(verbs_gid_text(path.local_gid, text), rows[i].local);
		assert_string_equal(verbs_gid_text(path.remote_gid, text), rows[i].remote);
		assert_string_equal(path.destination, rows[i].host);
		assert_int_equal(path.mtu, 1024);
		assert_int_equal(path.hop_limit, 64);
	}
}

/* The entry is taken away before each question, so that ARP has to ask. */
static void test_a_neighbour__not_known_yet_is_reached_by_the_first_question(void **unused)
{
	struct resolver_path path;
	struct error error = {0};

	(void)unused;
	if (!here() || geteuid() != 0)
		skip();
	for (int round = 0; round < 3; round++) {
		assert_int_equal(system("ip neigh flush dev veth0"), 0);
		if (resolver_resolve("10.77.0.2", "10.77.0.1", 3000, &path, &error))
			fail_msg("round %d: %s", round, error.text);
		assert_string_equal(path.device, "rxe0");
	}
}

static void test_trouble__has_its_own_message_each(void **unused)
{
	(void)unused;
	if (!here())
		skip();
	refuse("10.77.0.99", NULL, 4000, ERROR_TRANSPORT,
	       "nobody answers for 10.77.0.99 within 4000 ms on the network that it is routed "
	       "to: the host is down, or the address belongs to another subnet");
	refuse("192.0.2.1", NULL, TIMEOUT_MS, ERROR_TRANSPORT,
	       "no route from here to 192.0.2.1: check its address and this host's routes");
	refuse("2001:db8::1", NULL, TIMEOUT_MS, ERROR_TRANSPORT,
	       "no route from here to 2001:db8::1: ");
	refuse("localhost", NULL, TIMEOUT_MS, ERROR_UNSUPPORTED,
	       "no RDMA device on the route to localhost (");
	refuse("10.77.0.2", "10.77.0.200", TIMEOUT_MS, ERROR_CONFIG,
	       "the source address for 10.77.0.2 is not one of this host");
}

static void test_deadline__is_kept(void **unused)
{
	uint64_t start = clock_ms();

	(void)unused;
	if (!here())
		skip();
	refuse("10.77.0.99", NULL, 0, ERROR_TRANSPORT, "nobody answers for 10.77.0.99 within 0 ms");
	refuse("10.77.0.99", NULL, 100, ERROR_TRANSPORT,
	       "nobody answers for 10.77.0.99 within 100 ms");
	assert_true(clock_ms() - start < 10000);
}

static int open_files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static void test_descriptors__are_all_given_back(void **unused)
{
	static const char *const hosts[] = {"10.77.0.2", "192.0.2.1", "127.0.0.1", "10.77.0.99"};
	int before = 0;

	(void)unused;
	for (int round = 0; round < 4; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
			struct resolver_path path;

			resolver_resolve(hosts[i], NULL, 200, &path, NULL);
		}
		if (round == 0) /* librdmacm keeps the devices that it opened */
			before = open_files();
	}
	assert_int_equal(open_files(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names__that_nobody_knows_are_told),
		cmocka_unit_test(test_without_the_node__librdmacm_is_named_with_it),
		cmocka_unit_test(test_a_peer__is_reached_by_one_device_with_its_addresses),
		cmocka_unit_test(test_a_neighbour__not_known_yet_is_reached_by_the_first_question),
		cmocka_unit_test(test_trouble__has_its_own_message_each),
		cmocka_unit_test(test_deadline__is_kept),
		cmocka_unit_test(test_descriptors__are_all_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
