/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: the list, contexts, what they say about themselves, and their async events.
 */
#include "tests/support/verbs_mock_parts.h"

#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The list starts with its own mark, so that freeing something else is noticed. */
#define LIST_MARK UINT64_C(0x6c6973746d6f636b)

static struct ibv_device **device_list(uint32_t host, int *count)
{
	uint32_t nics = mock_fabric.options.nics;
	struct ibv_device **list;
	uint64_t *block;
	int rc;

	mock_lock();
	rc = mock_fault(VERBS_MOCK_get_device_list);
	if (rc >= 0)
		return mock_null(rc);
	block = mock_memory(sizeof(*block) + (nics + 1) * sizeof(struct ibv_device *));
	block[0] = LIST_MARK;
	list = (struct ibv_device **)(block + 1);
	for (uint32_t i = 0; i < nics; i++)
		list[i] = &mock_fabric.devices[host][i].ibv;
	if (count)
		*count = (int)nics;
	mock_fabric.lists++;
	mock_unlock();
	return list;
}

#define LIST_OF(host)                                             \
	static struct ibv_device **device_list_##host(int *count) \
	{                                                         \
		return device_list(host, count);                  \
	}
LIST_OF(0)
LIST_OF(1)
LIST_OF(2)
LIST_OF(3)

struct ibv_device **mock_get_device_list(int *count)
{
	return device_list(0, count);
}

const struct verbs_calls *verbs_mock_calls(uint32_t host)
{
#define X(result, name, parameters, arguments) .name = mock_##name,
#define TABLE(host)                                                    \
	{                                                              \
		VERBS_CALLS(X, X).get_device_list = device_list_##host \
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
	static const struct verbs_calls tables[VERBS_MOCK_HOSTS] = {TABLE(0), TABLE(1), TABLE(2),
								    TABLE(3)};
#pragma GCC diagnostic pop
#undef TABLE
#undef X
	return &tables[host];
}

void mock_free_device_list(struct ibv_device **list)
{
	uint64_t *block = (uint64_t *)(void *)list - 1;

	mock_lock();
	mock_fabric.called[VERBS_MOCK_free_device_list]++;
	if (block[0] != LIST_MARK)
		mock_violation("free_device_list: this is no list");
	block[0] = 0;
	free(block);
	mock_fabric.lists--;
	mock_unlock();
}

const char *mock_get_device_name(struct ibv_device *device)
{
	return device->name;
}

/* ---- contexts ---- */

struct ibv_context *mock_open_device(struct ibv_device *device)
{
	struct mock_device *mock = MOCK_OF(device, device);
	struct mock_context *context;
	int rc;

	mock_lock();
	rc = mock_fault(VERBS_MOCK_open_device);
	if (rc >= 0 || mock->dead)
		return mock_null(mock->dead ? EIO : rc);
	context = mock_memory(sizeof(*context));
	context->ibv.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (context->ibv.async_fd < 0) {
		free(context);
		return mock_null(errno);
	}
	context->ibv.device = device;
	context->ibv.cmd_fd = -1;
	context->ibv.num_comp_vectors = 1;
	mock_object_new(&context->head, MOCK_CONTEXT, mock);
	mock_unlock();
	return &context->ibv;
}

int mock_close_device(struct ibv_context *context)
{
	struct mock_context *mock = MOCK_OF(context, context);
	int rc;

	mock_lock();
	rc = mock_fault(VERBS_MOCK_close_device);
	if (!mock_object_ok(&mock->head, MOCK_CONTEXT, "close_device"))
		return mock_positive(EINVAL);
	if (mock->head.children)
		mock_violation("close_device: %d objects are alive", mock->head.children);
	if (mock->port_taken != mock->port_acked)
		mock_violation("close_device: port events were not acknowledged");
	mock_object_end(&mock->head, "close_device");
	close(context->async_fd);
	context->async_fd = -1;
	if (rc >= 0)
		return mock_minus(rc);
	mock_unlock();
	return 0;
}

struct mock_device *mock_device_of(struct ibv_context *context)
{
	return MOCK_OF(device, context->device);
}

struct mock_context *mock_context_of(struct mock_device *device)
{
	for (struct mock_head *head = mock_fabric.objects; head; head = head->next)
		if (head->alive && head->type == MOCK_CONTEXT && head->device == device)
			return (void *)((char *)head - offsetof(struct mock_context, head));
	return NULL;
}

static int usable(struct ibv_context *context, enum verbs_mock_call call)
{
	struct mock_context *mock = MOCK_OF(context, context);
	int rc = mock_fault(call);

	if (!mock_object_ok(&mock->head, MOCK_CONTEXT, verbs_mock_call_name(call)))
		return EINVAL;
	return rc < 0 && mock->head.device->dead ? EIO : rc;
}

#define OR(given, usual) ((given) ? (__typeof__(usual))(given) : (usual))

int mock_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct verbs_mock_options *options = &mock_fabric.options;
	int rc;

	mock_lock();
	rc = usable(context, VERBS_MOCK_query_device);
	if (rc >= 0)
		return mock_positive(rc);
	memset(attr, 0, sizeof(*attr));
	memcpy(attr->fw_ver, "1.0", 4);
	attr->node_guid =
		htobe64(UINT64_C(0x02c9000000000000) | mock_device_of(context)->host << 8 |
			mock_device_of(context)->nic);
	attr->max_mr_size = OR(options->max_mr_size, UINT64_MAX);
	attr->page_size_cap = 0xfffff000;
	attr->max_qp = OR(options->max_qp, 131072);
	attr->max_qp_wr = OR(options->max_qp_wr, 32768);
	attr->max_sge = attr->max_sge_rd = 30;
	attr->max_cq = 65536;
	attr->max_cqe = OR(options->max_cqe, 4194303);
	attr->max_mr = OR(options->max_mr, 1048576);
	attr->max_pd = 32768;
	attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 16;
	attr->max_res_rd_atom = 4096;
	attr->max_srq = 4096;
	attr->max_srq_wr = OR(options->max_srq_wr, 32767);
	attr->max_srq_sge = 31;
	attr->max_pkeys = 128;
	attr->phys_port_cnt = (uint8_t)options->ports;
	mock_unlock();
	return 0;
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	enum ibv_mtu code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && (256u << code) <= bytes)
		code++;
	return code;
}

