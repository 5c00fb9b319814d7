/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/order_boxes.h"

#include "base/assert.h"
#include "base/compare.h"
#include "base/memory.h"

/* ---- boxes ---- */

static int compare_sources(const struct table *table, const struct route *a, const struct route *b)
{
	int order = compare_u64(a->piece_count, b->piece_count);

	for (uint32_t p = 0; p < a->piece_count && !order; p++) {
		const struct route_piece *x = &table->pieces[a->piece_first + p];
		const struct route_piece *y = &table->pieces[b->piece_first + p];

		order = box_compare(&x->src, &y->src)
				?: compare_u64(x->transformed, y->transformed);
	}
	return order;
}

static int by_source(const void *x, const void *y, void *context)
{
	const struct order_item *a = x, *b = y;
	const struct table *table = context;

	return compare_sources(table, &table->routes[a->route], &table->routes[b->route])
		       ?: compare_u64(a->route, b->route);
}

static int by_box(const void *x, const void *y)
{
	const struct order_item *a = x, *b = y;

	return compare_u64(a->box, b->box) ?: compare_u64(a->route, b->route);
}

static void add_box(struct order_boxes *boxes, const struct table *table, uint32_t first,
		    uint32_t count)
{
	struct order_box *box = &boxes->boxes[boxes->box_count];

	WEFT_ASSERT_OP(count, >, 0);
	WEFT_ASSERT_OP(boxes->box_count, <, table->route_count);
	for (uint32_t i = first; i < first + count; i++) {
		boxes->items[i].box = boxes->box_count;
		box->bytes += table->routes[boxes->items[i].route].bytes;
	}
	box->first = first;
	box[1].first = first + count;
	boxes->box_count++;
}

/* Items [first, end) are one trainer's routes of one tensor, in table order. */
static void sort_tensor(struct order_boxes *boxes, const struct table *table, uint32_t first,
			uint32_t end)
{
	struct order_item *items = boxes->items;
	uint32_t count = end - first;

	WEFT_ASSERT_OP(first, <, end);
	if (count > 1) {
		qsort_r(items + first, count, sizeof(*items), by_source, (void *)table);
		/* a box is known by its first route until all are in order */
		for (uint32_t i = first; i < end; i++)
			items[i].box =
				i > first && !compare_sources(table,
							      &table->routes[items[i - 1].route],
							      &table->routes[items[i].route])
					? items[i - 1].box
					: items[i].route;
		sort_items(items + first, count, by_box);
	}
	for (uint32_t i = first, from = first; i < end; i++) {
		if (i + 1 < end && items[i + 1].box == items[from].box)
			continue;
		add_box(boxes, table, from, i + 1 - from);
		from = i + 1;
	}
}

static void find_boxes(struct order_boxes *boxes, const struct table *table,
		       const struct send_order *sends)
{
	for (uint32_t t = 0; t < table->problem->trainer_count; t++) {
		size_t end = sends->first[t + 1];

		boxes->box_first[t] = boxes->box_count;
		for (size_t i = sends->first[t], next; i < end; i = next) {
			uint32_t tensor = table->routes[sends->routes[i]].tensor;

			for (next = i;
			     next < end && table->routes[sends->routes[next]].tensor == tensor;
			     next++)
				boxes->items[next] = (struct order_item){
					.route = sends->routes[next], .box = sends->routes[next]};
			sort_tensor(boxes, table, (uint32_t)i, (uint32_t)next);
		}
	}
	boxes->box_first[table->problem->trainer_count] = boxes->box_count;
	WEFT_ASSERT_OP(boxes->boxes[boxes->box_count].first, ==, table->route_count);
}

/* ---- target sets ---- */

static uint32_t target(const struct order_boxes *boxes, const struct table *table, uint32_t item)
{
	return table->routes[boxes->items[item].route].inference;
}

static bool same_targets(const struct order_boxes *boxes, const struct table *table, uint32_t a,
			 uint32_t b)
{
	const struct order_box *x = &boxes->boxes[a], *y = &boxes->boxes[b];

	if (x[1].first - x->first != y[1].first - y->first)
		return false;
	for (uint32_t i = 0; x->first + i < x[1].first; i++)
		if (target(boxes, table, x->first + i) != target(boxes, table, y->first + i))
			return false;
	return true;
}

static size_t targets_hash(const struct order_boxes *boxes, const struct table *table, uint32_t b)
{
	uint64_t hash = 0;

	for (uint32_t i = boxes->boxes[b].first; i < boxes->boxes[b + 1].first; i++) {
		hash = (hash ^ target(boxes, table, i)) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 32;
	}
	return (size_t)hash;
}

/* slots: box + 1 that first had the set there; slot_count is a power of two, half of it free */
static void find_sets(struct order_boxes *boxes, const struct table *table, uint32_t *slots,
		      size_t slot_count)
{
	WEFT_ASSERT_OP(slot_count & (slot_count - 1), ==, 0);
	WEFT_ASSERT_OP(boxes->box_count, <, slot_count); /* so a search ends */
	for (uint32_t b = 0; b < boxes->box_count; b++) {
		size_t at = targets_hash(boxes, table, b) & (slot_count - 1);

		while (slots[at] && !same_targets(boxes, table, slots[at] - 1, b))
			at = (at + 1) & (slot_count - 1);
		if (slots[at]) {
			boxes->boxes[b].set = boxes->boxes[slots[at] - 1].set;
			continue;
		}
		slots[at] = b + 1;
		boxes->boxes[b].set = boxes->set_count++;
	}
}

int order_boxes_make(struct order_boxes *boxes, const struct table *table, struct error *error)
{
	size_t routes = table->route_count, trainers = table->problem->trainer_count;
	size_t slot_count = 16;
	struct send_order sends = {0};
	uint32_t *slots = NULL;
	int rc = order_group(table, ROLE_TRAINER, &sends, error);

	*boxes = (struct order_boxes){0};
	boxes->items = pool_array(&boxes->pool, routes, sizeof(*boxes->items));
	boxes->boxes = pool_array(&boxes->pool, routes + 1, sizeof(*boxes->boxes));
	boxes->box_first = pool_array(&boxes->pool, trainers + 1, sizeof(*boxes->box_first));
	if (!rc && !pool_ok(&boxes->pool))
		rc = memory_error(error, "ordering sends", routes * sizeof(*boxes->boxes));
	if (!rc) {
		find_boxes(boxes, table, &sends);
		while (slot_count < 2 * (size_t)boxes->box_count)
			slot_count *= 2;
		slots = memory_zalloc(slot_count, sizeof(*slots));
		if (slots)
			find_sets(boxes, table, slots, slot_count);
		else
			rc = memory_error(error, "ordering sends", slot_count * sizeof(*slots));
	}
	if (rc)
		order_boxes_fini(boxes);
	memory_free(slots);
	send_order_fini(&sends);
	return rc;
}

void order_boxes_fini(struct order_boxes *boxes)
{
	pool_free(&boxes->pool);
	*boxes = (struct order_boxes){0};
}
