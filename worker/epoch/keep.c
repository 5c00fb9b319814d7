/* SPDX-License-Identifier: Apache-2.0
 *
 * keep.c -- endpoints that stay over a pause: taken out of the epoch that ends, with all that was imported by them, and put into
 * the next one.
 *
 *   epoch 4   trainer 0  trainer 1                     both sides of a pair were asked, and the plan says which
 *                │ kept      │ closed
 *   epoch 5   trainer 0  trainer 1'
 *
 * Nothing is on its way by then: all have stopped. What lies in a mailbox is of the epoch that has ended, so who listens
 * in the next one begins behind it (peer.heard), and posts are counted from there (peer.writes_before).
 */
#include "worker/epoch/epoch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>

static int compare_peer(const void *member, const void *peer)
{
	return member_compare(member, &((const struct plan_peer *)peer)->member);
}

static bool is_kept(const struct message_plan *plan, struct member member)
{
	const struct plan_peer *peer = plan->peer_count
					       ? bsearch(&member, plan->peers, plan->peer_count,
							 sizeof(*plan->peers), compare_peer)
					       : NULL;

	return peer && peer->kept;
}

bool epoch_is_whole(const struct epoch *epoch)
{
	struct error why;
	uint64_t done;

	for (size_t p = 0; epoch && p < epoch->all_count; p++) {
		const struct peer *peer = &epoch->peers[p];

		if (peer->plan->copy != COPY_NONE ||
		    control_have_left(epoch->options.health->control, peer->plan->member, 1))
			continue; /* of no plan that comes */
		if (peer->gone || !peer->endpoint ||
		    transport_progress(peer->endpoint, &done, &why) ||
		    !transport_endpoint_whole(peer->endpoint))
			return false;
	}
	return epoch != NULL;
}

void epoch_mark_kept(struct epoch *epoch, const struct message_plan *plan)
{
	for (size_t p = 0; epoch && p < epoch->all_count; p++) {
		struct peer *peer = &epoch->peers[p];

		peer->kept = peer->endpoint && peer->plan->copy == COPY_NONE &&
			     is_kept(plan, peer->plan->member);
	}
}

int epoch_take_kept(struct epoch *epoch, struct kept_links *links, struct error *error)
{
	for (size_t p = 0; epoch && p < epoch->all_count; p++) {
		struct peer *peer = &epoch->peers[p];
		const struct kept_link link = {peer->plan->member, peer->endpoint, peer->imports,
					       peer->import_count};

		if (!peer->kept)
			continue;
		if (!array_add(links, link))
			return memory_error(error, "keeping endpoints", sizeof(link));
		transport_endpoint_ask_left(peer->endpoint, NULL, NULL);
		peer->endpoint = NULL;
		peer->imports = NULL;
		peer->import_count = 0;
	}
	return 0;
}

int links_hand_over(struct kept_links *links, struct peer *peer, struct error *error)
{
	struct transport_signal signal;

	for (size_t i = 0; i < links->count; i++) {
		struct kept_link *link = &links->items[i];

		if (member_compare(&link->member, &peer->plan->member))
			continue;
		peer->endpoint = link->endpoint;
		peer->imports = link->imports;
		peer->import_count = link->import_count;
		peer->writes_before = transport_endpoint_stats(peer->endpoint)->writes;
		peer->chunks_before = transport_endpoint_stats(peer->endpoint)->chunks;
		if (!transport_signal_read(peer->endpoint, &signal))
			peer->heard = signal.sequence;
		*link = links->items[--links->count];
		return 0;
	}
	return error_set(error, ERROR_MESSAGE,
			 "the plan keeps the endpoint to %s, and this worker has none", peer->name);
}

void links_close(struct kept_links *links, const struct device *device, uint32_t fence_ms)
{
	uint64_t deadline = clock_deadline_ns(fence_ms);
	struct error why;

	if (device && !device_closes(device))
		return; /* kernels may write there */
	for (size_t i = 0; i < links->count; i++) {
		struct kept_link *link = &links->items[i];

		for (size_t r = 0; r < link->import_count; r++)
			import_close(device, &link->imports[r]);
		memory_free(link->imports);
		if (transport_endpoint_stop(link->endpoint, deadline, &why))
			log_warn_of(why.code, "%s", why.text);
		transport_endpoint_close(&link->endpoint);
	}
	array_free(links);
}
