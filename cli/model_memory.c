/* SPDX-License-Identifier: Apache-2.0
 *
 * model_memory.c -- weft model plan-memory: what each worker of a job keeps beside the model, in
 * the published design and here, from the job's real plan.
 */
#include "cli/model_verbs.h"

#include "cli/grid.h"
#include "cli/route.h"
#include "cli/shown.h"
#include "routing/lab/baseline.h"
#include "routing/report/memory_plan.h"
#include "routing/lab/scenario.h"
#include "wire/message.h"
#include "base/progress.h"
#include <stdio.h>

struct options {
	const char *model, *as, *train, *infer, *row, *ring, *bucket;
	bool json, all;
	uint64_t ring_bytes, bucket_bytes;
};

/* ---- the figures of one job ---- */

struct figures {
	const char *name, *model, *train, *infer;
	const struct memory_plan *plan;
	struct memory_trainer most; /* of each figure, the largest of all trainers */
	struct memory_inference rank;
	bool as_it_lies;
	uint64_t bucket_bytes;
};

static uint64_t rows_bytes(uint32_t pieces)
{
	return pieces * (uint64_t)sizeof(struct plan_row);
}

static void raise_to(uint64_t *most, uint64_t value)
{
	*most = *most > value ? *most : value;
}

static void find_most(struct figures *figures)
{
	const struct memory_plan *plan = figures->plan;

	for (uint32_t t = 0; t < plan->trainer_count; t++) {
		const struct memory_trainer *trainer = &plan->trainers[t];
		struct memory_trainer *most = &figures->most;

		raise_to(&most->sent_bytes, trainer->sent_bytes);
		raise_to(&most->ring_bytes, trainer->ring_bytes);
		raise_to(&most->packed_bytes, trainer->packed_bytes);
		raise_to(&most->full_bytes, trainer->full_bytes);
		raise_to(&most->source_bytes, trainer->source_bytes);
		raise_to(&most->merge_bytes, trainer->merge_bytes);
		if (trainer->pieces > most->pieces)
			most->pieces = trainer->pieces;
	}
	for (uint32_t i = 0; i < plan->inference_count; i++) {
		raise_to(&figures->rank.param_bytes, plan->inference[i].param_bytes);
		raise_to(&figures->rank.landing_bytes, plan->inference[i].landing_bytes);
		if (plan->inference[i].pieces > figures->rank.pieces)
			figures->rank.pieces = plan->inference[i].pieces;
	}
}

/* ---- words ---- */

static const char *size(uint64_t bytes)
{
	static char texts[8][TEXT_SHORT_BYTES]; /* as many as one line prints */
	static unsigned next;

	return bytes ? bytes_text(bytes, texts[next++ % 8]) : "-";
}

static const struct grid_column job_columns[] = {
	COLUMN("", -40),
	COLUMN("published", 10),
	COLUMN("ring", 10),
	COLUMN("full", 10),
	COLUMN(NULL, 0, .before = "  ", .folds = true),
};

static void add_line(struct grid *grid, const char *what, uint64_t published, uint64_t ring,
		     uint64_t full, const char *note)
{
	grid_row(grid, (const char *[]){grid_cell("  %s", what), size(published), size(ring),
					size(full), *note ? note : NULL});
}

