/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch.h -- one plan, as this worker carries it out: its peers and their endpoints, memory, and what
 * is sent or received. Built in two steps, then constant; it can be built beside the one that runs,
 * and goes when nobody holds it any more.
 *
 *   OPEN plan ─► epoch_open ─► endpoints to the controller          no peer is connected
 *   CONNECT   ─► epoch_connect: endpoints, remotes, send or receive plan
 *   RUN       ─► epoch_probe: every path of this worker is used once
 *   ...          epoch_hold, epoch_release
 *
 * In a pause the next one takes over endpoints from the one before (keep.c).
 * What changes from version to version, and by whom a version is written, is update/.
 * Threads: one at a time until it runs; then any may read.
 */
#ifndef WORKER_EPOCH_EPOCH_H
#define WORKER_EPOCH_EPOCH_H

#include "worker/control/health.h"
#include "base/array.h"
#include "worker/device/device.h"
#include "worker/epoch/beside.h"
#include "worker/epoch/locals.h"
#include "worker/epoch/params.h"
#include "worker/epoch/ranges.h"
#include "worker/epoch/receive_plan.h"
#include "worker/epoch/send_plan.h"
#include "worker/epoch/windows.h"

#define PEER_NAME_BYTES 128

struct trace;

/* What an epoch is built from; it lives longer than every epoch. */
struct epoch_options {
	struct member self;
	const char *name;              /* of this worker, for messages */
	const char *log_name;          /* and for lines of its threads */
	struct transport_domain *domain;
	struct health *health;
	/* trainer */
	const struct holding *holding;
	const struct locals *locals;   /* what writes are of */
	const struct ranges *ranges;
	uint64_t ring_bytes;
	bool full;
	struct kept_replica *kept;     /* full: taken by who connects */
	const struct device *device;   /* tensors lie in its memory; NULL: in the host's */
	bool host_ring;                /* with a device: the ring is pinned memory of the host, wherever NICs could read */
	/* inference rank */
	const struct layout *layout;
	struct params *params;
	struct beside *beside;
	uint64_t shown;                /* the version that its readers are shown before the epoch runs; 0: none */
	uint64_t landing_bytes;        /* of all windows, but for the least that each has */
	uint32_t update_timeout_ms;    /* 0: the plan's */
	struct trace *trace;           /* of the process; NULL: none is wanted */
};

/* A region of a peer's. */
struct import {
	uint32_t region;                   /* the number that it gave it */
	struct transport_remote *remote;
	void *pinned;                      /* mapped memory of the host, for kernels that store there; or NULL */
};

/* What stays of a pair while its worker has no epoch. */
struct kept_link {
	struct member member;
	struct transport_endpoint *endpoint;
	struct import *imports;
	size_t import_count;
};
struct kept_links {
	struct kept_link *items;
	size_t count, capacity;
};

/* The other end of one pair of this worker. */
struct peer {
	const struct plan_peer *plan;
	char name[PEER_NAME_BYTES];        /* "trainer 3 (host b)" */
	struct transport_endpoint *endpoint; /* NULL once it was let go of */
	const struct health *health;       /* the epoch's */
	_Atomic bool gone;                 /* it has left, with its engine, and nothing goes there or comes from there any more */
	const struct peer_endpoints *theirs;
	struct import *imports;            /* trainers, and of mates and who is sent a copy */
	size_t import_count;
	bool kept;                         /* the endpoint goes to the next epoch */
	uint64_t heard;                    /* sequence of the last signal that was of the epoch before; 0: none was */
	uint64_t writes_before, chunks_before; /* and posts */
	uint64_t first_piece;              /* the pair's pieces, and their checksums, among all pairs' */
	bool landed;                       /* some of it goes into a window of the inference rank's, */
	bool written;                      /* some is written where it belongs */
	bool deltas;                       /* of what it has of the version before, what differs alone may land */
	uint64_t landed_bytes;             /* of the pair's pieces that land */
	uint64_t spare_bytes;              /* .. or, so many, of those that it may send in another trainer's place, */
	uint32_t spare_pieces;             /* and of so many pieces; inference ranks only */
	uint64_t window_at, window_bytes;  /* which is there, in receive.windows; inference ranks only */
};

struct epoch {
	struct epoch_options options;
	struct message_plan own_plan;      /* what it points at is the control core's, and there until another plan is opened */
	const struct message_plan *plan;   /* that */
	bool sums;                         /* pieces are summed */
	uint32_t wait_ms;                  /* default of waits inside updates */
	struct peer *peers;                /* as plan->peers: those that bytes go to or come from, */
	size_t peer_count;
	struct peer *mates;                /* and behind them inference ranks that this one agrees with: the first of */
	size_t mate_count;                 /* them decides for it if its rank is lower, and it for the others */
	size_t all_count;                  /* of peers; those left are ranks of other engines that this one sends what it shows, */
	struct peer *copied_from;          /* or the one that sends it here; NULL: none does */
	size_t at;                         /* the peer that was last connected to or probed, or tried to be */
	bool probed;                       /* all have been */
	struct transport_region *word;     /* where there are mates: options.beside's */
	size_t kept_count;                 /* of the peers, taken over from the epoch before */
	struct send_plan send;             /* trainer */
	struct epoch *stand_in;            /* .. and what it may send in another one's place; NULL: nothing */
	struct receive_plan receive;       /* inference rank */
	uint32_t holders;
};

