/* SPDX-License-Identifier: Apache-2.0
 *
 * full.h -- the CPU replica in its full form: one home a parameter, kept from update to update and
 * shared by all inference ranks that the trainer serves.
 *
 *   parameter 3      |.... home ....|         sources that want the same bytes of a home lie in one
 *     rank 0, rows 0..7   [ a ]               group and take turns (ranks of other layout classes):
 *     rank 1, rows 8..15  [ b ]               group { a, b }; c is alone, and stays
 *     both, the bias            [ c ]
 *
 * A source's turn: packed once, written to all that want it, then the next one of its group may
 * come, after every write that reads the group completed. So nothing is overwritten while it is
 * read, and nothing is packed twice in a version. Who waits,
 * and the lock around all of this, are the caller's affair.
 */
#ifndef WORKER_REPLICA_FULL_H
#define WORKER_REPLICA_FULL_H

#include "worker/replica/uses.h"

#define FULL_NOBODY UINT32_MAX

/* One source's bytes of its parameter; `at` and `group` are what full_open finds. */
struct full_place {
	uint32_t param;
	uint64_t offset, bytes;
	uint64_t at;    /* in the replica's memory */
	uint32_t group;
};

struct full_group {
	uint32_t owner;     /* source whose bytes lie there, or FULL_NOBODY */
	uint32_t first_use;
	bool busy;          /* its turn is not over */
	bool shared;        /* by several sources: it keeps the last one's only */
};

struct full {
	struct full_place *places; /* by source; borrowed */
	size_t count;
	struct full_group *groups;
	size_t group_count;
	uint64_t bytes;            /* of all homes */
	struct uses uses;
};

/* places: param, offset and bytes of every source; they outlive it. */
int full_open(struct full *full, struct full_place *places, size_t count, struct error *error);
/* The state of turns over a layout that stays as it is. */
int full_begin(struct full *state, const struct full *layout, struct error *error);
/* Whatever the one or the other returned. */
void full_close(struct full *full);
static inline struct full_group *full_group_of(struct full *full, uint32_t source)
{
	return &full->groups[full->places[source].group];
}
/* No write is under way: turns are over. */
void full_settle(struct full *full);

#endif
