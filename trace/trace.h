/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h -- when a process did what, as a file that ui.perfetto.dev opens (docs/traces.md): Chrome's JSON array of trace events, one a line.
 *
 *   any thread ── trace_add: copies 144 bytes under a lock ──► buffer ──► a thread, five times a second ──► FILE
 *                                    full: counted, never waited for
 *
 * Off there is no struct trace, no thread and no memory: who would add an event looks at one pointer. The file is whole lines from its
 * first byte on, so what is left of a process that was killed opens too; "]" comes at the end.
 *
 * A lane is a row of the picture. Slices of one lane nest, since one thread adds them one after the other: where several threads do the
 * same for one peer, each has a lane of its own.
 *
 * Never in an event: keys, addresses, what tensors hold.
 */
#ifndef TRACE_TRACE_H
#define TRACE_TRACE_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

#define TRACE_TEXT_BYTES 88
#define TRACE_EVENTS	 32768u /* that wait for the file, at most */
#define TRACE_THREADS	 64u    /* with lanes of their own; those beyond share the last one */
/* What a viewer writes behind a lane's name, and sorts by: 203 is the lane 2, of the fourth thread. From TRACE_THREADS on they are of
 * what `weft trace merge` puts beside a lane. */
#define TRACE_LANE_STEP	 100u

struct trace;

struct trace_options {
	const char *file;             /* NULL, "" or "off": none. %h is the host, %p the process, %r `who` */
	const char *file_name;        /* as a message calls it: "--trace" */
	const char *who;              /* "t3", "i0", "controller" */
	const char *job, *role;       /* role "trainer", "inference", "controller" */
	int rank;                     /* -1: none */
};

/* *trace NULL: none is wanted. */
int trace_open(struct trace **trace, const struct trace_options *options, struct error *error);
/* Writes what waits, and the end. After the last trace_add. NULL inside is fine; in a forked child nothing is done. */
void trace_close(struct trace **trace);

/* What a lane shows; the order is that of the picture. Of a peer: + its rank. */
enum trace_lane { LANE_JOB = 1, LANE_UPDATE, LANE_READERS, LANE_PACK, LANE_MEMBERS, LANE_CLOCK, LANE_PEERS };

struct trace_event {
	const char *name, *path;      /* static; path NULL: none */
	uint64_t begin_ns, end_ns;    /* clock_ns(); end 0: an instant */
	uint64_t version, bytes;      /* 0: none */
	uint64_t sequence;            /* of a heartbeat; 0: it is none */
	uint64_t from;                /* who sent that */
	uint32_t lane;                /* enum trace_lane, and up */
	uint32_t piece, part;         /* piece 0: none; counted from 1 */
	bool by_thread;               /* the lane is one for each thread */
	char text[TRACE_TEXT_BYTES];  /* a tensor's name, or words; "" none */
};

/* [any thread] `lane_name`: what the lane is called where this is its first event. trace may be NULL. */
void trace_add(struct trace *trace, const struct trace_event *event, const char *lane_name);
/* With "..." where it is cut. */
void trace_text(struct trace_event *event, const char *text);

/* Heartbeats that both sides note, by which `weft trace merge` finds how clocks differ: the first ones, and then few. */
static inline bool trace_notes_beat(uint64_t sequence)
{
	return sequence && (sequence <= 32 || sequence % 64 == 0);
}

#endif
