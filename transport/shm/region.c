/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/shm/shm.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t whole_pages(uint64_t bytes)
{
	return memory_round_up(bytes, memory_page_bytes());
}

static uint64_t file_bytes(uint64_t bytes)
{
	return whole_pages(bytes) + whole_pages(sizeof(struct shm_trailer));
}

static int new_region(const struct transport_region *region, const char *what,
		      struct shm_region **out, struct error *error)
{
	if (region->bytes > SHM_REGION_MAX)
		return error_set(error, ERROR_LIMIT,
				 "a region of %" PRIu64 " bytes; at most %" PRIu64 " are possible",
				 region->bytes, SHM_REGION_MAX);
	*out = memory_zalloc(1, sizeof(**out));
	return *out ? 0 : memory_error(error, what, sizeof(**out));
}

int shm_region_allocate(struct transport_region *region, struct error *error)
{
	struct shm_region *shm;
	struct shm_trailer *trailer;
	int rc;

	rc = new_region(region, "allocating a region", &shm, error);
	if (rc)
		return rc;
	shm->kind = SHM_MAPPED;
	rc = shm_memfd_create(&shm->memfd, "a region", file_bytes(region->bytes), error);
	if (rc) {
		memory_free(shm);
		return rc;
	}
	trailer = (void *)(shm->memfd.memory + whole_pages(region->bytes));
	trailer->magic = SHM_TRAILER_MAGIC;
	trailer->bytes = region->bytes;
	memcpy(trailer->cookie, shm->memfd.cookie, sizeof(trailer->cookie));
	region->state = shm;
	region->memory = shm->memfd.memory;
	region->mapped = true;
	return 0;
}

int shm_region_register(struct transport_region *region, struct error *error)
{
	struct shm_region *shm;
	int rc;

	rc = new_region(region, "registering memory", &shm, error);
	if (rc)
		return rc;
	shm->kind = SHM_PROCESS;
	shm->memfd.fd = -1;
	region->state = shm;
	return 0;
}

