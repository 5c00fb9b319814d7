/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_spans.h -- the rows of a trace set as spans: of which trace each is, whose child, and its ids. Pure: rows in, spans out.
 *
 *   trace     of a version: all that any process did for it. Of version 0: what belongs to none (join, plan, heartbeats), the job's
 *   parent    the innermost row of the same lane and trace that holds it; where there is none, the process's update of that version,
 *             so that what its threads did is below it and a trace has few roots
 *   instant   a span of length 0. OTLP has events inside of spans alone; most instants have a lane without any, and a span whose
 *             events have no bound could not be cut into lines
 *
 * Ids are made of what the files say, and of nothing else: the same files give the same ids, and so does a file that has grown for
 * the rows that it had. Of the run too, so that jobs of one name do not share traces.
 */
#ifndef CLI_TRACE_SPANS_H
#define CLI_TRACE_SPANS_H

#include "cli/trace_file.h"
#include "job/digest.h"

struct trace_span {
	const struct trace_row *row;
	const struct trace_span *parent; /* NULL: a root of its trace */
	uint64_t version;                /* 0: of none */
	int64_t lane;                    /* of its process */
	bool gave_up;                    /* an update that was given up */
};

struct trace_spans {
	const struct trace_set *set;
	struct trace_span *items;        /* as the set's rows, by time, */
	const struct trace_span **order; /* and by process, then lane, then time */
	size_t count;
	struct digest run;
	uint64_t *seeds;                 /* of ids: one a file, as the set has them */
};

#define SPAN_ID_BYTES 17 /* 16 lower-case hex digits and the terminator */

/* Of a set whose clocks were compared. What it points to has to stay. */
int trace_spans_make(struct trace_spans *spans, const struct trace_set *set, struct error *error);
void trace_spans_fini(struct trace_spans *spans);

/* Never zero; both return `out`. */
char *trace_id_text(const struct trace_spans *spans, uint64_t version, char out[DIGEST_TEXT_BYTES]);
char *span_id_text(const struct trace_spans *spans, const struct trace_span *span, char out[SPAN_ID_BYTES]);
/* What names the process among all of all runs. */
struct digest trace_process_digest(const struct trace_file *file);

#endif
