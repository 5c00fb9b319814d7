/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c -- addresses that nobody can touch, and the bytes behind them.
 *
 *   range      0x7f..000 [ part 0 ][ part 1 ] ..      PROT_NONE; given to the program
 *   physical   memfd: [ head ][ bytes ]               mapped once more for the mock (`alias`)
 *
 * Ordinary memory is one part. A range that was freed stays, so that its addresses are known for what they are.
 */
#include "tests/cuda_mock/mock.h"

#include "transport/identity.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static uint64_t whole_pages(uint64_t bytes)
{
	return (bytes + 4095) / 4096 * 4096;
}

/* ---- who has it open ---- */

void gpu_head_enter(struct gpu_head *head)
{
	for (int i = 0; i < GPU_OPENERS; i++) {
		uint64_t none = 0;

		if (atomic_compare_exchange_strong(&head->openers[i], &none, (uint64_t)getpid()))
			return;
	}
}

void gpu_head_leave(struct gpu_head *head)
{
	for (int i = 0; i < GPU_OPENERS; i++) {
		uint64_t self = (uint64_t)getpid();

		if (atomic_compare_exchange_strong(&head->openers[i], &self, 0))
			return;
	}
}

/* One that was killed is gone before its parent has asked for it. */
static bool lives(uint64_t pid)
{
	int fd = pid ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : -1;
	bool dead = fd < 0 || process_fd_dead(fd);

	if (fd >= 0)
		close(fd);
	return !dead;
}

/* A living process that has it open, or 0. */
static uint64_t opener_of(struct gpu_head *head)
{
	for (int i = 0; i < GPU_OPENERS; i++) {
		uint64_t pid = atomic_load(&head->openers[i]);

		if (lives(pid))
			return pid;
	}
	return 0;
}

/* ---- bytes ---- */

struct gpu_physical *gpu_physical_new(int device, uint64_t bytes, int fd)
{
	struct gpu_physical *physical = calloc(1, sizeof(*physical));
	bool made = fd < 0;
	void *memory;

	if (made)
		fd = memfd_create("mock device memory", MFD_CLOEXEC);
	if (fd < 0 || (made && ftruncate(fd, (off_t)(GPU_HEAD_BYTES + whole_pages(bytes))) != 0))
		abort();
	memory = mmap(NULL, GPU_HEAD_BYTES + whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
		      fd, 0);
	if (memory == MAP_FAILED)
		abort();
	physical->fd = fd;
	physical->device = device;
	physical->holders = 1;
	physical->bytes = bytes;
	physical->id = ++gpu.ids;
	physical->head = memory;
	physical->alias = (unsigned char *)memory + GPU_HEAD_BYTES;
	physical->shareable = true;
	physical->imported = !made;
	physical->next = gpu.physicals;
	gpu.physicals = physical;
	if (made) {
		gpu.used[device] += bytes;
		memset(physical->alias, 0xd5, bytes < 4096 ? bytes : 4096); /* it is not zeroed */
	} else {
		gpu_head_enter(physical->head);
	}
	return physical;
}

void gpu_physical_drop(struct gpu_physical *physical)
{
	struct gpu_physical **link = &gpu.physicals;

	if (--physical->holders > 0)
		return;
	while (*link != physical)
		link = &(*link)->next;
	*link = physical->next;
	if (physical->imported)
		gpu_head_leave(physical->head);
	else
		gpu.used[physical->device] -= physical->bytes;
	munmap(physical->head, GPU_HEAD_BYTES + whole_pages(physical->bytes));
	close(physical->fd);
	free(physical);
}

/* ---- addresses ---- */

/* One reservation that addresses are taken from in turn, so that none is ever used twice, and the kernel counts it as
 * one mapping. */
#define ARENA_BYTES (UINT64_C(256) << 30)

