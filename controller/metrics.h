/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h -- what the controller shows Prometheus (docs/metrics.md). The core is one thread's, and stays that: its shell puts a copy
 * of the figures on a board, ten times a second at most, and the outlet's threads read the board.
 */
#ifndef CONTROLLER_METRICS_H
#define CONTROLLER_METRICS_H

#include "controller/figures.h"

struct metrics_options {
	const char *address, *file;           /* as outlet_options */
	const char *address_name, *file_name;
};

struct controller_metrics;
/* *metrics NULL, which all below take: nothing is wanted. `job` is borrowed. */
int controller_metrics_open(struct controller_metrics **metrics, const struct metrics_options *options,
			    const char *job, struct error *error);
/* The core's thread. last: whatever the time since the last copy. */
void controller_metrics_take(struct controller_metrics *metrics, const struct controller *core, uint64_t refused,
			     bool last);
/* [any thread] Another plan, that was made in so long. What has no memory is not shown. */
void controller_metrics_plan(struct controller_metrics *metrics, const struct table *table, uint64_t ns);
void controller_metrics_close(struct controller_metrics **metrics);

#endif
