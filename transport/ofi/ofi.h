/* SPDX-License-Identifier: Apache-2.0
 *
 * ofi.h -- providers "tcp" and "efa": one-sided writes over libfabric. Private to this folder.
 *
 *   domain ─┬─ rail 0 (eth0) ── fid_domain, cq, eq, listening addresses
 *           └─ rail 1 ...
 *   endpoint ─┬─ lane 0 = a fid_ep of its own on a rail ◄═══► fid_ep of the peer
 *             └─ lane 1 ...                  "rail" of the shared layer = lane
 *
 * Data: a chunk becomes one RMA write with 32 bits of remote completion data, which name endpoint
 * and lane at the target. The target counts them. Signal: a message, behind the writes, on each
 * lane that carried any since the last one (all lanes carry the same message). It says which lanes
 * these are, and how many writes each lane has carried since the endpoint was opened:
 *
 *   lane 0  W W W . . . S{3,2}       target: arrived {3,1}: the signal waits
 *   lane 1  W W S{3,2}                       arrived {3,2}, and both messages: it is there
 *
 * It waits for all of its messages too, or a target that leaves with its last signal would cut off a
 * message that its sender still wants taken. So nothing is asked of the order of writes and messages,
 * in one lane or between lanes: over tcp a lane is a stream and keeps it, EFA's SRD keeps none. A
 * message completes at the sender when the target has taken it (FI_DELIVERY_COMPLETE), and on a stream
 * everything before it with it; over EFA a write completes when it has landed.
 *
 * A lane that is lost while others live: what it had goes out again on those (lost.c, replay.c). Bytes that
 * libfabric has sent may lie in a socket that is gone, so a write is done, and its source free, only on the
 * target's word that it is there: one write in several asks for it, on a stream for all before it too.
 *
 *   lane 1  W1 W2 W3 W4 W5 x       sender: has the word for two; closes its end
 *   lane 0  ── lost {1} ─────────► target: closes its end: nothing of lane 1 lands from here on. Only then
 *           ◄─ lost {1}, {.., 4} ─         it says what it has counted, W4 among it, for good
 *   lane 0  W5 S{.., 4}            W5 goes out again; of lane 1 there are four, in every signal from now on
 *
 * So a write is counted once: on the lane that is gone, or on another one. And none goes out again that a
 * signal shown had told of: such a signal waits for counts of the lost lane that never come; it goes out in
 * another round, with those that are right then. A stream has counted its first ones; without an order
 * it is not known which, and all go out again for which there is no word, unless all were counted. Each side
 * says "lost" by itself, whoever notices first, for what both send. Where no lane is left, or no word comes
 * until the deadline, the endpoint breaks: nobody could say what is still under way.
 *
 * A lane is of one peer alone: closing its fid_ep is the fence, after which nothing can land. The way
 * to a peer (way.h) is what differs: connections over tcp, whose requests carry a cookie that only the
 * peer of this job was told of, and addresses over EFA.
 *
 * Threads: the owner (one thread at a time per domain) posts, polls, opens and closes. Threads
 * take what arrives (thread.c); libfabric's tcp provider moves bytes only inside its calls. Locks,
 * in this order: rail->lock (its queues are read, lanes on it opened and closed), domain->lock (what
 * threads and owner share of endpoints).
 */
#ifndef TRANSPORT_OFI_OFI_H
#define TRANSPORT_OFI_OFI_H

#include "base/array.h"
#include "transport/identity.h"
#include "transport/mailbox.h"
#include "transport/ofi/calls.h"
#include "transport/ofi/interfaces.h"
#include "transport/ofi/records.h"
#include "transport/ofi/settings.h"
#include "transport/pages.h"
#include "transport/provider.h"
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#define OFI_RECEIVES    4u       /* messages that one lane can hold unread; one comes at a time */
#define OFI_MESSAGES    (2 + OFI_RECEIVES) /* of a lane: one to send, one of lost lanes, receives */
#define OFI_HELD        2u       /* times the depth: writes of a lane that the peer has not told of */
#define OFI_PROBE_BYTES 65536u
#define OFI_EMPTY_LOOKS 2u       /* before a sleep, which costs the next arrival a wake-up */

