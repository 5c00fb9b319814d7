/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace_predicted.h"

#include "routing/lab/trace.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a lane's numbers the last, behind those of its threads; stages have them from here on, behind the packer. */
#define PEER_TID(rank)	 ((LANE_PEERS + (rank)) * TRACE_LANE_STEP + TRACE_LANE_STEP - 1)
#define STAGE_TID(stage) (LANE_PACK * TRACE_LANE_STEP + TRACE_THREADS + (stage))

/* A simulated schedule, and where it goes: by the number that it has for a process, that of the merged file. */
struct predicted {
	json_t *root, *events;
	json_t *measured; /* "3": 4711, where the rank was measured */
	int64_t begin_ns;
	bool failed; /* for want of memory */
};

/* By the clock of the merged file, whose moment 0 is the first event. 0: no trainer wrote. */
static int64_t first_write(const struct trace_set *set)
{
	for (size_t i = 0; i < set->rows.count; i++) {
		const struct trace_row *at = &set->rows.items[i];
		json_t *row;
		bool found;

		if (strcmp(set->files[at->file].role, "trainer") != 0)
			continue;
		row = json_loadb(at->line, at->bytes, 0, NULL);
		found = !strcmp(json_string_value(json_object_get(row, "name")), "write") &&
			json_object_get(json_object_get(row, "args"), "piece");
		json_decref(row);
		if (found)
			return at->at_ns - set->rows.items[0].at_ns;
	}
	return 0;
}

static bool is_meta(const json_t *event, const char *what)
{
	const char *phase = json_string_value(json_object_get(event, "ph"));
	const char *name = json_string_value(json_object_get(event, "name"));

	return phase && name && !strcmp(phase, "M") && !strcmp(name, what);
}

/* ---- processes ---- */

/* The process that `name`, "trainer 3 on host", is about; of one that was started again the first, which the schedule begins with. */
static const struct trace_file *file_named(const struct trace_set *set, const char *name)
{
	char role[16];
	long rank;

	if (!name || sscanf(name, "%15s %ld", role, &rank) != 2)
		return NULL;
	for (size_t i = 0; i < set->count; i++)
		if (set->order[i]->rank == rank && !strcmp(set->order[i]->role, role))
			return set->order[i];
	return NULL;
}

static void pid_key(const json_t *event, char key[24])
{
	snprintf(key, 24, "%" JSON_INTEGER_FORMAT,
		 json_integer_value(json_object_get(event, "pid")));
}

static void find_measured(struct predicted *predicted, const struct trace_set *set)
{
	json_t *event;
	size_t i;

	predicted->measured = json_object();
	predicted->failed = !predicted->measured;
	json_array_foreach(predicted->events, i, event)
	{
		const json_t *args = json_object_get(event, "args");
		const struct trace_file *file;
		char key[24];

		if (!is_meta(event, "process_name"))
			continue;
		file = file_named(set, json_string_value(json_object_get(args, "name")));
		pid_key(event, key);
		if (file)
			predicted->failed |=
				json_object_set_new(predicted->measured, key,
						    json_integer(file->merged_pid)) != 0;
	}
}

/* ---- events ---- */

static void put(struct predicted *predicted, json_t *object, const char *key, json_t *value)
{
	predicted->failed |= json_object_set_new(object, key, value) != 0;
}

static void call_predicted(struct predicted *predicted, json_t *event)
{
	json_t *args = json_object_get(event, "args");
	const char *name = json_string_value(json_object_get(args, "name"));

	if (name)
		put(predicted, args, "name", json_sprintf("predicted: %s", name));
}

static json_int_t lane_of(json_int_t tid)
{
	if (tid < TRACE_STAGE_TID)
		return 0;
	return tid < TRACE_PEER_TID ? STAGE_TID(tid - TRACE_STAGE_TID)
				    : PEER_TID(tid - TRACE_PEER_TID);
}

/* The event in place: beside what its process did, or in one of its own; another time. False: that process has it already, or it is none
 * of the simulator's. */
static bool move(struct predicted *predicted, json_t *event)
{
	json_t *ts = json_object_get(event, "ts"), *measured;
	json_int_t pid = json_integer_value(json_object_get(event, "pid"));
	json_int_t tid = json_integer_value(json_object_get(event, "tid"));
	bool of_process = is_meta(event, "process_name"),
	     of_order = is_meta(event, "process_sort_index");
	char key[24];

	pid_key(event, key);
	measured = json_object_get(predicted->measured, key);
	if (pid < 0 || pid > INT32_MAX || tid < 0 || tid > INT32_MAX ||
	    (measured && (of_process || of_order)))
		return false;
	if (of_process || is_meta(event, "thread_name"))
		call_predicted(predicted, event);
	pid = measured ? json_integer_value(measured) : TRACE_PID_MADE + pid;
	put(predicted, event, "pid", json_integer(pid));
	put(predicted, event, "tid", json_integer(lane_of(tid)));
	if (of_order) /* behind all that were measured */
		put(predicted, json_object_get(event, "args"), "sort_index", json_integer(pid));
	if (ts)
		put(predicted, event, "ts",
		    json_real(json_number_value(ts) + (double)predicted->begin_ns / 1e3));
	return true;
}

static void put_lane_order(FILE *stream, const json_t *event)
{
	json_int_t tid = json_integer_value(json_object_get(event, "tid"));

	fprintf(stream,
		",\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%" JSON_INTEGER_FORMAT
		",\"tid\":%" JSON_INTEGER_FORMAT ",\"args\":{\"sort_index\":%" JSON_INTEGER_FORMAT
		"}}",
		json_integer_value(json_object_get(event, "pid")), tid, tid);
}

static void put_events(FILE *stream, struct predicted *predicted)
{
	json_t *event;
	size_t i;

	json_array_foreach(predicted->events, i, event)
	{
		if (!json_is_object(event) || !move(predicted, event))
			continue;
		fputs(",\n", stream);
		json_dumpf(event, stream, JSON_COMPACT | JSON_REAL_PRECISION(15));
		if (is_meta(event, "thread_name"))
			put_lane_order(stream, event);
	}
}

int trace_put_predicted(FILE *stream, const char *path, const struct trace_set *set,
			struct error *error)
{
	struct predicted predicted = {.begin_ns = first_write(set)};
	json_error_t why;

	predicted.root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
	predicted.events = json_object_get(predicted.root, "traceEvents");
	if (!json_is_array(predicted.events) ||
	    !json_object_get(json_object_get(predicted.root, "otherData"), "simulated")) {
		bool read = predicted.root != NULL;

		json_decref(predicted.root);
		return error_set(
			error, ERROR_FILE,
			"--predicted %s: it is no schedule of `weft route simulate --trace "
			"FILE`%s%s",
			path, read ? "" : ": ", read ? "" : why.text);
	}
	find_measured(&predicted, set);
	put_events(stream, &predicted);
	json_decref(predicted.measured);
	json_decref(predicted.root);
	return predicted.failed ? memory_error(error, "reading a prediction", 0) : 0;
}
