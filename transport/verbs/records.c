/* SPDX-License-Identifier: Apache-2.0
 *
 * records.c -- bodies of the verbs records, and which NIC of one side meets which of the other.
 *
 *   identity   boot id 16, pid namespace u64, pid u64, start time u64
 *   endpoint   version u32, identity, nonce u64, attempt u32, slot u64, probe u64,
 *              timeout, retry, traffic class, service level, pkey, qps, NICs: u32 each; NIC ...
 *   NIC        name 32, port, link, lid u32, gid 16, gid index i32, gid type, prefix bits, mtu,
 *              netdev mtu, slot rkey, max read: u32 each; lane (qpn u32, psn u32) * qps
 *   region     version u32, identity, nonce u64, base u64, piece bytes u64, pieces u32, NICs u32;
 *              rkey u32 * (pieces * NICs)
 *
 * The version moves when a field does, so two releases that differ say so and do not guess.
 */
#include "transport/verbs/records.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define BODY_VERSION	 1
#define AREA_BYTES	 4096 /* slot and probe area are at most this long */
#define REGION_BYTES_MAX (UINT64_C(1) << 46)
#define PIECE_CUT_BYTES	 4096

#define ROW(name, ...) RECORD_ROW_##name(struct verbs_nic_record, __VA_ARGS__)

static const struct record_field nic_fields[] = {
	ROW(BYTES, device),
	ROW(U32, port, "port", 1, 255),
	ROW(U32, link, "link layer", VERBS_LINK_INFINIBAND, VERBS_LINK_ETHERNET),
	ROW(U32, lid, "lid", 0, 0xffff),
	ROW(BYTES, gid),
	ROW(BYTES, gid_index),
	ROW(U32, gid_type, "GID type", VERBS_GID_IB, VERBS_GID_ROCE_V2),
	ROW(U32, gid_prefix_bits, "GID prefix length", 0, 128),
	ROW(U32, mtu, "MTU", 256, 4096),
	ROW(U32, netdev_mtu, "netdev MTU", 0, INT_MAX),
	ROW(U32, slot_rkey, "slot key", 0, UINT32_MAX),
	ROW(U32, max_read, "limit of outstanding reads", 0, 0xffff),
};

#undef ROW

static const struct record_field lane_fields[] = {
	RECORD_ROW_U32(struct verbs_lane_record, qpn, "queue pair number", 1, 0xffffff),
	RECORD_ROW_U32(struct verbs_lane_record, psn, "first packet number", 0, 0xffffff),
};

#define ROW(name, ...) RECORD_ROW_##name(struct verbs_endpoint_record, __VA_ARGS__)

static const struct record_field endpoint_fields[] = {
	ROW(IDENTITY, identity),
	ROW(U64, nonce, "domain nonce", 1, UINT64_MAX),
	ROW(U32, attempt, "attempt", 1, UINT32_MAX),
	ROW(U64, slot_address, "slot address", 0, UINT64_MAX),
	ROW(U64, probe_address, "probe address", 0, UINT64_MAX),
	ROW(U32, timeout, "timeout exponent", 1, 31),
	ROW(U32, retry, "retry count", 0, 7),
	ROW(U32, traffic_class, "traffic class", 0, 255),
	ROW(U32, service_level, "service level", 0, 15),
	ROW(U32, pkey, "pkey", 0, 0xffff),
	ROW(U32, qps, "number of queue pairs", 1, VERBS_QPS_MAX),
	ROW(U32, nic_count, "number of NICs", 1, VERBS_NICS_MAX),
};

#undef ROW
#define ROW(name, ...) RECORD_ROW_##name(struct verbs_region_record, __VA_ARGS__)

static const struct record_field region_fields[] = {
	ROW(IDENTITY, identity),
	ROW(U64, nonce, "domain nonce", 1, UINT64_MAX),
	ROW(U64, base, "base address", 1, UINT64_MAX),
	ROW(U64, piece_bytes, "piece size", PIECE_CUT_BYTES, REGION_BYTES_MAX + PIECE_CUT_BYTES),
	ROW(U32, piece_count, "number of pieces", 0, UINT32_MAX),
	ROW(U32, nic_count, "number of NICs", 1, VERBS_NICS_MAX),
};

#undef ROW

void verbs_endpoint_record_put(struct record_writer *writer,
			       const struct verbs_endpoint_record *record)
{
	record_put_u32(writer, BODY_VERSION);
	record_put_fields(writer, endpoint_fields, ARRAY_SIZE(endpoint_fields), record);
	for (uint32_t i = 0; i < record->nic_count; i++) {
		const struct verbs_nic_record *nic = &record->nics[i];

		record_put_fields(writer, nic_fields, ARRAY_SIZE(nic_fields), nic);
		for (uint32_t q = 0; q < record->qps; q++)
			record_put_fields(writer, lane_fields, ARRAY_SIZE(lane_fields),
					  &nic->lanes[q]);
	}
}

