/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/ranges.h"

#include "base/array.h"
#include "base/compare.h"
#include <string.h>

/* The first range that ends behind `at`. */
static size_t range_behind(const struct ranges *ranges, uintptr_t at)
{
	const struct range *items = ranges->items;

	return search_first(i, 0, ranges->count, (uintptr_t)items[i].memory + items[i].bytes > at);
}

const struct range *ranges_find(const struct ranges *ranges, const void *memory, uint64_t bytes)
{
	size_t i = range_behind(ranges, (uintptr_t)memory);
	const struct range *range = &ranges->items[i];

	if (i == ranges->count || (uintptr_t)memory < (uintptr_t)range->memory ||
	    bytes > range->bytes - ((uintptr_t)memory - (uintptr_t)range->memory))
		return NULL;
	return range;
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
	if (i < ranges->count && (uintptr_t)ranges->items[i].memory < end)
		return error_set(error, ERROR_USAGE,
				 "weft_source_register: %llu bytes at %p overlap %llu bytes "
				 "registered at %p",
				 (unsigned long long)bytes, memory,
				 (unsigned long long)ranges->items[i].bytes,
				 (void *)ranges->items[i].memory);
	return 0;
}

static void close_range(const struct ranges *ranges, struct range *range)
{
	transport_region_close(&range->region);
	if (range->pinned)
		device_unpin(ranges->device, range->pinned);
}

static int open_range(struct range *range, struct transport_domain *domain,
		      const struct device *device, struct error *error)
{
	int rc = domain ? transport_source_register(domain, range->memory, range->bytes,
						    &range->region, error)
			: 0;

	return rc || !device ? rc
			     : device_pin_pages(device, range->memory, range->bytes, &range->pinned,
						error);
}

int ranges_add(struct ranges *ranges, struct transport_domain *domain, const struct device *device,
	       void *memory, uint64_t bytes, struct error *error)
{
	size_t at = range_behind(ranges, (uintptr_t)memory), count = ranges->count;
	struct range range = {.memory = memory, .bytes = bytes};
	int rc;

	if (!array_push(ranges))
		return memory_error(error, "registering source memory", sizeof(range));
	ranges->count = count;
	if (device)
		ranges->device = device;
	rc = open_range(&range, domain, device, error);
	if (rc) {
		close_range(ranges, &range);
		return error_wrap(error, "source memory of %llu bytes", (unsigned long long)bytes),
		       rc;
	}
	memmove(ranges->items + at + 1, ranges->items + at, (count - at) * sizeof(*ranges->items));
	ranges->items[at] = range;
	ranges->count = count + 1;
	return 0;
}

void ranges_close(struct ranges *ranges)
{
	if (ranges->device && !device_closes(ranges->device)) {
		*ranges = (struct ranges){0};
		return;
	}
	for (size_t i = 0; i < ranges->count; i++)
		close_range(ranges, &ranges->items[i]);
	array_free(ranges);
}
