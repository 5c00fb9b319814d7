/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/route.h"

#include "job/parallel.h"
#include "model/model.h"
#include "routing/report/dump_read.h"
#include <string.h>

#define ROW(verb, what)                                    \
	{                                                  \
		"route", #verb, what, &route_##verb##_verb \
	}

const struct command route_commands[] = {
	ROW(plan, "plan who sends what to whom, and how good that is"),
	ROW(show, "a routing dump by trainer, tensor, NIC, transport, .."),
	ROW(verify, "prove a routing dump against the model, byte by byte"),
	ROW(explain, "why a tensor comes to a rank from where it does"),
	ROW(compare, "all policies on one input, a line each"),
	ROW(topology, "where the ranks of a job sit: hosts, NICs, distances"),
	ROW(simulate, "how long an update of a plan or dump would take"),
	ROW(export, "a routing dump as JSON, CSV, JSONL, dot or HTML"),
	ROW(order, "what one trainer sends, in its order"),
	ROW(diff, "what another plan of the same job changes"),
	{0},
};

int route_job_open(struct route_job *job, const char *model, const char *as, const char *train,
		   const char *infer, bool mapped, struct error *error)
{
	return route_job_open_without(job, model, as, train, infer, NULL, mapped, error);
}

int route_job_open_without(struct route_job *job, const char *model, const char *as,
			   const char *train, const char *infer, const struct problem_away *away,
			   bool mapped, struct error *error)
{
	struct train_spec train_spec;
	struct infer_spec infer_spec;
	int rc;

	*job = (struct route_job){0};
	rc = train_spec_parse(&train_spec, train, error);
	if (!rc)
		rc = infer_spec_parse(&infer_spec, infer, error);
	if (!rc)
		rc = model_open_as(&job->model, model, as, error);
	if (!rc)
		rc = problem_from_model_without(&job->problem, &job->storage, job->model,
						&train_spec, &infer_spec, away, mapped, error);
	if (rc)
		route_job_close(job);
	return rc;
}

void route_job_close(struct route_job *job)
{
	table_free(&job->table);
	problem_free(&job->problem);
	problem_storage_free(&job->storage);
	model_close(&job->model);
	topology_free(&job->topology);
}

int route_dump_has_specs(const struct dump *dump, const char *file, struct error *error)
{
	if (strchr(dump->labels.train, '=') || strchr(dump->labels.infer, '='))
		return 0;
	return error_set(error, ERROR_CONFIG,
			 "%s: its job was declared tensor by tensor (train '%s', infer '%s'), so "
			 "there is no layout to prove it against; the controller proved it before "
			 "it wrote it",
			 file, dump->labels.train, dump->labels.infer);
}

int route_dump_wrap(struct error *error, const char *file, const char *model)
{
	return error_wrap(error,
			  model ? "%s: the job it is of"
				: "%s: the job it is of (--model names the model's config.json, "
				  "folder or layout file)",
			  file);
}
