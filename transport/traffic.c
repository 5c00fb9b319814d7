/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/traffic.h"

void traffic_past(struct provider_traffic *traffic, uint64_t bytes, bool done)
{
	uint64_t since, now;

	if (!bytes)
		return;
	if (done)
		atomic_fetch_add_explicit(&traffic->bytes, bytes, memory_order_relaxed);
	if (atomic_fetch_sub_explicit(&traffic->waiting_bytes, bytes, memory_order_relaxed) !=
	    bytes)
		return;
	now = clock_ns();
	since = atomic_load_explicit(&traffic->busy_since_ns, memory_order_relaxed);
	if (now > since) /* else another thread has posted meanwhile */
		atomic_fetch_add_explicit(&traffic->busy_ns, now - since, memory_order_relaxed);
}

/* Its parts are read one by one while others count, so a moment may lack the time since the last post. A counter that goes back is
 * taken for one that began anew, with all it ever counted: so what was said stays said. */
static uint64_t busy_never_less(struct provider_traffic *traffic, uint64_t busy_ns)
{
	uint64_t told = atomic_load_explicit(&traffic->busy_told_ns, memory_order_relaxed);

	while (told < busy_ns &&
	       !atomic_compare_exchange_weak_explicit(&traffic->busy_told_ns, &told, busy_ns,
						      memory_order_relaxed, memory_order_relaxed))
		;
	return told < busy_ns ? busy_ns : told;
}

void traffic_read(struct provider_traffic *traffic, struct transport_traffic *out)
{
	/* this order: what ends meanwhile must not be counted twice, nor what begins meanwhile from when the last one did */
	uint64_t busy = atomic_load_explicit(&traffic->busy_ns, memory_order_acquire);
	uint64_t since, now;

	out->waiting_bytes = atomic_load_explicit(&traffic->waiting_bytes, memory_order_acquire);
	since = atomic_load_explicit(&traffic->busy_since_ns, memory_order_acquire);
	out->bytes = atomic_load_explicit(&traffic->bytes, memory_order_relaxed);
	now = clock_ns();
	if (out->waiting_bytes && now > since)
		busy += now - since;
	out->busy_ns = busy_never_less(traffic, busy);
}
