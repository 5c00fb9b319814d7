/* SPDX-License-Identifier: Apache-2.0
 *
 * process.c -- writing another process's memory: process_vm_writev, and whether it may.
 */
#include "transport/shm/turn.h"

#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER	   0x59616d61
#define PR_SET_PTRACER_ANY ((unsigned long)-1)
#endif

struct errno_row {
	int errnum;
	enum error_code code;
	const char *why;
};

static const struct errno_row rows[] = {
	{EPERM, ERROR_UNSUPPORTED,
	 "not allowed: Yama's ptrace_scope, another user, or a container without "
	 "CAP_SYS_PTRACE; "
	 "use memory from weft's allocator instead"},
	{ESRCH, ERROR_PEER_LOST, "the process has died"},
	{EFAULT, ERROR_TRANSPORT, "the peer's memory is not mapped there (any more)"},
	{ENOSYS, ERROR_UNSUPPORTED,
	 "this kernel or its seccomp filter has no process_vm_writev; use memory from "
	 "weft's "
	 "allocator instead"},
	{ENOMEM, ERROR_MEMORY, "the kernel is out of memory"},
};

static int vm_error(int errnum, const char *what, uint64_t pid, struct error *error)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].errnum == errnum)
			return error_set(error, rows[i].code,
					 "%s the memory of process %" PRIu64 ": %s", what, pid,
					 rows[i].why);
	return error_set_errno(error, ERROR_TRANSPORT, errnum,
			       "%s the memory of process %" PRIu64 " failed", what, pid);
}

/* A chunk is at most SHM_CHUNK_BYTES, far from the 2 GiB less a page that the kernel moves. */
int shm_process_gather(uint64_t pid, uint64_t address, const struct iovec *pieces, size_t count,
		       uint64_t *moved, struct error *error)
{
	struct iovec remote = {(void *)(uintptr_t)address, 0};
	ssize_t n;

	for (size_t i = 0; i < count; i++)
		remote.iov_len += pieces[i].iov_len;
	n = TEMP_FAILURE_RETRY(process_vm_writev((pid_t)pid, pieces, count, &remote, 1, 0));
	if (n < 0)
		return vm_error(errno, "writing", pid, error);
	/* 0 of more than 0 bytes: the next byte cannot be written */
	if (n == 0)
		return vm_error(EFAULT, "writing", pid, error);
	*moved = (uint64_t)n;
	return 0;
}

int shm_process_write(uint64_t pid, uint64_t address, const void *source, uint64_t bytes,
		      struct error *error)
{
	const struct iovec piece = {(void *)(uintptr_t)source, bytes};
	uint64_t moved;

	return shm_process_gather(pid, address, &piece, 1, &moved, error);
}

/* Reading first: were the pid another process here, a write would hit a stranger's
 * memory. */
static int check_nonce(const struct shm_endpoint_record *peer, struct error *error)
{
	uint64_t nonce = 0, pid = peer->identity.pid;
	struct iovec local = {&nonce, sizeof(nonce)};
	struct iovec remote = {
		(void *)(uintptr_t)(peer->slot_address + offsetof(struct shm_slot, nonce)),
		sizeof(nonce)};
	ssize_t n = process_vm_readv((pid_t)pid, &local, 1, &remote, 1, 0);

	if (n < 0)
		return vm_error(errno, "reading", pid, error);
	if (n != sizeof(nonce) || nonce != peer->nonce)
		return error_set(error, ERROR_UNSUPPORTED,
				 "process %" PRIu64 " does not hold the mailbox its record names: "
				 "it is not the process that made the record",
				 pid);
	return 0;
}

/* In its turn, as any write of the peer's memory. */
static int write_probe(const struct transport_endpoint *endpoint, uint64_t probe,
		       struct error *error)
{
	const struct shm_endpoint *shm = endpoint->state;
	uint64_t address = shm->peer.slot_address + offsetof(struct shm_slot, probe_process);
	int rc;

	shm_turn_say(shm->peer_slot, address, sizeof(probe));
	rc = shm_turn_may(shm->peer_slot) ? shm_process_write(shm->peer.identity.pid, address,
							      &probe, sizeof(probe), error)
					  : shm_given_up(endpoint, error);
	shm_turn_end(shm->peer_slot);
	return rc;
}

/* One word, written the way weights will be and read back through the shared page. */
int shm_process_probe(struct transport_endpoint *endpoint, struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	uint64_t probe = shm->nonce ^ shm->peer.nonce ^ 0x5af7;
	uint64_t pid = shm->peer.identity.pid;
	int rc;

	if (shm->process_probed)
		return 0;
	rc = check_nonce(&shm->peer, error);
	if (!rc)
		rc = write_probe(endpoint, probe, error);
	if (rc)
		return error_wrap(error, "probing process_vm_writev"), rc;
	if (atomic_load(&shm->peer_slot->probe_process) != probe)
		return error_set(error, ERROR_UNSUPPORTED,
				 "a word written into process %" PRIu64 " did not arrive", pid);
	shm->process_probed = true;
	return 0;
}

/* Under Yama only a parent may write a process's memory, unless it agrees. */
void shm_process_allow(struct shm_domain *domain)
{
	if (domain->ptracer_set || access("/proc/sys/kernel/yama/ptrace_scope", F_OK) != 0)
		return;
	domain->ptracer_set = true;
	if (prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) == 0)
		log_info("shm: registered memory: any process of this user may now write "
			 "this "
			 "process's memory (PR_SET_PTRACER_ANY), as Yama is on");
	else
		log_warn("shm: PR_SET_PTRACER failed; peers may not be able to write "
			 "registered "
			 "memory");
}
