/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/transport/verbs/verbs_host.h"

static void expect_absent(const char *message)
{
	struct verbs_facts facts;
	struct error error = {0};

	assert_int_equal(verbs_facts_read_at(&calls, root, &facts, &error), -ERROR_UNSUPPORTED);
	assert_string_equal(error.text, message);
	verbs_facts_free(&facts);
}

static void test_absent__each_missing_piece_has_its_own_message(void **unused)
{
	char message[512];

	(void)unused;
	fake.count = 0;
	fake.list_errno = ENOSYS;
	expect_absent("this kernel has no RDMA support: there is no /sys/class/infiniband; load "
		      "the NIC's driver (modprobe mlx5_ib, irdma, bnxt_re, efa, ...) or, to try "
		      "without hardware, rdma_rxe");
	folder("/sys/class/infiniband");
	fake.list_errno = 0;
	expect_absent(
		"there is no RDMA device: /sys/class/infiniband is empty; load the NIC's "
		"driver (modprobe mlx5_ib, irdma, bnxt_re, efa, ...), or hand the NIC to this "
		"machine, or add a soft one: rdma link add rxe0 type rxe netdev NAME");
	plug_card();
	expect_absent("the kernel has the RDMA device mlx5_0, but there is no "
		      "/dev/infiniband/uverbs0; in a container, start it with --device "
		      "/dev/infiniband (or the RDMA device plugin); on a host, modprobe ib_uverbs");
	put("/dev/infiniband/uverbs0", "");
	expect_absent("the kernel has mlx5_0, but libibverbs has no driver library for it: install "
		      "ibverbs-providers (Debian, Ubuntu) or libibverbs with rdma-core (Red Hat), "
		      "in the container too, of the same version as libibverbs");
	fake.list_errno = ENOMEM;
	expect_absent("libibverbs cannot list RDMA devices, though the kernel has mlx5_0: Cannot "
		      "allocate memory");
	fake.list_errno = 0;
	fake.count = 1;
	fake.open_errno[0] = EPERM;
	struct verbs_facts facts;
	struct error error = {0};

	assert_int_equal(chmod(below("/dev/infiniband/uverbs0"), 0620), 0);
	assert_int_equal(verbs_facts_read_at(&calls, root, &facts, &error), -ERROR_UNSUPPORTED);
	verbs_facts_free(&facts);
	assert_non_null(strstr(error.text, "the device rules of this container forbid "
					   "/dev/infiniband/uverbs0 (crw--w---- "));
	fake.open_errno[0] = EACCES;
	assert_int_equal(verbs_facts_read_at(&calls, root, &facts, &error), -ERROR_UNSUPPORTED);
	verbs_facts_free(&facts);
	snprintf(message, sizeof(message),
		 "uid %u (gid %u) may not open /dev/infiniband/uverbs0, which is crw--w---- ",
		 geteuid(), getegid());
	assert_memory_equal(error.text, message, strlen(message));
}

static void expect_without_library(const char *message)
{
	const struct verbs_calls none = {.missing = "libibverbs cannot be opened: WHY"};
	struct verbs_facts facts;
	struct error error = {0};

	assert_int_equal(verbs_facts_read_at(&none, root, &facts, &error), -ERROR_UNSUPPORTED);
	assert_string_equal(error.text, message);
	verbs_facts_free(&facts);
}

static void test_absent__a_library_that_is_missing_too_is_told_behind_the_kernel(void **unused)
{
	(void)unused;
	expect_without_library(
		"this kernel has no RDMA support: there is no /sys/class/infiniband; load "
		"the NIC's driver (modprobe mlx5_ib, irdma, bnxt_re, efa, ...) or, to try "
		"without hardware, rdma_rxe; and libibverbs cannot be opened: "
		"WHY: " VERBS_INSTALL);
	plug_card();
	put("/dev/infiniband/uverbs0", "");
	expect_without_library("the kernel has mlx5_0, but libibverbs cannot be opened: "
			       "WHY; " VERBS_INSTALL);
}

static void test_absent__libibverbs_says_no_such_file_for_a_node_that_is_forbidden(void **unused)
{
	struct verbs_facts facts;
	struct error error = {0};

	(void)unused;
	bool was_root = geteuid() == 0; /* root opens everything */

	plug_card();
	put("/dev/infiniband/uverbs0", "");
	assert_int_equal(chmod(below("/dev/infiniband/uverbs0"), 0), 0);
	assert_int_equal(chmod(root, 0755), 0);
	fake.open_errno[0] = ENOENT;
	if (was_root && seteuid(65534) != 0)
		skip();
	int rc = verbs_facts_read_at(&calls, root, &facts, &error);

	assert_true(!was_root || seteuid(0) == 0);
	assert_int_equal(rc, -ERROR_UNSUPPORTED);
	assert_int_equal(facts.devices.items[0].open_errno, EACCES);
	assert_non_null(strstr(error.text, "may not open /dev/infiniband/uverbs0"));
	verbs_facts_free(&facts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_root(test_absent__each_missing_piece_has_its_own_message),
		with_root(test_absent__a_library_that_is_missing_too_is_told_behind_the_kernel),
		with_root(test_absent__libibverbs_says_no_such_file_for_a_node_that_is_forbidden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
