/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace_otlp.h"

#include "base/json_write.h"
#include "base/memory.h"
#include "cli/trace_spans.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#define KIND_INTERNAL 1
#define STATUS_ERROR  2
#define CLOSING_BYTES 64 /* what ends a line, and begins a scope beside its name */

/* The line that is being filled; the texts are of the process, lane and row that are at hand. */
struct output {
	FILE *stream;
	struct trace_spans spans;
	int64_t since_1970_ns; /* to add to the reference's clock */
	struct text line, resource, scope, span;
	uint32_t scopes; /* that the line has */
	bool in_scope;
};

/* ---- values ---- */

/* 64 bits are text in protobuf's JSON. */
static void put_decimal(struct json *json, const char *key, int64_t value)
{
	char number[24];

	snprintf(number, sizeof(number), "%" PRId64, value);
	json_put_key_string(json, key, number);
}

static void attribute_begin(struct json *json, const char *before, const char *name)
{
	char key[128];

	snprintf(key, sizeof(key), "%s%s", before, name);
	json_put_object(json);
	json_put_key_string(json, "key", key);
	json_put_key_object(json, "value");
}

static void attribute_end(struct json *json)
{
	json_put_object_end(json);
	json_put_object_end(json);
}

static void put_text(struct json *json, const char *key, const char *value)
{
	attribute_begin(json, "", key);
	json_put_key_string(json, "stringValue", value);
	attribute_end(json);
}

static void put_number(struct json *json, const char *key, int64_t value)
{
	attribute_begin(json, "", key);
	put_decimal(json, "intValue", value);
	attribute_end(json);
}

static int add_to_text(const char *bytes, size_t count, void *text)
{
	text_add_bytes(text, bytes, count);
	return 0;
}

/* Other than numbers and words no row has; a newer weft's is shown as it stands. */
static void put_value(struct json *json, const json_t *value)
{
	struct text other = {0};

	if (json_is_integer(value)) {
		put_decimal(json, "intValue", json_integer_value(value));
	} else if (json_is_real(value)) {
		json_put_key_double(json, "doubleValue", json_real_value(value));
	} else if (json_is_boolean(value)) {
		json_put_key_bool(json, "boolValue", json_is_true(value));
	} else if (json_is_string(value)) {
		json_put_key_string(json, "stringValue", json_string_value(value));
	} else {
		json_dump_callback(value, add_to_text, &other, JSON_COMPACT | JSON_ENCODE_ANY);
		json_put_key_string(json, "stringValue", text_string(&other));
		text_fini(&other);
	}
}

/* ---- a process, a lane, a row ---- */

static void describe_process(struct output *output, const struct trace_file *file)
{
	char service[32], instance[DIGEST_TEXT_BYTES];
	struct json json;

	output->resource.bytes = 0;
	json_to_text(&json, &output->resource);
	json_put_object(&json);
	json_put_key_array(&json, "attributes");
	snprintf(service, sizeof(service), "weft-%s", file->role);
	put_text(&json, "service.name", service);
	put_text(&json, "service.instance.id", digest_text(trace_process_digest(file), instance));
	if (file->version[0])
		put_text(&json, "service.version", file->version);
	put_text(&json, "host.name", file->host);
	put_number(&json, "process.pid", file->pid);
	put_text(&json, "weft.job", file->job);
	put_text(&json, "weft.role", file->role);
	if (file->rank >= 0)
		put_number(&json, "weft.rank", file->rank);
	put_text(&json, "weft.clock", trace_clock_text(file->clock));
	if (file->error_ns >= 0)
		put_number(&json, "weft.clock.error_ns", file->error_ns);
	put_number(&json, "weft.events.dropped", (int64_t)file->dropped);
	json_put_array_end(&json);
	json_put_object_end(&json);
}

/* What the process as a whole says (events that were dropped) is on a lane without a name. */
static void describe_lane(struct output *output, const struct trace_file *file, int64_t lane)
{
	json_t *row = NULL;
	const char *name = NULL;
	struct json json;

	for (size_t i = 0; i < file->lanes.count && !row; i++)
		if (file->lanes.items[i].is_name && file->lanes.items[i].lane == lane)
			row = json_loadb(file->lanes.items[i].line, file->lanes.items[i].bytes, 0,
					 NULL);
	name = json_string_value(json_object_get(json_object_get(row, "args"), "name"));
	output->scope.bytes = 0;
	json_to_text(&json, &output->scope);
	json_put_object(&json);
	json_put_key_string(&json, "name", name ? name : "process");
	json_put_object_end(&json);
	json_decref(row);
}

/* By its own words, where the row has some. */
static void put_status(struct json *json, const struct trace_span *span, const json_t *args)
{
	const char *why = json_string_value(json_object_get(args, "text"));

	if (!span->gave_up)
		return;
	json_put_key_object(json, "status");
	json_put_key_string(json, "message", why ? why : "the update was given up");
	json_put_key_u64(json, "code", STATUS_ERROR);
	json_put_object_end(json);
}

