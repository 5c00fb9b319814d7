/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.c -- reads what is plugged in. Two sources: libibverbs (through the call table) for
 * what a device says of itself, sysfs for what only the kernel knows (driver, PCI address, NUMA
 * node, traffic class); addresses and prefixes come from the network interfaces. A file that is
 * missing is a fact that is not known, never a failure.
 */
#include "transport/verbs/facts.h"

#include "transport/verbs/calls.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/sysfs.h"

#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

static const char *const state_names[] = {
	[IBV_PORT_NOP] = "NOP",	      [IBV_PORT_DOWN] = "DOWN",
	[IBV_PORT_INIT] = "INIT",     [IBV_PORT_ARMED] = "ARMED",
	[IBV_PORT_ACTIVE] = "ACTIVE", [IBV_PORT_ACTIVE_DEFER] = "ACTIVE_DEFER",
};

/* Codes of active_width and active_speed, one bit each. */
static const struct {
	uint32_t code, value;
} widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}},
  speeds_mbps[] = {{1, 2500},	{2, 5000},   {4, 10000},  {8, 10000},
		   {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};

/* Soft devices by the vendor number they make up. */
static const struct {
	uint32_t vendor;
	const char *driver;
} soft_vendors[] = {{0xffffff, "rdma_rxe"}, {0x626d74, "siw"}};

struct reader {
	const struct verbs_calls *calls;
	struct sysfs sysfs;
};

static uint64_t link_speed_mbps(const struct ibv_port_attr *attr)
{
	uint32_t width = 0, speed = 0;

	for (size_t i = 0; i < ARRAY_SIZE(widths); i++)
		if (attr->active_width == widths[i].code)
			width = widths[i].value;
	for (size_t i = 0; i < ARRAY_SIZE(speeds_mbps); i++)
		if (attr->active_speed == speeds_mbps[i].code)
			speed = speeds_mbps[i].value;
	return (uint64_t)width * speed;
}

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

/* Returns how many rows its GID table has. */
static int read_port(const struct reader *reader, struct ibv_context *context,
		     const struct verbs_device *device, struct verbs_port *port)
{
	struct ibv_port_attr attr = {0};

	port->traffic_class = sysfs_traffic_class(&reader->sysfs, device->name, port->number);
	port->gid = -1;
	errno = 0;
	if (reader->calls->query_port(context, port->number, &attr) != 0) {
		snprintf(port->state, sizeof(port->state), "unreadable");
		return 0;
	}
	port->active = attr.state == IBV_PORT_ACTIVE;
	snprintf(port->state, sizeof(port->state), "%s",
		 attr.state < ARRAY_SIZE(state_names) ? state_names[attr.state] : "unknown");
	if (attr.link_layer == IBV_LINK_LAYER_ETHERNET)
		port->link = VERBS_LINK_ETHERNET;
	else if (attr.link_layer == IBV_LINK_LAYER_INFINIBAND ||
		 attr.link_layer == IBV_LINK_LAYER_UNSPECIFIED) /* before RoCE there was only one */
		port->link = VERBS_LINK_INFINIBAND;
	port->lid = attr.lid;
	port->sm_lid = attr.sm_lid;
	port->lmc = attr.lmc;
	port->mtu = mtu_bytes(attr.active_mtu);
	port->max_message_bytes = attr.max_msg_sz;
	port->speed_mbps = link_speed_mbps(&attr);
	if (port->speed_mbps == 0)
		port->speed_mbps = sysfs_rate_mbps(&reader->sysfs, device->name, port->number);
	return attr.gid_tbl_len > 0 ? attr.gid_tbl_len : 0;
}

static struct verbs_port *find_port(struct verbs_device *device, uint32_t number)
{
	for (size_t i = 0; i < device->ports.count; i++)
		if (device->ports.items[i].number == number)
			return &device->ports.items[i];
	return NULL;
}

/* The interface by number: the kernel tells numbers of other network namespaces too, so the
 * name that sysfs has for this row must be the one that this number has here. */
static void name_netdev(const struct reader *reader, const struct verbs_device *device,
			const struct verbs_port *port, struct verbs_gid *gid)
{
	char here[IF_NAMESIZE] = "", told[IF_NAMESIZE];

	if (gid->ifindex && !if_indextoname(gid->ifindex, here))
		here[0] = '\0';
	if (here[0] &&
	    sysfs_gid_netdev(&reader->sysfs, device->name, port->number, gid->index, told,
			     sizeof(told)) &&
	    strcmp(here, told) != 0)
		here[0] = '\0';
	memcpy(gid->netdev, here, sizeof(gid->netdev));
	if (here[0])
		gid->prefix_bits = sysfs_prefix_bits(&reader->sysfs, here, gid->raw);
}

static int add_gid(const struct reader *reader, struct verbs_device *device,
		   const struct ibv_gid_entry *entry, struct error *error)
{
	static const enum verbs_gid_type types[] = {
		[IBV_GID_TYPE_IB] = VERBS_GID_IB,
		[IBV_GID_TYPE_ROCE_V1] = VERBS_GID_ROCE_V1,
		[IBV_GID_TYPE_ROCE_V2] = VERBS_GID_ROCE_V2,
	};
	struct verbs_port *port = find_port(device, entry->port_num);

	if (!port || entry->gid_type >= ARRAY_SIZE(types))
		return 0;
	struct verbs_gid *gid = array_push(&port->gids);

	if (!gid)
		return memory_error(error, "reading GIDs", sizeof(*gid));
	memcpy(gid->raw, entry->gid.raw, sizeof(gid->raw));
	gid->index = entry->gid_index;
	gid->type = types[entry->gid_type];
	gid->ifindex = entry->ndev_ifindex;
	name_netdev(reader, device, port, gid);
	return 0;
}

/* Where the kernel has no call for the table: row by row from sysfs. Rows that cannot be read
 * there belong to another network namespace or to nobody. */
static int read_gids_from_sysfs(const struct reader *reader, struct verbs_device *device,
				struct verbs_port *port, int rows, struct error *error)
{
	for (int i = 0; i < rows; i++) {
		struct ibv_gid_entry entry = {.gid_index = (uint32_t)i,
					      .port_num = port->number,
					      .gid_type = IBV_GID_TYPE_ROCE_V2};
		char netdev[IF_NAMESIZE];
		enum sysfs_gid kind = sysfs_gid(&reader->sysfs, device->name, port->number,
						(uint32_t)i, entry.gid.raw);

		if (kind == SYSFS_GID_EMPTY)
			continue;
		if (port->link == VERBS_LINK_INFINIBAND)
			entry.gid_type = IBV_GID_TYPE_IB;
		else if (kind == SYSFS_GID_V1)
			entry.gid_type = IBV_GID_TYPE_ROCE_V1;
		if (sysfs_gid_netdev(&reader->sysfs, device->name, port->number, (uint32_t)i,
				     netdev, sizeof(netdev)))
			entry.ndev_ifindex = if_nametoindex(netdev);
		int rc = add_gid(reader, device, &entry, error);

		if (rc)
			return rc;
	}
	return 0;
}

static int read_gids(const struct reader *reader, struct ibv_context *context,
		     struct verbs_device *device, const int *rows, struct error *error)
{
	size_t max = 0;
	int rc = 0;

	for (size_t i = 0; i < device->ports.count; i++)
		max += (size_t)rows[i];
	if (max == 0)
		return 0;
	struct ibv_gid_entry *entries = memory_zalloc(max, sizeof(*entries));

	if (!entries)
		return memory_error(error, "reading GIDs", max * sizeof(*entries));
	errno = 0;
	ssize_t count = reader->calls->query_gid_table(context, entries, max);

	for (ssize_t i = 0; !rc && i < count && (size_t)i < max; i++)
		rc = add_gid(reader, device, &entries[i], error);
	for (size_t i = 0; !rc && count < 0 && i < device->ports.count; i++)
		rc = read_gids_from_sysfs(reader, device, &device->ports.items[i], rows[i], error);
	memory_free(entries);
	return rc;
}

/* The interface of an Ethernet port is that of its GIDs; an InfiniBand port has its IPoIB one. */
static void name_port_netdev(const struct reader *reader, const struct verbs_device *device,
			     struct verbs_port *port)
{
	for (size_t i = 0; i < port->gids.count && !port->netdev[0]; i++)
		memcpy(port->netdev, port->gids.items[i].netdev, sizeof(port->netdev));
	if (!port->netdev[0])
		sysfs_port_netdev(&reader->sysfs, device->name, port->number, port->netdev,
				  sizeof(port->netdev));
	if (port->netdev[0])
		port->netdev_mtu = sysfs_netdev_mtu(&reader->sysfs, port->netdev);
}

static int read_ports(const struct reader *reader, struct ibv_context *context,
		      struct verbs_device *device, uint32_t count, struct error *error)
{
	int rows[UINT8_MAX] = {0};

	for (uint32_t i = 0; i < count && i < UINT8_MAX; i++) {
		struct verbs_port *port = array_push(&device->ports);

		if (!port)
			return memory_error(error, "reading ports", sizeof(*port));
		port->number = (uint8_t)(i + 1);
		rows[i] = read_port(reader, context, device, port);
	}
	int rc = read_gids(reader, context, device, rows, error);

	for (size_t i = 0; i < device->ports.count; i++)
		name_port_netdev(reader, device, &device->ports.items[i]);
	return rc;
}

/* Asked without a GPU: a descriptor that cannot be one is "bad descriptor" where dma-buf is
 * known, and "not supported" where it is not. */
static bool probe_dmabuf(const struct verbs_calls *calls, struct ibv_context *context)
{
	struct ibv_pd *pd = calls->alloc_pd(context);
	bool there;

	if (!pd)
		return false;
	errno = 0;
	struct ibv_mr *mr = calls->reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);

	there = mr || errno == EBADF;
	if (mr)
		calls->dereg_mr(mr);
	calls->dealloc_pd(pd);
	return there;
}

