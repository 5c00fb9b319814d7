/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_file.h -- trace files of the processes of one job (trace/trace_line.h), read, and their clocks compared.
 *
 * A process's times are of its host's monotonic clock. What has to be added for the reference's (the controller's, or without one the
 * first trainer's) is known, from best to worst:
 *
 *   the same kernel             0, exactly
 *   heartbeats                  the controller noted one at t, the worker when it left (a) and was answered (b): t - (a + b) / 2, and the
 *                               error is at most (b - a) / 2; the one that took least time counts
 *   both clocks of the day      as good as whatever sets these
 */
#ifndef CLI_TRACE_FILE_H
#define CLI_TRACE_FILE_H

#include "base/array.h"
#include "base/file.h"
#include <stdint.h>

/* Numbers of processes that are no process's own, and that hardly a lane has: by place, and of those that are merely predicted. */
#define TRACE_PID_PLACES 4500000
#define TRACE_PID_MADE	 5000000

/* A line that is a slice or an instant. */
struct trace_row {
	const char *line;             /* in the map */
	uint32_t bytes, file;
	uint32_t number;              /* of the line, from 1 */
	int64_t at_ns, ns;            /* by the file's clock; length */
};

struct trace_lane_name {
	const char *line;
	uint32_t bytes;
	bool is_name;                 /* else where it is sorted */
	int64_t lane;
};

/* A heartbeat: the controller's, when it was there; a worker's, when it left and was answered. */
struct trace_beat {
	char from[20];
	uint64_t sequence;
	int64_t begin_ns, end_ns;
};

enum trace_clock { CLOCK_REFERENCE, CLOCK_SAME_KERNEL, CLOCK_HEARTBEATS, CLOCK_OF_THE_DAY };

struct trace_file {
	const char *path;
	uint32_t place;               /* in that order */
	uint32_t merged_pid;          /* what the merged file calls it: its own; where two have the same, or a lane has it, a number in that order */
	struct file_map map;
	char job[256], role[16], host[80], boot[64], process[160], version[32];
	int64_t rank, pid;            /* rank -1: none */
	int64_t wall_ns, clock_ns;
	uint64_t dropped;
	bool whole;                   /* it has its end */
	ARRAY(struct trace_beat) beats;
	ARRAY(struct trace_lane_name) lanes;
	enum trace_clock clock;
	int64_t offset_ns, error_ns;  /* to add; error -1: not known */
};

struct trace_set {
	struct trace_file *files;     /* as they were given, */
	struct trace_file **order;    /* and controller, trainers, inference ranks, each by rank; the first is the reference */
	size_t count;
	ARRAY(struct trace_row) rows; /* sorted by the reference's time once trace_set_clocks was called */
};

/* ERROR_FILE: what is no such file, or of another job; names file and line. */
int trace_set_read(struct trace_set *set, const char *const *paths, size_t count, struct error *error);
void trace_set_clocks(struct trace_set *set);
void trace_set_fini(struct trace_set *set);
const char *trace_clock_text(enum trace_clock clock);

#endif
