/* SPDX-License-Identifier: Apache-2.0
 *
 * provider.h -- the private table between the shared layer and one way of moving bytes.
 *
 *   transport.h      domain.c region.c import.c endpoint.c flow.c signal.c
 *   ------------------------------ this table ------------------------------
 *   shm/ cuda/ verbs/ ofi/ mock/ fault/
 *
 * Above the table, once for all: argument and bounds checks, chunking, choice of rail, credit
 * and the window of chunks in flight, deadlines, the sticky error, statistics, sequence
 * numbers, the head and checksum of records. Below it: open things, post a batch on one rail,
 * report what completed.
 *
 * Rules for a provider:
 *  - It never blocks, but for endpoint_connect, endpoint_probe, endpoint_fence and endpoint_stop (until
 *    their deadline), signal_wait, idle, and poll for a moment once something has failed. Posting does not allocate, log or take a system-wide lock.
 *  - What domain_open writes into domain->reach may be empty; a peer's whose text differs is never tried.
 *  - A constructor that fails has undone itself; the matching close is not called then.
 *  - What may still land in registered memory after a close is held (late.h).
 *  - Each posted id is reported exactly once by poll, in any order; after endpoint_abort no
 *    more need be. A bad status breaks the endpoint: there is no repair in place.
 *  - post_signal must keep behind every earlier write of the endpoint if caps.ordered; if not,
 *    the shared layer has flushed before. Verbs: payload by WRITE, then WRITE_WITH_IMM last on
 *    every rail that carried a write; its id is complete when all of those are.
 *  - A NULL op is filled with one that answers ERROR_UNSUPPORTED (or does nothing, where there
 *    is nothing to do), so that no caller tests for holes.
 */
#ifndef TRANSPORT_PROVIDER_H
#define TRANSPORT_PROVIDER_H

#include "transport/record.h"
#include "transport/traffic.h"
#include "transport/transport.h"
#include <stdatomic.h>
#include <sys/types.h>

#define PROVIDER_BATCH_MAX 16
#define PROVIDER_RAILS_MAX 16
#define PROVIDER_NICS_MAX  16
#define PROVIDER_REACH_BYTES 96
#define PROVIDER_NO_GPU_BYTES 400
#define TRANSPORT_NAME_BYTES 96
#define TRANSPORT_PATH_BYTES 224

/* One chunk of one write. */
struct provider_write {
	uint64_t id;
	const unsigned char *source;
	const struct transport_region *region; /* where source lies, or NULL */
	const struct transport_rows *rows;     /* with caps.gathers: instead of source, or NULL */
	uint64_t from;                         /* in the rows laid end to end */
	struct transport_remote *remote;
	uint64_t offset, bytes;                /* in the remote; checked */
};

struct provider_completion {
	uint64_t id;
	int rc;           /* 0, or -code */
	const char *what; /* why, when rc is not 0; static */
};

/* Every op by name: to fill holes, and for WEFT_FAULT. */
#define PROVIDER_OPS(X)                                                                    \
	X(domain_open)                                                                     \
	X(domain_close)                                                                    \
	X(domain_wake)                                                                     \
	X(domain_keep_mapped)                                                              \
	X(region_allocate)                                                                 \
	X(region_register)                                                                 \
	X(region_export)                                                                   \
	X(region_close)                                                                    \
	X(endpoint_open)                                                                   \
	X(endpoint_record)                                                                 \
	X(endpoint_connect)                                                                \
	X(endpoint_probe)                                                                  \
	X(endpoint_abort)                                                                  \
	X(endpoint_fence)                                                                  \
	X(endpoint_stop)                                                                   \
	X(endpoint_close)                                                                  \
	X(remote_import)                                                                   \
	X(remote_close)                                                                    \
	X(credit)                                                                          \
	X(post_write)                                                                      \
	X(post_signal)                                                                     \
	X(poll)                                                                            \
	X(settle)                                                                          \
	X(idle)                                                                            \
	X(signal_read)                                                                     \
	X(signal_wait)                                                                     \
	X(peer_dead)

