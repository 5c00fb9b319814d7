/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/transport/verbs/verbs_host.h"

#include <net/if.h>

static void test_card__tells_everything(void **unused)
{
	struct verbs_facts facts;

	(void)unused;
	plug_card();
	read_or_fail(&facts);
	assert_int_equal(facts.devices.count, 1);
	const struct verbs_device *device = &facts.devices.items[0];

	assert_string_equal(device->name, "mlx5_0");
	assert_string_equal(device->driver, "mlx5_core");
	assert_string_equal(device->firmware, "28.39.1002");
	assert_string_equal(device->pci, "0000:3b:00.0");
	assert_int_equal(device->numa, 1);
	assert_int_equal(device->node_guid, UINT64_C(0xa088c20300123456));
	assert_false(device->soft);
	assert_int_equal(device->open_errno, 0);
	assert_int_equal(device->max_mr_bytes, UINT64_MAX);
	assert_int_equal(device->max_qp, 131072);
	assert_int_equal(device->max_srq_wr, 0);
	assert_int_equal(device->ports.count, 1);
	const struct verbs_port *port = &device->ports.items[0];

	assert_int_equal(port->number, 1);
	assert_true(port->active);
	assert_string_equal(port->state, "ACTIVE");
	assert_int_equal(port->link, VERBS_LINK_ETHERNET);
	assert_int_equal(port->mtu, 4096);
	assert_int_equal(port->speed_mbps, 400000);
	assert_int_equal(port->max_message_bytes, 1u << 30);
	assert_int_equal(port->lid, 17);
	assert_int_equal(port->traffic_class, 106);
	assert_int_equal(port->gid, -1);
	verbs_facts_free(&facts);
	assert_int_equal(facts.devices.count, 0);
}

static void test_ports__are_told_by_name_size_and_speed(void **unused)
{
	static const struct {
		enum ibv_port_state state;
		uint8_t link, width, speed, mtu;
		const char *name;
		enum verbs_link told;
		uint64_t mbps;
		uint32_t bytes;
	} rows[] = {
		{IBV_PORT_DOWN, IBV_LINK_LAYER_ETHERNET, 1, 32, IBV_MTU_1024, "DOWN",
		 VERBS_LINK_ETHERNET, 25000, 1024},
		{IBV_PORT_INIT, IBV_LINK_LAYER_INFINIBAND, 2, 64, IBV_MTU_2048, "INIT",
		 VERBS_LINK_INFINIBAND, 200000, 2048},
		{IBV_PORT_ARMED, IBV_LINK_LAYER_UNSPECIFIED, 8, 4, IBV_MTU_256, "ARMED",
		 VERBS_LINK_INFINIBAND, 120000, 256},
		/* a speed of next year: the kernel's own word for it */
		{(enum ibv_port_state)9, 77, 2, 0, 9, "unknown", VERBS_LINK_UNKNOWN, 800000, 0},
	};

	(void)unused;
	plug_card();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct verbs_facts facts;

		fake.port.state = rows[i].state;
		fake.port.link_layer = rows[i].link;
		fake.port.active_width = rows[i].width;
		fake.port.active_speed = rows[i].speed;
		fake.port.active_mtu = (enum ibv_mtu)rows[i].mtu;
		read_or_fail(&facts);
		const struct verbs_port *port = &facts.devices.items[0].ports.items[0];

		assert_false(port->active);
		assert_string_equal(port->state, rows[i].name);
		assert_int_equal(port->link, rows[i].told);
		assert_int_equal(port->speed_mbps, rows[i].mbps);
		assert_int_equal(port->mtu, rows[i].bytes);
		verbs_facts_free(&facts);
	}
}

static void test_traffic_class__is_read_as_drivers_write_it(void **unused)
{
	static const struct {
		const char *text;
		int32_t value;
	} rows[] = {{"Global tclass=106", 106}, {"96", 96},  {"", -1},
		    {"Global tclass=", -1},	{"256", -1}, {"no", -1}};

	(void)unused;
	plug_card();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct verbs_facts facts;

		put(CARD "/infiniband/mlx5_0/tc/1/traffic_class", rows[i].text);
		read_or_fail(&facts);
		assert_int_equal(facts.devices.items[0].ports.items[0].traffic_class,
				 rows[i].value);
		verbs_facts_free(&facts);
	}
}

