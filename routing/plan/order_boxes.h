/* SPDX-License-Identifier: Apache-2.0
 *
 * order_boxes.h -- a table's routes as a send order that shares preparation sees them. Routes of
 * one trainer with the same tensor and the same source boxes want the same bytes: one box, that
 * is packed once and written to all its targets. Boxes of any trainers that go to the same
 * inference ranks have one target set.
 *
 *   trainer 0   box 0 (q, rows 0..8)      box 1 (q, rows 8..16)     box 2 (norm)
 *   items       r0, r2                    r1, r3                    r0, r1, r2, r3
 *   set         0                         1                         2
 */
#ifndef ROUTING_PLAN_ORDER_BOXES_H
#define ROUTING_PLAN_ORDER_BOXES_H

#include "routing/plan/order.h"

/* A route where it stands: by trainer, box, inference rank. */
struct order_item {
	uint32_t route, box;
};

/* Boxes stand in the order in which the table first names them. */
struct order_box {
	uint32_t first;  /* of its items; they end where the next box's begin */
	uint32_t set;    /* of its targets */
	uint64_t bytes;  /* to all targets together */
};

struct order_boxes {
	struct pool pool;          /* owns the arrays */
	struct order_item *items;
	struct order_box *boxes;   /* box_count, and one that only ends the last */
	uint32_t *box_first;       /* by trainer; one more at the end */
	uint32_t box_count;
	uint32_t set_count;        /* numbered as trainers meet them */
};

int order_boxes_make(struct order_boxes *boxes, const struct table *table, struct error *error);
void order_boxes_fini(struct order_boxes *boxes);

/* order_rounds.c: the row `rounds` of the send orders. */
order_arrange order_rounds;

#endif
