/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h -- the job: what lives as long as it (the membership), what is running (an epoch), and how
 * far it is. Shared by the files of the controller's core; nobody else includes it.
 *
 *   core.c          events in, actions out, the big states
 *   members.c       hello, claims, heartbeat, leave
 *   losses.c        silence, failures that workers report, whom to blame
 *   gone.c          engines and trainers that leave a job that goes on
 *   absent.c        engines that it begins without
 *   takeover.c      a job that runs, and lost its controller
 *   returns.c       and those that come back: all pause between two versions
 *   copies.c        whom other engines send the last version
 *   settle.c        what all engines show, where one of those that show versions together has left
 *   declarations.c  what they hold and need: bodies once per digest, contradictions
 *   exchange.c      plan, endpoints, peers, connected, go
 *   ending.c        failure, gathering again, deadlines, exit
 *   view.c          all of it in words
 *   status.c        and for `weft status`, with what workers say of themselves
 *
 * Below, and without a job: membership.h, epoch.h and the worker.h that both hold.
 */
#ifndef CONTROLLER_STATE_H
#define CONTROLLER_STATE_H

#include "base/array.h"
#include "base/assert.h"
#include "base/text.h"
#include "controller/core.h"
#include "controller/epoch.h"
#include "controller/membership.h"
#include "metrics/codes.h"

enum controller_state {
	CONTROLLER_GATHER,
	CONTROLLER_EXCHANGE,
	CONTROLLER_RUN,
	CONTROLLER_FAILED,
	CONTROLLER_DONE,
	CONTROLLER_STATE_COUNT
};

/* A worker of an epoch that failed: told so whenever it speaks again. */
struct former {
	uint64_t incarnation, epoch;
};

/* An engine, or a trainer, that has left a job that goes on. */
struct departure {
	struct member first;               /* of its ranks */
	bool back;                         /* another one has come in its place, */
	bool coming;                       /* with the plan that is being made */
	bool absent;                       /* the job began without it (absent.c), */
	bool missing;                      /* or this controller took the job over without it: what it declared nobody knows */
	struct member blamed;
	uint64_t blamed_incarnation;
	struct error why;                  /* ERROR_NONE: its work was done */
};

/* A worker of those that have left, whose place is another's by now: told so whenever it speaks again. */
struct dismissed {
	uint64_t incarnation;
	size_t departure;
};

enum pause_phase {
	PAUSE_NONE,
	PAUSE_TRAINERS, /* asked to stop before the same version */
	PAUSE_RANKS,    /* they have; ranks are asked to, with nothing on its way to them */
	PAUSE_OVER      /* all have: the next plan is due */
};

/* What one was asked, and answered. */
struct paused {
	uint64_t asked, told;              /* message_pause.version, .shows */
	bool stopped;
	bool firm;                         /* it has, or has said twice how far it is: who has not begun to write stops at once */
	uint64_t next, version;            /* as it has answered */
	uint64_t promised;
	bool repeats, between, anew;
	bool fresh;                        /* it comes in with the plan that ends the pause */
};

struct pause {
	enum pause_phase phase;
	uint32_t number;
	uint64_t since_ms;                 /* when the first trainer paused, or when ranks were asked; 0: none has */
	uint64_t next;                     /* version that trainers are about to begin */
	uint64_t repeat;                   /* that they send once more before, to those that lack it; 0: none */
	uint64_t copy;                     /* or that ranks that show it do; 0: none */
	bool settled;                      /* a plan was sent since it began: what follows is decided */
	uint64_t shows;                    /* ranks who have promised this version show it; 0: none has, or that is not known yet */
	uint64_t told;                     /* TRAINERS: ranks know that this version has begun */
	uint64_t missing_ms;               /* OVER: there is no plan without a trainer that has left, or without an engine;
					      since then. 0: there is */
	struct error missing;              /* and why not */
	uint32_t whole;                    /* of those that have left so many were here again when that was tried */
	struct paused *slots;              /* as the membership's */
};

/* What the process in a slot said last of what it does, for people (status.c). */
struct seen {
	uint64_t incarnation;              /* whose that is; 0: nobody's */
	struct message_activity activity;  /* owned */
	uint64_t said_ms, version_ms;      /* when it did; and when its version changed */
	uint64_t bytes_per_second;
};

