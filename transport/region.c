/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/import.h"

#include "base/memory.h"
#include "transport/cuda/device.h"

/* Memory that the driver does not know is the host's. */
static int find_device(struct transport_region *region, struct error *error)
{
	const struct transport_domain *domain = region->domain;
	struct cuda_pointer pointer;
	int rc;

	if (!region->memory || !domain->options.device_memory)
		return 0;
	rc = cuda_pointer_of(region->memory, region->bytes, &pointer, error);
	region->on_device =
		pointer.memory == CUDA_MEMORY_DEVICE || pointer.memory == CUDA_MEMORY_MANAGED;
	if (rc || !region->on_device || domain->caps.gpu_memory)
		return rc;
	return error_set(error, ERROR_UNSUPPORTED,
			 "provider %s cannot use %llu bytes at %p, memory of %s%s%s",
			 domain->wire_name, (unsigned long long)region->bytes, region->memory,
			 cuda_device_text(pointer.device), domain->no_gpu[0] ? ": " : "",
			 domain->no_gpu);
}

static int open_region(struct transport_domain *domain, void *memory, uint64_t bytes, bool source,
		       struct transport_region **out, struct error *error)
{
	struct transport_region *region;
	int rc = domain_check_process(domain, error);

	*out = NULL;
	if (rc)
		return rc;
	if (!bytes)
		return error_set(error, ERROR_USAGE, "a region of 0 bytes is of no use");
	region = memory_zalloc(1, sizeof(*region));
	if (!region)
		return memory_error(error, "opening a region", sizeof(*region));
	region->domain = domain;
	region->memory = memory;
	region->bytes = bytes;
	region->source = source;
	rc = find_device(region, error);
	if (!rc)
		rc = memory ? domain->ops.region_register(region, error)
			    : domain->ops.region_allocate(region, error);
	if (rc) {
		memory_free(region);
		return rc;
	}
	domain->children++;
	*out = region;
	return 0;
}

int transport_region_allocate(struct transport_domain *domain, uint64_t bytes,
			      struct transport_region **region, struct error *error)
{
	return open_region(domain, NULL, bytes, false, region, error);
}

static int check_memory(const void *memory, uint64_t bytes, struct error *error)
{
	uintptr_t end;

	if (!memory || __builtin_add_overflow((uintptr_t)memory, bytes, &end))
		return error_set(error, ERROR_USAGE, "no memory of %llu bytes at %p",
				 (unsigned long long)bytes, memory);
	return transport_memory_check(memory, bytes, error);
}

int transport_region_register(struct transport_domain *domain, void *memory, uint64_t bytes,
			      struct transport_region **region, struct error *error)
{
	int rc = check_memory(memory, bytes, error);

	*region = NULL;
	return rc ? rc : open_region(domain, memory, bytes, false, region, error);
}

int transport_source_register(struct transport_domain *domain, void *memory, uint64_t bytes,
			      struct transport_region **region, struct error *error)
{
	int rc = check_memory(memory, bytes, error);

	*region = NULL;
	return rc ? rc : open_region(domain, memory, bytes, true, region, error);
}

void transport_region_close(struct transport_region **region)
{
	struct transport_region *old = *region;

	if (!old)
		return;
	*region = NULL;
	old->domain->ops.region_close(old);
	old->domain->children--;
	memory_free(old);
}

void *transport_region_memory(const struct transport_region *region)
{
	return region->memory;
}

uint64_t transport_region_bytes(const struct transport_region *region)
{
	return region->bytes;
}

bool transport_region_mapped(const struct transport_region *region)
{
	return region->mapped;
}

bool transport_region_on_device(const struct transport_region *region)
{
	return region->on_device;
}

int transport_region_export(const struct transport_region *region,
			    unsigned char record[TRANSPORT_RECORD_BYTES], size_t *length,
			    struct error *error)
{
	const struct transport_domain *domain = region->domain;
	const struct record_head head = {.kind = RECORD_REGION, .bytes = region->bytes};
	struct record_writer writer;
	int rc;

	if (region->source)
		return error_set(error, ERROR_USAGE,
				 "memory at %p was registered as a source, which no peer writes",
				 region->memory);
	rc = export_begin(domain, record, &head, &writer, error);

	if (!rc)
		rc = domain->ops.region_export(region, &writer, error);
	return rc ? rc : record_finish(&writer, length, error);
}
