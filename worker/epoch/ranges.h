/* SPDX-License-Identifier: Apache-2.0
 *
 * ranges.h -- host memory that a trainer's tensors lie in, registered for the transports that read
 * only from registered memory. Ranges do not overlap and are sorted by address:
 *
 *   weft_source_register   [ range 0 )   [ range 1 )        [ range 2 )
 *   weft_update_write           [tensor)                                    one range holds it whole
 */
#ifndef WORKER_EPOCH_RANGES_H
#define WORKER_EPOCH_RANGES_H

#include "transport/transport.h"

struct ranges {
	struct transport_region **items;
	size_t count, capacity;
};

/* ERROR_USAGE names a range that it overlaps, or what is no memory. */
int ranges_check(const struct ranges *ranges, const void *memory, uint64_t bytes,
		 struct error *error);
/* Memory that was checked. */
int ranges_add(struct ranges *ranges, struct transport_domain *domain, void *memory,
	       uint64_t bytes, struct error *error);
/* The range that holds these bytes whole, or NULL. */
const struct transport_region *ranges_find(const struct ranges *ranges, const void *memory,
					   uint64_t bytes);
void ranges_close(struct ranges *ranges);

#endif
