/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.c -- lanes over connections (tcp).
 *
 *   inference rank                        trainer
 *   listens when its domain opens
 *   record: addresses, cookie ──────────► connect: one call a lane, from its rail's interface
 *   thread: request ◄── cookie, lane, rail ──
 *     of an endpoint that is open: accept
 *     else: refuse, and count a stranger
 *
 * One side alone calls, so a firewall has to let in one direction: towards the inference ranks. Between
 * two of one role the lower rank calls.
 */
#include "transport/ofi/way.h"

#include "base/log.h"
#include "transport/ofi/ip.h"
#include <arpa/inet.h>
#include <rdma/fi_errno.h>
#include <stdio.h>

#define REQUEST_MAGIC 0x77660010u

/* What a call brings; the provider carries it as it is. */
struct request {
	uint32_t magic, lane, rail, zero;
	unsigned char cookie[OFI_COOKIE_BYTES]; /* of the endpoint that is called */
};

/* ---- finding the interface ---- */

static int interfaces(const struct ofi_domain *domain, struct ofi_interface *out, uint32_t capacity,
		      uint32_t *count, struct error *error)
{
	return ofi_interfaces_read(out, capacity, count, error);
}

static int rail_info(struct ofi_rail *rail, struct error *error)
{
	const struct ofi_calls *calls = rail->domain->calls;
	struct fi_info *hints = calls->dupinfo(NULL);
	char node[IP_TEXT_BYTES], name[] = "tcp";
	int rc;

	if (!hints)
		return memory_error(error, "asking libfabric", sizeof(*hints));
	ip_text(&rail->interface.addresses[0], node);
	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = 0;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->fabric_attr->prov_name = name;
	rc = calls->getinfo(OFI_API, node, NULL, FI_SOURCE | FI_NUMERICHOST, hints, &rail->info);
	hints->fabric_attr->prov_name = NULL; /* not libfabric's to free */
	calls->freeinfo(hints);
	return rc ? ofi_error(error, rail->domain, -rc,
			      "libfabric %u.%u has no provider tcp for %s",
			      FI_MAJOR(calls->version()), FI_MINOR(calls->version()), node)
		  : 0;
}

/* rail->info with another address of the interface, and a port. */
struct own_address {
	struct fi_info *info;
	void *was; /* what is libfabric's to free */
	struct sockaddr_storage storage;
};

static int own_address_open(struct own_address *own, const struct ofi_rail *rail,
			    const struct ofi_address *address, uint32_t port, struct error *error)
{
	struct sockaddr_in *four = (void *)&own->storage;
	struct fi_info *info = rail->domain->calls->dupinfo(rail->info);

	own->info = info;
	if (!info)
		return memory_error(error, "asking libfabric", sizeof(*info));
	own->was = info->src_addr;
	info->src_addr = &own->storage;
	info->src_addrlen = ip_to_sockaddr(address, &own->storage);
	info->addr_format = own->storage.ss_family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
	four->sin_port = htons((uint16_t)port); /* at the same place as IPv6 has it */
	return 0;
}

static void own_address_close(struct own_address *own, const struct ofi_rail *rail)
{
	own->info->src_addr = own->was;
	rail->domain->calls->freeinfo(own->info);
}

/* ---- listening ---- */

/* On this port, or any (0). -FI_EADDRINUSE: another one. */
static int listen_at(struct ofi_rail *rail, struct ofi_listener *listener,
		     const struct ofi_address *address, uint32_t port, struct error *error)
{
	struct sockaddr_storage name = {0};
	size_t length = sizeof(name);
	struct own_address own;
	int rc = own_address_open(&own, rail, address, port, error);

	if (rc)
		return rc;
	rc = fi_passive_ep(rail->fabric, own.info, &listener->pep, NULL);
	own_address_close(&own, rail);
	if (!rc)
		rc = fi_pep_bind(listener->pep, &rail->eq->fid, 0);
	if (!rc)
		rc = fi_listen(listener->pep);
	if (!rc)
		rc = fi_getname(&listener->pep->fid, &name, &length);
	if (!rc) {
		ip_from_sockaddr(&listener->address, (struct sockaddr *)&name, address->bytes[1]);
		return 0;
	}
	if (listener->pep)
		fi_close(&listener->pep->fid);
	listener->pep = NULL;
	if (rc == -FI_EADDRINUSE)
		return 1;
	return ofi_error(error, rail->domain, -rc, "listening on %s", rail->interface.name);
}

