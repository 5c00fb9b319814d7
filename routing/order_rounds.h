/* SPDX-License-Identifier: Apache-2.0
 *
 * order_rounds.h -- the row `rounds` of the send orders, and its constants.
 */
#ifndef ROUTING_ORDER_ROUNDS_H
#define ROUTING_ORDER_ROUNDS_H

#include "routing/order.h"

/* Senders that a receiver should have at once. One fills its NIC, the second is under way when
 * the first ends, so that the receiver never waits; a third would only make all of them slower,
 * and the trainers behind them with them. */
#define ORDER_CREDIT 2
/* Packed boxes of one trainer that are open together, first to last. Two windows are half of a
 * worker's default ring, and of its slots (worker/replica), so none is packed twice. */
#define ORDER_WINDOW_BYTES (UINT64_C(256) << 20)
#define ORDER_WINDOW_BOXES 1024u

int order_rounds(const struct table *table, const struct topology *topology,
		 struct send_order *sends, struct error *error);

/* Picoseconds that so many bytes take, rounded up; at most `most`. */
uint64_t order_ticks(uint64_t bytes, uint64_t bytes_per_second, uint64_t most);

#endif
