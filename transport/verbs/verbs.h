/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs.h -- provider "verbs": RDMA writes over RC queue pairs. Private to this folder.
 *
 *   domain ─┬─ nic 0 (device:port) ── pd, receive cq + srq + channel, memory keys
 *           └─ nic 1 ...
 *   endpoint ─┬─ lane 0 = queue pair 0 on nic 0 ◄══ RC ══► queue pair of the peer
 *             ├─ lane 1 = queue pair 1 on nic 0
 *             └─ lane 2 = queue pair 0 on nic 1 ...       "rail" of the shared layer = lane
 *
 * Data: a chunk becomes one signalled WRITE on the lane with credit (more where it crosses a
 * border of a registration). The ring of a lane holds one entry per request in flight, oldest
 * first; RC completes in order, so wr_id is checked against the ring, not trusted.
 *
 * Signal: the slot (mailbox.h) is written by WRITE_WITH_IMM on the first live lane, an empty
 * WRITE_WITH_IMM goes on every other live one; each stays behind the data of its lane. The
 * immediate says which signal and which lanes carry it. The target counts: when all lanes named
 * have delivered, every earlier byte is visible, whatever the order between lanes
 * (docs/verbs.md), and it moves `latest` on itself.
 *
 *   lane 0  W W W . . . I(7,{0,1})        target: 7 has {0}; waits
 *   lane 1  W . . W W I(7,{0,1})                  7 has {0,1}: signal 7 is here
 *
 * With more lanes than one a signal is posted only when all data is acknowledged (caps.ordered is
 * false): else a lane that dies would have its data go out again behind the signal, while the
 * target, having all of it from the dead lane after all, shows the version and is written anew.
 *
 * A lane that dies (retries exhausted, port or device gone): its unfinished requests are posted
 * again on the lanes that live, and the next signal, or the same one again, names only those. A
 * target that sees a signal without a lane closes its end of it (QP to ERR) before it shows the
 * signal to anybody: so no late write of a dead lane can land in a later version. The last lane's
 * death, and any failure that is not of a path, breaks the endpoint.
 *
 * Threads: the owner (one thread at a time per domain) posts, polls send queues, opens and
 * closes. Any thread may receive: signal_read and signal_wait count immediates under
 * receive_lock. What both touch is atomic or under that lock.
 */
#ifndef TRANSPORT_VERBS_VERBS_H
#define TRANSPORT_VERBS_VERBS_H

#include "base/array.h"
#include "transport/identity.h"
#include "transport/mailbox.h"
#include "transport/pages.h"
#include "transport/cuda/calls.h"
#include "transport/provider.h"
#include "transport/verbs/calls.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/facts.h"
#include "transport/verbs/records.h"
#include "transport/verbs/settings.h"
#include <pthread.h>
#include <sched.h>

#define VERBS_BLOCK_BYTES  65536u
#define VERBS_PROBE_BYTES  4096u
/* To see every request flushed before the queue pairs go. It is for the record only: destroying
 * them is what stops the device, and some lose a flushed completion. */
#define VERBS_DRAIN_NS     UINT64_C(2000000000)

/* transport_options.provider_options, for tests; NULL: the system's libibverbs and environment. */
struct verbs_options {
	const struct verbs_calls *calls;
	const struct verbs_settings *settings;
	bool no_identity; /* behave as if every peer were on another host */
};

/* ---- memory that peers signal into: blocks of slots, registered on every NIC ---- */

/* One per endpoint. `mailbox.bank` is written by the peer; mailbox.latest by us, to read a bank. */
struct verbs_slot {
	_Alignas(64) struct mailbox_slot mailbox;
	_Alignas(64) struct mailbox_bank out; /* what we send; the source of our signals */
};

struct verbs_block {
	unsigned char *memory;       /* VERBS_BLOCK_BYTES; starts with VERBS_PROBE_BYTES of probe area */
	struct ibv_mr *mrs[VERBS_NICS_MAX];
	uint32_t used;               /* slots taken */
	unsigned char taken[(VERBS_BLOCK_BYTES - VERBS_PROBE_BYTES) / sizeof(struct verbs_slot)];
};
#define VERBS_BLOCK_SLOTS ((VERBS_BLOCK_BYTES - VERBS_PROBE_BYTES) / sizeof(struct verbs_slot))

