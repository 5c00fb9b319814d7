/* SPDX-License-Identifier: Apache-2.0
 *
 * receive_plan.h -- an inference rank's rows of the plan by (trainer, ordinal): what a trainer's k-th
 * checksum is about, and where the checksums come in.
 */
#ifndef WORKER_EPOCH_RECEIVE_PLAN_H
#define WORKER_EPOCH_RECEIVE_PLAN_H

#include "base/error.h"
#include <stdint.h>

struct epoch;

struct receive_plan {
	uint32_t *rows;               /* of the plan: peers[p].first_piece + ordinal */
	uint64_t *sums;               /* in the same order, where they are written (beside.h); NULL: there are none */
};

/* Of an epoch whose peers are connected. ERROR_MESSAGE names the row that is wrong. Whatever it returns,
 * receive_plan_close. */
int receive_plan_open(struct receive_plan *plan, const struct epoch *epoch, struct error *error);
void receive_plan_close(struct receive_plan *plan);

#endif
