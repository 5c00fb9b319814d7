/* SPDX-License-Identifier: Apache-2.0
 *
 * send.h -- a trainer's calls of an update, over the schedule and its executor. What each may answer
 * stands in weft.h.
 *
 * Threads: write, write_all, write_bucket and drain from many at once; the others one at a time.
 */
#ifndef WORKER_UPDATE_SEND_H
#define WORKER_UPDATE_SEND_H

#include "worker/update/executor.h"

/* block: until every target accepts the version. Else WEFT_AGAIN when not all do yet; the clock of the
 * first try of a version goes on. SENDER_PAUSES, before anything is begun: the job is to make that pause. */
#define SENDER_PAUSES 100
int sender_begin(struct sender *sender, uint64_t version, bool block, struct error *error);
int sender_write(struct sender *sender, uint32_t id, const void *data, uint64_t bytes,
		 struct error *error);
int sender_write_all(struct sender *sender, const void *const *data, struct error *error);
/* A tensor by name, as the host gives it, and where it lies. */
struct bucket_slice {
	weft_slice tensor;
	weft_memory memory;
};
int sender_write_bucket(struct sender *sender, const struct bucket_slice *slices, size_t count,
			struct error *error);
int sender_drain(struct sender *sender, struct error *error);
int sender_end(struct sender *sender, struct error *error);
int sender_abort(struct sender *sender, const char *why, struct error *error);
/* ERROR_STATE in the midst of an update. */
int sender_check_between(struct sender *sender, const char *call, struct error *error);
int sender_replay(struct sender *sender, uint64_t version, struct error *error);

/* That path to that peer does not work: it is gone on without, if the plan allows it. */
bool sender_drop(struct sender *sender, uint32_t peer, const struct error *why);
/* That the full replica holds, whole; 0: none. */
uint64_t sender_whole(const struct sender *sender);
/* The version of the update that is open; 0: none. */
uint64_t sender_open_version(const struct sender *sender);
/* What its schedule counts, of this epoch and those before; between two calls, or under the lock. */
const struct schedule_counts *sender_counts(const struct sender *sender);
/* Sets what a trainer counts. */
void sender_figures(struct sender *sender, weft_stats *stats);

/* ---- send_bucket.c ---- */

/* With the lock held: these tensors, each of them once; their rows are *rows (memory_free). */
int bucket_check(struct sender *sender, const struct bucket_slice *slices, size_t count, uint32_t *ids,
		 struct error *error);
uint32_t *bucket_rows(const struct send_plan *plan, const uint32_t *ids, size_t tensors,
		      size_t *count);

/* ---- stand_in.c: of a trainer that stands in for another one (epoch.stand_in) ---- */

/* The sender of what it sends in that one's place, and this worker's own, whose endpoints and wires it uses. */
struct stand_in {
	struct sender sender;      /* no epoch: it stands in for nobody */
	struct sender *own;
	uint32_t *own_peer;        /* by peer of the first: of the second */
	bool *over;                /* by peer: nothing (more) is asked for it in this version */
	bool *asked;
	bool has_all;              /* in this version: of all that it may be asked for */
	uint64_t signals;          /* of the domain, seen */
	uint64_t said_ns;          /* when a line of the log said last that it stood in */
};
/* With the own sender open. Whatever it returns, stand_in_sender_close, before the own sender closes. */
int stand_in_sender_open(struct stand_in *stand_in, struct sender *own, struct error *error);
void stand_in_sender_close(struct stand_in *stand_in);
/* The own sender has ended a version, and tensors are what they were: until every rank has all of the other trainer's pieces, or has
 * asked for them and was sent them. Only what ends this worker is an error. */
int stand_in_run(struct stand_in *stand_in, struct error *error);

/* ---- send.c, for stand_in.c ---- */

/* Permissions that are not used: nobody waits for their end. With no lock held. */
void sender_hand_back(struct sender *sender);
/* With the lock held, which they drop meanwhile: tensors that were submitted, and the rows that read them (NULL: all); an end. */
int sender_send_rows(struct sender *sender, const uint32_t *ids, size_t id_count, const uint32_t *rows, size_t count, bool shared,
		     struct error *error);
int sender_run_version(struct sender *sender, enum call_kind kind, struct error *error);

/* ---- send.c, for send_bucket.c ---- */

/* With the lock held: ERROR_USAGE when the tensor was written before, or lies in no registered
 * range where one is needed. */
int sender_check_tensor(const struct sender *sender, uint32_t id, const void *data,
			struct error *error);

#endif
