/* SPDX-License-Identifier: Apache-2.0
 *
 * problem_check.h -- is every row that an engine parameter needs held by some trainer?
 */
#ifndef ROUTING_PLAN_PROBLEM_CHECK_H
#define ROUTING_PLAN_PROBLEM_CHECK_H

#include "routing/plan/problem.h"

/* layout_first, holding_first: a rank that declared each, for the message. ERROR_UNSOURCED. */
int problem_check(const struct problem *problem, const uint32_t *layout_first,
		  const uint32_t *holding_first, struct error *error);

/* Fills problem.made and made of each layout, whose pieces are there. */
int problem_find_transformed(struct problem *problem, struct error *error);

#endif
