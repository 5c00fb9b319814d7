/* SPDX-License-Identifier: Apache-2.0
 *
 * certificate.h -- how far a table is from the best possible, in seconds: the least makespan
 * that any table could have if pairs could be cut at will, under the speed of each NIC and
 * uplink, and the table's own. Nothing but wires is counted: no packing, no latency, and every
 * wire always busy. Where trainers hold boxes that are no whole rows, a table may fall apart into small writes: then a trainer that
 * takes longer to make its writes (writes.h) than any wire is busy is the table's limit.
 */
#ifndef ROUTING_REPORT_CERTIFICATE_H
#define ROUTING_REPORT_CERTIFICATE_H

#include "routing/plan/limits.h"
#include "routing/plan/table.h"

struct certificate {
	double bound_seconds;    /* the larger of the next two */
	double sender_bound_seconds, receiver_bound_seconds;
	/* The sender's exactly: bytes / rate seconds. On a flat cluster that times the rate of one
	 * trainer is the summary's lower_bound_bytes before it is rounded up. */
	uint64_t sender_bound_bytes, sender_bound_rate;
	double makespan_seconds; /* largest load / rate of all NICs and uplinks */
	double gap;              /* makespan / bound - 1; 0 when nothing is sent */
	/* Is the bound the least makespan? Else it is only never above it: trainers use partly the
	 * same NICs, or a host with a limited uplink has trainers and inference ranks that could
	 * serve each other inside. */
	bool exact;
	char bound_limit[LIMITS_TEXT_BYTES];    /* "trainers 0..31 together", "inference 17" */
	char makespan_limit[LIMITS_TEXT_BYTES]; /* "NIC mlx5_1 of host a02"; "" if nothing is sent */
};

/* Of the table's own topology; the flat cluster's when it has none. */
int certificate_of(struct certificate *certificate, const struct table *table,
		   struct error *error);

#endif
