/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h -- what the two cores of the control plane share (controller/core.h and
 * worker/control/core.h): pure functions of events, whose answers are actions for their shells.
 */
#ifndef WIRE_CORE_H
#define WIRE_CORE_H

#include "base/error.h"
#include "wire/message.h"

/* A return address as text, terminator included: the routing id of a worker's connection. A
 * worker is known by its incarnation, not by this, so it may reconnect under another one. */
#define PEER_BYTES 64

enum action_type {
	ACTION_SEND, /* message; the controller's goes to peer, a worker's to the controller */
	ACTION_LOG,  /* a line for people (warn: worth a look); simulations show it too */
	ACTION_OWN   /* from here on each core has its own, with the fields that it names */
};
struct action {
	int type;
	char peer[PEER_BYTES];
	struct message message;        /* SEND: owned by the action */
	char *line;                    /* LOG: owned */
	bool warn;
	int state;
	struct error error;
	union {                        /* owned by the core */
		const struct table *table;
		const struct message_plan *plan;
		const struct message_peers *peers;
	};
};
/* A zeroed struct is empty. Out of memory is sticky, as in struct text: what is pushed then is lost,
 * and a core looks once, at the end of its step. */
struct actions {
	struct action *items;
	size_t count, capacity;
	bool failed;
	struct action lost;    /* pushed when there was no memory */
};

/* Never NULL. */
struct action *action_push(struct actions *actions, int type);
/* A copy for an action to own. */
char *action_string(struct actions *actions, const char *text);
void action_log(struct actions *actions, bool warn, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void actions_clear(struct actions *actions);

/* A wait with a deadline, and one warning at a quarter of it. */
struct patience {
	uint64_t since_ms;
	bool warned;
};
enum patience_says { PATIENCE_WAITS, PATIENCE_WARNS, PATIENCE_ENDS };
void patience_begin(struct patience *patience, uint64_t now_ms);
/* WARNS once. */
enum patience_says patience_look(struct patience *patience, uint64_t now_ms, uint64_t limit_ms);
uint64_t patience_next_ms(const struct patience *patience, uint64_t limit_ms);

/* Nothing was done for so long that this process itself stood still (a suspended machine, a
 * debugger): it has not listened, and the others are not to blame for that time. */
bool core_stood_still(uint64_t gap_ms, uint32_t heartbeat_ms, uint32_t lost_ms);
int core_check_job(const char *job, struct error *error);

#endif
