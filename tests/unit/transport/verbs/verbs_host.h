/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_host.h -- a host for tests that read facts: a libibverbs made of tables and a folder that
 * plays sys/ and dev/. The one network interface that every machine has is lo, so GIDs lie on lo.
 */
#ifndef TESTS_UNIT_TRANSPORT_VERBS_VERBS_HOST_H
#define TESTS_UNIT_TRANSPORT_VERBS_VERBS_HOST_H

#include "base/array.h"
#include "base/file.h"
#include "transport/verbs/calls.h"
#include "transport/verbs/facts.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <ftw.h>
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

static inline struct ibv_device **get_device_list(int *count)
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

static inline void free_device_list(struct ibv_device **list)
{
	assert_ptr_equal(list, fake.list);
	fake.lists--;
}

static inline const char *get_device_name(struct ibv_device *device)
{
	return device->name;
}

static inline struct ibv_context *open_device(struct ibv_device *device)
{
	long which = device - fake.devices;

	if (fake.open_errno[which]) {
		errno = fake.open_errno[which] < 0 ? 0 : fake.open_errno[which];
		return NULL;
	}
	fake.opened++;
	return &fake.contexts[which];
}

static inline int close_device(struct ibv_context *context)
{
	(void)context;
	fake.opened--;
	return 0;
}

static inline int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	*attr = fake.attr;
	return fake.query_device_errno;
}

static inline int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	(void)context;
	assert_true(port >= 1 && port <= fake.attr.phys_port_cnt);
	*attr = fake.port;
	return fake.query_port_errno;
}

static inline ssize_t query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				      size_t max)
{
	(void)context;
	if (fake.gid_table_error)
		return fake.gid_table_error;
	assert_true(fake.gid_count <= max);
	memcpy(entries, fake.gids, fake.gid_count * sizeof(*entries));
	return (ssize_t)fake.gid_count;
}

static inline struct ibv_pd *alloc_pd(struct ibv_context *context)
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

static inline int dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	assert_int_equal(fake.mrs, 0);
	fake.pds--;
	return 0;
}

static inline struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes,
					   uint64_t iova, int fd, int access)
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

static inline int dereg_mr(struct ibv_mr *mr)
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

static inline void add_gid(const char *text, enum ibv_gid_type type, uint32_t ifindex)
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

static inline int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
	(void)about;
	(void)kind;
	(void)walk;
	return remove(path);
}

__attribute__((format(printf, 1, 2))) static inline char *below(const char *format, ...)
{
	static char path[1024];
	int used = snprintf(path, sizeof(path), "%s", root);
	va_list args;

	va_start(args, format);
	vsnprintf(path + used, sizeof(path) - (size_t)used, format, args);
	va_end(args);
	return path;
}

static inline void folder(const char *path)
{
	assert_int_equal(file_make_directory(below("%s", path), NULL), 0);
}

static inline void put(const char *path, const char *text)
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

static inline void link_to(const char *target, const char *path)
{
	assert_int_equal(symlink(target, below("%s", path)), 0);
}

#define CARD "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"

/* mlx5_0, a ConnectX behind a root port, as Linux shows it. */
static inline void plug_card(void)
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

static inline int set_up(void **state)
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

static inline int tear_down(void **state)
{
	(void)state;
	assert_int_equal(fake.lists, 0);
	assert_int_equal(fake.opened, 0);
	assert_int_equal(fake.pds, 0);
	assert_int_equal(fake.mrs, 0);
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void read_or_fail(struct verbs_facts *facts)
{
	struct error error = {0};

	if (verbs_facts_read_at(&calls, root, facts, &error))
		fail_msg("%s", error.text);
}

#define with_root(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
