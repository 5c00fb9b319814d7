/* SPDX-License-Identifier: Apache-2.0
 *
 * resolver.c -- asks the kernel which way a peer is reached:
 *
 *   rdma_resolve_addr ──► ADDR_RESOLVED: device, port, GIDs ──► rdma_resolve_route
 *                    └──► ADDR_ERROR                       ──► ROUTE_RESOLVED: MTU, hops, class
 *
 * Events come through the descriptor of the event channel, so both steps end at one deadline.
 *
 * A neighbour whose address is not known yet is asked for it by ARP, and the kernel looks at the
 * answer only when its own limit has passed. So that limit is a fraction of ours, and whoever
 * stayed silent is asked anew until our deadline:
 *
 *   try 1 ── ARP ?  (answered a moment later, nobody looks)  limit ──► "timed out"
 *   try 2 ── the neighbour is known: answered at once
 */
#include "transport/verbs/resolver.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CM_NODE	   "/dev/infiniband/rdma_cm"
#define TRIES	   4   /* at least, in the time that the caller gives */
#define TRY_MS_MAX 500 /* of one, in the kernel */

#define CALLS(X)                 \
	X(create_event_channel)  \
	X(destroy_event_channel) \
	X(create_id)             \
	X(destroy_id)            \
	X(resolve_addr)          \
	X(resolve_route)         \
	X(get_cm_event)          \
	X(ack_cm_event)

/* Opened by the first question, which weft doctor --peer alone asks: not every host has the library. */
static struct {
#define X(name) __typeof__(rdma_##name) *name;
	CALLS(X)
#undef X
} rdma;

static const struct library_row rows[] = {
#define X(name) {"rdma_" #name, "RDMACM_1.0", offsetof(__typeof__(rdma), name)},
	CALLS(X)
#undef X
};

static char failure[LIBRARY_WHY_BYTES + 64];
static bool opened;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
	char why[LIBRARY_WHY_BYTES];
	void *library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);

	opened = library_fill(library, rows, ARRAY_SIZE(rows), &rdma, why);
	snprintf(failure, sizeof(failure), "librdmacm cannot be opened: %s", why);
}

const char *resolver_missing(void)
{
	pthread_once(&once, open_library);
	return opened ? NULL : failure;
}

struct asking {
	char whom[384];	  /* "gpu7 (10.1.2.3)", or the address alone */
	char address[64]; /* of the host, as text */
	uint64_t deadline_ns;
	uint32_t timeout_ms;
	uint32_t try_ms; /* the kernel's limit for an address */
	bool silent;	 /* this try ended with its time, not with an answer */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
};

static void address_text(const struct sockaddr *address, char text[64])
{
	socklen_t bytes = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
							 : sizeof(struct sockaddr_in);

	if (getnameinfo(address, bytes, text, 64, NULL, 0, NI_NUMERICHOST) != 0)
		snprintf(text, 64, "?");
}

/* The node is the kernel's, so it comes before the library; that opens its node first, then every RDMA device. */
static int no_librdmacm(struct error *error, int errnum)
{
	if (access(CM_NODE, F_OK) != 0)
		return error_set(error, ERROR_UNSUPPORTED,
				 "librdmacm cannot be used: there is no " CM_NODE
				 "; modprobe rdma_ucm, and in a container add --device " CM_NODE);
	if (access(CM_NODE, R_OK | W_OK) != 0)
		return error_set_errno(error, ERROR_UNSUPPORTED, errno,
				       "librdmacm cannot be used: uid %u may not open " CM_NODE,
				       geteuid());
	if (resolver_missing())
		return error_set(error, ERROR_UNSUPPORTED, "%s; " RESOLVER_INSTALL,
				 resolver_missing());
	if (errnum == ENODEV || errnum == ENOENT || errnum == 0)
		return error_set(error, ERROR_UNSUPPORTED,
				 "librdmacm cannot be used: it found no RDMA device that it can "
				 "open; every device of /sys/class/infiniband needs its "
				 "/dev/infiniband/uverbs* here");
	return error_set_errno(error, ERROR_UNSUPPORTED, errnum, "librdmacm cannot be used");
}

