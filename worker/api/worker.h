/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h -- what is inside a weft_worker, for the files that implement weft.h.
 *
 *   api/      worker.c open, join, leave, close; state.c whether it can go on; declare*.c,
 *             compare.c, figures.c, write.c, wait.c, read.c, play.c: weft.h by noun
 *   epoch/    declared.c, sources.c what the host gave; join.c, peers.c plan and endpoints;
 *             params.c, place.c memory of parameters; send_plan.c, pairs.c rows, resolved
 *   update/   update_*.c both sides of an update; trainer.h: jobs.c, engine*.c, a trainer's engine;
 *             versions.c readers' bracket; post_load.c the host's hook in between
 *   others    control/ control thread, replica/ ring and full, referee/ verify.h, remake*.h
 */
#ifndef WORKER_API_WORKER_H
#define WORKER_API_WORKER_H

#include "base/array.h"
#include "job/layout.h"
#include "worker/control/control.h"
#include "worker/control/watch.h"
#include "worker/update/versions.h"
#include "worker/update/trainer.h"
#include "worker/update/update.h"
#include "worker/api/weft.h"
#include <pthread.h>
#include <sys/types.h>

#define WAIT_SLICE_MS 50u /* how long any wait sleeps before it looks at the failure flags */
#define PEER_NAME_BYTES 128

enum worker_stage { STAGE_OPEN, STAGE_JOINING, STAGE_JOINED, STAGE_LEFT };

/* The other end of one pair of this worker. */
struct peer {
	const struct plan_peer *plan;
	char name[PEER_NAME_BYTES];       /* "trainer 3 (host b)" */
	struct transport_endpoint *endpoint;
	const struct peer_endpoints *theirs;
	struct transport_remote **remotes; /* as theirs->regions; trainers only */
	uint64_t writes;                   /* posted on the endpoint since it was opened; a
					      trainer's, with many threads: under trainer.wire */
	uint64_t seen_sequence;            /* of the signal that was handled last */
	/* trainer */
	struct update_accept accept;       /* latest; opening 0: none */
	uint64_t used_opening;             /* the opening of our last begin */
	uint64_t sums_first;               /* index of the pair's checksums in trainer.sums */
	/* inference rank */
	uint64_t opening;                  /* number of the last permission given */
	bool outstanding;                  /* it is not used up yet */
	bool ended;                        /* end is counted for the update waited for */
	struct update_end end;
};

struct inference {
	uint32_t copies;
	struct param_place *places;  /* copies * params, copy-major */
	unsigned char **memory;      /* the same, as addresses */
	struct transport_region **regions; /* parameters', then the checksums' */
	size_t region_count;
	struct transport_region *sums_region;
	const uint64_t *sums;        /* of peer p from peers[p].sums_first */
	uint32_t *pair_rows;         /* plan rows by (peer, ordinal): pair_first[p] + ordinal */
	size_t *pair_first;
	uint64_t min_version, max_version; /* waited for */
	uint32_t copy;               /* that is open; the same while any permission is out */
	uint64_t past;               /* no version up to this one can be complete any more */
	uint64_t signals_seen;
};

/* The begin (trainer) or wait (inference rank) that is in progress: one, whose clock goes on from try
 * to try. */
struct attempt {
	bool open;
	uint64_t version, begin_ns, deadline_ns;
	uint32_t timeout_ms;
};

/* The host's, called before a version is published. */
struct post_load {
	weft_post_load *hook;        /* NULL: none */
	void *context;
	bool running;
};

struct weft_worker {
	struct member self;
	char self_name[PEER_NAME_BYTES];
	char log_name[16];                /* "t3", "i0": in every line of a thread that works for it */
	char *controller, *job, *transport, *nic;
	uint32_t join_timeout_ms, update_timeout_ms; /* 0: not set by the host */
	uint64_t ring_bytes;
	bool full;                        /* the replica keeps everything */
	uint32_t pack_threads;            /* 0: as many as processors, within reason */
	bool checksums, shadow, own_memory;
	enum worker_stage stage;
	pid_t pid;                        /* that opened it; a forked child must leave it alone */

	char *model, *train, *infer;      /* labels */
	struct layout layout;             /* inference */
	struct holding holding;           /* trainer */
	struct held_rows { uint64_t lo, hi, bytes; } *held; /* by tensor of holding */
	size_t held_capacity;
	ARRAY(struct transport_region *) ranges; /* trainer: registered, by address */
	void **host_memory;               /* own_memory: by parameter */
	size_t host_capacity;

	struct transport_domain *domain;
	struct control *control;
	char host[64], host_id[64];
	struct nic_report *nics;          /* as declared; names are the domain's */
	_Atomic bool interrupted;
	_Atomic bool failed;
	_Atomic bool unfinished;          /* the last update call failed: closing is not "done" */
	pthread_mutex_t failure_lock;
	struct error failure;             /* this worker's own, once failed; under its lock */

