/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h -- what the files of the controller's core share; nobody else includes it.
 *
 *   core.c          events in, actions out, the big states
 *   members.c       who is here: hello, claims, heartbeat, leave, silence
 *   declarations.c  what they hold and need: bodies once per digest, contradictions
 *   cluster.c       the topology that workers report
 *   book.c          problem -> table -> each worker's rows
 *   exchange.c      plan, endpoints, peers, connected, go
 *   ending.c        failure, gathering again, deadlines, exit
 *
 * One slot per rank, trainers first. Its phase only grows while a worker holds it.
 */
#ifndef CONTROLLER_STATE_H
#define CONTROLLER_STATE_H

#include "base/array.h"
#include "base/text.h"
#include "controller/core.h"

enum phase {
	PHASE_ABSENT,
	PHASE_JOINED,    /* said hello */
	PHASE_DECLARED,  /* its body may still be on its way */
	PHASE_PLANNED,   /* the plan is sent */
	PHASE_OPENED,    /* its endpoints are here (leg 1) */
	PHASE_CONNECTED, /* leg 3 */
	PHASE_LEFT,      /* done; or, after a failure, told of it */
	PHASE_LOST,      /* silent; the job has failed because of it */
	PHASE_COUNT
};

enum controller_state {
	CONTROLLER_GATHER,
	CONTROLLER_EXCHANGE,
	CONTROLLER_RUN,
	CONTROLLER_FAILED,
	CONTROLLER_DONE,
	CONTROLLER_STATE_COUNT
};

/* A declared body, known or asked for. */
struct body {
	struct digest digest;
	enum role role;
	bool known;
	struct slot *asked; /* who was asked for it; NULL when known or when nobody can be */
	struct layout layout;
	struct holding holding;
};

struct slot {
	struct member who;
	enum phase phase;
	char peer[CONTROLLER_PEER_BYTES]; /* where it was heard last: answers go there */
	struct message_hello hello;
	struct message_declare declare;
	struct body *body;
	uint64_t heard_ms, version;
	char *refused;                /* why the last one to claim this rank was; until one declares */
	uint64_t claim, claim_ms;     /* another incarnation that wants this rank; 0 none */
	uint32_t *peers;              /* slot indexes, in plan order */
	size_t peer_count, peers_ready;
	uint64_t plan_ms;             /* PLANNED: when the plan was sent last */
	struct message_endpoints endpoints; /* records in plan order */
};

/* A worker of an epoch that failed: told so whenever it speaks again. */
struct former {
	uint64_t incarnation, epoch;
};

struct controller {
	struct controller_options options; /* job points to a copy */
	char *job;
	const struct policy *policy;
	const struct order *order;
	enum controller_state state;
	uint64_t epoch;
	uint32_t attempt, restarts_left;
	uint64_t started_ms, stepped_ms, ticked_ms;

	struct slot *slots;
	uint32_t slot_count;
	uint32_t phases[PHASE_COUNT];      /* slots in each phase */
	ARRAY(char *) names;               /* incarnations that joined, in hex; owned */
	struct strmap by_incarnation;      /* those -> slot index */
	ARRAY(struct body *) bodies;
	size_t bodies_missing;             /* bodies wanted and not known */

	uint64_t since_ms;                 /* start of the wait that the deadline is about */
	bool warned;
	bool planning;                     /* the last step planned */
	struct book *book;

	struct error failure;
	bool blamed_someone;
	struct member blamed;
	uint64_t blamed_incarnation;
	uint64_t grace_ms;                 /* FAILED: when the controller exits at the latest */
	ARRAY(struct former) formers;
	uint64_t noise_ms;                 /* start of the time in which warnings are counted */
	uint64_t noise;                    /* warnings since then */
	struct controller_actions *actions; /* of the step that runs */
	uint64_t now_ms;
};

/* core.c */
struct controller_action *action_push(struct controller *controller,
				      enum controller_action_type type);
