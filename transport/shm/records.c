/* SPDX-License-Identifier: Apache-2.0
 *
 * records.c -- bodies of shm's records:
 *
 *   identity   boot id 16, pid namespace u64, pid u64, start time u64
 *   endpoint   identity, bell fd u32, slot fd u32, bell cookie 16, slot cookie 16,
 *              slot offset u64, slot address u64, generation u64, nonce u64
 *   region     identity, kind u32, fd u32, cookie 16, address u64
 *
 * What a kind does not use must be zero.
 */
#include "transport/shm/shm.h"

#include <inttypes.h>
#include <limits.h>

static int bad(struct error *error, const char *field, uint64_t value)
{
	return error_set(error, ERROR_MESSAGE,
			 "the shm record's %s is %" PRIu64 ", which cannot be", field, value);
}

#define ROW(name, ...) RECORD_ROW_##name(struct shm_endpoint_record, __VA_ARGS__)

static const struct record_field endpoint_fields[] = {
	ROW(IDENTITY, identity),
	ROW(U32, bell_fd, "bell fd", 0, INT_MAX),
	ROW(U32, slot_fd, "slot fd", 0, INT_MAX),
	ROW(BYTES, bell_cookie),
	ROW(BYTES, slot_cookie),
	ROW(U64, slot_offset, "slot offset", SHM_HEAD_BYTES,
	    SHM_BLOCK_BYTES - sizeof(struct shm_slot)),
	ROW(U64, slot_address, "slot address", 64, UINT64_MAX - sizeof(struct shm_slot)),
	ROW(U64, generation, "generation", 0, 0xffffff),
	ROW(U64, nonce, "nonce", 0, UINT64_MAX),
};

#undef ROW
#define ROW(name, ...) RECORD_ROW_##name(struct shm_region_record, __VA_ARGS__)

static const struct record_field region_fields[] = {
	ROW(IDENTITY, identity),
	ROW(U32, kind, "kind", SHM_MAPPED, SHM_PROCESS),
	ROW(U32, fd, "fd", 0, INT_MAX),
	ROW(BYTES, cookie),
	ROW(U64, address, "address", 0, UINT64_MAX),
};

#undef ROW

void shm_endpoint_record_put(struct record_writer *writer, const struct shm_endpoint_record *record)
{
	record_put_fields(writer, endpoint_fields, ARRAY_SIZE(endpoint_fields), record);
}

int shm_endpoint_record_get(struct record_reader *reader, struct shm_endpoint_record *record,
			    struct error *error)
{
	int rc = record_get_fields(reader, endpoint_fields, ARRAY_SIZE(endpoint_fields), record,
				   error);

	if (!rc)
		rc = record_done(reader, error);
	if (!rc && (record->slot_offset - SHM_HEAD_BYTES) % sizeof(struct shm_slot) != 0)
		rc = bad(error, "slot offset", record->slot_offset);
	if (!rc && record->slot_address % 64 != 0)
		rc = bad(error, "slot address", record->slot_address);
	return rc;
}

void shm_region_record_put(struct record_writer *writer, const struct shm_region_record *record)
{
	record_put_fields(writer, region_fields, ARRAY_SIZE(region_fields), record);
}

static int check_region(const struct shm_region_record *record, uint64_t bytes, struct error *error)
{
	static const unsigned char none[SHM_COOKIE_BYTES];

	if (bytes > SHM_REGION_MAX)
		return bad(error, "region size", bytes);
	if (record->kind == SHM_MAPPED)
		return record->address ? bad(error, "address (of mapped memory)", record->address)
				       : 0;
	if (!record->address || record->address > UINT64_MAX - bytes)
		return bad(error, "address", record->address);
	if (record->fd || memcmp(record->cookie, none, sizeof(none)) != 0)
		return bad(error, "fd (of process memory)", record->fd);
	return 0;
}

int shm_region_record_get(struct record_reader *reader, uint64_t bytes,
			  struct shm_region_record *record, struct error *error)
{
	int rc = record_get_fields(reader, region_fields, ARRAY_SIZE(region_fields), record, error);

	if (!rc)
		rc = record_done(reader, error);
	return rc ? rc : check_region(record, bytes, error);
}

int shm_identity_check(const struct identity *peer, const struct identity *self,
		       struct error *error)
{
	if (memcmp(peer->boot, self->boot, sizeof(peer->boot)) != 0)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"shm joins processes of one host; the peer runs on another: between "
			"hosts use --transport verbs (RDMA) or --transport tcp");
	if (peer->pid_namespace != self->pid_namespace)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the peer is in another pid namespace: let the containers share "
				 "one (--pid=host, shareProcessNamespace), or use --transport tcp");
	if (process_dead(peer->pid, peer->start))
		return error_set(error, ERROR_PEER_LOST,
				 "process %" PRIu64 " that made the record has ended", peer->pid);
	return 0;
}
