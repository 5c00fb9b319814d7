/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.h -- which inference ranks show a version together, as --commit says it, and whom a rank agrees with:
 *
 *   engine      0 ─┬─ 1        4 ─┬─ 5        a rank agrees with the first one of its engine,
 *                  ├─ 2           ├─ 6        which decides
 *                  └─ 3           └─ 7
 *
 *   job         0 ─┬─ 1 2 3                   the first ranks of the others agree with inference 0,
 *                  └─ 4 ── 5 6 7              and then tell their own
 *
 * Of engines that are not here nobody is asked: the first rank of the first one that is decides for all.
 */
#ifndef JOB_COMMIT_H
#define JOB_COMMIT_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum commit { COMMIT_ENGINE, COMMIT_RANK, COMMIT_JOB, COMMIT_COUNT };
#define COMMIT_DEFAULT "engine"

const char *commit_name(enum commit commit);
/* Of --commit. ERROR_USAGE lists what there is. */
int commit_parse(enum commit *commit, const char *text, struct error *error);
/* Of whom there is to choose. */
struct commit_ranks {
	enum commit commit;
	uint32_t count, engine_ranks;  /* in all; of each engine */
	const bool *away;              /* by rank: its engine is not here; NULL: all are */
};

/* The rank, below it, that decides for `rank`, which is here; false: none does. */
bool commit_decider(const struct commit_ranks *ranks, uint32_t rank, uint32_t *decider);
/* The inference ranks that `rank`, which is here, agrees with: who decides for it, if one does, and those that it decides for,
 * ascending. Into mates, unless that is NULL; their count. */
uint32_t commit_mates(const struct commit_ranks *ranks, uint32_t rank, uint32_t *mates);

#endif
