/* SPDX-License-Identifier: Apache-2.0
 *
 * churn.h -- what becomes of a job whose trainers and engines come and go: after each change a plan of those who are here, as the
 * controller makes it (docs/living.md), the update that it takes, and how much of it other trainers send than before.
 *
 *   "-engine=1,-trainer=3,+engine=1"      lost, lost, back: three changes, four plans
 */
#ifndef ROUTING_LAB_CHURN_H
#define ROUTING_LAB_CHURN_H

#include "base/array.h"
#include "routing/lab/simulate.h"

/* Of one plan. */
struct churn_step {
	char change[40];           /* "-engine=1"; "": none yet */
	uint32_t trainers, engines; /* that are here */
	uint64_t routes, bytes;
	uint64_t moved_bytes;      /* of ranks that were here before: from another trainer than before */
	uint64_t largest_bytes;    /* that one trainer sends */
	double imbalance;          /* that, over the mean of trainers that are here */
	double makespan_seconds;
};

struct churn {
	ARRAY(struct churn_step) steps;
};

/* The table is of all. ERROR_USAGE: a change says nothing that can happen; ERROR_ABORTED: what a lost trainer held nobody else
 * does. Both name the change. Whatever it returns, churn_fini. */
int churn_run(struct churn *churn, const struct table *table, const struct policy *policy, const struct plan_options *plan,
	      const struct simulate_options *options, const char *changes, struct error *error);
void churn_fini(struct churn *churn);

#endif
