/* SPDX-License-Identifier: Apache-2.0
 *
 * message_endpoints.c -- how to reach a worker's memory: what it says (leg 1), and what the
 * others said (leg 2).
 *
 *   endpoints {"attempt":1, "regions":[..], "copies":1, "places":[..], "shared":[..],
 *             "records":[..]}
 *             trainers have no memory that others write: regions, copies, places and shared are absent
 *   peers     {"attempt":1, "peers":[[[role, rank], incarnation, regions, copies, places,
 *                                     record bin], ..]}
 *
 *   regions   [[region, bin], ..]           bin: the provider's export, opaque here
 *   places    [[region, offset], ..]        copies * parameters, copy-major:
 *             copy 0: p0 p1 .. pn | copy 1: p0 p1 .. pn
 *   records   [[[role, rank], bin], ..]     bin: one endpoint record, meant for that peer
 *   shared    as regions: for inference ranks that agree with this one, whose regions in leg 2 they are
 *
 * Exports and records may hold keys that open memory: no error message and no log line shows them.
 */
#include "wire/message_parts.h"

static const struct codec_field region_fields[] = {
	FIELD_U32(struct region_record, region, UINT32_MAX),
	FIELD_BYTES(struct region_record, bytes, length, LIMIT_RECORD_BYTES),
};
static const struct codec_record region_record = {
	CODEC_RECORD_OF(struct region_record, region_fields)};

static const struct codec_field place_fields[] = {
	FIELD_U32(struct param_place, region, UINT32_MAX),
	FIELD_U64(struct param_place, offset),
};
static const struct codec_record place_record = {CODEC_RECORD_OF(struct param_place, place_fields)};

static const struct codec_field endpoint_fields[] = {
	FIELD_RECORD(struct endpoint_record, peer, struct member, message_member_record),
	FIELD_BYTES(struct endpoint_record, bytes, length, LIMIT_RECORD_BYTES),
};
static const struct codec_record endpoint_record = {
	CODEC_RECORD_OF(struct endpoint_record, endpoint_fields)};

static const struct codec_field endpoints_fields[] = {
	FIELD_U32(struct message_endpoints, attempt, UINT32_MAX),
	FIELD_OPTIONAL_LIST(struct message_endpoints, regions, region_count, struct region_record,
			    region_record, LIMIT_REGIONS),
	FIELD_OPTIONAL_U32(struct message_endpoints, copies, LIMIT_COPIES),
	FIELD_OPTIONAL_LIST(struct message_endpoints, places, place_count, struct param_place,
			    place_record, LIMIT_COPIES *LIMIT_PARAMS),
	FIELD_OPTIONAL_LIST(struct message_endpoints, shared, shared_count, struct region_record,
			    region_record, LIMIT_REGIONS),
	FIELD_LIST(struct message_endpoints, records, record_count, struct endpoint_record,
		   endpoint_record, LIMIT_PEERS),
};
MESSAGE_RECORD(endpoints);

static const struct codec_field peer_fields[] = {
	FIELD_RECORD(struct peer_endpoints, member, struct member, message_member_record),
	FIELD_U64(struct peer_endpoints, incarnation),
	FIELD_LIST(struct peer_endpoints, regions, region_count, struct region_record,
		   region_record, LIMIT_REGIONS),
	FIELD_U32(struct peer_endpoints, copies, LIMIT_COPIES),
	FIELD_LIST(struct peer_endpoints, places, place_count, struct param_place, place_record,
		   LIMIT_COPIES *LIMIT_PARAMS),
	FIELD_BYTES(struct peer_endpoints, record, record_length, LIMIT_RECORD_BYTES),
};
static const struct codec_record peer_record = {
	CODEC_RECORD_OF(struct peer_endpoints, peer_fields)};

static const struct codec_field peers_fields[] = {
	FIELD_U32(struct message_peers, attempt, UINT32_MAX),
	FIELD_LIST(struct message_peers, peers, peer_count, struct peer_endpoints, peer_record,
		   LIMIT_PEERS),
};
MESSAGE_RECORD(peers);

/* Whole copies only; without copies, no places. */
static int check_places(uint32_t copies, size_t places, struct error *error)
{
	if (copies ? places % copies == 0 : places == 0)
		return 0;
	return error_set(error, ERROR_MESSAGE, "places has %zu items for copies %u", places,
			 copies);
}

int message_endpoints_check(const void *body, struct error *error)
{
	const struct message_endpoints *endpoints = body;

	return check_places(endpoints->copies, endpoints->place_count, error);
}

int message_peers_check(const void *body, struct error *error)
{
	const struct message_peers *peers = body;

	for (size_t i = 0; i < peers->peer_count; i++) {
		const struct peer_endpoints *peer = &peers->peers[i];
		int rc = check_places(peer->copies, peer->place_count, error);

		if (rc) {
			error_wrap(error, "peers[%zu]", i);
			return rc;
		}
	}
	return 0;
}
