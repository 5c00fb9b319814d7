/* SPDX-License-Identifier: Apache-2.0
 *
 * memfd.c -- shared memory without a name.
 */
#include "transport/shm/shm.h"

#include "base/text.h"
#include "transport/available.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static int create_error(int errnum, struct error *error)
{
	if (errnum == ENOSYS)
		return error_set(error, ERROR_UNSUPPORTED,
				 "shm needs memfd_create (Linux 3.17), which this kernel or its "
				 "seccomp filter does not have");
	if (errnum == EMFILE || errnum == ENFILE)
		return error_set_errno(error, ERROR_LIMIT, errnum,
				       "shm: no file descriptor is left for a memfd: raise "
				       "ulimit -n");
	return error_set_errno(error, ERROR_UNSUPPORTED, errnum, "shm: memfd_create failed");
}

/* Takes all pages now: later, on a first touch, a lack of memory would be a signal and
 * not an answer. Through a mapping where the kernel gives shared memory huge pages on
 * advice. */
static int reserve(struct shm_memfd *memfd, const char *what, struct error *error)
{
	char wanted[TEXT_SHORT_BYTES];

	if (memfd->bytes >= SHM_HUGE_BYTES &&
	    madvise(memfd->memory, memfd->bytes, MADV_HUGEPAGE) == 0 &&
	    madvise(memfd->memory, memfd->bytes, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (TEMP_FAILURE_RETRY(fallocate(memfd->fd, 0, 0, (off_t)memfd->bytes)) != 0)
		return error_set_errno(error, ERROR_MEMORY, errno,
				       "%s of %s cannot be reserved in shared memory", what,
				       bytes_text(memfd->bytes, wanted));
	return 0;
}

static int fill(struct shm_memfd *memfd, const char *what, struct error *error)
{
	int rc;

	if (ftruncate(memfd->fd, (off_t)memfd->bytes) != 0)
		return error_set_errno(error, ERROR_MEMORY, errno, "%s: ftruncate failed", what);
	rc = shm_map(memfd->fd, memfd->bytes, &memfd->memory, error);
	if (!rc)
		rc = reserve(memfd, what, error);
	if (rc)
		return rc;
	if (fcntl(memfd->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		return error_set_errno(error, ERROR_UNSUPPORTED, errno,
				       "shm: a memfd cannot be sealed here");
	return identity_random(memfd->cookie, sizeof(memfd->cookie), "shm", error);
}

int shm_memfd_create(struct shm_memfd *memfd, const char *what, uint64_t bytes, struct error *error)
{
	int rc = available_check(bytes, what, "shared memory", error);

	*memfd = (struct shm_memfd){.fd = -1};
	if (rc)
		return rc;
	memfd->bytes = memory_round_up(bytes, memory_page_bytes());
	memfd->fd = memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memfd->fd < 0)
		return create_error(errno, error);
	rc = fill(memfd, what, error);
	if (rc)
		shm_memfd_close(memfd);
	return rc;
}

void shm_memfd_close(struct shm_memfd *memfd)
{
	shm_unmap(&memfd->memory, memfd->bytes);
	if (memfd->fd >= 0)
		close(memfd->fd);
	memfd->fd = -1;
}

/* The owner of a process that may be looked at, or not dumpable: then it is root. */
static int forbidden(int errnum, uint64_t pid, struct error *error)
{
	char path[64];
	struct stat info;

	snprintf(path, sizeof(path), "/proc/%" PRIu64, pid);
	if (stat(path, &info) == 0 && info.st_uid != geteuid())
		return error_set_errno(error, ERROR_UNSUPPORTED, errnum,
				       "memory of process %" PRIu64 " may not be opened: it is of "
				       "user %u%s, this process of user %u; run all workers of a "
				       "host as one user, or give CAP_SYS_PTRACE",
				       pid, (unsigned)info.st_uid,
				       info.st_uid ? "" : " (or not dumpable)",
				       (unsigned)geteuid());
	return error_set_errno(error, ERROR_UNSUPPORTED, errnum,
			       "memory of process %" PRIu64 " may not be opened: run both as one "
			       "user, or give CAP_SYS_PTRACE; a process that is not dumpable is "
			       "closed to all",
			       pid);
}

static int open_error(int errnum, uint64_t pid, struct error *error)
{
	if (errnum == EACCES || errnum == EPERM)
		return forbidden(errnum, pid, error);
	if (errnum == ENOENT || errnum == ESRCH)
		return error_set(error, ERROR_PEER_LOST,
				 "memory of process %" PRIu64 " is gone, or /proc hides it "
				 "(hidepid)",
				 pid);
	if (errnum == EMFILE || errnum == ENFILE)
		return error_set_errno(error, ERROR_LIMIT, errnum,
				       "no file descriptor is left to open a peer's memory: "
				       "raise ulimit -n");
	return error_set_errno(error, ERROR_UNSUPPORTED, errnum,
			       "memory of process %" PRIu64 " cannot be opened", pid);
}

/* Looked at before it is opened: by now the number may be a device, where opening acts.
 */
static int check_link(const char *path, uint64_t pid, struct error *error)
{
	static const char wanted[] = "/memfd:weft";
	char link[64];
	ssize_t n = readlink(path, link, sizeof(link) - 1);

	if (n < 0)
		return open_error(errno, pid, error);
	link[n] = 0;
	if (strncmp(link, wanted, sizeof(wanted) - 1) != 0)
		return error_set(error, ERROR_PEER_LOST,
				 "memory of process %" PRIu64 " is gone: in its place is '%.40s'",
				 pid, link);
	return 0;
}

static int check_sealed(int fd, uint64_t bytes, struct error *error)
{
	struct stat info;
	int seals = fcntl(fd, F_GET_SEALS);

	if (fstat(fd, &info) != 0 || seals < 0 || !(seals & F_SEAL_SHRINK))
		return error_set(error, ERROR_UNSUPPORTED,
				 "the peer's memory is not sealed against shrinking");
	if ((uint64_t)info.st_size < bytes)
		return error_set(error, ERROR_MESSAGE,
				 "the peer's memory has %" PRIu64 " bytes; its record needs "
				 "%" PRIu64,
				 (uint64_t)info.st_size, bytes);
	return 0;
}

int shm_memfd_open_peer(uint64_t pid, uint32_t number, uint64_t bytes, int *fd, struct error *error)
{
	char path[64];
	int rc;

	*fd = -1;
	snprintf(path, sizeof(path), "/proc/%" PRIu64 "/fd/%u", pid, number);
	rc = check_link(path, pid, error);
	if (rc)
		return rc;
	*fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0)
		return open_error(errno, pid, error);
	rc = check_sealed(*fd, bytes, error);
	if (rc) {
		close(*fd);
		*fd = -1;
	}
	return rc;
}

/* Where large pages may be used, the address must agree with the file offset modulo their
 * size: an address range is reserved there, and the file mapped over it. */
static void *map_aligned(int fd, uint64_t bytes)
{
	uint64_t room = memory_round_up(bytes, memory_page_bytes());
	void *range = memory_map_aligned(room, SHM_HUGE_BYTES, PROT_NONE), *memory;
	int errnum;

	if (!range)
		return MAP_FAILED;
	memory = mmap(range, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	errnum = errno;
	if (memory == MAP_FAILED)
		munmap(range, room);
	errno = errnum;
	return memory;
}

int shm_map(int fd, uint64_t bytes, unsigned char **memory, struct error *error)
{
	bool large = bytes >= SHM_HUGE_BYTES;
	void *at = large ? map_aligned(fd, bytes)
			 : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char size[TEXT_SHORT_BYTES];

	*memory = NULL;
	if (at == MAP_FAILED)
		return error_set_errno(error, ERROR_MEMORY, errno,
				       "%s of shared memory cannot be mapped (limits: ulimit -v, "
				       "vm.max_map_count)",
				       bytes_text(bytes, size));
	if (large)
		madvise(at, bytes, MADV_HUGEPAGE); /* advice: where it is refused, small pages do */
	*memory = at;
	return 0;
}

void shm_unmap(unsigned char **memory, uint64_t bytes)
{
	if (*memory)
		munmap(*memory, bytes);
	*memory = NULL;
}