static int listen_on(struct ofi_rail *rail, const struct ofi_address *address, struct error *error)
{
	const struct ofi_settings *settings = &rail->domain->settings;
	struct ofi_listener *listener = &rail->listeners[rail->listener_count];
	int rc = 1;

	for (uint32_t port = settings->port_low; rc == 1 && port <= settings->port_high; port++)
		rc = listen_at(rail, listener, address, port, error);
	if (rc == 1)
		return error_set(error, ERROR_LIMIT,
				 "tcp: no port of WEFT_TCP_PORTS=%u-%u is free on %s: each process "
				 "listens on one a stream and address family; name more",
				 settings->port_low, settings->port_high, rail->interface.name);
	if (!rc)
		rail->listener_count++;
	return rc;
}

static int rail_listen(struct ofi_rail *rail, struct error *error)
{
	int rc = 0;

	for (uint32_t i = 0; i < rail->interface.address_count && !rc; i++)
		rc = listen_on(rail, &rail->interface.addresses[i], error);
	return rc;
}

static int endpoint_open(struct ofi_endpoint *endpoint, struct error *error)
{
	return 0; /* lanes come with connections */
}

static int describe(struct ofi_endpoint *endpoint, struct ofi_endpoint_record *record,
		    struct error *error)
{
	const struct ofi_domain *domain = endpoint->domain;

	for (uint32_t i = 0; i < domain->rail_count; i++) {
		const struct ofi_rail *rail = &domain->rails[i];

		record->rails[i].address_count = rail->listener_count;
		for (uint32_t a = 0; a < rail->listener_count; a++)
			record->rails[i].addresses[a] = rail->listeners[a].address;
	}
	return 0;
}

/* ---- calling ---- */

static bool calls(const struct ofi_endpoint *endpoint)
{
	struct member self = endpoint->shared->domain->options.self;
	struct member peer = endpoint->shared->peer;

	if (self.role != peer.role)
		return self.role == ROLE_TRAINER;
	return self.rank < peer.rank;
}

struct path {
	const struct ofi_address *from, *to;
	uint32_t peer_rail;
	int reach;
};

static void better(struct path *best, const struct ofi_address *from, const struct ofi_address *to,
		   uint32_t peer_rail)
{
	int reach = ip_reaches(from, to);

	if (reach > best->reach)
		*best = (struct path){from, to, peer_rail, reach};
}

/* From this lane's interface to an address of the peer's: of one subnet where there is any; rails of one
 * number before others, so that streams spread. */
static struct path choose_path(const struct ofi_lane *lane)
{
	const struct ofi_interface *own = &lane->endpoint->domain->rails[lane->index].interface;
	const struct ofi_endpoint_record *peer = &lane->endpoint->peer;
	struct path best = {0};

	for (uint32_t i = 0; i < peer->rail_count; i++) {
		uint32_t r = (lane->index + i) % peer->rail_count;

		for (uint32_t f = 0; f < own->address_count; f++)
			for (uint32_t t = 0; t < peer->rails[r].address_count; t++)
				better(&best, &own->addresses[f], &peer->rails[r].addresses[t], r);
	}
	return best;
}

static int no_path(const struct ofi_lane *lane, struct error *error)
{
	const struct ofi_interface *own = &lane->endpoint->domain->rails[lane->index].interface;
	const struct ofi_rail_record *peer = &lane->endpoint->peer.rails[0];
	char here[IP_TEXT_BYTES], there[IP_TEXT_BYTES];

	return error_set(
		error, ERROR_UNSUPPORTED,
		"tcp: %s here has %s, %s there has %s: no address family is common to both; "
		"choose other interfaces with --nic",
		own->name, ip_text(&own->addresses[0], here), peer->name,
		ip_text(&peer->addresses[0], there));
}

static int call(struct ofi_lane *lane, struct fi_info *info, const struct path *path,
		struct error *error)
{
	struct ofi_endpoint *endpoint = lane->endpoint;
	struct request request = {
		.magic = REQUEST_MAGIC, .lane = lane->index, .rail = lane->rail->index};
	struct sockaddr_storage to;
	int rc;

