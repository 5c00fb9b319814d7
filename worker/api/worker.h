/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h -- what is inside a weft_worker, for the files that implement weft.h:
 *
 *   worker.c     open, join, leave, close        join.c      plan, endpoints, both sides opened
 *   state.c      what every call asks first      declare*.c  what the host holds or needs
 *   tell.c       its failure reaches the others
 *   memory.c     where its memory lies
 *   write.c, wait.c, read.c, figures.c, compare.c, play.c    weft.h by noun
 *   metrics.c    what it shows Prometheus        shown.c    and people
 *
 *   lives as long as    the process    weft_worker: options, declarations, parameters' memory
 *                       one plan       epoch
 *                                      sender or waiter, whose schedule or receiver is one version
 */
#ifndef WORKER_API_WORKER_H
#define WORKER_API_WORKER_H

#include "base/array.h"
#include "base/pool.h"
#include "job/holding.h"
#include "job/layout.h"
#include "worker/api/weft.h"
#include "worker/control/health.h"
#include "worker/control/watch.h"
#include "worker/epoch/epoch.h"
#include "worker/update/donor.h"
#include "worker/update/send.h"
#include "worker/update/versions.h"
#include "worker/update/wait.h"
#include <pthread.h>
#include <sys/types.h>

enum worker_stage { STAGE_OPEN, STAGE_JOINING, STAGE_JOINED, STAGE_LEFT };

struct weft_worker {
	struct member self;
	char self_name[PEER_NAME_BYTES];
	char log_name[16];                /* "t3", "i0": in every line of a thread that works for it */
	struct pool texts;                /* of what follows */
	char *controller, *job, *transport, *nic, *key_file; /* transport: "auto" is spelled out */
	struct transport_offer *offers; /* as declared, with a list; names and reach are the domain's */
	uint32_t join_timeout_ms, update_timeout_ms; /* 0: not set by the host */
	uint64_t ring_bytes, landing_bytes;
	bool full;                        /* the replica keeps everything */
	bool host_ring;                   /* it is memory of the host, whatever NICs read */
	uint32_t pack_threads;            /* 0: as many as processors, within reason */
	bool checksums, shadow, own_memory;
	char *memory;                     /* "cuda" or "cuda:N", as the host said it; NULL: the host's */
	struct device *device;            /* that this is; NULL: none */
	enum landing landing;
	bool landing_open;           /* stage "auto": LANDING_DEVICE, or LANDING_HOST where the GPU has no room */
	enum worker_stage stage;
	uint64_t incarnation;
	pid_t pid;                        /* that opened it; a forked child must leave it alone */

	char *model, *train, *infer;      /* labels */
	struct layout layout;             /* inference */
	struct holding holding;           /* trainer */
	struct locals locals;             /* trainer: what is written, by id */
	struct ranges ranges;             /* trainer: registered */
	ARRAY(void *) host_memory;        /* own_memory: by parameter */

	struct transport_domain *domain;
	struct control *control;
	struct health health;
	_Atomic bool is_unhandled;        /* the last call for this worker's work failed */
	struct error unhandled;           /* so; under health's lock */
	atomic_uint calls;                /* of updates and weft_join, in flight */
	_Atomic bool has_let_go;          /* join_let_go */
	struct watch watch;
	char host[64], host_id[64];
	struct nic_report *nics;          /* as declared; names are the domain's */

	struct params params;             /* inference; from join on */
	struct beside beside;             /* the same: what peers write beside them */
	struct epoch *epoch;              /* from the plan on; in a pause NULL between two */
	struct kept_replica kept;         /* trainer, in a pause: of the plan before */
	struct stop stop;                 /* as it has said last; number 0: nothing that a plan has not ended */
	bool pausing;                     /* a call of an update has stopped for another plan, and the next one goes on there */
	_Atomic uint64_t next;            /* message_plan.next of the plan that runs */
	bool *wanted;                     /* trainer, from join on: by id, whether a plan wanted it so far */
	struct sender sender;             /* trainer; from join on */
	struct stand_in stand_in;         /* the same: for another one */
	struct waiter waiter;             /* inference; from join on */
	struct donor donor;               /* the same */
	struct versions versions;
	struct worker_metrics *metrics;   /* NULL: none are wanted */
	struct trace *trace;              /* the same */
	uint64_t paused_ns;               /* since when `pausing`; of the trace */
};

/* Copies an internal error out; returns rc. */
int worker_result(int rc, const struct error *inner, weft_error *error);
/* Whether a call that failed so keeps the worker from going on. */
bool worker_ends_by(enum error_code code);
/* The same, of a call that is this worker's work: a host that closes the worker after it could not
 * handle it, and the others are told. worker may be NULL. */
int worker_answer(weft_worker *worker, int rc, const struct error *inner, weft_error *error);
/* ERROR_STATE unless the worker is in that stage; `call` is for the message. */
int worker_stage(const struct weft_worker *worker, enum worker_stage stage, const char *call,
		 struct error *error);
int worker_role(const struct weft_worker *worker, enum role role, const char *call,
		struct error *error);
/* What every call of one role asks that declares: worker given, not joined yet, of that role. */
int worker_may_declare(const struct weft_worker *worker, enum role role, const char *call,
		       struct error *error);
