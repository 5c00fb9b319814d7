/* SPDX-License-Identifier: Apache-2.0
 *
 * dmabuf.h -- device memory as NICs register it:
 *
 *   region            [.........)
 *   dma-buf     |page|page|page|page|        whole pages around it; the region begins at `offset`
 *
 * Threads: any.
 */
#ifndef TRANSPORT_CUDA_DMABUF_H
#define TRANSPORT_CUDA_DMABUF_H

#include "base/error.h"
#include <stdint.h>

struct cuda_dmabuf {
	int fd;          /* the caller's to close; a registration holds the memory by itself */
	uint64_t offset;
};

/* ERROR_UNSUPPORTED with the cure: managed memory, memory made without leave for NICs, a driver without dma-buf. */
int cuda_dmabuf_open(const void *memory, uint64_t bytes, struct cuda_dmabuf *dmabuf, struct error *error);
/* The same question where addresses are registered as they are (nvidia-peermem): mapped memory (cuMemMap) is refused, of
 * which that knows the first part alone. */
int cuda_peermem_check(const void *memory, uint64_t bytes, struct error *error);

#endif