struct ofi_way;

/* transport_options.provider_options, for tests; NULL: the system's libfabric and environment. */
struct ofi_options {
	const struct ofi_calls *calls;
	const struct ofi_settings *settings;
	const char *fabric;          /* libfabric's provider behind "efa"; NULL: "efa" */
	bool no_sleep;               /* behave as if no queue could be slept on, as EFA's cannot */
	bool no_identity;            /* behave as if every peer were on another host */
	bool stream;                 /* behave as if every lane kept order, as streams do */
};

/* ---- what is sent ---- */

/* Little-endian as it lies: all hosts that libfabric's providers here run on are. */
struct ofi_message {
	uint32_t kind;               /* enum ofi_message_kind */
	uint32_t tag, length, lanes;
	uint32_t carriers;           /* lanes that bring this signal, a bit each; LOST: that are closed here */
	uint32_t round;              /* of this sequence: a later one takes the place of an earlier */
	uint64_t sequence;           /* LOST: of the newest that is shown */
	uint64_t complete;           /* LOST: of the newest that is complete, which payload is of; 0: none */
	unsigned char payload[TRANSPORT_PAYLOAD_BYTES];
	uint32_t writes[OFI_RAILS_MAX]; /* of each lane since it was opened, modulo 2^32; LOST: that landed */
};
enum ofi_message_kind {
	OFI_MESSAGE_PROBE = 0x77660001, /* says nothing; that it was taken does */
	OFI_MESSAGE_SIGNAL = 0x77660002,
	OFI_MESSAGE_LOST = 0x77660003
};

enum ofi_op_kind {
	OFI_OP_WRITE,
	OFI_OP_PROBE,                /* a write or a message */
	OFI_OP_SIGNAL,
	OFI_OP_ASK,                  /* a message whose delivery is the word on what is before it */
	OFI_OP_LOST,
	OFI_OP_RECEIVE
};

/* One call to libfabric that is not complete; its context, so it must lie still. */
struct ofi_op {
	struct fi_context2 context;  /* first: what a completion points to */
	struct ofi_lane *lane;
	enum ofi_op_kind kind;
	bool is_write, posted;       /* posted: libfabric has it */
	bool told;                   /* a write: the peer has it, or there is no telling any more */
	bool covers;                 /* its completion tells of the lane's first `upto` writes */
	uint32_t upto;
	struct ofi_message *message; /* of what is no write */
	struct provider_write write; /* what is posted anew on another lane */
};

/* ---- a rail ---- */

struct ofi_listener {
	struct fid_pep *pep;         /* NULL: an address that is only told */
	struct ofi_address address;
};

struct ofi_rail {
	struct ofi_domain *domain;
	uint32_t index;
	struct ofi_interface interface;
	struct provider_traffic *traffic; /* the shared domain's, of this interface */
	struct fi_info *info;        /* of the interface's first address */
	struct fid_fabric *fabric;
	struct fid_domain *access;
	struct fid_cq *cq;
	struct fid_eq *eq;           /* connections alone */
	struct fid_av *av;           /* addresses alone */
	int cq_fd, eq_fd;            /* -1: cannot be slept on, so the thread looks again and again */
	struct ofi_listener listeners[OFI_ADDRESSES_MAX];
	uint32_t listener_count;
	bool closing;                /* who calls now is turned away without a word */
	struct fid_mr *probe_mr;
	uint64_t probe_key, probe_base;
	pthread_mutex_t lock;
	_Atomic uint64_t owner_looks; /* the owner reads the queues itself while this changes */
	_Atomic bool mend;            /* a lane may have to be closed or told of (lost.c) */
	_Atomic uint64_t strangers;   /* connection requests without the right cookie */
};

/* Looks after the rails index, index + stride, .. */
struct ofi_thread {
	struct ofi_domain *domain;
	uint32_t index, stride;
	pthread_t id;
	int wake_fd;
	_Atomic bool stop;
	_Atomic bool aside;          /* it has left rails to the owner */
	_Atomic bool recalled;       /* which does not look at them any more */
};

