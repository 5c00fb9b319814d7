/* SPDX-License-Identifier: Apache-2.0
 *
 * ofi_mock_parts.h -- the objects behind ofi_mock.h. Each starts with libfabric's own struct, whose context
 * stays the caller's, and stays allocated until the mock is closed, so that a call on a closed one is
 * noticed instead of crashing.
 */
#ifndef TESTS_SUPPORT_OFI_MOCK_PARTS_H
#define TESTS_SUPPORT_OFI_MOCK_PARTS_H

#include "tests/support/ofi_mock.h"

#include <pthread.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define OFI_MOCK_DEVICES   4
#define OFI_MOCK_PIECES	   8
#define OFI_MOCK_RECEIVES  16

struct om_object {
	bool alive;
	const char *what;
	struct om_object *parent;
	int children;		/* objects that need this one */
	struct om_object *next; /* all that were ever made */
	void *memory;		/* to free with it */
};

struct om_fabric {
	struct fid_fabric fid;
	struct om_object head;
};

struct om_domain {
	struct fid_domain fid;
	struct om_object head;
	uint32_t device;
};

struct om_mr {
	struct fid_mr fid;
	struct om_object head;
	struct om_domain *domain;
	unsigned char *memory;
	size_t bytes;
	uint64_t access;
	uint32_t receives; /* that wait in it */
};

struct om_entry {
	struct fi_cq_err_entry entry; /* err: 0 of one that went well */
	struct om_entry *next;
};

struct om_cq {
	struct fid_cq fid;
	struct om_object head;
	int fd; /* -1: cannot be slept on */
	size_t size, count;
	struct om_entry *first, **last;
	uint64_t reads;
};

/* As EFA's: 32 bytes. */
struct om_address {
	uint64_t magic, unique, device, zero;
};

struct om_av {
	struct fid_av fid;
	struct om_object head;
	uint32_t count, capacity;
	struct om_address *addresses; /* magic 0: removed */
};

struct om_receive {
	void *memory, *context;
	size_t bytes;
	struct om_mr *mr;
};

struct om_ep {
	struct fid_ep fid;
	struct om_object head;
	struct om_domain *domain;
	struct om_cq *cq;
	struct om_av *av;
	bool enabled, cut;
	struct om_address address;
	uint32_t posted; /* that are not complete */
	struct om_receive receives[OFI_MOCK_RECEIVES];
	uint32_t receive_first, receive_count;
	/* the handshake with the peer that was sent to last: reads of the queue that it still takes */
	fi_addr_t met;
	uint64_t met_at;
};

struct om_op {
	bool message, delivery;	       /* delivery: FI_DELIVERY_COMPLETE */
	struct om_ep *source, *target; /* source: NULL once it is closed; target: once accepted */
	void *context;
	struct om_address to;
	const unsigned char *local;
	const struct om_mr *local_mr;
	size_t bytes;
	uint64_t data, address, key;
	unsigned char *copy, *landing; /* once accepted */
	const struct om_mr *target_mr;
	struct om_receive receive; /* of a message */
	uint32_t pieces, pieces_left;
	bool placed[OFI_MOCK_PIECES];
	bool accepted, told, completed, lost, lags;
	uint32_t tells;	   /* how often it is told */
	uint32_t patience; /* turns without a target */
	uint64_t number, link; /* of all posts; of the endpoint that it is of */
	bool sent;	   /* a stream: copied, and out of the sender's hands */
	uint32_t late;	   /* turns that it waits after a cut */
};

struct om_network {
	struct ofi_mock_options options;
	bool open, mute, has_pumper;
	pthread_mutex_t lock;
	uint64_t random, unique, key, posts;
	struct om_object *objects;
	struct om_ep **eps; /* by what is unique in their addresses; NULL: closed */
	struct om_mr **mrs; /* by key */
	struct om_op **ops;
	size_t op_count, op_capacity;
	int alive, infos;
	uint64_t writes, messages;
	const struct om_ep *lost_on;
	uint64_t cut_at, cut_every;
	uint32_t cut_times, cut_lag, cuts;
	enum ofi_mock_call fail_call;
	uint64_t fail_at;
	int fail_errnum;
	bool failed;
	uint32_t violations;
	char violation[256];
	pthread_t pumper;
	_Atomic bool pumper_stop;
};

extern struct om_network om;

static inline void om_lock(void)
{
	pthread_mutex_lock(&om.lock);
}

/* Unlocks and passes the answer on. */
static inline int om_unlock(int rc)
{
	pthread_mutex_unlock(&om.lock);
	return rc;
}

#define OM_OF(type, pointer) ((struct om_##type *)(void *)(pointer))

void om_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *om_memory(size_t bytes); /* zeroed; never NULL: the mock's own memory does not fail */
uint64_t om_random(uint64_t below);
/* A table of `count` pointers with room for one more. */
void *om_grow(void *table, uint64_t count);
/* This call fails now: a negative errno; 0: it does not. */
int om_fault(enum ofi_mock_call call);

void om_new(struct om_object *head, const char *what, struct om_object *parent, void *memory);
bool om_ok(const struct om_object *head, const char *call); /* closed: a violation, and false */
/* 0, or -FI_EBUSY where something still needs it; `call` may be made to fail. */
int om_end(struct om_object *head, enum ofi_mock_call call);

void om_push(struct om_cq *cq, const struct fi_cq_err_entry *entry);
int om_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int om_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);

void om_post(struct om_op *op);
void om_cut(struct om_ep *ep);
bool om_step(void);
/* What is under way from it, to it, into it is dropped or placed at once. */
void om_ep_gone(struct om_ep *ep);
void om_mr_gone(const struct om_mr *mr);

#endif