static uint32_t positive(int value)
{
	return value > 0 ? (uint32_t)value : 0;
}

static void take_attributes(struct verbs_device *device, const struct ibv_device_attr *attr)
{
	snprintf(device->firmware, sizeof(device->firmware), "%.*s",
		 (int)sizeof(device->firmware) - 1, attr->fw_ver);
	device->node_guid = be64toh(attr->node_guid);
	device->max_mr_bytes = attr->max_mr_size;
	device->max_qp = positive(attr->max_qp);
	device->max_qp_wr = positive(attr->max_qp_wr);
	device->max_cq = positive(attr->max_cq);
	device->max_cqe = positive(attr->max_cqe);
	device->max_mr = positive(attr->max_mr);
	device->max_srq_wr = positive(attr->max_srq_wr);
	device->max_read = positive(attr->max_qp_rd_atom);
	for (size_t i = 0; i < ARRAY_SIZE(soft_vendors); i++)
		if (attr->vendor_id == soft_vendors[i].vendor) {
			device->soft = true;
			device->pci[0] = '\0'; /* of the interface below, not its own */
			device->numa = -1;
			snprintf(device->driver, sizeof(device->driver), "%s",
				 soft_vendors[i].driver);
		}
}

static int read_device(const struct reader *reader, struct ibv_device *from,
		       struct verbs_device *device, struct error *error)
{
	struct ibv_device_attr attr = {0};

