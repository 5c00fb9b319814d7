/* SPDX-License-Identifier: Apache-2.0
 *
 * records.c -- bodies of the records of "tcp" and "efa".
 *
 *   identity   boot id 16, pid namespace u64, pid u64, start time u64
 *   endpoint   version u32, identity, nonce u64, cookie 16, data u32, rails u32; rail ...
 *   rail       name 32, probe key u64, probe base u64, addresses u32; address (length u32, 48) ...
 *   region     version u32, identity, nonce u64, rails u32; key (key u64, base u64) * rails
 *
 * The version moves when a field does, so two releases that differ say so and do not guess.
 */
#include "transport/ofi/records.h"

#include "base/array.h"
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define BODY_VERSION 1

#define ROW(name, ...) RECORD_ROW_##name(struct ofi_endpoint_record, __VA_ARGS__)
static const struct record_field endpoint_fields[] = {
	ROW(IDENTITY, identity),
	ROW(U64, nonce, "domain nonce", 1, UINT64_MAX),
	ROW(BYTES, cookie),
	ROW(U32, data, "completion data", 0, UINT32_MAX),
	ROW(U32, rail_count, "number of rails", 1, OFI_RAILS_MAX),
};
#undef ROW

#define ROW(name, ...) RECORD_ROW_##name(struct ofi_rail_record, __VA_ARGS__)
static const struct record_field rail_fields[] = {
	ROW(BYTES, name),
	ROW(U64, probe_key, "probe key", 0, UINT64_MAX),
	ROW(U64, probe_base, "probe address", 0, UINT64_MAX),
	ROW(U32, address_count, "number of addresses", 1, OFI_ADDRESSES_MAX),
};
#undef ROW

#define ROW(name, ...) RECORD_ROW_##name(struct ofi_address, __VA_ARGS__)
static const struct record_field address_fields[] = {
	ROW(U32, length, "length of an address", 1, OFI_ADDRESS_BYTES),
	ROW(BYTES, bytes),
};
#undef ROW

#define ROW(name, ...) RECORD_ROW_##name(struct ofi_region_record, __VA_ARGS__)
static const struct record_field region_fields[] = {
	ROW(IDENTITY, identity),
	ROW(U64, nonce, "domain nonce", 1, UINT64_MAX),
	ROW(U32, rail_count, "number of rails", 1, OFI_RAILS_MAX),
};
#undef ROW

static const struct record_field key_fields[] = {
	RECORD_ROW_U64(struct ofi_key, key, "key", 0, UINT64_MAX),
	RECORD_ROW_U64(struct ofi_key, base, "base address", 0, UINT64_MAX),
};

#define PUT(writer, fields, item) record_put_fields(writer, fields, ARRAY_SIZE(fields), item)
#define GET(reader, fields, item, error) \
	record_get_fields(reader, fields, ARRAY_SIZE(fields), item, error)

void ofi_endpoint_record_put(struct record_writer *writer, const struct ofi_endpoint_record *record)
{
	record_put_u32(writer, BODY_VERSION);
	PUT(writer, endpoint_fields, record);
	for (uint32_t i = 0; i < record->rail_count; i++) {
		const struct ofi_rail_record *rail = &record->rails[i];

		PUT(writer, rail_fields, rail);
		for (uint32_t a = 0; a < rail->address_count; a++)
			PUT(writer, address_fields, &rail->addresses[a]);
	}
}

static int check_version(struct record_reader *reader, struct error *error)
{
	uint32_t version = record_get_u32(reader);

	if (reader->failed || version == BODY_VERSION)
		return 0; /* one that is too short is told by record_done */
	return error_set(error, ERROR_MESSAGE,
			 "the %s record is of version %" PRIu32
			 " and this side reads version %d: run the same weft on both sides",
			 reader->provider, version, BODY_VERSION);
}

/* A name goes into messages and logs, so it must be printable, and it has one spelling. */
static int check_name(const struct record_reader *reader, const struct ofi_rail_record *rail,
		      struct error *error)
{
	size_t length = strnlen(rail->name, sizeof(rail->name)), i = 0;

	while (i < length && isgraph((unsigned char)rail->name[i]))
		i++;
	if (!length || i < length || length == sizeof(rail->name))
		return error_set(error, ERROR_MESSAGE,
				 "the %s record's interface name is empty, too long or has a "
				 "character at %zu that no name has",
				 reader->provider, i);
	for (i = length; i < sizeof(rail->name); i++)
		if (rail->name[i])
			return error_set(error, ERROR_MESSAGE,
					 "the %s record has bytes behind the interface name '%s'",
					 reader->provider, rail->name);
	return 0;
}

static int get_rail(struct record_reader *reader, struct ofi_rail_record *rail, struct error *error)
{
	int rc = GET(reader, rail_fields, rail, error);

	for (uint32_t a = 0; !rc && a < rail->address_count; a++)
		rc = GET(reader, address_fields, &rail->addresses[a], error);
	return rc || reader->failed ? rc : check_name(reader, rail, error);
}

int ofi_endpoint_record_get(struct record_reader *reader, struct ofi_endpoint_record *record,
			    struct error *error)
{
	int rc = check_version(reader, error);

	memset(record, 0, sizeof(*record));
	if (!rc)
		rc = GET(reader, endpoint_fields, record, error);
	for (uint32_t i = 0; !rc && i < record->rail_count; i++)
		rc = get_rail(reader, &record->rails[i], error);
	return rc ? rc : record_done(reader, error);
}

void ofi_region_record_put(struct record_writer *writer, const struct ofi_region_record *record)
{
	record_put_u32(writer, BODY_VERSION);
	PUT(writer, region_fields, record);
	for (uint32_t i = 0; i < record->rail_count; i++)
		PUT(writer, key_fields, &record->keys[i]);
}

int ofi_region_record_get(struct record_reader *reader, struct ofi_region_record *record,
			  struct error *error)
{
	int rc = check_version(reader, error);

	memset(record, 0, sizeof(*record));
	if (!rc)
		rc = GET(reader, region_fields, record, error);
	for (uint32_t i = 0; !rc && i < record->rail_count; i++)
		rc = GET(reader, key_fields, &record->keys[i], error);
	return rc ? rc : record_done(reader, error);
}
