/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/traced.h"

#include "base/clock.h"
#include "controller/figures.h"

int controller_trace_open(struct controller_trace *trace, const struct trace_names *names,
			  const char *job, struct error *error)
{
	const struct trace_options options = {.file = names->file,
					      .file_name = names->file_name,
					      .who = "controller",
					      .job = job,
					      .role = "controller",
					      .rank = -1};

	trace->since_ns = clock_ns();
	return trace_open(&trace->trace, &options, error);
}

static void add_state(struct controller_trace *trace, uint64_t now)
{
	const struct trace_event event = {.name = figures_state(trace->state),
					  .begin_ns = trace->since_ns,
					  .end_ns = now,
					  .lane = LANE_JOB};

	trace_add(trace->trace, &event, "job");
	trace->since_ns = now;
}

void controller_trace_state(struct controller_trace *trace, const struct controller *core)
{
	uint32_t state = figures_state_of(core);

	if (trace->trace && state != trace->state)
		add_state(trace, clock_ns());
	trace->state = state;
}

void controller_trace_line(struct controller_trace *trace, const char *line)
{
	struct trace_event event = {.name = "said", .lane = LANE_MEMBERS};

	if (!trace->trace)
		return;
	event.begin_ns = clock_ns();
	trace_text(&event, line);
	trace_add(trace->trace, &event, "members");
}

void controller_trace_beat(struct controller_trace *trace, const struct message *message)
{
	struct trace_event event = {.name = "heartbeat",
				    .sequence = message->u.heartbeat.sequence,
				    .from = message->from,
				    .lane = LANE_CLOCK};

	if (!trace->trace || message->type != MESSAGE_HEARTBEAT ||
	    !trace_notes_beat(event.sequence))
		return;
	event.begin_ns = clock_ns();
	trace_add(trace->trace, &event, "heartbeats");
}

void controller_trace_part(struct controller_trace *trace, const char *name, uint64_t begin_ns)
{
	struct trace_event event = {.name = name, .begin_ns = begin_ns, .lane = LANE_PACK};

	if (!trace->trace)
		return;
	event.end_ns = clock_ns();
	trace_add(trace->trace, &event, "plans");
}

void controller_trace_close(struct controller_trace *trace)
{
	if (trace->trace)
		add_state(trace, clock_ns());
	trace_close(&trace->trace);
}