	memcpy(request.cookie, endpoint->peer.cookie, sizeof(request.cookie));
	ip_to_sockaddr(path->to, &to);
	rc = ofi_lane_open(lane, info, error);
	if (rc)
		return rc;
	pthread_mutex_lock(&endpoint->domain->lock);
	lane->state = OFI_LANE_CONNECTING;
	pthread_mutex_unlock(&endpoint->domain->lock);
	rc = fi_connect(lane->ep, &to, &request, sizeof(request));
	return rc ? ofi_lane_error(error, lane, -rc) : 0;
}

static int call_lane(struct ofi_lane *lane, struct error *error)
{
	struct ofi_rail *rail = &lane->endpoint->domain->rails[lane->index];
	struct path path = choose_path(lane);
	char from[IP_TEXT_BYTES], to[IP_TEXT_BYTES];
	struct own_address own;
	int rc;

	if (!path.reach)
		return no_path(lane, error);
	lane->peer_rail = path.peer_rail;
	snprintf(lane->path, sizeof(lane->path), "%s %s to %s", rail->interface.name,
		 ip_text(path.from, from), ip_text(path.to, to));
	rc = own_address_open(&own, rail, path.from, 0, error);
	if (rc)
		return rc;
	pthread_mutex_lock(&rail->lock);
	lane->rail = rail;
	rc = call(lane, own.info, &path, error);
	pthread_mutex_unlock(&rail->lock);
	own_address_close(&own, rail);
	return rc;
}

/* ---- being called; all of it in the rail's thread, under rail->lock ---- */

static struct ofi_endpoint *endpoint_with(struct ofi_domain *domain, const unsigned char *cookie)
{
	for (size_t i = 0; i < domain->endpoints.count; i++) {
		struct ofi_endpoint *endpoint = domain->endpoints.items[i];
		unsigned char differ = 0;

		for (int b = 0; endpoint && b < OFI_COOKIE_BYTES; b++)
			differ |= endpoint->cookie[b] ^ cookie[b];
		if (endpoint && !differ)
			return endpoint;
	}
	return NULL;
}

/* The lane that is called, now on this rail; NULL: nobody's, closed, or taken. */
static struct ofi_lane *take_lane(struct ofi_rail *rail, const struct request *request,
				  bool *connected)
{
	struct ofi_domain *domain = rail->domain;
	struct ofi_lane *lane = NULL;
	struct ofi_endpoint *endpoint;

	if (request->magic != REQUEST_MAGIC)
		return NULL;
	pthread_mutex_lock(&domain->lock);
	endpoint = endpoint_with(domain, request->cookie);
	if (endpoint && !endpoint->closing && request->lane < endpoint->lane_count &&
	    request->rail < OFI_RAILS_MAX)
		lane = &endpoint->lanes[request->lane];
	if (lane && (lane->state != OFI_LANE_IDLE || calls(endpoint)))
		lane = NULL;
	if (lane) {
		*connected = endpoint->connected;
		lane->state = OFI_LANE_CALLED;
		lane->peer_rail = request->rail;
		lane->rail = rail;
	}
	pthread_mutex_unlock(&domain->lock);
	return lane;
}

static void describe_caller(struct ofi_lane *lane, const struct fi_info *info)
{
	struct ofi_address from = {0}, to = {0};
	char here[IP_TEXT_BYTES], there[IP_TEXT_BYTES];

	if (info->src_addr)
		ip_from_sockaddr(&to, info->src_addr, 0);
	if (info->dest_addr)
		ip_from_sockaddr(&from, info->dest_addr, 0);
	snprintf(lane->path, sizeof(lane->path), "%s %s from %s", lane->rail->interface.name,
		 ip_text(&to, here), ip_text(&from, there));
}

static void reject(struct ofi_rail *rail, struct fi_info *info)
{
	for (uint32_t i = 0; i < rail->listener_count; i++)
		if (fi_reject(rail->listeners[i].pep, info->handle, NULL, 0) == 0)
			break;
	rail->domain->calls->freeinfo(info);
}

static void refuse(struct ofi_rail *rail, struct fi_info *info)
{
	uint64_t count = atomic_fetch_add(&rail->strangers, 1) + 1;

	/* powers of two: whoever calls without end does not fill the log */
	if (!rail->closing && (count & (count - 1)) == 0)
		log_warn("tcp: %s refused %llu connection%s that came without what this job's "
			 "workers know",
			 rail->interface.name, (unsigned long long)count, count == 1 ? "" : "s");
	reject(rail, info);
}

