/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading facts: a libibverbs made of tables and a folder that plays sys/ and dev/. The one
 * network interface that every machine has is lo, so the GIDs here lie on lo.
 */
#include "common/file.h"
#include "common/array.h"
#include "transport/verbs/calls.h"
#include "transport/verbs/facts.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <ftw.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- libibverbs ---- */

static struct fake {
	struct ibv_device devices[2];
	struct ibv_context contexts[2];
	struct ibv_device *list[3];
	int count, list_errno; /* list_errno: no list at all */
	int open_errno[2], query_device_errno, query_port_errno, dmabuf_errno;
	bool dmabuf_works, no_pd;
	ssize_t gid_table_error;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_gid_entry gids[8];
	size_t gid_count;
	int lists, opened, pds, mrs; /* alive */
} fake;

static struct ibv_device **get_device_list(int *count)
{
	if (fake.list_errno) {
		errno = fake.list_errno;
		return NULL;
	}
	*count = fake.count;
	for (int i = 0; i < fake.count; i++)
		fake.list[i] = &fake.devices[i];
	fake.lists++;
	return fake.list;
}

static void free_device_list(struct ibv_device **list)
{
	assert_ptr_equal(list, fake.list);
	fake.lists--;
}

static const char *get_device_name(struct ibv_device *device)
{
	return device->name;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
	long which = device - fake.devices;

	if (fake.open_errno[which]) {
		errno = fake.open_errno[which] < 0 ? 0 : fake.open_errno[which];
		return NULL;
	}
	fake.opened++;
	return &fake.contexts[which];
}

static int close_device(struct ibv_context *context)
{
	(void)context;
	fake.opened--;
	return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	*attr = fake.attr;
	return fake.query_device_errno;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	(void)context;
	assert_true(port >= 1 && port <= fake.attr.phys_port_cnt);
	*attr = fake.port;
	return fake.query_port_errno;
}

static ssize_t query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			       size_t max)
{
	(void)context;
	if (fake.gid_table_error)
		return fake.gid_table_error;
	assert_true(fake.gid_count <= max);
	memcpy(entries, fake.gids, fake.gid_count * sizeof(*entries));
	return (ssize_t)fake.gid_count;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	static struct ibv_pd pd;

	(void)context;
	if (fake.no_pd) {
		errno = ENOMEM;
		return NULL;
	}
	fake.pds++;
	return &pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	assert_int_equal(fake.mrs, 0);
	fake.pds--;
	return 0;
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
				    int fd, int access)
{
	static struct ibv_mr mr;

	(void)pd;
	(void)offset;
	(void)bytes;
	(void)iova;
	(void)access;
	assert_int_equal(fd, -1);
	if (fake.dmabuf_works) {
		fake.mrs++;
		return &mr;
	}
	errno = fake.dmabuf_errno;
	return NULL;
}

static int dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	fake.mrs--;
	return 0;
}

static const struct verbs_calls calls = {
	.get_device_list = get_device_list,
	.free_device_list = free_device_list,
	.get_device_name = get_device_name,
	.open_device = open_device,
	.close_device = close_device,
	.query_device = query_device,
	.query_port = query_port,
	.query_gid_table = query_gid_table,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.reg_dmabuf_mr = reg_dmabuf_mr,
	.dereg_mr = dereg_mr,
};

static void add_gid(const char *text, enum ibv_gid_type type, uint32_t ifindex)
{
	struct ibv_gid_entry *entry = &fake.gids[fake.gid_count];

	assert_int_equal(inet_pton(AF_INET6, text, entry->gid.raw), 1);
	entry->gid_index = (uint32_t)fake.gid_count++;
	entry->port_num = 1;
	entry->gid_type = type;
	entry->ndev_ifindex = ifindex;
}

/* ---- sys/ and dev/ ---- */

static char root[256];

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
	(void)about;
	(void)kind;
	(void)walk;
	return remove(path);
}

__attribute__((format(printf, 1, 2))) static char *below(const char *format, ...)
{
	static char path[1024];
	int used = snprintf(path, sizeof(path), "%s", root);
	va_list args;

	va_start(args, format);
	vsnprintf(path + used, sizeof(path) - (size_t)used, format, args);
	va_end(args);
	return path;
}

static void folder(const char *path)
{
	assert_int_equal(file_make_directory(below("%s", path), NULL), 0);
}

