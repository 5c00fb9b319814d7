/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_contents.h -- what the processes of `weft bench update` send, and whether it arrived. Both
 * take as many threads as the machine has processors for each process of that kind, and count
 * bytes for the parent's progress lines.
 */
#ifndef CLI_BENCH_CONTENTS_H
#define CLI_BENCH_CONTENTS_H

#include "cli/bench.h"
#include "worker/api/weft.h"

/* The held rows of every wanted tensor, by tensor id, as the made checkpoint of `seed` has them;
 * tensors whose place is NULL are left out. */
int bench_fill(struct bench_shared *shared, const struct bench_options *options,
	       enum bench_stage stage, const weft_worker *worker, void *const *data,
	       uint64_t seed, weft_error *error);

/* Compares every piece of an inference rank with the bytes that `seed` makes of it. */
int bench_compare(struct bench_shared *shared, const struct bench_options *options,
		  const weft_worker *worker, uint32_t rank, uint64_t version, uint64_t seed,
		  struct error *error);

#endif
