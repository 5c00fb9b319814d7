/* SPDX-License-Identifier: Apache-2.0
 *
 * order_rounds.h -- the row `rounds` of the send orders, and its constants.
 */
#ifndef ROUTING_ORDER_ROUNDS_H
#define ROUTING_ORDER_ROUNDS_H

#include "routing/order.h"

/* Senders that a receiver should have at once. One fills its NIC; two get half each, and so does
 * everybody who needs a receiver that one of them would have left sooner. It does not wait
 * between two either: a worker posts a write before its last one is complete. With 2 the same
 * schedules reach 70 to 74 % of the bound where 1 reaches 89 to 100 % (docs/routing.md). */
#define ORDER_CREDIT 1
/* Packed boxes of one trainer that are open together, first to last. Two windows are half of a
 * worker's default ring, and of its slots (worker/replica), so none is packed twice. */
#define ORDER_WINDOW_BYTES (UINT64_C(256) << 20)
#define ORDER_WINDOW_BOXES 1024u

int order_rounds(const struct table *table, const struct topology *topology,
		 struct send_order *sends, struct error *error);

/* Picoseconds that so many bytes take, rounded up; at most `most`. */
uint64_t order_ticks(uint64_t bytes, uint64_t bytes_per_second, uint64_t most);

#endif
