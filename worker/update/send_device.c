/* SPDX-License-Identifier: Apache-2.0
 *
 * send_device.c -- a trainer whose tensors are a GPU's: what a write completes is queued at once, and waited for where
 * an update is drained, ended or given up, before its targets are told.
 *
 *   write ─► kernels queued          end ─► mark ─► reached? ─► sums ─► END to every target
 */
#include "worker/update/executor.h"

#include "base/clock.h"

#define SPIN_NS	 UINT64_C(200000) /* then it sleeps between two looks */
#define SLEEP_NS 50000

void send_device_begin(struct sender *sender)
{
	const struct send_plan *plan = &sender->epoch->send;

	if (!plan->batch)
		return;
	batch_begin(plan->batch);
	for (uint32_t p = 0; p < plan->peer_count; p++)
		sender->groups[p] = p * plan->copies + sender->schedule.links[p].accept.copy;
}

/* Nobody frees a tensor that is still read: whoever fails waits for what is queued, if it can be. */
static int broken(struct sender *sender, struct error *error)
{
	struct error ignored;

	device_finish(sender->epoch->options.device, &ignored);
	schedule_fail(&sender->schedule, error);
	sender->failed = true;
	return -(int)error->code;
}

int send_device_write(struct sender *sender, const uint32_t *ids, size_t count, struct error *error)
{
	const struct send_plan *plan = &sender->epoch->send;
	int rc;

	if (health_check(sender->health, error))
		return broken(sender, error);
	rc = batch_write(plan->batch, sender->data, ids, count, sender->groups, plan->peer_count,
			 error);
	if (rc)
		return broken(sender, error);
	for (size_t i = 0; i < count; i++)
		schedule_sent(&sender->schedule, ids[i]);
	return 0;
}

/* 0 when it is reached. */
static int wait_for(struct sender *sender, cuda_event mark, struct error *error)
{
	const struct device *device = sender->epoch->options.device;
	uint64_t begin = clock_ns(), end = clock_deadline_ns(sender->epoch->wait_ms);

	for (;;) {
		int rc = device_reached(device, mark, error);

		if (rc)
			return rc > 0 ? 0 : rc;
		rc = health_check(sender->health, error);
		if (rc)
			return rc;
		if (clock_ns() >= end)
			return error_set(
				error, ERROR_TIMEOUT,
				"%s has not packed what was written within %u ms: a kernel "
				"of this process may hold it, or the stream that was given "
				"with a tensor waits for something",
				device_text(device), sender->epoch->wait_ms);
		if (clock_ns() - begin > SPIN_NS)
			clock_sleep_ns(SLEEP_NS);
	}
}

int send_device_settle(struct sender *sender, struct error *error)
{
	const struct device *device = sender->epoch->options.device;
	cuda_event mark;
	int rc;

	if (!sender->epoch->send.batch)
		return 0;
	rc = device_mark(device, &mark, error);
	pthread_mutex_unlock(&sender->lock);
	if (!rc)
		rc = wait_for(sender, mark, error);
	device_unmark(device, mark);
	pthread_mutex_lock(&sender->lock);
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
	rc = batch_sums(plan->batch, sender->block_sums, error);
	if (rc)
		return broken(sender, error);
	for (uint32_t s = 0; s < plan->source_count; s++) {
		const struct send_source *source = &plan->sources[s];
		uint64_t sum = pack_sum(&sender->block_sums[source->first_block], source->parts);

		for (uint32_t i = 0; i < source->row_count; i++) {
			const struct send_row *row =
				&plan->rows[plan->source_rows[source->first_row + i]];

			plan->sums[sender->epoch->peers[row->peer].first_piece + row->ordinal] =
				sum;
		}
	}
	return 0;
}
