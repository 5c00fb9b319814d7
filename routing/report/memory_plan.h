/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_plan.h -- the host and device memory that a transfer keeps beside the model: in the
 * design that was published (a CPU replica of one whole engine rank), and here (a ring).
 *
 *              published                              weft
 *   trainer    pinned    one engine rank, whole       ring    at most its limit, and no more than
 *              staged    all parts of a parameter             the distinct bytes of one update
 *              bucket    gathered tensors             full    the bytes of parameters that it
 *                                                             sends, each offset once
 *   inference  registered: its parameters, in both
 *
 * Source of the published design: docs/memory.md.
 */
#ifndef ROUTING_REPORT_MEMORY_PLAN_H
#define ROUTING_REPORT_MEMORY_PLAN_H

#include "model/model.h"
#include "routing/report/writes.h"

#define MEMORY_RING_DEFAULT (UINT64_C(1) << 30)
#define MEMORY_LANDING_DEFAULT (UINT64_C(256) << 20)
#define MEMORY_WINDOW_MIN      (UINT64_C(80) << 10) /* of a trainer's */
#define MEMORY_MERGE_MIN       (2 * MERGE_BYTES)    /* of a rank's */
#define MEMORY_SLOT_BYTES   64 /* slots of the ring start on a cache line */
#define MEMORY_SUM_BYTES    8  /* of a piece, at both ends */
#define MEMORY_NAME_BYTES   256

/* What every sender of the published design keeps; the largest of all senders. */
struct memory_published {
	uint64_t replica_bytes;   /* pinned and registered: the largest engine rank it serves */
	uint64_t staged_bytes;    /* all parts of one parameter, and of its scales, of a layer */
	char staged[MEMORY_NAME_BYTES]; /* that parameter; "" when none has several parts */
	uint32_t groups, sessions; /* engine ranks, and inference ranks, of one sender */
};

struct memory_trainer {
	uint64_t sent_bytes;
	uint64_t ring_bytes;      /* fed with tensors that do not stay: every piece is packed */
	uint64_t packed_bytes;    /* tensors stay registered: only what is no run of source bytes */
	uint64_t full_bytes;      /* the replica that keeps every byte it sends */
	uint64_t source_bytes;    /* what it holds: registered where tensors stay */
	uint64_t merge_bytes;     /* small pieces on their way: a quarter of the ring's limit, but for the least that each rank's have */
	uint32_t pieces;
};

struct memory_inference {
	uint64_t param_bytes;     /* registered */
	uint64_t landing_bytes;   /* windows: what lands, and MEMORY_LANDING_DEFAULT at most, but for the least that each trainer's has */
	uint32_t pieces;
};

struct memory_plan {
	struct memory_published published;
	struct memory_trainer *trainers;     /* by rank */
	struct memory_inference *inference;  /* by rank */
	uint32_t trainer_count, inference_count;
};

/* Of a table whose problem is that of model, train and infer; ring_bytes is the ring's limit.
 * Empty after a failure (ERROR_MEMORY). */
int memory_plan(struct memory_plan *plan, const struct model *model,
		const struct train_spec *train, const struct infer_spec *infer,
		const struct table *table, uint64_t ring_bytes, struct error *error);
void memory_plan_fini(struct memory_plan *plan);

/* The published design alone, which needs no table; all but replica_bytes. ERROR_MEMORY. */
int memory_published(struct memory_published *published, const struct model *model,
		     const struct train_spec *train, const struct infer_spec *infer,
		     struct error *error);

#endif