static void forget(struct ofi_lane *lane)
{
	if (lane->call)
		reject(lane->rail, lane->call);
	lane->call = NULL;
}

/* Takes lane->call: this side has the peer's record. */
static void accept_call(struct ofi_lane *lane)
{
	struct ofi_rail *rail = lane->rail;
	struct fi_info *info = lane->call;
	struct error why = {0};
	int rc;

	lane->call = NULL;
	describe_caller(lane, info);
	rc = ofi_lane_open(lane, info, &why);
	if (!rc) {
		pthread_mutex_lock(&rail->domain->lock);
		lane->state = OFI_LANE_CONNECTING;
		pthread_mutex_unlock(&rail->domain->lock);
		if (fi_accept(lane->ep, NULL, 0))
			rc = -1;
	}
	if (rc) {
		log_warn("tcp: a stream from %s cannot be taken: %s", lane->endpoint->shared->name,
			 why.text[0] ? why.text : "it was gone at once");
		ofi_lane_lost(lane, FI_ESHUTDOWN);
	}
	rail->domain->calls->freeinfo(info);
}

static void on_request(struct ofi_rail *rail, const struct fi_eq_cm_entry *entry, size_t bytes)
{
	struct request request = {0};
	struct ofi_lane *lane;
	bool connected;

	if (bytes >= sizeof(request))
		memcpy(&request, entry->data, sizeof(request));
	lane = take_lane(rail, &request, &connected);
	if (!lane) {
		refuse(rail, entry->info);
		return;
	}
	lane->call = entry->info;
	if (connected)
		accept_call(lane);
}

static void on_connected(struct ofi_rail *rail, struct fid *fid)
{
	struct ofi_lane *lane = fid->context;

	pthread_mutex_lock(&rail->domain->lock);
	if (lane->state == OFI_LANE_CONNECTING)
		lane->state = OFI_LANE_READY;
	pthread_mutex_unlock(&rail->domain->lock);
}

static void accept_calls(struct ofi_endpoint *endpoint)
{
	ofi_each_lane(lane, endpoint) {
		struct ofi_rail *rail = lane->rail;

		if (!rail)
			continue;
		pthread_mutex_lock(&rail->lock);
		if (lane->call)
			accept_call(lane);
		pthread_mutex_unlock(&rail->lock);
	}
}

static int endpoint_connect(struct ofi_endpoint *endpoint, struct error *error)
{
	uint32_t used = ofi_lanes_used(endpoint);
	int rc = 0;

	accept_calls(endpoint);
	for (uint32_t i = 0; calls(endpoint) && i < used && !rc; i++)
		rc = call_lane(&endpoint->lanes[i], error);
	return rc;
}

static void on_error(struct ofi_rail *rail)
{
	struct fi_eq_err_entry entry = {0};

	if (fi_eq_readerr(rail->eq, &entry, 0) != sizeof(entry) || !entry.fid ||
	    entry.fid->fclass != FI_CLASS_EP)
		return;
	ofi_lane_lost(entry.fid->context, entry.err ? entry.err : FI_ESHUTDOWN);
}

static void events(struct ofi_rail *rail)
{
	unsigned char room[sizeof(struct fi_eq_cm_entry) + 256];
	struct fi_eq_cm_entry *entry = (void *)room;
	uint32_t event;

	for (;;) {
		ssize_t n = fi_eq_read(rail->eq, &event, room, sizeof(room), 0);

		if (n == -FI_EAVAIL) {
			on_error(rail);
			continue;
		}
		if (n < (ssize_t)sizeof(*entry))
			return;
		if (event == FI_CONNREQ)
			on_request(rail, entry, (size_t)n - sizeof(*entry));
		else if (event == FI_CONNECTED)
			on_connected(rail, entry->fid);
		else if (event == FI_SHUTDOWN)
			ofi_lane_lost(entry->fid->context, FI_ESHUTDOWN);
	}
}

const struct ofi_way ofi_connect_way = {
	.type = FI_EP_MSG,
	.stream = true,
	.interfaces = interfaces,
	.info = rail_info,
	.listen = rail_listen,
	.open = endpoint_open,
	.describe = describe,
	.connect = endpoint_connect,
	.forget = forget,
	.events = events,
};
