/* SPDX-License-Identifier: Apache-2.0
 *
 * share.c -- memory that crosses processes: IPC handles name the memfd by process and number; physical memory is the
 * memfd itself.
 */
#include "tests/cuda_mock/mock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct handle {
	uint64_t magic, pid, bytes, id;
	int32_t fd, device;
};
#define HANDLE_MAGIC UINT64_C(0x6b636f6d63706931)
_Static_assert(sizeof(struct handle) <= CUDA_IPC_BYTES, "a handle has room");

int gpu_ipc_export(uint64_t address, unsigned char out[CUDA_IPC_BYTES])
{
	int device, rc = gpu_begin_on(CUDA_CALL_ipc_export, &device);
	struct handle handle = {.magic = HANDLE_MAGIC, .pid = (uint64_t)getpid()};
	struct gpu_range *range;

	if (rc)
		return rc;
	range = gpu_range_of(address);
	if (!range || range->freed || range->opened || range->reserved ||
	    range->kind != CUDA_MOCK_PLAIN || gpu.options.no_ipc)
		return gpu_end(CUDA_INVALID_VALUE);
	handle.bytes = range->bytes;
	handle.fd = range->parts[0]->fd;
	handle.device = range->device;
	handle.id = range->parts[0]->id;
	memset(out, 0, CUDA_IPC_BYTES);
	memcpy(out, &handle, sizeof(handle));
	return gpu_end(0);
}

static int open_handle(const struct handle *handle, int device, uint64_t *base)
{
	char path[64];
	struct gpu_range *range;
	int fd;

	if (handle->magic != HANDLE_MAGIC || handle->pid == (uint64_t)getpid())
		return CUDA_INVALID_CONTEXT;
	if (handle->device != device && gpu.options.no_peer)
		return CUDA_PEER_UNSUPPORTED;
	snprintf(path, sizeof(path), "/proc/%llu/fd/%d", (unsigned long long)handle->pid,
		 handle->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CUDA_INVALID_VALUE; /* it was freed, or its process has ended */
	range = gpu_range_new(handle->device, CUDA_MOCK_PLAIN, handle->bytes, handle->bytes);
	range->parts[0] = gpu_physical_new(handle->device, handle->bytes, fd);
	range->parts[0]->id = handle->id ^ handle->pid << 32; /* the same handle, the same number */
	range->opened = true;
	*base = range->address;
	return 0;
}

int gpu_ipc_open(const unsigned char in[CUDA_IPC_BYTES], uint64_t *base)
{
	int device, rc = gpu_begin_on(CUDA_CALL_ipc_open, &device);
	struct handle handle;

	if (rc)
		return rc;
	memcpy(&handle, in, sizeof(handle));
	for (size_t i = 0; i < gpu.range_count; i++) {
		struct gpu_range *range = gpu.ranges[i];

		if (range->opened && !range->freed &&
		    range->parts[0]->id == (handle.id ^ handle.pid << 32)) {
			gpu_violation("a handle of process %llu is opened twice",
				      (unsigned long long)handle.pid);
			return gpu_end(CUDA_INVALID_VALUE);
		}
	}
	return gpu_end(open_handle(&handle, device, base));
}

int gpu_ipc_close(uint64_t base)
{
	int device, rc = gpu_begin_on(CUDA_CALL_ipc_close, &device);
	struct gpu_range *range;

	if (rc)
		return rc;
	range = gpu_range_of(base);
	if (!range || !range->opened || range->freed || range->address != base) {
		gpu_violation("0x%llx is closed, which is no opened handle",
			      (unsigned long long)base);
		return gpu_end(CUDA_INVALID_VALUE);
	}
	gpu_device_wait(-1);
	gpu_physical_drop(range->parts[0]);
	range->parts[0] = NULL;
	range->freed = true;
	return gpu_end(0);
}

/* ---- physical memory ---- */

static struct gpu_physical *physical_of(cuda_physical handle)
{
	for (struct gpu_physical *physical = gpu.physicals; physical; physical = physical->next)
		if ((cuda_physical)(uintptr_t)physical == handle && physical->handles)
			return physical;
	gpu_violation("a handle of physical memory is used that is none");
	return NULL;
}

int gpu_physical_create(uint64_t bytes, cuda_physical *handle)
{
	int device, rc = gpu_begin_on(CUDA_CALL_physical_create, &device);
	struct gpu_physical *physical;

	if (rc)
		return rc;
	if (!bytes || bytes % GPU_PART_BYTES)
		return gpu_end(CUDA_INVALID_VALUE);
	if (bytes > gpu.options.bytes - gpu.used[device])
		return gpu_end(CUDA_OUT_OF_MEMORY);
	physical = gpu_physical_new(device, bytes, -1);
	physical->handles = 1;
	*handle = (cuda_physical)(uintptr_t)physical;
	return gpu_end(0);
}

int gpu_retain(uint64_t address, cuda_physical *handle)
{
	int rc = gpu_begin(CUDA_CALL_retain);
	struct gpu_range *range;
	struct gpu_physical *physical;

	if (rc)
		return rc;
	range = gpu_range_of(address);
	if (!range || range->freed ||
	    !(range->reserved || range->kind == CUDA_MOCK_MAPPED ||
	      range->kind == CUDA_MOCK_UNSHAREABLE))
		return gpu_end(CUDA_INVALID_VALUE);
	physical = range->parts[(address - range->address) / range->part_bytes];
	if (!physical)
		return gpu_end(CUDA_INVALID_VALUE);
	physical->holders++;
	physical->handles++;
	*handle = (cuda_physical)(uintptr_t)physical;
	return gpu_end(0);
}

int gpu_physical_export(cuda_physical handle, int *fd)
{
	int rc = gpu_begin(CUDA_CALL_physical_export);
	struct gpu_physical *physical;

	if (rc)
		return rc;
	physical = physical_of(handle);
	if (!physical || !physical->shareable || gpu.options.no_mapped)
		return gpu_end(CUDA_INVALID_VALUE);
	*fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 3);
	return gpu_end(*fd < 0 ? CUDA_OUT_OF_MEMORY : 0);
}

