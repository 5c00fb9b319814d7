/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route plan: the table of a job that need not run. A live job of the same model, layouts
 * and memory gives the same table, byte for byte.
 */
#include "cli/command.h"
#include "cli/route.h"
#include "common/file.h"
#include "common/text.h"
#include "routing/dump.h"

#include <argp.h>
#include <errno.h>
#include <string.h>

enum {
	OPTION_MODEL = 0x100,
	OPTION_TRAIN,
	OPTION_INFER,
	OPTION_POLICY,
	OPTION_JSON,
	OPTION_SUMMARY,
	OPTION_OUTPUT,
	OPTION_MEMORY
};

static const struct argp_option option_rows[] = {
	{"model", OPTION_MODEL, "NAME", 0,
	 "a built-in model, or a folder or config.json written with a '/'", 0},
	{"train", OPTION_TRAIN, "SPEC", 0,
	 "trainers: world=16,pp=2 or world=16,fsdp=8,source=sharded", 0},
	{"infer", OPTION_INFER, "SPEC", 0, "inference: engines=2,tp=4", 0},
	{"policy", OPTION_POLICY, "NAME", 0, "greedy (default) or round-robin", 0},
	{"memory", OPTION_MEMORY, "KIND", 0,
	 "engine memory: mapped (default; trainers on the host map it) or process (they do not, so "
	 "cut columns are packed first)",
	 0},
	{"json", OPTION_JSON, NULL, 0, "the routing dump (weft.routing/1) on standard output", 0},
	{"summary", OPTION_SUMMARY, NULL, 0, "leave the routes out", 0},
	{"output", OPTION_OUTPUT, "FILE", 0, "also write the dump to FILE", 0},
	{0},
};

struct options {
	const char *model, *train, *infer, *policy, *memory, *output;
	bool json;
	enum dump_part part;
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case OPTION_MODEL:
		options->model = argument;
		return 0;
	case OPTION_TRAIN:
		options->train = argument;
		return 0;
	case OPTION_INFER:
		options->infer = argument;
		return 0;
	case OPTION_POLICY:
		options->policy = argument;
		return 0;
	case OPTION_MEMORY:
		options->memory = argument;
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

static int check_options(const struct options *options, const struct policy **policy,
			 struct error *error)
{
	const char *missing = !options->model	? "--model NAME (see `weft model list`)"
			      : !options->train ? "--train SPEC (such as world=4)"
			      : !options->infer ? "--infer SPEC (such as engines=2,tp=2)"
						: NULL;

	if (missing)
		return error_set(error, ERROR_USAGE, "%s is missing", missing);
	if (strcmp(options->memory, "mapped") && strcmp(options->memory, "process"))
		return error_set(error, ERROR_USAGE,
				 "--memory %s is not known; it is mapped or "
				 "process",
				 options->memory);
	return policy_named(policy, "--policy", options->policy, error);
}

static int write_file(const char *path, const struct table *table, enum dump_part part,
		      struct error *error)
{
	struct file_writer writer;
	int rc;

	if (part == DUMP_WHOLE)
		return dump_save(path, table, error);
	rc = file_writer_open(&writer, path, error);
	if (rc)
		return rc;
	rc = dump_write(writer.stream, table, part, error);
	if (rc) {
		file_writer_abort(&writer);
		return rc;
	}
	return file_writer_commit(&writer, error);
}

static int print(const struct table *table, const struct options *options, struct error *error)
{
	const struct problem *problem = table->problem;
	struct report report;
	int rc;

	if (options->json) {
		rc = dump_write(stdout, table, options->part, error);
	} else {
		rc = report_of(&report, table, error);
		if (rc)
			return rc;
		struct route_view view = {
			.policy = table->policy,
			.model = problem->model,
			.train = problem->train,
			.infer = problem->infer,
			.trainer_count = problem->trainer_count,
			.inference_count = problem->inference_count,
			.trainer_stage = problem->trainer_stage,
			.report = &report,
			.digest = table->digest,
		};

		route_print(stdout, &view);
		report_fini(&report);
	}
	if (!rc && (fflush(stdout) || ferror(stdout)))
		rc = error_set_errno(error, ERROR_IO, errno, "cannot write to standard output");
	return rc;
}

int route_plan_run(int argc, char **argv)
{
	static const struct argp argp = {
		option_rows,
		parse_option,
		NULL,
		"Plans who sends which bytes of a model to whom, proves the plan and says how far "
		"it is from the best possible.\v"
		"Example: weft route plan --model Qwen2.5-0.5B --train world=4 --infer "
		"engines=2,tp=2",
		NULL,
		NULL,
		NULL};
	struct options options = {.policy = "greedy", .memory = "mapped"};
	const struct policy *policy;
	struct error error = {0};
	struct route_job job = {0};
	struct table *table = NULL;
	int rc;

	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	rc = check_options(&options, &policy, &error);
	if (!rc)
		rc = route_job_open(&job, options.model, options.train, options.infer,
				    strcmp(options.memory, "mapped") == 0, &error);
	if (!rc)
		rc = table_plan(&table, job.problem, policy, NULL, &error);
	if (!rc && options.output)
		rc = write_file(options.output, table, options.part, &error);
	if (!rc)
		rc = print(table, &options, &error);
	table_free(&table);
	route_job_close(&job);
	return rc ? command_fail(&error) : 0;
}
