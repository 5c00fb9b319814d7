/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_copy.h -- the stricter measure of `weft bench update`: what this machine's memory can do.
 * Not the job's tensors by its processes, but two plain ranges, cut into one contiguous part a
 * thread and copied with the streaming stores of the update itself; no piece, no process between.
 */
#ifndef CLI_BENCH_COPY_H
#define CLI_BENCH_COPY_H

#include "base/error.h"
#include <stdint.h>

struct bench_copy {
	unsigned char *source, *target; /* ordinary memory; shared pages, as targets are */
	uint64_t bytes;			/* of each */
	uint32_t threads;
};

/* For an update of `bytes` by as many threads as `trainers` pack with (pack_threads each; 0: weft's
 * default), at most one a processor of this process. */
int bench_copy_open(struct bench_copy *copy, uint64_t bytes, uint32_t trainers,
		    uint32_t pack_threads, struct error *error);
/* Bytes a second. */
double bench_copy_run(const struct bench_copy *copy);
void bench_copy_close(struct bench_copy *copy);

#endif
