/* SPDX-License-Identifier: Apache-2.0
 *
 * shown.c -- what people see of a worker whose host computes (worker/control/activity.h): the clocks of the last update.
 */
#include "worker/api/worker.h"

#include <unistd.h>

/* Of the host's thread, with no call of an update in progress. */
static void clocks_of(const struct weft_worker *worker, struct update_clocks *last)
{
	bool trainer = worker->self.role == ROLE_TRAINER;
	const weft_stats *stats = trainer ? &worker->sender.stats : &worker->waiter.stats;

	*last = (struct update_clocks){
		.version = trainer		       ? worker->sender.ended
			   : worker->versions.prepared ? worker->versions.prepared
						       : atomic_load(&worker->versions.published),
		.bytes = trainer ? sender_counts(&worker->sender)->bytes : stats->bytes,
		.update_us = stats->update_ns / 1000,
		.wait_us = stats->wait_ns / 1000,
		.write_us = trainer ? stats->copy_ns / 1000 : 0,
		.verify_us = stats->verify_ns / 1000,
		.install_us = stats->install_ns / 1000,
		.post_load_us = stats->post_load_ns / 1000,
		.pause_us = stats->pause_ns / 1000,
	};
}

void worker_is_between(struct weft_worker *worker, bool went_well)
{
	struct activity_board *board = &worker->health.activity;
	uint64_t prepared = worker->self.role == ROLE_TRAINER ? 0 : worker->versions.prepared;
	struct update_clocks last;

	if (worker->pid != getpid())
		return; /* a forked child's copy of the lock may be held for ever */
	clocks_of(worker, &last);
	activity_ends(board, &last, went_well);
	if (worker->self.role == ROLE_INFERENCE) /* a trainer counts while it sends */
		atomic_store_explicit(&board->bytes, last.bytes, memory_order_relaxed);
	activity_is(board, prepared ? ACTIVITY_PREPARED : ACTIVITY_BETWEEN, prepared);
}