enum provider_op {
#define X(op) PROVIDER_OP_##op,
	PROVIDER_OPS(X)
#undef X
		PROVIDER_OP_COUNT
};

struct provider {
	const char *name; /* as in --transport and in records; shorter than 16 bytes */
	const char *what; /* one line for people */
	bool one_host;    /* never reaches another host */
	bool maps;        /* its own memory can be mapped by peers */

	/* Sets domain->caps, domain->state and, if it has any, domain->nics and domain->reach.
	 * ERROR_UNSUPPORTED says what is missing here. */
	int (*domain_open)(struct transport_domain *domain, struct error *error);
	void (*domain_close)(struct transport_domain *domain);
	void (*domain_wake)(struct transport_domain *domain); /* end signal_wait; any thread */
	void (*domain_keep_mapped)(struct transport_domain *domain, bool keep);

	int (*region_allocate)(struct transport_region *region, struct error *error);
	int (*region_register)(struct transport_region *region, struct error *error); /* on_device: with caps.gpu_memory */
	int (*region_export)(const struct transport_region *region,
			     struct record_writer *writer, struct error *error);
	void (*region_close)(struct transport_region *region);

	int (*endpoint_open)(struct transport_endpoint *endpoint, struct error *error);
	int (*endpoint_record)(const struct transport_endpoint *endpoint,
			       struct record_writer *writer, struct error *error);
	/* The head was checked (job, provider, who); the body is the provider's. */
	int (*endpoint_connect)(struct transport_endpoint *endpoint,
				struct record_reader *reader, uint64_t deadline_ns,
				struct error *error);
	/* Both sides are connected. NULL: connect has probed the path. */
	int (*endpoint_probe)(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			      struct error *error);
	/* The endpoint broke: stop what is in flight, as far as that is possible. */
	void (*endpoint_abort)(struct transport_endpoint *endpoint);
	int (*endpoint_fence)(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			      struct error *error);
	/* NULL: its fence needs nobody, and is this too. */
	int (*endpoint_stop)(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			     struct error *error);
	void (*endpoint_close)(struct transport_endpoint *endpoint); /* no remotes are left */

	/* Sets remote->state, and remote->pointer or device_pointer where the memory is mapped here. */
	int (*remote_import)(struct transport_remote *remote, struct record_reader *reader,
			     struct error *error);
	void (*remote_close)(struct transport_remote *remote); /* its endpoint is open */

	/* Chunks that this rail takes now. */
	uint32_t (*credit)(const struct transport_endpoint *endpoint, uint32_t rail);
	/* Posts a batch on one rail. *posted is how many were taken, also on error; fewer than
	 * count and 0 means that the rail is full. */
	int (*post_write)(struct transport_endpoint *endpoint, uint32_t rail,
			  const struct provider_write *writes, uint32_t count,
			  uint32_t *posted, struct error *error);
	/* 1: no credit now. signal->sequence is set. */
	int (*post_signal)(struct transport_endpoint *endpoint, uint64_t id,
			   const struct transport_signal *signal, struct error *error);
	/* Number of completions stored (at most max), or -code. */
	int (*poll)(struct transport_endpoint *endpoint, struct provider_completion *out,
		    int max, struct error *error);
	/* Every post has completed: make it, and stores through remote->pointer, visible. */
	int (*settle)(struct transport_endpoint *endpoint, struct error *error);
	/* Nothing happened in `turns` looks in a row: sleeps until something may have, for a ms at most.
	 * Only with domain->idles; else waiting is looking again, with pauses that grow. */
	void (*idle)(struct transport_domain *domain, uint32_t turns);

