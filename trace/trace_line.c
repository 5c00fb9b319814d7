/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace_line.h"

#include "base/json_write.h"

#include <stdio.h>

/* Microseconds, as the format wants them, and no nanosecond less. */
static void put_us(struct text *text, const char *key, uint64_t ns)
{
	text_format(text, ",\"%s\":%llu.%03llu", key, (unsigned long long)(ns / 1000),
		    (unsigned long long)(ns % 1000));
}

static void meta_begin(struct text *text, struct json *json, const char *name, int pid,
		       uint32_t tid)
{
	text_format(text, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%u,\"args\":", name,
		    pid, tid);
	json_to_text(json, text);
	json_put_object(json);
}

static void meta_end(struct text *text, struct json *json)
{
	json_put_object_end(json);
	text_add(text, "},\n");
}

/* As text: a number of JSON may be read as a double. */
static void put_ns(struct json *json, const char *key, uint64_t ns)
{
	char number[24];

	snprintf(number, sizeof(number), "%llu", (unsigned long long)ns);
	json_put_key_string(json, key, number);
}

void trace_line_begin(struct text *text, const struct trace_process *process)
{
	char rank[16] = "", name[160];
	struct json json;

	if (process->rank >= 0)
		snprintf(rank, sizeof(rank), " %d", process->rank);
	snprintf(name, sizeof(name), "%s%s on %s", process->role, rank, process->host);
	text_add(text, "[\n");
	meta_begin(text, &json, "weft", process->pid, 0);
	json_put_key_string(&json, "schema", TRACE_SCHEMA);
	json_put_key_string(&json, "version", WEFT_VERSION);
	json_put_key_string(&json, "job", process->job);
	json_put_key_string(&json, "role", process->role);
	if (process->rank >= 0)
		json_put_key_u64(&json, "rank", (uint64_t)process->rank);
	json_put_key_string(&json, "host", process->host);
	json_put_key_string(&json, "boot", process->boot);
	put_ns(&json, "wall_ns", process->wall_ns);
	put_ns(&json, "clock_ns", process->clock_ns);
	meta_end(text, &json);
	meta_begin(text, &json, "process_name", process->pid, 0);
	json_put_key_string(&json, "name", name);
	meta_end(text, &json);
}

void trace_line_lane(struct text *text, int pid, uint32_t tid, const char *name)
{
	struct json json;

	meta_begin(text, &json, "thread_name", pid, tid);
	json_put_key_string(&json, "name", name);
	meta_end(text, &json);
	meta_begin(text, &json, "thread_sort_index", pid, tid);
	json_put_key_u64(&json, "sort_index", tid);
	meta_end(text, &json);
}

static void put_args(struct text *text, const struct trace_event *event)
{
	char from[24];
	struct json json;

	text_add(text, ",\"args\":");
	json_to_text(&json, text);
	json_put_object(&json);
	if (event->version)
		json_put_key_u64(&json, "version", event->version);
	if (event->bytes)
		json_put_key_u64(&json, "bytes", event->bytes);
	if (event->piece) {
		json_put_key_u64(&json, "piece", event->piece - 1);
		json_put_key_u64(&json, "part", event->part);
	}
	if (event->path)
		json_put_key_string(&json, "path", event->path);
	if (event->text[0])
		json_put_key_string(&json, event->piece ? "tensor" : "text", event->text);
	if (event->sequence) {
		snprintf(from, sizeof(from), "%016llx", (unsigned long long)event->from);
		json_put_key_u64(&json, "sequence", event->sequence);
		json_put_key_string(&json, "from", from);
	}
	json_put_object_end(&json);
}

void trace_line_event(struct text *text, int pid, uint32_t tid, const struct trace_event *event)
{
	uint64_t end_ns = event->end_ns > event->begin_ns ? event->end_ns : event->begin_ns;

	text_format(text, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%u,\"name\":\"%s\"",
		    event->end_ns ? "X" : "i", pid, tid, event->name);
	put_us(text, "ts", event->begin_ns);
	if (event->end_ns)
		put_us(text, "dur", end_ns - event->begin_ns);
	else
		text_add(text, ",\"s\":\"t\"");
	put_args(text, event);
	text_add(text, "},\n");
}

void trace_line_dropped(struct text *text, int pid, uint64_t now_ns, uint64_t dropped)
{
	text_format(text, "{\"ph\":\"i\",\"pid\":%d,\"tid\":0,\"name\":\"events dropped\"", pid);
	put_us(text, "ts", now_ns);
	text_format(text, ",\"s\":\"p\",\"args\":{\"dropped\":%llu}},\n",
		    (unsigned long long)dropped);
}

void trace_line_end(struct text *text, int pid, uint64_t events, uint64_t dropped)
{
	text_format(
		text,
		"{\"ph\":\"M\",\"name\":\"weft_end\",\"pid\":%d,\"tid\":0,\"args\":{\"events\":%llu,"
		"\"dropped\":%llu}}\n]\n",
		pid, (unsigned long long)events, (unsigned long long)dropped);
}