int action_log(struct controller *controller, bool warn, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* A warning that anyone on the network can cause, again and again: past a number of them in a
 * time they are only counted, and the log survives a flood. */
int action_noise(struct controller *controller, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int action_noise_summary(struct controller *controller);
/* A message to fill in place; NULL when out of memory. Strings in it must be owned. */
struct message *action_send(struct controller *controller, const char *peer,
			    enum message_type type);
int action_refuse(struct controller *controller, const char *peer, uint64_t epoch,
		  const struct error *why, struct error *error);
int action_exit(struct controller *controller, const struct error *why, struct error *error);
int no_memory(struct error *error);

/* members.c */
#define SLOT_TEXT_BYTES (MEMBER_TEXT_BYTES + LIMIT_NAME_BYTES + 40)
char *slot_text(const struct slot *slot, char out[SLOT_TEXT_BYTES]); /* "trainer 3 (host a, pid 7)" */
void slot_phase(struct controller *controller, struct slot *slot, enum phase phase);
void slot_clear(struct controller *controller, struct slot *slot);
struct slot *members_find(struct controller *controller, uint64_t incarnation);
int members_hello(struct controller *controller, const char *peer, struct message *message,
		  struct error *error);
int members_heartbeat(struct controller *controller, struct slot *slot,
		      struct message *message, struct error *error);
int members_leave(struct controller *controller, struct slot *slot, struct message *message,
		  struct error *error);
int members_failure(struct controller *controller, struct slot *slot, struct message *message,
		    struct error *error);
/* Another process claims the rank, and the holder has not shown since that it lives. */
bool members_claim_open(const struct controller *controller, const struct slot *slot);
int members_silence(struct controller *controller, struct error *error);
/* Appends "trainer 2 of 4, inference 0..3 of 8" for the slots in one phase; false if none. */
bool members_in_phase(const struct controller *controller, enum phase phase,
		      struct text *text);
/* "trainers at version 3..4, inference ranks at 3" */
void members_versions(const struct controller *controller, struct text *text);

/* declarations.c */
int declarations_take(struct controller *controller, struct slot *slot,
		      struct message *message, struct error *error);
int declarations_body(struct controller *controller, struct slot *slot,
		      struct message *message, struct error *error);
/* Everything is here and nobody's place is in doubt. */
bool declarations_complete(const struct controller *controller);
/* Asks for planning when that is so. */
int declarations_maybe_plan(struct controller *controller, struct error *error);
/* The slot is going: its share of the asking passes to another, and what only it declared
 * goes with it. */
int declarations_forget(struct controller *controller, struct slot *slot,
			struct error *error);
/* Bodies that no slot declares: of workers of an earlier epoch that came back different. */
void declarations_forget_unused(struct controller *controller);
void body_free(struct body *body);

/* cluster.c: of all declared workers; says in the log how many report no NIC. */
int cluster_reported(struct topology **topology, struct controller *controller,
		     struct error *error);

/* book.c: the plan of one epoch */
struct book;
int book_make(struct book **book, struct controller *controller, struct error *error);
void book_free(struct book **book);
const struct table *book_table(const struct book *book);
/* Tensors held but wanted by nobody: names borrowed from the problem. */
int book_unwanted(const struct book *book, struct text *names, size_t *count,
		  struct error *error);
/* Slot indexes of the ranks that exchange bytes with the slot; memory_free. */
int book_peers(const struct book *book, const struct controller *controller,
	       const struct slot *slot, uint32_t **peers, size_t *count, struct error *error);
/* Fills everything but `attempt` and the timeout; slot->peers must be set. */
int book_plan(const struct book *book, const struct controller *controller,
	      const struct slot *slot, struct message_plan *plan, struct error *error);

/* exchange.c */
int exchange_begin(struct controller *controller, struct error *error);
int exchange_send_plan(struct controller *controller, struct slot *slot, struct error *error);
/* The worker asks again: not for a plan that is on its way. */
int exchange_plan_again(struct controller *controller, struct slot *slot, struct error *error);
int exchange_endpoints(struct controller *controller, struct slot *slot,
		       struct message *message, struct error *error);
int exchange_connected(struct controller *controller, struct slot *slot,
		       struct message *message, struct error *error);

/* ending.c */
/* The job fails because of `blamed` (NULL: of no single worker). */
int ending_fail(struct controller *controller, const struct slot *blamed,
		const struct error *why, struct error *error);
int ending_answer(struct controller *controller, struct slot *slot, struct message *message,
		  struct error *error);
int ending_answer_former(struct controller *controller, const char *peer,
			 const struct message *message, bool *was, struct error *error);
/* "trainer 2 of 4 to join; inference 0..3 of 8 to declare" */
void ending_missing(const struct controller *controller, struct text *text);
/* "; inference 1 was refused: ..." of the first rank that is missing for that, or "". */
void ending_refused(const struct controller *controller, char *out, size_t bytes);
int ending_deadlines(struct controller *controller, struct error *error);
uint64_t ending_next_ms(const struct controller *controller);

#endif
