/* SPDX-License-Identifier: Apache-2.0
 *
 * executor.h -- does what schedule.h says: the calling threads, and packing threads that sleep until
 * a call has enough for several.
 *
 *   call ─► lock ─► schedule_next ─► unlock ─► pack, post, signal, wait ─┐
 *            ▲                                                          │
 *            └────────────── what happened ◄────────────────────────────┘
 *
 * Locks: `lock` for the schedule and everything here that is not said to be constant; a wire for
 * calls on endpoints. Endpoints of a transport share one wire, or, where it allows that
 * (caps.endpoints_parallel), have one each. `lock` and a wire are never held together, nor are two
 * wires but to look at figures. Whoever waits looks at `failed`: the first error stops all.
 */
#ifndef WORKER_UPDATE_EXECUTOR_H
#define WORKER_UPDATE_EXECUTOR_H

#include "worker/api/weft.h"
#include "worker/control/health.h"
#include "worker/control/watch.h"
#include "worker/device/lane.h"
#include "worker/epoch/epoch.h"
#include "worker/update/schedule.h"
#include <pthread.h>

#define PACK_THREADS_MAX 64u

/* A begin whose clock goes on from try to try. */
struct attempt {
	bool open;
	uint64_t version, begin_ns, deadline_ns;
};

/* The trainer's side of updates, over one epoch at a time. */
struct sender {
	/* constant while an epoch is open */
	struct epoch *epoch;           /* held */
	struct health *health;
	struct watch *watch;
	struct pool pool;              /* of all arrays here */
	const char **names;            /* of peers, then of tensors */
	const char **paths;            /* of peers, as transport_endpoint_path has them */
	uint32_t wires;
	uint32_t *wire_of;             /* by peer */
	bool shares;                   /* there is work for packing threads */
	pthread_mutex_t *wire;

	struct schedule schedule;
	struct sent sent;              /* where some peer may be sent what differs; else there is nothing in it */
	const void **data;             /* by tensor: its memory in this update */
	uint64_t *block_sums;          /* by block; where sums are wanted */
	uint64_t *source_sums;         /* of those whose parts are no blocks of their sum */
	uint64_t *device_sums;         /* as block_sums, of what the batch sends */
	uint64_t *seen;                /* by peer: sequence of the signal handled last */
	uint64_t *unused;              /* by peer: a permission to hand back unused; 0: none */
	bool drained;                  /* in this update: tensors may be something else by now */
	uint64_t *writes;              /* by peer: posted; under its wire */
	uint32_t gone_heard;           /* of what control_gone says */
	struct lanes *lanes;           /* tensors of a GPU that go through the ring; NULL: they do not */
	uint32_t *ids;                 /* tensors of a GPU: those of one call; under `lock` */
	uint32_t *groups;              /* with a batch: of peers that are not gone, the one of the copy that each accepts */
	_Atomic bool failed;           /* schedule.failed, for who holds a wire */
	char why[80];                  /* of the abort under way */
	struct attempt attempt;        /* to begin */
	uint64_t stopped_ns;           /* when the begin was first called that a pause came before; 0: none did */
	uint64_t begin_ns, writing_since_ns;
	uint64_t bytes_shown;          /* of counts.bytes, to people */
	weft_stats stats;              /* those that the schedule does not count */

	uint64_t ended;                /* the last version that was */
	uint64_t begun;                /* .. and that was begun, of the epochs before */
	struct schedule_counts counts; /* of those */

	bool cut;                      /* the update that is given up was cut by an interrupt */
	bool unfinished;               /* the last update was given up, or could not begin */

	pthread_mutex_t life;          /* of what an epoch owns, for who looks at figures; before all others */
	pthread_mutex_t lock;
	pthread_cond_t changed, work;
	pthread_t threads[PACK_THREADS_MAX];
	uint32_t thread_count;
	bool stop;
};

/* The locks live as long as the worker, the rest as long as an epoch. */
void sender_init(struct sender *sender, struct health *health, struct watch *watch);
void sender_fini(struct sender *sender);
/* Takes hold of a connected epoch. threads: that pack, the calling one included; 0: as many as
 * processors, within reason. Whatever it returns, sender_close. */
int sender_open(struct sender *sender, struct epoch *epoch, uint32_t threads,
		struct error *error);
void sender_close(struct sender *sender);

pthread_mutex_t *executor_wire(struct sender *sender, uint32_t peer);
/* With the lock held, which it drops for what takes time: until the task's call is out, or for a packing
 * thread, which has none, until sender.stop. */
