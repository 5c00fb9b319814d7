/* SPDX-License-Identifier: Apache-2.0
 *
 * route_options.h -- which job and which plan: the flags that plan, explain, compare and simulate
 * have in common, as one argp child, and the job they name.
 *
 *   struct options { struct route_options route; .. };     first, as a verb's children need it
 *   const struct verb some_verb = {VERB_OF(..), ROUTE_VERB, ..};
 *   then:  route_options_plan(&job, &options->route, error), and job.table is the plan
 */
#ifndef CLI_ROUTE_OPTIONS_H
#define CLI_ROUTE_OPTIONS_H

#include "cli/route.h"

/* As they were given; NULL: not given. Zeroed is the default. */
struct route_options {
	const char *model, *train, *infer; /* needed */
	const char *as;                    /* family of the model, where its class is not known */
	const char *policy, *order;
	const char *memory;                /* mapped */
	const char *sessions_max;
	const char *topology;              /* flat */
	const char *transport;             /* one for all */
};

/* --model --as --train --infer --policy --order --memory --sessions-max --topology --transport; its
 * input is a struct route_options. --help lists every policy and order with its rule. */
extern const struct argp route_argp;
extern const struct argp_child route_children[];
#define ROUTE_VERB              \
	.children = route_children, \
	.too_many = "'%1$s' is not an option; say --model %1$s?"

/* Was any of them given? For verbs that also read a dump, which says all of this itself. */
bool route_options_any(const struct route_options *options);

/* Checks all flags (ERROR_USAGE names the missing or wrong one and what is known), then opens
 * the job: problem, policy (greedy when none was given) and plan options. On error *job is
 * closed. */
int route_options_open(struct route_job *job, const struct route_options *options,
		       struct error *error);
/* And its plan, in job->table. What no trainers of such sizes can send is refused with the sizes that can. */
int route_options_plan(struct route_job *job, const struct route_options *options,
		       struct error *error);
/* route_sizes.c: to a refusal of the job, if a smaller size of its source is the cure; takes as long as some plans. */
void route_sizes_add(const struct route_options *options, struct error *error);

#endif
