/* SPDX-License-Identifier: Apache-2.0
 *
 * order.h -- in which order each trainer sends its routes. Who sends what is decided before
 * (table.h); an order moves nothing from one trainer to another.
 */
#ifndef ROUTING_PLAN_ORDER_H
#define ROUTING_PLAN_ORDER_H

#include "routing/plan/table.h"

/* Trainer t's routes: routes[first[t]] .. routes[first[t + 1]], indexes into table.routes. Each
 * route stands exactly once, with its trainer. */
struct send_order {
	uint32_t *routes;
	size_t *first; /* trainer_count + 1 */
};

/* Pure and deterministic. topology is never NULL. */
typedef int order_arrange(const struct table *table, const struct topology *topology,
			  struct send_order *sends, struct error *error);

struct order {
	const char *name;
	const char *rule; /* one sentence, for --help and docs */
	order_arrange *arrange;
};

/* Rows in one table; NULL when unknown. */
const struct order *order_find(const char *name);
const struct order *order_list(size_t *count);
/* ERROR_USAGE lists the known ones; `flag` is how the user said it ("--order"). */
int order_named(const struct order **order, const char *flag, const char *name,
		struct error *error);

#define ORDER_DEFAULT "rotated"

/* The sends of a table in its own order (table.order), over its topology. */
int order_sends(const struct table *table, struct send_order *sends, struct error *error);
void send_order_fini(struct send_order *sends);

/* Routes grouped by trainer, in table order: where every order starts from; or by inference rank. */
int order_group(const struct table *table, enum role role, struct send_order *sends,
		struct error *error);
static inline uint32_t route_rank(const struct route *route, enum role role)
{
	return role == ROLE_TRAINER ? route->trainer : route->inference;
}

#endif
