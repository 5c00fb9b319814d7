/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_options.h -- the flags of `weft route simulate`.
 */
#ifndef CLI_SIMULATE_OPTIONS_H
#define CLI_SIMULATE_OPTIONS_H

#include "cli/route_options.h"
#include "routing/lab/simulate.h"

#define SLOW_MAX 64
/* The controller's --lost-after: how long a silent worker counts as alive. */
#define LOST_AFTER_DEFAULT_SECONDS 5.0

struct simulate_flags {
	struct route_options route;
	const char *file;          /* a dump, instead of a plan */
	struct simulate_options simulate;
	struct slow slow[SLOW_MAX];
	struct failure failure;
	double lost_after_seconds;
	bool lost_after_given, broadcast, json, published;
	const char *row, *trace, *churn;
};

/* With the flags, all that can be checked of them before the job is known being checked. */
int route_simulate_run(void *flags, struct error *error);
/* --published: runs that others measured, beside ours (published.c). */
int published_run(const struct simulate_flags *flags, struct error *error);

#endif
