/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c -- `weft trace merge`: trace files of a job's processes as one, on one clock (docs/traces.md), and beside it what a simulation
 * said that it would look like.
 */
#include "base/json_write.h"
#include "base/log.h"
#include "cli/grid.h"
#include "cli/shown.h"
#include "cli/trace_file.h"
#include "cli/trace_otlp.h"
#include "cli/trace_predicted.h"
#include "cli/verb.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define FILES_MAX 8192

struct options {
	const char *files[FILES_MAX];
	const char *output, *format, *predicted;
	bool json;
};

/* ---- the file, for Perfetto ---- */

static void put_us(FILE *stream, const char *key, int64_t ns)
{
	int64_t whole = ns < 0 ? -ns : ns;

	fprintf(stream, ",\"%s\":%s%" PRId64 ".%03" PRId64, key, ns < 0 ? "-" : "", whole / 1000,
		whole % 1000);
}

static void put_object(FILE *stream, const json_t *object)
{
	if (object)
		json_dumpf(object, stream,
			   JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
	else
		fputs("{}", stream);
}

/* As it was read, but for its process and its time; it was good then. */
static void put_row(FILE *stream, const char *line, uint32_t bytes, uint32_t pid,
		    const int64_t *at_ns)
{
	json_t *row = json_loadb(line, bytes, 0, NULL);
	const char *key;
	json_t *value;

	fprintf(stream, ",\n{\"pid\":%u", pid);
	json_object_foreach(row, key, value)
	{
		if (!strcmp(key, "pid") || (at_ns && !strcmp(key, "ts")))
			continue;
		fprintf(stream, ",\"%s\":", key);
		put_object(stream, value);
	}
	if (at_ns)
		put_us(stream, "ts", *at_ns);
	fputs("}", stream);
	json_decref(row);
}

static void put_process(FILE *stream, const struct trace_file *file)
{
	struct json json;

	fprintf(stream, ",\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"tid\":0,\"args\":",
		file->merged_pid);
	json_to_file(&json, stream);
	json_put_object(&json);
	json_put_key_string(&json, "name", file->process);
	json_put_object_end(&json);
	fprintf(stream,
		"},\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%u,\"tid\":0,"
		"\"args\":{\"sort_index\":%u}}",
		file->merged_pid, file->place + 1);
	fprintf(stream, ",\n{\"ph\":\"M\",\"name\":\"weft_clock\",\"pid\":%u,\"tid\":0,\"args\":{",
		file->merged_pid);
	fprintf(stream, "\"from\":\"%s\",\"offset_ns\":%" PRId64, trace_clock_text(file->clock),
		file->offset_ns);
	if (file->error_ns >= 0)
		fprintf(stream, ",\"error_ns\":%" PRId64, file->error_ns);
	fprintf(stream, ",\"dropped\":%" PRIu64 ",\"whole\":%s}}", file->dropped,
		file->whole ? "true" : "false");
	for (size_t i = 0; i < file->lanes.count; i++)
		put_row(stream, file->lanes.items[i].line, file->lanes.items[i].bytes,
			file->merged_pid, NULL);
}

/* From the first event on; that is moment 0. */
static void put_all(FILE *stream, const struct trace_set *set)
{
	int64_t begin = set->rows.count ? set->rows.items[0].at_ns : 0;
	struct json json;

	fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":", stream);
	json_to_file(&json, stream);
	json_put_object(&json);
	json_put_key_string(&json, "weft", WEFT_VERSION);
	json_put_key_string(&json, "job", set->order[0]->job);
	json_put_object_end(&json);
	fprintf(stream,
		",\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"weft_merged\",\"pid\":%u,\"tid\":0,\"args\":{}}",
		set->order[0]->merged_pid);
	for (size_t i = 0; i < set->count; i++)
		put_process(stream, set->order[i]);
	for (size_t i = 0; i < set->rows.count; i++) {
		const struct trace_row *row = &set->rows.items[i];
		int64_t at = row->at_ns - begin;

		put_row(stream, row->line, row->bytes, set->files[row->file].merged_pid, &at);
	}
}

/* ---- what is said ---- */

static void print(const struct trace_set *set)
{
	static const struct grid_column columns[] = {COLUMN("process", -34),  COLUMN("clock", -17),
						     COLUMN("offset us", 14), COLUMN("+- us", 9),
						     COLUMN("dropped", 8),    COLUMN("end", -6)};
	struct grid grid;

	grid_begin(&grid, columns, ARRAY_SIZE(columns));
	for (size_t i = 0; i < set->count; i++) {
		const struct trace_file *file = set->order[i];
		char offset[32], most[32] = "?", dropped[32];

		snprintf(offset, sizeof(offset), "%.1f", (double)file->offset_ns / 1e3);
		if (file->error_ns >= 0)
			snprintf(most, sizeof(most), "%.1f", (double)file->error_ns / 1e3);
		snprintf(dropped, sizeof(dropped), "%" PRIu64, file->dropped);
		grid_row(&grid,
			 (const char *[]){shown(file->process), trace_clock_text(file->clock),
					  offset, most, dropped, file->whole ? "" : "cut"});
	}
	grid_end(&grid);
}

