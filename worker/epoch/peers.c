/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.c -- endpoints to the workers of the plan: opened after OPEN (leg 1), connected after
 * CONNECT (leg 3), proved after GO, fenced and closed at the end. Runs on the host thread, in
 * weft_join.
 */
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

static int copy_record(unsigned char **bytes, size_t *length, const unsigned char *record,
		       size_t record_length, struct error *error)
{
	*bytes = memory_alloc(record_length);
	if (!*bytes)
		return memory_error(error, "keeping an endpoint record", record_length);
	memcpy(*bytes, record, record_length);
	*length = record_length;
	return 0;
}

static int export_regions(struct weft_worker *worker, struct message_endpoints *endpoints,
			  struct error *error)
{
	const struct inference *inference = &worker->inference;
	size_t places = inference->copies * worker->layout.param_count;
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = 0;

	endpoints->copies = inference->copies;
	endpoints->places = memory_zalloc(places, sizeof(*endpoints->places));
	endpoints->regions = memory_zalloc(inference->region_count, sizeof(*endpoints->regions));
	if (!endpoints->places || !endpoints->regions)
		return memory_error(error, "exporting regions",
				    places * sizeof(*endpoints->places));
	memcpy(endpoints->places, inference->places, places * sizeof(*endpoints->places));
	endpoints->place_count = places;
	for (size_t i = 0; i < inference->region_count && !rc; i++) {
		struct region_record *region = &endpoints->regions[i];

		rc = transport_region_export(inference->regions[i], record, &length, error);
		if (rc)
			break;
		region->region = (uint32_t)i;
		endpoints->region_count = i + 1;
		rc = copy_record(&region->bytes, &region->length, record, length, error);
	}
	return rc;
}

static int open_peer(struct weft_worker *worker, struct peer *peer,
		     struct message_endpoints *endpoints, struct error *error)
{
	struct endpoint_record *out = &endpoints->records[endpoints->record_count];
	unsigned char record[TRANSPORT_RECORD_BYTES];
	char name[MEMBER_TEXT_BYTES];
	size_t length;
	int rc;

	snprintf(peer->name, sizeof(peer->name), "%s (host %.80s)",
		 member_text(peer->plan->member, name),
		 peer->plan->host ? peer->plan->host : "unknown");
	rc = transport_endpoint_open(worker->domain, peer->plan->member, peer->name,
				     &peer->endpoint, error);
	if (rc)
		return rc;
	rc = transport_endpoint_record(peer->endpoint, record, &length, error);
	if (rc)
		return rc;
	out->peer = peer->plan->member;
	endpoints->record_count++;
	return copy_record(&out->bytes, &out->length, record, length, error);
}

int peers_open(struct weft_worker *worker, const struct message_plan *plan,
	       struct message_endpoints *endpoints, struct error *error)
{
	int rc = 0;

	memset(endpoints, 0, sizeof(*endpoints));
	endpoints->attempt = plan->attempt;
	send_plan_close(worker);
	pairs_close(worker);
	peers_close(worker);
	worker->plan = plan;
	worker->sums = plan->checksums;
	worker->peers = memory_zalloc(plan->peer_count, sizeof(*worker->peers));
	endpoints->records = memory_zalloc(plan->peer_count, sizeof(*endpoints->records));
	if (!worker->peers || !endpoints->records) {
		endpoints_fini(endpoints);
		return memory_error(error, "opening endpoints",
				    plan->peer_count * sizeof(*worker->peers));
	}
	worker->peer_count = plan->peer_count;
	for (size_t i = 0; i < worker->peer_count; i++)
		worker->peers[i].plan = &plan->peers[i];
	for (size_t i = 0; i < worker->peer_count && !rc; i++)
		rc = open_peer(worker, &worker->peers[i], endpoints, error);
	if (!rc && worker->self.role == ROLE_INFERENCE) {
		rc = params_open_sums(worker, error);
		if (!rc)
			rc = export_regions(worker, endpoints, error);
	}
	if (rc)
		endpoints_fini(endpoints);
	return rc;
}