static int check_version(struct record_reader *reader, struct error *error)
{
	uint32_t version = record_get_u32(reader);

	if (reader->failed || version == BODY_VERSION)
		return 0; /* one that is too short is told by record_done */
	return error_set(error, ERROR_MESSAGE,
			 "the verbs record is of version %" PRIu32
			 " and this side reads version %d: run the same weft on both sides",
			 version, BODY_VERSION);
}

static int check_address(const char *field, uint64_t address, struct error *error)
{
	if (!address || address % 64 != 0 || address > UINT64_MAX - AREA_BYTES)
		return error_set(
			error, ERROR_MESSAGE,
			"the verbs record's %s address is 0x%" PRIx64
			"; it must be a multiple of 64, not 0 and not at the end of memory",
			field, address);
	return 0;
}

/* A name goes into messages and logs, so it must be printable, and it has one spelling. */
static int check_name(const struct verbs_nic_record *nic, struct error *error)
{
	size_t length = strnlen(nic->device, sizeof(nic->device)), i = 0;

	while (i < length && isgraph((unsigned char)nic->device[i]))
		i++;
	if (!length || i < length || length == sizeof(nic->device))
		return error_set(error, ERROR_MESSAGE,
				 "the verbs record's device name is empty, too long or has a "
				 "character at %zu that no name has",
				 i);
	for (i = length; i < sizeof(nic->device); i++)
		if (nic->device[i])
			return error_set(error, ERROR_MESSAGE,
					 "the verbs record has bytes behind the device name '%s'",
					 nic->device);
	return 0;
}

static int check_gid(const struct verbs_nic_record *nic, struct error *error)
{
	if (nic->gid_index < -1 || nic->gid_index > 255)
		return error_set(error, ERROR_MESSAGE,
				 "the verbs record's GID index is %" PRId32
				 "; it must be -1 to 255",
				 nic->gid_index);
	if (nic->link == VERBS_LINK_ETHERNET && verbs_gid_is_zero(nic->gid))
		return error_set(error, ERROR_MESSAGE,
				 "the verbs record's GID of %s:%" PRIu32
				 " is all zeros, and nothing reaches an Ethernet port without one",
				 nic->device, nic->port);
	return 0;
}

static int get_nic(struct record_reader *reader, struct verbs_nic_record *nic, uint32_t qps,
		   struct error *error)
{
	int rc = record_get_fields(reader, nic_fields, ARRAY_SIZE(nic_fields), nic, error);

	for (uint32_t q = 0; q < qps && !rc; q++)
		rc = record_get_fields(reader, lane_fields, ARRAY_SIZE(lane_fields), &nic->lanes[q],
				       error);
	if (rc || reader->failed)
		return rc;
	rc = check_name(nic, error);
	if (!rc && (nic->mtu & (nic->mtu - 1)))
		rc = error_set(error, ERROR_MESSAGE,
			       "the verbs record's MTU is %" PRIu32
			       "; it must be 256, 512, 1024, 2048 or 4096",
			       nic->mtu);
	return rc ? rc : check_gid(nic, error);
}

int verbs_endpoint_record_get(struct record_reader *reader, struct verbs_endpoint_record *record,
			      struct error *error)
{
	int rc = check_version(reader, error);

	if (rc)
		return rc;
	memset(record, 0, sizeof(*record));
	rc = record_get_fields(reader, endpoint_fields, ARRAY_SIZE(endpoint_fields), record, error);
	if (!rc && !reader->failed)
		rc = record_check(reader, "number of lanes",
				  (uint64_t)record->qps * record->nic_count, 1, VERBS_LANES_MAX,
				  error);
	for (uint32_t i = 0; i < record->nic_count && !rc; i++)
		rc = get_nic(reader, &record->nics[i], record->qps, error);
	if (!rc)
		rc = record_done(reader, error);
	if (!rc)
		rc = check_address("slot", record->slot_address, error);
	return rc ? rc : check_address("probe", record->probe_address, error);
}

void verbs_region_record_put(struct record_writer *writer, const struct verbs_region_record *record)
{
	record_put_u32(writer, BODY_VERSION);
	record_put_fields(writer, region_fields, ARRAY_SIZE(region_fields), record);
	for (uint32_t i = 0; i < record->piece_count * record->nic_count; i++)
		record_put_u32(writer, record->rkeys[i]);
}

