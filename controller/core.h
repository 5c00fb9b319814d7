/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h -- the controller as a pure function of events: no socket, no clock, no thread.
 *
 *   GATHER ── all joined and declared ──► EXCHANGE ── all connected ──► RUN ── all left ──► DONE
 *      ▲            │ route, prove              │                        │
 *      └── restarts left ── FAILED ◄── a worker lost, failed, or a deadline ──┘
 *
 * A worker is known by (role, rank, incarnation). A hello of a claimed rank: same incarnation,
 * a resend; another one is a claim, which waits until it is decided: the holder still beats a
 * heartbeat later, a duplicate (refused); the holder silent for lost_ms, a restart (the job
 * fails, naming it, unless it is still gathering, when the newcomer takes the place).
 *
 * Workers drive every resend; the controller only answers, and pushes what changes. So its
 * answers are functions of its state: declare -> want, or the plan once there is one;
 * endpoints -> peers when all of them are there; connected -> go when all are; leave -> a
 * heartbeat of sequence 0 (workers count theirs from 1); a heartbeat -> the same sequence.
 * After a failure every message of a member is answered with the failure, until it leaves.
 *
 * Planning is a step of its own, that the shell may run beside its socket: heartbeats must be
 * answered meanwhile, all else may be dropped. No time passes for the core while it plans.
 */
#ifndef CONTROLLER_CORE_H
#define CONTROLLER_CORE_H

#include "base/error.h"
#include "job/parallel.h"
#include "routing/plan/order.h"
#include "routing/plan/table.h"
#include "wire/core.h"

struct controller_options {
	const char *job;
	struct train_spec train;
	struct infer_spec infer;
	const char *policy, *order;    /* rows of routing; NULL: the defaults */
	const char *commit;            /* which ranks show a version together; NULL: the default */
	const char *catch_up_from;     /* "engines", "trainers": who sends the last version to those that lack it; NULL: engines */
	const char *on_loss;           /* "end", "continue": what the loss of a worker means; NULL: end */
	const char *on_miss;           /* "stay", "leave": what an engine does that makes no version of what came; NULL: stay */
	uint32_t sessions_max;         /* inference ranks one trainer may write to; 0: any */
	const struct topology *topology; /* borrowed; NULL: flat */
	bool topology_from_workers;      /* instead: as they report */
	uint32_t heartbeat_ms, lost_ms;
	uint32_t join_timeout_ms;      /* first hello (or start) to all declared */
	uint32_t exchange_timeout_ms;  /* plan sent to all connected */
	uint32_t update_timeout_ms;    /* passed to workers */
	uint32_t orphan_ms;            /* how long workers go on when this controller is lost; 0: the job ends */
	uint32_t hedge_ms;             /* who is so much later than who can send its pieces is not waited for alone; 0: it is */
	bool delta;                    /* trainers keep what they sent last, and send what differs */
	uint32_t engines_min;          /* so many engines are enough to begin with; 0: all are needed */
	uint32_t restarts;             /* how often the job may gather again after a loss */
	uint64_t incarnation;          /* random, never 0 */
};

enum controller_event_type {
	CONTROLLER_RECEIVED,
	CONTROLLER_BROKEN,
	CONTROLLER_PLAN,      /* after CONTROLLER_PLAN_DUE; takes seconds for a large job */
	CONTROLLER_TICK,      /* only when nothing received is waiting: silence is judged here */
	CONTROLLER_INTERRUPT  /* the process is asked to stop: error says by whom */
};
struct controller_event {
	enum controller_event_type type;
	uint64_t now_ms;
	const char *peer;              /* RECEIVED, BROKEN: from where */
	const char *key_role;          /* whose key it came with, "trainer"; NULL: keys are not used */
	struct message *message;       /* RECEIVED; the core takes out what it keeps, the
					  caller frees the rest with message_fini */
	const struct error *error;     /* BROKEN: bytes that did not decode; INTERRUPT */
};

enum controller_action_type {
	CONTROLLER_SEND = ACTION_SEND,
	CONTROLLER_LOG = ACTION_LOG,
	CONTROLLER_PLAN_DUE = ACTION_OWN, /* all is here: step CONTROLLER_PLAN next */
	CONTROLLER_TABLE,  /* a table was planned and proved: dump it if asked; until the next step */
	CONTROLLER_EXIT    /* the job is over: error.code 0 when all was done */
};

struct controller;
int controller_new(struct controller **controller, const struct controller_options *options,
		   uint64_t now_ms, struct error *error);
void controller_free(struct controller **controller);
/* Consumes one event, appends actions. An error here is fatal for the controller (memory). */
int controller_step(struct controller *controller, const struct controller_event *event,
		    struct actions *actions, struct error *error);
/* A worker that has joined is answered there. */
bool controller_is_member(const struct controller *controller, const char *peer);
/* When the next TICK is due even if nothing arrives. */
uint64_t controller_deadline_ms(const struct controller *controller);
/* The state in one line, for a person who asks; memory_free. NULL when out of memory. */
char *controller_line(const struct controller *controller, uint64_t now_ms);

#endif
