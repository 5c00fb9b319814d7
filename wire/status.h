/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h -- what people see of a running job (`weft status`): what each worker says of itself with its heartbeats, and
 * the controller's answer to whoever asks. Nothing here decides anything: a job whose activity is lost runs as well.
 *
 *   worker ── activity ──► controller: the last one of each ──► report ──► weft status, which judges (cli/status.h)
 *
 * Times are durations, of the clock of who says them. None of it holds a key, an rkey or an address of memory.
 */
#ifndef WIRE_STATUS_H
#define WIRE_STATUS_H

#include "job/member.h"
#include "wire/limits.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a worker does. Numbers are the wire's. */
enum activity {
	ACTIVITY_JOINS,        /* until the job runs */
	ACTIVITY_BETWEEN,      /* no call of an update is in progress: its host computes */
	ACTIVITY_PAUSED,       /* it has stopped for another plan */
	ACTIVITY_BEGINS,       /* trainer: until its ranks accept the version */
	ACTIVITY_OPEN,         /* trainer: the update is open, and its host has yet to write, or to end it */
	ACTIVITY_WRITES,       /* trainer: a call writes */
	ACTIVITY_ENDS,         /* trainer: all is written, until its ranks have been told */
	ACTIVITY_STANDS_BY,    /* trainer: it may yet be asked to stand in for another one (--hedge) */
	ACTIVITY_RECEIVES,     /* rank: until its trainers have ended */
	ACTIVITY_VERIFIES,     /* rank: checksums */
	ACTIVITY_MEETS,        /* rank: until the ranks that it shows versions with are as far */
	ACTIVITY_LOADS,        /* rank: copies what was staged, and its host's hook */
	ACTIVITY_PREPARED,     /* rank: until its host says weft_commit_at */
	ACTIVITY_COUNT
};

/* A NIC since it was opened. */
struct nic_traffic {
	char *name;
	uint64_t bytes;            /* of writes that are complete */
	uint64_t busy_ms;          /* for so long some were on their way */
	uint64_t waiting_bytes;    /* are now */
};

/* The last update that went well, in clocks that overlap: see docs/status.md. */
struct update_clocks {
	uint64_t version, bytes;
	uint64_t update_us;        /* all of it */
	uint64_t wait_us;          /* trainer: for ranks to accept; rank: for bytes */
	uint64_t write_us;         /* trainer */
	uint64_t verify_us, install_us, post_load_us, pause_us; /* rank */
};

struct message_activity {
	enum activity what;
	uint64_t version;          /* that it does it for; 0: none, or the next one */
	uint64_t since_ms;         /* for so long */
	uint64_t bytes;            /* trainer: sent so far, rank: received, since it joined */
	uint64_t busy_ms;          /* trainer: for so long calls were writing, since it joined */
	struct member *waits;      /* for these, if it does: the first LIMIT_WAITS, */
	size_t wait_count;
	uint32_t waits_more;       /* and so many more */
	struct update_clocks last;
	struct nic_traffic *nics;
	size_t nic_count;
	char *trouble;             /* of its process that harms nobody else: a log that cannot be written; "": none */
};

struct message_ask { bool links; }; /* those too: there may be many */

/* A rank of the job. */
struct report_member {
	struct member who;
	char *host;                /* "": nobody has joined */
	uint64_t pid;
	char *phase;               /* "connected", "lost", ..: how far it is, as the controller's log has it */
	uint64_t heard_ms;         /* it was heard so long ago */
	uint64_t version;          /* trainer: ended last; rank: shown */
	uint64_t version_ms;       /* since so long */
	uint64_t plan_bytes;       /* of an update, by the plan */
	bool known;                /* .. and what follows: it has said */
	uint64_t age_ms;           /* so long ago */
	struct message_activity activity;
	uint64_t bytes_per_second; /* between the last two times that it did; of a rank those of the last update */
};

/* A loss or a failure. */
struct report_event {
	uint64_t age_ms;
	struct member who;         /* rank UINT32_MAX: the job */
	int code;
	char *text;
};

struct report_link { uint32_t trainer, rank; uint64_t bytes; char *transport; };

struct message_report {
	char *state;               /* "gathering", .. as the controller's log has it */
	uint32_t attempt;          /* of the plan; 0: none yet */
	uint64_t plans, up_ms;
	uint32_t heartbeat_ms, lost_ms, update_timeout_ms;
	uint32_t trainers, engines, engine_ranks; /* ranks of one engine */
	char *policy, *commit;
	bool continues;
	char *missing;             /* who is waited for, and what for, while it gathers or exchanges; "": nobody */
	uint64_t largest_bytes, bound_bytes; /* of the trainer that sends most, and the least that this could be; 0: no plan */
	uint64_t predicted_us, bound_us;     /* of an update, with a topology; 0: without */
	char *trouble;             /* the controller's own */
	struct report_member *members;
	size_t member_count;
	struct report_event *events;         /* the newest last */
	size_t event_count;
	struct report_link *links;           /* if asked for */
	size_t link_count;
	uint64_t links_left_out;
};

const char *activity_name(enum activity activity); /* "receives" */
/* As of a message's body. */
void message_activity_fini(struct message_activity *activity);
int message_activity_copy(struct message_activity *to, const struct message_activity *from);

#endif