/* A loss, or a failure. */
struct status_event {
	uint64_t at_ms;
	struct member who;                 /* rank UINT32_MAX: the job */
	struct error why;
};

#define STATUS_ASKERS 64u

/* What is shown to whoever asks, beside what is known anyway. */
struct status {
	struct seen *seen;                 /* as the membership's slots */
	ARRAY(struct status_event) events; /* the last LIMIT_EVENTS */
	uint64_t second_ms;                /* start of the second in which .. */
	uint32_t cost, cost_of[STATUS_ASKERS]; /* of reports in it, and by who asks, by hash */
	uint32_t attempt;                  /* of the plan that follows; 0: none yet */
	uint32_t count[ROLE_COUNT];        /* of its ranks */
	bool planned;                      /* it could be summed */
	uint64_t *bytes[ROLE_COUNT];       /* of an update, by rank */
	uint64_t largest_bytes, bound_bytes, predicted_us, bound_us;
};

struct controller {
	struct controller_options options; /* job points to a copy */
	char *job;
	struct epoch_rules rules;
	enum controller_state state;
	uint64_t started_ms, stepped_ms, ticked_ms;

	struct membership members;
	uint64_t number;                   /* of the epoch that messages belong to */
	uint32_t attempts, restarts_left;
	struct epoch *epoch;               /* NULL while gathering for it; its parties are the
					      slots, in their order */

	bool continues;                    /* --on-loss continue */
	bool misses_leave;                 /* --on-miss leave */
	bool catch_up_trainers;            /* --catch-up-from trainers: no engine sends another one anything */
	ARRAY(struct departure) departures; /* of this epoch, in the order in which they are told */
	ARRAY(struct dismissed) dismissed;
	struct pause pause;
	bool exchanges_again;              /* EXCHANGE: the job has run, and goes on after it */

	struct patience patience;          /* of joining, of the exchange */
	uint64_t came_ms, enough_ms;       /* GATHER: when a worker joined or declared last; since when enough are here, 0: they are not */
	uint64_t done_ms;                  /* .. when one that ran left last, its work done; 0: none has. */
	uint64_t postponed_ms;             /* since when --join-timeout is over, and who has to end does; 0: it is not, or nobody has to */
	bool goes_without;                 /* .. of a job that is taken over: who is not here yet is not waited for any more */
	bool planning;                     /* the last step planned */

	struct error failure;
	bool blamed_someone;
	struct member blamed;
	uint64_t blamed_incarnation;
	bool latecomers;                   /* FAILED: who is absent may be on his way, and is told too */
	bool said_telling;                 /* FAILED: that it waits, and for whom */
	uint64_t grace_ms;                 /* FAILED: when the controller exits at the latest */
	ARRAY(struct former) formers;
	uint64_t noise_ms;                 /* start of the time in which warnings are counted */
	uint64_t noise;                    /* warnings since then */
	struct status status;
	struct code_counts losses[ROLE_COUNT], failures; /* so far, for figures; */
	uint64_t plans;                    /* and so many plans */
	bool failed;                       /* DONE: and not in order */
	struct actions *actions;           /* of the step that runs */
	uint64_t now_ms;
};

/* All that follows fails in one way, out of memory, and marks it in the actions: the step goes on as
 * far as it can and fails at its end. What workers, files and the network get wrong is answered in
 * actions. */
static inline void no_memory(struct controller *controller)
{
	controller->actions->failed = true;
}

/* core.c */
void controller_enter(struct controller *controller, enum controller_state state);
/* A line for people. */
#define say(controller, warn, ...) action_log((controller)->actions, warn, __VA_ARGS__)
/* A warning that anyone on the network can cause, again and again: past a number of them in a
 * time they are only counted, and the log survives a flood. */
