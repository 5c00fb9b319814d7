/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_without.h -- a job without ranks that were lost. Ranks keep their numbers: a lost
 * trainer holds nothing, a lost inference rank wants nothing.
 */
#ifndef ROUTING_LAB_SIMULATE_WITHOUT_H
#define ROUTING_LAB_SIMULATE_WITHOUT_H

#include "base/pool.h"
#include "routing/plan/problem.h"

struct problem_without {
	struct problem problem;  /* shares all but these with the one it was made of */
	struct layout nothing;
	struct pool pool;        /* of the arrays that it does not share */
};

/* lost[role][rank]. ERROR_UNSOURCED when a tensor has rows that no other trainer holds: the
 * first by name, and how many tensors. The problem must outlive the result. */
int problem_without(struct problem_without *without, const struct problem *problem,
		    bool *const lost[ROLE_COUNT], struct error *error);
void problem_without_fini(struct problem_without *without);

#endif
