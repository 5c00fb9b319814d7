/* SPDX-License-Identifier: Apache-2.0
 *
 * share.c -- how memory of a device is handed to other processes, decided by how it was made:
 *
 *   cudaMalloc             an IPC handle of the whole allocation
 *   cuMemMap (torch's      a descriptor of each physical part under the region, one for all regions that lie in it;
 *   expandable_segments)   peers take it from this process (pidfd_getfd)
 *   pools, managed memory, what another process made: refused, with what to do instead
 */
#include "transport/cuda/cuda.h"

#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <inttypes.h>
#include <unistd.h>

static int refuse(const struct transport_region *region, const char *what, const char *cure,
		  struct error *error)
{
	return error_set(error, ERROR_UNSUPPORTED,
			 "%" PRIu64 " bytes at %p are %s, which no other process can open: %s",
			 region->bytes, region->memory, what, cure);
}

static const char cure_expandable[] =
	"with torch set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False, or make the memory with file descriptors "
	"(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)";

static int share_ipc(struct cuda_region_record *record, const struct cuda_pointer *pointer,
		     struct error *error)
{
	int rc = cuda_calls()->ipc_export(record->address, record->handle);

	if (rc)
		return cuda_failed(rc, error, "sharing memory of %s",
				   cuda_device_text(pointer->device));
	record->way = CUDA_IPC;
	record->offset = record->address - pointer->base;
	record->shared_bytes = pointer->bytes;
	return 0;
}

/* ---- mapped memory ---- */

static int new_descriptor(struct transport_region *region, uint64_t address, int *fd,
			  struct error *error)
{
	const struct cuda_calls *calls = cuda_calls();
	cuda_physical physical;
	int rc = calls->retain(address, &physical);

	if (rc)
		return cuda_failed(rc, error, "sharing mapped memory at 0x%" PRIx64, address);
	rc = calls->physical_export(physical, fd);
	calls->physical_release(physical);
	return rc ? refuse(region, "mapped without file descriptors", cure_expandable, error) : 0;
}

/* One descriptor a part, however many regions lie in it: a process has few of them. */
static int descriptor_of(struct transport_region *region, uint64_t address, uint64_t id,
			 uint32_t *fd, struct error *error)
{
	struct cuda_domain *domain = cuda_domain_of(region->domain);
	struct cuda_exported *one;
	int rc, made;

	for (size_t i = 0; i < domain->exported.count; i++) {
		one = &domain->exported.items[i];
		if (one->id != id)
			continue;
		one->holders++;
		*fd = (uint32_t)one->fd;
		return 0;
	}
	rc = new_descriptor(region, address, &made, error);
	if (rc)
		return rc;
	one = array_push(&domain->exported);
	if (!one) {
		close(made);
		return memory_error(error, "sharing device memory", sizeof(*one));
	}
	*one = (struct cuda_exported){.id = id, .fd = made, .holders = 1};
	*fd = (uint32_t)made;
	return 0;
}

static void drop_descriptor(struct cuda_domain *domain, uint64_t id)
{
	for (size_t i = 0; i < domain->exported.count; i++) {
		struct cuda_exported *one = &domain->exported.items[i];

		if (one->id != id || --one->holders)
			continue;
		close(one->fd);
		*one = domain->exported.items[--domain->exported.count];
		return;
	}
}

static int add_part(struct transport_region *region, const struct cuda_pointer *part,
		    struct error *error)
{
	struct cuda_region *cuda = ((struct shm_region *)region->state)->more;
	struct cuda_region_record *record = &cuda->record;
	uint32_t fd = 0;
	int rc;

	if (record->count == CUDA_PARTS_MAX)
		return error_set(
			error, ERROR_LIMIT,
			"%" PRIu64
			" bytes at %p lie in more than %u parts of mapped memory: register them "
			"as several regions, or with torch set "
			"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
			region->bytes, region->memory, CUDA_PARTS_MAX);
	if (part->bytes % CUDA_UNIT_BYTES)
		return error_set(error, ERROR_UNSUPPORTED,
				 "mapped memory in a part of %" PRIu64 " bytes", part->bytes);
	rc = descriptor_of(region, part->base, part->id, &fd, error);
	if (rc)
		return rc;
	cuda->ids[record->count] = part->id;
	record->parts[record->count++] =
		(struct cuda_part){.fd = fd, .units = (uint32_t)(part->bytes / CUDA_UNIT_BYTES)};
	record->shared_bytes += part->bytes;
	return 0;
}

static int share_mapped(struct transport_region *region, const struct cuda_pointer *first,
			struct error *error)
{
	struct cuda_region *cuda = ((struct shm_region *)region->state)->more;
	uint64_t end = cuda->record.address + region->bytes, at = first->base;
	struct cuda_pointer part = *first;
	int rc = 0;

	cuda->record.way = CUDA_MAPPED;
	cuda->record.offset = cuda->record.address - first->base;
	while (!rc && at < end) {
		if (at != first->base)
			rc = cuda_pointer_of((void *)(uintptr_t)at, 1, &part, error);
		if (!rc && (!part.mapped || part.base != at || part.device != first->device))
			rc = error_set(error, ERROR_BOUNDS,
				       "%" PRIu64
				       " bytes at %p reach beyond the memory that is mapped there: "
				       "register no more than was allocated",
				       region->bytes, region->memory);
		if (!rc)
			rc = add_part(region, &part, error);
		at += part.bytes;
	}
	if (rc)
		cuda_unshare(region);
	return rc;
}

int cuda_share(struct transport_region *region, const struct cuda_pointer *pointer,
	       struct error *error)
{
	struct cuda_region *cuda = ((struct shm_region *)region->state)->more;
	struct cuda_facts facts;
	int rc;

	if (pointer->memory == CUDA_MEMORY_MANAGED)
		return refuse(region, "managed memory", "allocate with cudaMalloc", error);
	if (pointer->pool)
		return refuse(
			region, "of a pool (cudaMallocAsync)",
			"allocate with cudaMalloc; with torch set PYTORCH_CUDA_ALLOC_CONF=backend:native",
			error);
	if (!pointer->ipc && !pointer->mapped)
		return refuse(region, "no allocation of this process's own",
			      "register them in the process that made them", error);
	rc = cuda_device_facts(pointer->device, &facts, error);
	if (rc)
		return rc;
	memcpy(cuda->record.uuid, facts.uuid, sizeof(facts.uuid));
	cuda->record.address = (uint64_t)(uintptr_t)region->memory;
	return pointer->mapped ? share_mapped(region, pointer, error)
			       : share_ipc(&cuda->record, pointer, error);
}

void cuda_unshare(struct transport_region *region)
{
	struct cuda_region *cuda = ((struct shm_region *)region->state)->more;

	for (uint32_t i = 0; i < cuda->record.count; i++)
		drop_descriptor(cuda_domain_of(region->domain), cuda->ids[i]);
	cuda->record.count = 0;
}
