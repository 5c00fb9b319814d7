/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route plan: the table of a job that need not run. A live job of the same model, layouts
 * and memory gives the same table, byte for byte.
 */
#include "cli/command.h"
#include "cli/route_options.h"
#include "routing/report/dump.h"

#include <argp.h>

enum { OPTION_JSON = 0x100, OPTION_SUMMARY, OPTION_OUTPUT };

static const struct argp_option option_rows[] = {
	{"json", OPTION_JSON, NULL, 0, "the routing dump (weft.routing/1) on standard output", 0},
	{"summary", OPTION_SUMMARY, NULL, 0, "leave the routes out", 0},
	{"output", OPTION_OUTPUT, "FILE", 0, "also write the dump to FILE", 0},
	{0},
};

struct options {
	struct route_options route;
	const char *output;
	bool json;
	enum dump_part part;
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->route;
		return 0;
	case OPTION_JSON:
		options->json = true;
		return 0;
	case OPTION_SUMMARY:
		options->part = DUMP_SUMMARY_ONLY;
		return 0;
	case OPTION_OUTPUT:
		options->output = argument;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not an option; say --model %s?", argument, argument);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int print(const struct table *table, const struct report *report, struct error *error)
{
	const struct problem *problem = table->problem;
	struct certificate certificate;
	struct route_view view = {
		.policy = table->policy,
		.order = table->order,
		.model = problem->model,
		.train = problem->train,
		.infer = problem->infer,
		.trainer_count = problem->trainer_count,
		.inference_count = problem->inference_count,
		.trainer_stage = problem->trainer_stage,
		.report = report,
		.certificate = &certificate,
		.digest = table->digest,
	};
	int rc = certificate_of(&certificate, table, error);

	if (!rc)
		route_print(stdout, &view);
	return rc;
}

static int show(const struct table *table, const struct options *options, struct error *error)
{
	struct report report;
	int rc = report_of(&report, table, error);

	if (rc)
		return rc;
	if (options->output)
		rc = dump_save(options->output, table, &report, options->part, error);
	if (!rc && options->json)
		dump_write(stdout, table, &report, options->part);
	else if (!rc)
		rc = print(table, &report, error);
	report_fini(&report);
	return rc;
}

int route_plan_run(int argc, char **argv)
{
	static const struct argp_child children[] = {{&route_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
		option_rows,
		parse_option,
		NULL,
		"Plans who sends which bytes of a model to whom, proves the plan and says how far "
		"it is from the best possible.\v"
		"Example:\n  weft route plan --model Qwen2.5-0.5B --train world=4 \\\n"
		"      --infer engines=2,tp=2 --output plan.json",
		children,
		NULL,
		NULL};
	struct options options = {0};
	struct error error = {0};
	struct route_job job = {0};
	struct table *table = NULL;
	int rc;

	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	rc = route_options_open(&job, &options.route, &error);
	if (!rc)
		rc = table_plan(&table, job.problem, job.policy, &job.plan, &error);
	if (!rc)
		rc = show(table, &options, &error);
	table_free(&table);
	route_job_close(&job);
	return rc ? command_fail(&error) : 0;
}
