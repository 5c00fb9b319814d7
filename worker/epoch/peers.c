/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.c -- endpoints to the workers of the plan: opened after OPEN (leg 1), connected after
 * CONNECT (leg 3), probed after GO, fenced and closed at the end. Runs on the host thread, in
 * weft_join.
 */
#include "worker/epoch/epoch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdatomic.h>
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

/* NULL: there is none of that number. */
static int export_region(const struct transport_region *region, size_t number,
			 struct message_endpoints *endpoints, struct error *error)
{
	struct region_record *out = &endpoints->regions[endpoints->region_count];
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc;

	if (!region)
		return 0;
	rc = transport_region_export(region, record, &length, error);
	if (rc)
		return rc;
	out->region = (uint32_t)number;
	endpoints->region_count++;
	return copy_record(&out->bytes, &out->length, record, length, error);
}

/* It is no more. */
static int export_none(uint32_t number, struct message_endpoints *endpoints, struct error *error)
{
	struct region_record *out = &endpoints->regions[endpoints->region_count++];

	out->region = number;
	out->bytes = memory_alloc(0);
	return out->bytes ? 0 : memory_error(error, "exporting regions", 0);
}

/* Then it is told already: it is one for as long as the worker. */
static bool mates_kept(const struct epoch *epoch)
{
	bool any = false;

	for (size_t m = 0; m < epoch->mate_count; m++)
		any = any || epoch->mates[m].plan->kept;
	return any;
}

/* Mates alone are told of it. */
static int export_word(const struct epoch *epoch, struct message_endpoints *endpoints,
		       struct error *error)
{
	struct message_endpoints shared = {0};
	int rc;

	if (!epoch->word || mates_kept(epoch))
		return 0;
	shared.regions = endpoints->shared = memory_zalloc(1, sizeof(*endpoints->shared));
	if (!shared.regions)
		return memory_error(error, "exporting regions", sizeof(*endpoints->shared));
	rc = export_region(epoch->word, 0, &shared, error);
	endpoints->shared_count = shared.region_count;
	return rc;
}

/* The parameters' places and regions. */
static int export_params(const struct epoch *epoch, struct message_endpoints *endpoints,
			 struct error *error)
{
	const struct params *params = epoch->options.params;
	size_t places = params->copies * params->count, i;
	int rc = 0;

	endpoints->copies = params->copies;
	endpoints->places = memory_zalloc(places, sizeof(*endpoints->places));
	if (!endpoints->places)
		return memory_error(error, "exporting regions",
				    places * sizeof(*endpoints->places));
	memcpy(endpoints->places, params->places, places * sizeof(*endpoints->places));
	endpoints->place_count = places;
	for (i = 0; i < params->region_count && !rc; i++)
		rc = export_region(params->regions[i], i, endpoints, error);
	return rc;
}

/* Where some endpoint is kept, what peers have not heard: the rest is what it was. */
static int export_regions(const struct epoch *epoch, struct message_endpoints *endpoints,
			  struct error *error)
{
	struct beside *beside = epoch->options.beside;
	const struct beside_region *regions[] = {&beside->sums, &beside->windows};
	size_t room =
		epoch->options.params->region_count + ARRAY_SIZE(regions) + beside->replaced.count;
	int rc = 0;

	endpoints->regions = memory_zalloc(room, sizeof(*endpoints->regions));
	if (!endpoints->regions)
		return memory_error(error, "exporting regions", room * sizeof(*endpoints->regions));
	if (!epoch->kept_count)
		rc = export_params(epoch, endpoints, error);
	for (size_t i = beside->told_replaced;
	     epoch->kept_count && i < beside->replaced.count && !rc; i++)
		rc = export_none(beside->replaced.items[i].number, endpoints, error);
	beside->told_replaced = beside->replaced.count;
	for (size_t i = 0; i < ARRAY_SIZE(regions) && !rc; i++)
		if (!epoch->kept_count || regions[i]->number >= beside->told)
			rc = export_region(regions[i]->region, regions[i]->number, endpoints,
					   error);
	beside->told = (uint32_t)epoch->options.params->region_count + beside->made;
	return rc ? rc : export_word(epoch, endpoints, error);
}

/* A process that is stopped looks like a slow one to whoever writes to it; the controller has told it from that. */
static bool has_left(const void *context)
{
	const struct peer *peer = context;

	return peer->health && control_have_left(peer->health->control, peer->plan->member, 1);
}

