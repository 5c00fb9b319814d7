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
	if (!domain->caps.ordered)
		rc = endpoint_drain(endpoint, "flushing to", &wait, failure);
	if (!rc)
		rc = domain->ops.settle(endpoint, failure);
	signal->sequence = endpoint->sequence + 1;
	if (!rc)
		rc = post(endpoint, signal, &wait, failure);
	return rc ? rc : endpoint_drain(endpoint, "signalling", &wait, failure);
}

int transport_signal(struct transport_endpoint *endpoint, uint32_t tag, const void *payload,
		     size_t length, uint64_t deadline_ns, struct error *error)
{
	struct transport_signal signal = {.tag = tag, .length = (uint32_t)length};
	struct error failure = {0};
	int rc = endpoint_usable(endpoint, error);

	if (rc)
		return rc;
	if (length > TRANSPORT_PAYLOAD_BYTES || (length && !payload))
		return error_set(error, ERROR_USAGE,
				 "signal to %s with a payload of %zu bytes at %p; at most %d fit",
				 endpoint->name, length, payload, TRANSPORT_PAYLOAD_BYTES);
	if (length)
		memcpy(signal.payload, payload, length);
	rc = send(endpoint, &signal, deadline_ns, &failure);
	if (rc)
		return endpoint_break(endpoint, &failure, error);
	endpoint->sequence = signal.sequence;
	endpoint->stats.signals++;
	return 0;
}

int transport_signal_read(const struct transport_endpoint *endpoint,
			  struct transport_signal *signal)
{
	return domain_forked(endpoint->domain)
		       ? 1
		       : endpoint->domain->ops.signal_read(endpoint, signal);
}
