/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint.c -- one peer: open, record, connect, probe, fence, close.
 */
#include "transport/ofi/way.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/ofi/ip.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SAY_NS	     2000000000ull  /* after so long that a path is not there is said, */
#define SAY_AGAIN_NS 15000000000ull /* and so often again */

/* ---- the table that data of remote writes points into ---- */

static int take_index(struct ofi_endpoint *endpoint, struct error *error)
{
	struct ofi_domain *domain = endpoint->domain;
	size_t index = 0;
	int rc = 0;

	pthread_mutex_lock(&domain->lock);
	while (index < domain->endpoints.count && domain->endpoints.items[index])
		index++;
	if (index > UINT16_MAX)
		rc = error_set(error, ERROR_LIMIT, "more than %u peers of one process",
			       UINT16_MAX + 1);
	else if (index == domain->endpoints.count && !array_add(&domain->endpoints, NULL))
		rc = memory_error(error, "opening an endpoint", sizeof(void *));
	if (!rc) {
		domain->endpoints.items[index] = endpoint;
		endpoint->index = (uint32_t)index;
		endpoint->data = (uint32_t)index << 16 | (domain->generation++ & 0xfff) << 4;
	}
	pthread_mutex_unlock(&domain->lock);
	return rc;
}

static void give_index(struct ofi_endpoint *endpoint)
{
	struct ofi_domain *domain = endpoint->domain;

	pthread_mutex_lock(&domain->lock);
	if (endpoint->index < domain->endpoints.count &&
	    domain->endpoints.items[endpoint->index] == endpoint)
		domain->endpoints.items[endpoint->index] = NULL;
	pthread_mutex_unlock(&domain->lock);
}

/* ---- open, close ---- */

static int make_messages(struct ofi_endpoint *ofi, struct error *error)
{
	uint64_t bytes = (uint64_t)ofi->lane_count * OFI_MESSAGES * sizeof(struct ofi_message);
	uint64_t key, base;
	int rc = pages_map(&ofi->messages, bytes, ofi->domain->name, error);

	ofi_each_rail(rail, ofi->domain) {
		if (rc || !ofi_rail_needs_local(rail))
			break;
		rc = ofi_rail_register(rail, ofi->messages.memory, bytes, FI_SEND | FI_RECV,
				       &ofi->message_mrs[rail->index], &key, &base, error);
		if (!rc)
			ofi->message_descs[rail->index] = fi_mr_desc(ofi->message_mrs[rail->index]);
	}
	return rc;
}

static int make_ops(struct ofi_endpoint *ofi, struct error *error)
{
	uint32_t count = ofi->shared->domain->caps.inflight_max;

	ofi->op_count = OFI_HELD * ofi->domain->settings.depth;
	ofi->done_capacity = count + 1; /* a signal */
	ofi->ops = memory_zalloc((size_t)ofi->lane_count * ofi->op_count, sizeof(*ofi->ops));
	ofi->done = memory_zalloc(ofi->done_capacity, sizeof(*ofi->done));
	if (!ofi->ops || !ofi->done)
		return memory_error(error, "opening an endpoint", count * sizeof(*ofi->ops));
	ofi_each_lane(lane, ofi)
		lane->ops = &ofi->ops[lane->index * ofi->op_count];
	return 0;
}

/* A forked child frees its copies of our memory only: streams are its parent's. */
static void destroy(struct ofi_endpoint *ofi, bool own)
{
	if (own) {
		ofi_lanes_close(ofi);
		give_index(ofi);
		for (uint32_t i = 0; i < OFI_RAILS_MAX; i++)
			if (ofi->message_mrs[i])
				fi_close(&ofi->message_mrs[i]->fid);
		pages_unmap(&ofi->messages);
	}
	if (ofi->pidfd >= 0)
		close(ofi->pidfd);
	memory_free(ofi->ops);
	memory_free(ofi->done);
	memory_free(ofi);
}