static void print_job(const struct figures *f)
{
	const struct memory_published *published = &f->plan->published;
	const struct memory_trainer *most = &f->most;
	uint64_t bucket = f->as_it_lies ? 0 : f->bucket_bytes;
	uint64_t trainer_sums = most->pieces * (uint64_t)MEMORY_SUM_BYTES;
	uint64_t rank_sums = f->rank.pieces * (uint64_t)MEMORY_SUM_BYTES;
	struct grid grid;
	char note[64];

	printf("%s: %s, --train %s --infer %s\n\n", shown(f->name), shown(f->model), f->train,
	       f->infer);
	grid_begin(&grid, job_columns, ARRAY_SIZE(job_columns));
	grid_line(&grid, grid_cell("each of %u trainers, at most", f->plan->trainer_count));
	snprintf(note, sizeof(note), "published: %u engine rank%s, %u session%s", published->groups,
		 published->groups == 1 ? "" : "s", published->sessions,
		 published->sessions == 1 ? "" : "s");
	add_line(&grid, "CPU replica, pinned and registered", published->replica_bytes,
		 most->ring_bytes, most->full_bytes, note);
	add_line(&grid, "staged until a parameter is complete", published->staged_bytes, 0, 0,
		 published->staged);
	add_line(&grid, "bucket of gathered tensors", f->bucket_bytes, bucket, bucket,
		 f->as_it_lies ? "shards are packed as they lie" : "the framework's");
	add_line(&grid, "rows of the plan", 0, rows_bytes(most->pieces), rows_bytes(most->pieces),
		 "");
	add_line(&grid, "checksums, if asked", 0, trainer_sums, trainer_sums, "");
	if (most->merge_bytes)
		add_line(&grid, "small pieces that are merged", 0, most->merge_bytes,
			 most->merge_bytes, "at most 1 MiB a rank, 128 KiB at least");
	add_line(&grid, "replica, if tensors stay registered", 0, most->packed_bytes,
		 most->full_bytes, "only what is no run of source bytes");
	add_line(&grid, "  and the tensors, registered", 0, most->source_bytes, most->source_bytes,
		 "");
	grid_line(&grid,
		  grid_cell("each of %u inference ranks, at most", f->plan->inference_count));
	add_line(&grid, "parameters, registered", f->rank.param_bytes, f->rank.param_bytes,
		 f->rank.param_bytes, "twice with --shadow");
	if (f->rank.landing_bytes)
		add_line(&grid, "windows that pieces land in", 0, f->rank.landing_bytes,
			 f->rank.landing_bytes, "--landing-bytes, and 80 KiB a trainer at least");
	add_line(&grid, "rows of the plan", 0, rows_bytes(f->rank.pieces),
		 rows_bytes(f->rank.pieces), "");
	add_line(&grid, "checksums, if asked", 0, rank_sums, rank_sums, "");
	grid_end(&grid);
}

static const char of_published[] = "a trainer, published ", of_weft[] = "a trainer, Weft ";
static const struct grid_column all_columns[] = {
	COLUMN("", -14, .group = ""),
	COLUMN("replica", 9, .before = " | ", .least = 7, .group = of_published),
	COLUMN("staged", 9, .least = 7, .group = of_published),
	COLUMN("bucket", 9, .least = 7, .group = of_published),
	COLUMN("ring", 9, .before = " | ", .least = 7, .group = of_weft),
	COLUMN("full", 9, .least = 7, .group = of_weft),
	COLUMN("in place", 9, .least = 8, .group = of_weft),
	COLUMN("registered", 10, .before = " | ", .group = "a rank"),
};

static void print_row(struct grid *grid, const struct figures *f)
{
	const struct memory_published *published = &f->plan->published;

	grid_row(grid, (const char *[]){shown(f->name), size(published->replica_bytes),
					size(published->staged_bytes), size(f->bucket_bytes),
					size(f->most.ring_bytes), size(f->most.full_bytes),
					size(f->most.packed_bytes), size(f->rank.param_bytes)});
}

/* ---- JSON ---- */

static void put_trainer(struct json *json, const struct memory_trainer *trainer)
{
	json_put_object(json);
	json_put_key_u64(json, "sent_bytes", trainer->sent_bytes);
	json_put_key_u64(json, "ring_bytes", trainer->ring_bytes);
	json_put_key_u64(json, "full_bytes", trainer->full_bytes);
	json_put_key_u64(json, "registered_ring_bytes", trainer->packed_bytes);
	json_put_key_u64(json, "source_bytes", trainer->source_bytes);
	json_put_key_u64(json, "merge_bytes", trainer->merge_bytes);
	json_put_key_u64(json, "pieces", trainer->pieces);
	json_put_key_u64(json, "rows_bytes", rows_bytes(trainer->pieces));
	json_put_key_u64(json, "sums_bytes", trainer->pieces * (uint64_t)MEMORY_SUM_BYTES);
	json_put_object_end(json);
}

