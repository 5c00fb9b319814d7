/* SPDX-License-Identifier: Apache-2.0
 *
 * send_device.c -- a trainer whose tensors are a GPU's: what a write completes is queued at once, and waited for where
 * an update is drained, ended or given up, before its targets are told.
 *
 *   write ─► kernels queued          end ─► mark ─► reached? ─► sums ─► END to every target
 */
#include "worker/update/executor.h"

#include "base/clock.h"
#include "worker/update/await.h"

void send_device_begin(struct sender *sender)
{
	const struct send_plan *plan = &sender->epoch->send;

	if (!plan->batch)
		return;
	batch_begin(plan->batch);
}

static uint32_t live_groups(struct sender *sender)
{
	const struct send_plan *plan = &sender->epoch->send;
	uint32_t count = 0;

	for (uint32_t p = 0; p < plan->peer_count; p++)
		if (executor_serves(sender, p))
			sender->groups[count++] =
				p * plan->copies + sender->schedule.links[p].accept.copy;
	return count;
}

/* Nobody frees a tensor that is still read: whoever fails waits for what is queued, if it can be. */
static int broken(struct sender *sender, struct error *error)
{
	device_quiet(sender->epoch->options.device);
	schedule_fail(&sender->schedule, error);
	sender->failed = true;
	return -(int)error->code;
}

/* With the lock held, which it drops meanwhile: until all that is queued now is complete. */
static int settle(struct sender *sender, struct error *error)
{
	const struct device *device = sender->epoch->options.device;
	cuda_event mark;
	int rc = device_mark(device, &mark, error);

	pthread_mutex_unlock(&sender->lock);
	if (!rc)
		rc = await_device(device, mark, clock_deadline_ns(sender->epoch->wait_ms),
				  sender->health, error);
	device_unmark(device, mark);
	pthread_mutex_lock(&sender->lock);
	return rc;
}

/* A NIC knows nothing of streams: what it reads in place must be there. */
static bool posts_in_place(const struct send_plan *plan, const uint32_t *ids, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (plan->direct[ids[i]])
			return true;
	return false;
}

int send_device_write(struct sender *sender, const uint32_t *ids, size_t count, struct error *error)
{
	const struct send_plan *plan = &sender->epoch->send;
	int rc = health_check(sender->health, error);

	executor_hear_gone(sender);
	if (!rc && plan->batch)
		rc = batch_write(plan->batch, sender->data, ids, count, sender->groups,
				 live_groups(sender), error);
	for (size_t i = 0; i < count && !rc && plan->batch; i++)
		schedule_sent(&sender->schedule, ids[i]);
	if (!rc && posts_in_place(plan, ids, count))
		rc = settle(sender, error);
	return rc ? broken(sender, error) : 0;
}

/* After an interrupt of a lane whose kernel was held up: its tensors are not free before that has ended. */
static int mend_lanes(struct sender *sender, struct error *error)
{
	uint64_t end = clock_deadline_ns(sender->epoch->wait_ms);
	struct error broken;
	int rc;

	if (!sender->lanes || !lanes_broken(sender->lanes, &broken))
		return 0;
	pthread_mutex_unlock(&sender->lock);
	do {
		uint64_t slice = clock_deadline_ns(WAIT_SLICE_MS);

		rc = device_settle(sender->epoch->options.device, slice < end ? slice : end, error);
		if (rc == -(int)ERROR_TIMEOUT && clock_ns() < end &&
		    health_check(sender->health, error))
			rc = -(int)error->code;
	} while (rc == -(int)ERROR_TIMEOUT && clock_ns() < end);
	pthread_mutex_lock(&sender->lock);
	if (!rc)
		lanes_mend(sender->lanes);
	return rc;
}

int send_device_settle(struct sender *sender, struct error *error)
{
	int rc = mend_lanes(sender, error);

	if (!rc && sender->epoch->send.batch)
		rc = settle(sender, error);
	if (rc && (error->code != ERROR_INTERRUPTED || control_failed(sender->health->control))) {
		schedule_fail(&sender->schedule, error);
		sender->failed = true;
	}
	return rc;
}

int send_device_sums(struct sender *sender, struct error *error)
{
	const struct send_plan *plan = &sender->epoch->send;
	int rc;

	if (!plan->batch || !plan->sums)
		return 0;
	rc = batch_sums(plan->batch, sender->device_sums, error);
	if (rc)
		return broken(sender, error);
	for (uint32_t s = 0; s < plan->source_count; s++) {
		const struct send_source *source = &plan->sources[s];
		uint64_t sum = pack_sum(&sender->device_sums[source->first_block], source->parts);

		for (uint32_t i = 0; i < source->row_count && !source->scheduled; i++) {
			const struct send_row *row =
				&plan->rows[plan->source_rows[source->first_row + i]];

			plan->sums[sender->epoch->peers[row->peer].first_piece + row->ordinal] =
				sum;
		}
	}
	return 0;
}
