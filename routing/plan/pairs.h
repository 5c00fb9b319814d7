/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs.h -- which transport each pair of a trainer and an inference rank uses, in a job that lists several:
 * the first of the list that both have and that reaches, of those that write the rank's memory first. Who reaches whom is a number a rank and
 * transport, so that nothing is as large as all pairs:
 *
 *              shm  verbs                       number 0: this rank does not have it
 *   trainer 0    1    1     inference 0  1  1   equal numbers: they reach each other
 *   trainer 1    2    1     inference 1  3  0   trainer 0 -> inference 0 by shm, trainer 1 by verbs;
 *                                               nobody reaches inference 1
 */
#ifndef ROUTING_PLAN_PAIRS_H
#define ROUTING_PLAN_PAIRS_H

#include "base/pool.h"
#include "job/member.h"
#include "job/transports.h"
#include <stddef.h>

/* Of one rank and one transport. */
struct pair_side {
	uint32_t reach;
	bool registered; /* a trainer's tensors may be read where they lie */
	bool mapped;     /* a rank's memory can be mapped; a trainer can map it: */
	bool device;     /* that of GPUs, if this is one's */
	bool landed;     /* a rank's: peers write a window of it, which it empties itself */
};

struct pairs {
	struct transports list;
	uint32_t count[ROLE_COUNT];
	struct pair_side *sides[ROLE_COUNT]; /* count * list.count, by rank */
};

/* With everything zero. False: no memory. */
bool pairs_init(struct pairs *pairs, struct pool *pool, const struct transports *list,
		uint32_t trainers, uint32_t inference);
bool pairs_copy(struct pairs *pairs, struct pool *pool, const struct pairs *from);
struct pair_side *pairs_side(const struct pairs *pairs, enum role role, uint32_t rank,
			     uint32_t transport);
/* Its place in the list; the list's count: none. */
uint32_t pairs_transport(const struct pairs *pairs, uint32_t trainer, uint32_t inference);
/* Its name, or "none". */
const char *pairs_name(const struct pairs *pairs, uint32_t trainer, uint32_t inference);
/* From any numbers to those counted from 1 by first use, trainers first: the same for any job
 * whose ranks reach each other alike. False: no memory. */
bool pairs_number(struct pairs *pairs);

#endif