static void put_job(const struct figures *f)
{
	const struct memory_published *published = &f->plan->published;
	struct json line, *json = &line;

	json_put_line(json, stdout);
	json_put_key_string(json, "name", f->name);
	json_put_key_string(json, "model", f->model);
	json_put_key_string(json, "train", f->train);
	json_put_key_string(json, "infer", f->infer);
	json_put_key_object(json, "published");
	json_put_key_u64(json, "replica_bytes", published->replica_bytes);
	json_put_key_u64(json, "staged_bytes", published->staged_bytes);
	json_put_key_string(json, "staged", published->staged);
	json_put_key_u64(json, "bucket_bytes", f->bucket_bytes);
	json_put_key_u64(json, "groups", published->groups);
	json_put_key_u64(json, "sessions", published->sessions);
	json_put_object_end(json);
	json_put_key_array(json, "trainers");
	for (uint32_t t = 0; t < f->plan->trainer_count; t++)
		put_trainer(json, &f->plan->trainers[t]);
	json_put_array_end(json);
	json_put_key_array(json, "inference");
	for (uint32_t i = 0; i < f->plan->inference_count; i++) {
		const struct memory_inference *rank = &f->plan->inference[i];

		json_put_object(json);
		json_put_key_u64(json, "registered_bytes", rank->param_bytes);
		json_put_key_u64(json, "landing_bytes", rank->landing_bytes);
		json_put_key_u64(json, "pieces", rank->pieces);
		json_put_key_u64(json, "rows_bytes", rows_bytes(rank->pieces));
		json_put_key_u64(json, "sums_bytes", rank->pieces * (uint64_t)MEMORY_SUM_BYTES);
		json_put_object_end(json);
	}
	json_put_array_end(json);
	json_put_line_end(json);
}

/* ---- jobs ---- */

/* grid: the table of all jobs, or NULL. */
static int plan_job(const struct options *options, const struct scenario *row, struct grid *grid,
		    struct error *error)
{
	struct figures figures = {.name = row->name,
				  .model = row->model,
				  .train = row->train,
				  .infer = row->infer,
				  .bucket_bytes = options->bucket_bytes};
	struct table *table = NULL;
	struct memory_plan plan;
	struct train_spec train;
	struct infer_spec infer;
	struct route_job job;
	int rc;

	progress_step("planning %s", shown(row->name));
	rc = route_job_open(&job, row->model, options->as, row->train, row->infer, false, error);

	if (!rc)
		rc = train_spec_parse(&train, row->train, error);
	if (!rc)
		rc = infer_spec_parse(&infer, row->infer, error);
	if (!rc)
		rc = table_plan(&table, job.problem, policy_find(POLICY_DEFAULT), NULL, error);
	if (!rc)
		rc = memory_plan(&plan, job.model, &train, &infer, table, options->ring_bytes,
				 error);
	progress_steps_end();
	if (!rc) {
		figures.plan = &plan;
		figures.as_it_lies = train.source != TRAIN_GATHERED;
		find_most(&figures);
		if (grid)
			print_row(grid, &figures);
		else
			(options->json ? put_job : print_job)(&figures);
		memory_plan_fini(&plan);
	}
	table_free(&table);
	route_job_close(&job);
	return rc;
}