	snprintf(device->name, sizeof(device->name), "%s", reader->calls->get_device_name(from));
	sysfs_describe_device(&reader->sysfs, device);
	errno = 0;
	struct ibv_context *context = reader->calls->open_device(from);

	if (!context) {
		int said = errno ? errno : ENODEV;
		int seen = said == ENOENT ? sysfs_node_errno(&reader->sysfs, device->name) : 0;

		device->open_errno = seen ? seen : said;
		return 0;
	}
	errno = 0;
	int rc = reader->calls->query_device(context, &attr);

	if (rc) {
		int errnum = verbs_errno(rc);

		device->open_errno = errnum ? errnum : EIO;
		reader->calls->close_device(context);
		return 0;
	}
	take_attributes(device, &attr);
	device->dmabuf = probe_dmabuf(reader->calls, context);
	rc = read_ports(reader, context, device, attr.phys_port_cnt, error);
	reader->calls->close_device(context);
	return rc;
}

int verbs_facts_read_at(const struct verbs_calls *calls, const char *root,
			struct verbs_facts *facts, struct error *error)
{
	struct reader reader = {.calls = calls};
	int count = 0, rc = 0;

	memset(facts, 0, sizeof(*facts));
	sysfs_open(&reader.sysfs, root);
	errno = 0;
	struct ibv_device **list = calls->missing ? NULL : calls->get_device_list(&count);
	int list_errno = errno;

	for (int i = 0; list && !rc && i < count; i++) {
		struct verbs_device *device = array_push(&facts->devices);

		rc = device ? read_device(&reader, list[i], device, error)
			    : memory_error(error, "reading RDMA devices", sizeof(*device));
	}
	if (list)
		calls->free_device_list(list);
	if (!rc)
		rc = absent_explain(&reader.sysfs, facts, calls->missing, list ? 0 : list_errno,
				    error);
	sysfs_close(&reader.sysfs);
	return rc;
}

int verbs_facts_read(const struct verbs_calls *calls, struct verbs_facts *facts,
		     struct error *error)
{
	return verbs_facts_read_at(calls, "", facts, error);
}

void verbs_facts_free(struct verbs_facts *facts)
{
	array_each(device, &facts->devices) {
		for (size_t p = 0; p < device->ports.count; p++)
			array_free(&device->ports.items[p].gids);
		array_free(&device->ports);
	}
	array_free(&facts->devices);
}
