/* SPDX-License-Identifier: Apache-2.0
 *
 * region.c -- one memory, known to every member: made by one, registered with the others; and its record:
 *
 *   count u32, then for each part: length u32, the whole record of that member
 */
#include "transport/several/several.h"

#include "base/memory.h"
#include "transport/import.h"
#include <string.h>

#define PART_BYTES_MIN (RECORD_HEAD_BYTES + RECORD_TAIL_BYTES)

uint32_t several_maker(const struct transport_domain *domain)
{
	const struct several *several = domain->state;
	uint32_t i = 0;

	while (i < several->count && !several->members[i]->caps.mapped_remote)
		i++;
	return i < several->count ? i : 0;
}

static int begin(struct transport_region *region, struct error *error)
{
	const struct several *several = region->domain->state;

	region->parts = memory_zalloc(several->count, sizeof(*region->parts));
	return region->parts ? 0
			     : memory_error(error, "opening a region of several transports",
					    several->count * sizeof(*region->parts));
}

/* The maker's part last: the others still point into its memory. */
static void close_parts(struct transport_region *region)
{
	struct several *several = region->domain->state;
	uint32_t made = several_maker(region->domain);

	for (uint32_t i = 0; i < several->count; i++)
		if (i != made)
			transport_region_close(&region->parts[i]);
	transport_region_close(&region->parts[made]);
	memory_free(region->parts);
}

static int finish(struct transport_region *region, int rc)
{
	if (rc)
		close_parts(region);
	return rc;
}

/* A source only where it has to be, a GPU's where that can be: who is reached by another member has no part of it. */
static bool takes(const struct transport_domain *member, const struct transport_region *region)
{
	return (!region->source || member->caps.local_registration) &&
	       (!region->on_device || member->caps.gpu_memory);
}

/* With every member that has no part yet. */
static int register_parts(struct transport_region *region, struct error *error)
{
	struct several *several = region->domain->state;
	int rc = 0;

	for (uint32_t i = 0; i < several->count && !rc; i++) {
		struct transport_domain *member = several->members[i];

		if (region->parts[i] || !takes(member, region))
			continue;
		rc = region->source
			     ? transport_source_register(member, region->memory, region->bytes,
							 &region->parts[i], error)
			     : transport_region_register(member, region->memory, region->bytes,
							 &region->parts[i], error);
		if (rc)
			error_wrap(error, "transport %s", member->wire_name);
	}
	return rc;
}

int several_region_allocate(struct transport_region *region, struct error *error)
{
	struct several *several = region->domain->state;
	uint32_t made = several_maker(region->domain);
	int rc = begin(region, error);

	if (rc)
		return rc;
	rc = transport_region_allocate(several->members[made], region->bytes, &region->parts[made],
				       error);
	if (!rc) {
		region->memory = region->parts[made]->memory;
		region->mapped = region->parts[made]->mapped;
		rc = register_parts(region, error);
	}
	return finish(region, rc);
}

int several_region_register(struct transport_region *region, struct error *error)
{
	int rc = begin(region, error);

	return rc ? rc : finish(region, register_parts(region, error));
}

void several_region_close(struct transport_region *region)
{
	close_parts(region);
}

int several_region_export(const struct transport_region *region, struct record_writer *writer,
			  struct error *error)
{
	const struct several *several = region->domain->state;
	uint32_t count = 0;

	for (uint32_t i = 0; i < several->count; i++)
		count += region->parts[i] != NULL;
	record_put_u32(writer, count);
	for (uint32_t i = 0; i < several->count; i++) {
		unsigned char record[TRANSPORT_RECORD_BYTES];
		size_t length;
		int rc;

		if (!region->parts[i])
			continue;
		rc = transport_region_export(region->parts[i], record, &length, error);
		if (rc)
			return rc;
		record_put_u32(writer, (uint32_t)length);
		record_put_bytes(writer, record, length);
	}
	return 0;
}

/* The next part, inside of the record. */
static int next_part(struct record_reader *reader, const unsigned char **part, uint32_t *bytes,
		     struct record_head *head, struct error *error)
{
	struct record_reader inner;

	*bytes = record_get_u32(reader);
	if (reader->failed || *bytes > reader->length - reader->used)
		return error_set(error, ERROR_MESSAGE,
				 "the several record's part of %u bytes does not fit into it",
				 *bytes);
	*part = reader->data + reader->used;
	reader->used += *bytes;
	return record_open(&inner, *part, *bytes, head, error);
}

int several_part(const struct transport_endpoint *endpoint, const void **record, size_t *length,
		 struct error *error)
{
	const struct transport_domain *member = endpoint->domain;
	struct record_reader reader;
	struct record_head whole, head;
	const unsigned char *part = NULL, *found = NULL;
	uint32_t count, bytes = 0;
	size_t found_bytes = 0;
	int rc = import_open_as(endpoint, provider_several.name, RECORD_REGION, *record, *length,
				&reader, &whole, error);

	if (rc)
		return rc;
	count = record_get_u32(&reader);
	rc = record_check(&reader, "number of parts", count, 1, TRANSPORTS_MAX, error);
	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = next_part(&reader, &part, &bytes, &head, error);
		if (!rc && head.bytes != whole.bytes)
			rc = error_set(
				error, ERROR_MESSAGE,
				"the several record's part %u is of %llu bytes, the whole of "
				"%llu",
				i, (unsigned long long)head.bytes, (unsigned long long)whole.bytes);
		if (!rc && !strcmp(head.provider, member->wire_name)) {
			found = part;
			found_bytes = bytes;
		}
	}
	if (!rc)
		rc = record_done(&reader, error);
	if (!rc && !found)
		rc = error_set(error, ERROR_UNSUPPORTED,
			       "the peer has not registered this memory with transport %s",
			       member->wire_name);
	*record = found;
	*length = found_bytes;
	return rc;
}
