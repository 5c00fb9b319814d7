/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route export: a routing dump, or the plan of a job, in another form.
 */
#include "cli/route_options.h"
#include "base/file.h"
#include "routing/report/export.h"

#include <errno.h>
#include <string.h>

struct options {
	struct route_options route;
	const char *file, *format, *output, *beside;
};

static const struct verb_option rows[] = {
	TEXT(format, "format", "NAME", "one of: "),
	TEXT(output, "output", "FILE",
	     "write to FILE, whole or not at all (default: standard output)"),
	TEXT(beside, "beside", "FILE",
	     "html: the dump of another plan of the same job, to stand beside it (default: "
	     "round-robin's "
	     "figures)"),
	{0},
};

/* --help: the formats as they are now. */
static bool help(struct text *text, const char *option, const char *doc)
{
	size_t count;
	const struct export_format *formats = export_list(&count);

	if (option && strcmp(option, "format") != 0)
		return false;
	text_add(text, option ? doc
			      : "Example:\n  weft route export plan.json --format html --output "
				"plan.html\n\nFormats:\n");
	for (size_t i = 0; i < count; i++) {
		if (option)
			text_format(text, "%s%s", i ? ", " : "", formats[i].name);
		else
			text_format(text, "  %s: %s\n", formats[i].name, formats[i].what);
	}
	return true;
}

/* The dump of a file, or of the job that the flags name. */
static int open_dump(struct dump **dump, const struct options *options, struct error *error)
{
	struct route_job job = {0};
	int rc;

	if (options->file)
		return dump_open(dump, options->file, error);
	rc = route_options_plan(&job, &options->route, error);
	if (!rc)
		rc = dump_of(dump, job.table, error);
	route_job_close(&job);
	return rc;
}

static int no_routes(const char *file, struct error *error)
{
	return error_set(error, ERROR_FILE,
			 "%s has no routes to export: it was written with --summary, write it "
			 "without",
			 file);
}

static int export_whole(FILE *stream, const struct export_format *format,
			const struct options *options, struct error *error)
{
	struct dump *dump = NULL, *beside = NULL;
	int rc = open_dump(&dump, options, error);

	if (!rc && options->beside)
		rc = dump_open(&beside, options->beside, error);
	if (!rc && !dump->has_routes)
		rc = no_routes(options->file, error);
	if (!rc)
		rc = beside ? format->beside(stream, dump, beside, error)
			    : format->write(stream, dump, error);
	dump_free(&beside);
	dump_free(&dump);
	return rc;
}

struct sink {
	FILE *stream;
	const struct export_format *format;
};

static int begin(void *context, const struct dump *head, struct error *error)
{
	struct sink *sink = context;

	return sink->format->begin ? sink->format->begin(sink->stream, head, error) : 0;
}

static int add_route(void *context, const struct dump *head, const struct route *route,
		     const struct route_piece *pieces, struct error *error)
{
	struct sink *sink = context;

	return sink->format->route(sink->stream, head, route, pieces, error);
}

/* A file, route by route, where the format needs no more. */
static int export_stream(FILE *stream, const struct export_format *format,
			 const struct options *options, struct error *error)
{
	struct sink sink = {stream, format};
	struct dump_visitor visitor = {begin, add_route, &sink};
	struct dump *dump = NULL;
	int rc = dump_visit(&dump, options->file, &visitor, error);

	if (!rc && !dump->has_routes)
		rc = no_routes(options->file, error);
	dump_free(&dump);
	return rc;
}

static int export_to(FILE *stream, const char *name, const struct export_format *format,
		     const struct options *options, struct error *error)
{
	int rc = options->file && format->route ? export_stream(stream, format, options, error)
						: export_whole(stream, format, options, error);

	if (!rc && (fflush(stream) || ferror(stream)))
		rc = error_set_errno(error, ERROR_IO, errno ? errno : EIO, "cannot write %s", name);
	return rc;
}

static int export_file(const struct export_format *format, const struct options *options,
		       struct error *error)
{
	struct file_writer writer;
	int rc = file_writer_open(&writer, options->output, error);

	if (rc)
		return rc;
	rc = export_to(writer.stream, options->output, format, options, error);
	if (rc) {
		file_writer_abort(&writer);
		return rc;
	}
	return file_writer_commit(&writer, error);
}

static int check(const struct options *options, const struct export_format **format,
		 struct error *error)
{
	int rc;

	if (options->file && route_options_any(&options->route))
		return error_set(error, ERROR_USAGE,
				 "%s says itself what job it is of: name the file or the job's "
				 "--model, --train and --infer, not both",
				 options->file);
	if (!options->file && !route_options_any(&options->route))
		return error_set(error, ERROR_USAGE,
				 "name a routing dump, or a job by --model, --train and --infer");
	rc = export_named(format, "--format", options->format, error);
	if (!rc && options->beside && !(*format)->beside)
		rc = error_set(error, ERROR_USAGE,
			       "--beside: %s is a format of one plan; --format html shows two",
			       options->format);
	return rc;
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	const struct export_format *format;
	int rc = check(options, &format, error);

	if (rc)
		return rc;
	return options->output ? export_file(format, options, error)
			       : export_to(stdout, "to standard output", format, options, error);
}

static const struct argp_child children[] = {
	{&route_argp, 0, "Instead of FILE, the plan of a job:", 1}, {0}};

const struct verb route_export_verb = {
	VERB_OF(struct options, rows),
	VERB_ARGUMENTS(struct options, file, 0, 1),
	.children = children,
	.defaults = &(const struct options){.format = "json"},
	.arguments = "[FILE]",
	.too_many = "'%s' is one file too many",
	.as_is = true,
	.doc = "Writes a routing dump in another form.\v(formats)",
	.help = help,
	.run = run,
};
