/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/order.h"

#include "base/assert.h"
#include "base/compare.h"
#include "base/memory.h"
#include "base/text.h"
#include "routing/plan/order_boxes.h"
#include <string.h>

void send_order_fini(struct send_order *sends)
{
	memory_free(sends->routes);
	memory_free(sends->first);
	*sends = (struct send_order){0};
}

int order_group(const struct table *table, enum role role, struct send_order *sends,
		struct error *error)
{
	uint32_t ranks = role == ROLE_TRAINER ? table->problem->trainer_count
					      : table->problem->inference_count;
	size_t *next = memory_zalloc((size_t)ranks + 2, sizeof(*next));

	*sends = (struct send_order){.first = next};
	sends->routes = memory_alloc(table->route_count * sizeof(*sends->routes));
	if (!next || !sends->routes) {
		send_order_fini(sends);
		return memory_error(error, "ordering sends", table->route_count * sizeof(uint32_t));
	}
	for (size_t r = 0; r < table->route_count; r++)
		next[route_rank(&table->routes[r], role) + 2]++;
	for (uint32_t t = 0; t < ranks; t++)
		next[t + 2] += next[t + 1];
	for (size_t r = 0; r < table->route_count; r++)
		sends->routes[next[route_rank(&table->routes[r], role) + 1]++] = (uint32_t)r;
	WEFT_ASSERT_OP(next[0], ==, 0);
	WEFT_ASSERT_OP(next[ranks], ==, table->route_count);
	return 0; /* the counting has moved every start one place down: first[t] again */
}

static int arrange_table(const struct table *table, const struct topology *topology,
			 struct send_order *sends, struct error *error)
{
	return order_group(table, ROLE_TRAINER, sends, error);
}

/* ---- rotated ---- */

struct send {
	uint32_t route, tensor, turn;
};

static int by_turn(const void *x, const void *y)
{
	const struct send *a = x, *b = y;

	return compare_u64(a->tensor, b->tensor) ?: compare_u64(a->turn, b->turn) ?:
	       compare_u64(a->route, b->route); /* rows ascending */
}

/* Tensor by tensor, so that a box packed once goes to all its targets in a row; the targets of
 * each tensor are rotated by the trainer's rank, so that senders do not start on one receiver. */
static int arrange_rotated(const struct table *table, const struct topology *topology,
			   struct send_order *sends, struct error *error)
{
	uint32_t ranks = table->problem->inference_count;
	struct send *scratch = memory_alloc(table->route_count * sizeof(*scratch));
	int rc;

	if (!scratch) {
		*sends = (struct send_order){0};
		return memory_error(error, "ordering sends", table->route_count * sizeof(*scratch));
	}
	rc = order_group(table, ROLE_TRAINER, sends, error);
	for (uint32_t t = 0; !rc && t < table->problem->trainer_count; t++) {
		uint32_t *routes = sends->routes + sends->first[t];
		size_t count = sends->first[t + 1] - sends->first[t];

		WEFT_ASSERT_OP(sends->first[t], <=, sends->first[t + 1]);
		for (size_t i = 0; i < count; i++) {
			const struct route *route = &table->routes[routes[i]];

			WEFT_ASSERT_OP(route->trainer, ==, t);
			scratch[i] = (struct send){routes[i], route->tensor,
						   (route->inference + ranks - t % ranks) % ranks};
		}
		sort_items(scratch, count, by_turn);
		for (size_t i = 0; i < count; i++)
			routes[i] = scratch[i].route;
	}
	memory_free(scratch);
	return rc;
}

/* ---- rows ---- */

static const struct order orders[] = {
	{"table", "as the table has them: tensor by tensor, inference ranks ascending",
	 arrange_table},
	{"rotated", "tensor by tensor, the inference ranks of each rotated by the trainer's rank",
	 arrange_rotated},
	{"rounds",
	 "box by box, those of all target sets advancing together; trainers of one set start each "
	 "box on different ranks",
	 order_rounds},
};

const struct order *order_list(size_t *count)
{
	*count = sizeof(orders) / sizeof(orders[0]);
	return orders;
}

const struct order *order_find(const char *name)
{
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		if (strcmp(orders[i].name, name) == 0)
			return &orders[i];
	return NULL;
}

int order_named(const struct order **order, const char *flag, const char *name, struct error *error)
{
	struct text known = {0};
	int rc;

	*order = order_find(name);
	if (*order)
		return 0;
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		text_format(&known, "%s%s", i ? ", " : "", orders[i].name);
	rc = error_set(error, ERROR_USAGE, "%s %s is not known; these are: %s", flag, name,
		       text_string(&known));
	text_fini(&known);
	return rc;
}

int order_sends(const struct table *table, struct send_order *sends, struct error *error)
{
	const struct order *order = order_find(table->order);
	struct topology *flat = NULL;
	int rc = 0;

	*sends = (struct send_order){0};
	WEFT_ASSERT(
		order); /* a table's order is a row's name: plan, dump_read and simulate see to it */
	if (!table->topology)
		rc = topology_flat(&flat, table->problem->trainer_count,
				   table->problem->inference_count, error);
	if (!rc)
		rc = order->arrange(table, table->topology ? table->topology : flat, sends, error);
	if (rc)
		send_order_fini(sends);
	topology_free(&flat);
	return rc;
}
