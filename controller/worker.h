/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h -- one process that joined, and what it said of itself: its hello, its declaration and
 * the body (layout or holding) that this names.
 *
 *   slot of a rank ──┐                            several workers that hold or need the same
 *   epoch n ─────────┼─► worker ──► body ◄── worker
 *   epoch n + 1 ─────┘
 *
 * A worker never changes once it has declared, and lives as long as somebody holds it: an epoch
 * keeps what it was planned from, whoever sits in the rank's place by now.
 */
#ifndef CONTROLLER_WORKER_H
#define CONTROLLER_WORKER_H

#include "base/array.h"
#include "wire/message.h"

/* Sent once per digest. */
struct body {
	struct digest digest;
	enum role role;
	bool known;
	const struct worker *asked; /* who is to send it; NULL when known or nobody can be */
	uint32_t uses;              /* workers that declared it */
	struct layout layout;
	struct holding holding;
};

struct bodies {
	ARRAY(struct body *) all;
	size_t missing; /* asked for and not known */
};
struct body *bodies_find(const struct bodies *bodies, enum role role, struct digest digest);
struct body *bodies_add(struct bodies *bodies, enum role role, struct digest digest);
void bodies_ask(struct bodies *bodies, struct body *body, const struct worker *worker);
/* It is known now, or nobody is left to send it. */
void bodies_stop_asking(struct bodies *bodies, struct body *body);
/* Gone with the last worker that declared it. */
void bodies_drop_unused(struct bodies *bodies, struct body *body);
/* All of these: of workers of an earlier epoch that came back different. */
void bodies_forget_unused(struct bodies *bodies);
void bodies_fini(struct bodies *bodies);

struct worker {
	struct member who;
	uint32_t uses;
	struct message_hello hello;
	struct message_declare declare;
	struct body *body; /* NULL until it has declared */
};
/* Takes what the hello owns; one use. NULL when out of memory. */
struct worker *worker_new(struct message_hello *hello);
struct worker *worker_hold(struct worker *worker);
void worker_release(struct worker **worker);
/* Takes what the declaration owns. */
void worker_declares(struct worker *worker, struct message_declare *declare, struct body *body);
#define WORKER_TEXT_BYTES (MEMBER_TEXT_BYTES + LIMIT_NAME_BYTES + 40)
char *worker_text(const struct worker *worker,
		  char out[WORKER_TEXT_BYTES]); /* "trainer 3 (host a, pid 7)" */

#endif