static int refused(const struct asking *asking, struct error *error, int errnum, const char *step)
{
	switch (errnum) {
	case ENETUNREACH:
	case EHOSTUNREACH:
		return error_set(error, ERROR_TRANSPORT,
				 "no route from here to %s: check its address and this "
				 "host's routes (ip route get %s)",
				 asking->whom, asking->address);
	case ETIMEDOUT:
		return error_set(error, ERROR_TRANSPORT,
				 "nobody answers for %s within %u ms on the network that it is "
				 "routed to: the host is down, or the address belongs to another "
				 "subnet",
				 asking->whom, asking->timeout_ms);
	case ENODEV:
		return error_set(error, ERROR_UNSUPPORTED,
				 "no RDMA device on the route to %s: it leaves through an "
				 "interface without one (ip route get %s, rdma link)",
				 asking->whom, asking->address);
	case EADDRNOTAVAIL:
		return error_set(error, ERROR_CONFIG,
				 "the source address for %s is not one of this host", asking->whom);
	case 0:
		return error_set(error, ERROR_TRANSPORT,
				 "%s to %s failed, and librdmacm "
				 "does not say why",
				 step, asking->whom);
	default:
		return error_set_errno(error, ERROR_TRANSPORT, errnum, "%s to %s failed", step,
				       asking->whom);
	}
}

/* Waits for the answer to one step; anything but `wanted` is its failure. The kernel's "timed out"
 * and our waiting in vain are one answer. */
static int await(struct asking *asking, enum rdma_cm_event_type wanted, const char *step,
		 struct error *error)
{
	struct pollfd ready = {.fd = asking->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	for (;;) {
		int polled = poll(&ready, 1, clock_left_ms(asking->deadline_ns));

		if (polled < 0 && errno != EINTR)
			return error_set_errno(error, ERROR_IO, errno, "waiting for librdmacm");
		if (polled == 0) {
			asking->silent = true;
			return refused(asking, error, ETIMEDOUT, step);
		}
		if (polled < 0)
			continue;
		if (rdma.get_cm_event(asking->channel, &event) == 0)
			break;
		if (errno != EAGAIN && errno != EINTR)
			return error_set_errno(error, ERROR_IO, errno, "reading from librdmacm");
	}
	enum rdma_cm_event_type type = event->event;
	int status = event->status < 0 ? -event->status : event->status;

	rdma.ack_cm_event(event);
	if (type == wanted)
		return 0;
	if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
		status = ENODEV;
	asking->silent = status == ETIMEDOUT;
	return refused(asking, error, status, step);
}

static void take_address(const struct asking *asking, struct resolver_path *path)
{
	const struct rdma_addr *address = &asking->id->route.addr;

	snprintf(path->device, sizeof(path->device), "%s", asking->id->verbs->device->name);
	path->port = asking->id->port_num;
	memcpy(path->local_gid, address->addr.ibaddr.sgid.raw, sizeof(path->local_gid));
	memcpy(path->remote_gid, address->addr.ibaddr.dgid.raw, sizeof(path->remote_gid));
	address_text(&address->src_addr, path->source);
	address_text(&address->dst_addr, path->destination);
}

static void take_route(const struct asking *asking, struct resolver_path *path)
{
	const struct rdma_route *route = &asking->id->route;

	if (route->num_paths < 1 || !route->path_rec)
		return;
	path->mtu = route->path_rec->mtu >= IBV_MTU_256 && route->path_rec->mtu <= IBV_MTU_4096
			    ? 128u << route->path_rec->mtu
			    : 0;
	path->hop_limit = route->path_rec->hop_limit;
	path->traffic_class = route->path_rec->traffic_class;
	path->service_level = route->path_rec->sl;
	path->flow_label = be32toh(route->path_rec->flow_label);
}

static int ask(struct asking *asking, struct sockaddr *from, struct sockaddr *to,
	       struct resolver_path *path, struct error *error)
{
	if (rdma.resolve_addr(asking->id, from, to, (int)asking->try_ms) != 0)
		return refused(asking, error, errno, "resolving the address");
	int rc = await(asking, RDMA_CM_EVENT_ADDR_RESOLVED, "resolving the address", error);

