/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_parts.h -- what the files of the simulator share: simulator.c (time, network,
 * controller), simulator_worker.c (workers), simulator_data.c (their shadow of a data plane), simulator_view.c
 * (looking at it). With commit=engine besides: simulator_send.c (trainers), simulator_wait.c, simulator_wait_open.c and
 * simulator_meet.c (ranks), simulator_pairs.c (what they say to each other); and with commit=job simulator_together.c.
 */
#ifndef TESTS_SUPPORT_SIMULATOR_PARTS_H
#define TESTS_SUPPORT_SIMULATOR_PARTS_H

#include "base/array.h"
#include "tests/support/history.h"
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CONTROLLER UINT32_MAX

enum event_type { EVENT_DELIVER, EVENT_OPENED, EVENT_CONNECTED, EVENT_WRITE, EVENT_SIGNAL, EVENT_COPY, EVENT_SAID, EVENT_LOOKS };

struct happening {
	uint64_t at, order;
	enum event_type type;
	uint32_t to, from;    /* workers, or CONTROLLER */
	uint64_t life;        /* WRITE: incarnation that began it */
	unsigned char *bytes; /* DELIVER, SAID */
	size_t length;
	uint64_t version;     /* WRITE, SIGNAL */
	uint32_t peer;        /* WRITE, COPY: index into plan peers; CONNECTED, SIGNAL: attempt */
	uint32_t attempt;     /* COPY, SAID */
	struct digest digest; /* SIGNAL */
};

/* An endpoint to that process, of that plan. */
struct link {
	struct member peer;
	uint64_t incarnation;
	uint32_t attempt;
};

struct worker {
	struct simulation_worker what;
	char name[MEMBER_TEXT_BYTES + 8], peer[PEER_BYTES];
	bool alive;
	struct worker_core *core;
	struct layout layout;
	struct holding holding;
	struct error error;
	const struct message_plan *plan;
	uint64_t partition_until, version;
	uint64_t arriving;    /* version whose signals are counted, */
	uint64_t arrived;     /* by trainer, a bit each, */
	uint64_t gone;        /* and those that have left since the plan */
	uint64_t gone_ranks;  /* trainer: these have, a bit each */
	uint64_t past;        /* given up */
	struct message_pause pause; /* number 0: none is asked for */
	struct message_pause asked; /* rank: the latest, whether it is to stop for it or not */
	uint32_t news;        /* rank: so often it has heard of plans, pauses and losses */
	uint64_t begun, begins; /* trainer: last one, and the one that it has stopped before; 0: none */
	uint64_t repeating;   /* trainer: the version that it sends once more; 0: none */
	bool repeats;         /* trainer: it has stopped in weft_update_repeat */
	uint64_t copies;      /* rank: another one sends it this version first; 0: none does */
	uint32_t sends;       /* rank: to so many others, what it shows */
	bool stopped;         /* rank: it has said so, and takes nothing any more */
	ARRAY(struct link) links;
	bool anew;            /* it cannot keep its endpoints */
	uint64_t said_bytes;  /* by it and to it, but for heartbeats */
	uint64_t last_at[2];  /* latest delivery to, from: keeps order */
	/* commit=engine: simulator_wait.h */
	struct ends *ends;
	struct sending *sending; /* trainer: simulator_send.h */
	struct waiting *waiting; /* rank: and of what is above, only gone, gone_ranks, copies, sends and stopped are used */
	uint64_t over;        /* rank: what has not come of versions up to this one never does */
	uint64_t given_up;    /* trainer: the last one that it has begun and given up; 0: none */
	uint64_t sends_until; /* rank: who has not said by then where to is sent nothing */
	uint64_t ended_at;    /* it was killed then, */
	bool ends_unseen;     /* and none of the other side sees it */
};

struct simulation {
	struct simulation_options options;
	uint64_t now, order, random, incarnations;
	struct controller *controller;
	bool controller_alive, over;
	struct error end;
	ARRAY(struct worker *) workers;
	ARRAY(struct happening) events;
	struct text transcript;
	struct history history;
	bool together;        /* ranks of an engine show versions together */
	ARRAY(_Atomic uint64_t *) words; /* theirs, of all plans */
};

/* simulator_links.c: to those of its plan; and, when the job runs, both sides have the same. */
void worker_connects(struct worker *worker, const struct message_peers *peers);
void worker_checks_links(struct simulation *simulation, struct worker *worker);

/* simulator.c */
uint32_t simulation_dice(struct simulation *simulation, uint32_t sides);
void simulation_line(struct simulation *simulation, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
struct happening *simulation_later(struct simulation *simulation, uint64_t at,
			       enum event_type type);
void simulation_send(struct simulation *simulation, uint32_t worker, bool to_controller,
		     const struct message *message);
/* What must hold after every step. */
void simulation_check(struct simulation *simulation);

/* simulator_data.c */
struct fact *worker_note(struct simulation *simulation, const struct worker *worker, enum fact_kind kind,
			 uint64_t version);
void worker_planned(struct simulation *simulation, const struct worker *worker);
void worker_gives_up(struct simulation *simulation, uint32_t index, uint64_t version);
void worker_pauses(struct simulation *simulation, uint32_t index);
void worker_begins(struct simulation *simulation, uint32_t index, uint64_t version);
void worker_counts(struct simulation *simulation, uint32_t index);
void worker_sends_again(struct simulation *simulation, uint32_t index, uint64_t version);
/* By the plan that runs now: who sends a copy begins to, and who is sent one takes nothing else before it. */
void worker_copies(struct simulation *simulation, uint32_t index);
void worker_copied(struct simulation *simulation, const struct happening *event);
void worker_hears_gone(struct simulation *simulation, uint32_t index);
void worker_writes(struct simulation *simulation, const struct happening *event);
void worker_signalled(struct simulation *simulation, const struct happening *event);

/* simulator_worker.c */
void worker_does(struct simulation *simulation, uint32_t index, struct worker_event *event);
void worker_tick(struct simulation *simulation, uint32_t index);
void worker_opened(struct simulation *simulation, uint32_t index);
void worker_connected(struct simulation *simulation, uint32_t index, uint32_t attempt);
bool worker_runs(const struct worker *worker);

#endif
