/* SPDX-License-Identifier: Apache-2.0
 *
 * membership.h -- who is here: one slot per rank, trainers first. It lives as long as the job and
 * knows nothing of plans; what was planned from whom is an epoch's (epoch.h).
 *
 *   ABSENT ─ hello ► JOINED ─ declare ► DECLARED ─ leave ► LEFT
 *     ▲                 │                  │ └──── silent ► LOST (and the job has failed, or goes on without its engine)
 *     └── while gathering, or before it has come in: silent, refused, displaced; its epoch failed. LOST: another process comes
 */
#ifndef CONTROLLER_MEMBERSHIP_H
#define CONTROLLER_MEMBERSHIP_H

#include "base/pool.h"
#include "base/text.h"
#include "controller/worker.h"
#include "job/strmap.h"
#include "wire/core.h"

enum presence {
	PRESENCE_ABSENT,
	PRESENCE_JOINED,   /* said hello */
	PRESENCE_DECLARED, /* its body may still be on its way */
	PRESENCE_LEFT,     /* done; or, after a failure, told of it */
	PRESENCE_LOST,     /* silent; the job has failed because of it. Or its engine has left a job that goes on */
	PRESENCE_COUNT
};

/* GATHER, of a job that is taken over: the last process of the rank that ran, and is not here any more. */
enum ran { RAN_NONE, RAN_LOST, RAN_DONE };

struct slot {
	struct member who;
	enum presence presence;
	struct worker *worker;        /* NULL while ABSENT */
	char peer[PEER_BYTES];        /* where it was heard last: answers go there */
	uint64_t heard_ms, version;
	bool done;                    /* LEFT: with its work done */
	enum ran ran;
	uint32_t unreadable;          /* frames since the last one that could be read */
	char *refused;                /* why the last one to claim this rank was; until one declares */
	bool told;                    /* came for the rank after the job failed, and was refused with why */
	uint64_t claim, claim_ms;     /* another incarnation that wants this rank; 0 none */
};

struct membership {
	uint32_t trainers, count;
	struct slot *slots;
	uint32_t in[PRESENCE_COUNT];       /* slots in each */
	struct pool names;                 /* of incarnations that joined, in hex */
	size_t name_count;
	struct strmap by_incarnation;      /* those -> slot index */
	struct bodies bodies;
};

int membership_init(struct membership *membership, uint32_t trainers, uint32_t ranks);
void membership_fini(struct membership *membership);
/* NULL when the job has no such rank. */
struct slot *membership_slot(const struct membership *membership, enum role role, uint32_t rank);
uint32_t membership_world(const struct membership *membership, enum role role);
/* Who joined under the incarnation and still holds the place. */
struct slot *membership_find(const struct membership *membership, uint64_t incarnation);
/* Whose answers go to the address. */
struct slot *membership_at(const struct membership *membership, const char *peer);
/* Into an ABSENT slot; takes what the hello owns. */
int membership_join(struct membership *membership, struct slot *slot, const char *peer,
		    struct message_hello *hello, uint64_t now_ms);
void membership_declare(struct membership *membership, struct slot *slot,
			struct message_declare *declare, struct body *body);
void membership_heard(struct slot *slot, const char *peer, uint64_t now_ms);
/* LEFT or LOST. */
void membership_gone(struct membership *membership, struct slot *slot, enum presence presence);
/* The place is free again. */
void membership_clear(struct membership *membership, struct slot *slot);

/* Neither absent nor gone in order: to be told of what happens. */
bool slot_present(const struct slot *slot);
/* And not lost. */
bool slot_serves(const struct slot *slot);
char *slot_text(const struct slot *slot, char out[WORKER_TEXT_BYTES]);
/* Another process claims the rank, and the holder has not shown since that it lives. */
bool slot_claim_open(const struct slot *slot, uint32_t heartbeat_ms);
bool membership_claimed(const struct membership *membership, uint32_t heartbeat_ms);
/* Silent longest, and for at least so long; NULL when all but `but` have been heard. */
struct slot *membership_most_silent(const struct membership *membership, const struct slot *but,
				    uint64_t now_ms, uint64_t least_ms);
/* "trainers at version 3..4, inference ranks at 3" */
void membership_versions(const struct membership *membership, struct text *text);
/* Its invariants, where asserts are on. */
void membership_check(const struct membership *membership, uint64_t now_ms);

#endif