	if (rc)
		return rc;
	if (!asking->id->verbs)
		return refused(asking, error, ENODEV, "resolving the address");
	take_address(asking, path);
	if (rdma.resolve_route(asking->id, clock_left_ms(asking->deadline_ns)) != 0)
		return refused(asking, error, errno, "resolving the route");
	rc = await(asking, RDMA_CM_EVENT_ROUTE_RESOLVED, "resolving the route", error);
	if (rc == 0)
		take_route(asking, path);
	return rc;
}

static int look_up(const char *name, const char *what, int flags, int family,
		   struct addrinfo **found, struct error *error)
{
	struct addrinfo hints = {
		.ai_flags = flags, .ai_family = family, .ai_socktype = SOCK_STREAM};
	int rc = getaddrinfo(name, NULL, &hints, found);

	if (rc == 0)
		return 0;
	*found = NULL;
	if (rc == EAI_SYSTEM)
		return error_set_errno(error, ERROR_IO, errno, "looking up %s '%s'", what, name);
	return error_set(error, ERROR_CONFIG, "%s '%s' is not known here: %s", what, name,
			 gai_strerror(rc));
}

static int ask_librdmacm(struct asking *asking, struct sockaddr *from, struct sockaddr *to,
			 struct resolver_path *path, struct error *error)
{
	int rc;

	if (resolver_missing())
		return no_librdmacm(error, 0);
	errno = 0;
	asking->channel = rdma.create_event_channel();
	if (!asking->channel)
		return no_librdmacm(error, errno);
	int flags = fcntl(asking->channel->fd, F_GETFL);

	if (flags < 0 || fcntl(asking->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
		rc = error_set_errno(error, ERROR_IO, errno, "preparing librdmacm's channel");
	else if (rdma.create_id(asking->channel, &asking->id, NULL, RDMA_PS_TCP) != 0)
		rc = no_librdmacm(error, errno);
	else
		rc = ask(asking, from, to, path, error);
	if (asking->id)
		rdma.destroy_id(asking->id);
	rdma.destroy_event_channel(asking->channel);
	return rc;
}

static void name_whom(struct asking *asking, const char *host, const struct addrinfo *to)
{
	address_text(to->ai_addr, asking->address);
	if (strcmp(host, asking->address) == 0)
		snprintf(asking->whom, sizeof(asking->whom), "%s", host);
	else
		snprintf(asking->whom, sizeof(asking->whom), "%.255s (%s)", host, asking->address);
}

/* A name may have several addresses: the first that is reached is the answer, else the first
 * address' error is. Those that stayed silent are asked in turn, so one takes no other's time. */
static int ask_each(struct asking *asking, const char *host, struct sockaddr *from,
		    const struct addrinfo *to, struct resolver_path *path, struct error *error)
{
	struct error later = {0};
	bool again;
	int first = 0;

	do {
		again = false;
		for (const struct addrinfo *at = to; at; at = at->ai_next) {
			name_whom(asking, host, at);
			asking->channel = NULL;
			asking->id = NULL;
			asking->silent = false;
			memset(path, 0, sizeof(*path));
			int rc = ask_librdmacm(asking, from, at->ai_addr, path,
					       first ? &later : error);

			if (rc == 0)
				return 0;
			first = first ? first : rc;
			again |= asking->silent;
		}
	} while (again && clock_left_ms(asking->deadline_ns) > 0);
	return first;
}

int resolver_resolve(const char *host, const char *source, uint32_t timeout_ms,
		     struct resolver_path *path, struct error *error)
{
	struct asking asking = {.timeout_ms = timeout_ms};
	struct addrinfo *to = NULL, *from = NULL;
	int rc = 0;

	memset(path, 0, sizeof(*path));
	asking.deadline_ns = clock_deadline_ns(timeout_ms);
	asking.try_ms = timeout_ms / TRIES < TRY_MS_MAX ? timeout_ms / TRIES : TRY_MS_MAX;
	if (source)
		rc = look_up(source, "source address", AI_NUMERICHOST, AF_UNSPEC, &from, error);
	if (!rc)
		rc = look_up(host, "host", 0, from ? from->ai_family : AF_UNSPEC, &to, error);
	if (!rc)
		rc = ask_each(&asking, host, from ? from->ai_addr : NULL, to, path, error);
	if (from)
		freeaddrinfo(from);
	if (to)
		freeaddrinfo(to);
	return rc;
}