void say_noise(struct controller *controller, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* A message to fill in place. Strings in it must be owned. */
struct message *send_to(struct controller *controller, const char *peer, enum message_type type);
void send_refuse(struct controller *controller, const char *peer, uint64_t epoch,
		 const struct error *why);
/* And says so in the log. */
void say_refused(struct controller *controller, const char *peer, uint64_t epoch,
		const struct error *why);
void controller_exit(struct controller *controller, const struct error *why);

/* What a member says goes to one of these. */
typedef void message_handler(struct controller *controller, struct slot *slot,
			     struct message *message);
message_handler members_heartbeat, members_leave, losses_report, losses_drop, returns_paused, declarations_take,
	declarations_body, exchange_endpoints, exchange_connected, status_activity;

/* status.c: what people are shown. Nothing here ends a job: what has no memory is not shown. */
bool status_init(struct controller *controller);
void status_fini(struct controller *controller);
/* A loss (slot NULL: of the job), or its failure. */
void status_note(struct controller *controller, const struct slot *slot, const struct error *why);
void status_version(struct controller *controller, const struct slot *slot);
/* There may be another plan: in the step that planned, which may take long. */
void status_plan(struct controller *controller);
/* What that one's last update took, as figures.h has it; 0: it has not said. */
uint64_t status_last_us(const struct controller *controller, const struct slot *slot);
void status_answer(struct controller *controller, const char *peer, const struct message *message);

/* members.c */
void members_hello(struct controller *controller, const char *peer, struct message *message);
void members_welcome(struct controller *controller, const struct slot *slot);
/* When nobody is left, and nobody comes back. */
void members_maybe_done(struct controller *controller);
/* Those who were to come in, and do not any more. */
void members_send_home(struct controller *controller);

/* losses.c */
/* Because of that one: its engine leaves, or the job fails. */
void losses_end(struct controller *controller, const struct slot *blamed, const struct error *why);
void losses_silence(struct controller *controller);
void losses_restarted(struct error *why, const struct controller *controller,
		      const struct slot *slot);

/* absent.c */
/* It is time to begin with those who are here. */
bool absent_may_begin(const struct controller *controller);
/* A worker has joined, or declared. */
void absent_came(struct controller *controller);
/* The job began without that slot's engine, or this controller took it over without that, or that trainer, which has not come in since. */
bool absent_is(const struct controller *controller, const struct slot *slot);
/* Engines that are not whole count as having left; where a job is taken over, those do who are not in its plan, have left since or are
 * not waited for. */
void absent_leave_out(struct controller *controller);
/* Stands in an epoch for a worker that has never been here; NULL: no memory. worker_release. */
struct worker *absent_worker(const struct slot *slot);

/* gone.c */
/* That slot's engine has left. */
bool gone_is(const struct controller *controller, const struct slot *slot);
/* That rank has just left, its work done, and the rest of its engine may be about to. */
bool gone_may_be_done(const struct controller *controller, const struct slot *slot);
/* That slot can leave, with its engine, without the end of the job. An engine: another one has not, or trainers are here
 * and wait for another one, or they have left, and another one with its work done. A trainer: another process may take its place, or others hold what it held. */
bool gone_may(const struct controller *controller, const struct slot *slot);
void gone_leave(struct controller *controller, const struct slot *blamed, const struct error *why);
/* Its engine had left before this controller came; its processes are new, and come in later. */
void gone_meanwhile(struct controller *controller, const struct slot *slot, const struct error *why);
/* A job was taken over without some, of whom others have come, and run: their job is over. */
void gone_dismiss(struct controller *controller);
/* That slot has left, its work done; with it its whole engine, perhaps, which others then go on without. */
void gone_done(struct controller *controller, const struct slot *slot);
/* An engine has come: the last one, where it had left with its work done, is gone on without. */
void gone_all_done(struct controller *controller);
/* What is new to one that has heard of so many. */
void gone_tell(struct controller *controller, const struct slot *slot, uint32_t heard);
/* Who leaves together with it begins with this one. */
struct member gone_first(const struct controller *controller, const struct slot *slot);
/* How many leave together where that one does. */
uint32_t gone_count(const struct controller *controller, struct member first);
/* How many of the job's engines, or trainers, have not left, or are back. */
uint32_t gone_here(const struct controller *controller, enum role role);
/* The first trainer that has left and is not back; NULL: none has. */
const struct departure *gone_trainer(const struct controller *controller);
/* That are not here, and did not leave with their work done. */
uint32_t gone_lost(const struct controller *controller, enum role role);
/* Says in a plan which are not. */
int gone_away(const struct controller *controller, struct message_plan *plan);
/* One of an engine that has left speaks. */
void gone_answer(struct controller *controller, const struct slot *slot, const struct message *message);

/* One whose place is another's by now does. False: it never was in this job. */
bool gone_answer_former(struct controller *controller, const char *peer, const struct message *message);
/* A new process may have that rank, which has left, or whose engine has. */
bool gone_makes_room(struct controller *controller, struct slot *slot);

/* returns.c */
/* All ranks of that engine, or that trainer, are here and have declared. */
bool returns_whole(const struct controller *controller, struct member first);
/* Where all ranks of an engine that has left are here again, or such a trainer is: the job pauses, and takes it in. */
void returns_maybe_begin(struct controller *controller);
/* --update-timeout, or what workers take without. */
uint64_t returns_update_timeout_ms(const struct controller *controller);
/* Somebody who was waited for has gone again. */
void returns_recount(struct controller *controller);
/* Who has done its work cannot take part in another plan: the job fails, and says so. False: all can. */
bool returns_somebody_left(struct controller *controller);
/* A trainer has left: the job pauses for another plan. */
void returns_begin(struct controller *controller);
/* No engine is here: one is waited for. False: one is. */
bool returns_wait_for_engine(struct controller *controller);
/* There is no plan, for that reason, while a trainer is missing: it is waited for. False: none is. */
bool returns_wait(struct controller *controller, const struct error *why);
/* One that had left is here again, and comes in with the next plan. */
bool returns_engine_comes(const struct controller *controller);
/* Again, if it has not answered. */
void returns_remind(struct controller *controller, const struct slot *slot);
/* To stop before that version, a rank when it has it; but for how far it is, what it has said is void. */
void returns_ask(struct controller *controller, const struct slot *slot, uint64_t version);
/* Ranks, while trainers are waited for: how far those have begun, and what is shown. */
void returns_tell_ranks(struct controller *controller);
/* Somebody who was waited for has gone, or paused. */
void returns_look(struct controller *controller);
void returns_deadlines(struct controller *controller);
/* A plan is made: who comes in with it, .. */
void returns_come_in(struct controller *controller);
/* .. and stays out of it, for now. False: nobody did. */
bool returns_stay_out(struct controller *controller);
/* The version that trainers send once more; 0: none. Of the plan that is to be exchanged, and what all said before it. */
uint64_t returns_repeat(const struct controller *controller);
/* .. to that rank. */
bool returns_is_sent(const struct controller *controller, const struct slot *slot);
/* It is an inference rank that comes in, or gave up the version that trainers ended last. */
bool returns_lacks_last(const struct controller *controller, const struct slot *slot);
/* Those are to blame for it that there is no plan with them. */
void returns_turn_away(struct controller *controller, const struct error *why);
/* The job runs with it. */
void returns_over(struct controller *controller);
/* "trainer 1 to begin an update", of who is waited for. */
void returns_missing(const struct controller *controller, struct text *text);

/* copies.c: of the plan that is to be exchanged, before it is sent */
void copies_choose(struct controller *controller);

/* settle.c: all engines show versions together, and one of them has left since they have their plan: none is shown before another. */
bool settle_lacks_engine(const struct controller *controller);
/* A rank says what it has promised: true; it may be shown now. */
bool settle_hears(struct controller *controller, const struct slot *slot, const struct message_paused *said);
/* What somebody shows, or who is here, has changed: so may that. */
void settle_look(struct controller *controller);
/* All have stopped: some who go on, since no plan comes for their engine, are told to show what they have promised. */
bool settle_lets_go(struct controller *controller);
/* Before copies_choose: what who has promised a version does with it; once in a pause. */
void settle_choose(struct controller *controller);
void settle_fill(const struct controller *controller, const struct slot *slot, struct message_plan *plan);

/* takeover.c: before there is a plan */
/* The first of those who run by another controller's plan, which was lost; NULL: none does. */
const struct slot *takeover_first(const struct controller *controller);
/* It has no part in the plan that they run by. */
bool takeover_is_without(const struct controller *controller, const struct slot *first,
			 const struct slot *slot);
/* Its engine has left since with its work done: others have heard that, or all its ranks did while this controller waited. */
bool takeover_did_its_work(const struct controller *controller, const struct slot *first,
			   const struct slot *slot);
/* .. or was lost, as others have heard. */
bool takeover_has_left(const struct controller *controller, const struct slot *first,
		       const struct slot *slot);
/* It is taken over, and that one is not waited for. */
bool takeover_needs_not(const struct controller *controller, const struct slot *slot);
/* The deadline of --join-timeout is over. True: the job is taken over without those who are not here, or has ended well, or is about
 * to; false: it cannot go on. */
bool takeover_is_late(struct controller *controller);
/* One that runs leaves with its work done, before all are here. */
void takeover_done(struct controller *controller, struct slot *slot);
/* All trainers have, and nobody runs any more: so the job is done. late: the others have had their time. */
bool takeover_maybe_done(struct controller *controller, bool late);
/* Those who run by an older plan than others do, and are not in that, have been gone on without: they are refused. */
void takeover_refuse_stale(struct controller *controller);
/* The others go on when that worker is lost now, before all are here. */
bool takeover_can_do_without(const struct controller *controller, const struct slot *slot);
/* A job may run whose workers have not said so yet. */
bool takeover_may_come(const struct controller *controller);
/* What of theirs the plan that is made here is. */
enum takeover {
	TAKEOVER_SAME,
	TAKEOVER_FOLLOWS,  /* theirs was made from others, which nobody has any more */
	TAKEOVER_WITHOUT,  /* or by what some had declared who are missing */
	TAKEOVER_PAUSED,   /* some had stopped for another one, */
	TAKEOVER_EXCHANGE, /* or some exchange it, so nobody runs */
	TAKEOVER_DIFFERS   /* they declare something else, or this controller has other options: see *why */
};
/* All are here: who does not run has left, or it is an error. *how: PAUSED, EXCHANGE, or SAME, if they turn out to have it. */
int takeover_prepare(struct controller *controller, const struct slot *first, enum takeover *how,
		     struct error *why);
/* They run, and have one plan: SAME, FOLLOWS, WITHOUT or DIFFERS. */
enum takeover takeover_compare(const struct controller *controller, const struct slot *first,
			       const struct epoch *epoch, struct error *why);

/* declarations.c */
/* Everything is here and nobody's place is in doubt. */
bool declarations_complete(const struct controller *controller);
/* Asks for planning when that is so. */
void declarations_maybe_plan(struct controller *controller);
/* Of one that no plan has yet: the place is free again. The worker's share of the asking passes to another,
 * and what only it declared goes with it. */
void declarations_drop(struct controller *controller, struct slot *slot);

/* While gathering, and of who has come since: this one is not welcome. */
void declarations_turn_away(struct controller *controller, struct slot *slot, const struct error *why);

/* exchange.c */
/* The slot's worker has a part in the epoch that runs, or will. */
bool exchange_has(const struct controller *controller, const struct slot *slot);
/* And takes it. */
bool exchange_serves(const struct controller *controller, const struct slot *slot);
void exchange_begin(struct controller *controller);
/* The worker asks again: not for a plan that is on its way, or that it has. */
void exchange_replay_plan(struct controller *controller, struct slot *slot);

/* ending.c */
/* The job fails because of `blamed` (NULL: of no single worker). */
void ending_fail(struct controller *controller, const struct slot *blamed, const struct error *why);
void ending_answer(struct controller *controller, struct slot *slot, struct message *message);
/* It comes when the job has failed already. */
void ending_answer_late(struct controller *controller, struct slot *slot, const char *peer,
			const struct message *message);
/* False: it was in no epoch that failed. */
bool ending_answer_former(struct controller *controller, const char *peer,
			  const struct message *message);
void ending_deadlines(struct controller *controller);
uint64_t ending_next_ms(const struct controller *controller);

/* view.c */
/* "trainer 2 of 4 to join; inference 0..3 of 8 to declare" */
void view_missing(const struct controller *controller, struct text *text);
/* "; inference 1 was refused: ..." of the first rank that is missing for that, or "". */
void view_refused(const struct controller *controller, char *out, size_t bytes);

#endif
