/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests do to a network while it runs: links, ports, devices, addresses, events and
 * completions out of the blue.
 */
#include "tests/support/verbs_mock_parts.h"

#include <string.h>

static struct mock_device *device_at(uint32_t host, uint32_t nic)
{
	return &mock_fabric.devices[host][nic];
}

static void port_event(struct mock_device *device, enum ibv_event_type type, uint8_t port)
{
	struct ibv_async_event event = {.event_type = type, .element.port_num = port};

	for (struct mock_head *head = mock_fabric.objects; head; head = head->next)
		if (head->alive && head->type == MOCK_CONTEXT && head->device == device)
			mock_event_push(
				(void *)((char *)head - offsetof(struct mock_context, head)),
				&event);
}

void verbs_mock_link(uint32_t host, uint32_t nic, bool up)
{
	mock_lock();
	device_at(host, nic)->link = up;
	mock_unlock();
}

void verbs_mock_deliver_late(bool deliver)
{
	mock_lock();
	mock_fabric.late = deliver;
	mock_unlock();
}

uint32_t verbs_mock_in_network(uint32_t host, uint32_t nic)
{
	uint32_t count = 0;

	mock_lock();
	for (size_t i = 0; i < mock_fabric.active.count; i++) {
		const struct mock_qp *qp = mock_fabric.active.items[i];

		if (qp->head.device != device_at(host, nic))
			continue;
		for (uint64_t at = qp->delivered; at < qp->sent; at++)
			count += !mock_request_at(qp, at)->dead;
	}
	mock_unlock();
	return count;
}

void verbs_mock_port(uint32_t host, uint32_t nic, uint8_t port, bool up)
{
	mock_lock();
	device_at(host, nic)->active[port - 1] = up;
	port_event(device_at(host, nic), up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, port);
	mock_unlock();
}

void verbs_mock_kill(uint32_t host, uint32_t nic)
{
	mock_lock();
	port_event(device_at(host, nic), IBV_EVENT_DEVICE_FATAL, 0);
	device_at(host, nic)->dead = true;
	mock_device_dies(device_at(host, nic));
	mock_unlock();
}

void verbs_mock_gids_move(uint32_t host, uint32_t nic)
{
	struct mock_device *device = device_at(host, nic);

	mock_lock();
	for (int port = 0; port < 2; port++)
		for (int row = 0; row < MOCK_GIDS / 2; row++) {
			struct mock_gid *from = &device->gids[port][row];
			struct mock_gid *to = &device->gids[port][row + MOCK_GIDS / 2];
			struct mock_gid kept = *from;

			*from = *to;
			*to = kept;
		}
	for (uint8_t port = 1; port <= mock_fabric.options.ports; port++)
		port_event(device, IBV_EVENT_GID_CHANGE, port);
	mock_unlock();
}

/* The youngest object of a kind on this device. */
static struct mock_head *youngest(const struct mock_device *device, enum mock_type type)
{
	for (struct mock_head *head = mock_fabric.objects; head; head = head->next)
		if (head->alive && head->type == type && head->device == device)
			return head;
	return NULL;
}

#define ELEMENT(type, TYPE)                   \
	head = youngest(device, MOCK_##TYPE); \
	if (head)                             \
		event.element.type = (void *)((char *)head - offsetof(struct mock_##type, head));

bool verbs_mock_event(uint32_t host, uint32_t nic, enum ibv_event_type type, uint8_t port)
{
	struct mock_device *device = device_at(host, nic);
	struct ibv_async_event event = {.event_type = type};
	struct mock_head *head;

	mock_lock();
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		ELEMENT(cq, CQ)
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ELEMENT(srq, SRQ)
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		ELEMENT(qp, QP)
		break;
	default:
		event.element.port_num = port;
		head = youngest(device, MOCK_CONTEXT);
		break;
	}
	if (head)
		mock_event_push(mock_context_of(device), &event);
	mock_unlock();
	return head != NULL;
}

static struct mock_cq *queue_of(const struct mock_device *device, bool receive)
{
	for (struct mock_head *head = mock_fabric.objects; head; head = head->next) {
		struct mock_cq *cq = (void *)((char *)head - offsetof(struct mock_cq, head));

		if (head->alive && head->type == MOCK_CQ && head->device == device &&
		    (cq->ibv.channel != NULL) == receive)
			return cq;
	}
	return NULL;
}

/* A completion takes a receive, wherever it came from. */
static uint64_t receive_take(const struct mock_device *device)
{
	struct mock_head *head = youngest(device, MOCK_SRQ);
	struct mock_srq *srq =
		head ? (void *)((char *)head - offsetof(struct mock_srq, head)) : NULL;

	return srq && srq->first < srq->wr_ids.count ? srq->wr_ids.items[srq->first++] : 0;
}

bool verbs_mock_inject(uint32_t host, uint32_t nic, bool receive, const struct ibv_wc *wc)
{
	struct mock_wc entry = {.wc = *wc};
	struct mock_cq *cq;

	mock_lock();
	cq = queue_of(device_at(host, nic), receive);
	if (receive)
		entry.wc.wr_id = receive_take(device_at(host, nic));
	if (cq)
		mock_cq_push(cq, &entry);
	mock_unlock();
	return cq != NULL;
}

bool verbs_mock_last(uint32_t host, uint32_t nic, bool receive, struct ibv_wc *wc)
{
	bool has;

	mock_lock();
	has = device_at(host, nic)->has_last[receive];
	*wc = device_at(host, nic)->last[receive];
	mock_unlock();
	return has;
}

uint32_t verbs_mock_receives(uint32_t host, uint32_t nic)
{
	uint32_t count = 0;

	mock_lock();
	for (struct mock_head *head = mock_fabric.objects; head; head = head->next) {
		const struct mock_srq *srq =
			(const void *)((const char *)head - offsetof(struct mock_srq, head));

		if (head->alive && head->type == MOCK_SRQ && head->device == device_at(host, nic))
			count += (uint32_t)(srq->wr_ids.count - srq->first);
	}
	mock_unlock();
	return count;
}

void verbs_mock_receives_hide(bool hide)
{
	mock_lock();
	mock_fabric.hide_receives = hide;
	mock_unlock();
}
