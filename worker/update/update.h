/* SPDX-License-Identifier: Apache-2.0
 *
 * update.h -- the payloads that the two sides of an update exchange, with signals over their
 * endpoints; no controller is in this path.
 *
 *   inference rank                                 trainer
 *   update_wait(v): opens its memory
 *       ACCEPT opening 4, versions v..v ─────────► update_begin(v): all targets accept v
 *                                                   writes ...
 *       counts, verifies, publishes ◄───────────── END opening 4, version v, digest, bytes
 *
 * What is not written where it belongs is put there by its owner: the trainer writes into a window beside it,
 * which the ACCEPT names (epoch/windows.h), says how much of that is there, and is told what was taken. Both count
 * entries of the window, from 0 in each opening. A signal takes the place of the one before it, so
 * END counts them too, and so does an ACCEPT that comes again.
 *
 *       takes ◄─────────────────────────────────── LANDED opening 4, 17 entries     any number of times
 *       TAKEN opening 4, 17 entries ─────────────► their places are written again
 *
 * An opening is one permission of one trainer to write one version. The trainer uses it up with
 * its END or ABORT, and no new one is given before that was seen; until it is used, its range of
 * versions may be changed by another ACCEPT with the same number. So when every trainer's END
 * for version v was counted, no trainer holds a permission and nobody can write: that is what
 * makes publishing v safe, whatever was given up before. A trainer that ends an older version
 * late has only used up its permission, gets the next one, and must end the version waited for.
 *
 * Payloads are the structs themselves: both ends run on little-endian machines. What comes is
 * checked by update_payload.h before anything is done with it.
 */
#ifndef WORKER_UPDATE_UPDATE_H
#define WORKER_UPDATE_UPDATE_H

#include "job/digest.h"
#include "transport/transport.h"
#include <stdint.h>

enum update_tag {
	UPDATE_ACCEPT = 1, /* inference rank -> trainer */
	UPDATE_END = 2,    /* trainer -> inference rank */
	UPDATE_ABORT = 3,
	UPDATE_LANDED = 4, /* the same */
	UPDATE_TAKEN = 5,  /* inference rank -> trainer */
	UPDATE_ARRIVE = 6, /* inference rank -> the one that decides for it (commit.h) */
	UPDATE_RELEASE = 7, /* and back */
	UPDATE_GIVE_UP = 8, /* both ways */
	UPDATE_LATER = 9   /* inference rank -> the one that decides for it (--commit job) */
};

/* Where a trainer is late (--hedge), the rank asks the one that stands in for it, by another permission, to send its pieces too:
 *
 *   inference rank                   trainer 1              trainer 0, late
 *       ◄────────────────────────────── END                  writes ..
 *       ACCEPT opening 5, STAND_IN ───► writes 0's pieces
 *       ◄────────────────────────────── END opening 5
 *       ACCEPT opening 4, SPARES ─────────────────────────► writes no more of them
 *       publishes                  ◄──────────────────────── ABORT opening 4, some time; or END
 *
 * Both write the same bytes into the same places, so whose END comes first is enough. Until both permissions are used up the
 * rank accepts no other version.
 */
enum update_accept_kind {
	ACCEPT_WRITES = 0,
	ACCEPT_STAND_IN = 1, /* of the pieces of the trainer that the receiver stands in for, and that is all */
	ACCEPT_SPARES = 2,   /* by the permission that is out: its pieces of max_version are here, and it need only give that up */
	ACCEPT_RELEASES = 3, /* the same, if one is out; and nothing is asked of who stands in (any more) for max_version */
	ACCEPT_KINDS
};

struct update_accept {
	uint64_t opening;          /* from 1, per pair */
	uint64_t min_version, max_version;
	struct digest plan;
	uint64_t sums_offset;      /* where this trainer's checksums go, and in which region */
	uint32_t sums_region;      /* UINT32_MAX: no checksums */
	uint32_t copy;
	uint64_t window_offset, window_bytes; /* where pieces land; window_bytes 0: none does */
	uint64_t taken;            /* as TAKEN says it, which this may have come in place of */
	uint32_t window_region;
	uint32_t kind;             /* enum update_accept_kind */
	uint64_t base;             /* that version is in the rank's memory, whole: of the next one what differs from it is enough,
				      in the window; 0: it must be all */
};

struct update_end {
	uint64_t opening, version;
	struct digest plan;
	uint64_t bytes;
	uint32_t pieces, sums;     /* sums: checksums written, 0 or pieces */
	uint64_t landed;           /* entries of the window, all of them */
	uint64_t beside_bytes;     /* of pieces that landed though the plan has them written: what differs of them */
};

struct update_landed { uint64_t opening, entries; };
struct update_taken { uint64_t opening, entries; };

struct update_abort {
	uint64_t opening, version;
	char why[80];              /* terminated, cut when longer */
};

/* Where inference ranks meet. */
enum update_round { MEET_OPEN = 1, MEET_CLOSE = 2, MEET_PUBLISH = 3 };

struct update_arrive {
	uint64_t turn;             /* of who says it, from 1 */
	uint64_t min_version, max_version; /* of the update; at PUBLISH, and CLOSE, the one that is here, or any of
					      these, of a rank that no trainer writes to */
	uint32_t round;
	uint32_t closes;           /* OPEN: readers lose their version now */
	uint32_t writes;           /* its word is to be written: it looks at none of a peer's */
	uint32_t by_host;          /* it is shown when its host says so */
};
struct update_release {
	uint64_t turn;             /* of who hears it */
	uint64_t min_version, max_version; /* that all of them want; at PUBLISH the one that is shown */
	uint32_t round;
	uint32_t closes;           /* OPEN: readers have lost their version */
};
/* Of no version: who says so stops for another plan, and who has nothing yet will, too. */
#define GIVE_UP_PAUSES UINT64_MAX
struct update_give_up {
	uint64_t turn;             /* of the child, whoever says it */
	uint64_t version;          /* 0: none was there yet; or GIVE_UP_PAUSES */
	char why[80];              /* terminated, cut when longer */
};

/* Before it arrives at CLOSE or PUBLISH: it, or one that it decides for, still waits for trainers. */
struct update_later { uint64_t turn; /* of who says it */ };

_Static_assert(sizeof(struct update_arrive) == 40, "struct update_arrive is a wire format");
_Static_assert(sizeof(struct update_release) == 32, "struct update_release is a wire format");
_Static_assert(sizeof(struct update_give_up) == TRANSPORT_PAYLOAD_BYTES,
	       "struct update_give_up is a wire format");
_Static_assert(sizeof(struct update_accept) == 96, "struct update_accept is a wire format");
_Static_assert(sizeof(struct update_end) == 64, "struct update_end is a wire format");
_Static_assert(sizeof(struct update_abort) == TRANSPORT_PAYLOAD_BYTES,
	       "struct update_abort is a wire format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payloads are little-endian");

#endif
