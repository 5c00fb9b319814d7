/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_mock.h -- libibverbs and a network in one process: everything that devices may do
 * (transport/verbs/calls.h), from a seed.
 *
 *   host 0  calls ── devices m0n0, m0n1 ...         host 1  calls ── m1n0 ...
 *                        │ queue pairs                          │
 *        post ─► POSTED ─► SENT (copied, in the network) ─► ACCEPTED by the responder
 *                                                             │ pieces placed in any order, but writes to
 *                                                             │ the same bytes in theirs, if not relaxed
 *        sender's completion any time after ACCEPTED ◄────────┤ in order per queue pair
 *        receive completion: all earlier requests of the queue pair are placed
 *
 * Nothing moves but in verbs_mock_pump(), in poll_cq (a few random steps each) and, when asked
 * for, in a thread of its own. Every random choice comes from the seed. Code under test that does
 * what no real device would forgive (or what real devices forgive by losing data) is a violation:
 * counted, the first one kept as a message.
 *
 * One fabric per process; one lock covers all of it, so any thread may call.
 */
#ifndef TESTS_SUPPORT_VERBS_MOCK_H
#define TESTS_SUPPORT_VERBS_MOCK_H

#include "transport/verbs/calls.h"
#include <stdbool.h>

#define VERBS_MOCK_HOSTS 4
#define VERBS_MOCK_NICS  4

/* Memory of devices, as NICs reach it. */
struct verbs_mock_gpu {
	bool (*dmabuf)(int fd, uint64_t *address, uint64_t *bytes); /* what it stands for; false: no dma-buf */
	bool (*is_device)(uint64_t address);
	void (*read)(uint64_t address, void *to, uint64_t bytes);
	void (*write)(uint64_t address, const void *from, uint64_t bytes);
};

struct verbs_mock_options {
	uint64_t seed;
	uint32_t nics;               /* per host; 0: 1 */
	uint32_t ports;              /* per NIC: 1 or 2; 0: 1 */
	bool infiniband;             /* LIDs and one GID, instead of RoCE v2 */
	bool strict_placement;       /* without relaxed ordering, writes of one QP land in order */
	bool imm_overtakes;          /* breaks the rules: a receive completion waits for its own bytes only */
	bool no_send_ops;            /* create_qp_ex is refused: EOPNOTSUPP */
	bool dmabuf;                 /* reg_dmabuf_mr works, with `gpu` */
	bool peermem;                /* with `gpu`: reg_mr takes its addresses */
	const struct verbs_mock_gpu *gpu; /* memory that the processor does not reach; NULL: there is none */
	bool post_enomem;            /* a full send queue answers ENOMEM, instead of taking it */
	bool background;             /* a thread pumps */
	uint32_t subnets[VERBS_MOCK_NICS]; /* third byte of the address; 0: 77 + NIC */
	bool unrouted;               /* other subnets cannot be reached: RTR is ETIMEDOUT */
	uint32_t mtu[VERBS_MOCK_HOSTS]; /* bytes; 0: 4096 */
	uint32_t packet_max;         /* larger packets vanish; 0: none does */
	uint32_t steps_per_poll;     /* at most; 0: 8 */
	uint32_t patience;           /* steps of a queue pair without an answer; 0: 64 */
	uint64_t max_mr_size;        /* caps; 0: what a usual device says */
	uint32_t max_cqe, max_qp_wr, max_msg_sz, max_srq_wr, max_qp, max_mr;
};

void verbs_mock_open(const struct verbs_mock_options *options);
/* Frees everything, also what the code under test forgot. */
void verbs_mock_close(void);
const struct verbs_calls *verbs_mock_calls(uint32_t host);
/* Up to `steps` steps; how many found something to do. */
uint32_t verbs_mock_pump(uint32_t steps);
/* Requests that are not done on both sides. */
uint32_t verbs_mock_pending(void);
/* Called without the lock after every step that a poll of a queue without a channel makes. */
void verbs_mock_watch(void (*look)(void *context), void *context);
/* Starts another sequence of choices, with the same objects. */
void verbs_mock_seed(uint64_t seed);

/* ---- what went wrong ---- */
uint32_t verbs_mock_violations(void);
const char *verbs_mock_violation(void); /* the first one, or "" */

struct verbs_mock_counts {
	int lists, contexts, pds, mrs, cqs, srqs, channels, qps;
	int events_unacked;          /* async and completion */
};
struct verbs_mock_counts verbs_mock_counts(void);
int verbs_mock_alive(void); /* the sum of all */

/* ---- calls that fail ---- */
enum verbs_mock_call {
#define X(result, name, parameters, arguments) VERBS_MOCK_##name,
	VERBS_CALLS(X, X)
#undef X
		VERBS_MOCK_CALL_COUNT
};
const char *verbs_mock_call_name(enum verbs_mock_call call);
/* Calls since the fabric was opened, on all hosts. */
uint64_t verbs_mock_called(enum verbs_mock_call call);
/* The call can fail at all: it is no void, no name, no poll of a flag. */
bool verbs_mock_can_fail(enum verbs_mock_call call);

enum verbs_mock_how {
	VERBS_MOCK_ERRNO,            /* as the call usually fails: NULL, -1 or a positive errno */
	VERBS_MOCK_SILENT,           /* NULL or -1, and errno is 0 */
};
/* The at-th call from now (1: the next) fails once; for lists of requests, at the wr-th. */
void verbs_mock_fail(enum verbs_mock_call call, uint64_t at, int errnum,
		     enum verbs_mock_how how, uint32_t wr);
bool verbs_mock_failed(void); /* the fault has struck */

/* ---- trouble ---- */
/* Nothing is sent, delivered or acknowledged over this NIC any more. */
void verbs_mock_link(uint32_t host, uint32_t nic, bool up);
/* While a link is down: what was already sent is delivered after all; answers stay lost. */
void verbs_mock_deliver_late(bool deliver);
/* Requests that are in the network, on queue pairs of this NIC. */
uint32_t verbs_mock_in_network(uint32_t host, uint32_t nic);
void verbs_mock_port(uint32_t host, uint32_t nic, uint8_t port, bool up); /* with its event */
void verbs_mock_kill(uint32_t host, uint32_t nic); /* DEVICE_FATAL; every call is EIO then */
/* Addresses move to other rows of the table; an old row is empty. */
void verbs_mock_gids_move(uint32_t host, uint32_t nic);
/* An event of any type; queue events name the youngest one there is (false: there is none). */
bool verbs_mock_event(uint32_t host, uint32_t nic, enum ibv_event_type type, uint8_t port);
/* A completion that nobody asked for, in a send queue or a receive queue of the NIC. */
bool verbs_mock_inject(uint32_t host, uint32_t nic, bool receive, const struct ibv_wc *wc);
/* The last completion put into a queue of this kind, to be told again; false: none yet. */
bool verbs_mock_last(uint32_t host, uint32_t nic, bool receive, struct ibv_wc *wc);
/* Receives waiting in shared receive queues of this NIC; taken away by count. */
uint32_t verbs_mock_receives(uint32_t host, uint32_t nic);
void verbs_mock_receives_hide(bool hide); /* every shared receive queue looks empty */

#endif
