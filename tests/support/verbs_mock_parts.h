/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_mock_parts.h -- the objects behind verbs_mock.h. Every object starts with the struct that
 * libibverbs shows, is found by its magic, and stays allocated until the fabric is closed, so a
 * call on a destroyed one is noticed instead of crashing.
 */
#ifndef TESTS_SUPPORT_VERBS_MOCK_PARTS_H
#define TESTS_SUPPORT_VERBS_MOCK_PARTS_H

#include "tests/support/verbs_mock.h"

#include "base/array.h"
#include <errno.h>
#include <pthread.h>

#define MOCK_GIDS 8 /* rows of a port's table */

enum mock_type {
	MOCK_CONTEXT, MOCK_PD, MOCK_MR, MOCK_CQ, MOCK_SRQ, MOCK_CHANNEL, MOCK_QP,
	MOCK_TYPES
};

struct mock_head {
	uint64_t magic;
	enum mock_type type;
	bool alive;
	struct mock_device *device;
	int children;                /* objects that need this one */
	uint32_t events_taken, events_acked; /* async */
	struct mock_head *next;      /* all objects ever made */
};

struct mock_gid {
	union ibv_gid gid;
	uint32_t type;
};

struct mock_device {
	struct ibv_device ibv;       /* must be first */
	uint32_t host, nic;
	bool link, dead;
	bool active[2];              /* ports */
	struct mock_gid gids[2][MOCK_GIDS];
	uint16_t lid[2];
	struct ibv_wc last[2];
	bool has_last[2];
};

struct mock_context {
	struct ibv_context ibv;
	struct mock_head head;
	ARRAY(struct ibv_async_event) events;
	int port_taken, port_acked;
};

struct mock_pd { struct ibv_pd ibv; struct mock_head head; };

struct mock_mr {
	struct ibv_mr ibv;
	struct mock_head head;
	unsigned access;
	uint64_t device;             /* where its first byte lies on a device; 0: at its address */
};

struct mock_channel {
	struct ibv_comp_channel ibv;
	struct mock_head head;
	ARRAY(struct mock_cq *) events;
};

struct mock_wc {
	struct ibv_wc wc;
	struct mock_qp *qp;
	uint64_t retires;            /* send: requests of the queue pair below this index are done */
	bool took_receive;
};

struct mock_cq {
	struct ibv_cq ibv;
	struct mock_head head;
	ARRAY(struct mock_wc) entries;
	size_t first;
	bool armed;
	uint32_t comp_taken, comp_acked;
};

struct mock_srq {
	struct ibv_srq ibv;
	struct mock_head head;
	ARRAY(uint64_t) wr_ids;
	size_t first;
	uint32_t max_wr;
};

/* One request; an index counts those of its queue pair from 0. */
struct mock_request {
	uint64_t wr_id, address;
	uint32_t rkey, lkey, bytes, imm, psn;
	uint64_t local;
	bool with_imm, signalled, inlined;
	bool dead;                   /* is not, or no longer, in the network */
	bool accepted, placed, took_receive;
	uint64_t receive_wr_id;
	struct mock_qp *target;
	uint32_t target_epoch;
	unsigned char *copy;
	uint64_t device;             /* where it is placed on a device; 0: at `address` */
	uint32_t piece_bytes, pieces, pieces_left;
	uint64_t *piece_done;        /* bits */
	uint64_t small_done;
	unsigned char small[256];
	bool relaxed;
};

/*   requests   base ... received ... placed_low ... acked ... delivered ... sent ... tail
 *   (acked and received move on their own, both below delivered; placed_low is what is placed
 *   without a gap) */
struct mock_qp {
	struct ibv_qp_ex ibv;        /* qp_base first */
	struct mock_head head;
	bool extended;
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;
	uint32_t epoch;              /* changes when it stops to receive */
	bool path_checked;
	struct mock_request **ring;  /* power of two */
	uint64_t ring_size, base, received, placed_low, acked, delivered, sent, tail;
	uint64_t polled;             /* retired by completions that were polled */
	uint64_t stalled_since;
	uint64_t good_until;         /* requests below were answered, or can be */
	uint64_t stray_below;        /* of an earlier life: whatever happens, nobody waits */
	uint32_t rnr_tries, mood;
	bool broken;                 /* flushing */
	int first_status;            /* of the completion that comes first when broken */
	uint32_t next_psn;
	bool listed;                 /* in fabric.active */
	size_t active_at;
	/* ibv_wr_* */
	bool batching, batch_bad;
	pthread_t batch_owner;
	struct mock_request *batch[64];
	uint32_t batch_count;
};