struct ofi_domain {
	const struct ofi_calls *calls;
	const struct ofi_way *way;
	const char *name;            /* of the provider */
	const char *fabric;          /* of libfabric's */
	struct ofi_settings settings;
	struct identity self;
	bool no_sleep, no_identity;
	bool stream;                 /* lanes keep order */
	uint64_t nonce;
	uint32_t rail_count;
	struct ofi_rail rails[OFI_RAILS_MAX];
	uint32_t thread_count;
	struct ofi_thread threads[OFI_RAILS_MAX];
	struct pages probe;          /* OFI_PROBE_BYTES that are sent, as many that each rail's peers write */
	struct doorbell doorbell;
	pthread_mutex_t lock;
	ARRAY(struct ofi_endpoint *) endpoints; /* by index; NULL: free */
	uint32_t generation;         /* of the next index that is given */
};

struct ofi_region {
	struct pages pages;          /* of a region allocated here */
	struct fid_mr *mrs[OFI_RAILS_MAX];
	void *descs[OFI_RAILS_MAX];
	uint64_t keys[OFI_RAILS_MAX], bases[OFI_RAILS_MAX];
	bool writable;               /* peers may write it */
};

/* ---- an endpoint and its lanes ---- */

enum ofi_lane_state {
	OFI_LANE_IDLE,               /* no connection yet, or none is to be */
	OFI_LANE_CALLED,             /* the peer has called before this side had its record */
	OFI_LANE_CONNECTING,
	OFI_LANE_READY,
	OFI_LANE_DEAD
};

enum ofi_probe { OFI_PROBE_TO_WRITE, OFI_PROBE_TO_SEND, OFI_PROBE_POSTED };

struct ofi_lane {
	struct ofi_endpoint *endpoint;
	struct ofi_rail *_Atomic rail; /* where its fid_ep is; set once */
	uint32_t index, peer_rail;
	_Atomic int state;           /* enum ofi_lane_state; changed under domain->lock */
	int lost_errnum;             /* DEAD: why */
	struct fi_info *call;        /* CALLED: what is to be accepted; under rail->lock */
	struct fid_ep *ep;           /* under rail->lock for opening and closing */
	fi_addr_t address;           /* FI_ADDR_UNSPEC over a connection */
	char path[160];              /* "eth0 10.0.0.1 to 10.0.0.2:4711", for messages */
	bool used;                   /* since the last signal */
	enum ofi_probe probe;        /* what of it is posted */
	_Atomic bool posting;        /* the owner is in a call with ep: it stays */
	_Atomic uint32_t in_flight;  /* writes that libfabric has */
	/* Writes by number since it was opened, modulo 2^32; those in [told, writes) lie in ops:
	 *     done ... told ... covered ... writes     covered: what is posted will tell of those before */
	uint32_t writes, covered;
	_Atomic uint32_t told;
	struct ofi_op *ops;          /* a ring of endpoint->op_count */
	uint32_t arrived;            /* writes of the peer's that landed; under domain->lock */
	/* DEAD; under domain->lock */
	bool closed;                 /* here: arrived is final */
	bool given_up;               /* there: peer_counted is */
	bool settled;                /* the owner knows which writes go out again */
	uint32_t peer_counted;
	uint64_t peer_shown;         /* newest signal by then */
	struct ofi_op receives[OFI_RECEIVES];
	struct ofi_op send;          /* a signal, a probe or a question: one at a time */
	struct ofi_op tell;          /* of lost lanes */
};

/* A signal that is not whole. */
struct ofi_waiting {
	struct ofi_message message;
	uint32_t seen;               /* lanes that have brought it, a bit each */
};

