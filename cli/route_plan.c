/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route plan: the table of a job that need not run. A live job of the same model, layouts
 * and memory gives the same table, byte for byte.
 */
#include "cli/route_options.h"
#include "cli/shown.h"
#include "base/progress.h"

struct options {
	struct route_options route;
	const char *output;
	bool json, summary;
};

static const struct verb_option rows[] = {
	FORMAT(json, "json", "the routing dump (weft.routing/1) on standard output"),
	FLAG(summary, "summary", "leave the routes out"),
	TEXT(output, "output", "FILE", "also write the dump to FILE"),
	{0},
};

static int print(const struct table *table, const struct report *report, struct error *error)
{
	struct certificate certificate;
	struct route_view view = {table_labels(table), report, &certificate};
	int rc = certificate_of(&certificate, table, error);

	if (!rc)
		route_print(stdout, &view);
	return rc;
}

static int show(const struct table *table, const struct options *options, struct error *error)
{
	enum dump_part part = options->summary ? DUMP_SUMMARY_ONLY : DUMP_WHOLE;
	struct report report;
	int rc = report_of(&report, table, error);

	if (rc)
		return rc;
	if (options->output) {
		progress_step("writing %s", shown(options->output));
		rc = dump_save(options->output, table, &report, part, error);
		progress_steps_end();
	}
	if (!rc && options->json)
		dump_write(stdout, table, &report, part);
	else if (!rc)
		rc = print(table, &report, error);
	report_fini(&report);
	return rc;
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct route_job job;
	int rc = route_options_plan(&job, &options->route, error);

	if (!rc)
		rc = show(job.table, options, error);
	route_job_close(&job);
	return rc;
}

const struct verb route_plan_verb = {
	VERB_OF(struct options, rows),
	ROUTE_VERB,
	.doc = "Plans who sends which bytes of a model to whom, proves the plan and says how far "
	       "it is from the best possible.\v"
	       "Example:\n  weft route plan --model Qwen2.5-0.5B --train world=4 \\\n"
	       "      --infer engines=2,tp=2 --output plan.json",
	.run = run,
};