static int open_endpoint(const struct epoch *epoch, struct peer *peer,
			 struct message_endpoints *endpoints, struct error *error)
{
	struct endpoint_record *out = &endpoints->records[endpoints->record_count];
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_domain *domain;
	size_t length;
	int rc;

	rc = transport_domain_find(epoch->options.domain, peer->plan->transport, &domain, error);
	if (rc)
		return error_wrap(error, "%s", peer->name), rc;
	rc = transport_endpoint_open(domain, peer->plan->member, peer->name, &peer->endpoint,
				     error);
	if (rc)
		return rc;
	if (peer->plan->member.role == epoch->options.self.role && peer->plan->copy != COPY_FROM)
		transport_endpoint_guest(peer->endpoint);
	rc = transport_endpoint_record(peer->endpoint, record, &length, error);
	if (rc)
		return rc;
	out->peer = peer->plan->member;
	endpoints->record_count++;
	return copy_record(&out->bytes, &out->length, record, length, error);
}

static int open_peer(struct epoch *epoch, struct peer *peer, struct kept_links *links,
		     struct message_endpoints *endpoints, struct error *error)
{
	char name[MEMBER_TEXT_BYTES];
	int rc;

	snprintf(peer->name, sizeof(peer->name), "%s (host %.80s)",
		 member_text(peer->plan->member, name),
		 peer->plan->host ? peer->plan->host : "unknown");
	rc = peer->plan->kept ? links_hand_over(links, peer, error)
			      : open_endpoint(epoch, peer, endpoints, error);
	if (rc)
		return rc;
	epoch->kept_count += peer->plan->kept;
	peer->health = epoch->options.health;
	transport_endpoint_ask_left(peer->endpoint, has_left, peer);
	return 0;
}

/* The processor puts what differs in place. What is stored into mapped memory costs no network anything. */
static bool deltas(const struct epoch *epoch, const struct peer *peer)
{
	bool on_device = epoch->options.self.role == ROLE_INFERENCE &&
			 params_on_device(epoch->options.params);

	return peer->plan->delta && peer->endpoint && peer->plan->pieces && !on_device &&
	       !transport_endpoint_caps(peer->endpoint)->mapped_remote;
}

/* What a row says of its peer; rows are checked later. */
static int find_landed(struct epoch *epoch, struct error *error)
{
	for (size_t p = 0; p < epoch->peer_count; p++) {
		struct peer *peer = &epoch->peers[p];

		peer->deltas = deltas(epoch, peer);
		peer->landed = peer->deltas && epoch->options.self.role == ROLE_INFERENCE;
	}
	for (size_t p = epoch->peer_count; p < epoch->all_count; p++)
		epoch->peers[p].written = epoch->peers[p].plan->copy == COPY_TO;
	for (size_t i = 0; i < epoch->plan->row_count; i++) {
		const struct plan_row *row = &epoch->plan->rows[i];
		struct peer *peer = row->peer < epoch->peer_count ? &epoch->peers[row->peer] : NULL;

		if (!peer)
			continue;
		peer->written = peer->written || row->path != PATH_LANDED;
		peer->landed = peer->landed || row->path == PATH_LANDED;
		peer->landed_bytes += row->path == PATH_LANDED ? row->bytes : 0;
	}
	if (epoch->options.self.role == ROLE_TRAINER)
		return stand_in_find_landed(epoch, error);
	stand_in_find_windows(epoch);
	return 0;
}

/* Behind trainers, of an inference rank alone: its mates, and then those of other engines that it has a copy with, which stand
 * between them in the plan. */
static int find_others(struct epoch *epoch, struct error *error)
{
	const struct message_plan *plan = epoch->plan;
	enum role self = epoch->options.self.role;
	size_t at;

	epoch->all_count = plan->peer_count;
	while (epoch->peer_count < plan->peer_count &&
	       plan->peers[epoch->peer_count].member.role != self &&
	       plan->peers[epoch->peer_count].copy == COPY_NONE)
		epoch->peer_count++;
	for (size_t i = 0; i < epoch->peer_count; i++)
		epoch->peers[i].plan = &plan->peers[i];
	epoch->mates = &epoch->peers[epoch->peer_count];
	for (size_t i = epoch->peer_count; i < plan->peer_count; i++)
		if (plan->peers[i].copy == COPY_NONE)
			epoch->mates[epoch->mate_count++].plan = &plan->peers[i];
	at = epoch->peer_count + epoch->mate_count;
	for (size_t i = epoch->peer_count; i < plan->peer_count; i++) {
		const struct plan_peer *peer = &plan->peers[i];
		bool mate = peer->copy == COPY_NONE, from = peer->copy == COPY_FROM;

		if (!mate)
			epoch->peers[at].plan = peer;
		if (self == ROLE_TRAINER || peer->member.role != self ||
		    (from && epoch->copied_from) ||
		    (!mate && peer->pieces != epoch->options.layout->param_count))
			return error_set(
				error, ERROR_MESSAGE,
				"%s: peer %zu of the plan is %s %u, where no such peer has a place",
				epoch->options.name, i, role_name(peer->member.role),
				peer->member.rank);
		if (from)
			epoch->copied_from = &epoch->peers[at];
		at += !mate;
	}
	return 0;
}