struct verbs_place {
	struct verbs_block *block;
	uint32_t index;
};

/* ---- one port of one device ---- */

struct verbs_nic {
	struct verbs_domain *domain;
	uint32_t index;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;  /* of receive_cq */
	struct ibv_cq *receive_cq;
	struct ibv_srq *srq;
	uint32_t receive_depth, receives_posted;
	struct verbs_device limits;        /* facts; its ports are not owned here */
	uint8_t port;
	enum verbs_link link;
	struct verbs_gid gid;
	uint32_t lid, mtu, netdev_mtu, traffic_class, pkey_index, pkey;
	uint32_t max_message_bytes;
	bool new_post;                     /* ibv_wr_* works here */
	_Atomic bool down;                 /* PORT_ERR came, PORT_ACTIVE not yet */
	_Atomic uint64_t down_since_ns;    /* when it came, while down */
	_Atomic bool gid_gone;             /* our address was taken away, and is not back */
	_Atomic bool lost;                 /* DEVICE_FATAL */
	_Atomic uint64_t events_window_ns; /* lines about events: so many a window, no more */
	_Atomic uint32_t events_told, events_untold;
	struct provider_traffic *traffic;  /* the shared domain's, of this NIC */
};

enum verbs_gpu { VERBS_GPU_NONE, VERBS_GPU_DMABUF, VERBS_GPU_PEERMEM };

struct verbs_domain {
	const struct verbs_calls *calls;
	struct verbs_settings settings;
	struct identity self;
	bool no_identity;
	enum verbs_gpu gpu;                /* how memory of GPUs is registered */
	uint64_t nonce;
	uint32_t attempts;
	bool warned_peers;                 /* that a peer is set differently: said once */
	uint32_t nic_count, lane_count;    /* lane_count = nic_count * settings.qps */
	struct verbs_nic nics[VERBS_NICS_MAX];
	ARRAY(struct verbs_block *) blocks;
	struct doorbell doorbell;
	int wake_fd;                       /* eventfd: ends a signal_wait */
	pthread_mutex_t receive_lock;      /* lanes, receive side of endpoints */
	pthread_mutex_t shown_lock;        /* what readers are told; held for a copy, innermost */
	pthread_mutex_t wait_lock;         /* one thread sleeps on the descriptors */
	ARRAY(struct verbs_lane *) lanes;  /* of all endpoints, sorted by (nic, qpn) */
	_Atomic bool breaking;             /* who writes `broken` */
	struct error broken;               /* CQ or SRQ error: nothing can be trusted any more */
	_Atomic bool is_broken;
	_Atomic uint64_t stray_receives;   /* immediates of unknown queue pairs or sequences */
};

/* ---- memory of the caller ---- */

struct verbs_region {
	uint64_t piece_bytes;
	uint32_t piece_count;
	struct pages pages;                /* of a region allocated here */
	struct ibv_mr **mrs;               /* [piece * nic_count + nic] */
	struct late_write *late;           /* for a NIC that does not let go of it */
};

/* ---- an endpoint and its lanes ---- */

struct verbs_entry {
	uint64_t id;                       /* of the shared layer's post */
	const unsigned char *source;       /* what to replay on another lane */
	const struct transport_region *region;
	struct transport_remote *remote;
	uint64_t offset;
	uint32_t bytes;
	uint8_t kind;                      /* enum verbs_kind */
	bool last;                         /* of its post: completing it completes id */
	bool signalled;                    /* a completion comes for it; set when it is posted */
	bool withdrawn;                    /* its whole post goes out anew: not from here again */
	uint64_t posted_ns;                /* of its batch */
};

enum verbs_lane_state {
	VERBS_LANE_UNUSED,                 /* its NIC has no partner at this peer */
	VERBS_LANE_READY,
	VERBS_LANE_DYING,                  /* QP in ERR, flushed completions still to come */
	VERBS_LANE_DEAD
};

