/* SPDX-License-Identifier: Apache-2.0
 *
 * sources.c -- host memory that a trainer's tensors lie in, registered for the transports that read
 * only from registered memory. Ranges do not overlap and are sorted by address:
 *
 *   weft_source_register   [ range 0 )   [ range 1 )        [ range 2 )
 *   weft_update_write           [tensor)                                    one range holds it whole
 */
#include "worker/api/worker.h"

#include <string.h>

/* The first range that ends behind `at`. */
static size_t range_behind(const struct weft_worker *worker, uintptr_t at)
{
	size_t low = 0, high = worker->ranges.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct transport_region *region = worker->ranges.items[middle];

		if ((uintptr_t)transport_region_memory(region) + transport_region_bytes(region) >
		    at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

const struct transport_region *sources_find(const struct weft_worker *worker, const void *memory,
					    uint64_t bytes)
{
	size_t i = range_behind(worker, (uintptr_t)memory);
	uintptr_t first;

	if (i == worker->ranges.count)
		return NULL;
	first = (uintptr_t)transport_region_memory(worker->ranges.items[i]);
	if ((uintptr_t)memory < first ||
	    bytes > transport_region_bytes(worker->ranges.items[i]) - ((uintptr_t)memory - first))
		return NULL;
	return worker->ranges.items[i];
}

static int check_range(const struct weft_worker *worker, const void *memory, uint64_t bytes,
		       struct error *error)
{
	uintptr_t end;
	size_t i;

	if (!memory || !bytes || __builtin_add_overflow((uintptr_t)memory, bytes, &end))
		return error_set(error, ERROR_USAGE,
				 "weft_source_register: no memory of %llu bytes at %p",
				 (unsigned long long)bytes, memory);
	i = range_behind(worker, (uintptr_t)memory);
	if (i < worker->ranges.count &&
	    (uintptr_t)transport_region_memory(worker->ranges.items[i]) < end)
		return error_set(
			error, ERROR_USAGE,
			"weft_source_register: %llu bytes at %p overlap %llu bytes "
			"registered at %p",
			(unsigned long long)bytes, memory,
			(unsigned long long)transport_region_bytes(worker->ranges.items[i]),
			transport_region_memory(worker->ranges.items[i]));
	return 0;
}

static int add_range(struct weft_worker *worker, void *memory, uint64_t bytes, struct error *error)
{
	size_t at = range_behind(worker, (uintptr_t)memory), count = worker->ranges.count;
	struct transport_region *region;
	int rc;

	if (!array_push(&worker->ranges))
		return memory_error(error, "registering source memory", sizeof(region));
	worker->ranges.count = count;
	rc = transport_region_register(worker->domain, memory, bytes, &region, error);
	if (rc)
		return error_wrap(error, "source memory of %llu bytes", (unsigned long long)bytes),
		       rc;
	memmove(worker->ranges.items + at + 1, worker->ranges.items + at,
		(count - at) * sizeof(*worker->ranges.items));
	worker->ranges.items[at] = region;
	worker->ranges.count = count + 1;
	return 0;
}

int sources_register(struct weft_worker *worker, void *memory, uint64_t bytes, struct error *error)
{
	int rc = check_range(worker, memory, bytes, error);

	/* a transport that reads any memory gains nothing from it, and shm would have to open
	 * this process to its peers */
	if (!rc && transport_domain_caps(worker->domain)->local_registration)
		rc = add_range(worker, memory, bytes, error);
	return rc;
}

void sources_close(struct weft_worker *worker)
{
	for (size_t i = 0; i < worker->ranges.count; i++)
		transport_region_close(&worker->ranges.items[i]);
	array_free(&worker->ranges);
}
