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

static int check_identity(const struct identity *identity, struct error *error)
{
	if (identity->pid < 1 || identity->pid > INT_MAX)
		return bad(error, "pid", identity->pid);
	return 0;
}

void shm_endpoint_record_put(struct record_writer *writer, const struct shm_endpoint_record *record)
{
	record_put_identity(writer, &record->identity);
	record_put_u32(writer, record->bell_fd);
	record_put_u32(writer, record->slot_fd);
	record_put_bytes(writer, record->bell_cookie, SHM_COOKIE_BYTES);
	record_put_bytes(writer, record->slot_cookie, SHM_COOKIE_BYTES);
	record_put_u64(writer, record->slot_offset);
	record_put_u64(writer, record->slot_address);
	record_put_u64(writer, record->generation);
	record_put_u64(writer, record->nonce);
}

static int check_endpoint(const struct shm_endpoint_record *record, struct error *error)
{
	if (record->bell_fd > INT_MAX || record->slot_fd > INT_MAX)
		return bad(error, "fd", record->bell_fd);
	if (record->slot_offset < SHM_HEAD_BYTES ||
	    record->slot_offset > SHM_BLOCK_BYTES - sizeof(struct shm_slot) ||
	    (record->slot_offset - SHM_HEAD_BYTES) % sizeof(struct shm_slot) != 0)
		return bad(error, "slot offset", record->slot_offset);
	if (!record->slot_address || record->slot_address % 64 != 0 ||
	    record->slot_address > UINT64_MAX - sizeof(struct shm_slot))
		return bad(error, "slot address", record->slot_address);
	if (record->generation > 0xffffff)
		return bad(error, "generation", record->generation);
	return check_identity(&record->identity, error);
}

int shm_endpoint_record_get(struct record_reader *reader, struct shm_endpoint_record *record,
			    struct error *error)
{
	int rc;

	record_get_identity(reader, &record->identity);
	record->bell_fd = record_get_u32(reader);
	record->slot_fd = record_get_u32(reader);
	record_get_bytes(reader, record->bell_cookie, SHM_COOKIE_BYTES);
	record_get_bytes(reader, record->slot_cookie, SHM_COOKIE_BYTES);
	record->slot_offset = record_get_u64(reader);
	record->slot_address = record_get_u64(reader);
	record->generation = record_get_u64(reader);
	record->nonce = record_get_u64(reader);
	rc = record_done(reader, error);
	return rc ? rc : check_endpoint(record, error);
}

void shm_region_record_put(struct record_writer *writer, const struct shm_region_record *record)
{
	record_put_identity(writer, &record->identity);
	record_put_u32(writer, (uint32_t)record->kind);
	record_put_u32(writer, record->fd);
	record_put_bytes(writer, record->cookie, SHM_COOKIE_BYTES);
	record_put_u64(writer, record->address);
}

static int check_region(const struct shm_region_record *record, uint64_t bytes, struct error *error)
{
	static const unsigned char none[SHM_COOKIE_BYTES];

	if (bytes > SHM_REGION_MAX)
		return bad(error, "region size", bytes);
	if (record->kind == SHM_MAPPED) {
		if (record->fd > INT_MAX)
			return bad(error, "fd", record->fd);
		if (record->address)
			return bad(error, "address (of mapped memory)", record->address);
		return check_identity(&record->identity, error);
	}
	if (!record->address || record->address > UINT64_MAX - bytes)
		return bad(error, "address", record->address);
	if (record->fd || memcmp(record->cookie, none, sizeof(none)) != 0)
		return bad(error, "fd (of process memory)", record->fd);
	return check_identity(&record->identity, error);
}

int shm_region_record_get(struct record_reader *reader, uint64_t bytes,
			  struct shm_region_record *record, struct error *error)
{
	uint32_t kind;
	int rc;

	record_get_identity(reader, &record->identity);
	kind = record_get_u32(reader);
	record->fd = record_get_u32(reader);
	record_get_bytes(reader, record->cookie, SHM_COOKIE_BYTES);
	record->address = record_get_u64(reader);
	rc = record_done(reader, error);
	if (rc)
		return rc;
	if (kind != SHM_MAPPED && kind != SHM_PROCESS)
		return bad(error, "kind", kind);
	record->kind = (enum shm_kind)kind;
	return check_region(record, bytes, error);
}

int shm_identity_check(const struct identity *peer, const struct identity *self,
		       struct error *error)
{
	if (memcmp(peer->boot, self->boot, sizeof(peer->boot)) != 0)
		return error_set(error, ERROR_UNSUPPORTED,
				 "shm joins processes of one host; the peer runs on another");
	if (peer->pid_namespace != self->pid_namespace)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the peer is in another pid namespace: let the containers share "
				 "one (--pid=host, shareProcessNamespace)");
	if (process_dead(peer->pid, peer->start))
		return error_set(error, ERROR_PEER_LOST,
				 "process %" PRIu64 " that made the record has ended", peer->pid);
	return 0;
}
