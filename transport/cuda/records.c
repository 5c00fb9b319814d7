/* SPDX-License-Identifier: Apache-2.0
 *
 * records.c -- the body of cuda's record of a region:
 *
 *   way u32     1: host memory, and shm's body follows; else
 *   identity, uuid 16, address u64, offset u64, shared bytes u64, handle 64,
 *   count u32, then count times: fd u32, units u32
 *
 * What a way does not use must be zero. An endpoint's record is shm's.
 */
#include "transport/cuda/cuda.h"

#include <inttypes.h>
#include <limits.h>

#define ROW(name, ...) RECORD_ROW_##name(struct cuda_region_record, __VA_ARGS__)

static const struct record_field fields[] = {
	ROW(IDENTITY, identity),
	ROW(BYTES, uuid),
	ROW(U64, address, "address", 1, UINT64_MAX),
	ROW(U64, offset, "offset", 0, SHM_REGION_MAX),
	ROW(U64, shared_bytes, "shared bytes", 1, SHM_REGION_MAX),
	ROW(BYTES, handle),
	ROW(U32, count, "number of parts", 0, CUDA_PARTS_MAX),
};

#undef ROW

void cuda_region_record_put(struct record_writer *writer, const struct cuda_region_record *record)
{
	record_put_u32(writer, record->way);
	record_put_fields(writer, fields, ARRAY_SIZE(fields), record);
	for (uint32_t i = 0; i < record->count; i++) {
		record_put_u32(writer, record->parts[i].fd);
		record_put_u32(writer, record->parts[i].units);
	}
}

static int bad(struct error *error, const char *field, uint64_t value)
{
	return error_set(error, ERROR_MESSAGE,
			 "the cuda record's %s is %" PRIu64 ", which cannot be", field, value);
}

static int check_way(const struct cuda_region_record *record, uint64_t parts_bytes,
		     struct error *error)
{
	static const unsigned char none[CUDA_IPC_BYTES];

	if ((record->way == CUDA_MAPPED) != (record->count > 0))
		return bad(error, "number of parts", record->count);
	if (record->way == CUDA_IPC)
		return 0;
	if (memcmp(record->handle, none, sizeof(none)) != 0)
		return bad(error, "handle (of mapped memory) beginning with", record->handle[0]);
	return parts_bytes == record->shared_bytes ? 0 : bad(error, "sum of parts", parts_bytes);
}

/* `way` was read, and is one of a device. */
int cuda_region_record_get(struct record_reader *reader, uint64_t bytes,
			   struct cuda_region_record *record, struct error *error)
{
	uint64_t sum = 0;
	int rc = record_get_fields(reader, fields, ARRAY_SIZE(fields), record, error);

	for (uint32_t i = 0; !rc && i < record->count; i++) {
		record->parts[i].fd = record_get_u32(reader);
		record->parts[i].units = record_get_u32(reader);
		sum += (uint64_t)record->parts[i].units * CUDA_UNIT_BYTES;
		rc = record_check(reader, "fd of a part", record->parts[i].fd, 0, INT_MAX, error);
	}
	if (!rc)
		rc = record_done(reader, error);
	if (!rc && (bytes > record->shared_bytes || record->offset > record->shared_bytes - bytes))
		rc = bad(error, "offset", record->offset);
	return rc ? rc : check_way(record, sum, error);
}