struct ofi_endpoint {
	struct transport_endpoint *shared;
	struct ofi_domain *domain;
	uint32_t index, data;        /* data: what the peer's writes carry, with the lane added */
	unsigned char cookie[OFI_COOKIE_BYTES];
	struct mailbox_slot slot;
	struct pages messages;       /* of lanes: one to send, OFI_RECEIVES to receive each */
	struct fid_mr *message_mrs[OFI_RAILS_MAX]; /* where a rail wants it (FI_MR_LOCAL) */
	void *message_descs[OFI_RAILS_MAX];
	struct ofi_lane lanes[OFI_RAILS_MAX];
	uint32_t lane_count;         /* ours; those in use are the fewer of both sides */
	bool connected;
	struct ofi_endpoint_record peer;
	int pidfd;                   /* of the peer where comparable, or -1 */
	struct ofi_op *ops;          /* of all lanes' writes */
	uint32_t op_count;           /* of each */
	uint32_t quiet;              /* polls in a row that found nothing */
	_Atomic bool mending;        /* a lane is lost, and the owner has something to do about it */
	/* the signal in flight; bits of lanes are changed under domain->lock */
	struct ofi_message signal;
	uint64_t signal_id;
	uint32_t signal_to_post;     /* lanes that still take it */
	/* under domain->lock */
	bool signalling;             /* it is not complete */
	bool replay_signal;           /* this round of it may not get there */
	struct ofi_message complete; /* the newest that is; sequence 0: none */
	uint32_t writes_left;        /* that are not done */
	uint32_t gone, gone_telling, gone_told; /* lanes: closed here; of which the peer is told; knows */
	uint32_t lost_last;          /* the lane */
	bool closing;                /* lanes are or will be closed: no new one */
	struct error failure;        /* for the owner's next poll */
	uint64_t *done;              /* ring of completed posts for poll */
	uint32_t done_head, done_count, done_capacity;
	uint32_t probes_left, signals_left;
	struct ofi_waiting waiting[OFI_RECEIVES];
	uint32_t waiting_count;
	uint64_t shown;              /* newest sequence in the slot */
};

static inline struct ofi_op *ofi_lane_op(const struct ofi_lane *lane, uint32_t number)
{
	return &lane->ops[number % lane->endpoint->op_count];
}

#define ofi_each_lane(lane, endpoint)                                                      \
	for (struct ofi_lane *lane = (endpoint)->lanes;                                    \
	     lane < (endpoint)->lanes + (endpoint)->lane_count; lane++)
#define ofi_each_rail(rail, domain)                                                        \
	for (struct ofi_rail *rail = (domain)->rails;                                      \
	     rail < (domain)->rails + (domain)->rail_count; rail++)
#define ofi_each_watched(rail, thread)                                                     \
	for (struct ofi_rail *rail = (thread)->domain->rails + (thread)->index;            \
	     rail < (thread)->domain->rails + (thread)->domain->rail_count;                \
	     rail += (thread)->stride)

/* ---- the ops, typed as provider.h has them: ofi_domain_close and so on ---- */
#define X(op) extern __typeof__(*((struct provider *)NULL)->op) ofi_##op;
PROVIDER_OPS(X)
#undef X
int ofi_tcp_open(struct transport_domain *domain, struct error *error);
int ofi_efa_open(struct transport_domain *domain, struct error *error);

/* ---- errors.c ---- */
/* "<what>: <libfabric's words> (errno N)", as ERROR_LIMIT, MEMORY, UNSUPPORTED, .. by the errno. */
int ofi_error(struct error *error, const struct ofi_domain *domain, int errnum, const char *format,
	      ...) __attribute__((format(printf, 4, 5)));
/* A lane that worked and does not any more: the message for its owner. */
int ofi_lane_error(struct error *error, const struct ofi_lane *lane, int errnum);

/* ---- rail.c ---- */
int ofi_rail_open(struct ofi_rail *rail, struct error *error);
void ofi_rail_close(struct ofi_rail *rail);
/* Memory on this rail. key and base: what a peer needs to write it; access: FI_WRITE, FI_SEND, .. */
int ofi_rail_register(struct ofi_rail *rail, void *memory, uint64_t bytes, uint64_t access,
		      struct fid_mr **mr, uint64_t *key, uint64_t *base, struct error *error);
bool ofi_rail_needs_local(const struct ofi_rail *rail);