static int check_region(const struct record_reader *reader,
			const struct verbs_region_record *record, uint64_t bytes,
			struct error *error)
{
	uint64_t pieces;
	int rc = record_check(reader, "region size", bytes, 1, REGION_BYTES_MAX, error);

	if (!rc)
		rc = record_check(reader, "base address", record->base, 1, UINT64_MAX - bytes,
				  error);
	if (rc)
		return rc;
	if (record->piece_bytes % PIECE_CUT_BYTES)
		return error_set(error, ERROR_MESSAGE,
				 "the verbs record's piece size is %" PRIu64
				 "; it must be a multiple of %d",
				 record->piece_bytes, PIECE_CUT_BYTES);
	pieces = (bytes + record->piece_bytes - 1) / record->piece_bytes;
	if (record->piece_count != pieces)
		return error_set(error, ERROR_MESSAGE,
				 "the verbs record has %" PRIu32 " pieces of %" PRIu64
				 " bytes; its %" PRIu64 " bytes make %" PRIu64,
				 record->piece_count, record->piece_bytes, bytes, pieces);
	return 0;
}

int verbs_region_record_get(struct record_reader *reader, uint64_t bytes,
			    struct verbs_region_record *record, struct error *error)
{
	uint64_t keys;
	int rc = check_version(reader, error);

	if (rc)
		return rc;
	memset(record, 0, sizeof(*record));
	rc = record_get_fields(reader, region_fields, ARRAY_SIZE(region_fields), record, error);
	keys = (uint64_t)record->piece_count * record->nic_count;
	if (!rc && !reader->failed)
		rc = record_check(reader, "number of keys", keys, 1, VERBS_PIECES_MAX, error);
	for (uint64_t i = 0; i < keys && !rc && !reader->failed; i++)
		record->rkeys[i] = record_get_u32(reader);
	if (!rc)
		rc = record_done(reader, error);
	return rc ? rc : check_region(reader, record, bytes, error);
}

/* Packets can be addressed from one to the other at all. */
static bool compatible(const struct verbs_nic_record *a, const struct verbs_nic_record *b)
{
	if (a->link != b->link)
		return false;
	return a->link == VERBS_LINK_INFINIBAND ||
	       (a->gid_type == b->gid_type &&
		verbs_gid_is_ipv4(a->gid) == verbs_gid_is_ipv4(b->gid));
}

static bool same_subnet(const struct verbs_nic_record *a, const struct verbs_nic_record *b)
{
	if (!compatible(a, b))
		return false;
	if (a->link == VERBS_LINK_INFINIBAND)
		return memcmp(a->gid, b->gid, 8) == 0; /* the subnet prefix */
	return verbs_gid_same_subnet(a->gid, a->gid_prefix_bits, b->gid, b->gid_prefix_bits);
}

typedef bool verbs_fits(const struct verbs_nic_record *a, const struct verbs_nic_record *b);

/* Every NIC of the side with fewer takes, from its own index on (moved by the turn), the first
 * free one that fits. Equal counts do not turn: rail r belongs to rail r. */
static uint32_t match(const struct verbs_endpoint_record *few,
		      const struct verbs_endpoint_record *many, uint32_t turn, verbs_fits *fits,
		      uint32_t pairs[VERBS_NICS_MAX][2])
{
	uint32_t first = few->nic_count == many->nic_count
				 ? 0
				 : turn % many->nic_count * few->nic_count % many->nic_count;
	bool used[VERBS_NICS_MAX] = {false};
	uint32_t count = 0;

	for (uint32_t i = 0; i < few->nic_count; i++) {
		for (uint32_t k = 0; k < many->nic_count; k++) {
			uint32_t j = (first + i + k) % many->nic_count;

			if (used[j] || !fits(&few->nics[i], &many->nics[j]))
				continue;
			used[j] = true;
			pairs[count][0] = i;
			pairs[count][1] = j;
			count++;
			break;
		}
	}
	return count;
}

uint32_t verbs_rails_match(const struct verbs_endpoint_record *trainer,
			   const struct verbs_endpoint_record *inference, uint32_t turn,
			   struct verbs_rail rails[VERBS_NICS_MAX])
{
	bool swapped = trainer->nic_count > inference->nic_count;
	const struct verbs_endpoint_record *few = swapped ? inference : trainer;
	const struct verbs_endpoint_record *many = swapped ? trainer : inference;
	uint32_t pairs[VERBS_NICS_MAX][2], count;

	count = match(few, many, turn, same_subnet, pairs);
	if (!count)
		count = match(few, many, turn, compatible, pairs);
	for (uint32_t i = 0; i < count; i++)
		rails[i] = (struct verbs_rail){.trainer_nic = pairs[i][swapped],
					       .inference_nic = pairs[i][!swapped]};
	return count;
}
