/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance.h -- what every provider must do, written once against transport.h.
 *
 * A test file names a subject and runs the suite over it; capabilities decide which checks
 * apply, never the provider's name.
 */
#ifndef TESTS_SUPPORT_CONFORMANCE_H
#define TESTS_SUPPORT_CONFORMANCE_H

#include "transport/transport.h"

struct conformance_watch {
	void (*look)(void *context);
	void *context;
};

struct conformance {
	const char *name, *provider;
	const void *options;
	bool registered;  /* targets register their own memory, instead of the allocator's */
	/* Memory of another kind, that this process can touch all the same, registered on both sides; NULL: the host's. */
	void *(*memory)(uint64_t bytes);
	void (*memory_free)(void *memory);
	void (*child)(void); /* in each child, before all else; NULL: nothing to do */
	bool stop_waits;     /* a stop waits until the peer has closed: nothing that one thread can do */
	bool processes;   /* peers may be other processes */
	bool probes;      /* transport_endpoint_probe uses the path, so it needs the peer connected
			     */
	/* Takes whatever another thread of the provider may hold while it is not let run, until it is called with false, by the
	 * same thread. NULL: there is none. */
	void (*hold)(struct transport_domain *domain, bool held);
	bool blind;       /* transport_peer_dead cannot know: the peer is as on another host */
	uint32_t sessions; /* one after the other, where each takes long; 0: 1000 */
	uint32_t endpoints; /* at once, likewise; 0: 450 */
	uint32_t lost_ms; /* a writer knows that its target died within this; 0: 5000 */
	/* If the provider can say at what moment a signal became visible: it calls
	 * watch->look(watch->context) then. */
	struct conformance_watch *watch;
	/* It breaks the contract on purpose: only the watch looks at its memory, since a second
	 * thread would race with it, which is the very thing that is wrong. */
	bool wrong;
};

int conformance_run(const struct conformance *subject);

/* Rounds of writes and a signal; counts the rounds in which a signal was seen before all of its
 * data. Right providers give 0. */
uint64_t conformance_violations(const struct conformance *subject, unsigned rounds);

/* Writers that are given up in the middle of their writes; counts those of which bytes landed in memory
 * that was used again. Right providers give 0. */
uint64_t conformance_late_writes(const struct conformance *subject, unsigned rounds);

/* Open, connect, write, flush, signal, wait, read, fence, close. 0, or the first error. */
int conformance_session(const struct conformance *subject, uint64_t budget_ns,
			struct error *error);

/* What must not grow: open files and mappings of this process. */
struct conformance_footprint { unsigned files, mappings; };
struct conformance_footprint conformance_footprint(void);

/* For subjects whose watch is called by a mock network. */
void conformance_watch_call(void *watch);

/* Two connected domains of this process: a writes into b's region. */
struct pair {
	struct transport_domain *a, *b;
	struct transport_region *source, *target;
	struct transport_endpoint *ab, *ba;
	struct transport_remote *remote;
	unsigned char *from, *to, *owned, *owned_source;
	uint64_t bytes;
	const struct conformance *subject;
};
int pair_open(struct pair *pair, const struct conformance *subject, uint64_t bytes,
	      struct error *error);
void pair_close(struct pair *pair);
/* Of the subject's kind, zeroed. */
void *conformance_memory(const struct conformance *subject, uint64_t bytes);
void conformance_memory_free(const struct conformance *subject, void *memory);
uint64_t soon(void); /* a deadline that a healthy machine never meets */
/* WEFT_TEST_SLOW, for emulated machines: how many times slower this one may be; 1 by default. */
uint64_t test_slow(void);
/* How often it repeats what an ordinary machine does that often: as many times fewer, with ThreadSanitizer a third of
 * that, but as often in a soak (WEFT_SOAK). */
uint64_t test_repeats(uint64_t often);
uint64_t within_ms(uint64_t ms); /* a deadline that many of them from now, times test_slow() */

#endif
