/* SPDX-License-Identifier: Apache-2.0
 *
 * remote.c -- a peer's device memory, opened for this process's device:
 *
 *   own process      at its own address, with peer access if it is another device's
 *   ipc              the allocation is opened (opened.c), the region lies at an offset
 *   mapped           addresses are reserved, and every physical part is mapped there:
 *                    [ part 0 ][ part 1 ][ part 2 ]
 *                         └ offset: the region begins
 */
#include "transport/cuda/cuda.h"

#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static int device_of(const unsigned char uuid[16], const struct transport_endpoint *endpoint,
		     int *device, struct error *error)
{
	struct cuda_facts facts;
	int count, rc = cuda_device_count(&count, error);

	for (*device = 0; !rc && *device < count; ++*device) {
		rc = cuda_device_facts(*device, &facts, error);
		if (!rc && memcmp(facts.uuid, uuid, sizeof(facts.uuid)) == 0)
			return 0;
	}
	if (rc)
		return rc;
	return error_set(
		error, ERROR_UNSUPPORTED,
		"the memory of %s is on a GPU that this process cannot see (GPU-%02x%02x%02x%02x..; it sees "
		"%d): let CUDA_VISIBLE_DEVICES name it here too",
		endpoint->name, uuid[0], uuid[1], uuid[2], uuid[3], count);
}

/* ---- mapped memory ---- */

static int take_descriptor(int pidfd, uint64_t pid, uint32_t number, int *fd, struct error *error)
{
	*fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
	if (*fd >= 0)
		return 0;
	if (errno == EPERM)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"a descriptor of device memory of process %" PRIu64
			" may not be taken: Yama's ptrace_scope, another user, or a container without "
			"CAP_SYS_PTRACE; with torch PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False needs none",
			pid);
	return error_set_errno(error, ERROR_PEER_LOST, errno,
			       "taking descriptor %u of process %" PRIu64, number, pid);
}

static int map_part(int pidfd, const struct cuda_region_record *record, uint32_t i, uint64_t at,
		    struct error *error)
{
	const struct cuda_calls *calls = cuda_calls();
	uint64_t bytes = (uint64_t)record->parts[i].units * CUDA_UNIT_BYTES;
	cuda_physical physical;
	int fd, rc = take_descriptor(pidfd, record->identity.pid, record->parts[i].fd, &fd, error);

	if (rc)
		return rc;
	rc = calls->physical_import(fd, &physical);
	close(fd);
	if (!rc) {
		rc = calls->map(at, bytes, physical);
		calls->physical_release(physical); /* the mapping holds the memory */
	}
	return rc ? cuda_failed(rc, error,
				"mapping part %u of %u of the device memory of process %" PRIu64, i,
				record->count, record->identity.pid)
		  : 0;
}

static int unmap_window(struct cuda_remote *cuda, uint64_t mapped)
{
	int rc = mapped ? cuda_calls()->unmap(cuda->window, mapped) : 0;

	cuda_calls()->unreserve(cuda->window, cuda->window_bytes);
	return rc;
}

static int open_mapped(struct cuda_remote *cuda, const struct cuda_region_record *record,
		       struct error *error)
{
	uint64_t mapped = 0;
	int rc, pidfd = process_open(record->identity.pid, record->identity.start);

	if (pidfd < 0)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"process %" PRIu64
			" cannot be asked for its device memory: this kernel gives no pidfd",
			record->identity.pid);
	cuda->window_bytes = record->shared_bytes;
	rc = cuda_calls()->reserve(cuda->window_bytes, &cuda->window);
	if (rc) {
		close(pidfd);
		return cuda_failed(rc, error, "reserving %" PRIu64 " bytes of addresses",
				   cuda->window_bytes);
	}
	for (uint32_t i = 0; i < record->count && !rc; i++) {
		rc = map_part(pidfd, record, i, cuda->window + mapped, error);
		if (!rc)
			mapped += (uint64_t)record->parts[i].units * CUDA_UNIT_BYTES;
	}
	close(pidfd);
	if (rc)
		unmap_window(cuda, mapped);
	cuda->address = cuda->window + record->offset;
	return rc;
}

/* ---- all ways ---- */

static int open_entered(struct transport_remote *remote, struct cuda_remote *cuda,
			const struct cuda_region_record *record, int owner, struct error *error)
{
	const struct shm_domain *shm = remote->endpoint->domain->state;
	int device = cuda_domain_of(remote->endpoint->domain)->device, rc = 0;
	uint64_t base;

	if (owner != device)
		rc = cuda_calls()->peer_enable(owner);
	if (rc)
		return cuda_failed(rc, error, "enabling peer access from %s",
				   cuda_device_text(device));
	if (record->identity.pid == shm->self.pid && record->identity.start == shm->self.start) {
		cuda->address = record->address;
		return 0;
	}
	if (record->way == CUDA_MAPPED)
		return open_mapped(cuda, record, error);
	rc = cuda_opened_get(record, device, &cuda->opened, &base, error);
	if (!rc)
		cuda->address = base + record->offset;
	return rc;
}

