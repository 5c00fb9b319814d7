/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch.h -- one plan: the workers it was made from, the routing table, how each of them reads its
 * part, and how far they have come in opening and connecting endpoints.
 *
 *   epoch_new ─ epoch_add per worker ─ epoch_plan ►  legs: PLANNED ─► OPENED ─► CONNECTED  ─► go
 *
 * It knows neither the membership nor the job: it holds its workers (worker.h), so it may be made
 * beside another one, and stays what it is while ranks change hands. Each of its parties is one
 * worker, in the order in which they were added: trainers first, by rank.
 *
 *   epoch.c          life, legs
 *   epoch_problem.c  workers -> routing problem -> table
 *   epoch_rows.c     the table as each worker reads it
 *   known.c          what of that it has already
 *   epoch_cluster.c  the topology that workers report
 *   epoch_pairs.c    which transport each pair uses
 *   epoch_copy.c     which inference ranks send others what they show
 *   epoch_keep.c     which pairs keep the endpoints that they have
 *   epoch_stand_in.c which trainer can send another one's pieces
 */
#ifndef CONTROLLER_EPOCH_H
#define CONTROLLER_EPOCH_H

#include "base/pool.h"
#include "base/text.h"
#include "controller/known.h"
#include "controller/worker.h"
#include "job/commit.h"
#include "job/parallel.h"
#include "routing/plan/order.h"
#include "routing/plan/table.h"
#include "wire/core.h"

enum leg {
	LEG_PLANNED,   /* the plan is sent */
	LEG_OPENED,    /* its endpoints are here (leg 1) */
	LEG_CONNECTED, /* leg 3 */
	LEG_COUNT
};

struct party {
	struct worker *worker;              /* held */
	bool away;                          /* it has left, with its engine: nothing goes there or comes from it, and it is told nothing */
	bool planned;                       /* it was still here when the plan was made, which has rows for it */
	enum leg leg;
	uint32_t *peers;                    /* party indexes, in plan order: trainers first. An inference
					       rank's mates (job/commit.h) are peers too */
	size_t peer_count, peers_ready;     /* of them, not PLANNED any more */
	const uint32_t *served;             /* trainer, with --hedge: the peers that it has pieces for */
	size_t served_count;
	uint32_t decider;                   /* inference rank: 1 + the one that decides for all who show versions with it; 0: none, or itself */
	uint32_t stand_in;                  /* trainer: 1 + the rank of the one that can send its pieces; 0: none can */
	uint32_t stands_for;                /* .. and of the one that it is that for */
	const struct party *donor;          /* the inference rank that sends it what it shows; NULL: none does */
	uint64_t plan_ms;                   /* when the plan was sent last */
	struct known *told;                 /* what of the plan it is told, once it was; NULL: it was not */
	struct known *had;                  /* the same of the one that it has; NULL: it has none */
	struct message_endpoints endpoints; /* not PLANNED: records in plan order */
	bool *kept;                         /* by place in peers: that pair keeps its endpoint; NULL: none does */
	size_t kept_count;
	struct message_endpoints before;    /* with kept ones: what it said when they were opened */
	struct region_record *changed;      /* and of its regions what it has said to be otherwise since */
	size_t changed_count;
};

struct epoch {
	struct pool pool;             /* owns the arrays */
	uint64_t number;
	uint32_t attempt;
	uint32_t trainers, count, capacity;
	struct party *parties;
	uint32_t at[LEG_COUNT];       /* parties at each */
	bool ran;                     /* all were told to go: paths that are not new then have been probed */
	bool followed;                /* epoch_rules.followed */
	bool adopted;                 /* its parties ran before it was made: their endpoints were exchanged elsewhere */
	bool foreign;                 /* .. and by another plan than this one, */
	uint32_t run_by;              /* of that attempt; 0: nobody runs */
	uint32_t *uses;               /* of these three: by epochs of one plan */
	struct topology *reported;    /* by the workers, where the plan uses that */
	struct problem *problem;
	struct table *table;          /* NULL until planned */
	uint32_t *ordinals;           /* by piece of the table */
	bool *ranks_away;             /* by inference rank, as parties[..].away */
	struct send_order of[ROLE_COUNT]; /* routes by rank, canonical inside */
	struct send_order sends;
};

/* What a plan is made by; all borrowed. */
struct epoch_rules {
	const struct train_spec *train;
	const struct infer_spec *infer;
	const struct policy *policy;
	struct plan_options options;
	enum commit commit;
	bool topology_from_workers; /* instead of the options': as they report */
	bool followed;              /* another plan may take this one's place: what workers have of it is noted */
	bool hedge;                 /* who is late has another one send its pieces, where one can */
};

/* Out of memory is -ERROR_MEMORY everywhere here, in no words. */
int epoch_new(struct epoch **epoch, uint64_t number, uint32_t attempt, uint32_t trainers,
	      uint32_t ranks);
