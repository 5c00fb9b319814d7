/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_wait.h -- inference ranks whose engine shows versions together (commit=engine, commit=job): the worker's own receiver, committer
 * and versions (worker/update/receive.h, commit.h, versions.h), and between them what wait.c and meet.c do with endpoints.
 *
 *   trainer, or a rank that sends what it shows ── END ──► rank ── ARRIVE ──► who decides for it
 *                                               ◄─ ACCEPT ─┘   ◄─ RELEASE, the word before it, where that is written
 *
 * Whatever is said comes late, in order, and takes the place of what was said before. The host waits for the next version all the
 * time, but where it is held up; then it is there again, or its hook fails. After each event all look at what their readers are
 * shown: that is what the judge is told.
 */
#ifndef TESTS_SUPPORT_SIMULATOR_WAIT_H
#define TESTS_SUPPORT_SIMULATOR_WAIT_H

#include "tests/support/simulator_parts.h"
#include "worker/update/commit.h"
#include "worker/update/receive.h"
#include "worker/update/versions.h"

#define PEERS_MAX 16u
#define GRACE_MS  5000u /* so long a trainer that is refused waits to hear of another one that is gone */
#define LATE_MS	  15000u /* and all of them for a rank that does not accept */
#define SEEN_MS	  20u /* that late a rank sees that the process of another one has ended */
#define MS	  1000000ull
#define UPDATE_TIMEOUT_MS 30000u
#define EXCUSES 4u /* wait_together.c */

#define SAID_WORD 100u

/* What one says to another one. */
struct said {
	uint32_t tag; /* 0: the first half of a word, before the RELEASE that brings the other one */
	union {
		struct update_accept accept;
		struct update_end end;
		struct update_abort abort;
		struct update_arrive arrive;
		struct update_release release;
		struct update_give_up give_up;
		struct update_later later;
	} u;
	bool writes; /* `word` lies there before it is heard, or, of SAID_WORD, nothing is */
	uint64_t word;
};

/* A worker's ends of its pairs, by peer of its plan. */
struct ends {
	struct said said[PEERS_MAX];
	bool unread[PEERS_MAX];
	struct update_accept accept[PEERS_MAX]; /* who sends: the latest; opening 0: none */
	uint64_t used[PEERS_MAX];		/* and the opening that it has used up */
};

struct waiting {
	struct versions versions;
	_Atomic uint64_t *word; /* this rank's own, of this plan; NULL: it agrees with nobody */
	struct receiver receiver;
	struct receive_peer peers[PEERS_MAX];
	struct receive_link links[PEERS_MAX];
	bool gone[PEERS_MAX];		   /* by peer of the plan, as all above */
	uint32_t first, count;		   /* peers that are waited for: trainers, or who sends what it shows */
	uint32_t mate_at[PEERS_MAX];	   /* those that it agrees with, peers of the plan: */
	uint32_t all_count;
	uint32_t mates_from, mate_count;   /* of them those that are met now */
	uint64_t alone;			   /* commit=job: as wait.h of the worker has it, to `settled` */
	bool by_plan, holds;
	uint32_t news;
	uint64_t said, settled;
	uint64_t later[PEERS_MAX], began_at, arrived_at, excused_at;
	struct commit_link mates[PEERS_MAX];
	char names[PEERS_MAX][MEMBER_TEXT_BYTES];
	struct committer committer;
	bool decided_for, mapped, written, shares; /* shares: a word with some mate */
	bool waits;			   /* a wait has begun, and has not ended */
	bool asks_anew, opened, started_over;
	uint32_t copy;			   /* that is open */
	uint64_t past, mates_past;	   /* past: of the plans before */
	uint64_t copy_until;		   /* 0: no copy was waited for yet */
	bool copy_used;
	bool loading, fails;		   /* the hook runs; the next one fails */
	uint64_t loaded_at, away_until, last; /* last: the host leaves when it has that, its work done; 0: never */
	bool acting, again;
	uint64_t seen_past, seen_shown;	   /* as the judge knows them */
};

static inline uint32_t mate_peer(const struct waiting *waiting, uint32_t mate)
{
	return waiting->mate_at[waiting->mates_from + mate];
}

/* simulator_wait_open.c */
void wait_new(struct simulation *simulation, struct worker *worker);
void wait_closes(struct simulation *simulation, uint32_t index);
void wait_opens(struct simulation *simulation, uint32_t index);
/* That peer is gone; the controller is told, unless it would only have sent a copy. */
bool wait_misses(struct simulation *simulation, uint32_t index, uint32_t peer);
/* Before a wait: where a copy that another rank sends is here, or never comes, trainers are waited for from now on. False: it may
 * still be written. */
