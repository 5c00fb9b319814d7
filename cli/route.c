/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/route.h"

#include "cli/command.h"
#include "common/parallel.h"
#include "model/model.h"
#include "routing/dump_read.h"
#include <stddef.h>

const struct command route_commands[] = {
	{"route", "plan", "plan who sends what to whom, and how good that is", route_plan_run},
	{"route", "show", "a routing dump by trainer, inference rank or tensor", route_show_run},
	{"route", "verify", "prove a routing dump against the model, byte by byte",
	 route_verify_run},
	{"route", "topology", "where the ranks of a job sit: hosts, NICs, distances",
	 route_topology_run},
	{"route", "export", "a routing dump as JSON, CSV, JSON lines or a graph", route_export_run},
	{NULL, NULL, NULL, NULL},
};

int route_job_open(struct route_job *job, const char *model, const char *train, const char *infer,
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
		rc = model_open(&job->model, model, error);
	if (!rc)
		rc = problem_from_model(&job->problem, &job->storage, job->model, &train_spec,
					&infer_spec, mapped, error);
	if (rc)
		route_job_close(job);
	return rc;
}

void route_job_close(struct route_job *job)
{
	problem_free(&job->problem);
	problem_storage_free(&job->storage);
	model_close(&job->model);
	topology_free(&job->topology);
}
