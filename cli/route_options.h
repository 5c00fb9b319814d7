/* SPDX-License-Identifier: Apache-2.0
 *
 * route_options.h -- which job and which plan: the flags that plan, explain, compare and simulate
 * have in common, as one argp child, and the job they name.
 *
 *   static const struct argp_child children[] = {{&route_argp, 0, NULL, 0}, {0}};
 *   parser:  case ARGP_KEY_INIT: state->child_inputs[0] = &options->route; return 0;
 *   then:    route_options_open(&job, &options.route, &error)
 *            table_plan(&table, job.problem, job.policy, &job.plan, &error)
 */
#ifndef CLI_ROUTE_OPTIONS_H
#define CLI_ROUTE_OPTIONS_H

#include "cli/route.h"
#include <argp.h>

/* As they were given; NULL: not given. Zeroed is the default. */
struct route_options {
	const char *model, *train, *infer; /* needed */
	const char *policy, *order;
	const char *memory;                /* mapped */
	const char *sessions_max;
	const char *topology;              /* flat */
};

/* --model --train --infer --policy --order --memory --sessions-max --topology; its input is a struct
 * route_options. --help lists every policy and order with its rule. */
extern const struct argp route_argp;

/* Was any of them given? For verbs that also read a dump, which says all of this itself. */
bool route_options_any(const struct route_options *options);

/* Checks all flags (ERROR_USAGE names the missing or wrong one and what is known), then opens
 * the job: problem, policy (greedy when none was given) and plan options. On error *job is
 * closed. */
int route_options_open(struct route_job *job, const struct route_options *options,
		       struct error *error);

#endif
