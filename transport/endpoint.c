/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint.c -- the life of an endpoint: open, connected, broken for good, closed.
 */
#include "transport/provider.h"

#include "base/clock.h"
#include "base/memory.h"
#include "transport/import.h"
#include "transport/several/several.h"
#include <stdio.h>

#define ALIVE_EVERY_NS 10000000u

int endpoint_usable(const struct transport_endpoint *endpoint, struct error *error)
{
	if (domain_forked(endpoint->domain))
		return domain_check_process(endpoint->domain, error);
	if (endpoint->stage == ENDPOINT_CONNECTED)
		return 0;
	if (endpoint->stage == ENDPOINT_OPEN)
		return error_set(error, ERROR_STATE, "the endpoint to %s is not connected yet",
				 endpoint->name);
	return error_copy(error, &endpoint->first);
}

int endpoint_break(struct transport_endpoint *endpoint, const struct error *failure,
		   struct error *error)
{
	if (endpoint->stage != ENDPOINT_BROKEN) {
		endpoint->first = *failure;
		endpoint->stage = ENDPOINT_BROKEN;
		endpoint->domain->ops.endpoint_abort(endpoint);
	}
	return error_copy(error, &endpoint->first);
}

int endpoint_check_peer(struct transport_endpoint *endpoint, bool now, struct error *error)
{
	uint64_t at = clock_ns();

	if (!now && at - endpoint->alive_at_ns < ALIVE_EVERY_NS)
		return 0;
	if (endpoint->domain->ops.peer_dead(endpoint)) {
		if (now || endpoint->dead_seen)
			return error_set(error, ERROR_PEER_LOST, "the process of %s has died",
					 endpoint->name);
		/* what it had said before that, the caller's next poll tells */
		endpoint->dead_seen = true;
		endpoint->alive_at_ns = 0;
		return 0;
	}
	if (endpoint->left && endpoint->left(endpoint->left_context))
		return error_set(error, ERROR_PEER_LOST, "%s has left", endpoint->name);
	endpoint->alive_at_ns = at;
	return 0;
}

void transport_endpoint_ask_left(struct transport_endpoint *endpoint,
				 bool (*left)(const void *context), const void *context)
{
	endpoint->left = left;
	endpoint->left_context = context;
}

int transport_endpoint_open(struct transport_domain *domain, struct member peer,
			    const char *peer_name, struct transport_endpoint **out,
			    struct error *error)
{
	struct transport_endpoint *endpoint;
	char member[MEMBER_TEXT_BYTES];
	int rc = domain_check_process(domain, error);

	*out = NULL;
	if (rc)
		return rc;
	domain = several_member(domain, 0);
	if ((unsigned)peer.role >= ROLE_COUNT)
		return error_set(error, ERROR_USAGE, "an endpoint to role %d; known are 0..%d",
				 (int)peer.role, ROLE_COUNT - 1);
	endpoint = memory_zalloc(1, sizeof(*endpoint));
	if (!endpoint)
		return memory_error(error, "opening an endpoint", sizeof(*endpoint));
	endpoint->domain = domain;
	endpoint->peer = peer;
	snprintf(endpoint->name, sizeof(endpoint->name), "%s",
		 peer_name && *peer_name ? peer_name : member_text(peer, member));
	rc = flow_init(&endpoint->flow, domain->caps.inflight_max, error);
	if (!rc)
		rc = domain->ops.endpoint_open(endpoint, error);
	if (rc) {
		flow_fini(&endpoint->flow);
		memory_free(endpoint);
		return rc;
	}
	domain->children++;
	*out = endpoint;
	return 0;
}

int transport_endpoint_record(const struct transport_endpoint *endpoint,
			      unsigned char record[TRANSPORT_RECORD_BYTES], size_t *length,
			      struct error *error)
{
	const struct transport_domain *domain = endpoint->domain;
	const struct record_head head = {.kind = RECORD_ENDPOINT, .peer = endpoint->peer};
	struct record_writer writer;
	int rc = export_begin(domain, record, &head, &writer, error);

	if (!rc)
		rc = domain->ops.endpoint_record(endpoint, &writer, error);
	return rc ? rc : record_finish(&writer, length, error);
}

/* A refused record has moved nothing, so another may be tried; a path that cannot be
 * probed breaks the endpoint like any failure. */
