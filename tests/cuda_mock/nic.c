/* SPDX-License-Identifier: Apache-2.0
 *
 * nic.c -- memory of devices as NICs have it: a dma-buf names addresses, and what is written there is not seen by what the
 * device does until it was flushed:
 *
 *   NIC ── write ──► waiting ── flush_writes ──► bytes      kernels and copies read these alone
 */
#include "tests/cuda_mock/mock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE  4096u
#define MAGIC UINT64_C(0x64616d6275665f31)

struct handle {
	uint64_t magic, address, bytes;
};

/* ---- dma-bufs ---- */

bool gpu_range_mapped(const struct gpu_range *range, uint64_t address, uint64_t bytes)
{
	uint64_t at = address - range->address, end = at + bytes;
	uint64_t all = (range->bytes + PAGE - 1) / PAGE * PAGE;

	if (range->freed || end > all)
		return false;
	for (uint64_t part = at / range->part_bytes; part * range->part_bytes < end; part++)
		if (part < range->count && !range->parts[part])
			return false;
	return true;
}

int gpu_dmabuf(uint64_t address, uint64_t bytes, int *fd)
{
	int device, rc = gpu_begin_on(CUDA_CALL_dmabuf, &device);
	struct handle handle = {MAGIC, address, bytes};
	struct gpu_range *range;

	if (rc)
		return rc;
	range = gpu_range_of(address);
	if (gpu.options.no_dmabuf)
		return gpu_end(CUDA_NOT_SUPPORTED);
	if (!range || address % PAGE || bytes % PAGE || !bytes ||
	    range->kind == CUDA_MOCK_MANAGED || range->kind == CUDA_MOCK_POOL ||
	    range->kind == CUDA_MOCK_UNSHAREABLE || !gpu_range_mapped(range, address, bytes))
		return gpu_end(CUDA_INVALID_VALUE);
	*fd = memfd_create("mock dma-buf", MFD_CLOEXEC);
	if (*fd < 0 || write(*fd, &handle, sizeof(handle)) != sizeof(handle))
		return gpu_end(CUDA_OUT_OF_MEMORY);
	return gpu_end(0);
}

bool cuda_mock_dmabuf(int fd, uint64_t *address, uint64_t *bytes)
{
	struct handle handle;

	if (pread(fd, &handle, sizeof(handle), 0) != sizeof(handle) || handle.magic != MAGIC)
		return false;
	*address = handle.address;
	*bytes = handle.bytes;
	return true;
}

bool cuda_mock_is_device(uint64_t address)
{
	bool is;

	pthread_mutex_lock(&gpu.lock);
	is = gpu.open && gpu_range_of(address);
	pthread_mutex_unlock(&gpu.lock);
	return is;
}

/* ---- bytes ---- */

static void move(uint64_t address, unsigned char *bytes, uint64_t count, bool write)
{
	uint64_t piece = 0;

	for (; count; count -= piece, address += piece, bytes += piece) {
		unsigned char *at = gpu_reach(address, count, &piece);

		if (!at)
			return;
		memcpy(write ? at : bytes, write ? bytes : at, piece);
	}
}

void cuda_mock_nic_read(uint64_t address, void *to, uint64_t bytes)
{
	pthread_mutex_lock(&gpu.lock);
	move(address, to, bytes, false);
	pthread_mutex_unlock(&gpu.lock);
}

void cuda_mock_nic_write(uint64_t address, const void *from, uint64_t bytes)
{
	struct gpu_nic_write *one = malloc(sizeof(*one) + bytes);
	struct gpu_range *range;

	pthread_mutex_lock(&gpu.lock);
	range = gpu_range_of(address);
	if (!range || range->freed) {
		gpu_violation("a NIC writes 0x%llx, which was freed", (unsigned long long)address);
		free(one);
	} else {
		*one = (struct gpu_nic_write){
			.address = address, .bytes = bytes, .device = range->device};
		memcpy(one->data, from, bytes);
		if (!gpu.nic_writes)
			gpu.nic_last = &gpu.nic_writes;
		*gpu.nic_last = one;
		gpu.nic_last = &one->next;
	}
	pthread_mutex_unlock(&gpu.lock);
}

void gpu_nic_flush(int device)
{
	struct gpu_nic_write **link = &gpu.nic_writes;

	while (*link) {
		struct gpu_nic_write *one = *link;

		if (one->device != device) {
			link = &one->next;
			continue;
		}
		*link = one->next;
		move(one->address, one->data, one->bytes, true);
		free(one);
	}
	gpu.nic_last = link;
}

void gpu_nic_drop(uint64_t address, uint64_t bytes)
{
	struct gpu_nic_write **link = &gpu.nic_writes;

	while (*link) {
		struct gpu_nic_write *one = *link;

		if (one->address - address >= bytes) {
			link = &one->next;
			continue;
		}
		*link = one->next;
		free(one);
	}
	gpu.nic_last = link;
}

int gpu_flush_writes(void)
{
	int device, rc = gpu_begin_on(CUDA_CALL_flush_writes, &device);

	if (rc)
		return rc;
	if (gpu.options.no_flush)
		return gpu_end(CUDA_NOT_SUPPORTED);
	gpu_nic_flush(device);
	return gpu_end(0);
}