static int plan_published(const struct options *options, struct error *error)
{
	bool lines = options->all && !options->json;
	struct scenarios scenarios;
	struct grid grid;
	int rc = scenarios_published(&scenarios, error);

	if (rc)
		return rc;
	rc = scenarios_select(&scenarios, options->row, error);
	if (lines) {
		printf("at most, of all ranks; ring limit %s, bucket %s\n\n",
		       BYTES_TEXT(options->ring_bytes), BYTES_TEXT(options->bucket_bytes));
		grid_begin_slow(&grid, all_columns, ARRAY_SIZE(all_columns));
	}
	for (size_t i = 0; !rc && i < scenarios.count; i++) {
		rc = plan_job(options, &scenarios.items[i], lines ? &grid : NULL, error);
		if (rc)
			error_wrap(error, "%s", scenarios.items[i].name);
	}
	if (lines)
		grid_end(&grid);
	scenarios_fini(&scenarios);
	return rc;
}

static int parse_size(const char *flag, const char *text, uint64_t absent, uint64_t *bytes,
		      struct error *error)
{
	*bytes = absent;
	if (!text || (parse_bytes(text, bytes) && *bytes))
		return 0;
	return error_set(error, ERROR_USAGE, "%s is '%s'; give a size like 512M or 1G", flag, text);
}

static int check_options(struct options *options, struct error *error)
{
	bool own = options->model || options->as || options->train || options->infer;
	int rc = parse_size("--ring-bytes", options->ring, MEMORY_RING_DEFAULT,
			    &options->ring_bytes, error);

	if (!rc)
		rc = parse_size("--bucket-bytes", options->bucket, BASELINE_BUCKET_BYTES,
				&options->bucket_bytes, error);
	if (rc)
		return rc;
	if (own + (options->row != NULL) + options->all != 1)
		return error_set(
			error, ERROR_USAGE,
			"say which job: --model, --train and --infer; or --row NAME of the "
			"published runs; or --all of them");
	if (own && !(options->model && options->train && options->infer))
		return error_set(error, ERROR_USAGE,
				 "%s is missing; a job has --model, --train and --infer",
				 !options->model   ? "--model"
				 : !options->train ? "--train"
						   : "--infer");
	return 0;
}

static int run(void *taken, struct error *error)
{
	struct options *options = taken;
	int rc = check_options(options, error);

	if (rc)
		return rc;
	if (options->row || options->all)
		return plan_published(options, error);
	/* a row as the published ones; its strings are argv's */
	return plan_job(options,
			&(struct scenario){.name = options->model,
					   .model = options->model,
					   .train = options->train,
					   .infer = options->infer},
			NULL, error);
}

static const struct verb_option rows[] = {
	TEXT(model, "model", "NAME", "a built-in model, or a folder, config.json or layout file"),
	TEXT(train, "train", "SPEC",
	     "trainers: world=16,pp=2 or world=16,source=megatron,tp=4 (all sources: docs/sources.md)"),
	TEXT(infer, "infer", "SPEC", "inference: engines=2,tp=4 (all keys: docs/models.md)"),
	ROW_AS,
	TEXT(row, "row", "NAME", "one of the published runs, in full"),
	FLAG(all, "all", "all published runs, a line each"),
	TEXT(ring, "ring-bytes", "SIZE", "the ring's limit (default 1G)"),
	TEXT(bucket, "bucket-bytes", "SIZE",
	     "tensors that the framework gathers at a time (default 512M)"),
	FORMAT(json, "json", "one JSON object a job, with every rank"),
	{0},
};

const struct verb model_memory_verb = {
	VERB_OF(struct options, rows),
	.arguments = "",
	.doc = "What each trainer and each inference rank keeps beside the model, in the "
	       "published design (a CPU replica of one whole engine rank) and in Weft's (a ring, "
	       "or a full replica of what it sends).\v"
	       "The figures of Weft are those of the job's real plan (policy greedy), the largest "
	       "of all ranks. Ring: its limit, or what one update packs where that is less. "
	       "docs/memory.md says how each figure comes about.",
	.run = run,
};
