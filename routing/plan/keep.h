/* SPDX-License-Identifier: Apache-2.0
 *
 * keep.h -- a plan that follows another one, in a job whose trainers and engines come and go (docs/living.md): of what was sent
 * before, as little as it can be is sent by another trainer now, and nobody has more than a plan from the beginning would give
 * the one that has the most, and KEEP_SLACK of it.
 *
 *   before    t0 ####     t1 ####     t2 ####
 *   lost      t0 ####                 t2 ####        who sends it still does, where it is here and holds it
 *   given     t0 ####--               t2 ####--      what has no sender: the largest first, each to the least loaded holder
 *   evened    t0 ####-    t1 ++       t2 ####-       where somebody has too much (another t1 has come): the largest that is
 *                                                    not too much to give, until it is within the slack
 *
 * Where that does not do, since who has too much shares no holder with who has little, the plan is the one from the beginning.
 *
 * This is for policies that give away whole units. The one that cuts them has its own (balanced_keep.c).
 */
#ifndef ROUTING_PLAN_KEEP_H
#define ROUTING_PLAN_KEEP_H

#include "routing/plan/table.h"

#define KEEP_SLACK 100 /* one part in so many */

/* Deterministic. On entry trainer[i] is who sends units->items[i] in a plan from the beginning; on return, in this one. `before`
 * may be of other tensors, layouts and holdings: units are looked for by tensor, inference rank and where they begin. */
int keep_assign(const struct table *before, const struct problem *problem, const struct units *units,
		uint32_t *trainer, struct table_moved *moved, struct error *error);

#endif
