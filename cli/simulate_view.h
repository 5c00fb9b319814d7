/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_view.h -- a simulation for people and for programs.
 */
#ifndef CLI_SIMULATE_VIEW_H
#define CLI_SIMULATE_VIEW_H

#include "cli/simulate_options.h"
#include "routing/lab/baseline.h"
#include "routing/lab/churn.h"
#include "base/json_write.h"
#include "routing/plan/table.h"

/* What was found out; members that were not asked for are NULL. */
struct simulate_view {
	const struct simulate_flags *flags;
	const struct table *table;
	const struct topology *topology; /* flat, when the table has none */
	const struct simulation *simulation;
	const struct simulated_bound *bound;
	const struct simulation *replay; /* after a failure: the repeated update */
	const struct baseline *baseline;
};

void simulate_print(const struct simulate_view *view);
void simulate_put(const struct simulate_view *view); /* JSON, one line */

/* simulate_churn.c: the same of --churn. */
void simulate_churn_print(const struct churn *churn);
void simulate_churn_put(const struct churn *churn);

/* The speeds of the stages, as a member of the object. */
void simulate_put_rates(struct json *json, const struct simulate_options *options);
/* "12.3 ms" */
char *simulate_seconds(double seconds, char out[TEXT_SHORT_BYTES]);
/* With a failure: is the update repeated, and when is that through? */
bool simulate_repeats(const struct simulate_view *view, double *seconds);

#endif
