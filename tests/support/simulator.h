/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator.h -- a whole job in one process, on a fake clock and a fake network: the real
 * controller and worker cores, every message through the real codec.
 *
 *   worker core ──encode──► queue (latency, drop, double, reorder, partition) ──decode──► core
 *
 * The data plane is a shadow of the real one: a trainer "writes" to its peers one after the
 * other, each write ends in a signal, and an inference rank publishes a version when all its
 * peers have signalled it. With commit=engine both are more than that: trainers go by the worker's own schedule
 * (simulator_send.h), and ranks are its receiver, committer and versions (simulator_wait.h). Everything that happens
 * is a line of the transcript.
 */
#ifndef TESTS_SUPPORT_SIMULATOR_H
#define TESTS_SUPPORT_SIMULATOR_H

#include "base/text.h"
#include "controller/core.h"
#include "tests/support/sanitized.h"
#include "worker/control/core.h"

#define SIMULATION_SEEDS (SANITIZED ? 60 : 200) /* histories on a bad network */

struct simulation_options {
	const char *train, *infer, *policy; /* default world=2, engines=1,tp=2, greedy */
	const char *commit;                 /* default rank: each shows what it has; engine: all ranks of one together */
	const char *on_loss;                /* default end */
	const char *catch_up_from;          /* default engines */
	uint32_t orphan_ms, engines_min;    /* default 0 */
	uint64_t seed;
	uint32_t latency_ms, jitter_ms;     /* default 1, 0 */
	uint32_t drop_percent, double_percent;
	bool reorder;                       /* else each direction of a pair is first in first out */
	uint32_t open_ms, connect_ms, write_ms; /* default 2, 2, 10 */
	uint32_t join_timeout_ms, restarts; /* default 20000, 0 */
	uint32_t tensors;                   /* default 3 */
	uint32_t anew_percent;              /* workers that cannot keep their endpoints in a pause; default 0 */
	/* commit=engine: */
	bool shadow;                        /* ranks keep the version before; else they are written in place */
	bool words_written;                 /* nobody has the word mapped that says what is shown */
	uint32_t said_ms, load_ms;          /* how late something said between workers may come, beside 1; and how long hooks run */
};

/* What makes one worker differ from the others. */
struct simulation_worker {
	enum role role;
	uint32_t rank;
	const char *job, *host, *boot, *transport, *model;
	bool other_shape, needs_unsourced, needs_less, holds_unwanted, other_wire;
	uint64_t incarnation; /* 0: the next free one */
	const char *failure;  /* it has failed before it joins */
};

struct history;
struct simulation;
struct simulation *simulation_new(const struct simulation_options *options);
void simulation_free(struct simulation **simulation);

void simulation_controller_start(struct simulation *simulation);
void simulation_controller_kill(struct simulation *simulation);
bool simulation_controller_over(const struct simulation *simulation, struct error *error);
struct controller *simulation_controller(struct simulation *simulation);
/* Returns the worker's handle. */
uint32_t simulation_start(struct simulation *simulation, const struct simulation_worker *worker);
uint32_t simulation_start_rank(struct simulation *simulation, uint32_t rank); /* of an engine */
void simulation_start_all(struct simulation *simulation);
/* A new one, with its controller and all workers, that runs. */
struct simulation *simulation_running(const struct simulation_options *options);
void simulation_kill(struct simulation *simulation, uint32_t worker);
/* commit=engine: the host of that rank leaves its wait, and comes back so much later; its next post-load hook fails. */
void simulation_hold(struct simulation *simulation, uint32_t worker, uint32_t ms);
/* commit=engine: the host of that rank leaves when it has that version, its work done. */
void simulation_does(struct simulation *simulation, uint32_t worker, uint64_t last);
/* That trainer gives up the next version that it sends. */
void simulation_abort(struct simulation *simulation, uint32_t worker);
void simulation_fail_hook(struct simulation *simulation, uint32_t worker);
void simulation_leave(struct simulation *simulation, uint32_t worker, bool done);
void simulation_leave_all(struct simulation *simulation);
void simulation_fail(struct simulation *simulation, uint32_t worker, const char *why);
/* An endpoint of its breaks, and nobody else notices. */
void simulation_break(struct simulation *simulation, uint32_t worker);
/* That trainer does not reach the inference rank, and goes on. */
void simulation_drop(struct simulation *simulation, uint32_t trainer, uint32_t rank, const char *why);
/* Until that time nothing passes between the worker and the controller. */
void simulation_partition(struct simulation *simulation, uint32_t worker, uint64_t until_ms);
/* Every running trainer starts that version. */
void simulation_update(struct simulation *simulation, uint64_t version);
/* Every running trainer that has nothing under way starts its next one; none is more than one ahead, as they train together. */
void simulation_update_next(struct simulation *simulation);
/* That one does. Where the job pauses, as soon as it goes on. */
void simulation_begin(struct simulation *simulation, uint32_t trainer, uint64_t version);

/* Every running trainer that has nothing under way asks for engines that wait (weft_update_repeat), and sends them what it is to. */
void simulation_repeat(struct simulation *simulation);
/* That one does. */
void simulation_repeat_one(struct simulation *simulation, uint32_t trainer);

void simulation_run(struct simulation *simulation, uint64_t until_ms);
/* Until all live workers are in the state, at most until then; false if they are not. */
bool simulation_run_to(struct simulation *simulation, enum worker_state state,
		       uint64_t until_ms);
void simulation_run_for(struct simulation *simulation, uint64_t ms);
uint64_t simulation_now(const struct simulation *simulation);

/* That trainer is between two updates, and stands before none. */
bool simulation_is_between(const struct simulation *simulation, uint32_t trainer);
uint32_t simulation_workers(const struct simulation *simulation);
bool simulation_alive(const struct simulation *simulation, uint32_t worker);
enum worker_state simulation_state(const struct simulation *simulation, uint32_t worker);
const struct error *simulation_error(const struct simulation *simulation, uint32_t worker);
uint64_t simulation_version(const struct simulation *simulation, uint32_t worker);
/* By it and to it, but for heartbeats. */
uint64_t simulation_said_bytes(const struct simulation *simulation, uint32_t worker);
const struct message_plan *simulation_plan(const struct simulation *simulation,
					   uint32_t worker);

/* The controller has ended, and well. */
void simulation_assert_done(const struct simulation *simulation);
/* Everybody alive who has not failed runs, and has published or ended that version. */
void simulation_assert_all_at(const struct simulation *simulation, uint64_t version);
/* The lines must stand in the transcript in this order, others may stand between. A line that
 * ends in '*' matches any ending there (digests), one that begins with it any time. */
void simulation_expect(const struct simulation *simulation, const char *lines);
void simulation_expect_not(const struct simulation *simulation, const char *part);
const char *simulation_transcript(const struct simulation *simulation);
const struct history *simulation_history(const struct simulation *simulation);

#endif