static int open_word(struct epoch *epoch, struct error *error)
{
	struct beside *beside = epoch->options.beside;
	_Atomic uint64_t *word;
	int rc = epoch->mate_count ? beside_want_word(beside, epoch->options.domain, error) : 0;

	if (rc || !epoch->mate_count)
		return rc;
	epoch->word = beside->word;
	/* mates of the same host may look at it still, and show that version */
	word = transport_region_memory(epoch->word);
	atomic_store(&word[0], epoch->options.shown);
	atomic_store(&word[1], ~epoch->options.shown);
	return 0;
}

/* Of an inference rank. */
static int open_sums(struct epoch *epoch, struct error *error)
{
	struct beside *beside = epoch->options.beside;
	uint64_t slots = peers_number_sums(epoch);
	int rc;

	if (!slots)
		return 0;
	rc = beside_want(beside, &beside->sums, epoch->options.domain, slots * sizeof(uint64_t),
			 UINT64_MAX, (uint32_t)epoch->options.params->region_count, NULL, error);
	if (rc)
		return error_wrap(error, "memory for %llu checksums", (unsigned long long)slots);
	epoch->receive.sums = transport_region_memory(beside->sums.region);
	return 0;
}

int peers_open(struct epoch *epoch, struct kept_links *links, struct message_endpoints *endpoints,
	       struct error *error)
{
	const struct message_plan *plan = epoch->plan;
	bool keeps = false;
	int rc = 0;

	*endpoints = (struct message_endpoints){.attempt = plan->attempt};
	epoch->peers = memory_zalloc(plan->peer_count, sizeof(*epoch->peers));
	endpoints->records = memory_zalloc(plan->peer_count, sizeof(*endpoints->records));
	if (!epoch->peers || !endpoints->records)
		rc = memory_error(error, "opening endpoints",
				  plan->peer_count * sizeof(*epoch->peers));
	else
		rc = find_others(epoch, error);
	if (!rc)
		rc = open_word(epoch, error);
	for (size_t i = 0; i < plan->peer_count; i++)
		keeps = keeps || plan->peers[i].kept;
	if (!keeps) /* no endpoint is open */
		beside_close_replaced(epoch->options.beside);
	for (size_t i = 0; i < epoch->all_count && !rc; i++)
		rc = open_peer(epoch, &epoch->peers[i], links, endpoints, error);
	if (!rc)
		rc = find_landed(epoch, error);
	if (!rc && epoch->options.self.role == ROLE_INFERENCE) {
		rc = open_sums(epoch, error);
		if (!rc)
			rc = windows_open(epoch, error);
		if (!rc)
			rc = export_regions(epoch, endpoints, error);
	}
	if (rc)
		endpoints_fini(endpoints);
	return rc;
}

uint64_t peers_number_sums(struct epoch *epoch)
{
	uint64_t slots = 0;

	for (size_t p = 0; p < epoch->peer_count; p++) {
		epoch->peers[p].first_piece = slots;
		slots += epoch->peers[p].plan->pieces;
	}
	if (epoch->copied_from) {
		epoch->copied_from->first_piece = slots;
		slots += epoch->copied_from->plan->pieces;
	}
	return epoch->sums ? slots : 0;
}

/* Of a rank of another engine, which is to send what it shows or to be sent it: without that trainers send the next version. */
static bool goes_without(struct epoch *epoch, struct peer *peer, const struct error *why)
{
	if (peer->plan->copy == COPY_NONE || !peer_explains(why->code))
		return false;
	peer->gone = true;
	log_warn("%s: no copy of version %llu goes from or to %s: %s", epoch->options.name,
		 (unsigned long long)epoch->plan->copy, peer->name, why->text);
	return true;
}

