/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.h -- what the bytes of one side's ranks pass between the rank and the network, as a
 * forest: the NICs that a rank uses, then its host's uplink if that has a limit.
 *
 *   rank 0 ──► NIC 0 ─┐
 *   rank 1 ──► NIC 1 ─┴─► uplink        ranks with the same NICs share one limit
 *
 * A rank's bytes go over all its NICs in proportion to their speed, so ranks with the same NICs
 * may together use their sum. Ranks whose NICs are partly the same ("mixed") each get a limit of
 * their own, before one of all those NICs: necessary, not sufficient.
 */
#ifndef ROUTING_PLAN_LIMITS_H
#define ROUTING_PLAN_LIMITS_H

#include "base/text.h"
#include "routing/plan/bound.h"
#include "routing/plan/topology.h"

enum limit_kind { LIMITS_RANK, LIMITS_NICS, LIMITS_UPLINK };

struct limit_what {
	enum limit_kind kind;
	uint32_t index;      /* rank, first NIC, host */
};

struct limits {
	struct pool pool;    /* owns the arrays */
	const struct topology *topology; /* borrowed */
	enum role role;
	struct bound_limit *items;
	struct limit_what *what;
	uint32_t count;
	uint32_t *of;        /* by rank: the first that it passes */
	uint32_t *uplink_of; /* by host: BOUND_NO_LIMIT where there is none */
	bool mixed;
};

/* ERROR_LIMIT when all rates together reach 2^62. */
int limits_of(struct limits *limits, const struct topology *topology, enum role role,
	      struct error *error);
void limits_fini(struct limits *limits);

/* "trainer 3", "NIC mlx5_1 of host a02", "NICs mlx5_0, mlx5_1 of host a02", "uplink of host
 * a02"; cut with "..." when too long. Returns out. */
#define LIMITS_TEXT_BYTES 256
char *limit_text(const struct limits *limits, uint32_t limit, char out[LIMITS_TEXT_BYTES]);

#endif