struct verbs_lane {
	struct verbs_endpoint *endpoint;
	struct verbs_nic *nic;
	uint32_t index;                    /* in the endpoint: the shared layer's rail */
	uint32_t wire_index;               /* bit in an immediate: the trainer's index, on both sides */
	_Atomic int state;                 /* enum verbs_lane_state */
	_Atomic bool closed_by_signal;     /* a receiver moved it to ERR: the peer gave it up */
	_Atomic bool closed_by_event;      /* an async event of its queue pair did */
	struct ibv_qp *qp;
	struct ibv_qp_ex *qp_ex;           /* NULL: ibv_post_send */
	uint32_t psn;
	uint32_t peer_nic;                 /* in the peer's record */
	struct verbs_side local, remote;   /* for messages */
	uint32_t path_mtu;                 /* bytes */
	struct verbs_entry *ring;          /* settings.depth entries, a power of two */
	uint32_t depth;
	uint64_t head, tail;               /* oldest not reported, next to post */
	uint64_t done;                     /* head <= done <= tail: complete below this */
	uint64_t flushed;                  /* dying: error completions came below this */
	uint32_t unsignalled;              /* posted since the last signalled one */
	uint64_t dying_ns;
	/* receive side, under receive_lock: the newest signal that this lane delivered */
	uint64_t seen;
	uint32_t seen_lanes;
};

struct verbs_endpoint {
	struct transport_endpoint *shared;
	struct verbs_domain *domain;
	struct verbs_place place;
	struct verbs_slot *slot;
	uint32_t attempt;
	struct ibv_cq *send_cqs[VERBS_NICS_MAX]; /* never overflows: sum of its lanes' depths */
	struct verbs_lane lanes[VERBS_LANES_MAX];  /* lane = nic * qps + q, as rails above */
	uint32_t lane_count;
	bool connected;
	struct verbs_endpoint_record peer;
	int pidfd;                         /* of the peer where comparable, or -1 */
	/* posts that go to another lane: lane death put them here, poll posts them */
	struct verbs_entry *replay;
	uint32_t replay_head, replay_count, replay_capacity;
	/* which lane was posted to last, and how many bytes in a row */
	uint32_t run_lane;
	uint64_t run_bytes;
	/* the signal in flight */
	uint64_t signal_id, signal_sequence;
	uint32_t signal_lanes;             /* bits still to complete */
	uint32_t signal_round;             /* counts: a lost lane makes the signal go out again */
	bool signal_active, replay_signal;
	uint32_t dying;                    /* lanes in DYING */
	uint32_t idle_polls;
	_Atomic bool attention;            /* a lane was closed by another thread */
	/* receive side, under receive_lock. Every live lane carries every signal, in order, so
	 * the newest signal of each lane says all: a signal is complete when every lane named
	 * has delivered it. A mask only shrinks; one that does starts its signal anew. */
	uint64_t received;                 /* sequence of the newest complete signal */
	struct transport_signal shown;     /* its signal, under shown_lock; sequence 0: none yet */
	uint32_t lanes_named;              /* smallest mask seen; 0: no signal came yet */
	uint64_t lanes_named_at;           /* first sequence with that mask */
	struct error receive_error;        /* what the peer sent made no sense: for the owner */
	_Atomic bool receive_broken;
};

#define verbs_each_lane(lane, endpoint)                                                    \
	for (__typeof__((endpoint)->lanes[0]) *lane = (endpoint)->lanes;                   \
	     lane < (endpoint)->lanes + (endpoint)->lane_count; lane++)
#define verbs_each_nic(nic, domain)                                                        \
	for (__typeof__((domain)->nics[0]) *nic = (domain)->nics;                          \
	     nic < (domain)->nics + (domain)->nic_count; nic++)

/* ---- the ops, typed as provider.h has them: verbs_domain_open and so on ---- */
#define X(op) extern __typeof__(*((struct provider *)NULL)->op) verbs_##op;
PROVIDER_OPS(X)
#undef X

/* ---- domain.c, nic.c ---- */
/* Everything that one NIC needs, and undone. */
int verbs_nic_open(struct verbs_nic *nic, const struct verbs_facts *facts,
		   const struct verbs_nic_choice *choice, struct error *error);
