/* SPDX-License-Identifier: Apache-2.0
 *
 * summary.h -- the figures that every table carries, and the same for round-robin.
 */
#ifndef ROUTING_REPORT_SUMMARY_H
#define ROUTING_REPORT_SUMMARY_H

#include "routing/report/writes.h"

struct summary {
	uint64_t routes, pieces;
	uint64_t bytes_total;
	uint64_t *trainer_bytes;     /* by trainer rank */
	uint64_t *inference_bytes;   /* by inference rank */
	uint64_t makespan_bytes;     /* largest trainer load */
	uint64_t lower_bound_bytes;  /* least possible largest load if pairs could be cut at will;
					exact for the given holders, rounded up to a byte */
	uint64_t receiver_bound_bytes; /* largest inference load */
	double gap;                  /* makespan / lower bound - 1 */
	double imbalance;            /* max / mean of trainer_bytes */
	uint64_t prepared_bytes;     /* distinct (trainer, tensor, box) bytes: what is packed */
	uint64_t prepared_minimum_bytes; /* rows of each (tensor, range of columns) that any
					    rank wants, once: no table of pieces that are cut at rows prepares less; one
					    whose trainers cut columns may */
	uint64_t *sessions;          /* by trainer: inference ranks it writes to */
	uint64_t path_bytes[PATH_COUNT];
	struct writes writes;        /* of jobs whose trainers hold boxes that are no whole rows; else all 0 */
};

int summary_of(struct summary *summary, const struct table *table, struct error *error);
void summary_fini(struct summary *summary);

/* The inference ranks that the busiest of `trainers` trainers writes to. */
uint32_t summary_sessions_max(const struct summary *summary, uint32_t trainers);

#endif