int ofi_endpoint_open(struct transport_endpoint *endpoint, struct error *error)
{
	struct ofi_domain *domain = endpoint->domain->state;
	struct ofi_endpoint *ofi = memory_zalloc(1, sizeof(*ofi));
	int rc;

	if (!ofi)
		return memory_error(error, "opening an endpoint", sizeof(*ofi));
	ofi->shared = endpoint;
	ofi->domain = domain;
	ofi->pidfd = -1;
	ofi->index = UINT32_MAX;
	ofi->lane_count = domain->rail_count;
	mailbox_clear(&ofi->slot);
	for (uint32_t i = 0; i < ofi->lane_count; i++) {
		ofi->lanes[i].endpoint = ofi;
		ofi->lanes[i].index = i;
		ofi->lanes[i].address = FI_ADDR_UNSPEC;
	}
	rc = identity_random(ofi->cookie, sizeof(ofi->cookie), domain->name, error);
	if (!rc)
		rc = make_messages(ofi, error);
	if (!rc)
		rc = make_ops(ofi, error);
	if (!rc)
		rc = take_index(ofi, error);
	if (!rc)
		rc = domain->way->open(ofi, error);
	if (rc) {
		destroy(ofi, true);
		return rc;
	}
	endpoint->state = ofi;
	return 0;
}

void ofi_endpoint_close(struct transport_endpoint *endpoint)
{
	destroy(endpoint->state, getpid() == endpoint->domain->pid);
}

/* ---- records ---- */

int ofi_endpoint_record(const struct transport_endpoint *endpoint, struct record_writer *writer,
			struct error *error)
{
	struct ofi_endpoint *ofi = endpoint->state;
	const struct ofi_domain *domain = ofi->domain;
	struct ofi_endpoint_record record = {.identity = domain->self,
					     .nonce = domain->nonce,
					     .data = ofi->data,
					     .rail_count = domain->rail_count};
	int rc;

	if (ofi->closing)
		return error_set(error, ERROR_STATE,
				 "the endpoint to %s was fenced: only close is left",
				 endpoint->name);
	memcpy(record.cookie, ofi->cookie, sizeof(record.cookie));
	for (uint32_t i = 0; i < domain->rail_count; i++) {
		const struct ofi_rail *rail = &domain->rails[i];

		memcpy(record.rails[i].name, rail->interface.name, sizeof(rail->interface.name));
		record.rails[i].probe_key = rail->probe_key;
		record.rails[i].probe_base = rail->probe_base;
	}
	rc = domain->way->describe(ofi, &record, error);
	if (!rc)
		ofi_endpoint_record_put(writer, &record);
	return rc;
}

static bool comparable(const struct ofi_endpoint *ofi)
{
	return !ofi->domain->no_identity &&
	       identity_comparable(&ofi->peer.identity, &ofi->domain->self);
}

static int check_regions(const struct ofi_endpoint *ofi, const struct transport_remote *remotes,
			 uint64_t nonce, struct error *error)
{
	for (const struct transport_remote *remote = remotes; remote; remote = remote->next) {
		const struct ofi_region_record *region = remote->state;

		if (region->nonce != nonce)
			return error_set(error, ERROR_MESSAGE,
					 "a region imported before is of another process of %s: "
					 "exchange records again",
					 ofi->shared->name);
	}
	return 0;
}

int ofi_endpoint_connect(struct transport_endpoint *endpoint, struct record_reader *reader,
			 uint64_t deadline_ns, struct error *error)
{
	struct ofi_endpoint *ofi = endpoint->state;
	struct ofi_endpoint_record *record = memory_zalloc(1, sizeof(*record));
	int rc;

	(void)deadline_ns; /* nothing here waits for the peer: the probe does */
	if (!record)
		return memory_error(error, "connecting", sizeof(*record));
	rc = ofi_endpoint_record_get(reader, record, error);
	if (!rc)
		rc = check_regions(ofi, endpoint->remotes, record->nonce, error);
	if (!rc) {
		pthread_mutex_lock(&ofi->domain->lock); /* a thread may be taking a lane */
		ofi->peer = *record;
		ofi->connected = true;
		pthread_mutex_unlock(&ofi->domain->lock);
	}
	memory_free(record);
	if (rc)
		return rc;
	if (comparable(ofi)) {
		if (process_dead(ofi->peer.identity.pid, ofi->peer.identity.start))
			return error_set(error, ERROR_PEER_LOST,
					 "process %llu that made the record has ended",
					 (unsigned long long)ofi->peer.identity.pid);
		ofi->pidfd = process_open(ofi->peer.identity.pid, ofi->peer.identity.start);
	}
	return ofi->domain->way->connect(ofi, error);
}

/* ---- probe ---- */