	const struct message_plan *plan;  /* the core's */
	bool sums;                        /* the plan's: pieces are summed */
	uint32_t wait_ms;                 /* default of waits inside updates */
	struct peer *peers;               /* as plan->peers */
	size_t peer_count;
	struct trainer trainer;
	struct inference inference;
	struct versions versions;
	struct attempt attempt;
	struct watch watch;
	struct post_load post_load;
	weft_stats stats;
};

/* Copies an internal error out; returns rc. */
int worker_result(int rc, const struct error *inner, weft_error *error);
/* 0, or why nothing can go on: interrupted, job failed. */
int worker_check(struct weft_worker *worker, struct error *error);
/* Keeps the error for every later call and tells the controller. What was only seen at a peer can
 * be the echo of another loss, so the controller gets a moment to name the cause, which then
 * replaces *failure. Returns its -code. */
int worker_fail(struct weft_worker *worker, struct error *failure, uint64_t version);
/* ERROR_STATE unless the worker is in that stage; `call` is for the sentence. */
int worker_stage(const struct weft_worker *worker, enum worker_stage stage, const char *call,
		 struct error *error);
int worker_role(const struct weft_worker *worker, enum role role, const char *call,
		struct error *error);
/* What every call of an update asks first: worker given, able to go on, of that role, joined. */
int worker_may_update(struct weft_worker *worker, enum role role, const char *call,
		      struct error *error);
uint64_t worker_deadline_ns(uint32_t timeout_ms);
/* Starts the clock of a begin or wait; an older one is forgotten. */
void attempt_begin(struct weft_worker *worker, uint64_t version, uint32_t timeout_ms);
void attempt_end(struct weft_worker *worker);
bool attempt_open(const struct weft_worker *worker, uint64_t version);

/* declared.c */
int declare_finish(struct weft_worker *worker, struct message_declare *declare,
		   struct error *error);
void declare_fini(struct weft_worker *worker);

/* sources.c. register: weft_source_register. find: the range that holds these bytes whole, or NULL */
const struct transport_region *sources_find(const struct weft_worker *worker, const void *memory,
					    uint64_t bytes);
int sources_register(struct weft_worker *worker, void *memory, uint64_t bytes,
		     struct error *error);
void sources_close(struct weft_worker *worker);

/* params.c: the memory of an inference rank */
int params_open(struct weft_worker *worker, struct error *error);
int params_open_sums(struct weft_worker *worker, struct error *error);
void params_close(struct weft_worker *worker);

/* join.c: declares, waits for the plan, opens what it names; timeout_ms 0: the option's */
int join_run(struct weft_worker *worker, uint32_t timeout_ms, struct error *error);

/* peers.c */
int peers_open(struct weft_worker *worker, const struct message_plan *plan,
	       struct message_endpoints *endpoints, struct error *error);
/* Numbers the pieces of all peers, one checksum each, and allocates them where they are wanted:
 * without checksums, or without pieces, *sums stays NULL. */
int peers_open_sums(struct weft_worker *worker, struct transport_region **sums,
		    struct error *error);
int peers_connect(struct weft_worker *worker, const struct message_peers *peers,
		  uint64_t deadline_ns, struct error *error);
/* After all workers have connected: every path of this worker is used once. */
int peers_prove(struct weft_worker *worker, uint64_t deadline_ns, struct error *error);
void peers_fence(struct weft_worker *worker, uint32_t timeout_ms);
void peers_close(struct weft_worker *worker);
/* PEER_LOST when the peer's process is provably gone. */
int peer_check_alive(const struct peer *peer, struct error *error);

/* update_inference.c: weft_update_wait; the call has checked the worker, its role and its stage */
int update_wait(struct weft_worker *worker, uint64_t version, uint32_t timeout_ms,
		uint64_t *published, struct error *error);
int update_try_wait(struct weft_worker *worker, uint64_t version, uint32_t timeout_ms,
		    uint64_t *published, struct error *error);

/* post_load.c: the hook with the version that lies in inference.copy; 0 without one */
int post_load_run(struct weft_worker *worker, uint64_t version, struct error *error);
/* ERROR_STATE inside the hook; `call` is for the sentence. */
int post_load_outside(const struct weft_worker *worker, const char *call, struct error *error);

/* send_plan.c: the locks live as long as the worker, the plan as long as its endpoints */
int send_plan_open(struct weft_worker *worker, struct error *error);
void send_plan_close(struct weft_worker *worker);

/* pairs.c */
int pairs_open(struct weft_worker *worker, struct error *error);
void pairs_close(struct weft_worker *worker);

#endif