/* Opens the peers' endpoints, but for those that the plan keeps, which it takes out of `links`, and fills *endpoints for the
 * controller. Held once by the caller; nothing is left after a failure. */
int epoch_open(struct epoch **epoch, const struct epoch_options *options,
	       const struct message_plan *plan, struct kept_links *links,
	       struct message_endpoints *endpoints, struct error *error);
/* peers must outlive the epoch. After a failure only epoch_release is left. */
int epoch_connect(struct epoch *epoch, const struct message_peers *peers, uint64_t deadline_ns,
		  struct error *error);
/* The same from connected endpoints on: resolves what is sent or received. */
int epoch_resolve(struct epoch *epoch, struct error *error);
/* Uses every path once; nothing when that has been done. */
int epoch_probe(struct epoch *epoch, uint64_t deadline_ns, struct error *error);
struct epoch *epoch_hold(struct epoch *epoch);
/* The last one closes it; NULL inside is fine, sets NULL. */
void epoch_release(struct epoch **epoch);

/* No peer writes into host memory any more; or the time is over, and transport_memory_check says
 * after epoch_release who may write what. An interrupt does not cut it short. */
void epoch_fence(struct epoch *epoch, uint32_t timeout_ms);

/* Its endpoints can be kept in a pause: all that the next plan may have. */
bool epoch_is_whole(const struct epoch *epoch);
/* Of an epoch that ends: those that this plan keeps are none that a fence stops, and then are taken out. NULL is fine. */
void epoch_mark_kept(struct epoch *epoch, const struct message_plan *plan);
int epoch_take_kept(struct epoch *epoch, struct kept_links *links, struct error *error);
/* Nothing of theirs is written any more, or the time is over. */
void links_close(struct kept_links *links, const struct device *device, uint32_t fence_ms);

/* Adds the peer's posts in this epoch. */
void peer_figures(const struct peer *peer, uint64_t *writes, uint64_t *chunks);

/* transport_progress, of writes in this epoch. */
int peer_progress(const struct peer *peer, uint64_t *done, struct error *error);

/* What is known here of the region that the peer gave that number; NULL: it gave none. */
struct transport_remote *peer_remote(const struct peer *peer, uint32_t region);

/* Where kernels of this trainer's GPU reach that memory of the peer; NULL: they do not. */
void *peer_device_pointer(const struct peer *peer, uint32_t region);

/* That rank decides when this one shows a version; NULL: this one does. */
static inline const struct peer *epoch_decider(const struct epoch *epoch)
{
	return epoch->mate_count && epoch->mates[0].plan->member.rank < epoch->options.self.rank
		       ? &epoch->mates[0]
		       : NULL;
}

/* Of an inference rank's mates and ranks that copy, with --commit job in a job that goes on: one of another engine, with which
 * this one shows versions together. */
bool epoch_is_of_other_engine(const struct epoch *epoch, const struct peer *peer);
/* What can be the peer's, or the path's to it: anything else is this worker's own. */
bool peer_explains(enum error_code code);
/* PEER_LOST when the peer's process is provably gone. */
int peer_check_alive(const struct peer *peer, struct error *error);

/* ---- peers.c: steps of the above ---- */

int peers_open(struct epoch *epoch, struct kept_links *links, struct message_endpoints *endpoints, struct error *error);
/* Numbers the pieces of all pairs: how many checksums are wanted. */
uint64_t peers_number_sums(struct epoch *epoch);
void peers_close(struct epoch *epoch);
/* Of one that nobody uses any more: its memory, and its endpoint. */
void peer_let_go(struct epoch *epoch, struct peer *peer);

/* ---- imports.c ---- */

/* All that it has told, as far as this worker writes there. */
int peer_import(const struct device *device, struct peer *peer, struct error *error);
void import_close(const struct device *device, struct import *import);

/* ---- stand_in.c: of a trainer that stands in for another one, by the plan ---- */

/* With what is known of rows before anything is imported; and the same of an inference rank, before it has windows. */
int stand_in_find_landed(struct epoch *epoch, struct error *error);
void stand_in_find_windows(struct epoch *epoch);
/* Connected: its own send plan. Whatever it returns, stand_in_close. */
int stand_in_open(struct epoch *epoch, struct error *error);
/* Who is gone here is gone there. */
void stand_in_follow(struct epoch *epoch);
void stand_in_close(struct epoch *epoch);
/* This trainer sends that tensor, or may have to, in another one's place. */
static inline bool epoch_wants(const struct epoch *epoch, uint32_t tensor)
{
	return send_plan_wants(&epoch->send, tensor) ||
	       (epoch->stand_in && send_plan_wants(&epoch->stand_in->send, tensor));
}

/* ---- keep.c ---- */

/* Its endpoint, out of them. */
int links_hand_over(struct kept_links *links, struct peer *peer, struct error *error);

#endif
