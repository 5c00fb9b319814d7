/* SPDX-License-Identifier: Apache-2.0
 *
 * memlock.c -- why memory could not be registered. Mostly it is the limit on locked memory,
 * which counts every registration: the same bytes on two NICs count twice.
 */
#include "transport/verbs/errors.h"

#include "base/array.h"
#include "base/file.h"
#include "base/text.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define CAP_IPC_LOCK_BIT 14
#define STATUS_BYTES	 8192

int verbs_memlock_parse(const char *status, struct verbs_memlock *memlock, struct error *error)
{
	const char *pinned = text_line(status, "VmPin");
	const char *uids = text_line(status, "Uid");
	const char *capabilities = text_line(status, "CapEff");
	uint64_t effective, pinned_kib;

	if (!pinned || sscanf(pinned, "%" SCNu64 " kB", &pinned_kib) != 1)
		return error_set(error, ERROR_IO, "/proc/self/status: no line 'VmPin: <n> kB'");
	if (!uids || sscanf(uids, "%*u %" SCNu32, &memlock->uid) != 1)
		return error_set(error, ERROR_IO, "/proc/self/status: no line 'Uid: <n> <n>'");
	if (!capabilities || sscanf(capabilities, "%" SCNx64, &effective) != 1)
		return error_set(error, ERROR_IO, "/proc/self/status: no line 'CapEff: <hex>'");
	memlock->pinned_bytes = pinned_kib * 1024;
	memlock->ipc_lock = effective >> CAP_IPC_LOCK_BIT & 1;
	return 0;
}

static uint64_t limit_bytes(rlim_t limit)
{
	return limit == RLIM_INFINITY ? UINT64_MAX : (uint64_t)limit;
}

int verbs_memlock_read(struct verbs_memlock *memlock, struct error *error)
{
	char status[STATUS_BYTES];
	struct rlimit limit;
	ssize_t n;

	*memlock = (struct verbs_memlock){0};
	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return error_set_errno(error, ERROR_IO, errno,
				       "reading the limit on locked memory");
	memlock->soft = limit_bytes(limit.rlim_cur);
	memlock->hard = limit_bytes(limit.rlim_max);
	n = file_read_small("/proc/self/status", status, sizeof(status));
	if (n < 0)
		return error_set_errno(error, ERROR_IO, (int)-n, "/proc/self/status");
	return verbs_memlock_parse(status, memlock, error);
}

/* "8 MiB" where it is a whole number of them, as limits are; "17.2 GB" otherwise. */
static const char *limit_text(uint64_t bytes, char text[TEXT_SHORT_BYTES])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};

	if (bytes == UINT64_MAX)
		return strcpy(text, "unlimited");
	for (int i = ARRAY_SIZE(units) - 1; i >= 0; i--) {
		uint64_t unit = UINT64_C(1) << (10 * (i + 1));

		if (bytes && bytes % unit == 0) {
			snprintf(text, TEXT_SHORT_BYTES, "%" PRIu64 " %s", bytes / unit, units[i]);
			return text;
		}
	}
	return bytes_text(bytes, text);
}