int gpu_physical_import(int fd, cuda_physical *handle)
{
	int device, rc = gpu_begin_on(CUDA_CALL_physical_import, &device);
	struct gpu_physical *physical;
	struct stat about;
	int mine;

	if (rc)
		return rc;
	mine = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (mine < 0 || fstat(mine, &about) != 0)
		return gpu_end(CUDA_INVALID_VALUE);
	physical = gpu_physical_new(device, (uint64_t)about.st_size - GPU_HEAD_BYTES, mine);
	physical->handles = 1;
	*handle = (cuda_physical)(uintptr_t)physical;
	return gpu_end(0);
}

int gpu_physical_release(cuda_physical handle)
{
	int rc = gpu_begin(CUDA_CALL_physical_release);
	struct gpu_physical *physical;

	if (rc)
		return rc;
	physical = physical_of(handle);
	if (!physical)
		return gpu_end(CUDA_INVALID_VALUE);
	physical->handles--;
	gpu_physical_drop(physical);
	return gpu_end(0);
}

int gpu_reserve(uint64_t bytes, uint64_t *address)
{
	int rc = gpu_begin(CUDA_CALL_reserve);
	struct gpu_range *range;

	if (rc)
		return rc;
	range = gpu_range_new(0, CUDA_MOCK_MAPPED, bytes, GPU_PART_BYTES);
	range->reserved = true;
	*address = range->address;
	return gpu_end(0);
}

int gpu_unreserve(uint64_t address, uint64_t bytes)
{
	int rc = gpu_begin(CUDA_CALL_unreserve);
	struct gpu_range *range;

	if (rc)
		return rc;
	range = gpu_range_of(address);
	if (!range || !range->reserved || range->address != address || range->bytes != bytes ||
	    range->freed)
		gpu_violation("0x%llx is given back, which was not reserved so",
			      (unsigned long long)address);
	else
		for (uint64_t i = 0; i < range->count; i++)
			if (range->parts[i])
				gpu_violation("0x%llx is given back, where memory is mapped",
					      (unsigned long long)address);
	if (range)
		range->freed = true;
	return gpu_end(0);
}

int gpu_map(uint64_t address, uint64_t bytes, cuda_physical handle)
{
	int device, rc = gpu_begin_on(CUDA_CALL_map, &device);
	struct gpu_physical *physical;
	struct gpu_range *range;

	if (rc)
		return rc;
	physical = physical_of(handle);
	range = gpu_range_of(address);
	if (!physical || !range || !range->reserved || range->freed || bytes != physical->bytes ||
	    bytes != range->part_bytes || (address - range->address) % range->part_bytes != 0)
		return gpu_end(CUDA_INVALID_VALUE);
	physical->holders++;
	range->device = physical->device;
	range->parts[(address - range->address) / range->part_bytes] = physical;
	return gpu_end(0);
}

int gpu_unmap(uint64_t address, uint64_t bytes)
{
	int device, rc = gpu_begin_on(CUDA_CALL_unmap, &device);
	struct gpu_range *range;

	if (rc)
		return rc;
	range = gpu_range_of(address);
	if (!range || !range->reserved || range->freed || bytes % range->part_bytes != 0)
		return gpu_end(CUDA_INVALID_VALUE);
	gpu_device_wait(-1);
	for (uint64_t at = address - range->address; bytes;
	     at += range->part_bytes, bytes -= range->part_bytes) {
		struct gpu_physical **part = &range->parts[at / range->part_bytes];

		if (*part)
			gpu_physical_drop(*part);
		*part = NULL;
	}
	return gpu_end(0);
}