int peers_open_sums(struct weft_worker *worker, struct transport_region **sums, struct error *error)
{
	uint64_t slots = 0;
	int rc;

	for (size_t p = 0; p < worker->peer_count; p++) {
		worker->peers[p].sums_first = slots;
		slots += worker->peers[p].plan->pieces;
	}
	if (!worker->sums || !slots)
		return 0;
	rc = transport_region_allocate(worker->domain, slots * sizeof(uint64_t), sums, error);
	return rc ? error_wrap(error, "memory for %llu checksums", (unsigned long long)slots) : 0;
}

static const struct peer_endpoints *find_theirs(const struct message_peers *peers,
						struct member member)
{
	for (size_t i = 0; i < peers->peer_count; i++)
		if (peers->peers[i].member.role == member.role &&
		    peers->peers[i].member.rank == member.rank)
			return &peers->peers[i];
	return NULL;
}

static int import_regions(struct peer *peer, struct error *error)
{
	size_t count = peer->theirs->region_count;

	peer->remotes = memory_zalloc(count, sizeof(*peer->remotes));
	if (!peer->remotes)
		return memory_error(error, "importing regions", count * sizeof(*peer->remotes));
	for (size_t i = 0; i < count; i++) {
		const struct region_record *region = &peer->theirs->regions[i];
		int rc = transport_remote_import(peer->endpoint, region->bytes, region->length,
						 &peer->remotes[i], error);

		if (rc)
			return error_wrap(error, "memory of %s", peer->name);
	}
	return 0;
}

int peers_connect(struct weft_worker *worker, const struct message_peers *peers,
		  uint64_t deadline_ns, struct error *error)
{
	for (size_t i = 0; i < worker->peer_count; i++) {
		struct peer *peer = &worker->peers[i];
		int rc;

		peer->theirs = find_theirs(peers, peer->plan->member);
		if (!peer->theirs)
			return error_set(error, ERROR_MESSAGE,
					 "the controller sent no endpoint of %s", peer->name);
		rc = transport_endpoint_connect(peer->endpoint, peer->theirs->record,
						peer->theirs->record_length, deadline_ns, error);
		if (!rc && worker->self.role == ROLE_TRAINER)
			rc = import_regions(peer, error);
		if (rc)
			return rc;
	}
	return 0;
}

int peers_prove(struct weft_worker *worker, uint64_t deadline_ns, struct error *error)
{
	for (size_t i = 0; i < worker->peer_count; i++) {
		int rc = worker_check(worker, error);

		if (!rc)
			rc = transport_endpoint_prove(worker->peers[i].endpoint, deadline_ns,
						      error);
		if (rc)
			return rc;
	}
	return 0;
}

int peer_check_alive(const struct peer *peer, struct error *error)
{
	if (!transport_peer_dead(peer->endpoint))
		return 0;
	return error_set(
		error, ERROR_PEER_LOST,
		"%s is gone: its process has ended (killed, failed, or done with fewer updates)",
		peer->name);
}

void peers_fence(struct weft_worker *worker, uint32_t timeout_ms)
{
	uint64_t deadline = worker_deadline_ns(timeout_ms);
	struct error error;

	for (size_t i = 0; i < worker->peer_count; i++) {
		struct peer *peer = &worker->peers[i];

		if (!peer->endpoint || !peer->theirs)
			continue;
		if (transport_endpoint_fence(peer->endpoint, deadline, &error))
			log_warn("%s may still write into host memory: %s", peer->name, error.text);
	}
}

void peers_close(struct weft_worker *worker)
{
	for (size_t i = 0; i < worker->peer_count; i++) {
		struct peer *peer = &worker->peers[i];

		for (size_t r = 0; peer->remotes && r < peer->theirs->region_count; r++)
			transport_remote_close(&peer->remotes[r]);
		memory_free(peer->remotes);
		transport_endpoint_close(&peer->endpoint);
	}
	memory_free(worker->peers);
	worker->peers = NULL;
	worker->peer_count = 0;
}