int transport_endpoint_connect(struct transport_endpoint *endpoint, const void *record,
			       size_t length, uint64_t deadline_ns, struct error *error)
{
	struct record_reader reader;
	struct record_head head;
	struct error failure = {0};
	int rc = domain_check_process(endpoint->domain, error);

	if (rc)
		return rc;
	if (endpoint->stage == ENDPOINT_CONNECTED)
		return error_set(error, ERROR_STATE, "the endpoint to %s is connected already",
				 endpoint->name);
	if (endpoint->stage == ENDPOINT_BROKEN)
		return endpoint_usable(endpoint, error);
	rc = import_open(endpoint, RECORD_ENDPOINT, record, length, &reader, &head, &failure);
	if (!rc)
		rc = endpoint->domain->ops.endpoint_connect(endpoint, &reader, deadline_ns,
							    &failure);
	if (rc) {
		error_wrap(&failure, "connecting to %s", endpoint->name);
		return failure.code == ERROR_MESSAGE ? error_copy(error, &failure)
						     : endpoint_break(endpoint, &failure, error);
	}
	endpoint->stage = ENDPOINT_CONNECTED;
	endpoint->alive_at_ns = clock_ns();
	return 0;
}

int transport_endpoint_probe(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			     struct error *error)
{
	struct error failure = {0};
	int rc = endpoint_usable(endpoint, error);

	if (rc)
		return rc;
	rc = endpoint->domain->ops.endpoint_probe(endpoint, deadline_ns, &failure);
	if (rc) {
		error_wrap(&failure, "probing the path to %s", endpoint->name);
		return endpoint_break(endpoint, &failure, error);
	}
	return 0;
}

bool transport_endpoint_whole(const struct transport_endpoint *endpoint)
{
	/* a signal that is on its way would be heard of by whoever uses the endpoint next */
	bool says = endpoint->signal_posted && endpoint->flow.inflight;

	return endpoint->stage == ENDPOINT_CONNECTED && !atomic_load(&endpoint->impaired) && !says;
}

void transport_endpoint_guest(struct transport_endpoint *endpoint)
{
	endpoint->guest = true;
}

const char *transport_endpoint_path(const struct transport_endpoint *endpoint)
{
	return endpoint->path;
}

/* Works on a broken endpoint too: that is when it is needed. A deadline that passed
 * leaves the endpoint as it was, so that the fence can be asked for again. */
static int end_posts(struct transport_endpoint *endpoint, int rc, const char *doing,
		     struct error *error)
{
	struct error fenced = {0};

	if (rc) {
		error_wrap(error, "%s %s", doing, endpoint->name);
		return rc;
	}
	error_set(&fenced, ERROR_STATE, "the endpoint to %s was fenced: only close is left",
		  endpoint->name);
	endpoint_break(endpoint, &fenced, NULL);
	return 0;
}

int transport_endpoint_fence(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			     struct error *error)
{
	int rc = endpoint->domain->ops.endpoint_fence(endpoint, deadline_ns, error);

	return end_posts(endpoint, rc, "fencing", error);
}

int transport_endpoint_stop(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			    struct error *error)
{
	int rc = endpoint->domain->ops.endpoint_stop(endpoint, deadline_ns, error);

	return end_posts(endpoint, rc, "stopping", error);
}

void transport_endpoint_close(struct transport_endpoint **endpoint)
{
	struct transport_endpoint *old = *endpoint;

	if (!old)
		return;
	*endpoint = NULL;
	while (old->remotes)
		import_detach(old->remotes);
	old->domain->ops.endpoint_close(old);
	old->domain->children--;
	flow_fini(&old->flow);
	memory_free(old);
}

bool transport_peer_dead(const struct transport_endpoint *endpoint)
{
	return endpoint->domain->ops.peer_dead(endpoint);
}

const struct transport_domain *transport_endpoint_domain(const struct transport_endpoint *endpoint)
{
	return endpoint->domain;
}

const struct transport_caps *transport_endpoint_caps(const struct transport_endpoint *endpoint)
{
	return &endpoint->domain->caps;
}

const struct transport_stats *transport_endpoint_stats(const struct transport_endpoint *endpoint)
{
	return &endpoint->stats;
}
