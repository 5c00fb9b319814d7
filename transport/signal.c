/* SPDX-License-Identifier: Apache-2.0
 *
 * signal.c -- what says "everything before me is there".
 *
 * It returns when the signal itself is complete, so 0 means that the target holds it: a
 * trainer that then leaves takes nothing with it.
 */
#include "transport/provider.h"

#include <string.h>

static int post(struct transport_endpoint *endpoint, const struct transport_signal *signal,
		struct transport_wait *wait, struct error *failure)
{
	struct flow *flow = &endpoint->flow;

	for (;;) {
		int rc = endpoint_poll(endpoint, failure);

		if (!rc && flow_room(flow)) {
			rc = endpoint->domain->ops.post_signal(endpoint, flow->next, signal,
							       failure);
			if (rc == 0) {
				flow_add(flow, 0, 0);
				return 0;
			}
			if (rc > 0)
				rc = 0;
		}
		endpoint->stats.retries++;
		if (!rc)
			rc = endpoint_check_peer(endpoint, false, failure);
		if (!rc)
			rc = wait_turn(wait, failure);
		if (rc)
			return error_wrap(failure, "signalling %s", endpoint->name), rc;
	}
}

static int send(struct transport_endpoint *endpoint, struct transport_signal *signal,
		uint64_t deadline_ns, struct error *failure)
{
	const struct transport_domain *domain = endpoint->domain;
	struct transport_wait wait;
	int rc = endpoint_check_peer(endpoint, true, failure);

	if (rc)
		return error_wrap(failure, "signalling %s", endpoint->name), rc;
	wait_begin(&wait, endpoint->domain, deadline_ns);
	if (!domain->caps.ordered || endpoint->signal_posted)
		rc = endpoint_drain(endpoint, "flushing to", &wait, failure);
	if (!rc)
		rc = domain->ops.settle(endpoint, failure);
	signal->sequence = endpoint->sequence + 1;
	if (!rc)
		rc = post(endpoint, signal, &wait, failure);
	return rc ? rc : endpoint_drain(endpoint, "signalling", &wait, failure);
}

static int make(const struct transport_endpoint *endpoint, uint32_t tag, const void *payload,
		size_t length, struct transport_signal *signal, struct error *error)
{
	int rc = endpoint_usable(endpoint, error);

	*signal = (struct transport_signal){.tag = tag, .length = (uint32_t)length};
	if (rc)
		return rc;
	if (length > TRANSPORT_PAYLOAD_BYTES || (length && !payload))
		return error_set(error, ERROR_USAGE,
				 "signal to %s with a payload of %zu bytes at %p; at most %d fit",
				 endpoint->name, length, payload, TRANSPORT_PAYLOAD_BYTES);
	if (length)
		memcpy(signal->payload, payload, length);
	return 0;
}

static void count(struct transport_endpoint *endpoint, const struct transport_signal *signal,
		  bool posted)
{
	endpoint->sequence = signal->sequence;
	endpoint->stats.signals++;
	endpoint->signal_posted = posted;
}

int transport_signal(struct transport_endpoint *endpoint, uint32_t tag, const void *payload,
		     size_t length, uint64_t deadline_ns, struct error *error)
{
	struct transport_signal signal;
	struct error failure = {0};
	int rc = make(endpoint, tag, payload, length, &signal, error);

	if (rc)
		return rc;
	rc = send(endpoint, &signal, deadline_ns, &failure);
	if (rc)
		return endpoint_break(endpoint, &failure, error);
	count(endpoint, &signal, false);
	return 0;
}

/* The peer's slot has room for one signal, and so have a provider's own places for them. */
static int send_now(struct transport_endpoint *endpoint, struct transport_signal *signal,
		    struct error *failure)
{
	struct flow *flow = &endpoint->flow;
	int rc = endpoint_poll(endpoint, failure);

	if (!rc && flow->inflight)
		return 1;
	if (!rc)
		rc = endpoint->domain->ops.settle(endpoint, failure);
	signal->sequence = endpoint->sequence + 1;
	if (!rc)
		rc = endpoint->domain->ops.post_signal(endpoint, flow->next, signal, failure);
	if (!rc)
		flow_add(flow, 0, 0);
	return rc;
}

int transport_signal_post(struct transport_endpoint *endpoint, uint32_t tag, const void *payload,
			  size_t length, struct error *error)
{
	struct transport_signal signal;
	struct error failure = {0};
	int rc = make(endpoint, tag, payload, length, &signal, error);

	if (rc)
		return rc;
	rc = send_now(endpoint, &signal, &failure);
	if (rc < 0)
		return endpoint_break(endpoint, &failure, error);
	if (!rc)
		count(endpoint, &signal, true);
	return rc;
}

int transport_signal_read(const struct transport_endpoint *endpoint,
			  struct transport_signal *signal)
{
	return domain_forked(endpoint->domain)
		       ? 1
		       : endpoint->domain->ops.signal_read(endpoint, signal);
}
