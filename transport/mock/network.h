/* SPDX-License-Identifier: Apache-2.0
 *
 * network.h -- what mock.c and network.c share. The lock covers every field of a network and
 * of the endpoints and regions in it, but for mailbox slots and doorbells, which are atomics.
 */
#ifndef TRANSPORT_MOCK_NETWORK_H
#define TRANSPORT_MOCK_NETWORK_H

#include "base/array.h"
#include "transport/mailbox.h"
#include "transport/mock/mock.h"
#include "transport/provider.h"
#include <pthread.h>

/* What a network knows by number; each begins with it. */
enum mock_list { MOCK_DOMAINS, MOCK_REGIONS, MOCK_ENDPOINTS, MOCK_LISTS };

struct mock_domain {
	uint64_t id;
	struct mock_network *network;
	struct mock_options options;
	struct doorbell doorbell;
};

struct mock_region {
	uint64_t id;
	unsigned char *memory;
	uint64_t bytes;
	bool allocated;
};

struct mock_post {
	uint64_t id;
	uint32_t rail, parcels; /* parcels not placed */
	uint64_t due;           /* pump count from which it is reported */
	const char *failed;     /* why, or NULL */
};

struct mock_endpoint {
	uint64_t id, peer;      /* peer 0: not connected */
	struct mock_domain *domain;
	uint64_t peer_domain;
	struct mailbox_slot mailbox;
	struct mock_post *posts;
	uint32_t post_count;
	uint64_t order;         /* posts so far */
	bool fenced;            /* by the peer */
};

struct parcel {
	struct mock_endpoint *from;
	uint64_t post, order;
	bool signal;
	struct transport_signal sent;
	uint64_t region, offset, bytes;
	const unsigned char *source;
	unsigned char *copy;    /* owned, when the completion does not wait */
};

struct mock_network {
	pthread_mutex_t lock;
	uint64_t random, next_id, pumps, writes, completions;
	ARRAY(struct parcel) parcels;
	ARRAY(void *) lists[MOCK_LISTS];
};

struct mock_network *network_default(void);
uint64_t network_random(struct mock_network *network, uint64_t below);
/* A copy of `filled` in that list with a number of its own, and let go of again: both take the lock, so
 * that whoever finds it finds it whole. */
void *network_add(struct mock_network *network, enum mock_list list, const void *filled,
		  size_t bytes, const char *what, struct error *error);
void network_remove(struct mock_network *network, enum mock_list list, void *object);
void *network_find(const struct mock_network *network, enum mock_list list, uint64_t id);
/* Forgets parcels of this endpoint. */
void network_drop(struct mock_network *network, const struct mock_endpoint *from);
void network_pump(struct mock_network *network, uint32_t parcels);

#endif
