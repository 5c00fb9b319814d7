/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/cuda/dmabuf.h"

#include "base/memory.h"
#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <inttypes.h>

static const char cure_expandable[] =
	"with torch set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False";

static int refuse(const void *memory, uint64_t bytes, const char *what, const char *cure,
		  struct error *error)
{
	return error_set(error, ERROR_UNSUPPORTED,
			 "%" PRIu64 " bytes at %p are %s, which no NIC can reach: %s", bytes,
			 memory, what, cure);
}

static int check(const void *memory, uint64_t bytes, struct cuda_pointer *pointer,
		 struct error *error)
{
	int rc = cuda_pointer_of(memory, bytes, pointer, error);

	if (rc || pointer->memory != CUDA_MEMORY_MANAGED)
		return rc;
	return refuse(memory, bytes, "managed memory", "allocate with cudaMalloc", error);
}

/* Why there is no dma-buf: what it was made for, then what the driver says. */
static int explain(const void *memory, uint64_t bytes, const struct cuda_pointer *pointer,
		   int result, struct error *error)
{
	if (!pointer->rdma && pointer->pool)
		return refuse(memory, bytes, "of a pool (cudaMallocAsync)",
			      "allocate with cudaMalloc; with torch set "
			      "PYTORCH_CUDA_ALLOC_CONF=backend:native",
			      error);
	if (!pointer->rdma && pointer->mapped)
		return refuse(memory, bytes, "mapped without gpuDirectRDMACapable", cure_expandable,
			      error);
	return cuda_failed(
		result, error,
		"exporting %" PRIu64
		" bytes at %p of %s as a dma-buf (it needs NVIDIA's open kernel modules, "
		"Linux 5.12 or newer, and room in BAR1: nvidia-smi -q)",
		bytes, memory, cuda_device_text(pointer->device));
}

int cuda_dmabuf_open(const void *memory, uint64_t bytes, struct cuda_dmabuf *dmabuf,
		     struct error *error)
{
	uint64_t page = memory_page_bytes(), at = (uint64_t)(uintptr_t)memory;
	uint64_t first = at / page * page, end = (at + bytes + page - 1) / page * page;
	struct cuda_pointer pointer;
	int rc = check(memory, bytes, &pointer, error);

	*dmabuf = (struct cuda_dmabuf){-1, at - first};
	if (!rc)
		rc = cuda_enter(pointer.device, error);
	if (rc)
		return rc;
	rc = cuda_calls()->dmabuf(first, end - first, &dmabuf->fd);
	cuda_leave();
	if (!rc)
		return 0;
	dmabuf->fd = -1;
	return explain(memory, bytes, &pointer, rc, error);
}

int cuda_peermem_check(const void *memory, uint64_t bytes, struct error *error)
{
	struct cuda_pointer pointer;
	int rc = check(memory, bytes, &pointer, error);

	if (rc || !pointer.mapped)
		return rc;
	return refuse(memory, bytes, "mapped memory (cuMemMap) beside nvidia-peermem",
		      cure_expandable, error);
}
