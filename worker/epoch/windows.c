/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/epoch.h"

#include "base/log.h"
#include "worker/replica/ring.h"

#define PAGE_BYTES 4096u

/* What one update puts in is all that a window is ever used for. */
static uint64_t window_bytes(const struct peer *peer, uint64_t share)
{
	uint64_t lands = peer->deltas ? peer->plan->bytes : peer->landed_bytes;
	uint64_t most = (lands > peer->spare_bytes ? lands : peer->spare_bytes) +
			((uint64_t)peer->plan->pieces + peer->spare_pieces) * RING_ALIGN;
	uint64_t bytes = share > WINDOW_HEAD_BYTES ? share - WINDOW_HEAD_BYTES : 0;

	bytes = bytes > most ? most : bytes;
	bytes = bytes < WINDOW_RING_BYTES_MIN ? WINDOW_RING_BYTES_MIN : bytes;
	return (WINDOW_HEAD_BYTES + bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

bool windows_only(const struct epoch *epoch, const struct peer *peer)
{
	return params_on_device(epoch->options.params) &&
	       !transport_endpoint_caps(peer->endpoint)->gpu_memory;
}

static uint64_t place(struct epoch *epoch)
{
	uint64_t at = 0, landed = 0;

	for (size_t p = 0; p < epoch->peer_count; p++)
		if (windows_only(epoch, &epoch->peers[p]))
			epoch->peers[p].landed = true;
	for (size_t p = 0; p < epoch->peer_count; p++)
		landed += epoch->peers[p].landed;
	for (size_t p = 0; p < epoch->peer_count; p++) {
		struct peer *peer = &epoch->peers[p];

		if (!peer->landed)
			continue;
		peer->window_at = at;
		peer->window_bytes = window_bytes(peer, epoch->options.landing_bytes / landed);
		at += peer->window_bytes;
	}
	return at;
}

/* A window costs a copy that a NIC on the GPU's own switch would not: nobody shall have to find out. */
static void say(const struct epoch *epoch, uint64_t bytes)
{
	const struct transport_domain *by = NULL;
	bool deltas = false;
	const char *why;

	for (size_t p = 0; p < epoch->peer_count && !by; p++) {
		deltas = deltas || epoch->peers[p].deltas;
		if (windows_only(epoch, &epoch->peers[p]))
			by = transport_endpoint_domain(epoch->peers[p].endpoint);
	}
	if (!by) {
		log_info("%s: %s in %llu bytes beside its memory and %s put in place from there",
			 epoch->options.name,
			 deltas ? "what differs from the version before lands"
				: "pieces that trainers cut finer or smaller land",
			 (unsigned long long)bytes, deltas ? "is" : "are");
		return;
	}
	why = transport_domain_no_gpu(by);
	log_line(
		why[0] ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
		"%s: pieces land in %llu bytes of pinned memory of the host and are copied on, for "
		"%s does not write memory of %s%s%s",
		epoch->options.name, (unsigned long long)bytes, transport_domain_name(by),
		device_text(epoch->options.params->device), why[0] ? ": " : "", why);
}

int windows_open(struct epoch *epoch, struct error *error)
{
	const struct params *params = epoch->options.params;
	struct beside *beside = epoch->options.beside;
	uint64_t bytes = place(epoch);
	int rc;

	if (!bytes)
		return 0;
	rc = beside_want(beside, &beside->windows, epoch->options.domain, bytes,
			 epoch->options.landing_bytes, (uint32_t)params->region_count,
			 params_on_device(params) ? params->device : NULL, error);
	if (rc)
		return error_wrap(error,
				  "%llu bytes that pieces land in (landing_bytes, --landing-bytes)",
				  (unsigned long long)bytes);
	say(epoch, bytes);
	return 0;
}
