/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_line.h -- lines of a trace file. Pure: data in, text out. Each ends with a comma and a line break but the last.
 */
#ifndef TRACE_TRACE_LINE_H
#define TRACE_TRACE_LINE_H

#include "base/text.h"
#include "trace/trace.h"

#define TRACE_SCHEMA "weft.trace/1"

struct trace_process {
	int pid;
	const char *job, *role, *host, *boot; /* boot: what names the machine's kernel, whose monotonic clock it is */
	int rank;
	uint64_t wall_ns, clock_ns;           /* the same moment, since 1970 and by clock_ns() */
};

void trace_line_begin(struct text *text, const struct trace_process *process);
void trace_line_lane(struct text *text, int pid, uint32_t tid, const char *name);
void trace_line_event(struct text *text, int pid, uint32_t tid, const struct trace_event *event);
void trace_line_dropped(struct text *text, int pid, uint64_t now_ns, uint64_t dropped);
void trace_line_end(struct text *text, int pid, uint64_t events, uint64_t dropped);

#endif