static void describe_span(struct output *output, const struct trace_span *span)
{
	json_t *row = json_loadb(span->row->line, span->row->bytes, 0, NULL);
	json_t *args = json_object_get(row, "args"), *value;
	int64_t begin_ns = span->row->at_ns + output->since_1970_ns;
	char trace[DIGEST_TEXT_BYTES], id[SPAN_ID_BYTES];
	struct json json;
	const char *key;

	output->span.bytes = 0;
	json_to_text(&json, &output->span);
	json_put_object(&json);
	json_put_key_string(&json, "traceId", trace_id_text(&output->spans, span->version, trace));
	json_put_key_string(&json, "spanId", span_id_text(&output->spans, span, id));
	if (span->parent)
		json_put_key_string(&json, "parentSpanId",
				    span_id_text(&output->spans, span->parent, id));
	json_put_key_string(&json, "name", json_string_value(json_object_get(row, "name")));
	json_put_key_u64(&json, "kind", KIND_INTERNAL);
	put_decimal(&json, "startTimeUnixNano", begin_ns);
	put_decimal(&json, "endTimeUnixNano", begin_ns + span->row->ns);
	json_put_key_array(&json, "attributes");
	json_object_foreach(args, key, value)
	{
		attribute_begin(&json, "weft.", key);
		put_value(&json, value);
		attribute_end(&json);
	}
	json_put_array_end(&json);
	put_status(&json, span, args);
	json_put_object_end(&json);
	json_decref(row);
}

/* ---- lines ---- */

static void end_scope(struct output *output)
{
	if (output->in_scope)
		text_add(&output->line, "]}");
	output->in_scope = false;
}

static void end_line(struct output *output)
{
	if (!output->line.bytes)
		return;
	end_scope(output);
	text_add(&output->line, "]}]}\n");
	if (text_ok(&output->line))
		fwrite(output->line.data, 1, output->line.bytes, output->stream);
	output->line.bytes = 0;
	output->scopes = 0;
}

static void put_span(struct output *output)
{
	struct text *line = &output->line;
	size_t bytes = output->span.bytes + output->scope.bytes + CLOSING_BYTES;

	if (line->bytes + bytes > TRACE_OTLP_LINE_BYTES)
		end_line(output);
	if (!line->bytes)
		text_format(line, "{\"resourceSpans\":[{\"resource\":%s,\"scopeSpans\":[",
			    text_string(&output->resource));
	if (!output->in_scope)
		text_format(line, "%s{\"scope\":%s,\"spans\":[", output->scopes++ ? "," : "",
			    text_string(&output->scope));
	else
		text_add(line, ",");
	output->in_scope = true;
	text_add(line, text_string(&output->span));
}

static void put_spans(struct output *output)
{
	const struct trace_set *set = output->spans.set;
	const struct trace_span *before = NULL;

	for (size_t i = 0; i < output->spans.count; i++) {
		const struct trace_span *span = output->spans.order[i];
		const struct trace_file *file = &set->files[span->row->file];
		bool other = !before || before->row->file != span->row->file;

		if (other) {
			end_line(output);
			describe_process(output, file);
		}
		if (other || before->lane != span->lane) {
			end_scope(output);
			describe_lane(output, file, span->lane);
		}
		describe_span(output, span);
		put_span(output);
		before = span;
	}
	end_line(output);
}

/* ---- all ---- */

/* The reference's file says which time of the day a time of its clock is. */
static int find_day(struct output *output, const struct trace_set *set, struct error *error)
{
	const struct trace_file *file = set->order[0];

	output->since_1970_ns = file->wall_ns - file->clock_ns;
	if (file->wall_ns > 0 &&
	    (!set->rows.count || set->rows.items[0].at_ns + output->since_1970_ns >= 0))
		return 0;
	return error_set(error, ERROR_FILE,
			 "%s: its first lines have wall_ns %" PRId64 " at clock_ns %" PRId64
			 ", by which an event would be before 1970, and OTLP has no such time: set "
			 "that host's clock, or write the trace with --format perfetto",
			 file->path, file->wall_ns, file->clock_ns);
}

static int failed(const struct output *output, struct error *error)
{
	if (text_ok(&output->line) && text_ok(&output->resource) && text_ok(&output->scope) &&
	    text_ok(&output->span))
		return 0;
	return memory_error(error, "writing a trace", TRACE_OTLP_LINE_BYTES);
}

int trace_put_otlp(FILE *stream, const struct trace_set *set, struct error *error)
{
	struct output output = {.stream = stream};
	int rc = trace_spans_make(&output.spans, set, error);

	if (!rc)
		rc = find_day(&output, set, error);
	if (!rc) {
		put_spans(&output);
		rc = failed(&output, error);
	}
	text_fini(&output.span);
	text_fini(&output.scope);
	text_fini(&output.resource);
	text_fini(&output.line);
	trace_spans_fini(&output.spans);
	return rc;
}
