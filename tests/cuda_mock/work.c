/* SPDX-License-Identifier: Apache-2.0
 *
 * work.c -- copies, fills and kernels when they are run, piece by piece where physical memory is in parts.
 */
#include "tests/cuda_mock/mock.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *reach(uint64_t address, uint64_t bytes, uint64_t *piece)
{
	if (gpu_range_of(address))
		return gpu_reach(address, bytes, piece);
	*piece = bytes; /* of the host */
	return (unsigned char *)(uintptr_t)address;
}

static int copy(uint64_t to, uint64_t from, uint64_t bytes)
{
	for (uint64_t n; bytes; bytes -= n, to += n, from += n) {
		uint64_t to_piece = 0, from_piece = 0;
		unsigned char *target = reach(to, bytes, &to_piece);
		unsigned char *source = reach(from, bytes, &from_piece);

		if (!target || !source)
			return CUDA_ILLEGAL_ADDRESS;
		n = to_piece < from_piece ? to_piece : from_piece;
		memmove(target, source, n);
	}
	return 0;
}

static int fill(uint64_t to, uint8_t byte, uint64_t bytes)
{
	for (uint64_t piece; bytes; bytes -= piece, to += piece) {
		unsigned char *target = reach(to, bytes, &piece);

		if (!target)
			return CUDA_ILLEGAL_ADDRESS;
		memset(target, byte, piece);
	}
	return 0;
}

/* What a kernel of `device` touches. Rows may lie across physical parts, which lie together for a device and not for
 * us, so such a row is handed out from a buffer, and written back behind the kernel. */
struct spans {
	uint64_t address, bytes;
	unsigned char *memory;
	bool write;
};

struct kernel {
	int device;
	jmp_buf wrong;
	struct spans *spans;
	size_t count, room;
};

static void *across(struct kernel *kernel, uint64_t address, uint64_t bytes, bool write)
{
	struct spans *span;

	for (size_t i = 0; i < kernel->count; i++)
		if (kernel->spans[i].address == address && kernel->spans[i].bytes == bytes) {
			kernel->spans[i].write |= write;
			return kernel->spans[i].memory;
		}
	if (kernel->count == kernel->room) {
		kernel->room = kernel->room ? 2 * kernel->room : 16;
		kernel->spans = realloc(kernel->spans, kernel->room * sizeof(*kernel->spans));
	}
	span = &kernel->spans[kernel->count++];
	*span = (struct spans){address, bytes, malloc(bytes), write};
	if (copy((uint64_t)(uintptr_t)span->memory, address, bytes))
		longjmp(kernel->wrong, 1);
	return span->memory;
}

static void *kernel_reach(void *context, uint64_t address, uint64_t bytes, bool write)
{
	struct kernel *kernel = context;
	struct gpu_range *range = gpu_range_of(address);
	uint64_t piece = 0;
	unsigned char *at;

	if (!range) {
		if (gpu_host_covers(address, bytes))
			return (void *)(uintptr_t)address;
		gpu_violation(
			"a kernel touches %llu bytes of the host at 0x%llx, which are not registered",
			(unsigned long long)bytes, (unsigned long long)address);
		longjmp(kernel->wrong, 1);
	}
	if (range->device != kernel->device && !range->opened &&
	    !gpu.peers[kernel->device][range->device]) {
		gpu_violation(
			"a kernel of cuda:%d touches memory of cuda:%d, and peer access is not enabled",
			kernel->device, range->device);
		longjmp(kernel->wrong, 1);
	}
	at = gpu_reach(address, bytes, &piece);
	if (!at)
		longjmp(kernel->wrong, 1);
	return piece == bytes ? at : across(kernel, address, bytes, write);
}

static int run_kernel(int device, const struct gpu_op *op)
{
	struct kernel *kernel = calloc(1, sizeof(*kernel));
	volatile int rc = 0;

	kernel->device = device;
	if (setjmp(kernel->wrong) == 0)
		pack_cuda_host_run(&op->launch, op->blocks, kernel_reach, kernel);
	else
		rc = CUDA_ILLEGAL_ADDRESS;
	for (size_t i = 0; i < kernel->count; i++) {
		if (!rc && kernel->spans[i].write)
			copy(kernel->spans[i].address, (uint64_t)(uintptr_t)kernel->spans[i].memory,
			     kernel->spans[i].bytes);
		free(kernel->spans[i].memory);
	}
	free(kernel->spans);
	free(kernel);
	return rc;
}

int gpu_run(struct cuda_stream *stream, struct gpu_op *op)
{
	uint64_t from = op->staged ? (uint64_t)(uintptr_t)op->staged : op->from;
	int rc = 0;

	switch (op->work) {
	case GPU_COPY:
		return copy(op->to, from, op->bytes);
	case GPU_ROWS:
		for (uint64_t i = 0; i < op->rows && !rc; i++)
			rc = copy(op->to + i * op->bytes,
				  from + i * (op->staged ? op->bytes : op->stride), op->bytes);
		return rc;
	case GPU_FILL:
		return fill(op->to, op->byte, op->bytes);
	case GPU_KERNEL:
		return run_kernel(stream->device, op);
	case GPU_WAIT_EVENT:
	case GPU_WAIT_VALUE:
		break;
	}
	return 0;
}
