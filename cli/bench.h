/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h -- what the processes of one `weft bench update` share.
 *
 *   parent ── fork ──► trainers, inference ranks (each a host program over weft.h)
 *          └─ exec ──► weft-controller
 *
 *   every round:  gate | the parent's plain copy | gate | memcpy of the same bytes by the trainers |
 *                 gate | the update | gate | the memcpy once more | gate
 *
 * The rounds interleave, so a machine whose speed drifts slows both alike; the ratio of a line
 * is of that line's own memcpy.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "base/error.h"
#include "job/parallel.h"
#include <stdatomic.h>
#include <stdint.h>

struct bench_options {
	const char *model, *as, *train_text, *infer_text, *transport;
	const char *policy, *order;  /* rows of routing */
	const char *nic, *infer_nic; /* of the trainers; of the inference ranks, NULL: the same */
	const char *replica;         /* of the trainers; NULL: weft's default */
	const char *memory, *stage;  /* as weft_options has them; NULL: the host's */
	const char *report;          /* a page of the plan and of what was measured; NULL: none */
	struct train_spec train;
	struct infer_spec infer;
	uint32_t updates, warmup;
	uint32_t pack_threads;       /* 0: weft's default */
	bool json, checksums, own_memory, register_sources;
};

/* What is long and no update: bytes of all processes. */
enum bench_stage { BENCH_CONTENTS, BENCH_OTHER_CONTENTS, BENCH_COMPARING, BENCH_STAGES };

struct bench_work {
	_Atomic uint64_t total, done; /* total grows while processes find out */
};

/* Lives in memory that all processes map. A gate opens when `parties` have arrived. */
struct bench_shared {
	_Atomic uint32_t arrived, generation, aborted;
	uint32_t parties;
	_Atomic uint64_t bytes;         /* of the round, summed by the trainers */
	_Atomic uint64_t opened_ns;     /* when the last gate opened */
	_Atomic uint64_t last_done_ns;  /* latest end of a copy or of a publish, this phase */
	char controller[64];
	double *seconds;                /* with a report: of each worker, trainers first, each timed update */
	struct bench_work work[BENCH_STAGES];
	_Atomic uint64_t direct, mapped, packed, landed; /* pieces of all updates, by the path they took */
	_Atomic uint32_t failing;       /* taken by the first process that fails */
	struct error failure;           /* its message, complete once aborted is set */
};

/* Waits for everyone; false when a process has failed (the shared flag is set). `watch` is
 * called while waiting; the parent watches its children in it. */
bool bench_gate(struct bench_shared *shared, void (*watch)(void *context), void *context);

/* The body of a trainer (rank < train.world) or an inference process; exit code. */
int bench_worker(struct bench_shared *shared, const struct bench_options *options,
		 uint32_t rank);

/* Starts everything, prints a line an update; exit code. */
int bench_update_run(const struct bench_options *options, struct error *error);

#endif