/* ERROR_USAGE unless the `what` is one of `count`. */
int worker_check_id(const char *call, const char *what, uint32_t id, size_t count,
		    struct error *error);
/* shown.c: no call of an update is in progress, as people see it; the last one went well, or not. */
void worker_is_between(struct weft_worker *worker, bool went_well);
/* What every call of an update asks first: worker given, able to go on, of that role, joined. */
int worker_may_update(struct weft_worker *worker, enum role role, const char *call,
		      struct error *error);

/* declared.c, for declare*.c. Name, dtype and shape as a host gives them. */
int declare_check_shape(const char *what, const char *name, const char *dtype_text, uint32_t dims,
			enum dtype *dtype, struct error *error);
/* Where parameter `id` lies, with own_memory. */
int declare_set_memory(struct weft_worker *worker, uint32_t id, void *memory, struct error *error);
/* ERROR_UNSAFE when a late write may land in one of them (transport/late.h). */
int declare_check_memory(const struct weft_worker *worker, struct error *error);
/* `what` names it in a message; value NULL: as it was. */
int declare_set_label(char **label, const char *value, const char *what, struct error *error);
/* declared.c, for who joins and closes. */
int declare_finish(struct weft_worker *worker, struct message_declare *declare,
		   struct error *error);
void declare_fini(struct weft_worker *worker);

/* memory.c. What the options say, and the device that they name. */
int worker_choose_memory(struct weft_worker *worker, const weft_options *options, struct error *error);
int worker_open_device(struct weft_worker *worker, struct error *error);
/* Whose copies transport cuda makes for this process: its own, or, of host memory, that of the local rank. */
int worker_device_number(const struct weft_worker *worker);
/* Once the transport is open: whether it writes parameters where they are to land. */
int worker_check_way(struct weft_worker *worker, struct error *error);
/* Once its parameters are declared: where versions land, of stage "auto". */
int worker_choose_landing(struct weft_worker *worker, struct error *error);
/* There was no room after all: others of that GPU were faster. False: that was not for us to choose. */
bool worker_land_on_host(struct weft_worker *worker);
/* The caller's weft_memory, which must be of the kind that the worker was opened for; what its stream has queued
 * comes before what the worker queues from now on. A NULL pointer is the caller's to judge. */
int worker_take_memory(const struct weft_worker *worker, const char *call, const void *theirs,
		       struct weft_memory *ours, struct error *error);
/* The same of one that was taken; but not yet its stream, */
int worker_check_memory(const struct weft_worker *worker, const char *call, const struct weft_memory *memory,
			struct error *error);
/* .. which is this, and nothing where `before` was of the same one in this call (NULL: none was). */
int worker_after(const struct weft_worker *worker, const struct weft_memory *memory,
		 const struct weft_memory *before, struct error *error);

/* figures.c: what weft_get_stats gives. On an inference rank: its host's thread. */
void worker_figures(const struct weft_worker *worker, weft_stats *stats);

/* tell.c: what it says hello with */
struct message_hello worker_hello(struct weft_worker *worker);
/* This worker has failed: everybody is told, and later calls are this error. Waits until the controller has
 * heard, at most so long: ERROR_CONTROLLER_LOST. 0 also when the job had failed before. */
int worker_tell(struct weft_worker *worker, const struct error *why, uint32_t most_ms,
		struct error *error);
/* Before control_leave: the host closes it because of `unhandled`. */
void worker_tell_unhandled(struct weft_worker *worker);

/* join.c: declares, waits for the plan, opens what it names; timeout_ms 0: the option's */
int join_run(struct weft_worker *worker, uint32_t timeout_ms, struct error *error);
/* Its steps. open: endpoints of the plan, instead of those of an earlier attempt. connected: what
 * updates need, once they are. */
int join_open(struct weft_worker *worker, const struct message_plan *plan,
	      struct message_endpoints *endpoints, struct error *error);
int join_connected(struct weft_worker *worker, struct error *error);
/* The job makes a pause: the host has stopped for it, as message_paused says. Nothing else may be done until join_again says
 * 0: there is a plan again, and the call goes on. Without block WEFT_AGAIN. */
int join_pause(struct weft_worker *worker, const struct stop *stop, struct error *error);
int join_again(struct weft_worker *worker, bool block, struct error *error);
/* A worker that has failed, or whose job has: its host may not close it for long (it keeps the exception, or looks into what went
 * wrong), and peers need not wait for what it has mapped of their memory. A trainer closes all endpoints, and unmaps; a rank only
 * stops its copies to other engines, and readers read on. While a call is between begins and ends nothing is done: the last one
 * that ends does it. Unless at_once, the controller hears of the failure first, 2 s at most, which explains to peers what they see;
 * and who uses a device waits for that (device_quiet). */
void join_let_go(struct weft_worker *worker, bool at_once);
void join_call_begins(struct weft_worker *worker); /* worker may be NULL */
void join_call_ends(struct weft_worker *worker);
/* The host's memory is its own again, or declare_check_memory says who may still write it. */
void join_undo(struct weft_worker *worker);

#endif
