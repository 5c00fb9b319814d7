/* SPDX-License-Identifier: Apache-2.0
 *
 * ofi_mock.h -- libfabric's provider "efa" and its network in one process, from a seed: the calls of
 * transport/ofi/calls.h, whose objects carry the mock's own tables.
 *
 *   post ─► POSTED ─► ACCEPTED by the target's device (copied), in any order
 *                        │ pieces placed in any order ──► PLACED ─► remote data in the target's queue
 *                        │                                   │
 *                        └─► complete at the sender          └─► with FI_DELIVERY_COMPLETE only from here
 *
 * SRD keeps no order at all: neither of writes nor of messages nor of what is told of them, and a post is
 * refused with EAGAIN at will, at first until both sides know each other. Nothing moves but in fi_cq_read (a
 * few random steps each), in ofi_mock_pump and, when asked for, in a thread. Code under test that does what
 * libfabric forbids (objects closed while others need them, memory without its registration, addresses and
 * contexts that are none) is a violation: counted, the first one kept as a message.
 *
 * As streams (options.stream) each endpoint keeps its order, and what is not to be delivered is complete once it is
 * sent: it may lie in a socket. An endpoint that is cut (ofi_mock_cut) fails: what it had under way is an error at
 * its sender and is lost, or still on its way, until the other end is closed.
 *
 * One network per process; one lock covers all of it, so any thread may call.
 */
#ifndef TESTS_SUPPORT_OFI_MOCK_H
#define TESTS_SUPPORT_OFI_MOCK_H

#include "transport/ofi/calls.h"
#include <stdbool.h>
#include <stddef.h>

/* Networks that break their promises. */
enum ofi_mock_wrong {
	OFI_MOCK_RIGHT,
	OFI_MOCK_DATA_EARLY,	 /* remote data is told before the bytes are placed */
	OFI_MOCK_DELIVERY_EARLY, /* "delivered" writes are only accepted */
	OFI_MOCK_LATE_LANDS,	 /* what was accepted lands after its endpoint was closed */
	OFI_MOCK_MESSAGE_LOST,	 /* the first message that is no probe is delivered, and is not */
	OFI_MOCK_LOST_AND_TWICE, /* one write in ten is lost, the next of another lane told twice */
};

struct ofi_mock_options {
	uint64_t seed;
	uint32_t devices;	 /* "mock0", "mock1", ..; 0: 1 */
	bool wait_fd;		 /* completion queues that can be slept on; EFA's cannot */
	bool background;	 /* a thread moves things too */
	uint32_t tx_size;	 /* posts of an endpoint that are not complete; 0: 64 */
	uint32_t again_in;	 /* one post in that many is EAGAIN; 0: 8 */
	uint32_t steps_per_read; /* at most; 0: 8 */
	uint32_t lag;		 /* some posts have one turn where others have that many; 0: 32 */
	enum ofi_mock_wrong wrong;
	bool stream;
	void (*watch)(void); /* called whenever something has moved, under the network's lock */
	/* True: this message is lost, as if it were delivered, and comes back to its sender, as changed. */
	bool (*reflect)(void *bytes, size_t length);
	/* What arrives, before it is looked at: schemes that count otherwise. data: NULL of a message. */
	void (*rewrite)(void *bytes, size_t length, uint64_t *data);
};

extern const struct ofi_calls ofi_mock_calls;

void ofi_mock_open(const struct ofi_mock_options *options);
void ofi_mock_close(void); /* frees everything, also what the code under test forgot */
void ofi_mock_seed(uint64_t seed);
void ofi_mock_pump(uint32_t steps);
/* Every post is EAGAIN from here on: a peer that never answers the first handshake. */
void ofi_mock_mute(bool mute);

/* The endpoint that takes the at-th post from now (1: the next) is cut there, then each `every`-th, `times` in all.
 * What of it stays under way is late by up to `lag` turns. */
void ofi_mock_cut(uint64_t at, uint64_t every, uint32_t times, uint32_t lag);
uint32_t ofi_mock_cuts(void); /* so far */

uint32_t ofi_mock_violations(void);
const char *ofi_mock_violation(void); /* the first one, or "" */
int ofi_mock_alive(void);	      /* objects and infos */
uint64_t ofi_mock_posts(void);	      /* writes and messages taken so far */

/* ---- calls that fail ---- */
#define OFI_MOCK_CALLS(X)                                                                  \
	X(getinfo) X(dupinfo) X(fabric) X(domain) X(cq_open) X(cq_getwait) X(av_open)      \
	X(av_insert) X(mr_reg) X(endpoint) X(ep_bind) X(ep_enable) X(getname) X(recv)      \
	X(sendmsg) X(writemsg) X(cq_read) X(cq_readerr) X(trywait) X(av_remove)            \
	X(ep_close) X(mr_close) X(av_close) X(cq_close) X(domain_close) X(fabric_close)    \
	X(completion) /* of a post, at its sender */

enum ofi_mock_call {
#define X(name) OFI_MOCK_##name,
	OFI_MOCK_CALLS(X)
#undef X
		OFI_MOCK_CALL_COUNT
};
const char *ofi_mock_call_name(enum ofi_mock_call call);
/* The at-th call from now (1: the next) fails once. A close that fails has closed all the same: what
 * the device says then helps nobody. */
void ofi_mock_fail(enum ofi_mock_call call, uint64_t at, int errnum);
bool ofi_mock_failed(void); /* the fault has struck */

#endif