static void test_gids__have_an_interface_only_when_it_is_ours(void **unused)
{
	uint32_t lo = if_nametoindex("lo");
	struct verbs_facts facts;

	(void)unused;
	assert_true(lo > 0);
	plug_card();
	put(CARD "/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "lo");
	put(CARD "/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/1", "net1");
	add_gid("::ffff:127.0.0.1", IBV_GID_TYPE_ROCE_V2, lo);
	add_gid("::ffff:127.0.0.1", IBV_GID_TYPE_ROCE_V2, lo); /* that number elsewhere: net1 */
	add_gid("::ffff:127.0.0.1", IBV_GID_TYPE_ROCE_V1, 999999);
	add_gid("::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2, lo); /* an address lo does not have */
	add_gid("fe80::1", IBV_GID_TYPE_IB, 0);
	fake.gids[4].port_num = 2; /* a port that is not there */
	read_or_fail(&facts);
	const struct verbs_port *port = &facts.devices.items[0].ports.items[0];

	assert_int_equal(port->gids.count, 4);
	assert_string_equal(port->gids.items[0].netdev, "lo");
	assert_int_equal(port->gids.items[0].prefix_bits, 8);
	assert_int_equal(port->gids.items[0].type, VERBS_GID_ROCE_V2);
	assert_string_equal(port->gids.items[1].netdev, "");
	assert_int_equal(port->gids.items[1].prefix_bits, 0);
	assert_string_equal(port->gids.items[2].netdev, "");
	assert_int_equal(port->gids.items[2].type, VERBS_GID_ROCE_V1);
	assert_string_equal(port->gids.items[3].netdev, "lo");
	assert_int_equal(port->gids.items[3].prefix_bits, 0);
	assert_string_equal(port->netdev, "lo");
	assert_int_equal(port->netdev_mtu, 65536);
	verbs_facts_free(&facts);
}

static void test_gids__come_from_sysfs_where_there_is_no_call(void **unused)
{
	static const char ports[] = CARD "/infiniband/mlx5_0/ports/1";
	struct verbs_facts facts;
	struct {
		const char *file, *text;
	} files[] = {
		{"gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001"},
		{"gid_attrs/types/0", "IB/RoCE v1"},
		{"gid_attrs/ndevs/0", "lo"},
		{"gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0001"},
		{"gid_attrs/types/1", "RoCE v2"},
		{"gid_attrs/ndevs/1", "lo"},
		{"gids/2", "0000:0000:0000:0000:0000:0000:0000:0000"},
		{"gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001"}, /* its attributes: EINVAL */
		{"gids/4", "nonsense"},
	};

	(void)unused;
	plug_card();
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char path[512];

		snprintf(path, sizeof(path), "%s/%s", ports, files[i].file);
		put(path, files[i].text);
	}
	fake.gid_table_error = -EOPNOTSUPP;
	read_or_fail(&facts);
	struct verbs_port *port = &facts.devices.items[0].ports.items[0];

	assert_int_equal(port->gids.count, 3);
	assert_int_equal(port->gids.items[0].type, VERBS_GID_ROCE_V1);
	assert_int_equal(port->gids.items[1].type, VERBS_GID_ROCE_V2);
	assert_string_equal(port->gids.items[1].netdev, "lo");
	assert_int_equal(port->gids.items[1].prefix_bits, 8);
	assert_int_equal(port->gids.items[2].index, 3);
	assert_int_equal(verbs_gids_judge(&facts.devices.items[0], port, -1, "", NULL), 0);
	assert_int_equal(port->gid, 1);
	assert_string_equal(port->gids.items[2].rejected,
			    "belongs to a network interface that is not in this network namespace");
	verbs_facts_free(&facts);
}

static void test_soft_devices__are_known_by_vendor_and_by_place(void **unused)
{
	struct verbs_facts facts;

	(void)unused;
	plug_card(); /* rxe over a real interface sits at that interface's PCI function */
	fake.attr.vendor_id = 0xffffff;
	read_or_fail(&facts);
	assert_true(facts.devices.items[0].soft);
	assert_string_equal(facts.devices.items[0].driver, "rdma_rxe");
	assert_string_equal(facts.devices.items[0].pci, "");
	assert_int_equal(facts.devices.items[0].numa, -1);
	verbs_facts_free(&facts);
	fake.attr.vendor_id = 0x626d74;
	read_or_fail(&facts);
	assert_true(facts.devices.items[0].soft);
	assert_string_equal(facts.devices.items[0].driver, "siw");
	verbs_facts_free(&facts);
	fake.attr.vendor_id = 0;
	snprintf(fake.devices[0].name, sizeof(fake.devices[0].name), "rxe7");
	put("/sys/devices/virtual/infiniband/rxe7/parent", "veth0");
	link_to("../../devices/virtual/infiniband/rxe7", "/sys/class/infiniband/rxe7");
	read_or_fail(&facts);
	assert_true(facts.devices.items[0].soft);
	assert_string_equal(facts.devices.items[0].driver, "rdma_rxe");
	verbs_facts_free(&facts);
}

static void test_dmabuf__is_there_when_only_the_descriptor_was_bad(void **unused)
{
	static const struct {
		int errnum;
		bool works, no_pd, there;
	} rows[] = {{EBADF, false, false, true},
		    {EOPNOTSUPP, false, false, false},
		    {EPROTONOSUPPORT, false, false, false},
		    {0, false, false, false},
		    {0, true, false, true},
		    {EBADF, false, true, false}};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct verbs_facts facts;

		fake.dmabuf_errno = rows[i].errnum;
		fake.dmabuf_works = rows[i].works;
		fake.no_pd = rows[i].no_pd;
		read_or_fail(&facts);
		assert_int_equal(facts.devices.items[0].dmabuf, rows[i].there);
		verbs_facts_free(&facts);
	}
}

