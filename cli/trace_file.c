/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace_file.h"

#include "base/compare.h"
#include "base/memory.h"
#include "trace/trace.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "weft.trace/1"
/* 31 years of uptime, and 2065: however such times are added, 64 bits are enough. */
#define UPTIME_NS_MAX 1000000000000000000
#define WALL_NS_MAX   3000000000000000000

/* ---- one line ---- */

struct line {
	const char *text;
	uint32_t bytes, number;
	bool broken_off; /* the file ends inside of it: a process that was killed */
};

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static void take_text(char *out, size_t room, const json_t *object, const char *key)
{
	snprintf(out, room, "%s", text_of(object, key));
}

static int64_t ns_of(const json_t *row, const char *key)
{
	return llround(json_number_value(json_object_get(row, key)) * 1e3);
}

static int wrong(const struct trace_file *file, const struct line *line, const char *what,
		 struct error *error)
{
	return error_set(error, ERROR_FILE,
			 "%s: line %u: %s; it is to be a file that --trace wrote (not one that "
			 "`weft trace merge` or `weft route simulate` made)",
			 file->path, line->number, what);
}

static int take_process(struct trace_file *file, const struct line *line, const json_t *row,
			struct error *error)
{
	const json_t *args = json_object_get(row, "args");
	const json_t *rank = json_object_get(args, "rank");

	if (strcmp(text_of(args, "schema"), SCHEMA) != 0)
		return wrong(file, line, "its schema is not " SCHEMA, error);
	take_text(file->job, sizeof(file->job), args, "job");
	take_text(file->role, sizeof(file->role), args, "role");
	take_text(file->host, sizeof(file->host), args, "host");
	take_text(file->boot, sizeof(file->boot), args, "boot");
	take_text(file->version, sizeof(file->version), args, "version");
	file->rank = rank ? json_integer_value(rank) : -1;
	file->pid = json_integer_value(json_object_get(row, "pid"));
	file->wall_ns = strtoll(text_of(args, "wall_ns"), NULL, 10);
	file->clock_ns = strtoll(text_of(args, "clock_ns"), NULL, 10);
	if (file->wall_ns < 0 || file->wall_ns > WALL_NS_MAX || file->clock_ns < 0 ||
	    file->clock_ns > UPTIME_NS_MAX)
		return wrong(file, line, "its wall_ns or clock_ns is no time that can be", error);
	return 0;
}

static int take_meta(struct trace_file *file, const struct line *line, const json_t *row,
		     struct error *error)
{
	const char *name = text_of(row, "name");
	const json_t *args = json_object_get(row, "args");
	struct trace_lane_name *lane;

	if (!strcmp(name, "weft"))
		return take_process(file, line, row, error);
	if (!strcmp(name, "process_name")) {
		take_text(file->process, sizeof(file->process), args, "name");
		return 0;
	}
	if (!strcmp(name, "weft_end")) {
		file->whole = true;
		file->dropped = (uint64_t)json_integer_value(json_object_get(args, "dropped"));
		return 0;
	}
	lane = array_push(&file->lanes);
	if (!lane)
		return memory_error(error, "reading a trace", sizeof(*lane));
	*lane = (struct trace_lane_name){line->text, line->bytes, !strcmp(name, "thread_name"),
					 json_integer_value(json_object_get(row, "tid"))};
	return 0;
}

static int take_beat(struct trace_file *file, const json_t *row, struct error *error)
{
	const json_t *args = json_object_get(row, "args");
	struct trace_beat *beat = array_push(&file->beats);

	if (!beat)
		return memory_error(error, "reading a trace", sizeof(*beat));
	*beat = (struct trace_beat){.begin_ns = ns_of(row, "ts")};
	beat->end_ns = beat->begin_ns + ns_of(row, "dur");
	beat->sequence = (uint64_t)json_integer_value(json_object_get(args, "sequence"));
	take_text(beat->from, sizeof(beat->from), args, "from");
	return 0;
}

static bool is_time(const json_t *row, const char *key)
{
	double us = json_number_value(json_object_get(row, key));

	return us >= 0 && us * 1e3 <= (double)UPTIME_NS_MAX;
}

static int take_row(struct trace_set *set, struct trace_file *file, const struct line *line,
		    const json_t *row, struct error *error)
{
	struct trace_row *out;

	if (!json_is_number(json_object_get(row, "ts")) ||
	    !json_is_string(json_object_get(row, "name")))
		return wrong(file, line, "an event without a time or a name", error);
	if (!is_time(row, "ts") || !is_time(row, "dur"))
		return wrong(file, line, "its ts or dur is no time that can be", error);
	if (!strcmp(text_of(row, "name"), "heartbeat") && take_beat(file, row, error))
		return -(int)error->code;
	out = array_push(&set->rows);
	if (!out)
		return memory_error(error, "reading a trace", sizeof(*out));
	*out = (struct trace_row){.line = line->text,
				  .bytes = line->bytes,
				  .file = (uint32_t)(file - set->files),
				  .number = line->number,
				  .at_ns = ns_of(row, "ts"),
				  .ns = ns_of(row, "dur")};
	return 0;
}

