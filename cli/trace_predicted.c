/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace_predicted.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PID 1000000 /* behind all that were measured */

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

/* The event in place: another process, another time. */
static void move(json_t *event, int64_t begin_ns)
{
	json_t *ts = json_object_get(event, "ts"), *args = json_object_get(event, "args");
	const char *name = json_string_value(json_object_get(args, "name"));
	const char *kind = json_string_value(json_object_get(event, "name"));
	json_int_t pid = json_integer_value(json_object_get(event, "pid"));

	json_object_set_new(event, "pid", json_integer(FIRST_PID + pid));
	if (ts)
		json_object_set_new(event, "ts",
				    json_real(json_number_value(ts) + (double)begin_ns / 1e3));
	if (kind && name && !strcmp(kind, "process_name"))
		json_object_set_new(args, "name", json_sprintf("predicted: %s", name));
	if (kind && !strcmp(kind, "process_sort_index"))
		json_object_set_new(args, "sort_index", json_integer(FIRST_PID + pid));
}

int trace_put_predicted(FILE *stream, const char *path, const struct trace_set *set,
			struct error *error)
{
	int64_t begin = first_write(set);
	json_error_t why;
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why), *events, *event;
	size_t i;

	events = json_object_get(root, "traceEvents");
	if (!json_is_array(events) ||
	    !json_object_get(json_object_get(root, "otherData"), "simulated")) {
		json_decref(root);
		return error_set(
			error, ERROR_FILE,
			"--predicted %s: it is no schedule of `weft route simulate --trace "
			"FILE`%s%s",
			path, root ? "" : ": ", root ? "" : why.text);
	}
	json_array_foreach(events, i, event)
	{
		if (!json_is_object(event))
			continue;
		move(event, begin);
		fputs(",\n", stream);
		json_dumpf(event, stream, JSON_COMPACT);
	}
	json_decref(root);
	return 0;
}