/* 0 when every lane in use is ready, 1 while one is not yet. Under domain->lock. */
static int lanes_ready_locked(struct ofi_endpoint *ofi, struct error *error)
{
	uint32_t used = ofi_lanes_used(ofi);
	int rc = 0;

	for (uint32_t i = 0; i < used && rc >= 0; i++) {
		if (ofi->lanes[i].state == OFI_LANE_DEAD)
			rc = ofi_lane_error(error, &ofi->lanes[i], ofi->lanes[i].lost_errnum);
		else if (ofi->lanes[i].state != OFI_LANE_READY)
			rc = 1;
	}
	return rc;
}

static int lanes_ready(struct ofi_endpoint *ofi, struct error *error)
{
	int rc;

	pthread_mutex_lock(&ofi->domain->lock);
	rc = lanes_ready_locked(ofi, error);
	pthread_mutex_unlock(&ofi->domain->lock);
	return rc;
}

/* Where the peer has to call: it may take any interface of this side. */
static const char *listening_at(const struct ofi_endpoint *ofi, char *out, size_t size)
{
	char address[IP_TEXT_BYTES];
	size_t at = 0;

	snprintf(out, size, "nowhere");
	ofi_each_rail(rail, ofi->domain)
		for (uint32_t i = 0; i < rail->listener_count && at < size; i++)
			at += (size_t)snprintf(out + at, size - at, "%s%s %s", at ? ", " : "",
					       rail->interface.name,
					       ip_text(&rail->listeners[i].address, address));
	return out;
}

static int not_ready(struct ofi_endpoint *ofi, struct error *error)
{
	uint32_t used = ofi_lanes_used(ofi), ready = 0;
	const char *path = "";
	char here[384];

	for (uint32_t i = 0; i < used; i++) {
		if (atomic_load(&ofi->lanes[i].state) == OFI_LANE_READY)
			ready++;
		else if (ofi->lanes[i].path[0])
			path = ofi->lanes[i].path;
	}
	if (path[0])
		return error_wrap(error,
				  "%u of %u streams are not connected (%s): the other side does "
				  "not answer, or a firewall drops packets (WEFT_TCP_PORTS names "
				  "the ports to open)",
				  used - ready, used, path);
	return error_wrap(error,
			  "%u of %u streams are not connected: %s has not called here (%s), or a "
			  "firewall drops its packets (WEFT_TCP_PORTS names the ports to open)",
			  used - ready, used, ofi->shared->name,
			  listening_at(ofi, here, sizeof(here)));
}

static int probes_passed(struct ofi_endpoint *ofi, struct error *error)
{
	uint32_t used = ofi_lanes_used(ofi);
	int rc = 0;

	for (uint32_t i = 0; i < used && !rc; i++)
		rc = ofi_lane_probe(&ofi->lanes[i], error);
	if (rc)
		return rc;
	pthread_mutex_lock(&ofi->domain->lock);
	if (ofi->failure.code)
		rc = error_copy(error, &ofi->failure);
	else if (ofi->probes_left)
		rc = lanes_ready_locked(ofi,
					error); /* a lane that is lost meanwhile keeps its own */
	if (!rc && ofi->probes_left)
		rc = 1;
	pthread_mutex_unlock(&ofi->domain->lock);
	return rc;
}

static void progress(struct ofi_endpoint *ofi)
{
	ofi_each_lane(lane, ofi)
		if (lane->rail)
			ofi_rail_progress(lane->rail);
}

/* Whoever looks at the log of a job that does not begin to run sees what it waits for before the deadline. */
static void say_missing(struct ofi_endpoint *ofi,
			int (*missing)(struct ofi_endpoint *, struct error *), uint64_t began_ns,
			uint64_t *due_ns)
{
	uint64_t now = clock_ns();
	struct error why;

	if (now < *due_ns)
		return;
	*due_ns = now + SAY_AGAIN_NS;
	error_set(&why, ERROR_TIMEOUT, "for %.1f s", (double)(now - began_ns) / 1e9);
	missing(ofi, &why);
	log_warn("still connecting to %s: %s", ofi->shared->name, why.text);
}

/* Until `look` says 0, or fails. */
static int wait_for(struct ofi_endpoint *ofi, int (*look)(struct ofi_endpoint *, struct error *),
		    int (*missing)(struct ofi_endpoint *, struct error *), uint64_t deadline_ns,
		    struct error *error)
{
	struct transport_wait wait;
	uint64_t began_ns = clock_ns(), due_ns = began_ns + SAY_NS;

