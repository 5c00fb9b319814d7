/* SPDX-License-Identifier: Apache-2.0
 *
 * region.c -- memory on every rail.
 *
 * Only an inference rank's memory can be written from outside: a trainer's weights have no key that a
 * peer could use by mistake. Over a stream the bytes come through this process, and a write that has
 * begun goes on after its key is gone: so closing a region closes the streams that may be inside it.
 */
#include "transport/ofi/way.h"

#include "base/log.h"
#include <unistd.h>

static void unregister(const struct ofi_domain *domain, struct ofi_region *ofi)
{
	for (uint32_t i = 0; i < OFI_RAILS_MAX; i++) {
		if (ofi->mrs[i] && fi_close(&ofi->mrs[i]->fid))
			log_warn("%s: %s does not let go of a region", domain->name,
				 domain->rails[i].interface.name);
		ofi->mrs[i] = NULL;
	}
}

static int register_all(struct transport_region *region, struct ofi_region *ofi,
			struct error *error)
{
	struct ofi_domain *domain = region->domain->state;
	int rc = 0;

	ofi_each_rail(rail, domain) {
		uint64_t access = ofi_rail_needs_local(rail) ? FI_WRITE : 0;

		if (ofi->writable)
			access |= FI_REMOTE_WRITE;
		if (!access || !region->bytes)
			continue;
		rc = ofi_rail_register(rail, region->memory, region->bytes, access,
				       &ofi->mrs[rail->index], &ofi->keys[rail->index],
				       &ofi->bases[rail->index], error);
		if (rc)
			break;
		ofi->descs[rail->index] = fi_mr_desc(ofi->mrs[rail->index]);
	}
	if (rc)
		unregister(domain, ofi);
	return rc;
}

static int open_region(struct transport_region *region, bool own, struct error *error)
{
	struct ofi_domain *domain = region->domain->state;
	struct ofi_region *ofi = memory_zalloc(1, sizeof(*ofi));
	int rc = 0;

	if (!ofi)
		return memory_error(error, "opening a region", sizeof(*ofi));
	ofi->writable = region->domain->options.self.role == ROLE_INFERENCE;
	if (own) {
		rc = pages_map(&ofi->pages, region->bytes, domain->name, error);
		region->memory = ofi->pages.memory;
	}
	if (!rc)
		rc = register_all(region, ofi, error);
	if (rc) {
		pages_unmap(&ofi->pages);
		memory_free(ofi);
		return rc;
	}
	region->state = ofi;
	return 0;
}

int ofi_region_allocate(struct transport_region *region, struct error *error)
{
	return open_region(region, true, error);
}

int ofi_region_register(struct transport_region *region, struct error *error)
{
	return open_region(region, false, error);
}

/* Lanes in the middle of a write would go on with it. */
static void close_streams(struct ofi_domain *domain)
{
	for (size_t i = 0; i < domain->endpoints.count; i++)
		if (domain->endpoints.items[i])
			ofi_lanes_close(domain->endpoints.items[i]);
}

void ofi_region_close(struct transport_region *region)
{
	struct ofi_domain *domain = region->domain->state;
	struct ofi_region *ofi = region->state;

	/* not in a forked child: registrations are its parent's */
	if (getpid() == region->domain->pid) {
		unregister(domain, ofi);
		if (ofi->writable && domain->stream)
			close_streams(domain);
		pages_unmap(&ofi->pages);
	}
	memory_free(ofi);
}

int ofi_region_export(const struct transport_region *region, struct record_writer *writer,
		      struct error *error)
{
	const struct ofi_domain *domain = region->domain->state;
	const struct ofi_region *ofi = region->state;
	struct ofi_region_record record = {
		.identity = domain->self, .nonce = domain->nonce, .rail_count = domain->rail_count};

	if (!ofi->writable)
		return error_set(error, ERROR_STATE,
				 "only an inference rank's memory is written by peers; this is %s",
				 region->domain->options.name);
	for (uint32_t i = 0; i < domain->rail_count; i++)
		record.keys[i] = (struct ofi_key){ofi->keys[i], ofi->bases[i]};
	ofi_region_record_put(writer, &record);
	return 0;
}

static int check_owner(const struct ofi_endpoint *endpoint, uint64_t nonce, struct error *error)
{
	if (endpoint->connected && endpoint->peer.nonce != nonce)
		return error_set(error, ERROR_MESSAGE,
				 "the region's record is of another process than the one this "
				 "endpoint is connected to: exchange records again");
	return 0;
}

int ofi_remote_import(struct transport_remote *remote, struct record_reader *reader,
		      struct error *error)
{
	const struct ofi_endpoint *endpoint = remote->endpoint->state;
	const struct ofi_domain *domain = endpoint->domain;
	struct ofi_region_record *record = memory_zalloc(1, sizeof(*record));
	int rc;

	if (!record)
		return memory_error(error, "importing a region", sizeof(*record));
	rc = ofi_region_record_get(reader, record, error);
	if (!rc)
		rc = check_owner(endpoint, record->nonce, error);
	if (!rc && !domain->no_identity && identity_comparable(&record->identity, &domain->self) &&
	    process_dead(record->identity.pid, record->identity.start))
		rc = error_set(error, ERROR_PEER_LOST,
			       "process %llu that made the record has ended",
			       (unsigned long long)record->identity.pid);
	if (rc)
		memory_free(record);
	else
		remote->state = record;
	return rc;
}

void ofi_remote_close(struct transport_remote *remote)
{
	memory_free(remote->state);
}
