/* SPDX-License-Identifier: Apache-2.0
 *
 * traffic.h -- what a NIC carries, counted by providers whose completions tell: for people (`weft status`, metrics), nothing is
 * decided by it.
 *
 *   posts A   posts B    A past   B past          posts C
 *     ├─────────┼──────────┼────────┤                ├──► now
 *     since                      busy += now - since  since
 *
 * Whoever posts adds, whoever sees it complete, or knows that it never will be, takes away; any thread.
 */
#ifndef TRANSPORT_TRAFFIC_H
#define TRANSPORT_TRAFFIC_H

#include "base/clock.h"
#include "transport/transport.h"
#include <stdatomic.h>

struct provider_traffic {
	_Atomic uint64_t bytes;         /* complete */
	_Atomic uint64_t waiting_bytes; /* posted, and not complete */
	_Atomic uint64_t busy_ns, busy_since_ns; /* with some waiting, before this time; since then */
	_Atomic uint64_t busy_told_ns;           /* the most that was ever said: it never becomes less */
};

/* The clock is read where nothing waited before, alone. */
static inline void traffic_posts(struct provider_traffic *traffic, uint64_t bytes)
{
	bool began = !atomic_load_explicit(&traffic->waiting_bytes, memory_order_relaxed);

	if (!bytes)
		return;
	/* before it counts as busy: who reads in between would take all the time since it last was */
	if (began)
		atomic_store_explicit(&traffic->busy_since_ns, clock_ns(), memory_order_relaxed);
	/* or what waited before is past by now */
	if (!atomic_fetch_add_explicit(&traffic->waiting_bytes, bytes, memory_order_release) &&
	    !began)
		atomic_store_explicit(&traffic->busy_since_ns, clock_ns(), memory_order_relaxed);
}

/* Complete, or (done false) it goes another way, or nowhere. */
void traffic_past(struct provider_traffic *traffic, uint64_t bytes, bool done);
void traffic_read(struct provider_traffic *traffic, struct transport_traffic *out);

#endif
