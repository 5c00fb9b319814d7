/* SPDX-License-Identifier: Apache-2.0
 *
 * order_rounds.h -- the row `rounds` of the send orders.
 */
#ifndef ROUTING_PLAN_ORDER_ROUNDS_H
#define ROUTING_PLAN_ORDER_ROUNDS_H

#include "routing/plan/order.h"

int order_rounds(const struct table *table, const struct topology *topology,
		 struct send_order *sends, struct error *error);

#endif