static int take_line(struct trace_set *set, struct trace_file *file, const struct line *line,
		     struct error *error)
{
	json_error_t why;
	json_t *row = json_loadb(line->text, line->bytes, JSON_REJECT_DUPLICATES, &why);
	int rc;

	if (!row && line->broken_off)
		return 0;
	if (!json_is_object(row))
		rc = wrong(file, line, "no JSON object", error);
	else if (!strcmp(text_of(row, "ph"), "M"))
		rc = take_meta(file, line, row, error);
	else if (!file->job[0])
		rc = wrong(file, line, "an event before the process is named", error);
	else
		rc = take_row(set, file, line, row, error);
	json_decref(row);
	return rc;
}

/* ---- a file, and all ---- */

/* Line after line; false: there are no more. */
static bool next_line(const struct trace_file *file, size_t *at, struct line *line)
{
	const char *text = (const char *)file->map.data + *at, *end;
	size_t left = file->map.bytes - *at, bytes;

	if (!left)
		return false;
	end = memchr(text, '\n', left);
	bytes = end ? (size_t)(end - text) : left;
	*at += bytes + (end != NULL);
	if (bytes && text[bytes - 1] == ',')
		bytes--;
	*line = (struct line){text, (uint32_t)bytes, line->number + 1, end == NULL};
	return true;
}

static int read_file(struct trace_set *set, struct trace_file *file, struct error *error)
{
	struct line line = {0};
	size_t at = 0;
	int rc = file_map_open(&file->map, file->path, error);

	if (!rc && (!next_line(file, &at, &line) || line.bytes != 1 || *line.text != '['))
		rc = wrong(file, &(struct line){.number = 1}, "it does not begin with [", error);
	while (!rc && next_line(file, &at, &line))
		if (line.bytes && !(line.bytes == 1 && *line.text == ']'))
			rc = take_line(set, file, &line, error);
	if (!rc && !file->job[0])
		rc = wrong(file, &line, "no line says of which process it is", error);
	return rc;
}

static int role_place(const struct trace_file *file)
{
	return !strcmp(file->role, "controller") ? 0 : !strcmp(file->role, "trainer") ? 1 : 2;
}

static int by_role(const void *x, const void *y)
{
	const struct trace_file *a = *(struct trace_file *const *)x;
	const struct trace_file *b = *(struct trace_file *const *)y;

	return role_place(a) - role_place(b)
		       ?: (a->rank > b->rank) - (a->rank < b->rank)
		       ?: (a->clock_ns > b->clock_ns) - (a->clock_ns < b->clock_ns);
}

static int by_pid(const void *x, const void *y)
{
	const struct trace_file *a = *(struct trace_file *const *)x;
	const struct trace_file *b = *(struct trace_file *const *)y;

	return (a->pid > b->pid) - (a->pid < b->pid);
}

/* Perfetto takes a lane of the process's number for its main thread, and puts it first. What is predicted is numbered as the lane beside
 * it, or as packing. */
static bool is_near_a_lane(const struct trace_file *file, int64_t pid)
{
	bool near = pid / TRACE_LANE_STEP == LANE_PACK;

	for (size_t i = 0; i < file->lanes.count; i++)
		near = near || pid / TRACE_LANE_STEP == file->lanes.items[i].lane / TRACE_LANE_STEP;
	return near;
}

/* Those of several hosts or containers may be the same. Leaves the files in another order. */
static bool pids_differ(struct trace_set *set)
{
	int64_t before = 0;

	sort_items(set->order, set->count, by_pid);
	for (size_t i = 0; i < set->count; i++) {
		if (set->order[i]->pid <= before || set->order[i]->pid >= TRACE_PID_PLACES)
			return false;
		before = set->order[i]->pid;
	}
	return true;
}

static uint32_t merged_pid(const struct trace_file *file, bool own)
{
	if (own && !is_near_a_lane(file, file->pid))
		return (uint32_t)file->pid;
	/* lanes have numbers from TRACE_LANE_STEP on */
	return file->place + (!own && file->place + 1 < TRACE_LANE_STEP ? 1 : TRACE_PID_PLACES);
}

