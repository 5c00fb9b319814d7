/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/cuda/cuda.h"

#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <inttypes.h>
#include <unistd.h>

static struct cuda_region *more_of(const struct transport_region *region)
{
	return ((struct shm_region *)region->state)->more;
}

/* Copies from memory that is not pinned go through a buffer of the driver's, in the call. What the host program
 * pinned itself is as good. */
static int pin(struct transport_region *region, struct cuda_region *cuda, struct error *error)
{
	int device = cuda_domain_of(region->domain)->device, rc = cuda_enter(device, error);

	if (rc)
		return rc;
	rc = cuda_calls()->host_register(region->memory, region->bytes);
	cuda_leave();
	cuda->pinned = !rc;
	return rc && rc != CUDA_HOST_REGISTERED
		       ? cuda_failed(rc, error, "pinning %" PRIu64 " bytes at %p for copies to %s",
				     region->bytes, region->memory, cuda_device_text(device))
		       : 0;
}

static int use_device(struct transport_region *region, struct cuda_region *cuda,
		      const struct cuda_pointer *pointer, struct error *error)
{
	int rc = cuda_peer_check(cuda_domain_of(region->domain)->device, pointer->device, error);

	if (rc)
		return rc;
	region->on_device = true;
	cuda->record.identity = ((struct shm_domain *)region->domain->state)->self;
	if (region->source)
		return 0;
	rc = cuda_enter(pointer->device, error);
	if (rc)
		return rc;
	rc = cuda_share(region, pointer, error);
	cuda_leave();
	return rc;
}

/* Shm's first, for what of it does not depend on where the memory lies. */
int cuda_region_register(struct transport_region *region, struct error *error)
{
	struct cuda_pointer pointer;
	struct shm_region *shm;
	int rc = cuda_pointer_of(region->memory, region->bytes, &pointer, error);
	bool device = pointer.memory == CUDA_MEMORY_DEVICE || pointer.memory == CUDA_MEMORY_MANAGED;

	if (!rc)
		rc = shm_region_register(region, error);
	if (rc || (!device && !region->source))
		return rc;
	shm = region->state;
	shm->more = memory_zalloc(1, sizeof(struct cuda_region));
	if (!shm->more)
		rc = memory_error(error, "registering memory", sizeof(struct cuda_region));
	else if (device)
		rc = use_device(region, shm->more, &pointer, error);
	else
		rc = pin(region, shm->more, error);
	if (rc) {
		memory_free(shm->more);
		shm_region_close(region);
	}
	return rc;
}

/* Shm's too. Where copies go from it to devices of peers, and this process does not see to it itself, it is pinned. */
int cuda_region_allocate(struct transport_region *region, struct error *error)
{
	struct shm_region *shm;
	int rc = shm_region_allocate(region, error);

	if (rc || region->domain->options.device_memory ||
	    !cuda_domain_of(region->domain)->device_targets)
		return rc;
	shm = region->state;
	shm->more = memory_zalloc(1, sizeof(struct cuda_region));
	rc = shm->more ? pin(region, shm->more, error)
		       : memory_error(error, "allocating a region", sizeof(struct cuda_region));
	if (rc) {
		memory_free(shm->more);
		shm_region_close(region);
	}
	return rc;
}

int cuda_region_export(const struct transport_region *region, struct record_writer *writer,
		       struct error *error)
{
	struct cuda_region *cuda = more_of(region);

	if (!cuda || !cuda->record.way) {
		record_put_u32(writer, CUDA_HOST_MEMORY);
		return shm_region_export(region, writer, error);
	}
	if (!cuda->exported) {
		cuda->exported = true;
		cuda->bytes = region->bytes;
		cuda->next = cuda_domain_of(region->domain)->regions;
		cuda_domain_of(region->domain)->regions = cuda;
	}
	if (cuda->record.way == CUDA_MAPPED)
		shm_process_allow(
			region->domain->state); /* its descriptors are taken from this process */
	cuda_region_record_put(writer, &cuda->record);
	return 0;
}

static void forget(struct cuda_domain *domain, const struct cuda_region *cuda)
{
	const struct cuda_region **link = &domain->regions;

	while (*link && *link != cuda)
		link = (const struct cuda_region **)&(*link)->next;
	if (*link)
		*link = cuda->next;
}

void cuda_region_close(struct transport_region *region)
{
	struct cuda_region *cuda = more_of(region);
	bool own = getpid() == region->domain->pid;

	if (cuda) {
		forget(cuda_domain_of(region->domain), cuda);
		cuda_unshare(region);
		if (cuda->pinned && own &&
		    !cuda_enter(cuda_domain_of(region->domain)->device, NULL)) {
			cuda_calls()->host_unregister(region->memory);
			cuda_leave();
		}
		memory_free(cuda);
	}
	shm_region_close(region);
}
