/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_report.h -- the lines of `weft bench update`: one an update, for people or as JSON.
 */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include "cli/bench.h"
#include "cli/grid.h"

struct bench_round {
	uint32_t update; /* from 1 */
	uint64_t bytes;
	double rate, seconds;
	double memcpy_before, memcpy_after, copy; /* bytes a second */
	bool disturbed;
};

/* Opens the table, unless it is JSON. */
void bench_report_header(struct grid *grid, const struct bench_options *options,
			 uint32_t copy_threads);
void bench_report_round(struct grid *grid, const struct bench_options *options,
			const struct bench_round *round);
/* After the last one: how many were disturbed, what was compared, which way the pieces went. */
void bench_report_end(const struct bench_shared *shared, const struct bench_options *options,
		      uint32_t disturbed);

#endif