static void test_a_device_that_cannot_be_opened__stays_in_the_list(void **unused)
{
	struct verbs_facts facts;

	(void)unused;
	fake.count = 2;
	fake.open_errno[0] = EMFILE;
	read_or_fail(&facts);
	assert_int_equal(facts.devices.count, 2);
	assert_int_equal(facts.devices.items[0].open_errno, EMFILE);
	assert_int_equal(facts.devices.items[0].ports.count, 0);
	assert_int_equal(facts.devices.items[1].open_errno, 0);
	assert_int_equal(facts.devices.items[1].ports.count, 1);
	verbs_facts_free(&facts);
	fake.open_errno[0] = -1; /* no errno set */
	read_or_fail(&facts);
	assert_int_equal(facts.devices.items[0].open_errno, ENODEV);
	verbs_facts_free(&facts);
}

static void test_a_device_that_does_not_answer__is_not_open(void **unused)
{
	struct verbs_facts facts;
	struct error error = {0};

	(void)unused;
	fake.query_device_errno = EIO;
	assert_int_equal(verbs_facts_read_at(&calls, root, &facts, &error), -ERROR_UNSUPPORTED);
	assert_string_equal(error.text, "none of the 1 RDMA devices can be opened; the first is "
					"mlx5_0: Input/output error");
	assert_int_equal(facts.devices.items[0].open_errno, EIO);
	verbs_facts_free(&facts);
}

static void test_a_port_that_does_not_answer__is_unreadable(void **unused)
{
	struct verbs_facts facts;

	(void)unused;
	fake.query_port_errno = EIO;
	read_or_fail(&facts);
	assert_string_equal(facts.devices.items[0].ports.items[0].state, "unreadable");
	assert_false(facts.devices.items[0].ports.items[0].active);
	assert_int_equal(facts.devices.items[0].ports.items[0].gids.count, 0);
	verbs_facts_free(&facts);
}

static void test_memory__every_failing_allocation_is_an_error_and_leaks_nothing(void **unused)
{
	int failures = 0;

	(void)unused;
	plug_card();
	fake.count = 2;
	add_gid("::ffff:127.0.0.1", IBV_GID_TYPE_ROCE_V2, if_nametoindex("lo"));
	for (uint64_t k = 1;; k++) {
		struct verbs_facts facts;
		struct error error = {0};

		memory_fail_at(k);
		int rc = verbs_facts_read_at(&calls, root, &facts, &error);

		memory_fail_at(0);
		verbs_facts_free(&facts);
		assert_int_equal(fake.opened + fake.pds + fake.lists, 0);
		if (rc == 0)
			break;
		assert_int_equal(rc, -ERROR_MEMORY);
		failures++;
	}
	assert_true(failures >= 5);
}

static void test_this_host__is_read_or_says_what_is_missing(void **unused)
{
	struct verbs_facts facts;
	struct error error = {0};
	int rc = verbs_facts_read(verbs_calls_system(), &facts, &error);

	(void)unused;
	print_message("  %zu RDMA devices; %s\n", facts.devices.count, error.text);
	if (rc) {
		assert_int_equal(rc, -ERROR_UNSUPPORTED);
		assert_true(error.text[0] != '\0');
	}
	for (size_t d = 0; d < facts.devices.count; d++) {
		struct verbs_device *device = &facts.devices.items[d];

		assert_true(device->name[0] != '\0');
		/* the test machine's: rxe0 10.77.0.1, rxe1 10.77.0.2, index 1 (docs/vm.md) */
		if (strcmp(device->driver, "rdma_rxe") != 0 || device->open_errno)
			continue;
		assert_true(device->soft);
		assert_false(device->dmabuf);
		assert_int_equal(verbs_gids_judge(device, &device->ports.items[0], -1, "", NULL),
				 0);
	}
	verbs_facts_free(&facts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_root(test_card__tells_everything),
		with_root(test_ports__are_told_by_name_size_and_speed),
		with_root(test_traffic_class__is_read_as_drivers_write_it),
		with_root(test_gids__have_an_interface_only_when_it_is_ours),
		with_root(test_gids__come_from_sysfs_where_there_is_no_call),
		with_root(test_soft_devices__are_known_by_vendor_and_by_place),
		with_root(test_dmabuf__is_there_when_only_the_descriptor_was_bad),
		with_root(test_a_device_that_cannot_be_opened__stays_in_the_list),
		with_root(test_a_device_that_does_not_answer__is_not_open),
		with_root(test_a_port_that_does_not_answer__is_unreadable),
		with_root(test_memory__every_failing_allocation_is_an_error_and_leaks_nothing),
		cmocka_unit_test(test_this_host__is_read_or_says_what_is_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
