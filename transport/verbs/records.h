/* SPDX-License-Identifier: Apache-2.0
 *
 * records.h -- bodies of the verbs records: what a peer must know to write here. Pure.
 *
 *   endpoint   who (process, domain nonce, attempt) | slot and probe addresses | limits
 *              NIC 0: name, port, link, lid, gid, mtu, rkeys | lane: qpn, psn | lane ...
 *              NIC 1: ...
 *   region     who (process, domain nonce) | base | piece bytes | rkey[piece][NIC]
 *
 * A GID travels as its 16 bytes, never as an index (the index is for messages only). The domain
 * nonce ties a region to the process that made the endpoint: a record of an earlier process of
 * the same rank is refused. The attempt is counted per domain, so a late message of an older
 * attempt names queue pairs that no longer exist.
 */
#ifndef TRANSPORT_VERBS_RECORDS_H
#define TRANSPORT_VERBS_RECORDS_H

#include "transport/identity.h"
#include "transport/record.h"
#include "transport/verbs/facts.h"

#define VERBS_NICS_MAX   8
#define VERBS_QPS_MAX    8
#define VERBS_LANES_MAX  16 /* NICs * QPs; the mask in the immediate has 16 bits */
#define VERBS_PIECES_MAX 96

struct verbs_lane_record {
	uint32_t qpn, psn; /* 24 bits each */
};

struct verbs_nic_record {
	char device[32];
	uint32_t port, link, lid;
	unsigned char gid[16];
	int32_t gid_index;
	uint32_t gid_type, gid_prefix_bits;
	uint32_t mtu, netdev_mtu;
	uint32_t slot_rkey;          /* of the memory with slot and probe area */
	uint32_t max_read;           /* outstanding READs this side answers */
	struct verbs_lane_record lanes[VERBS_QPS_MAX];
};

struct verbs_endpoint_record {
	struct identity identity;
	uint64_t nonce;              /* of the domain */
	uint32_t attempt;
	uint64_t slot_address;       /* struct verbs_slot */
	uint64_t probe_address;      /* VERBS_PROBE_BYTES that anybody may overwrite */
	uint32_t timeout, retry, traffic_class, service_level, pkey;
	uint32_t qps, nic_count;
	struct verbs_nic_record nics[VERBS_NICS_MAX];
};

struct verbs_region_record {
	struct identity identity;
	uint64_t nonce, base;        /* base: address of byte 0 in the target */
	uint64_t piece_bytes;        /* every piece but the last; a multiple of 4 KiB */
	uint32_t piece_count, nic_count;
	uint32_t rkeys[VERBS_PIECES_MAX]; /* [piece * nic_count + nic] */
};

void verbs_endpoint_record_put(struct record_writer *writer,
			       const struct verbs_endpoint_record *record);
/* ERROR_MESSAGE names the field, the value seen and the range. */
int verbs_endpoint_record_get(struct record_reader *reader,
			      struct verbs_endpoint_record *record, struct error *error);
void verbs_region_record_put(struct record_writer *writer,
			     const struct verbs_region_record *record);
int verbs_region_record_get(struct record_reader *reader, uint64_t bytes,
			    struct verbs_region_record *record, struct error *error);

/* Which NIC of the trainer talks to which of the inference rank: those of one subnet where there
 * are any (the others may not be routed), else by index; each used at most once. Both sides
 * compute it from the two records and must agree. The trainer's record comes first. `turn`
 * spreads peers that have fewer NICs over ours (both sides pass the same: trainer rank +
 * inference rank). */
struct verbs_rail {
	uint32_t trainer_nic, inference_nic;
};
uint32_t verbs_rails_match(const struct verbs_endpoint_record *trainer,
			   const struct verbs_endpoint_record *inference, uint32_t turn,
			   struct verbs_rail rails[VERBS_NICS_MAX]);

/* The immediate of a signal: low 16 bits of its sequence, and the lanes that carry it. */
static inline uint32_t verbs_immediate(uint64_t sequence, uint32_t lane_mask)
{
	return (uint32_t)(sequence & 0xffff) << 16 | (lane_mask & 0xffff);
}
static inline uint32_t verbs_immediate_sequence(uint32_t immediate)
{
	return immediate >> 16;
}
static inline uint32_t verbs_immediate_lanes(uint32_t immediate)
{
	return immediate & 0xffff;
}

#endif