void verbs_nic_close(struct verbs_nic *nic);
/* ERROR_PEER_LOST when a record was made by a process of this host that has ended. */
int verbs_identity_check(const struct verbs_domain *domain, const struct identity *peer,
			 struct error *error);
/* Whether relaxed ordering does good on this processor, by the text of /proc/cpuinfo: all but
 * Intel's Haswell and Broadwell, where it makes writes slow. Pure. */
bool verbs_relaxed_fits(const char *cpuinfo);
/* CQ_ERR and the like: every endpoint breaks with this. First one wins. */
void verbs_domain_break(struct verbs_domain *domain, const struct error *why);

/* ---- gpu.c ---- */
/* Decides verbs->gpu, of the GPU that the options name, by registering some of its memory, or writes why not (domain->no_gpu).
 * Says it in one line. The domain's NICs are open. */
void verbs_gpu_choose(struct transport_domain *domain, struct verbs_domain *verbs);
/* Where the GPU sits whose distance NICs are chosen by; "": there is none. */
const char *verbs_gpu_pci(const struct transport_domain *domain, struct cuda_facts *facts);

/* ---- slots.c ---- */
int verbs_slot_take(struct verbs_domain *domain, struct verbs_place *place,
		    struct error *error);
void verbs_slot_give(struct verbs_place place);
struct verbs_slot *verbs_slot_at(struct verbs_place place);
void verbs_slots_close(struct verbs_domain *domain);

/* ---- region.c ---- */
/* The remote was made by the process that the endpoint is connected to. */
int verbs_remote_check(const struct transport_remote *remote, struct error *error);

/* ---- endpoint.c: open, record, fence, close ---- */
/* What the endpoint's record says. */
void verbs_endpoint_describe(const struct verbs_endpoint *endpoint,
			     struct verbs_endpoint_record *record);

/* ---- lane.c: one queue pair's life ---- */
int verbs_lane_create(struct verbs_lane *lane, struct error *error);       /* to INIT */
int verbs_lane_connect(struct verbs_lane *lane, const struct verbs_endpoint_record *peer,
		       uint32_t peer_nic, uint32_t peer_lane, struct error *error); /* to RTS */
/* To ERR. Safe from any thread while the QP exists; later posts flush. True: the device has done
 * it, so what it had acknowledged is in memory and nothing more comes this way. */
bool verbs_lane_stop(struct verbs_lane *lane);
void verbs_lane_destroy(struct verbs_lane *lane);
/* Where our GID stands in the device's table now, by value: 0, or 1 when it is gone. */
int verbs_gid_find(const struct verbs_nic *nic, uint32_t *index, struct error *error);
/* "mlx5_0:1 gid[3] ... -> mlx5_1:1 ...": both ends, for messages. */
#define VERBS_LANE_TEXT_BYTES (2 * VERBS_SIDE_TEXT_BYTES + 8)
const char *verbs_lane_text(const struct verbs_lane *lane, char text[VERBS_LANE_TEXT_BYTES]);
/* Ready, and nobody has closed it or lost its device since. */
static inline bool verbs_lane_lives(const struct verbs_lane *lane)
{
	return atomic_load_explicit(&lane->state, memory_order_relaxed) == VERBS_LANE_READY &&
	       !atomic_load_explicit(&lane->closed_by_signal, memory_order_relaxed) &&
	       !atomic_load_explicit(&lane->closed_by_event, memory_order_relaxed) &&
	       !atomic_load_explicit(&lane->nic->lost, memory_order_relaxed);
}

/* ---- post.c: the hot path ---- */
/* One request on one lane: the single place that knows ibv_wr_* and ibv_post_send. Requests of a
 * batch ring one doorbell. *posted: how many the device took, also on error. */
struct verbs_request {
	struct verbs_entry entry;
	uint64_t local_address, remote_address;
	uint32_t lkey, rkey;
	bool immediate;
	uint32_t immediate_value;
};
int verbs_lane_post(struct verbs_lane *lane, const struct verbs_request *requests,
		    uint32_t count, uint32_t *posted, struct error *error);