	int (*signal_read)(const struct transport_endpoint *endpoint,
			   struct transport_signal *signal); /* any thread */
	uint64_t (*signal_wait)(struct transport_domain *domain, uint64_t seen,
				uint64_t deadline_ns); /* any thread */
	bool (*peer_dead)(const struct transport_endpoint *endpoint);
};

extern const struct provider provider_shm, provider_cuda, provider_verbs, provider_tcp, provider_efa;
extern const struct provider provider_several; /* of lists; in no list itself */

/* What only programs of tests have: providers beside those of a release, and who is asked whether the
 * environment wants one of them around another: 1 and *wrapper, 0, or a negative error. Set before the
 * first domain (transport/fault/tested.c); NULL in a release, where WEFT_FAULT is refused. */
struct provider_tested {
	const struct provider *const *rows; /* ends with NULL; at most PROVIDER_TESTED_MAX */
	int (*wrapper)(const char *provider, const char **wrapper, struct error *error);
};
#define PROVIDER_TESTED_MAX 4
extern const struct provider_tested *provider_tested;
extern const struct provider provider_mock, provider_fault; /* its rows: not in a release */

/* By name: ERROR_UNSUPPORTED lists the names there are. *ops is a complete table. */
int provider_find(const char *name, struct provider *ops, struct error *error);
void provider_complete(struct provider *ops);
const char *provider_op_name(enum provider_op op);

/* ---- the objects of the shared layer; `state` belongs to the provider ---- */

struct transport_domain {
	struct provider ops;
	const char *wire_name;   /* provider named in records; a wrapper puts the inner one's */
	void *state, *wrapper;   /* wrapper: of a provider that wraps the one `state` is of */
	bool wrapped_by_environment; /* provider_options are the inner provider's */
	struct transport_caps caps;
	struct transport_nic nics[PROVIDER_NICS_MAX];
	uint32_t nic_count;
	struct provider_traffic traffic[PROVIDER_NICS_MAX]; /* by nic */
	struct transport_domain *nics_of; /* the member that these are; NULL: its own */
	char reach[PROVIDER_REACH_BYTES];
	char no_gpu[PROVIDER_NO_GPU_BYTES]; /* as transport_domain_no_gpu says it */
	const char *listed;      /* while a domain of several is opened: what it was asked for */
	struct transport_domain *owner; /* the domain of several that this is a member of, or NULL */
	uint32_t place;          /* among its members */
	struct transport_options options;
	uint64_t chunk_bytes;
	pid_t pid;               /* that opened it: a forked child must not use it */
	uint32_t forks;          /* seen when it was opened */
	bool idles;              /* ops.idle knows when to look again */
	uint32_t batch;          /* chunks that a rail is offered before the next one's turn */
	uint32_t children;       /* regions and endpoints still open */
	_Atomic uint64_t interrupts;      /* ends the blocking call in progress */
	_Atomic uint32_t interrupt_pending; /* ends one signal_wait, this or the next */
};

struct transport_region {
	struct transport_domain *domain;
	void *state;
	void *memory;
	uint64_t bytes;
	bool mapped;    /* set by the provider */
	bool on_device; /* memory of a GPU */
	bool source; /* is only read from here */
	struct transport_region **parts; /* of a domain of several: by member, some NULL; or NULL */
};

struct transport_remote {
	struct transport_endpoint *endpoint; /* NULL once the endpoint closed */
	struct transport_remote *next, **link;
	void *state;
	void *pointer, *device_pointer;
	uint64_t bytes;
	bool kept; /* set by the provider: it was mapped before */
};

/* The window of posts that are not all complete, oldest first; ids count from 0.
 *
 *   ids      ... head ............ next
 *            done [ c . c c . . . ]        c: complete, out of order
 *
 * A write is done when every id up to its last is complete, so writes are done in order
 * whatever the order of completions. */
struct flow_entry {
	uint64_t bytes;
	uint32_t writes_ended; /* writes that end with this post (also empty ones after it) */
	bool complete;
};

