/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_measured.h -- `weft bench update --report FILE`: what each rank took, update by update, beside what the plan gives it.
 *
 *   processes ──► seconds[worker][update], in memory that all map ──► medians ──┐
 *   weft-controller --dump FILE.PID.plan ─────────────────────────────────────────┴──► FILE, the routing report
 */
#ifndef CLI_BENCH_MEASURED_H
#define CLI_BENCH_MEASURED_H

#include "cli/bench.h"

/* Before processes start: FILE can be written. Sets shared->seconds. */
int bench_measured_open(struct bench_shared *shared, const struct bench_options *options, struct error *error);
/* [any process] That worker, trainers first, is through with the update of `round`, counted from the warm-up on. */
void bench_measured_note(struct bench_shared *shared, const struct bench_options *options, uint32_t worker,
			 uint32_t round);
/* The plan that the controller is to write: free it with memory_free. NULL: no memory. */
char *bench_measured_plan(const struct bench_options *options);
/* When all is over: writes FILE. */
int bench_measured_write(const struct bench_shared *shared, const struct bench_options *options, struct error *error);
/* Removes the plan. */
void bench_measured_close(struct bench_shared *shared, const struct bench_options *options);

#endif
