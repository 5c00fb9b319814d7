/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/ranges.h"

#include "base/array.h"
#include "base/compare.h"
#include <string.h>

/* The first range that ends behind `at`. */
static size_t range_behind(const struct ranges *ranges, uintptr_t at)
{
	struct transport_region *const *items = ranges->items;

	return search_first(i, 0, ranges->count,
			    (uintptr_t)transport_region_memory(items[i]) +
					    transport_region_bytes(items[i]) >
				    at);
}

const struct transport_region *ranges_find(const struct ranges *ranges, const void *memory,
					   uint64_t bytes)
{
	size_t i = range_behind(ranges, (uintptr_t)memory);
	uintptr_t first;

	if (i == ranges->count)
		return NULL;
	first = (uintptr_t)transport_region_memory(ranges->items[i]);
	if ((uintptr_t)memory < first ||
	    bytes > transport_region_bytes(ranges->items[i]) - ((uintptr_t)memory - first))
		return NULL;
	return ranges->items[i];
}

int ranges_check(const struct ranges *ranges, const void *memory, uint64_t bytes,
		 struct error *error)
{
	uintptr_t end;
	size_t i;

	if (!memory || !bytes || __builtin_add_overflow((uintptr_t)memory, bytes, &end))
		return error_set(error, ERROR_USAGE,
				 "weft_source_register: no memory of %llu bytes at %p",
				 (unsigned long long)bytes, memory);
	i = range_behind(ranges, (uintptr_t)memory);
	if (i < ranges->count && (uintptr_t)transport_region_memory(ranges->items[i]) < end)
		return error_set(error, ERROR_USAGE,
				 "weft_source_register: %llu bytes at %p overlap %llu bytes "
				 "registered at %p",
				 (unsigned long long)bytes, memory,
				 (unsigned long long)transport_region_bytes(ranges->items[i]),
				 transport_region_memory(ranges->items[i]));
	return 0;
}

int ranges_add(struct ranges *ranges, struct transport_domain *domain, void *memory, uint64_t bytes,
	       struct error *error)
{
	size_t at = range_behind(ranges, (uintptr_t)memory), count = ranges->count;
	struct transport_region *region;
	int rc;

	if (!array_push(ranges))
		return memory_error(error, "registering source memory", sizeof(region));
	ranges->count = count;
	rc = transport_source_register(domain, memory, bytes, &region, error);
	if (rc)
		return error_wrap(error, "source memory of %llu bytes", (unsigned long long)bytes),
		       rc;
	memmove(ranges->items + at + 1, ranges->items + at, (count - at) * sizeof(*ranges->items));
	ranges->items[at] = region;
	ranges->count = count + 1;
	return 0;
}

void ranges_close(struct ranges *ranges)
{
	for (size_t i = 0; i < ranges->count; i++)
		transport_region_close(&ranges->items[i]);
	array_free(ranges);
}