static int open_device(struct transport_remote *remote, struct cuda_remote *cuda,
		       const struct cuda_region_record *record, struct error *error)
{
	int device = cuda_domain_of(remote->endpoint->domain)->device, owner;
	int rc = device_of(record->uuid, remote->endpoint, &owner, error);

	if (!rc)
		rc = cuda_peer_check(device, owner, error);
	if (!rc)
		rc = cuda_enter(device, error);
	if (rc)
		return rc;
	rc = open_entered(remote, cuda, record, owner, error);
	cuda_leave();
	if (rc)
		return rc;
	cuda->device = true;
	cuda_domain_of(remote->endpoint->domain)->device_targets = true;
	remote->device_pointer = (void *)(uintptr_t)cuda->address;
	return 0;
}

static int import_device(struct transport_remote *remote, struct record_reader *reader,
			 struct cuda_region_record *record, struct error *error)
{
	const struct shm_domain *domain = remote->endpoint->domain->state;
	const struct shm_endpoint *endpoint = remote->endpoint->state;
	struct shm_remote *shm = memory_zalloc(1, sizeof(*shm));
	int rc;

	if (!shm)
		return memory_error(error, "importing a region", sizeof(*shm));
	remote->state = shm;
	shm->more = memory_zalloc(1, sizeof(struct cuda_remote));
	rc = shm->more ? cuda_region_record_get(reader, remote->bytes, record, error)
		       : memory_error(error, "importing a region", sizeof(struct cuda_remote));
	if (!rc)
		rc = shm_identity_check(&record->identity, &domain->self, error);
	shm->record.identity = record->identity;
	shm->record.kind = SHM_MAPPED; /* what it is fenced by */
	if (!rc && endpoint->connected)
		rc = shm_remote_check(remote, error);
	if (!rc)
		rc = open_device(remote, shm->more, record, error);
	if (rc) {
		memory_free(shm->more);
		memory_free(shm);
		remote->state = NULL;
	}
	return rc;
}

static int import_host(struct transport_remote *remote, struct record_reader *reader,
		       struct error *error)
{
	struct shm_remote *shm;
	int rc = shm_remote_import(remote, reader, error);

	if (rc)
		return rc;
	shm = remote->state;
	shm->more = memory_zalloc(1, sizeof(struct cuda_remote));
	if (shm->more)
		return 0;
	shm_remote_close(remote);
	remote->state = remote->pointer = NULL;
	return memory_error(error, "importing a region", sizeof(struct cuda_remote));
}

int cuda_remote_import(struct transport_remote *remote, struct record_reader *reader,
		       struct error *error)
{
	struct cuda_region_record *record;
	uint32_t way = record_get_u32(reader);
	int rc = record_check(reader, "way", way, CUDA_HOST_MEMORY, CUDA_MAPPED, error);

	if (rc || way == CUDA_HOST_MEMORY)
		return rc ? rc : import_host(remote, reader, error);
	record = memory_zalloc(1, sizeof(*record));
	if (!record)
		return memory_error(error, "importing a region", sizeof(*record));
	record->way = way;
	rc = import_device(remote, reader, record, error);
	memory_free(record);
	return rc;
}

/* Copies into it are waited for: closing what a stream still writes is what must not be. What a lost device does not
 * let go of stays open to the peer, too, until this process ends. */
static void close_device(struct transport_remote *remote, struct cuda_remote *cuda)
{
	const struct shm_remote *shm = remote->state;
	struct shm_endpoint *shared = remote->endpoint->state;
	const struct cuda_endpoint *endpoint = shared->more;
	int rc = cuda_enter(cuda_domain_of(remote->endpoint->domain)->device, NULL);

	if (!rc) {
		cuda_calls()->stream_synchronize(endpoint->stream);
		if (cuda->opened)
			rc = cuda_opened_put(cuda->opened);
		if (cuda->window)
			rc = unmap_window(cuda, cuda->window_bytes);
		if (cuda->pinned)
			cuda_calls()->host_unregister(shm->memory);
		cuda_leave();
	}
	if (rc && (cuda->opened || cuda->window))
		shared->stays_open = true;
}

void cuda_remote_close(struct transport_remote *remote)
{
	struct cuda_remote *cuda = ((struct shm_remote *)remote->state)->more;

	if (getpid() == remote->endpoint->domain->pid)
		close_device(remote, cuda);
	memory_free(cuda);
	shm_remote_close(remote);
}