int mock_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	const struct verbs_mock_options *options = &mock_fabric.options;
	const struct mock_device *device = mock_device_of(context);
	bool up;
	int rc;

	mock_lock();
	rc = usable(context, VERBS_MOCK_query_port);
	if (rc < 0 && (port < 1 || port > options->ports))
		rc = EINVAL;
	if (rc >= 0)
		return mock_positive(rc);
	up = device->active[port - 1] && device->link;
	memset(attr, 0, sizeof(*attr));
	attr->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	attr->phys_state = up ? 5 : 3;
	attr->max_mtu = IBV_MTU_4096;
	attr->active_mtu = mtu_code(options->mtu[device->host]);
	attr->gid_tbl_len = MOCK_GIDS;
	attr->pkey_tbl_len = 2;
	attr->max_msg_sz = OR(options->max_msg_sz, 1u << 30);
	attr->active_width = 2;
	attr->active_speed = 32;
	attr->link_layer =
		options->infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
	if (options->infiniband) {
		attr->lid = device->lid[port - 1];
		attr->sm_lid = 1;
	}
	mock_unlock();
	return 0;
}

/* fe80::, and ::ffff:10.<subnet>.<host>.<nic * 2 + port> */
static void gid_row(struct mock_device *device, uint32_t port, uint32_t row, bool ipv4,
		    uint32_t type)
{
	unsigned char *raw = device->gids[port][row].gid.raw;

	memset(raw, 0, 16);
	if (ipv4) {
		raw[10] = raw[11] = 0xff;
		raw[12] = 10;
		raw[13] = (unsigned char)mock_fabric.options.subnets[device->nic];
		raw[14] = 0;
	} else {
		raw[0] = 0xfe;
		raw[1] = 0x80;
		raw[8] = 2;
		raw[14] = (unsigned char)device->nic;
	}
	raw[15] = (unsigned char)(1 + device->host * 16 + device->nic * 2 + port);
	device->gids[port][row].type = type;
}

void mock_gid_fill(struct mock_device *device)
{
	for (uint32_t port = 0; port < 2; port++) {
		if (mock_fabric.options.infiniband) {
			gid_row(device, port, 0, false, IBV_GID_TYPE_IB);
			continue;
		}
		gid_row(device, port, 0, false, IBV_GID_TYPE_ROCE_V1);
		gid_row(device, port, 1, false, IBV_GID_TYPE_ROCE_V2);
		gid_row(device, port, 2, true, IBV_GID_TYPE_ROCE_V1);
		gid_row(device, port, 3, true, IBV_GID_TYPE_ROCE_V2);
	}
}

static bool gid_empty(const union ibv_gid *gid)
{
	static const union ibv_gid none;

	return memcmp(gid, &none, sizeof(none)) == 0;
}