static void print_json(const struct trace_set *set)
{
	for (size_t i = 0; i < set->count; i++) {
		const struct trace_file *file = set->order[i];
		struct json json;

		json_put_line(&json, stdout);
		json_put_key_string(&json, "process", file->process);
		json_put_key_string(&json, "clock", trace_clock_text(file->clock));
		json_put_key(&json, "offset_ns");
		json_put_i64(&json, file->offset_ns);
		if (file->error_ns >= 0)
			json_put_key_u64(&json, "error_ns", (uint64_t)file->error_ns);
		json_put_key_u64(&json, "dropped", file->dropped);
		json_put_key_bool(&json, "whole", file->whole);
		json_put_line_end(&json);
	}
}

static void warn(const struct trace_set *set)
{
	for (size_t i = 0; i < set->count; i++)
		if (set->order[i]->clock == CLOCK_OF_THE_DAY) {
			log_say("weft: %s: its clock is compared by the time of day alone, which may be "
				"milliseconds off; give the controller's file too, of the same run",
				set->order[i]->path);
			return;
		}
}

/* ---- the command ---- */

static int put_perfetto(FILE *stream, const struct trace_set *set, const struct options *options,
			struct error *error)
{
	int rc = 0;

	put_all(stream, set);
	if (options->predicted)
		rc = trace_put_predicted(stream, options->predicted, set, error);
	fputs("\n]}\n", stream);
	return rc;
}

static int put_otlp(FILE *stream, const struct trace_set *set, const struct options *options,
		    struct error *error)
{
	(void)options;
	return trace_put_otlp(stream, set, error);
}

static const struct format {
	const char *name;
	int (*put)(FILE *stream, const struct trace_set *set, const struct options *options,
		   struct error *error);
	bool predicts; /* takes --predicted */
} formats[] = {{"perfetto", put_perfetto, true}, {"otlp", put_otlp, false}};

/* NULL: there is none of that name. The first one is the default. */
static const struct format *format_of(const struct options *options)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (!options->format || !strcmp(options->format, formats[i].name))
			return &formats[i];
	return NULL;
}

static int merge_into(const struct options *options, const struct trace_set *set,
		      struct error *error)
{
	struct file_writer writer;
	int rc = file_writer_open(&writer, options->output, error);

	if (rc)
		return rc;
	rc = format_of(options)->put(writer.stream, set, options, error);
	if (!rc)
		return file_writer_commit(&writer, error);
	file_writer_abort(&writer);
	return rc;
}

static int merge(void *given, struct error *error)
{
	const struct options *options = given;
	struct trace_set set;
	size_t count = 0;
	int rc;

	while (count < FILES_MAX && options->files[count])
		count++;
	rc = trace_set_read(&set, options->files, count, error);
	if (!rc) {
		trace_set_clocks(&set);
		rc = merge_into(options, &set, error);
	}
	if (!rc) {
		(options->json ? print_json : print)(&set);
		warn(&set);
	}
	trace_set_fini(&set);
	return rc;
}

static void check(void *given, struct argp_state *state)
{
	const struct options *options = given;
	const struct format *format = format_of(options);

	if (!options->output)
		argp_error(state, "--output is needed: the file to write");
	if (!format)
		argp_error(state, "--format '%s': it is perfetto or otlp", options->format);
	else if (options->predicted && !format->predicts)
		argp_error(state,
			   "--predicted is drawn beside what was: it goes with --format perfetto, "
			   "not with %s",
			   format->name);
}

static const struct verb_option rows[] = {
	TEXT(output, "output", "FILE", "the merged trace (needed), whole or not at all"),
	TEXT(format, "format", "NAME",
	     "perfetto (default) or otlp: for ui.perfetto.dev, or as OTLP's JSON for the file receiver of OpenTelemetry's collector, a trace for each version"),
	TEXT(predicted, "predicted", "FILE",
	     "what `weft route simulate --trace FILE` wrote of the same plan: shown beside what was, from its first write on"),
	FORMAT(json, "json", "one JSON object a line"),
	{0}};
static const struct verb merge_verb = {
	VERB_OF(struct options, rows),
	VERB_ARGUMENTS(struct options, files, 1, FILES_MAX - 1),
	.arguments = "FILE..",
	.doc = "Makes one trace of those that --trace wrote of a job's processes: a process a rank, all on the controller's clock.",
	.too_few = "give the files that --trace wrote",
	.too_many = "too many files at '%s'",
	.check = check,
	.run = merge,
};

const struct command trace_commands[] = {
	{"trace", "merge", "Traces of a job's processes as one, on one clock", &merge_verb}, {0}};
