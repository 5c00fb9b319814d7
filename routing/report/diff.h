/* SPDX-License-Identifier: Apache-2.0
 *
 * diff.h -- what another plan of the same job changes: which bytes come from another trainer,
 * counted byte by byte of the targets, so that cutting a pair elsewhere moves only what moves.
 *
 *   target bytes   0 ............ 60 ............ 100
 *   A              [ trainer 0              )[ 1  )
 *   B              [ trainer 0   )[ trainer 1     )      moved: 60 .. 80
 */
#ifndef ROUTING_REPORT_DIFF_H
#define ROUTING_REPORT_DIFF_H

#include "routing/report/dump_read.h"

struct diff_tensor {
	const char *name;            /* borrowed from one of the dumps */
	uint64_t moved_bytes;
};
struct diff_trainer {
	uint32_t rank;
	uint64_t lost, gained;       /* moved bytes that it sends in A only, in B only */
};

struct diff {
	bool same;                   /* routes, order, topology and labels */
	uint64_t bytes;              /* written by both */
	uint64_t moved_bytes;        /* of these, from another trainer */
	uint64_t moved_pairs, pairs; /* (tensor, inference rank) with such bytes; of all of A */
	uint64_t transformed_bytes;  /* of `bytes`, transformed in another way: dtype, blocks or
					scales */
	uint64_t only_a, only_b;     /* bytes that one of them does not write: one is no proved table */
	bool order_differs, topology_differs;
	struct diff_trainer *trainers; /* most moved (lost + gained) first */
	size_t trainer_count;
	struct diff_tensor *tensors;   /* only those with moved bytes, the most first */
	size_t tensor_count;
};

/* ERROR_CONFLICT when model, train, infer or ranks differ (each said by name): the bytes of two
 * jobs cannot be compared. */
int diff_same_job(const struct dump *a, const struct dump *b, struct error *error);

/* Both dumps must be of one job, need routes, and must outlive the diff. */
int diff_of(struct diff *diff, const struct dump *a, const struct dump *b, struct error *error);
void diff_fini(struct diff *diff);

#endif
