/* SPDX-License-Identifier: Apache-2.0
 *
 * order_boxes.h -- a table's routes as a send order that shares preparation sees them. Routes of
 * one trainer with the same tensor and the same source boxes want the same bytes: one box, that
 * is packed once and written to all its targets.
 *
 *   trainer 0   box 0 (q, rows 0..8)      box 1 (q, rows 8..16)     box 2 (norm)
 *   items       r0, r2                    r1, r3                    r0, r1, r2, r3
 *   lanes       r0: boxes 0, 2     r1: boxes 1, 2     r2: boxes 0, 2     r3: boxes 1, 2
 */
#ifndef ROUTING_ORDER_BOXES_H
#define ROUTING_ORDER_BOXES_H

#include "routing/table.h"

/* A route where it stands: by trainer, box, inference rank. All that a schedule asks about it is
 * here, for items are visited in no order that a cache could foresee. */
struct order_item {
	uint64_t bytes;
	uint32_t route, box, lane;
	uint32_t next, next_box; /* of the lane: item and its box; ORDER_NONE, ORDER_NONE */
};
#define ORDER_NONE UINT32_MAX

/* Boxes stand in the order in which the table first names them. */
struct order_box {
	uint32_t first;        /* of its items; they end where the next box's begin */
	uint32_t left;         /* items */
	bool packed;           /* some target gets it packed: not all its pieces are direct */
	uint32_t boxes_before; /* packed ones, and their bytes, of all boxes before this one */
	uint64_t bytes_before;
};

/* What one trainer has for one inference rank, oldest box first. */
struct order_lane {
	uint32_t inference;
	uint32_t next;         /* item, or ORDER_NONE */
	bool active;           /* the schedule's */
};

struct order_boxes {
	struct order_item *items;
	struct order_box *boxes;   /* box_count, and one that only ends the last */
	struct order_lane *lanes;
	uint32_t *box_first;       /* by trainer; one more at the end */
	uint32_t *lane_first;      /* the same */
	uint32_t box_count, lane_count;
};

int order_boxes_make(struct order_boxes *boxes, const struct table *table, struct error *error);
void order_boxes_fini(struct order_boxes *boxes);

#endif
