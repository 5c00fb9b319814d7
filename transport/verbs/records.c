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

static int bad(struct error *error, const char *field, uint64_t value, uint64_t least,
	       uint64_t most)
{
	return error_set(error, ERROR_MESSAGE,
			 "the verbs record's %s is %" PRIu64 "; it must be %" PRIu64 " to %" PRIu64,
			 field, value, least, most);
}

static void put_nic(struct record_writer *writer, const struct verbs_nic_record *nic, uint32_t qps)
{
	record_put_bytes(writer, nic->device, sizeof(nic->device));
	record_put_u32(writer, nic->port);
	record_put_u32(writer, nic->link);
	record_put_u32(writer, nic->lid);
	record_put_bytes(writer, nic->gid, sizeof(nic->gid));
	record_put_u32(writer, (uint32_t)nic->gid_index);
	record_put_u32(writer, nic->gid_type);
	record_put_u32(writer, nic->gid_prefix_bits);
	record_put_u32(writer, nic->mtu);
	record_put_u32(writer, nic->netdev_mtu);
	record_put_u32(writer, nic->slot_rkey);
	record_put_u32(writer, nic->max_read);
	for (uint32_t q = 0; q < qps; q++) {
		record_put_u32(writer, nic->lanes[q].qpn);
		record_put_u32(writer, nic->lanes[q].psn);
	}
}

static void get_nic(struct record_reader *reader, struct verbs_nic_record *nic, uint32_t qps)
{
	record_get_bytes(reader, nic->device, sizeof(nic->device));
	nic->port = record_get_u32(reader);
	nic->link = record_get_u32(reader);
	nic->lid = record_get_u32(reader);
	record_get_bytes(reader, nic->gid, sizeof(nic->gid));
	nic->gid_index = (int32_t)record_get_u32(reader);
	nic->gid_type = record_get_u32(reader);
	nic->gid_prefix_bits = record_get_u32(reader);
	nic->mtu = record_get_u32(reader);
	nic->netdev_mtu = record_get_u32(reader);
	nic->slot_rkey = record_get_u32(reader);
	nic->max_read = record_get_u32(reader);
	for (uint32_t q = 0; q < qps; q++) {
		nic->lanes[q].qpn = record_get_u32(reader);
		nic->lanes[q].psn = record_get_u32(reader);
	}
}

void verbs_endpoint_record_put(struct record_writer *writer,
			       const struct verbs_endpoint_record *record)
{
	record_put_u32(writer, BODY_VERSION);
	record_put_identity(writer, &record->identity);
	record_put_u64(writer, record->nonce);
	record_put_u32(writer, record->attempt);
	record_put_u64(writer, record->slot_address);
	record_put_u64(writer, record->probe_address);
	record_put_u32(writer, record->timeout);
	record_put_u32(writer, record->retry);
	record_put_u32(writer, record->traffic_class);
	record_put_u32(writer, record->service_level);
	record_put_u32(writer, record->pkey);
	record_put_u32(writer, record->qps);
	record_put_u32(writer, record->nic_count);
	for (uint32_t i = 0; i < record->nic_count; i++)
		put_nic(writer, &record->nics[i], record->qps);
}

/* A field and its range. */
struct range {
	const char *field;
	uint64_t value, least, most;
};

static int check_ranges(const struct range *ranges, size_t count, struct error *error)
{
	for (size_t i = 0; i < count; i++)
		if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most)
			return bad(error, ranges[i].field, ranges[i].value, ranges[i].least,
				   ranges[i].most);
	return 0;
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

/* A name goes into sentences and logs, so it must be printable, and it has one spelling. */
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
	static const unsigned char none[16];

	if (nic->gid_index < -1 || nic->gid_index > 255)
		return error_set(error, ERROR_MESSAGE,
				 "the verbs record's GID index is %" PRId32
				 "; it must be -1 to 255",
				 nic->gid_index);
	if (nic->link == VERBS_LINK_ETHERNET && memcmp(nic->gid, none, sizeof(none)) == 0)
		return error_set(error, ERROR_MESSAGE,
				 "the verbs record's GID of %s:%" PRIu32
				 " is all zeros, and nothing reaches an Ethernet port without one",
				 nic->device, nic->port);
	return 0;
}

static int check_nic(const struct verbs_nic_record *nic, uint32_t qps, struct error *error)
{
	const struct range ranges[] = {
		{"port", nic->port, 1, 255},
		{"link layer", nic->link, VERBS_LINK_INFINIBAND, VERBS_LINK_ETHERNET},
		{"lid", nic->lid, 0, 0xffff},
		{"GID type", nic->gid_type, VERBS_GID_IB, VERBS_GID_ROCE_V2},
		{"GID prefix length", nic->gid_prefix_bits, 0, 128},
		{"MTU", nic->mtu, 256, 4096},
		{"netdev MTU", nic->netdev_mtu, 0, INT_MAX},
		{"limit of outstanding reads", nic->max_read, 0, 0xffff},
	};
	int rc = check_name(nic, error);

	if (!rc)
		rc = check_ranges(ranges, ARRAY_SIZE(ranges), error);
	if (!rc && (nic->mtu & (nic->mtu - 1)))
		rc = error_set(error, ERROR_MESSAGE,
			       "the verbs record's MTU is %" PRIu32
			       "; it must be 256, 512, 1024, 2048 or 4096",
			       nic->mtu);
	if (!rc)
		rc = check_gid(nic, error);
	for (uint32_t q = 0; q < qps && !rc; q++) {
		const struct range lane[] = {
			{"queue pair number", nic->lanes[q].qpn, 1, 0xffffff},
			{"first packet number", nic->lanes[q].psn, 0, 0xffffff},
		};

		rc = check_ranges(lane, ARRAY_SIZE(lane), error);
	}
	return rc;
}

