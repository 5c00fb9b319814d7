/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/epoch.h"

#include "base/assert.h"
#include "base/memory.h"

#define DEFAULT_UPDATE_MS 60000u
#define FENCE_MS	  5000u /* of peers that stay, when this worker fails */

int epoch_open(struct epoch **out, const struct epoch_options *options,
	       const struct message_plan *plan, struct kept_links *links,
	       struct message_endpoints *endpoints, struct error *error)
{
	struct epoch *epoch = memory_zalloc(1, sizeof(*epoch));
	int rc;

	*out = NULL;
	if (!epoch)
		return memory_error(error, "opening endpoints", sizeof(*epoch));
	epoch->options = *options;
	epoch->own_plan = *plan;
	epoch->plan = &epoch->own_plan;
	epoch->sums = plan->checksums;
	epoch->holders = 1;
	epoch->wait_ms = options->update_timeout_ms ? options->update_timeout_ms
			 : plan->update_timeout_ms  ? plan->update_timeout_ms
						    : DEFAULT_UPDATE_MS;
	rc = peers_open(epoch, links, endpoints, error);
	if (rc && epoch->kept_count && options->self.role == ROLE_INFERENCE)
		epoch_fence(epoch, FENCE_MS);
	if (rc)
		epoch_release(&epoch);
	*out = epoch;
	return rc;
}

int epoch_resolve(struct epoch *epoch, struct error *error)
{
	int rc;

	if (epoch->options.self.role == ROLE_INFERENCE)
		return receive_plan_open(&epoch->receive, epoch, error);
	rc = send_plan_open(&epoch->send, epoch, error);
	return rc ? rc : stand_in_open(epoch, error);
}

struct epoch *epoch_hold(struct epoch *epoch)
{
	epoch->holders++;
	return epoch;
}

void epoch_release(struct epoch **where)
{
	struct epoch *epoch = *where;

	*where = NULL;
	if (!epoch)
		return;
	WEFT_ASSERT_OP(epoch->holders, >, 0);
	if (--epoch->holders)
		return;
	if (epoch->options.device && !device_closes(epoch->options.device))
		return; /* kernels may write into memory of ours, and of peers: all of it stays */
	stand_in_close(epoch);
	send_plan_close(&epoch->send);
	peers_close(epoch);
	receive_plan_close(&epoch->receive);
	memory_free(epoch);
}

void peer_figures(const struct peer *peer, uint64_t *writes, uint64_t *chunks)
{
	const struct transport_stats *stats;

	if (!peer->endpoint)
		return;
	stats = transport_endpoint_stats(peer->endpoint);
	*writes += stats->writes - peer->writes_before;
	*chunks += stats->chunks - peer->chunks_before;
}

int peer_progress(const struct peer *peer, uint64_t *done, struct error *error)
{
	int rc = transport_progress(peer->endpoint, done, error);

	*done = *done > peer->writes_before ? *done - peer->writes_before : 0;
	return rc;
}
