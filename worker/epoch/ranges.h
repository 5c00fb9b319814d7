/* SPDX-License-Identifier: Apache-2.0
 *
 * ranges.h -- memory that a trainer's tensors lie in, named beforehand: registered for the transports that read only
 * from registered memory, and, the host's beside a GPU, pinned for its kernels. Ranges do not overlap and are sorted by
 * address:
 *
 *   weft_source_register   [ range 0 )   [ range 1 )        [ range 2 )
 *   weft_update_write           [tensor)                                    one range holds it whole
 */
#ifndef WORKER_EPOCH_RANGES_H
#define WORKER_EPOCH_RANGES_H

#include "transport/transport.h"
#include "worker/device/device.h"

struct range {
	unsigned char *memory;
	uint64_t bytes;
	struct transport_region *region; /* NULL: no transport needs it */
	void *pinned;                    /* whole pages; NULL: none by us */
};

struct ranges {
	struct range *items;
	size_t count, capacity;
	const struct device *device;     /* of `pinned` */
};

/* ERROR_USAGE names a range that it overlaps, or what is no memory. */
int ranges_check(const struct ranges *ranges, const void *memory, uint64_t bytes,
		 struct error *error);
/* Memory that was checked. domain: that it is registered with, or NULL; device: that it is pinned for, or NULL. */
int ranges_add(struct ranges *ranges, struct transport_domain *domain, const struct device *device, void *memory,
	       uint64_t bytes, struct error *error);
/* The range that holds these bytes whole, or NULL. */
const struct range *ranges_find(const struct ranges *ranges, const void *memory, uint64_t bytes);
void ranges_close(struct ranges *ranges);

#endif
