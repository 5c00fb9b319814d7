/* SPDX-License-Identifier: Apache-2.0
 *
 * send_parts.h -- between the files that make a send plan, in the order of their calls.
 */
#ifndef WORKER_EPOCH_SEND_PARTS_H
#define WORKER_EPOCH_SEND_PARTS_H

#include "worker/epoch/send_plan.h"

int send_plan_bad_row(const struct epoch *epoch, size_t row, const char *what,
		      struct error *error);
/* send_sources.c: of resolved rows; equal ones share a source. */
int send_plan_find_sources(struct send_plan *plan, const struct epoch *epoch,
			   struct error *error);
/* send_memory.c: cuts them into parts. */
int send_plan_open_memory(struct send_plan *plan, struct epoch *epoch, struct error *error);
/* send_sources.c: which are packed together, and which at all. */
void send_plan_find_work(struct send_plan *plan);

#endif