void shm_region_close(struct transport_region *region)
{
	struct shm_region *shm = region->state;

	shm_memfd_close(&shm->memfd);
	memory_free(shm);
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* The kernel looks up each page that a peer writes, so in huge ones a write is a fifth faster: pages to
 * come (HUGEPAGE) and those that are there, whose bytes stay (COLLAPSE). The first and the last one may
 * reach beyond the region: regions of one allocation meet within them. A small region is not worth it,
 * for each advice may split a mapping of the host, of which a process may have 65,530. Where the kernel
 * cannot or will not, small pages do. */
static void use_huge_pages(const struct transport_region *region)
{
	uintptr_t at = (uintptr_t)region->memory, end = at + region->bytes;

	at = at / SHM_HUGE_BYTES * SHM_HUGE_BYTES;
	end = (end + SHM_HUGE_BYTES - 1) / SHM_HUGE_BYTES * SHM_HUGE_BYTES;
	madvise((void *)at, end - at, MADV_HUGEPAGE);
	madvise((void *)at, end - at, MADV_COLLAPSE);
}

/* Only exported memory is written by others, so only then is leave given. */
int shm_region_export(const struct transport_region *region, struct record_writer *writer,
		      struct error *error)
{
	struct shm_region *shm = region->state;
	struct shm_domain *domain = region->domain->state;
	struct shm_region_record record = {.identity = domain->self, .kind = shm->kind};

	if (shm->kind == SHM_MAPPED) {
		record.fd = (uint32_t)shm->memfd.fd;
		memcpy(record.cookie, shm->memfd.cookie, sizeof(record.cookie));
	} else {
		record.address = (uint64_t)(uintptr_t)region->memory;
		shm_process_allow(domain);
		if (!shm->exported && region->bytes >= SHM_HUGE_BYTES)
			use_huge_pages(region);
		shm->exported = true;
	}
	shm_region_record_put(writer, &record);
	return 0;
}

static int check_trailer(int fd, uint64_t bytes, const struct shm_region_record *record,
			 struct error *error)
{
	struct shm_trailer trailer;
	ssize_t n = pread(fd, &trailer, sizeof(trailer), (off_t)whole_pages(bytes));

	if (n != sizeof(trailer) || trailer.magic != SHM_TRAILER_MAGIC || trailer.bytes != bytes ||
	    memcmp(trailer.cookie, record->cookie, sizeof(trailer.cookie)) != 0)
		return error_set(error, ERROR_PEER_LOST,
				 "what process %" PRIu64
				 " has there is not the region of the record any "
				 "more",
				 record->identity.pid);
	return 0;
}

/* ---- remotes ---- */

static int map_peer(struct transport_remote *remote, struct error *error)
{
	struct shm_remote *shm = remote->state;
	int fd, rc = shm_memfd_open_peer(shm->record.identity.pid, shm->record.fd,
					 file_bytes(remote->bytes), &fd, error);

	if (rc)
		return rc;
	rc = check_trailer(fd, remote->bytes, &shm->record, error);
	if (!rc)
		rc = shm_map(fd, shm->map_bytes, &shm->memory, error);
	close(fd); /* the mapping holds the memory */
	if (rc)
		return rc;
	/* A forked child would keep the peer's memory mapped after this process has died, and
	 * the peer takes that death for proof that nobody can write it any more. */
	if (madvise(shm->memory, shm->map_bytes, MADV_DONTFORK) != 0) {
		rc = error_set_errno(error, ERROR_UNSUPPORTED, errno,
				     "shm: a mapping cannot be kept from forked children");
		shm_unmap(&shm->memory, shm->map_bytes);
	}
	return rc;
}

static int import_mapped(struct transport_remote *remote, struct error *error)
{
	struct shm_remote *shm = remote->state;
	int rc;

	shm->map_bytes = whole_pages(remote->bytes);
	remote->kept = shm_kept_take(remote->endpoint->domain->state, shm);
	rc = remote->kept ? 0 : map_peer(remote, error);
	remote->pointer = shm->memory;
	return rc;
}

/* A region's owner must be the process that the endpoint is of: else its bytes would
 * outlive the fence. Known once connected; connect asks again. */
int shm_remote_check(const struct transport_remote *remote, struct error *error)
{
	const struct shm_endpoint *endpoint = remote->endpoint->state;
	const struct shm_remote *shm = remote->state;
	const struct identity *owner = &shm->record.identity, *peer = &endpoint->peer.identity;

	if (owner->pid != peer->pid || owner->start != peer->start)
		return error_set(error, ERROR_MESSAGE,
				 "the region is of process %" PRIu64 ", the endpoint of process "
				 "%" PRIu64,
				 owner->pid, peer->pid);
	return shm->record.kind == SHM_PROCESS ? shm_process_probe(remote->endpoint, error) : 0;
}

int shm_remote_import(struct transport_remote *remote, struct record_reader *reader,
		      struct error *error)
{
	const struct shm_domain *domain = remote->endpoint->domain->state;
	const struct shm_endpoint *endpoint = remote->endpoint->state;
	struct shm_remote *shm = memory_zalloc(1, sizeof(*shm));
	int rc;

	if (!shm)
		return memory_error(error, "importing a region", sizeof(*shm));
	remote->state = shm;
	rc = shm_region_record_get(reader, remote->bytes, &shm->record, error);
	if (!rc)
		rc = shm_identity_check(&shm->record.identity, &domain->self, error);
	if (!rc && endpoint->connected)
		rc = shm_remote_check(remote, error);
	if (!rc && shm->record.kind == SHM_MAPPED)
		rc = import_mapped(remote, error);
	if (rc) {
		remote->state = NULL;
		memory_free(shm);
	}
	return rc;
}

void shm_remote_close(struct transport_remote *remote)
{
	struct shm_remote *shm = remote->state;

	/* not in a forked child: it never had the mapping, and may have another one there */
	if (getpid() == remote->endpoint->domain->pid)
		shm_kept_put(remote);
	memory_free(shm);
}
