/* SPDX-License-Identifier: Apache-2.0
 *
 * member.h -- who a process is in a job: (role, rank, incarnation).
 */
#ifndef JOB_MEMBER_H
#define JOB_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

enum role { ROLE_TRAINER, ROLE_INFERENCE, ROLE_COUNT };

/* Where a source box's bytes meet the wire, or the target (routing/plan/path.h). */
enum route_path { PATH_DIRECT, PATH_MAPPED, PATH_REPLICA, PATH_LANDED, PATH_COUNT };

struct member {
	enum role role;
	uint32_t rank;
};

const char *role_name(enum role role);       /* "trainer", "inference" */
const char *route_path_name(enum route_path path); /* "direct", "mapped", "replica", "landed" */
/* Of the same role, and one of `count` ranks from `first` on. */
static inline bool member_within(struct member member, struct member first, uint32_t count)
{
	return member.role == first.role && member.rank >= first.rank &&
	       member.rank - first.rank < count;
}
/* The order of lists of them: trainers first, by rank. */
static inline int member_compare(const struct member *a, const struct member *b)
{
	return a->role != b->role ? (a->role < b->role ? -1 : 1) : (a->rank > b->rank) - (a->rank < b->rank);
}
#define MEMBER_TEXT_BYTES 32
char *member_text(struct member member, char out[MEMBER_TEXT_BYTES]); /* "trainer 3" */

#endif