/* ---- progress.c ---- */
/* Takes what is there, unless a thread is at it: the owner's look. */
void ofi_rail_progress(struct ofi_rail *rail);
/* Some of what is there; false: nothing was. The caller holds rail->lock. */
bool ofi_rail_read(struct ofi_rail *rail);
/* Reads until nothing is left; the caller holds rail->lock. */
void ofi_rail_drain(struct ofi_rail *rail);
/* Whether libfabric's descriptors will tell of what comes next; false: something is there. */
bool ofi_rail_may_sleep(struct ofi_rail *rail, bool completions, bool events);

/* ---- thread.c ---- */
int ofi_threads_start(struct ofi_domain *domain, struct error *error);
void ofi_threads_stop(struct ofi_domain *domain);
/* There is something to do at this rail that no descriptor tells of. */
void ofi_thread_wake(struct ofi_rail *rail);
/* The owner sleeps from here on: the threads read again what it has read. */
void ofi_threads_recall(struct ofi_domain *domain);

/* ---- complete.c: what a completion means; the caller holds rail->lock ---- */
void ofi_complete(struct ofi_rail *rail, const struct fi_cq_data_entry *entry);
void ofi_complete_error(struct ofi_rail *rail, const struct fi_cq_err_entry *entry);
/* The lane does not work any more; errnum of libfabric's. */
void ofi_lane_lost(struct ofi_lane *lane, int errnum);
void ofi_lane_lost_locked(struct ofi_lane *lane, int errnum); /* under domain->lock */
/* It is closed: libfabric has nothing of it any more. Under domain->lock. */
void ofi_lane_returned(struct ofi_lane *lane);
/* Those of its writes of which nothing will be told do not wait any more; under domain->lock. */
void ofi_lane_forgets(struct ofi_lane *lane);
/* The peer has the lane's first `upto` writes; under domain->lock. */
void ofi_lane_told(struct ofi_lane *lane, uint32_t upto);
/* Tells of the signal if it and all before it are there; under domain->lock. */
void ofi_signal_finish(struct ofi_endpoint *endpoint);
/* A message of this round does not get there; under domain->lock. */
void ofi_signal_fails(struct ofi_endpoint *endpoint);
/* The rail's queue cannot be read any more: no lane on it works. */
void ofi_rail_failed(struct ofi_rail *rail, int errnum);

/* ---- lane.c ---- */
/* A fid_ep of `info` on lane->rail with its receives posted; the caller holds rail->lock. */
int ofi_lane_open(struct ofi_lane *lane, struct fi_info *info, struct error *error);
int ofi_lane_receive(struct ofi_lane *lane, struct ofi_op *op);
/* All lanes: closed, and nothing of theirs is left in any queue. */
void ofi_lanes_close(struct ofi_endpoint *endpoint);
uint32_t ofi_lanes_used(const struct ofi_endpoint *endpoint);
/* What the peer's record says of a rail, 0 where there is none. */
const struct ofi_rail_record *ofi_lane_peer(const struct ofi_lane *lane);

/* ---- lost.c ---- */
/* Rails are to look at what became of lanes; any thread, any lock. */
void ofi_mend_wanted(struct ofi_domain *domain);
/* Closes lanes on this rail that are lost, and tells peers of such by lanes on it that live; the caller
 * holds rail->lock. */
void ofi_rail_mend(struct ofi_rail *rail);

/* ---- replay.c: the owner ---- */
/* What can be done now for lanes that are lost; a failure is the endpoint's. */
void ofi_replay(struct ofi_endpoint *endpoint);

/* ---- post.c ---- */
/* One write. False: the lane does not take it now, or is lost. */
bool ofi_lane_write(struct ofi_lane *lane, const struct provider_write *write);
uint32_t ofi_lane_credit(const struct ofi_lane *lane);
/* The signal with counts as they are now, for all lanes that have to carry it; posts what they take. */
void ofi_signal_round(struct ofi_endpoint *endpoint);
/* Posts what the lane takes of its probe now, and may be asked again. */
int ofi_lane_probe(struct ofi_lane *lane, struct error *error);

#endif