struct flow {
	struct flow_entry *ring;
	uint32_t capacity, inflight, inflight_max;
	uint64_t head, next;
	uint64_t writes_done;
	uint64_t bytes_posted, bytes_done;
	uint32_t rail; /* next to try */
};

enum endpoint_stage { ENDPOINT_OPEN, ENDPOINT_CONNECTED, ENDPOINT_BROKEN };

struct transport_endpoint {
	struct transport_domain *domain;
	void *state;
	struct member peer;
	char name[TRANSPORT_NAME_BYTES]; /* of the peer, in every message */
	char path[TRANSPORT_PATH_BYTES]; /* once probed: the network that bytes take, for messages; or "" */
	enum endpoint_stage stage;
	struct error first;              /* when broken */
	struct transport_remote *remotes;
	struct flow flow;
	struct transport_stats stats;
	uint64_t sequence;               /* of the last signal sent */
	bool signal_posted;              /* that one, and nobody has waited until the target held it */
	uint64_t alive_at_ns;            /* when the peer was last seen alive */
	bool dead_seen;                  /* .. and it is not any more: what it had said is polled once more */
	bool (*left)(const void *context); /* transport_endpoint_ask_left */
	const void *left_context;
	_Atomic bool impaired;           /* one of its lanes is lost, and none is opened anew */
	bool guest;                      /* the peer knows memory of weft's alone: transport_endpoint_guest */
};

/* 0, or the message why nothing can be posted now. */
int endpoint_usable(const struct transport_endpoint *endpoint, struct error *error);
/* Makes *failure the endpoint's sticky error (unless it has one), copies it out. */
int endpoint_break(struct transport_endpoint *endpoint, const struct error *failure,
		   struct error *error);
/* The peer is gone, or has left: ERROR_PEER_LOST. Asks at most every 10 ms unless `now`. */
int endpoint_check_peer(struct transport_endpoint *endpoint, bool now, struct error *error);
/* The region as the endpoint's provider has it: itself, its part, or NULL. */
const struct transport_region *endpoint_region(const struct transport_endpoint *endpoint,
					       const struct transport_region *region);
/* A member of a domain of several; options are the whole's. */
int domain_open_member(struct transport_domain **out, const char *provider,
		       struct transport_domain *owner, uint32_t place, struct error *error);
int domain_check_process(const struct transport_domain *domain, struct error *error);
/* The same question without a message and without a system call: for the write path. */
bool domain_forked(const struct transport_domain *domain);

/* One blocking wait: spins, then sleeps in short steps; ends at the deadline, when the domain
 * is interrupted or (with an endpoint whose peer matters) the peer is gone. */
struct transport_wait {
	struct transport_domain *domain;
	uint64_t deadline_ns, started_ns, interrupts;
	uint32_t turns;
	bool sleeps; /* in ops.idle */
};
void wait_begin(struct transport_wait *wait, struct transport_domain *domain,
		uint64_t deadline_ns);
/* Whether this turn looks at anything but completions: the clock, interrupts, the peer. */
bool wait_looks(const struct transport_wait *wait);
/* 0: look again. ERROR_TIMEOUT or ERROR_INTERRUPTED: the caller adds what was missing. */
int wait_turn(struct transport_wait *wait, struct error *error);

int flow_init(struct flow *flow, uint32_t inflight_max, struct error *error);
void flow_fini(struct flow *flow);
bool flow_room(const struct flow *flow);
void flow_add(struct flow *flow, uint64_t bytes, uint32_t writes_ended);
void flow_end_write(struct flow *flow); /* a write without a chunk of its own */
int flow_complete(struct flow *flow, uint64_t id, struct error *error);

/* Reaps everything that is there. */
int endpoint_poll(struct transport_endpoint *endpoint, struct error *failure);
int endpoint_drain(struct transport_endpoint *endpoint, const char *doing,
		   struct transport_wait *wait, struct error *failure);

#endif
