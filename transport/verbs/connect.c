/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.c -- from the peer's record to lanes that are ready. Nothing here asks the peer: both
 * sides compute the same from the two records.
 *
 *   rails      pairs of NICs (verbs_rails_match); the trainer's record is first on both sides
 *   lanes      of a rail: as many as the side with fewer queue pairs has; the others stay unused
 *   wire       the first side's number of a lane, which both put into immediates
 */
#include "transport/verbs/verbs.h"

#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>

/* Both records and which of them is first. */
struct meeting {
	struct verbs_endpoint *verbs;
	const struct verbs_endpoint_record *first, *second;
	bool self_first;
	uint32_t turn;
};

/* The trainer is first. Two of one role are told apart by rank, and one that talks to itself by
 * what is random in it: any order will do, if both sides find the same. */
static bool is_first(const struct transport_endpoint *endpoint,
		     const struct verbs_endpoint_record *self,
		     const struct verbs_endpoint_record *peer)
{
	struct member a = endpoint->domain->options.self, b = endpoint->peer;

	if (a.role != b.role)
		return a.role == ROLE_TRAINER;
	if (a.rank != b.rank)
		return a.rank < b.rank;
	if (self->nonce != peer->nonce)
		return self->nonce < peer->nonce;
	return self->attempt < peer->attempt;
}

/* Different settings work, but the worse of each decides; said once. */
static void warn_settings(struct verbs_domain *domain, const char *peer_name,
			  const struct verbs_endpoint_record *self,
			  const struct verbs_endpoint_record *peer)
{
	const struct {
		const char *what;
		uint32_t here, there;
	} rows[] = {
		{"timeout exponents (WEFT_IB_TIMEOUT)", self->timeout, peer->timeout},
		{"retry counts (WEFT_IB_RETRY)", self->retry, peer->retry},
		{"traffic classes (WEFT_TRAFFIC_CLASS)", self->traffic_class, peer->traffic_class},
		{"service levels (WEFT_SERVICE_LEVEL)", self->service_level, peer->service_level},
		{"partition keys", self->pkey & 0x7fff, peer->pkey & 0x7fff},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows) && !domain->warned_peers; i++) {
		if (rows[i].here == rows[i].there)
			continue;
		log_warn("verbs: %s differ: %" PRIu32 " here, %" PRIu32
			 " at %s; set the same on both sides",
			 rows[i].what, rows[i].here, rows[i].there, peer_name);
		domain->warned_peers = true;
	}
}

/* "mlx5_0:1 ::ffff:10.1.2.5, mlx5_1:1 ..." */
static void list_nics(const struct verbs_endpoint_record *record, char *out, size_t size)
{
	char gid[VERBS_GID_TEXT_BYTES];
	size_t used = 0;

	out[0] = 0;
	for (uint32_t i = 0; i < record->nic_count && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%s%s:%u %s", i ? ", " : "",
					 record->nics[i].device, record->nics[i].port,
					 verbs_gid_text(record->nics[i].gid, gid));
}

static int no_rail(const struct meeting *meeting, struct error *error)
{
	const struct verbs_endpoint_record *self =
		meeting->self_first ? meeting->first : meeting->second;
	const struct verbs_endpoint_record *peer =
		meeting->self_first ? meeting->second : meeting->first;
	char here[400], there[400];

	list_nics(self, here, sizeof(here));
	list_nics(peer, there, sizeof(there));
	return error_set(error, ERROR_UNSUPPORTED,
			 "no NIC of this side can address one of the peer's: here %s; there %s. "
			 "Link layer, GID type and address family must be the same on both sides: "
			 "choose with --nic and WEFT_GID_INDEX",
			 here, there);
}

static int connect_rail(const struct meeting *meeting, const struct verbs_rail *rail,
			struct error *error)
{
	struct verbs_endpoint *verbs = meeting->verbs;
	struct verbs_domain *domain = verbs->domain;
	uint32_t mine = meeting->self_first ? rail->trainer_nic : rail->inference_nic;
	uint32_t theirs = meeting->self_first ? rail->inference_nic : rail->trainer_nic;
	uint32_t qps = meeting->first->qps < meeting->second->qps ? meeting->first->qps
								  : meeting->second->qps;
	int rc = 0;

	for (uint32_t q = 0; q < qps && !rc; q++) {
		struct verbs_lane *lane = &verbs->lanes[mine * domain->settings.qps + q];

		lane->peer_nic = theirs;
		lane->wire_index = rail->trainer_nic * meeting->first->qps + q;
		/* the peer may signal as soon as the queue pair listens */
		rc = verbs_receive_add(domain, lane, error);
		if (!rc)
			rc = verbs_lane_connect(lane, &verbs->peer, theirs, q, error);
	}
	return rc;
}

static int connect_rails(const struct meeting *meeting, struct error *error)
{
	struct verbs_rail rails[VERBS_NICS_MAX];
	uint32_t count = verbs_rails_match(meeting->first, meeting->second, meeting->turn, rails);
	int rc = 0;

	if (!count)
		return no_rail(meeting, error);
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = connect_rail(meeting, &rails[i], error);
	return rc;
}

/* Remotes that were imported before there was a peer to compare them with. */
static int check_remotes(const struct transport_endpoint *endpoint, struct error *error)
{
	int rc = 0;

	for (struct transport_remote *r = endpoint->remotes; r && !rc; r = r->next)
		rc = verbs_remote_check(r, error);
	return rc;
}

/* Until here a record was only looked at, and another one may be tried. */
static int take_record(struct transport_endpoint *endpoint, struct record_reader *reader,
		       struct error *error)
{
	struct verbs_endpoint *verbs = endpoint->state;
	int rc = verbs_endpoint_record_get(reader, &verbs->peer, error);

	if (!rc)
		rc = verbs_identity_check(verbs->domain, &verbs->peer.identity, error);
	return rc ? rc : check_remotes(endpoint, error);
}

int verbs_endpoint_connect(struct transport_endpoint *endpoint, struct record_reader *reader,
			   uint64_t deadline_ns, struct error *error)
{
	struct verbs_endpoint *verbs = endpoint->state;
	struct verbs_domain *domain = verbs->domain;
	struct verbs_endpoint_record self;
	struct meeting meeting = {.verbs = verbs};
	int rc = take_record(endpoint, reader, error);

	(void)deadline_ns; /* nothing here waits for the peer */
	if (rc)
		return rc;
	verbs_endpoint_describe(verbs, &self);
	warn_settings(domain, endpoint->name, &self, &verbs->peer);
	meeting.self_first = is_first(endpoint, &self, &verbs->peer);
	meeting.first = meeting.self_first ? &self : &verbs->peer;
	meeting.second = meeting.self_first ? &verbs->peer : &self;
	meeting.turn = endpoint->domain->options.self.rank + endpoint->peer.rank;
	if (!domain->no_identity && identity_comparable(&verbs->peer.identity, &domain->self))
		verbs->pidfd = process_open(verbs->peer.identity.pid, verbs->peer.identity.start);
	rc = connect_rails(&meeting, error);
	if (rc) {
		verbs_receive_remove(domain, verbs);
		return rc;
	}
	verbs->connected = true;
	return 0;
}