int epoch_connect(struct epoch *epoch, const struct message_peers *peers, uint64_t deadline_ns,
		  struct error *error)
{
	for (size_t i = 0; i < epoch->all_count; i++) {
		struct peer *peer = &epoch->peers[i];
		int rc;

		epoch->at = i;
		peer->theirs = message_peers_find(peers, peer->plan->member);
		if (!peer->theirs)
			return error_set(error, ERROR_MESSAGE,
					 "the controller sent no endpoint of %s", peer->name);
		rc = peer->plan->kept
			     ? 0
			     : transport_endpoint_connect(peer->endpoint, peer->theirs->record,
							  peer->theirs->record_length, deadline_ns,
							  error);
		if (!rc && i >= epoch->peer_count && peer->plan->copy == COPY_NONE &&
		    peer->theirs->region_count != 1)
			rc = error_set(error, ERROR_MESSAGE,
				       "%s shares %zu regions; the version that both show is one",
				       peer->name, peer->theirs->region_count);
		if (!rc && (epoch->options.self.role == ROLE_TRAINER || i >= epoch->peer_count) &&
		    peer->plan->copy != COPY_FROM)
			rc = peer_import(epoch->options.device, peer, error);
		if (rc && !goes_without(epoch, peer, error))
			return rc;
	}
	epoch->at = epoch->all_count; /* what fails from here on is nobody's but this worker's */
	return epoch_resolve(epoch, error);
}

int epoch_probe(struct epoch *epoch, uint64_t deadline_ns, struct error *error)
{
	/* who had stopped may be told to go on by the same plan, and peers have done their work meanwhile */
	for (size_t i = 0; i < epoch->all_count && !epoch->probed; i++) {
		int rc = health_check(epoch->options.health, error);

		if (epoch->peers[i].gone || epoch->peers[i].plan->kept)
			continue;
		epoch->at = i;
		if (!rc)
			rc = transport_endpoint_probe(epoch->peers[i].endpoint, deadline_ns, error);
		if (rc && goes_without(epoch, &epoch->peers[i], error))
			continue;
		if (rc)
			return rc;
	}
	epoch->probed = true;
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

bool epoch_is_of_other_engine(const struct epoch *epoch, const struct peer *peer)
{
	uint32_t ranks = epoch->plan->together;

	return ranks && peer->plan->copy == COPY_NONE &&
	       peer->plan->member.rank / ranks != epoch->options.self.rank / ranks;
}

bool peer_explains(enum error_code code)
{
	return code == ERROR_PEER_LOST || code == ERROR_TRANSPORT || code == ERROR_TIMEOUT ||
	       code == ERROR_ABORTED;
}

static void stop_all(struct epoch *epoch, uint64_t deadline_ns)
{
	struct error error;

	for (size_t i = 0; i < epoch->all_count; i++) {
		struct peer *peer = &epoch->peers[i];
		int rc;

		/* mates write what is weft's own, and who is sent a copy nothing; who is kept has stopped */
		if (!peer->endpoint || peer->kept ||
		    (i >= epoch->peer_count && peer != epoch->copied_from))
			continue;
		do
			rc = transport_endpoint_stop(peer->endpoint, deadline_ns, &error);
		while (rc == -(int)ERROR_INTERRUPTED && clock_ns() < deadline_ns);
		if (rc && deadline_ns)
			log_warn_of(error.code, "%s may still write into host memory: %s",
				    peer->name, error.text);
	}
}

/* Where peers are waited for, all are told before: one that is stuck takes no time from the others. */
void epoch_fence(struct epoch *epoch, uint32_t timeout_ms)
{
	if (transport_domain_caps(epoch->options.domain)->fence_waits)
		stop_all(epoch, 0);
	stop_all(epoch, clock_deadline_ns(timeout_ms));
}

void peer_let_go(struct epoch *epoch, struct peer *peer)
{
	for (size_t i = 0; i < peer->import_count; i++)
		import_close(epoch->options.device, &peer->imports[i]);
	memory_free(peer->imports);
	peer->imports = NULL;
	peer->import_count = 0;
	transport_endpoint_close(&peer->endpoint);
}

void peers_close(struct epoch *epoch)
{
	for (size_t i = 0; i < epoch->all_count; i++)
		peer_let_go(epoch, &epoch->peers[i]);
	memory_free(epoch->peers);
	epoch->word = NULL;
	epoch->peers = epoch->mates = epoch->copied_from = NULL;
	epoch->peer_count = epoch->mate_count = epoch->all_count = 0;
}
