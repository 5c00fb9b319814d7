/* SPDX-License-Identifier: Apache-2.0
 *
 * executor_shown.c -- what a trainer tells people of an update: whom it waits for, and how much it has sent
 * (worker/control/activity.h).
 */
#include "worker/update/executor.h"

void executor_show_whom(struct sender *sender, uint64_t version)
{
	struct activity_board *board = &sender->health->activity;
	struct member first[LIMIT_WAITS];
	size_t count = 0;

	activity_is(board, ACTIVITY_BEGINS, version);
	if (!activity_due(board))
		return;
	pthread_mutex_lock(&sender->lock);
	for (uint32_t p = 0; p < sender->epoch->peer_count; p++) {
		if (!executor_serves(sender, p) || schedule_accepts(&sender->schedule, p, version))
			continue;
		if (count < LIMIT_WAITS)
			first[count] = sender->epoch->peers[p].plan->member;
		count++;
	}
	pthread_mutex_unlock(&sender->lock);
	activity_waits(board, first, count);
}

void executor_show_bytes(struct sender *sender)
{
	uint64_t bytes = sender->schedule.counts.bytes;

	if (bytes == sender->bytes_shown)
		return;
	/* two senders may send: a trainer's own, and what it sends in another one's place */
	atomic_fetch_add_explicit(&sender->health->activity.bytes, bytes - sender->bytes_shown,
				  memory_order_relaxed);
	sender->bytes_shown = bytes;
}