/* What says how much follows; checked before it is used. */
static int check_counts(const struct verbs_endpoint_record *record, struct error *error)
{
	const struct range ranges[] = {
		{"number of queue pairs", record->qps, 1, VERBS_QPS_MAX},
		{"number of NICs", record->nic_count, 1, VERBS_NICS_MAX},
		{"number of lanes", (uint64_t)record->qps * record->nic_count, 1, VERBS_LANES_MAX},
	};

	return check_ranges(ranges, ARRAY_SIZE(ranges), error);
}

static int check_endpoint(const struct verbs_endpoint_record *record, struct error *error)
{
	const struct range ranges[] = {
		{"pid", record->identity.pid, 1, INT_MAX},
		{"domain nonce", record->nonce, 1, UINT64_MAX},
		{"attempt", record->attempt, 1, UINT32_MAX},
		{"timeout exponent", record->timeout, 1, 31},
		{"retry count", record->retry, 0, 7},
		{"traffic class", record->traffic_class, 0, 255},
		{"service level", record->service_level, 0, 15},
		{"pkey", record->pkey, 0, 0xffff},
	};
	int rc = check_ranges(ranges, ARRAY_SIZE(ranges), error);

	if (!rc)
		rc = check_address("slot", record->slot_address, error);
	if (!rc)
		rc = check_address("probe", record->probe_address, error);
	for (uint32_t i = 0; i < record->nic_count && !rc; i++)
		rc = check_nic(&record->nics[i], record->qps, error);
	return rc;
}

int verbs_endpoint_record_get(struct record_reader *reader, struct verbs_endpoint_record *record,
			      struct error *error)
{
	int rc = check_version(reader, error);

	if (rc)
		return rc;
	memset(record, 0, sizeof(*record));
	record_get_identity(reader, &record->identity);
	record->nonce = record_get_u64(reader);
	record->attempt = record_get_u32(reader);
	record->slot_address = record_get_u64(reader);
	record->probe_address = record_get_u64(reader);
	record->timeout = record_get_u32(reader);
	record->retry = record_get_u32(reader);
	record->traffic_class = record_get_u32(reader);
	record->service_level = record_get_u32(reader);
	record->pkey = record_get_u32(reader);
	record->qps = record_get_u32(reader);
	record->nic_count = record_get_u32(reader);
	if (!reader->failed) {
		rc = check_counts(record, error);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < record->nic_count; i++)
		get_nic(reader, &record->nics[i], record->qps);
	rc = record_done(reader, error);
	return rc ? rc : check_endpoint(record, error);
}

void verbs_region_record_put(struct record_writer *writer, const struct verbs_region_record *record)
{
	record_put_u32(writer, BODY_VERSION);
	record_put_identity(writer, &record->identity);
	record_put_u64(writer, record->nonce);
	record_put_u64(writer, record->base);
	record_put_u64(writer, record->piece_bytes);
	record_put_u32(writer, record->piece_count);
	record_put_u32(writer, record->nic_count);
	for (uint32_t i = 0; i < record->piece_count * record->nic_count; i++)
		record_put_u32(writer, record->rkeys[i]);
}

static int check_region(const struct verbs_region_record *record, uint64_t bytes,
			struct error *error)
{
	const struct range ranges[] = {
		{"pid", record->identity.pid, 1, INT_MAX},
		{"domain nonce", record->nonce, 1, UINT64_MAX},
		{"region size", bytes, 1, REGION_BYTES_MAX},
		{"base address", record->base, 1, UINT64_MAX - bytes},
		{"piece size", record->piece_bytes, PIECE_CUT_BYTES,
		 REGION_BYTES_MAX + PIECE_CUT_BYTES},
	};
	uint64_t pieces;
	int rc = check_ranges(ranges, ARRAY_SIZE(ranges), error);

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
	int rc = check_version(reader, error);

	if (rc)
		return rc;
	memset(record, 0, sizeof(*record));
	record_get_identity(reader, &record->identity);
	record->nonce = record_get_u64(reader);
	record->base = record_get_u64(reader);
	record->piece_bytes = record_get_u64(reader);
	record->piece_count = record_get_u32(reader);
	record->nic_count = record_get_u32(reader);
	if (!reader->failed) {
		const struct range ranges[] = {
			{"number of NICs", record->nic_count, 1, VERBS_NICS_MAX},
			{"number of keys", (uint64_t)record->piece_count * record->nic_count, 1,
			 VERBS_PIECES_MAX},
		};

		rc = check_ranges(ranges, ARRAY_SIZE(ranges), error);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < record->piece_count * record->nic_count; i++)
		record->rkeys[i] = record_get_u32(reader);
	rc = record_done(reader, error);
	return rc ? rc : check_region(record, bytes, error);
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