ssize_t mock_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max)
{
	const struct mock_device *device = mock_device_of(context);
	size_t count = 0;
	int rc;

	mock_lock();
	rc = usable(context, VERBS_MOCK_query_gid_table);
	for (uint32_t port = 0; port < mock_fabric.options.ports && rc < 0; port++)
		for (uint32_t row = 0; row < MOCK_GIDS; row++) {
			const struct mock_gid *gid = &device->gids[port][row];

			if (gid_empty(&gid->gid))
				continue;
			if (count == max) {
				rc = EINVAL;
				break;
			}
			entries[count++] = (struct ibv_gid_entry){
				.gid = gid->gid,
				.gid_index = row,
				.port_num = port + 1,
				.gid_type = gid->type,
				.ndev_ifindex = mock_fabric.options.infiniband ? 0 : 1};
		}
	mock_unlock();
	if (rc >= 0)
		errno = rc;
	return rc >= 0 ? (rc ? -rc : -1) : (ssize_t)count;
}

int mock_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	int rc;

	(void)port;
	mock_lock();
	rc = usable(context, VERBS_MOCK_query_pkey);
	if (rc < 0 && (index < 0 || index > 1))
		rc = EINVAL;
	if (rc >= 0)
		return mock_minus(rc);
	*pkey = htobe16(index ? 0 : 0xffff);
	mock_unlock();
	return 0;
}

int mock_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int mock_fork_init(void)
{
	int rc;

	mock_lock();
	rc = mock_fault(VERBS_MOCK_fork_init);
	if (rc >= 0)
		return mock_positive(rc);
	mock_unlock();
	return 0;
}

/* ---- async events ---- */

void mock_event_push(struct mock_context *context, const struct ibv_async_event *event)
{
	struct ibv_async_event *place = array_push(&context->events);
	uint64_t one = 1;

	if (!place)
		abort();
	*place = *event;
	if (write(context->ibv.async_fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

enum element { ELEMENT_PORT, ELEMENT_CQ, ELEMENT_QP, ELEMENT_SRQ };

static enum element element_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return ELEMENT_CQ;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return ELEMENT_SRQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ELEMENT_QP;
	default:
		return ELEMENT_PORT;
	}
}

static struct mock_head *element_head(const struct ibv_async_event *event)
{
	switch (element_of(event->event_type)) {
	case ELEMENT_CQ:
		return &MOCK_OF(cq, event->element.cq)->head;
	case ELEMENT_QP:
		return &MOCK_OF(qp, event->element.qp)->head;
	case ELEMENT_SRQ:
		return &MOCK_OF(srq, event->element.srq)->head;
	default:
		return NULL;
	}
}

static void token_take(int fd)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	uint64_t token;

	/* none when another thread has taken it and waits for the lock */
	if (poll(&readable, 1, 0) == 1 && read(fd, &token, sizeof(token)) < 0 && errno != EAGAIN)
		abort();
}

void mock_event_drop(struct ibv_context *ibv, const struct mock_head *gone)
{
	struct mock_context *context = MOCK_OF(context, ibv);
	size_t kept = 0;

	for (size_t i = 0; i < context->events.count; i++) {
		struct ibv_async_event event = context->events.items[i];

		if (element_head(&event) == gone)
			token_take(context->ibv.async_fd);
		else
			context->events.items[kept++] = event;
	}
	context->events.count = kept;
}

static bool event_pop(struct mock_context *context, struct ibv_async_event *event)
{
	struct mock_head *head;

	if (!context->events.count)
		return false;
	*event = context->events.items[0];
	context->events.count--;
	memmove(context->events.items, context->events.items + 1,
		context->events.count * sizeof(*event));
	head = element_head(event);
	if (head)
		head->events_taken++;
	else
		context->port_taken++;
	return true;
}

int mock_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct mock_context *mock = MOCK_OF(context, context);
	uint64_t token;
	bool got;
	int rc;

	mock_lock();
	rc = mock_fault(VERBS_MOCK_get_async_event);
	if (!mock_object_ok(&mock->head, MOCK_CONTEXT, "get_async_event"))
		rc = EBADF;
	if (rc >= 0)
		return mock_minus(rc);
	mock_unlock();
	do {
		if (read(context->async_fd, &token, sizeof(token)) < 0)
			return -1;
		mock_lock();
		got = event_pop(mock, event);
		mock_unlock();
	} while (!got);
	return 0;
}

void mock_ack_async_event(struct ibv_async_event *event)
{
	struct mock_head *head;

	mock_lock();
	mock_fabric.called[VERBS_MOCK_ack_async_event]++;
	head = element_head(event);
	if (head) {
		if (head->events_acked++ == head->events_taken)
			mock_violation("ack_async_event: acknowledged twice");
	} else {
		/* port events do not say of which context they are, and need no counting */
		for (struct mock_head *at = mock_fabric.objects; at; at = at->next) {
			struct mock_context *context =
				(void *)((char *)at - offsetof(struct mock_context, head));

			if (at->type == MOCK_CONTEXT && at->alive &&
			    context->port_acked < context->port_taken) {
				context->port_acked++;
				break;
			}
		}
	}
	mock_unlock();
}
