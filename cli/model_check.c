/* SPDX-License-Identifier: Apache-2.0
 *
 * model_check.c -- weft model check: an engine rank's own list of parameters beside the layout
 * that would be written to it, before any byte moves.
 */
#include "cli/command.h"
#include "cli/model_verbs.h"

#include "job/parallel.h"
#include "base/text.h"
#include "model/live.h"
#include "model/model.h"
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>

enum { OPTION_MODEL = 0x100, OPTION_INFER, OPTION_RANK, OPTION_LIVE };

struct options {
	const char *model, *infer, *rank, *live;
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case OPTION_MODEL:
		options->model = argument;
		return 0;
	case OPTION_INFER:
		options->infer = argument;
		return 0;
	case OPTION_RANK:
		options->rank = argument;
		return 0;
	case OPTION_LIVE:
		options->live = argument;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is one argument too many", argument);
		return 0;
	case ARGP_KEY_END:
		if (!options->model || !options->infer || !options->live)
			argp_error(state, "--%s is missing",
				   !options->model   ? "model"
				   : !options->infer ? "infer"
						     : "live");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int print_report(const struct model *model, uint64_t rank, const struct options *options,
			const struct layout *layout, const struct live_report *report)
{
	size_t count = report->differences.count;

	for (size_t i = 0; i < count; i++)
		puts(report->differences.items[i]);
	for (size_t i = 0; i < report->left_alone.count; i++)
		printf("%s: no source, left alone\n", report->left_alone.items[i]);
	printf("%s, inference rank %" PRIu64 ", %s: %zu of %zu parameters equal, %zu difference%s, "
	       "%zu left alone\n",
	       model->name, rank, options->live, report->equal, layout->param_count, count,
	       count == 1 ? "" : "s", report->left_alone.count);
	return count ? 1 : 0;
}

/* The exit code, or a negative error. */
static int check(const struct options *options, struct error *error)
{
	struct live live = {0};
	struct live_report report = {0};
	struct infer_spec infer;
	struct model *model;
	struct layout layout;
	uint64_t rank;
	int rc = infer_spec_parse(&infer, options->infer, error);

	if (rc)
		return rc;
	if (!parse_u64(options->rank, &rank) || rank >= infer_ranks(&infer))
		return error_set(error, ERROR_USAGE,
				 "--rank %s is not an inference rank; %s has ranks 0 to %u",
				 options->rank, options->infer, infer_ranks(&infer) - 1);
	rc = model_open(&model, options->model, error);
	if (rc)
		return rc;
	rc = model_layout(model, &infer, (uint32_t)(rank % infer.tp), &layout, error);
	if (!rc)
		rc = live_read_file(&live, options->live, error);
	if (!rc)
		rc = live_compare(&live, &layout, &report, error);
	if (!rc)
		rc = print_report(model, rank, options, &layout, &report);
	live_report_fini(&report);
	live_fini(&live);
	layout_fini(&layout);
	model_close(&model);
	return rc;
}

int model_check(int argc, char **argv)
{
	static const struct argp_option rows[] = {
		{"model", OPTION_MODEL, "M", 0,
		 "a built-in name, or a folder or config.json written with a '/'", 0},
		{"infer", OPTION_INFER, "SPEC", 0, "the inference side, as engines=2,tp=8,ep=8", 0},
		{"rank", OPTION_RANK, "R", 0,
		 "the inference rank, counted over all engines (default 0)", 0},
		{"live", OPTION_LIVE, "FILE", 0,
		 "the parameters that this rank's engine has (docs/models.md)", 0},
		{0},
	};
	static const struct argp argp = {
		rows,
		parse_option,
		"--model M --infer SPEC --live FILE",
		"Compares the parameters of a running engine rank (name, shape, dtype, bytes) with "
		"those that weft would write. FILE is JSON or JSON lines; deploy/engine_params.py "
		"writes it from a torch model.\v"
		"One line a difference, with the option of --infer that would agree where one is "
		"known. Exit codes: 0 equal, 1 differences or a malformed file, 2 usage, 78 bad "
		"configuration.",
		NULL,
		NULL,
		NULL};
	struct options options = {.rank = "0"};
	struct error error = {0};
	int rc;

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	rc = check(&options, &error);
	return rc < 0 ? command_fail(&error) : rc;
}