void gpu_arena_open(void)
{
	void *memory = mmap(NULL, ARENA_BYTES, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		abort();
	gpu.arena = gpu.next_address = (uint64_t)(uintptr_t)memory;
}

void gpu_arena_close(void)
{
	munmap((void *)(uintptr_t)gpu.arena, ARENA_BYTES);
	free(gpu.ranges);
	gpu.ranges = NULL;
	gpu.range_count = gpu.range_room = 0;
}

static uint64_t take_addresses(uint64_t bytes)
{
	uint64_t address = gpu.next_address;

	/* as a device aligns what it maps; and a page that belongs to nobody behind it */
	gpu.next_address += (bytes + GPU_PART_BYTES) / GPU_PART_BYTES * GPU_PART_BYTES;
	if (gpu.next_address - gpu.arena > ARENA_BYTES)
		abort();
	return address;
}

struct gpu_range *gpu_range_new(int device, enum cuda_mock_kind kind, uint64_t bytes,
				uint64_t part_bytes)
{
	struct gpu_range *range = calloc(1, sizeof(*range));

	*range = (struct gpu_range){
		.address = take_addresses(bytes),
		.bytes = bytes,
		.part_bytes = part_bytes,
		.device = device,
		.kind = kind,
		.count = (bytes + part_bytes - 1) / part_bytes,
	};
	range->parts = calloc(range->count, sizeof(struct gpu_physical *));
	if (gpu.range_count == gpu.range_room) {
		gpu.range_room = gpu.range_room ? 2 * gpu.range_room : 64;
		gpu.ranges = realloc(gpu.ranges, gpu.range_room * sizeof(struct gpu_range *));
	}
	gpu.ranges[gpu.range_count++] = range;
	return range;
}

/* The addresses stay taken, and known, until the mock closes: who uses them is told. */
static void range_end(struct gpu_range *range)
{
	gpu_nic_drop(range->address, range->bytes);
	for (uint64_t i = 0; i < range->count; i++)
		if (range->parts[i])
			gpu_physical_drop(range->parts[i]);
	memset(range->parts, 0, range->count * sizeof(struct gpu_physical *));
	range->freed = true;
	if (gpu.options.touchable &&
	    mmap((void *)(uintptr_t)range->address, whole_pages(range->bytes), PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();
}

void gpu_range_free(struct gpu_range *range)
{
	if (!range->freed)
		range_end(range);
	free(range->parts);
	free(range);
}

/* They lie in the order of their addresses. */
struct gpu_range *gpu_range_of(uint64_t address)
{
	size_t low = 0, high = gpu.range_count;

	if (address - gpu.arena >= ARENA_BYTES)
		return NULL;
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (gpu.ranges[middle]->address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || address - gpu.ranges[low - 1]->address >= gpu.ranges[low - 1]->bytes)
		return NULL;
	return gpu.ranges[low - 1];
}

struct gpu_host *gpu_host_of(uint64_t address, uint64_t bytes)
{
	for (struct gpu_host *host = gpu.hosts; host; host = host->next)
		if (address - host->address < host->bytes &&
		    bytes <= host->bytes - (address - host->address))
			return host;
	return NULL;
}

bool gpu_host_covers(uint64_t address, uint64_t bytes)
{
	while (bytes) {
		struct gpu_host *host = gpu_host_of(address, 1);
		uint64_t here = host ? host->bytes - (address - host->address) : 0;

		if (!host)
			return false;
		here = here < bytes ? here : bytes;
		address += here;
		bytes -= here;
	}
	return true;
}

unsigned char *gpu_reach(uint64_t address, uint64_t bytes, uint64_t *piece)
{
	struct gpu_range *range = gpu_range_of(address);
	uint64_t at, part, left;

	if (!range)
		return NULL;
	at = address - range->address;
	part = at / range->part_bytes;
	if (range->freed) {
		gpu_violation("0x%llx is used, which was freed", (unsigned long long)address);
		return NULL;
	}
	if (bytes > range->bytes - at) {
		gpu_violation("%llu bytes at 0x%llx are used, and its allocation has %llu there",
			      (unsigned long long)bytes, (unsigned long long)address,
			      (unsigned long long)(range->bytes - at));
		return NULL;
	}
	if (!range->parts[part]) {
		gpu_violation("0x%llx is used, where nothing is mapped",
			      (unsigned long long)address);
		return NULL;
	}
	left = range->part_bytes - at % range->part_bytes;
	*piece = bytes < left ? bytes : left;
	return range->parts[part]->alias + at % range->part_bytes;
}

/* ---- the calls ---- */

/* The very same bytes at the addresses that the program has. */
static void let_touch(struct gpu_range *range)
{
	if (mmap((void *)(uintptr_t)range->address, whole_pages(range->bytes),
		 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, range->parts[0]->fd,
		 GPU_HEAD_BYTES) == MAP_FAILED)
		abort();
}

static struct gpu_range *allocate(int device, enum cuda_mock_kind kind, uint64_t bytes)
{
	bool parts = kind == CUDA_MOCK_MAPPED || kind == CUDA_MOCK_UNSHAREABLE;
	struct gpu_range *range =
		gpu_range_new(device, kind, bytes, parts ? GPU_PART_BYTES : bytes);

	for (uint64_t i = 0; i < range->count; i++) {
		range->parts[i] = gpu_physical_new(device, range->part_bytes, -1);
		range->parts[i]->shareable = kind != CUDA_MOCK_UNSHAREABLE;
	}
	if (gpu.options.touchable && !parts)
		let_touch(range);
	return range;
}

int gpu_allocate(uint64_t bytes, uint64_t *address)
{
	int device, rc = gpu_begin_on(CUDA_CALL_allocate, &device);

	if (rc)
		return rc;
	if (!bytes)
		return gpu_end(CUDA_INVALID_VALUE);
	if (bytes > gpu.options.bytes - gpu.used[device])
		return gpu_end(CUDA_OUT_OF_MEMORY);
	*address = allocate(device, CUDA_MOCK_PLAIN, bytes)->address;
	return gpu_end(0);
}

static void free_range(struct gpu_range *range)
{
	uint64_t pid = range->parts[0] ? opener_of(range->parts[0]->head) : 0;

	if (pid)
		gpu_violation("memory at 0x%llx is freed, and process %llu has it open",
			      (unsigned long long)range->address, (unsigned long long)pid);
	range_end(range);
}

int gpu_release(uint64_t address)
{
	int device, rc = gpu_begin_on(CUDA_CALL_release, &device);
	struct gpu_range *range;

	if (rc)
		return rc;
	range = gpu_range_of(address);
	if (!range || range->address != address || range->opened || range->reserved ||
	    range->kind != CUDA_MOCK_PLAIN || range->freed) {
		gpu_violation("0x%llx is freed, which is no allocation",
			      (unsigned long long)address);
		return gpu_end(CUDA_INVALID_VALUE);
	}
	gpu_device_wait(range->device);
	free_range(range);
	return gpu_end(0);
}

uint64_t cuda_mock_allocate(int device, enum cuda_mock_kind kind, uint64_t bytes)
{
	uint64_t address;

	pthread_mutex_lock(&gpu.lock);
	address = allocate(device, kind, bytes)->address;
	pthread_mutex_unlock(&gpu.lock);
	return address;
}

void cuda_mock_free(uint64_t address)
{
	pthread_mutex_lock(&gpu.lock);
	gpu_device_wait(-1);
	free_range(gpu_range_of(address));
	pthread_mutex_unlock(&gpu.lock);
}

static void move(uint64_t address, unsigned char *bytes, uint64_t count, bool write)
{
	uint64_t piece = 0;

	pthread_mutex_lock(&gpu.lock);
	for (; count; count -= piece, address += piece, bytes += piece) {
		unsigned char *at = gpu_reach(address, count, &piece);

		if (!at)
			break;
		memcpy(write ? at : bytes, write ? bytes : at, piece);
	}
	pthread_mutex_unlock(&gpu.lock);
}

void cuda_mock_peek(uint64_t address, void *to, uint64_t bytes)
{
	move(address, to, bytes, false);
}

void cuda_mock_poke(uint64_t address, const void *from, uint64_t bytes)
{
	move(address, (unsigned char *)(uintptr_t)from, bytes, true);
}

int gpu_pointer(uint64_t address, struct cuda_pointer *pointer)
{
	int rc = gpu_begin(CUDA_CALL_pointer);
	struct gpu_range *range;
	struct gpu_physical *part;

	if (rc)
		return rc;
	*pointer = (struct cuda_pointer){.memory = CUDA_MEMORY_UNKNOWN, .device = -1};
	range = gpu_range_of(address);
	if (gpu_host_of(address, 1))
		pointer->memory = CUDA_MEMORY_HOST;
	if (!range || range->freed)
		return gpu_end(0);
	part = range->parts[(address - range->address) / range->part_bytes];
	if (!part)
		return gpu_end(0);
	pointer->memory =
		range->kind == CUDA_MOCK_MANAGED ? CUDA_MEMORY_MANAGED : CUDA_MEMORY_DEVICE;
	pointer->device = range->device;
	pointer->base =
		range->address + (address - range->address) / range->part_bytes * range->part_bytes;
	pointer->bytes = range->part_bytes; /* of ordinary memory all of it */
	pointer->id = part->id;
	pointer->ipc = range->kind == CUDA_MOCK_PLAIN && !range->reserved && !range->opened &&
		       !gpu.options.no_ipc;
	pointer->pool = range->kind == CUDA_MOCK_POOL;
	pointer->rdma = range->kind != CUDA_MOCK_POOL && range->kind != CUDA_MOCK_UNSHAREABLE &&
			range->kind != CUDA_MOCK_MANAGED;
	pointer->mapped = range->reserved || range->kind == CUDA_MOCK_MAPPED ||
			  range->kind == CUDA_MOCK_UNSHAREABLE;
	return gpu_end(0);
}

int gpu_host_register(void *memory, uint64_t bytes)
{
	int device, rc = gpu_begin_on(CUDA_CALL_host_register, &device);
	struct gpu_host *host;

	if (rc)
		return rc;
	for (host = gpu.hosts; host; host = host->next)
		if ((uintptr_t)memory < host->address + host->bytes &&
		    host->address < (uintptr_t)memory + bytes)
			return gpu_end(CUDA_HOST_REGISTERED);
	host = calloc(1, sizeof(*host));
	*host = (struct gpu_host){gpu.hosts, (uintptr_t)memory, bytes};
	gpu.hosts = host;
	return gpu_end(0);
}

int gpu_host_unregister(void *memory)
{
	int device, rc = gpu_begin_on(CUDA_CALL_host_unregister, &device);

	if (rc)
		return rc;
	for (struct gpu_host **link = &gpu.hosts; *link; link = &(*link)->next) {
		struct gpu_host *host = *link;

		if (host->address != (uintptr_t)memory)
			continue;
		gpu_device_wait(-1);
		*link = host->next;
		free(host);
		return gpu_end(0);
	}
	return gpu_end(CUDA_HOST_NOT_REGISTERED);
}