int executor_go(struct sender *sender, struct task *task);
/* Ranks that send another one what they show accept the next version when that is done. */
static inline bool executor_is_patient(const struct sender *sender, uint64_t version)
{
	return sender->epoch->plan->copy && version == sender->epoch->plan->copy + 1;
}

/* How long a peer is waited for inside an update. Where the job goes on without one that does not come, that is found out
 * in half of the time that all others wait for this trainer. */
static inline uint32_t executor_wait_ms(const struct sender *sender)
{
	return sender->epoch->wait_ms / (sender->epoch->plan->continues ? 2 : 1);
}

/* ---- executor_gone.c: with the lock held ---- */

/* Peers that the controller says are gone take no part from here on. */
void executor_hear_gone(struct sender *sender);
/* The version goes to that peer: it is not gone, and lacks it. */
static inline bool executor_serves(const struct sender *sender, uint32_t peer)
{
	return !sender->epoch->peers[peer].gone && !sender->schedule.links[peer].rests;
}
/* Nor does that one, which was not reached, if the plan allows it, and that is why: true. The controller is told. */
bool executor_drop(struct sender *sender, uint32_t peer, const struct error *why);
/* Without the lock, and no call is under way: endpoints and memory of those that are gone are let go of. */
void executor_let_go(struct sender *sender);

/* With the lock held, which it drops meanwhile: the call, to its end. 0, or the error. */
int executor_run(struct sender *sender, struct call *call);
/* With the lock held, which it drops meanwhile: a moment, or until something changed. */
void executor_pause(struct sender *sender);

/* executor_shown.c, for people: it begins that version, and, now and then, who has not accepted it yet. */
void executor_show_whom(struct sender *sender, uint64_t version);
/* With the lock held: how much it has sent. */
void executor_show_bytes(struct sender *sender);

/* ---- executor_pack.c: with no lock held ---- */

/* Where a group's parts go beside their mapped targets: slots or homes, NULL for none. */
struct pack_into {
	void *memory[PACK_COLUMNS_MAX];
};
/* What of a step must be looked up while the lock is held. */
struct doing {
	struct pack_into into;
	const unsigned char *from;             /* POST: the part's bytes, */
	const struct transport_region *region; /* which lie there, */
	const struct send_source *rows;        /* or in rows of this source, from `from` on */
	uint64_t offset, bytes;                /* of the piece, or of what of it lands */
	uint32_t spins;                        /* of one WAIT_WRITE */
};

/* An error is one of a GPU. */
int executor_pack(struct sender *sender, const struct step *step, const struct pack_into *into, struct error *error);
const struct send_target *executor_target(const struct sender *sender,
					  const struct send_row *row);

/* ---- executor_land.c: what lands. Under the peer's wire ---- */

/* Where a step's bytes go, its pages mapped if it is the first to write there. doing: of a POST. */
int executor_place(struct sender *sender, const struct step *step, const struct doing *doing,
		   struct send_target *place, struct error *error);
/* A step that merges: nothing is posted yet. The number of the peer's last write. */
uint64_t executor_merge(struct sender *sender, const struct step *step, const struct doing *doing);
/* It has said that it needs no more of this version. */
bool executor_is_spared(struct sender *sender, uint32_t peer, bool *released);
/* What lies in the peer's window, and then that it does. */
int executor_tell(struct sender *sender, const struct step *step, struct event *event, struct error *error);
/* What the peer has taken out of its window, if it has said more. */
int executor_taken(struct sender *sender, const struct step *step, struct event *event, struct error *error);

/* ---- send_device.c: tensors of a GPU. With the lock held ---- */

/* A version begins. */
void send_device_begin(struct sender *sender);
/* Tensors whose memory is known: what they complete of the batch leaves, and what NICs read in place is there when it
 * returns. Drops the lock meanwhile. */
int send_device_write(struct sender *sender, const uint32_t *ids, size_t count, struct error *error);
/* Drops the lock meanwhile: until what the batch was given is at its targets. An error but for an interrupt is everybody's. */
int send_device_settle(struct sender *sender, struct error *error);
/* All of the batch is at its targets: the sums of what was sent. */
int send_device_sums(struct sender *sender, struct error *error);

/* With the lock held: sums of those of the step's sources whose last part it packed. */
void executor_sum(struct sender *sender, const struct step *step);

#endif