struct mock_fabric {
	struct verbs_mock_options options;
	bool open;
	pthread_mutex_t lock;
	uint64_t random, steps;
	struct mock_device devices[VERBS_MOCK_HOSTS][VERBS_MOCK_NICS];
	struct mock_head *objects;
	ARRAY(struct mock_qp *) qps;  /* by number */
	ARRAY(struct mock_mr *) mrs;  /* by key */
	ARRAY(struct mock_qp *) active;
	ARRAY(struct mock_request *) spare;
	uint32_t qpn_base;
	int alive[MOCK_TYPES], lists;
	uint64_t called[VERBS_MOCK_CALL_COUNT];
	enum verbs_mock_call fail_call;
	uint64_t fail_at;
	int fail_errno;
	enum verbs_mock_how fail_how;
	uint32_t fail_wr;
	bool failed;
	bool late, hide_receives;
	uint32_t violations;
	char violation[256];
	void (*look)(void *context);
	void *look_context;
	pthread_t pumper;
	_Atomic bool pumper_stop;
};

extern struct mock_fabric mock_fabric;

static inline void mock_lock(void)
{
	pthread_mutex_lock(&mock_fabric.lock);
}

static inline void mock_unlock(void)
{
	pthread_mutex_unlock(&mock_fabric.lock);
}

void mock_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *mock_memory(size_t bytes);  /* zeroed; never NULL: the mock's own memory does not fail */
uint64_t mock_random(uint64_t below);
/* This call fails now: errno, or 0 when it fails without one; -1: it does not fail. */
int mock_fault(enum verbs_mock_call call);
/* Unlocks and returns as this kind of function fails. */
void *mock_null(int errnum);
int mock_positive(int errnum);
int mock_minus(int errnum);

void mock_object_new(struct mock_head *head, enum mock_type type, struct mock_device *device);
/* Destroyed twice, or never made: a violation, and false. */
bool mock_object_ok(const struct mock_head *head, enum mock_type type, const char *call);
void mock_object_end(struct mock_head *head, const char *what);

struct mock_device *mock_device_of(struct ibv_context *context);
void mock_event_push(struct mock_context *context, const struct ibv_async_event *event);
/* What nobody has read yet about this object goes with it. */
void mock_event_drop(struct ibv_context *context, const struct mock_head *gone);
struct mock_context *mock_context_of(struct mock_device *device);
void mock_gid_fill(struct mock_device *device);

struct mock_mr *mock_mr_find(uint32_t key);
void mock_cq_push(struct mock_cq *cq, const struct mock_wc *entry);
void mock_cq_purge(struct mock_cq *cq, struct mock_qp *qp, bool keep);

struct mock_request *mock_request_new(struct mock_qp *qp);
void mock_request_free(struct mock_request *request);
struct mock_request *mock_request_at(const struct mock_qp *qp, uint64_t index);
void mock_active_add(struct mock_qp *qp);
/* It fails with this status at its oldest request; everything after is flushed. */
void mock_qp_break(struct mock_qp *qp, int status);
/* It receives no more: what was accepted is placed or dropped now. gone: it is destroyed too. */
void mock_qp_deafen(struct mock_qp *qp, bool gone);
/* The memory is going: what was accepted for it is placed or dropped now. */
void mock_mr_settle(const struct mock_mr *mr);
void mock_device_dies(const struct mock_device *device);
bool mock_step(void);

struct mock_qp *mock_qp_of(const struct ibv_qp *qp);
#define MOCK_OF(type, pointer) ((struct mock_##type *)(uintptr_t)(pointer))

/* the calls, per file */
#define X(result, name, parameters, arguments) result mock_##name parameters;
VERBS_CALLS(X, X)
#undef X

#endif