/* The next party: trainers first, by rank; declared, its body known. */
void epoch_add(struct epoch *epoch, struct worker *worker);
/* The same, of one that has left: `worker` was the last one there. planned: the plan is to be as if it had not. */
void epoch_add_away(struct epoch *epoch, struct worker *worker, bool planned);
/* When all are added. before: the one that it follows, whose plan is kept where it can be (routing/plan/keep.h), and is this
 * one where the same is declared by all; NULL: none. Who has rows of it is not to be sent them. Says in the log how many report no
 * NIC, if that counts. */
int epoch_plan(struct epoch *epoch, const struct epoch *before, const struct epoch_rules *rules,
	       struct actions *actions, struct error *error);
void epoch_free(struct epoch **epoch);

/* Tensors held but wanted by nobody: how many, and some of their names. */
int epoch_unwanted(const struct epoch *epoch, struct text *names, size_t *count);
/* Fills everything but the timeout; rows only where the worker has not got them. */
int epoch_rows(struct epoch *epoch, uint32_t party, struct message_plan *plan, struct error *error);
/* Leg 1: takes the endpoints, or -code and why the peers could not use them. */
int epoch_opened(struct epoch *epoch, uint32_t party, struct message_endpoints *endpoints,
		 struct error *why);
/* Leg 2 is due: its own endpoints and those of all its peers are here. */
bool epoch_peers_ready(const struct epoch *epoch, uint32_t party);
int epoch_peers(const struct epoch *epoch, uint32_t party, struct message_peers *peers);
/* Leg 3. */
void epoch_connected(struct epoch *epoch, uint32_t party);
bool epoch_all_connected(const struct epoch *epoch);
/* Planned, and all of them have what they need. same: by this plan. run_by: the attempt of the one that those run by who have not
 * stopped; 0: none do. */
void epoch_adopt(struct epoch *epoch, bool same, uint32_t run_by);
/* Its invariants, where asserts are on. */
void epoch_check(const struct epoch *epoch, uint64_t now_ms);

/* epoch_pairs.c: NULL where the workers name one transport for all; else, once there is a table, an error
 * that says of the first pair with bytes to move which none reaches why. */
int epoch_pairs(struct pairs **pairs, struct pool *pool, const struct epoch *epoch,
		struct error *error);
int epoch_pairs_check(const struct epoch *epoch, const struct epoch_rules *rules, struct error *error);
/* What the worker has of a list; NULL: not that one. */
const struct transport_offer *epoch_offer(const struct worker *worker, const char *name);
/* "" where there is one for all. */
const char *epoch_pair_transport(const struct epoch *epoch, struct member a, struct member b);
/* By which the one, of two inference ranks, sends the other what it shows; "" where there is one for all; NULL: by none. */
const char *epoch_copy_transport(const struct epoch *epoch, const struct worker *from, const struct worker *to);

/* Behind what is wrong between two inference ranks that agree (job/commit.h). */
#define EPOCH_MATES_WHY \
	". They show versions together, so they must reach each other: --commit rank lets each show its own"

/* epoch_copy.c: `donor`, an inference rank, can send that one all that it shows. */
bool epoch_can_copy(const struct epoch *epoch, uint32_t donor, uint32_t rank);
/* .. and shall; before any plan is sent. */
int epoch_copy(struct epoch *epoch, uint32_t donor, uint32_t rank);
/* Those two are peers; and the second becomes one of the first, before any plan is sent. */
bool epoch_has_peer(const struct party *party, uint32_t peer);
int epoch_add_peer(struct epoch *epoch, struct party *party, uint32_t peer);
/* What the first, of two inference ranks, has to do with the second. */
enum plan_copy epoch_copy_of(const struct party *party, const struct party *peer);

/* epoch_stand_in.c: once parties have their peers; and how many trainers have nobody. */
int epoch_stand_ins(struct epoch *epoch);
uint32_t epoch_lacks_stand_in(const struct epoch *epoch);

/* epoch_keep.c: when its options are set, of a plan that is told by what differs: peers that are to it what they were. */
void epoch_leave_out_peers(const struct party *party, struct message_plan *plan);
/* From that one, which goes; before any plan is sent, and when copies are chosen. whole, by party: it can keep what
 * it has. */
int epoch_keep(struct epoch *epoch, struct epoch *before, const bool *whole);
/* The pair of the party and that place in its peers. */
bool epoch_keeps(const struct party *party, size_t peer);
/* What it says with what it said before, as if all were said. */
int epoch_complete(const struct epoch *epoch, struct party *party, struct message_endpoints *said, struct error *why);
void epoch_forget_kept(struct party *party);
/* Those that show versions together, of who is here. Once it is planned. */
static inline struct commit_ranks epoch_commits(const struct epoch *epoch, const struct epoch_rules *rules)
{
	return (struct commit_ranks){rules->commit, epoch->count - epoch->trainers, rules->infer->tp, epoch->ranks_away};
}

/* epoch_problem.c: what all who are in the plan declare alike */
const struct message_declare *epoch_labels(const struct epoch *epoch);

/* epoch_cluster.c, epoch_rows.c: of epoch_plan */
int epoch_cluster(struct topology **topology, const struct epoch *epoch, struct actions *actions,
		  struct error *error);
int epoch_number_rows(struct epoch *epoch, const struct epoch_rules *rules);

#endif
