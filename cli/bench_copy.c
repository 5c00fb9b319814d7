/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_copy.h"

#include "base/clock.h"
#include "base/copy.h"
#include "base/memory.h"
#include "base/threads.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define RANGE_BYTES_MAX (UINT64_C(256) << 20) /* past the caches; no more than the update itself */
#define PASSES		4
#define PACK_THREADS	4 /* of a trainer that is not told how many */
#define PAGE_BYTES	4096

struct pass {
	const struct bench_copy *copy;
	_Atomic uint32_t next;
};

static void copy_part(void *context)
{
	struct pass *pass = context;
	uint32_t threads = pass->copy->threads;
	uint64_t all = pass->copy->bytes, each = all / threads / PAGE_BYTES * PAGE_BYTES;

	for (uint32_t i; (i = atomic_fetch_add(&pass->next, 1)) < threads;) {
		uint64_t at = i * each, bytes = i + 1 == threads ? all - at : each;

		for (int n = 0; n < PASSES; n++)
			copy_bytes(pass->copy->target + at, pass->copy->source + at, bytes);
		copy_fence();
	}
}

int bench_copy_open(struct bench_copy *copy, uint64_t bytes, uint32_t trainers,
		    uint32_t pack_threads, struct error *error)
{
	uint32_t here = threads_here();
	uint64_t packing = pack_threads ? pack_threads : here < PACK_THREADS ? here : PACK_THREADS;

	packing *= trainers;
	copy->threads = packing < here ? (uint32_t)packing : here;
	copy->bytes = bytes < RANGE_BYTES_MAX ? bytes + 1 : RANGE_BYTES_MAX;
	copy->source = memory_aligned(PAGE_BYTES, copy->bytes);
	copy->target = mmap(NULL, copy->bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (copy->target == MAP_FAILED)
		copy->target = NULL;
	if (copy->source && copy->target) {
		memset(copy->source, 1, copy->bytes); /* else all is one page of zeros */
		return 0;
	}
	memory_error(error, "a copy to compare with", 2 * copy->bytes);
	bench_copy_close(copy);
	return -(int)error->code;
}

double bench_copy_run(const struct bench_copy *copy)
{
	struct pass pass = {.copy = copy};
	uint64_t begin = clock_ns();

	threads_run(copy->threads, copy_part, &pass);
	return (double)(PASSES * copy->bytes) * 1e9 / (double)(clock_ns() - begin);
}

void bench_copy_close(struct bench_copy *copy)
{
	memory_free(copy->source);
	if (copy->target)
		munmap(copy->target, copy->bytes);
	*copy = (struct bench_copy){0};
}
