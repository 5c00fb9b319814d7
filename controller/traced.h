/* SPDX-License-Identifier: Apache-2.0
 *
 * traced.h -- what the controller did when, for its trace (trace/trace.h): states of the job, plans, what its log says of members, and
 * when heartbeats were there, by which clocks of workers are compared. The shell's: the core knows no time but its own.
 */
#ifndef CONTROLLER_TRACED_H
#define CONTROLLER_TRACED_H

#include "controller/core.h"
#include "trace/trace.h"

struct trace_names {
	const char *file, *file_name; /* as trace_options */
};

struct controller_trace {
	struct trace *trace; /* NULL: none is wanted */
	uint32_t state;      /* of the job, */
	uint64_t since_ns;   /* and since when */
};

int controller_trace_open(struct controller_trace *trace, const struct trace_names *names, const char *job,
			  struct error *error);
/* After each step of the core. */
void controller_trace_state(struct controller_trace *trace, const struct controller *core);
/* A line of the log. */
void controller_trace_line(struct controller_trace *trace, const char *line);
void controller_trace_beat(struct controller_trace *trace, const struct message *message);
/* "plan", "dump", from begin_ns to now. */
void controller_trace_part(struct controller_trace *trace, const char *name, uint64_t begin_ns);
void controller_trace_close(struct controller_trace *trace);

#endif
