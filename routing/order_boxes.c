/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/order_boxes.h"

#include "common/memory.h"
#include "routing/order.h"
#include <stdlib.h>

/* ---- boxes ---- */

static int compare_box(const struct box *a, const struct box *b)
{
	if (a->dims != b->dims)
		return a->dims < b->dims ? -1 : 1;
	for (uint32_t d = 0; d < a->dims; d++) {
		if (a->lo[d] != b->lo[d])
			return a->lo[d] < b->lo[d] ? -1 : 1;
		if (a->hi[d] != b->hi[d])
			return a->hi[d] < b->hi[d] ? -1 : 1;
	}
	return 0;
}

static int compare_sources(const struct table *table, const struct route *a, const struct route *b)
{
	if (a->piece_count != b->piece_count)
		return a->piece_count < b->piece_count ? -1 : 1;
	for (uint32_t p = 0; p < a->piece_count; p++) {
		int order = compare_box(&table->pieces[a->piece_first + p].src,
					&table->pieces[b->piece_first + p].src);

		if (order)
			return order;
	}
	return 0;
}

static int by_source(const void *x, const void *y, void *context)
{
	const struct order_item *a = x, *b = y;
	const struct table *table = context;
	int order = compare_sources(table, &table->routes[a->route], &table->routes[b->route]);

	return order ? order : a->route < b->route ? -1 : a->route > b->route;
}

static int by_box(const void *x, const void *y)
{
	const struct order_item *a = x, *b = y;

	if (a->box != b->box)
		return a->box < b->box ? -1 : 1;
	return a->route < b->route ? -1 : a->route > b->route;
}

static void add_box(struct order_boxes *boxes, const struct table *table, uint32_t first,
		    uint32_t count)
{
	struct order_box *box = &boxes->boxes[boxes->box_count], *next = box + 1;
	uint64_t bytes = 0;

	for (uint32_t i = first; i < first + count; i++) {
		const struct route *route = &table->routes[boxes->items[i].route];
		uint64_t packed = 0;

		boxes->items[i].box = boxes->box_count;
		for (uint32_t p = 0; p < route->piece_count; p++) {
			const struct route_piece *piece = &table->pieces[route->piece_first + p];

			packed += piece->how == HOW_DIRECT ? 0 : piece->bytes;
		}
		if (packed > bytes)
			bytes = packed;
	}
	box->first = first;
	box->left = count;
	box->packed = bytes > 0;
	next->first = first + count;
	next->bytes_before = box->bytes_before + bytes;
	next->boxes_before = box->boxes_before + box->packed;
	boxes->box_count++;
}

/* Items [first, end) are one trainer's routes of one tensor, in table order. */
static void sort_tensor(struct order_boxes *boxes, const struct table *table, uint32_t first,
			uint32_t end)
{
	struct order_item *items = boxes->items;
	uint32_t count = end - first;

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
		qsort(items + first, count, sizeof(*items), by_box);
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
}

/* ---- lanes ---- */

/* One trainer's items [first, end), last first, so that each lane's list begins with its first;
 * lane_of is ORDER_NONE for every rank before and after. */
static void find_lanes(struct order_boxes *boxes, const struct table *table, uint32_t *lane_of,
		       size_t first, size_t end)
{
	uint32_t lanes = boxes->lane_count;

	for (size_t i = end; i-- > first;) {
		struct order_item *item = &boxes->items[i];
		const struct route *route = &table->routes[item->route];
		struct order_lane *lane;

		item->lane = lane_of[route->inference];
		if (item->lane == ORDER_NONE) {
			item->lane = lane_of[route->inference] = boxes->lane_count++;
			boxes->lanes[item->lane] = (struct order_lane){
				.inference = route->inference, .next = ORDER_NONE};
		}
		lane = &boxes->lanes[item->lane];
		item->bytes = route->bytes;
		item->next = lane->next;
		item->next_box =
			lane->next == ORDER_NONE ? ORDER_NONE : boxes->items[lane->next].box;
		lane->next = (uint32_t)i;
	}
	for (uint32_t l = lanes; l < boxes->lane_count; l++)
		lane_of[boxes->lanes[l].inference] = ORDER_NONE;
}

static void find_all_lanes(struct order_boxes *boxes, const struct table *table, uint32_t *lane_of,
			   const struct send_order *sends)
{
	for (uint32_t i = 0; i < table->problem->inference_count; i++)
		lane_of[i] = ORDER_NONE;
	for (uint32_t t = 0; t < table->problem->trainer_count; t++) {
		boxes->lane_first[t] = boxes->lane_count;
		find_lanes(boxes, table, lane_of, sends->first[t], sends->first[t + 1]);
	}
	boxes->lane_first[table->problem->trainer_count] = boxes->lane_count;
}

int order_boxes_make(struct order_boxes *boxes, const struct table *table, struct error *error)
{
	size_t routes = table->route_count, trainers = table->problem->trainer_count;
	uint32_t *lane_of = memory_alloc(table->problem->inference_count * sizeof(*lane_of));
	struct send_order sends = {0};
	int rc = order_group(table, &sends, error);

	*boxes = (struct order_boxes){
		.items = memory_alloc(routes * sizeof(*boxes->items)),
		.boxes = memory_zalloc(routes + 1, sizeof(*boxes->boxes)),
		.lanes = memory_alloc(routes * sizeof(*boxes->lanes)),
		.box_first = memory_alloc((trainers + 1) * sizeof(*boxes->box_first)),
		.lane_first = memory_alloc((trainers + 1) * sizeof(*boxes->lane_first)),
	};
	if (!rc && (!lane_of || !boxes->items || !boxes->boxes || !boxes->lanes ||
		    !boxes->box_first || !boxes->lane_first))
		rc = memory_error(error, "ordering sends", routes * sizeof(*boxes->boxes));
	if (!rc) {
		find_boxes(boxes, table, &sends);
		find_all_lanes(boxes, table, lane_of, &sends);
	} else {
		order_boxes_fini(boxes);
	}
	memory_free(lane_of);
	send_order_fini(&sends);
	return rc;
}

void order_boxes_fini(struct order_boxes *boxes)
{
	memory_free(boxes->items);
	memory_free(boxes->boxes);
	memory_free(boxes->lanes);
	memory_free(boxes->box_first);
	memory_free(boxes->lane_first);
	*boxes = (struct order_boxes){0};
}
