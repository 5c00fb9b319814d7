/* SPDX-License-Identifier: Apache-2.0
 *
 * control_state.h -- what the control thread and the host thread share; of control.c, and of control_asked.c, which is what the
 * host asks and is told while the job runs. Nobody else includes it.
 */
#ifndef WORKER_CONTROL_CONTROL_STATE_H
#define WORKER_CONTROL_CONTROL_STATE_H

#include "base/array.h"
#include "worker/control/control.h"
#include "worker/control/dealer.h"

#include <pthread.h>
#include <stdatomic.h>

/* From the host thread to the core. */
struct post {
	enum worker_event_type type;
	struct message_endpoints endpoints; /* owned */
	struct error error;
	uint64_t version, next, promised;
	uint32_t attempt, number;
	struct member member;
	bool done, repeats, between, anew;
};

struct control {
	char log_name[16];     /* of the worker */
	struct dealer *dealer; /* the control thread's while it runs */
	int wake;
	struct transport_domain *domain;
	struct activity_board *activity; /* NULL: nobody is told */
	struct worker_core *core; /* the control thread's once it runs */
	pthread_t thread;
	/* of the heartbeat that was sent last; the control thread's */
	uint64_t beat, beat_ns, beat_from;
	struct trace *trace; /* NULL: none is wanted */
	bool running;
	_Atomic bool failed;
	_Atomic bool connected; /* dealer_is_connected */
	_Atomic uint32_t heartbeat_ms;
	_Atomic uint32_t gone_count;  /* as gone.count, */
	_Atomic uint32_t gone_before; /* and of these before the plan was made; under lock too */
	_Atomic uint32_t news;
	_Atomic uint32_t pause; /* number of `asked`; 0: no pause is asked for, or it is over */
	enum role role;
	_Atomic uint64_t
		begun; /* trainer: it has begun this version, or is about to; rank: control_over */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* under lock */
	ARRAY(struct post) posts;
	ARRAY(struct control_gone) gone;
	struct message_plan plan;   /* to be opened, where opens, */
	struct message_peers peers; /* and connected */
	bool opens, connects;
	enum worker_state state;
	struct message_pause asked;
	bool paused;	  /* the host is, and no plan has come since */
	uint32_t attempt; /* of the plan that the host has */
	struct error failure;
	struct members blamed; /* for it; count 0: nobody */
	struct control_figures figures;
	bool settled; /* worker_core_settled */
	bool stop;
};

/* To the core, on its thread. */
int control_post(struct control *control, const struct post *event, struct error *error);

#endif
