/* SPDX-License-Identifier: Apache-2.0
 *
 * proof_place.h -- where the bytes of a part of what is wanted belong, for the proof: worked out from boxes alone, and not as the
 * planner does it (job/piece.c).
 */
#ifndef ROUTING_PLAN_PROOF_PLACE_H
#define ROUTING_PLAN_PROOF_PLACE_H

#include "routing/plan/table.h"

/* Is it, of a copy or a conversion, some columns of one row, or whole slices of it, and where they belong? Element by element
 * of what is wanted, in its order: the box's first is at `at`, and its last follows as many bytes behind as it has. */
bool proof_within_rows(const struct piece *want, const struct route_piece *piece, uint64_t at);
/* A piece that is spread, or lies beside one that is: does it lie where its box belongs, in the runs that this asks for? */
bool proof_place(const struct piece *want, const struct route_piece *piece);

#endif