static int put_in_order(struct trace_set *set, struct error *error)
{
	bool own;

	for (size_t i = 0; i < set->count; i++)
		set->order[i] = &set->files[i];
	own = pids_differ(set);
	sort_items(set->order, set->count, by_role);
	for (size_t i = 0; i < set->count; i++) {
		set->order[i]->place = (uint32_t)i;
		set->order[i]->merged_pid = merged_pid(set->order[i], own);
	}
	for (size_t i = 1; i < set->count; i++) {
		const struct trace_file *a = set->order[i - 1], *b = set->order[i];

		if (strcmp(a->job, b->job) != 0)
			return error_set(error, ERROR_FILE,
					 "%s is of job '%s', and %s of job '%s': give files of one",
					 a->path, a->job, b->path, b->job);
		if (!by_role(&a, &b) && a->pid == b->pid && !strcmp(a->boot, b->boot))
			return error_set(error, ERROR_FILE, "%s and %s are of the same process",
					 a->path, b->path);
	}
	return 0;
}

int trace_set_read(struct trace_set *set, const char *const *paths, size_t count,
		   struct error *error)
{
	int rc = 0;

	*set = (struct trace_set){.count = count};
	set->files = memory_zalloc(count, sizeof(*set->files));
	set->order = memory_zalloc(count, sizeof(*set->order));
	if (!set->files || !set->order)
		return memory_error(error, "reading traces", count * sizeof(*set->files));
	for (size_t i = 0; i < count && !rc; i++) {
		set->files[i].path = paths[i];
		rc = read_file(set, &set->files[i], error);
	}
	return rc ? rc : put_in_order(set, error);
}

void trace_set_fini(struct trace_set *set)
{
	for (size_t i = 0; i < set->count && set->files; i++) {
		file_map_close(&set->files[i].map);
		array_free(&set->files[i].beats);
		array_free(&set->files[i].lanes);
	}
	memory_free(set->order);
	memory_free(set->files);
	array_free(&set->rows);
	*set = (struct trace_set){.count = 0};
}

/* ---- clocks ---- */

const char *trace_clock_text(enum trace_clock clock)
{
	static const char *const texts[] = {[CLOCK_REFERENCE] = "reference",
					    [CLOCK_SAME_KERNEL] = "same kernel",
					    [CLOCK_HEARTBEATS] = "heartbeats",
					    [CLOCK_OF_THE_DAY] = "clocks of the day"};

	return texts[clock];
}

static int by_sender(const void *x, const void *y)
{
	const struct trace_beat *a = x, *b = y;

	return strcmp(a->from, b->from) ?: compare_u64(a->sequence, b->sequence);
}

/* Of the controller's, which are sorted. */
static const struct trace_beat *beat_of(const struct trace_file *controller,
					const struct trace_beat *beat)
{
	if (!controller->beats.count)
		return NULL;
	return bsearch(beat, controller->beats.items, controller->beats.count, sizeof(*beat),
		       by_sender);
}

static void find_by_beats(struct trace_file *file, const struct trace_file *controller)
{
	for (size_t i = 0; i < file->beats.count; i++) {
		const struct trace_beat *beat = &file->beats.items[i];
		const struct trace_beat *there = beat_of(controller, beat);
		int64_t error = (beat->end_ns - beat->begin_ns + 1) / 2;

		if (!there || (file->clock == CLOCK_HEARTBEATS && error >= file->error_ns))
			continue;
		file->clock = CLOCK_HEARTBEATS;
		file->offset_ns = there->begin_ns - (beat->begin_ns + beat->end_ns) / 2;
		file->error_ns = error;
	}
}

static void find_clock(struct trace_file *file, const struct trace_file *reference)
{
	file->offset_ns = file->error_ns = 0;
	file->clock = CLOCK_REFERENCE;
	if (file == reference)
		return;
	file->clock = CLOCK_SAME_KERNEL;
	if (file->boot[0] && !strcmp(file->boot, reference->boot))
		return;
	file->clock = CLOCK_OF_THE_DAY;
	file->error_ns = -1;
	file->offset_ns =
		(file->wall_ns - file->clock_ns) - (reference->wall_ns - reference->clock_ns);
	if (!role_place(reference))
		find_by_beats(file, reference);
}

/* What encloses comes before what it encloses. */
static int by_time(const void *x, const void *y)
{
	const struct trace_row *a = x, *b = y;

	return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns)
		       ?: (a->ns < b->ns) - (a->ns > b->ns)
		       ?: compare_u64(a->file, b->file)
		       ?: (a->line > b->line) - (a->line < b->line);
}

void trace_set_clocks(struct trace_set *set)
{
	struct trace_file *reference = set->order[0];

	sort_items(reference->beats.items, reference->beats.count, by_sender);
	for (size_t i = 0; i < set->count; i++)
		find_clock(&set->files[i], reference);
	for (size_t i = 0; i < set->rows.count; i++)
		set->rows.items[i].at_ns += set->files[set->rows.items[i].file].offset_ns;
	sort_items(set->rows.items, set->rows.count, by_time);
}