static void put(const char *path, const char *text)
{
	char parent[512];

	snprintf(parent, sizeof(parent), "%s", path);
	*strrchr(parent, '/') = '\0';
	folder(parent);
	FILE *stream = fopen(below("%s", path), "w");

	assert_non_null(stream);
	fprintf(stream, "%s\n", text);
	assert_int_equal(fclose(stream), 0);
}

static void link_to(const char *target, const char *path)
{
	assert_int_equal(symlink(target, below("%s", path)), 0);
}

#define CARD "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"

/* mlx5_0, a ConnectX behind a root port, as Linux shows it. */
static void plug_card(void)
{
	put(CARD "/numa_node", "1");
	put(CARD "/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106");
	put(CARD "/infiniband/mlx5_0/ports/1/rate", "800 Gb/sec (4X XDR)");
	folder("/sys/bus/pci/drivers/mlx5_core");
	link_to("../../../../bus/pci/drivers/mlx5_core", CARD "/driver");
	link_to("../../../0000:3b:00.0", CARD "/infiniband/mlx5_0/device");
	folder("/sys/class/infiniband");
	link_to("../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0",
		"/sys/class/infiniband/mlx5_0");
	put("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
	put("/sys/class/net/lo/mtu", "65536");
}

static int set_up(void **state)
{
	const char *temporary = getenv("TMPDIR");

	(void)state;
	snprintf(root, sizeof(root), "%s/weft-facts-XXXXXX", temporary ? temporary : "/tmp");
	assert_non_null(mkdtemp(root));
	memset(&fake, 0, sizeof(fake));
	snprintf(fake.devices[0].name, sizeof(fake.devices[0].name), "mlx5_0");
	snprintf(fake.devices[1].name, sizeof(fake.devices[1].name), "mlx5_1");
	fake.count = 1;
	fake.dmabuf_errno = EBADF;
	snprintf(fake.attr.fw_ver, sizeof(fake.attr.fw_ver), "28.39.1002");
	fake.attr.node_guid = htobe64(UINT64_C(0xa088c20300123456));
	fake.attr.vendor_id = 0x2c9;
	fake.attr.max_mr_size = UINT64_MAX;
	fake.attr.max_qp = 131072;
	fake.attr.max_qp_wr = 32768;
	fake.attr.max_cqe = 4194303;
	fake.attr.max_srq_wr = -1;
	fake.attr.phys_port_cnt = 1;
	fake.port = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
					   .active_mtu = IBV_MTU_4096,
					   .gid_tbl_len = 8,
					   .max_msg_sz = 1u << 30,
					   .lid = 17,
					   .sm_lid = 3,
					   .lmc = 1,
					   .active_width = 2,
					   .active_speed = 128,
					   .link_layer = IBV_LINK_LAYER_ETHERNET};
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(fake.lists, 0);
	assert_int_equal(fake.opened, 0);
	assert_int_equal(fake.pds, 0);
	assert_int_equal(fake.mrs, 0);
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void read_or_fail(struct verbs_facts *facts)
{
	struct error error = {0};

	if (verbs_facts_read_at(&calls, root, facts, &error))
		fail_msg("%s", error.text);
}

/* ---- tests ---- */

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

static void expect_absent(const char *sentence)
{
	struct verbs_facts facts;
	struct error error = {0};

	assert_int_equal(verbs_facts_read_at(&calls, root, &facts, &error), -ERROR_UNSUPPORTED);
	assert_string_equal(error.text, sentence);
	verbs_facts_free(&facts);
}

static void test_absent__each_missing_piece_has_its_own_sentence(void **unused)
{
	char sentence[512];

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
	snprintf(sentence, sizeof(sentence),
		 "uid %u (gid %u) may not open /dev/infiniband/uverbs0, which is crw--w---- ",
		 geteuid(), getegid());
	assert_memory_equal(error.text, sentence, strlen(sentence));
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
	int rc = verbs_facts_read(&verbs_calls_system, &facts, &error);

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

#define with_root(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

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
		with_root(test_absent__each_missing_piece_has_its_own_sentence),
		with_root(test_absent__libibverbs_says_no_such_file_for_a_node_that_is_forbidden),
		with_root(test_memory__every_failing_allocation_is_an_error_and_leaks_nothing),
		cmocka_unit_test(test_this_host__is_read_or_says_what_is_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
