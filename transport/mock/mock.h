/* SPDX-License-Identifier: Apache-2.0
 *
 * mock.h -- provider "mock": a network between the domains of one process that does everything
 * a real one is allowed to do, and (on request) things that none is.
 *
 *   post ──► parcels ──(random order, 1..3 a chunk)──► target memory
 *                 └──(all placed, random delay)──► completion
 *
 * Writes of one endpoint are placed in any order; a signal only after all of them; different
 * endpoints interleave at will. Placement happens inside poll and signal_wait of any domain of
 * the network, or in mock_pump(); one seed gives one schedule. A path is probed when the peer has
 * connected back. A fence needs nobody: it drops what is under way and fails later posts.
 */
#ifndef TRANSPORT_MOCK_MOCK_H
#define TRANSPORT_MOCK_MOCK_H

#include "base/error.h"
#include "transport/transport.h"
#include <stdbool.h>
#include <stdint.h>

struct mock_network;

/* What a broken network would do; a test suite must find each. */
enum mock_wrong {
	MOCK_RIGHT,
	MOCK_SIGNAL_OVERTAKES, /* a signal may be placed before earlier writes */
	MOCK_CHUNK_DROPPED,    /* some chunks complete but are never placed */
	MOCK_COMPLETES_TWICE,  /* some completions are reported again */
	MOCK_LATE_LANDS,       /* a fence forgets what is under way, and it lands */
};

struct mock_options {
	struct mock_network *network; /* NULL: one for the whole process */
	uint64_t write_bytes_max;     /* 0: 64 KiB */
	uint32_t inflight_max;        /* 0: 16 */
	uint32_t rails;               /* 0: 1 */
	const struct transport_nic *nics; /* that the domain says it uses; nic_count of them */
	uint32_t nic_count;
	uint32_t delay_max;           /* completions wait up to this many pumps */
	bool ordered;                 /* say so: the shared layer then does not flush */
	bool mapped;                  /* offer pointers to remote memory */
	bool local_registration;
	bool complete_early;          /* writes complete before they are placed */
	bool connect_never;           /* connects wait until their deadline */
	const char *reach;            /* what the domain says of whom it reaches; NULL: its process */
	enum mock_wrong wrong;
	uint32_t wrong_every;         /* 0: 3: one in how many */
	/* Of the target's domain: called at the moment a signal was placed, with the network
	 * locked, so that a test sees the memory as no schedule of threads would show it. It may
	 * only read slots and memory. */
	void (*signal_placed)(void *context);
	void *context;
};

/* What domains that are opened without options get; NULL: nothing special. Borrowed. For tests of
 * what is above the transport. */
void mock_options_default(const struct mock_options *options);
int mock_network_open(struct mock_network **network, uint64_t seed, struct error *error);
void mock_network_close(struct mock_network **network); /* its domains are closed */
/* Places up to `parcels` parcels; returns how many are still under way. */
uint64_t mock_pump(struct mock_network *network, uint32_t parcels);

#endif