bool wait_begins_copy(struct simulation *simulation, uint32_t index);

/* simulator_wait.c */
/* The host leaves its wait, and is back at that time. */
void wait_is_left(struct simulation *simulation, uint32_t index, uint64_t until);
void wait_acts(struct simulation *simulation, uint32_t index);
void wait_publishes(struct simulation *simulation, uint32_t index, uint64_t version);
void wait_looks_at(struct simulation *simulation, uint32_t index, uint64_t at);
uint64_t wait_now_ns(const struct simulation *simulation);

/* simulator_meet.c */
void meet_opens(struct simulation *simulation, uint32_t index);
void meet_decides(const struct worker *worker); /* whether another one decides for it */
bool meet_is_shown(struct waiting *waiting);
bool meet_shows(struct simulation *simulation, uint32_t index, uint64_t version);
bool meet_loses_leader(struct simulation *simulation, uint32_t index, struct error *error,
		       struct receive_event *out);
bool meet_hides(struct waiting *waiting, uint64_t version);
void meet_runs(struct waiting *waiting);
/* One look at the meeting of the step. True: *event says what came of it. */
bool meet_looks(struct simulation *simulation, uint32_t index, const struct receive_step *step, struct error *error,
		struct receive_event *event);
/* Between meetings: the same, if one of them has given up or is gone. */
bool meet_hears(struct simulation *simulation, uint32_t index, struct error *error, struct receive_event *event);
void meet_cannot(struct simulation *simulation, uint32_t index, uint64_t version, const char *why);
/* What readers of all ranks are shown by now. */
void meet_notes(struct simulation *simulation);

/* simulator_together.c, commit=job: as the functions of wait_together.c that are named so */
bool together_is_other_engine(const struct worker *worker, uint32_t peer);
void together_chooses(struct worker *worker);
void together_meets_all(struct simulation *simulation, uint32_t index);
bool together_is_by_plan(const struct worker *worker);
bool together_may_be_let_go(const struct waiting *waiting);
bool together_loses(struct simulation *simulation, uint32_t index, uint32_t peer, const struct error *why);
void together_excuses(struct simulation *simulation, uint32_t index);
void together_drops_late(struct simulation *simulation, uint32_t index);
bool together_has_begun(const struct worker *worker, uint64_t version);
bool together_is_to_show(const struct worker *worker);
bool together_promises(struct simulation *simulation, uint32_t index, uint64_t version);
uint64_t together_promised(const struct waiting *waiting);
/* Before the plan is the worker's. */
void together_settles(struct simulation *simulation, uint32_t index, const struct message_plan *plan);

/* simulator_pairs.c */
void pairs_say(struct simulation *simulation, uint32_t index, uint32_t peer, const struct said *said);
void pairs_hear(struct simulation *simulation, const struct happening *event);
/* Who that peer of the worker's plan is, by the same plan, dead or alive; CONTROLLER: nobody. */
uint32_t pairs_peer(const struct simulation *simulation, const struct worker *worker, uint32_t peer);
bool pairs_sees_end(const struct simulation *simulation, const struct worker *worker, uint32_t peer);

enum permission { PERMISSION_LATER, PERMISSION_GIVEN, PERMISSION_NEVER };
/* Of that peer, for the version. */
enum permission pairs_permission(const struct worker *worker, uint32_t peer, uint64_t version);
void pairs_end(struct simulation *simulation, uint32_t index, uint32_t peer, uint64_t opening, uint64_t version);

/* simulator_send.c: of a trainer */
void send_new(struct worker *worker);
void send_closes(struct worker *worker);
void send_opens(struct worker *worker);
void send_begins(struct simulation *simulation, uint32_t index, uint64_t version);
void send_acts(struct simulation *simulation, uint32_t index);
/* It waits until all accept a version that it is to stop before: it begins nothing now. */
bool send_pauses(struct simulation *simulation, uint32_t index);
/* It does not reach that rank, and goes on without. */
void send_drops(struct simulation *simulation, uint32_t index, uint32_t rank);
/* The next version that it sends it gives up. */
void send_aborts(struct worker *worker);
/* simulator_data.c: it has sent all of that version, or given it up. */
void worker_sent(struct simulation *simulation, uint32_t index, uint64_t version, bool aborted);

#endif
