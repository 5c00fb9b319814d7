/* SPDX-License-Identifier: Apache-2.0
 *
 * several.h -- a domain of several providers: what regions, records and waiting for signals are there.
 *
 *   domain "several"         members, domains of their own          peer
 *   ├── region  memory ───── part of shm (made it) ─┐
 *   │                        part of verbs ─────────┴─ one record ──► its part, by the endpoint's provider
 *   ├── endpoints ────────── each is one member's, so a write looks at nothing here
 *   └── doorbell ◄────────── a thread a member, asleep in that member's signal_wait
 *
 * So the only price is a thread's wake-up before a sleeper sees a signal, and only with two members or more.
 * A domain of one provider has nothing of this.
 */
#ifndef TRANSPORT_SEVERAL_SEVERAL_H
#define TRANSPORT_SEVERAL_SEVERAL_H

#include "job/transports.h"
#include "transport/mailbox.h"
#include "transport/provider.h"
#include <pthread.h>

/* Of any domain: one provider's is its own and only member. */
uint32_t several_count(const struct transport_domain *domain);
struct transport_domain *several_member(const struct transport_domain *domain, uint32_t i);

/* Who makes memory: the first whose memory peers can map, since the others take any. */
uint32_t several_maker(const struct transport_domain *domain);
/* The members' names, as a list is written. */
char *several_names(const struct transport_domain *domain, char out[TRANSPORTS_TEXT_BYTES]);

/* From a peer's record of a region of several to the one that is for this endpoint's provider, inside
 * of it. ERROR_UNSUPPORTED: the peer has none. */
int several_part(const struct transport_endpoint *endpoint, const void **record, size_t *length,
		 struct error *error);

/* ---- between the files of this folder ---- */

struct watcher {
	struct several *several;
	struct transport_domain *member;
	pthread_t thread;
};

struct several {
	struct transport_domain *members[TRANSPORTS_MAX];
	uint32_t count;
	struct doorbell doorbell; /* with two members or more */
	struct watcher watchers[TRANSPORTS_MAX];
	uint32_t watching;
	_Atomic bool stop;
};

int several_watch(struct several *several, struct error *error);
void several_unwatch(struct several *several);
uint64_t several_signal_wait(struct transport_domain *domain, uint64_t seen, uint64_t deadline_ns);
void several_domain_wake(struct transport_domain *domain);

int several_region_allocate(struct transport_region *region, struct error *error);
int several_region_register(struct transport_region *region, struct error *error);
int several_region_export(const struct transport_region *region, struct record_writer *writer,
			  struct error *error);
void several_region_close(struct transport_region *region);

#endif
