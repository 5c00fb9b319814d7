/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_send.h -- trainers of a job whose engines show versions together (commit=engine): the worker's own schedule
 * (worker/update/schedule.h), for one thread that packs nothing, and around it what send.c, executor.c and executor_gone.c do, on the
 * simulator's clock.
 *
 *   begin: all accept ──► a row for each rank, of two parts ──► end, or abort: settled, flushed, and each of them told
 *
 * A post takes its time, and its write comes later. Ranks that are gone are gone on without, by what the controller says, or by what
 * this trainer sees, which it says.
 */
#ifndef TESTS_SUPPORT_SIMULATOR_SEND_H
#define TESTS_SUPPORT_SIMULATOR_SEND_H

#include "tests/support/simulator_wait.h"
#include "worker/update/schedule.h"

enum sending_call { SENDS_NOTHING, SENDS_BEGIN, SENDS_ROWS, SENDS_END };

struct sending {
	struct send_plan plan;
	struct send_row rows[PEERS_MAX];
	struct send_source source;
	uint32_t source_rows[PEERS_MAX], tensor_first[2], tensor_rows[PEERS_MAX];
	const char *names[PEERS_MAX];
	char name_of[PEERS_MAX][MEMBER_TEXT_BYTES];
	struct schedule schedule;
	bool open;                     /* there is a plan, and the schedule by it */
	enum sending_call now;
	uint64_t version, began_at;
	uint64_t last_version;         /* of the plans before */
	struct task task;
	struct call call;
	struct error error;
	struct event event;            /* what the schedule is told next */
	uint64_t busy_until;           /* of a step */
	uint64_t writes[PEERS_MAX], land_at[PEERS_MAX]; /* and when the last one is there */
	bool aborts;                   /* the next version is given up when all of it is sent */
	bool acting, again;
};

#endif
