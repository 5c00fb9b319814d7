/* SPDX-License-Identifier: Apache-2.0
 *
 * model_check.c -- weft model check: an engine rank's own list of parameters beside the layout
 * that would be written to it, before any byte moves.
 */
#include "cli/model_verbs.h"
#include "cli/shown.h"

#include "job/parallel.h"
#include "model/live.h"
#include "model/model.h"
#include <stdio.h>

struct options {
	const char *model, *as, *infer, *rank, *live;
};

static void check_missing(void *taken, struct argp_state *state)
{
	const struct options *options = taken;

	if (!options->model || !options->infer || !options->live)
		argp_error(state, "--%s is missing",
			   !options->model   ? "model"
			   : !options->infer ? "infer"
					     : "live");
}

static int print_report(const struct model *model, uint32_t rank, const struct options *options,
			const struct layout *layout, const struct live_report *report)
{
	size_t count = report->differences.count;

	for (size_t i = 0; i < count; i++)
		printf("%s\n", shown(report->differences.items[i]));
	for (size_t i = 0; i < report->left_alone.count; i++)
		printf("%s: no source, left alone\n", shown(report->left_alone.items[i]));
	printf("%s, inference rank %u, %s: %zu of %zu parameters equal, %zu difference%s, "
	       "%zu left alone\n",
	       shown(model->name), rank, shown(options->live), report->equal, layout->param_count,
	       count, count == 1 ? "" : "s", report->left_alone.count);
	return count ? 1 : 0;
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct live live = {0};
	struct live_report report = {0};
	struct infer_spec infer;
	struct model *model;
	struct layout layout;
	uint32_t rank;
	int rc = model_rank(options->infer, options->rank, &infer, &rank, error);

	if (rc)
		return rc;
	rc = model_open_as(&model, options->model, options->as, error);
	if (rc)
		return rc;
	rc = model_layout(model, &infer, rank % infer.tp, &layout, error);
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

static const struct verb_option rows[] = {
	TEXT(model, "model", "M", "a built-in name, or a folder, config.json or layout file"),
	TEXT(infer, "infer", "SPEC", "the inference side, as engines=2,tp=8,ep=8"),
	TEXT(rank, "rank", "R", "the inference rank, counted over all engines (default 0)"),
	ROW_AS,
	TEXT(live, "live", "FILE", "the parameters that this rank's engine has (docs/models.md)"),
	{0},
};

const struct verb model_check_verb = {
	VERB_OF(struct options, rows),
	.defaults = &(const struct options){.rank = "0"},
	.check = check_missing,
	.arguments = "--model M --infer SPEC --live FILE",
	.doc = "Compares the parameters of a running engine rank (name, shape, dtype, bytes) with "
	       "those that weft would write. FILE is JSON or JSON lines; deploy/engine_params.py "
	       "writes it from a torch model.\v"
	       "One line a difference, with the option of --infer that would agree where one is "
	       "known. Exit codes: 0 equal, 1 differences or a malformed file, 2 usage, 78 bad "
	       "configuration.",
	.run = run,
};