/* A post failed because its lane was closed or its device is lost, and another lane lives: to
 * the caller that is a full lane, and the next poll sees to it. False: a failure. */
bool verbs_lane_refused(struct verbs_lane *lane);
static inline struct verbs_entry *verbs_entry_at(const struct verbs_lane *lane, uint64_t position)
{
	return &lane->ring[position & (lane->depth - 1)];
}
/* Slots of a lane that only signals may take: one for the signal, one for the same again. */
#define VERBS_SIGNAL_SLOTS 2
static inline uint32_t verbs_lane_free(const struct verbs_lane *lane)
{
	return lane->depth - (uint32_t)(lane->tail - lane->head);
}
static inline uint32_t verbs_lane_room(const struct verbs_lane *lane)
{
	uint32_t free = verbs_lane_free(lane);

	return free > VERBS_SIGNAL_SLOTS ? free - VERBS_SIGNAL_SLOTS : 0;
}
/* Addresses and keys of request->entry on this lane's NIC. */
void verbs_request_fill(const struct verbs_lane *lane, struct verbs_request *request);
/* The signal in slot->out on every live lane. 1: a lane has no slot. */
int verbs_signal_send(struct verbs_endpoint *endpoint, struct error *error);

/* ---- processor.c: a software NIC works where its lanes are posted ---- */
/* The lane's processor, of the `number`th of those allowed; -1: none is. Pure. */
int verbs_processor_of(const cpu_set_t *allowed, uint32_t number);
/* Moves this thread to the processor of a software NIC's lane; true: leave puts it back. */
bool verbs_processor_enter(const struct verbs_lane *lane, cpu_set_t *allowed);
void verbs_processor_leave(const cpu_set_t *allowed);
/* Not this lane's turn yet: a software NIC's lane has not had its bytes, and can take more. */
bool verbs_run_elsewhere(const struct verbs_endpoint *endpoint, uint32_t rail);
void verbs_run_took(struct verbs_endpoint *endpoint, uint32_t rail, uint64_t bytes);

/* ---- replay.c: a lane dies, others take over ---- */
/* Room for everything unfinished that lanes of this endpoint can leave. */
int verbs_replay_reserve(struct verbs_endpoint *endpoint, struct error *error);
/* Another lane than this one lives. */
bool verbs_lane_has_other(const struct verbs_lane *lane);
void verbs_lane_die(struct verbs_lane *lane, const char *why);
/* Lanes whose flushed completions are in (or do not come) hand over what they had; then that
 * and the signal are posted on the lanes that live. */
int verbs_replay(struct verbs_endpoint *endpoint, struct error *error);

/* ---- poll.c: completions, lanes that die, posting again ---- */
/* What is known of a request that failed; but for the trouble of its port. */
struct verbs_failure verbs_lane_failure(const struct verbs_lane *lane, const struct ibv_wc *wc,
					const struct verbs_entry *entry);
/* Takes completions of this lane's NIC until nothing of the lane is in flight: it is in ERR. */
void verbs_lane_drain(struct verbs_lane *lane, uint64_t deadline_ns);

/* ---- receive.c: counting immediates ---- */
/* Posts receives until the SRQ is full again. */
int verbs_receive_refill(struct verbs_nic *nic, struct error *error);
/* Counts what has arrived, on all NICs; any thread. */
void verbs_receive(struct verbs_domain *domain);
/* The table of lanes by (NIC, queue pair number); under receive_lock inside. */
int verbs_receive_add(struct verbs_domain *domain, struct verbs_lane *lane,
		      struct error *error);
void verbs_receive_remove(struct verbs_domain *domain, const struct verbs_endpoint *endpoint);
/* The NIC's device has failed; under receive_lock. Its lanes' owners have to look, and an endpoint
 * that weights came to through it breaks: what a device acknowledged and had not placed is lost. */
void verbs_receive_lost(struct verbs_nic *nic);

/* ---- events.c ---- */
/* Drains the async events of every NIC and acts on them by port. Any thread; cheap when there
 * are none. */
void verbs_events(struct verbs_domain *domain);

#endif