static uint64_t bytes_add(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t bytes_times(uint64_t bytes, uint32_t count)
{
	uint64_t all;

	return __builtin_mul_overflow(bytes, (uint64_t)count, &all) ? UINT64_MAX : all;
}

struct registration {
	uint64_t bytes;
	uint32_t nics;
	const struct verbs_memlock *memlock;
	const struct verbs_device *limits;
};

static bool memlock_unknown(const struct registration *registration)
{
	return !registration->memlock;
}

/* The kernel's own rule: what is pinned already and the new bytes, unless CAP_IPC_LOCK. All NICs
 * together, because those that had succeeded may be rolled back already. */
static bool memlock_small(const struct registration *registration)
{
	const struct verbs_memlock *memlock = registration->memlock;

	return memlock && !memlock->ipc_lock &&
	       bytes_add(memlock->pinned_bytes,
			 bytes_times(registration->bytes, registration->nics)) > memlock->soft;
}

static bool memlock_soft_small(const struct registration *registration)
{
	return memlock_small(registration) && registration->memlock->hard == UINT64_MAX;
}

static bool memlock_none(const struct registration *registration)
{
	return memlock_small(registration) && registration->memlock->soft == 0;
}

static bool region_too_large(const struct registration *registration)
{
	return registration->limits && registration->limits->max_mr_bytes &&
	       registration->bytes > registration->limits->max_mr_bytes;
}

#define DETAIL_BYTES 320

static void memlock_tell(const struct registration *registration, char text[DETAIL_BYTES])
{
	const struct verbs_memlock *memlock = registration->memlock;
	char soft[TEXT_SHORT_BYTES], hard[TEXT_SHORT_BYTES], pinned[TEXT_SHORT_BYTES];
	char each[TEXT_SHORT_BYTES], all[TEXT_SHORT_BYTES];

	snprintf(text, DETAIL_BYTES,
		 " (soft limit %s, hard limit %s, already pinned %s, CAP_IPC_LOCK %s for uid %u, "
		 "needed %s per NIC, %s for %u NIC%s)",
		 limit_text(memlock->soft, soft), limit_text(memlock->hard, hard),
		 limit_text(memlock->pinned_bytes, pinned), memlock->ipc_lock ? "yes" : "no",
		 memlock->uid, bytes_text(registration->bytes, each),
		 bytes_text(bytes_times(registration->bytes, registration->nics), all),
		 registration->nics, registration->nics == 1 ? "" : "s");
}

static void device_tell(const struct registration *registration, char text[DETAIL_BYTES])
{
	const struct verbs_device *limits = registration->limits;
	char largest[TEXT_SHORT_BYTES];

	if (limits)
		snprintf(text, DETAIL_BYTES, " (max_mr %u regions, max_mr_size %s)", limits->max_mr,
			 limit_text(limits->max_mr_bytes, largest));
}

struct register_cause {
	int errnum;					       /* -1: any */
	bool (*fits)(const struct registration *registration); /* NULL: always */
	enum error_code code;
	const char *cause;
	/* NULL: nothing */
	void (*tell)(const struct registration *registration, char text[DETAIL_BYTES]);
	const char *fix;
};

#define RAISE_MEMLOCK                                                                       \
	"start with 'ulimit -l unlimited' (docker: --ulimit memlock=-1; Kubernetes: "       \
	"LimitMEMLOCK=infinity in containerd's unit; systemd: the same in yours; IPC_LOCK " \
	"helps root only)"
#define TOO_LARGE                                                  \
	"one region is larger than the device takes", device_tell, \
		"cut the region into smaller ones, or choose another NIC with --nic"
#define NO_DMABUF                                                                             \
	"the kernel driver of this device does not take dma-buf memory", NULL,                \
		"choose a NIC that does with --nic (weft doctor shows dma-buf), or keep the " \
		"weights in host memory"
#define FORBIDDEN                                        \
	"a security rule of this host forbids it", NULL, \
		"look for a denial of this process in dmesg and in the audit log"

static const struct register_cause register_causes[] = {
	{ENOMEM, memlock_unknown, ERROR_LIMIT,
	 "usually the limit on locked memory is too small for it", NULL, RAISE_MEMLOCK},
	{ENOMEM, memlock_soft_small, ERROR_LIMIT, "the soft limit on locked memory is too small",
	 memlock_tell, "start with 'ulimit -l unlimited', which the hard limit allows"},
	{ENOMEM, memlock_small, ERROR_LIMIT, "the limit on locked memory is too small",
	 memlock_tell, RAISE_MEMLOCK},
	{ENOMEM, region_too_large, ERROR_LIMIT, TOO_LARGE},
	{ENOMEM, NULL, ERROR_MEMORY,
	 "the limit on locked memory allows it, so the container's memory or the device's "
	 "translation tables are used up",
	 device_tell,
	 "raise memory.max of the control group, and use huge pages if dmesg names the device"},
	{EPERM, memlock_unknown, ERROR_LIMIT, "usually no memory may be locked at all", NULL,
	 RAISE_MEMLOCK},
	{EPERM, memlock_none, ERROR_LIMIT, "no memory may be locked at all", memlock_tell,
	 RAISE_MEMLOCK},
	{EPERM, NULL, ERROR_UNSUPPORTED, FORBIDDEN},
	{EACCES, NULL, ERROR_UNSUPPORTED, FORBIDDEN},
	{EFAULT, NULL, ERROR_UNSUPPORTED,
	 "a part of the range is not writable memory of this process: it was freed, is mapped "
	 "read-only, or lies on a GPU",
	 NULL,
	 "check address and length, and register GPU memory by its dma-buf, without "
	 "expandable_segments"},
	{EINVAL, region_too_large, ERROR_LIMIT, TOO_LARGE},
	{EINVAL, NULL, ERROR_UNSUPPORTED, "the driver does not take these access rights", NULL,
	 "set WEFT_RELAXED_ORDERING=off"},
	{EOPNOTSUPP, NULL, ERROR_UNSUPPORTED, NO_DMABUF},
	{EPROTONOSUPPORT, NULL, ERROR_UNSUPPORTED, NO_DMABUF},
	{EBADF, NULL, ERROR_UNSUPPORTED, "the descriptor is no dma-buf", NULL,
	 "export the allocation as a dma-buf and keep it open until it is registered"},
	{EAGAIN, NULL, ERROR_LIMIT, "the limit of this process's RDMA control group is reached",
	 NULL, "raise rdma.max of its control group on the host"},
	{ENOSPC, NULL, ERROR_LIMIT, "the device has no memory key left", device_tell,
	 "end other processes that use it ('rdma resource' counts what each holds)"},
	{ENODEV, NULL, ERROR_TRANSPORT, "the device was removed or is being reset", NULL,
	 "wait until 'rdma link' shows it again, then restart this process"},
	{0, NULL, ERROR_UNSUPPORTED, "the driver lacks this kind of registration", NULL,
	 "choose another NIC with --nic (weft doctor shows what each can do)"},
	{-1, NULL, ERROR_TRANSPORT, "the driver gives no further reason", device_tell,
	 "read dmesg for that device"},
};

int verbs_register_error(struct error *error, int errnum, const char *device, uint64_t bytes,
			 uint32_t nics, const struct verbs_memlock *memlock,
			 const struct verbs_device *limits)
{
	const struct registration registration = {bytes, nics, memlock, limits};
	const struct register_cause *row = register_causes;
	char detail[DETAIL_BYTES] = "", size[TEXT_SHORT_BYTES], name[VERBS_ERRNO_BYTES];

	while ((row->errnum != -1 && row->errnum != errnum) ||
	       (row->fits && !row->fits(&registration)))
		row++; /* the last row fits everything */
	if (row->tell)
		row->tell(&registration, detail);
	return error_set(error, row->code,
			 "registering %" PRIu64 " bytes (%s) on %.63s failed: %s: %s%s; %s", bytes,
			 bytes_text(bytes, size), device, verbs_errno_text(errnum, device, name),
			 row->cause, detail, row->fix);
}
