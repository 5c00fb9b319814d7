/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route verify: builds the job that the dump's labels name, and proves the dump's routes
 * against it. Nothing of what made the dump is trusted.
 */
#include "cli/route.h"
#include "cli/shown.h"
#include "base/json_write.h"
#include "base/progress.h"
#include "cli/model_verbs.h"
#include "routing/report/dump_read.h"

struct options {
	const char *file, *model, *as;
	bool json;
};

static const struct verb_option rows[] = {
	TEXT(model, "model", "PATH",
	     "the model, where the dump's name for it is not a built-in one"),
	ROW_AS,
	FORMAT(json, "json", "one JSON object"),
	{0},
};

static void print_verdict(const struct dump *dump, const struct options *options)
{
	const struct summary *own = &dump->report.own;
	char digest[DIGEST_TEXT_BYTES];

	struct json json;

	digest_text(dump->labels.digest, digest);
	if (!options->json) {
		printf("%s: proved: %s routes in %s pieces write all %s of %u inference ranks "
		       "exactly once\ndigest %s and the summary are right\n",
		       shown(options->file), GROUPED_TEXT(own->routes), GROUPED_TEXT(own->pieces),
		       BYTES_TEXT(own->bytes_total), dump->labels.inference_count, digest);
		return;
	}
	json_put_line(&json, stdout);
	json_put_key_string(&json, "file", options->file);
	json_put_key_bool(&json, "proved", true);
	json_put_key_u64(&json, "routes", own->routes);
	json_put_key_u64(&json, "pieces", own->pieces);
	json_put_key_u64(&json, "bytes_total", own->bytes_total);
	json_put_key_string(&json, "digest", digest);
	json_put_line_end(&json);
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct route_job job = {0};
	struct dump *dump = NULL;
	int rc = dump_open(&dump, options->file, error);

	if (!rc)
		rc = route_dump_has_specs(dump, options->file, error);
	if (!rc) {
		rc = route_job_open_without(&job,
					    options->model ? options->model : dump->labels.model,
					    options->as, dump->labels.train, dump->labels.infer,
					    &(struct problem_away){dump->labels.trainer_away,
								   dump->labels.inference_away},
					    true, error);
		if (rc)
			route_dump_wrap(error, options->file, options->model);
		progress_step("proving %s", shown(options->file));
		if (!rc)
			rc = dump_verify(dump, job.problem, error);
		progress_steps_end();
		if (rc && job.problem)
			error_wrap(error, "%s", options->file);
	}
	if (!rc)
		print_verdict(dump, options);
	route_job_close(&job);
	dump_free(&dump);
	return rc;
}

const struct verb route_verify_verb = {
	VERB_OF(struct options, rows),
	VERB_ARGUMENTS(struct options, file, 1, 1),
	.arguments = "FILE",
	.too_many = "'%s' is one file too many",
	.too_few = "name the routing dump to verify",
	.doc = "Proves a routing dump: every byte of every engine parameter that has a source is "
	       "written exactly once, from the right place, by a trainer that holds it; then its "
	       "digest and its summary. The first thing that is wrong is named; the exit code is "
	       "1 then.\v"
	       "Example:\n  weft route verify plan.json",
	.run = run,
};
