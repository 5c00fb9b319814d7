/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h -- a worker's side of the control plane as a pure function of events; the mirror of
 * controller/core.h. The shell (control.c) owns the socket, the clock and the transport.
 *
 *   HELLO ─ welcome ► DECLARE ─ want/plan ► PLANNED ─ peers ► CONNECTING ─ go ► RUN ─► LEFT
 *      any state ── refuse, lost, silence, deadline ──► FAILED (the error stays)
 *
 * Where the plan continues without an engine that is lost, RUN stays RUN: whom the host drops is told to the controller
 * until it says that these are gone, as it does of those that others dropped.
 *
 *   RUN ─ pause ► RUN, the host does nothing any more (PAUSED) ─ plan ► PLANNED ─ .. ─ go ► RUN
 *
 * Where an engine comes in, all of it is planned and exchanged again; and again where one goes meanwhile. A worker that comes
 * to a job that runs waits for that as long as the controller answers: it is for trainers to begin an update.
 *
 * A controller that falls silent while updates run is not needed for them: for orphan_ms the worker goes on (--orphan), says
 * what it would, and a leave needs no answer. In a pause, or in the exchange after it, the worker waits as long.
 * Another one that answers there is asked to take the job over: the worker says hello, with the plan that it runs by, and
 * declares, as at the start, and runs on. When that controller has made the same plan of what all declare, it says go. Where
 * the job had paused, what was exchanged is nobody's, and there is another pause, in which who had stopped stands where it had.
 *
 * The latest unanswered message is sent again every resend_ms. Another controller incarnation
 * means a restart: before the plan the worker starts over with hello, after it it fails, or asks to be taken over.
 * A leave is answered by a heartbeat of sequence 0; unanswered, it counts as heard after
 * lost_ms, for nobody waits for a worker that is done. A worker that was told of the job's end
 * leaves once, so that the controller need not wait for it.
 * A worker that fails before it has joined says hello all the same, and its failure to whoever
 * welcomes it: the others are told why, and do not wait for it.
 */
#ifndef WORKER_CONTROL_CORE_H
#define WORKER_CONTROL_CORE_H

#include "base/error.h"
#include "wire/core.h"

enum worker_state {
	WORKER_HELLO, WORKER_DECLARE, WORKER_PLANNED, WORKER_CONNECTING, WORKER_CONNECTED,
	WORKER_RUN, WORKER_LEAVING, WORKER_LEFT, WORKER_FAILED, WORKER_STATE_COUNT
};
const char *worker_state_name(enum worker_state state);

struct worker_core_options {
	const char *job, *controller;      /* controller: its address, for error messages */
	struct message_hello hello;        /* borrowed strings, alive as long as the core */
	struct message_declare declare;    /* borrowed strings */
	const struct layout *layout;       /* inference: body to send when wanted; borrowed */
	const struct holding *holding;     /* trainer */
	struct error failure;              /* it has failed already, and joins only to say so: then
					      nothing is declared; code 0: it has not */
	uint32_t join_timeout_ms;          /* from new to RUN */
	uint32_t resend_ms;                /* default 500 */
};

enum worker_event_type {
	WORKER_EVENT_RECEIVED,    /* message */
	WORKER_EVENT_BROKEN,      /* error: bytes that did not decode */
	WORKER_EVENT_TICK,
	WORKER_EVENT_ENDPOINTS,   /* endpoints: the shell opened them after OPEN (leg 1) */
	WORKER_EVENT_CONNECTED,   /* the shell connected all of plan `attempt` after CONNECT (leg 3) */
	WORKER_EVENT_PAUSED,      /* after PAUSE `number`: the host has stopped (done), or how far it is; next, version as in
				     message_paused */
	WORKER_EVENT_FAILURE,     /* the worker itself failed: error, version; before the welcome it
				     stays in HELLO until it could say so */
	WORKER_EVENT_DROP,        /* the host goes on without `member`: error, version */
	WORKER_EVENT_LEAVE,       /* the host is done (done) or interrupted */
	WORKER_EVENT_VERSION,     /* version ended or published, for heartbeats */
	WORKER_EVENT_UNREACHED    /* error says why the controller is not reached: its name, the
				     connection, the key; NULL: nothing stands in the way */
};
struct worker_event {
	enum worker_event_type type;
	uint64_t now_ms;
	struct message *message;           /* the core takes out what it keeps, the caller
					      frees the rest with message_fini */
	const struct error *error;
	const struct message_endpoints *endpoints; /* copied */
	uint64_t version, next, promised;
	uint32_t attempt, number;
	struct member member;
	bool done, repeats, between, anew;
};

enum worker_action_type {
	WORKER_ACTION_SEND = ACTION_SEND,
	WORKER_ACTION_LOG = ACTION_LOG,
	WORKER_ACTION_OPEN = ACTION_OWN, /* plan: open an endpoint per peer that is not kept, answer with ENDPOINTS; the core's,
					    which keeps it and its peers until it has the ENDPOINTS of another one */
	WORKER_ACTION_CONNECT,  /* peers: connect, answer with CONNECTED. Of all peers of the plan: of those that are kept what they
				   had said before, too, and no record */
	WORKER_ACTION_PAUSE,    /* message.u.pause: the host is to stop as that says, answer with PAUSED, of a trainer at
				   once too */
	WORKER_ACTION_GONE,     /* message.u.gone, without its text: those have left, for the reason `error` */
	WORKER_ACTION_STATE     /* state changed; error set when FAILED */
};

struct worker_core;
int worker_core_new(struct worker_core **core, const struct worker_core_options *options,
		    uint64_t now_ms, struct error *error);
void worker_core_free(struct worker_core **core);
int worker_core_step(struct worker_core *core, const struct worker_event *event,
		     struct actions *actions, struct error *error);
uint64_t worker_core_deadline_ms(const struct worker_core *core);
/* It has nothing more to say to its controller: it left, or failed, and that was heard, came from there, or was said
 * often enough. Never when no controller was found. */
bool worker_core_settled(const struct worker_core *core);
/* FAILED: because the controller says that that one is lost; count 0: it names nobody. */
struct members worker_core_blamed(const struct worker_core *core);
enum worker_state worker_core_state(const struct worker_core *core);

#endif
