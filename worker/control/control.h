/* SPDX-License-Identifier: Apache-2.0
 *
 * control.h -- the shell of a worker's control core: one thread that owns the DEALER socket, the
 * core and the clock. The host thread hands it events and takes requests from it; the transport
 * is touched by the host thread alone, as its one-thread rule wants.
 *
 *   host thread                 mutex + condition          control thread          controller
 *   weft_join: control_next ◄── OPEN plan ◄──────────────── core ◄── plan ───────── ROUTER
 *     opens endpoints
 *   control_endpoints ─────────► event ─ eventfd ─────────► core ──► endpoints ────►
 *   any wait: control_failed ◄─ atomic flag ◄────────────── core ◄── lost ─────────
 */
#ifndef WORKER_CONTROL_CONTROL_H
#define WORKER_CONTROL_CONTROL_H

#include "metrics/histogram.h"
#include "transport/transport.h"
#include "worker/control/core.h"

struct control;
struct activity_board;
struct trace;

enum control_request {
	CONTROL_OPEN,      /* open endpoints for *plan, answer with control_endpoints */
	CONTROL_CONNECT,   /* connect to *peers, answer with control_connected */
	CONTROL_RUN,       /* the job runs */
	CONTROL_FAILED,    /* control_error says why */
	CONTROL_NOTHING    /* the slice ended */
};

struct control_options {
	const char *address, *log_name; /* lines of its thread are from log_name */
	const char *key_file; /* "": none; outlives the control */
	bool key_waits;       /* it may come, or be replaced, until the controller was heard */
	enum role role;       /* whose key it must be good for */
};

/* Creates the socket. ERROR_CONFIG: no socket can have the address, or the key file is not good. */
int control_open(struct control **control, const struct control_options *options,
		 struct error *error);
/* Its heartbeats go there (NULL: nowhere), by which clocks are compared. Before it starts; outlives it. */
void control_trace(struct control *control, struct trace *trace);
/* What to wake when the job fails, and what to tell people with each heartbeat; both outlive the control. Before it starts. */
void control_attach(struct control *control, struct transport_domain *domain, struct activity_board *activity);
/* Makes the core and starts the thread. What `options` points at must outlive the control. */
int control_start(struct control *control, const struct worker_core_options *options,
		  struct error *error);
/* Waits up to wait_ms for the next request. What plan and peers point at lives until control_endpoints of another plan has been called:
 * there may be one while this one is still being connected. */
enum control_request control_next(struct control *control, uint32_t wait_ms, struct message_plan *plan,
				  struct message_peers *peers);
/* Takes what endpoints owns. */
int control_endpoints(struct control *control, struct message_endpoints *endpoints,
		      struct error *error);
int control_connected(struct control *control, uint32_t attempt, struct error *error);
void control_version(struct control *control, uint64_t version);
/* This worker failed: the controller tells the others. */
void control_failure(struct control *control, const struct error *failure, uint64_t version);
/* Of a plan that continues: this worker goes on without that one, of the other role. The controller tells the others. */
void control_drop(struct control *control, struct member member, const struct error *why, uint64_t version);
/* [any thread] Who has left a job that goes on: the index-th engine, or trainer, from 0, in the order in which it was heard;
 * false: there are not so many. */
struct control_gone {
	struct member first;
	uint32_t count;
	bool back;             /* another one has come in its place */
	struct error why;
};
bool control_gone(struct control *control, uint32_t index, struct control_gone *gone);
/* [any thread] One of `count` ranks from the first on has since the last plan was made. control may be NULL. */
bool control_have_left(struct control *control, struct member first, uint32_t count);
/* [any thread] Some trainer has. */
static inline bool control_lacks_trainer(struct control *control)
{
	return control_have_left(control, (struct member){ROLE_TRAINER, 0}, UINT32_MAX);
}
/* So many of them had left when the plan was made that control_next handed out last. */
uint32_t control_gone_before(struct control *control);
/* [any thread] The number of the pause that the job is to make, once the host comes to `version`: see message_pause; 0: of
 * none. */
uint32_t control_pause(struct control *control, uint64_t *version);
/* [any thread] A trainer is gone, and what has not come of versions up to this one never does: the others have begun a later
 * one, or stopped. 0: of none that is known. */
uint64_t control_over(const struct control *control);
/* A trainer begins that version unless control_pause, which it asks next, says otherwise. */
void control_begins(struct control *control, uint64_t version);
/* The host has stopped for it, and comes to control_next until that says CONTROL_RUN; see message_paused. Where: in an update that it
 * begins, or waits for; or between two, with nothing new yet; or so that it can send the last one to others, as a trainer that
 * is between two, or a rank whose memory holds it whole. anew: it cannot keep the endpoints that it has. */
enum stopped { STOPPED_IN_UPDATE, STOPPED_BETWEEN, STOPPED_REPEATS };
struct stop {
	uint32_t number;
	uint64_t next, version, promised;
	enum stopped where;
	bool anew;                 /* it cannot keep the endpoints that it has */
};
int control_paused(struct control *control, const struct stop *stop, struct error *error);
/* [any thread] To a rank: of the pause that the job is about to make, its number, the version that trainers have begun, and the one that
 * who has promised it shows already (message_pause); 0: there is none, or that is not known. */
uint32_t control_settles(struct control *control, uint64_t *begun, uint64_t *shows);
/* This rank shows that version, and has promised a later one, which it neither shows nor gives up until the controller says so. */
void control_promises(struct control *control, uint32_t number, uint64_t version, uint64_t promised);
/* [any thread] Counts what the controller has asked of the host since it ran. */
uint32_t control_news(const struct control *control);
bool control_running(const struct control *control);
/* [any thread] */
struct control_figures {
	uint64_t heard_ns;     /* when the controller was heard last; 0: never */
	struct histogram rtt;  /* from a heartbeat to its answer */
};
void control_figures(struct control *control, struct control_figures *figures);
bool control_welcomed(const struct control *control); /* by a controller */
/* Waits until the controller has heard the failure, or said one itself; false: not within wait_ms. */
bool control_settle(struct control *control, uint32_t wait_ms);
/* Says good-bye and waits up to wait_ms until it is on its way. */
int control_leave(struct control *control, bool done, uint32_t wait_ms, struct error *error);
/* [any thread] */
bool control_failed(const struct control *control);
void control_error(struct control *control, struct error *error); /* after control_failed */
bool control_blames(struct control *control, struct member who); /* .. because that one is lost, its controller says */
/* How long after a first symptom the controller's word on its cause can be expected: two of its
 * heartbeats and a little. */
uint32_t control_grace_ms(const struct control *control);
/* Ends the thread; NULL inside is fine. */
void control_close(struct control **control);

#endif
