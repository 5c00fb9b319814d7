/* SPDX-License-Identifier: Apache-2.0
 *
 * receive_plan.h -- an inference rank's rows of the plan by (trainer, ordinal): what a trainer's k-th
 * checksum is about, and where the checksums come in.
 */
#ifndef WORKER_EPOCH_RECEIVE_PLAN_H
#define WORKER_EPOCH_RECEIVE_PLAN_H

#include "transport/transport.h"

struct epoch;

struct receive_plan {
	uint32_t *pair_rows;          /* plan rows: pair_first[peer] + ordinal */
	size_t *pair_first;
	struct transport_region *sums_region; /* NULL: no checksums */
	const uint64_t *sums;         /* of peer p from peers[p].sums_first */
	uint32_t sums_index;          /* of the region, among those that were sent */
};

/* Of an epoch whose peers are open: where checksums go. */
int receive_plan_open_sums(struct receive_plan *plan, struct epoch *epoch, struct error *error);
/* Of one whose peers are connected. ERROR_MESSAGE names the row that is wrong. Whatever both return,
 * receive_plan_close. */
int receive_plan_open(struct receive_plan *plan, const struct epoch *epoch, struct error *error);
void receive_plan_close(struct receive_plan *plan);

#endif
