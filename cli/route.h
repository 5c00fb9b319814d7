/* SPDX-License-Identifier: Apache-2.0
 *
 * route.h -- what the verbs of `weft route` share.
 */
#ifndef CLI_ROUTE_H
#define CLI_ROUTE_H

#include "cli/verb.h"
#include "routing/report/certificate.h"
#include "routing/report/dump.h"
#include <stdio.h>

extern const struct verb route_plan_verb, route_show_verb, route_verify_verb, route_order_verb,
	route_topology_verb, route_simulate_verb, route_export_verb, route_diff_verb,
	route_explain_verb, route_compare_verb;

/* A table's figures for people, from a fresh plan or from a dump: bytes by trainer as bars,
 * balance against the bound and against round-robin, what is left out, the digest. */
struct route_view {
	struct plan_labels labels;
	const struct report *report;
	const struct certificate *certificate; /* NULL: not printed (its topology is not known) */
};
void route_print(FILE *stream, const struct route_view *view);

/* Every model and spec becomes a problem the same way. */
struct model;
struct problem;
struct problem_storage;
struct route_job {
	struct model *model;
	struct problem *problem;
	struct problem_storage *storage;
	const struct policy *policy;  /* with `plan`: what route_options_open was asked for */
	struct plan_options plan;
	struct topology *topology;    /* behind plan.topology; NULL: flat */
	struct table *table;          /* with route_options_plan, else NULL */
};
/* away: of a job that lacks somebody; NULL: of none */
int route_job_open_without(struct route_job *job, const char *model, const char *as, const char *train,
			   const char *infer, const struct problem_away *away, bool mapped,
			   struct error *error);
int route_job_open(struct route_job *job, const char *model, const char *as, const char *train,
		   const char *infer, bool mapped, struct error *error);
void route_job_close(struct route_job *job);

/* The labels of a dump name a model and two specs; a job that was declared tensor by tensor has
 * none (ERROR_CONFIG). `file` stands for the dump in the message. */
struct dump;
int route_dump_has_specs(const struct dump *dump, const char *file, struct error *error);
/* Puts the file before the message, and what --model is for unless it was given. */
int route_dump_wrap(struct error *error, const char *file, const char *model);

#endif
