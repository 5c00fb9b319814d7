/* SPDX-License-Identifier: Apache-2.0
 *
 * nic.c -- one port of one device: what all endpoints of a domain share there. Receives are
 * shared by all queue pairs of the NIC, and carry no bytes: they are what an immediate takes.
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include "base/log.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>

#define PKEY_FULL    0xffff
#define PKEY_LIMITED 0x7fff

static int open_by_name(struct verbs_nic *nic, struct error *error)
{
	const struct verbs_calls *calls = nic->domain->calls;
	const char *name = nic->limits.name;
	struct ibv_device *found = NULL;
	struct ibv_device **list;
	int count = 0, errnum;

	list = calls->get_device_list(&count);
	if (!list)
		return verbs_step_error(error, VERBS_STEP_OPEN, name, verbs_errno(-1),
					"listing the devices");
	for (int i = 0; i < count && !found; i++)
		if (strcmp(calls->get_device_name(list[i]), name) == 0)
			found = list[i];
	nic->context = found ? calls->open_device(found) : NULL;
	errnum = verbs_errno(-1);
	calls->free_device_list(list);
	if (!found)
		return error_set(error, ERROR_UNSUPPORTED,
				 "%s was there a moment ago and is not any more", name);
	if (!nic->context)
		return verbs_step_error(error, VERBS_STEP_OPEN, name, errnum, NULL);
	return 0;
}

static int nonblocking(int fd, const char *what, const char *device, struct error *error)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return error_set_errno(error, ERROR_UNSUPPORTED, errno,
				       "the %s descriptor of %s cannot be made nonblocking", what,
				       device);
	return 0;
}

/* By value: the index of a key is the port's own affair. */
static int find_pkey(struct verbs_nic *nic, struct error *error)
{
	const struct verbs_calls *calls = nic->domain->calls;
	static const unsigned wanted[] = {PKEY_FULL, PKEY_LIMITED};
	struct ibv_port_attr port = {0};
	int rc = calls->query_port(nic->context, nic->port, &port);

	if (rc)
		return verbs_step_error(error, VERBS_STEP_QUERY, nic->limits.name, verbs_errno(rc),
					"reading port %u", nic->port);
	nic->max_message_bytes = port.max_msg_sz;
	for (size_t w = 0; w < ARRAY_SIZE(wanted); w++) {
		for (int i = 0; i < port.pkey_tbl_len; i++) {
			__be16 key = 0;

			if (calls->query_pkey(nic->context, nic->port, i, &key) != 0 ||
			    ntohs(key) != wanted[w])
				continue;
			nic->pkey_index = (uint32_t)i;
			nic->pkey = wanted[w];
			return 0;
		}
	}
	return error_set(
		error, ERROR_UNSUPPORTED,
		"%s:%u has none of the default partition's keys (0xffff, 0x7fff) among its "
		"%d: let the subnet manager put the port into the default partition",
		nic->limits.name, nic->port, port.pkey_tbl_len);
}

static int make_receives(struct verbs_nic *nic, struct error *error)
{
	const struct verbs_calls *calls = nic->domain->calls;
	const struct verbs_device *limits = &nic->limits;
	struct ibv_srq_init_attr attr = {0};
	uint32_t depth = nic->domain->settings.receive_depth;

	if (!limits->max_srq_wr || limits->max_cqe < 2)
		return error_set(error, ERROR_UNSUPPORTED,
				 "%s (%s) has no shared receive queues, which signals need",
				 limits->name, limits->driver);
	depth = depth > limits->max_srq_wr ? limits->max_srq_wr : depth;
	depth = depth > limits->max_cqe - 1 ? limits->max_cqe - 1 : depth;
	nic->receive_depth = depth;
	nic->receive_cq = calls->create_cq(nic->context, (int)depth + 1, nic, nic->channel);
	if (!nic->receive_cq)
		return verbs_step_error(error, VERBS_STEP_CQ, limits->name, verbs_errno(-1),
					"creating a completion queue of %u entries for signals",
					depth + 1);
	attr.attr.max_wr = depth;
	attr.attr.max_sge = 1;
	nic->srq = calls->create_srq(nic->pd, &attr);
	if (!nic->srq)
		return verbs_step_error(error, VERBS_STEP_SRQ, limits->name, verbs_errno(-1),
					"creating a shared queue of %u receives", depth);
	return verbs_receive_refill(nic, error);
}

static int make_all(struct verbs_nic *nic, struct error *error)
{
	const struct verbs_calls *calls = nic->domain->calls;
	const char *name = nic->limits.name;
	int rc = open_by_name(nic, error);

	if (!rc)
		rc = nonblocking(nic->context->async_fd, "event", name, error);
	if (!rc)
		rc = find_pkey(nic, error);
	if (rc)
		return rc;
	nic->pd = calls->alloc_pd(nic->context);
	if (!nic->pd)
		return verbs_step_error(error, VERBS_STEP_PD, name, verbs_errno(-1), NULL);
	nic->channel = calls->create_comp_channel(nic->context);
	if (!nic->channel)
		return verbs_step_error(error, VERBS_STEP_CHANNEL, name, verbs_errno(-1), NULL);
	rc = nonblocking(nic->channel->fd, "completion channel", name, error);
	return rc ? rc : make_receives(nic, error);
}

static void take_facts(struct verbs_nic *nic, const struct verbs_facts *facts,
		       const struct verbs_nic_choice *choice)
{
	const struct verbs_settings *settings = &nic->domain->settings;
	const struct verbs_device *device = &facts->devices.items[choice->device];
	const struct verbs_port *port = &device->ports.items[choice->port];

	nic->limits = *device;
	memset(&nic->limits.ports, 0, sizeof(nic->limits.ports)); /* the facts own them */
	nic->port = port->number;
	nic->link = port->link;
	if (port->gid >= 0)
		nic->gid = port->gids.items[port->gid];
	nic->lid = port->lid;
	nic->mtu = port->mtu;
	nic->netdev_mtu = port->netdev_mtu;
	nic->traffic_class = settings->traffic_class >= 0 ? (uint32_t)settings->traffic_class
			     : port->traffic_class >= 0	  ? (uint32_t)port->traffic_class
							  : 0;
	nic->new_post = settings->new_post != VERBS_OFF;
}

int verbs_nic_open(struct verbs_nic *nic, const struct verbs_facts *facts,
		   const struct verbs_nic_choice *choice, struct error *error)
{
	int rc;

	take_facts(nic, facts, choice);
	rc = make_all(nic, error);
	if (rc)
		verbs_nic_close(nic);
	return rc;
}

static void check_gone(const struct verbs_nic *nic, int rc, const char *what)
{
	if (rc)
		log_warn("verbs: %s does not let go of its %s (errno %d)", nic->limits.name, what,
			 verbs_errno(rc));
}

void verbs_nic_close(struct verbs_nic *nic)
{
	const struct verbs_calls *calls = nic->domain->calls;

	if (nic->srq)
		check_gone(nic, calls->destroy_srq(nic->srq), "shared receive queue");
	if (nic->receive_cq)
		check_gone(nic, calls->destroy_cq(nic->receive_cq), "completion queue");
	if (nic->channel)
		check_gone(nic, calls->destroy_comp_channel(nic->channel), "completion channel");
	if (nic->pd)
		check_gone(nic, calls->dealloc_pd(nic->pd), "protection domain");
	if (nic->context)
		check_gone(nic, calls->close_device(nic->context), "context");
}
