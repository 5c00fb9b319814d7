/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/mapper.h"

#include "base/memory.h"
#include "base/threads.h"
#include "transport/transport.h"

/* A call keeps whoever maps or unmaps anything in this process waiting, and mapper_stop. */
#define CALL_BYTES (UINT64_C(4) << 20)
#define BYTES_MIN  65536u /* a call for fewer costs what it saves */

bool mapper_wants(const struct transport_remote *remote, uint64_t bytes)
{
	return bytes >= BYTES_MIN && remote && transport_remote_pointer(remote) &&
	       !transport_remote_kept(remote);
}

void mapper_map(const struct transport_remote *remote, uint64_t offset, uint64_t bytes)
{
	uint64_t all = remote ? transport_remote_bytes(remote) : 0;

	if (mapper_wants(remote, bytes) && offset <= all && bytes <= all - offset)
		memory_map_pages((unsigned char *)transport_remote_pointer(remote) + offset, bytes);
}

static void map_range(const struct mapper *mapper, const struct mapper_range *range)
{
	for (uint64_t at = 0; at < range->bytes && !atomic_load(&mapper->stopped);
	     at += CALL_BYTES) {
		uint64_t left = range->bytes - at;

		memory_map_pages(range->memory + at, left < CALL_BYTES ? left : CALL_BYTES);
	}
}

static void map_all(struct mapper *mapper)
{
	for (size_t i = mapper->count; i && !atomic_load(&mapper->stopped); i--) {
		const struct mapper_range *range = &mapper->ranges[i - 1];

		map_range(mapper, range);
		atomic_store(&mapper->left, i > 1 ? range->target : 0);
	}
}

static void *run(void *context)
{
	threads_step_back("weft-map");
	map_all(context);
	return NULL;
}

void mapper_start(struct mapper *mapper, struct mapper_range *ranges, size_t count)
{
	mapper->ranges = ranges;
	mapper->count = count;
	if (!count)
		return;
	atomic_store(&mapper->left, ranges[count - 1].target + 1);
	mapper->running = threads_start(&mapper->thread, run, mapper) == 0;
	if (!mapper->running)
		map_all(mapper);
}

void mapper_stop(struct mapper *mapper)
{
	atomic_store(&mapper->stopped, true);
	if (mapper->running)
		pthread_join(mapper->thread, NULL);
	*mapper = (struct mapper){.ranges = NULL};
}