	wait_begin(&wait, ofi->shared->domain, deadline_ns);
	for (;;) {
		int rc;

		progress(ofi);
		rc = look(ofi, error);
		if (rc <= 0)
			return rc;
		say_missing(ofi, missing, began_ns, &due_ns);
		if (wait_looks(&wait) && ofi_peer_dead(ofi->shared))
			return error_set(error, ERROR_PEER_LOST, "the process of %s has died",
					 ofi->shared->name);
		rc = wait_turn(&wait, error);
		if (rc)
			return missing(ofi, error);
	}
}

static int probe_missing(struct ofi_endpoint *ofi, struct error *error)
{
	uint32_t left;

	pthread_mutex_lock(&ofi->domain->lock);
	left = ofi->probes_left;
	pthread_mutex_unlock(&ofi->domain->lock);
	return error_wrap(error,
			  "the streams are connected, but %u of %u probes (%u KiB each) are not "
			  "through: something on the way drops large packets (look at MTUs)",
			  left, 2 * ofi_lanes_used(ofi), OFI_PROBE_BYTES / 1024);
}

/* One stream of each interface: they differ in ports alone. */
static void tell_path(struct transport_endpoint *endpoint)
{
	const struct ofi_endpoint *ofi = endpoint->state;
	const struct ofi_rail *told = NULL;
	struct text text = {0};

	text_format(&text, "%s", ofi->domain->name);
	for (uint32_t i = 0; i < ofi_lanes_used(ofi); i++) {
		const struct ofi_rail *rail = ofi->lanes[i].rail;

		/* neighbours are on different interfaces, and after the last comes the first again */
		if (!rail || (told && !strcmp(told->interface.name, rail->interface.name)))
			break;
		text_format(&text, ", %s", ofi->lanes[i].path);
		told = told ? told : rail;
	}
	snprintf(endpoint->path, sizeof(endpoint->path), "%s", text_string(&text));
	text_fini(&text);
}

int ofi_endpoint_probe(struct transport_endpoint *endpoint, uint64_t deadline_ns,
		       struct error *error)
{
	struct ofi_endpoint *ofi = endpoint->state;
	uint32_t used = ofi_lanes_used(ofi);
	int rc = wait_for(ofi, lanes_ready, not_ready, deadline_ns, error);

	pthread_mutex_lock(&ofi->domain->lock);
	ofi->probes_left = 2 * used;
	pthread_mutex_unlock(&ofi->domain->lock);
	for (uint32_t i = 0; i < used; i++)
		ofi->lanes[i].probe = OFI_PROBE_TO_WRITE;
	if (!rc)
		rc = wait_for(ofi, probes_passed, probe_missing, deadline_ns, error);
	if (!rc)
		tell_path(endpoint);
	return rc;
}

/* ---- end ---- */

void ofi_endpoint_abort(struct transport_endpoint *endpoint)
{
	if (getpid() == endpoint->domain->pid)
		ofi_lanes_close(endpoint->state);
}

/* Needs nobody: what the peer still sends has no stream to come by. */
int ofi_endpoint_fence(struct transport_endpoint *endpoint, uint64_t deadline_ns,
		       struct error *error)
{
	int rc = domain_check_process(endpoint->domain, error);

	(void)deadline_ns;
	if (!rc)
		ofi_lanes_close(endpoint->state);
	return rc;
}

/* All that a process has sent before its end is here, but perhaps not read: a rail's thread that was not let run may have been about
 * to, and has turned the owner's look away. */
static void read_to_the_end(const struct ofi_endpoint *ofi)
{
	for (uint32_t i = 0; i < ofi->lane_count; i++) {
		struct ofi_rail *rail = ofi->lanes[i].rail;

		if (!rail)
			continue;
		pthread_mutex_lock(&rail->lock);
		ofi_rail_drain(rail);
		pthread_mutex_unlock(&rail->lock);
	}
}

bool ofi_peer_dead(const struct transport_endpoint *endpoint)
{
	const struct ofi_endpoint *ofi = endpoint->state;

	if (!ofi->connected || !comparable(ofi))
		return false;
	if (ofi->pidfd >= 0 ? !process_fd_dead(ofi->pidfd)
			    : !process_dead(ofi->peer.identity.pid, ofi->peer.identity.start))
		return false;
	read_to_the_end(ofi);
	return true;
}
