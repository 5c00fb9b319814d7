/* SPDX-License-Identifier: Apache-2.0
 *
 * core_state.h -- what a worker's control core knows, shared by its files; nobody else includes it.
 *
 *   core.c        events in, actions out; states, deadlines, failure
 *   core_hear.c   what the controller says, by message
 *   core_say.c    what the worker says: the latest unanswered message of each state
 */
#ifndef WORKER_CONTROL_CORE_STATE_H
#define WORKER_CONTROL_CORE_STATE_H

#include "base/array.h"
#include "base/assert.h"
#include "worker/control/core.h"

#define FAILURE_SENDS 5 /* a worker that failed has no time to wait for an answer */
#define FORMER_COUNT  8 /* controllers given up that are still recognised */

/* A peer that this worker goes on without, and no controller has said yet that it is gone. */
struct drop {
	struct member member;
	struct error why;
	uint64_t version, since_ms;
	bool said; /* in the log, too: the controller did not answer with a line of its own */
};

/* Another controller answers in the place of the one that was lost: it is asked to take this worker over, which runs, or exchanges a
 * plan after others. */
enum adoption {
	ADOPTION_NONE,
	ADOPTION_HELLO,   /* its welcome is waited for */
	ADOPTION_DECLARE  /* its go, when it knows what all declare */
};

/* Of one role, and a rank from the first one on. */
struct left {
	struct member first;
	uint32_t count;
	uint32_t number; /* as many have left by then */
};

struct worker_core {
	struct worker_core_options options;
	enum worker_state state;
	uint64_t controller; /* incarnation; 0 before the welcome */
	uint64_t former[FORMER_COUNT];
	uint32_t former_count;
	uint64_t epoch, version, sequence;
	uint32_t heartbeat_ms, lost_ms;
	struct patience joining;
	uint64_t heard_ms, beat_ms, resend_ms, stepped_ms, leaving_ms;
	bool runs;			/* it came to a job that runs, which takes it in */
	uint32_t orphan_ms;		/* how long it goes on without the controller */
	bool orphaned;			/* it does */
	enum adoption adoption;
	uint64_t candidate;		/* of ADOPTION_HELLO */
	uint64_t expired_ms;		/* when the join deadline passed; 0: it has not */
	bool unreached, said_unreached; /* something stands between the controller and us */
	struct error unreached_why;
	bool wanted; /* the controller asked for the body */
	bool endpoints_ready, done;
	uint32_t failure_sends; /* still to go */
	struct error failure;
	struct members blamed; /* the failure is that one's loss; count 0: nobody's, or its own */
	struct error owed; /* it failed before the controller was known, who is told first */
	struct message plan, peers, endpoints; /* the last ones; zeroed until they are here */
	ARRAY(struct message) former_plans;    /* and their peers: the host may be at one of them */
	struct message peers_before;           /* of the plan before, whose endpoints may be kept; zeroed: of none */
	struct message_pause pause;            /* the last one asked for; number 0: none was */
	struct message_paused paused;          /* the answer; number 0: none yet */
	bool halts;                            /* the host was asked to stop since the plan */
	struct message_paused stopped;         /* where it did, until it runs again; number 0: it did not */
	bool anew;                             /* another controller makes another plan: it is told of `stopped`, and the host sleeps on */
	uint32_t paused_over;                  /* pauses up to this one have ended in a plan */
	uint32_t left_before;                  /* as many had left when the plan was made */
	ARRAY(struct drop) drops;
	ARRAY(struct left) left; /* of each `gone` that was heard since then, from this controller, */
	ARRAY(struct members) engines_lost, engines_done; /* and the engines among them, from whichever */
	/* of the running step */
	struct actions *actions;
	uint64_t now_ms;
};

/* All that follows fails in one way, out of memory, and marks it in the actions: the step goes on as
 * far as it can and fails at its end. */

#define say(core, warn, ...) action_log((core)->actions, warn, __VA_ARGS__)

static inline bool have_plan(const struct worker_core *core)
{
	return core->plan.type == MESSAGE_PLAN;
}

static inline bool have_peers(const struct worker_core *core)
{
	return core->peers.type == MESSAGE_PEERS;
}

/* How many engines and trainers it knows to have left. */
static inline uint32_t heard_gone(const struct worker_core *core)
{
	return core->left.count ? core->left.items[core->left.count - 1].number : core->left_before;
}

/* It has a plan, and goes on without those that leave. */
static inline bool goes_on(const struct worker_core *core)
{
	return have_plan(core) && core->plan.u.plan.continues && core->state >= WORKER_PLANNED &&
	       core->state <= WORKER_RUN;
}

/* It has run, and needs no controller to know what it knows: it goes on, or waits where it stopped, until there is one. */
static inline bool survives(const struct worker_core *core)
{
	return core->orphan_ms && (core->state == WORKER_RUN ||
				   (core->state >= WORKER_PLANNED && core->state <= WORKER_CONNECTED &&
				    core->stopped.number));
}

/* Its host sleeps where it had stopped for a controller that was lost. */
static inline bool stands(const struct worker_core *core)
{
	return core->anew && core->stopped.number;
}

/* core.c */
void core_enter(struct worker_core *core, enum worker_state state);
/* `told`: how many times the controller is to hear it; 0 when it said so itself. */
void core_fail(struct worker_core *core, const struct error *why, uint32_t told);
/* A job that has run before takes it in, or goes on with it: the controller has the deadline, and knows who is missing. */
bool core_is_taken_in(const struct worker_core *core);
/* The host is at the last one. */
void core_forget_plans(struct worker_core *core);
/* The controller told the job's end. */
void core_told_the_end(struct worker_core *core, int code, const char *text);

/* core_say.c */
void say_copy(struct worker_core *core, struct message *message);
void say_leave(struct worker_core *core);
void say_failure(struct worker_core *core);
/* Again, if its state has something to say that was not answered. */
void say_latest(struct worker_core *core);
bool say_resends(const struct worker_core *core);

/* core_hear.c */
/* The controller has said that it is gone. */
bool hear_is_gone(const struct worker_core *core, struct member member);
void hear_message(struct worker_core *core, struct message *message);

#endif
