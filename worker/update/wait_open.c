/* SPDX-License-Identifier: Apache-2.0
 *
 * wait_open.c -- what an inference rank waits with: for trainers; or, when a plan has brought it here, first for the rank of
 * another engine that sends it what it shows.
 */
#include "worker/update/wait.h"

#include "base/memory.h"

/* A GPU puts in place what lands for its own memory and is spread there, or is small and one of several: a copy each would take
 * longer than the bytes. */
static bool scatters(const struct epoch *epoch)
{
	size_t small = 0;

	for (size_t i = 0; i < epoch->plan->row_count; i++) {
		const struct plan_row *row = &epoch->plan->rows[i];

		if (row->path != PATH_LANDED ||
		    params_by_processor(epoch->options.params, row->param))
			continue;
		small += row->bytes < MERGE_BYTES;
		if (row->spread.run_bytes || small >= MERGE_PIECES_MIN)
			return true;
	}
	return false;
}

/* What a device does beside copies. */
static int open_device(struct waiter *waiter, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	int rc = 0;

	if (!params_on_device(epoch->options.params))
		return 0;
	if (scatters(epoch))
		rc = scatter_open(&waiter->scatter, epoch->options.params->device, WINDOW_ENTRIES,
				  error);
	return !rc && epoch->sums ? waiter_open_sums(waiter, error) : rc;
}

/* Whom a version is waited for from now on. */
static int wait_for(struct waiter *waiter, struct peer *from, size_t count, struct error *error)
{
	waiter->from = from;
	waiter->from_count = count;
	waiter->heard = 0;
	waiter->peers = pool_array(&waiter->pool, count, sizeof(*waiter->peers));
	waiter->links = pool_array(&waiter->pool, count, sizeof(*waiter->links));
	waiter->seen = pool_array(&waiter->pool, count, sizeof(*waiter->seen));
	waiter->taking = pool_array(&waiter->pool, count, sizeof(*waiter->taking));
	if (!pool_ok(&waiter->pool))
		return memory_error(error, "preparing updates", count * sizeof(*waiter->links));
	for (size_t p = 0; p < count; p++)
		waiter->peers[p] = (struct receive_peer){
			from[p].name,	      from[p].plan->bytes,
			from[p].plan->pieces, transport_endpoint_path(from[p].endpoint),
			from[p].landed,	      from[p].landed_bytes,
			from[p].deltas};
	receiver_init(&waiter->receiver, waiter->peers, count, waiter->links, waiter->epoch->digest,
		      waiter->epoch->sums);
	if (waiter->epoch->mate_count)
		receiver_meets(&waiter->receiver, waiter->epoch->options.params->landing);
	return 0;
}

int waiter_open(struct waiter *waiter, struct epoch *epoch, struct health *health,
		struct versions *versions, struct watch *watch, struct error *error)
{
	int rc;

	waiter->epoch = epoch_hold(epoch);
	waiter->health = health;
	waiter->versions = versions;
	waiter->watch = watch;
	waiter->copies = epoch->copied_from ? epoch->plan->copy : 0;
	rc = waiter->copies ? wait_for(waiter, epoch->copied_from, 1, error)
			    : wait_for(waiter, epoch->peers, epoch->peer_count, error);
	if (rc)
		return rc;
	waiter->receiver.past = waiter->past;
	waiter->mates_past = 0;
	/* who comes in, and who had given that version up and is sent it once more */
	if (epoch->plan->next > versions_published(waiter->versions))
		waiter->receiver.past = epoch->plan->next - 1;
	waiter->gone_heard = health->control ? control_gone_before(health->control) : 0;
	rc = open_device(waiter, error);
	if (!rc)
		rc = waiter_base_open(waiter, error);
	return rc ? rc : waiter_meets_open(waiter, error);
}

int waiter_turn_to_trainers(struct waiter *waiter, struct error *error)
{
	uint64_t past = waiter->receiver.past;
	int rc = wait_for(waiter, waiter->epoch->peers, waiter->epoch->peer_count, error);

	waiter->receiver.past = past > waiter->copies ? past : waiter->copies;
	waiter->copies = 0;
	return rc;
}

void waiter_close(struct waiter *waiter)
{
	waiter->past = waiter->receiver.past;
	waiter_meets_close(waiter);
	/* before anything is unpinned, released or unmapped that it may touch */
	if (waiter->epoch && waiter->epoch->options.params->device)
		device_quiet(waiter->epoch->options.params->device);
	for (uint32_t p = 0; waiter->epoch && waiter->taking && p < waiter->from_count; p++)
		waiter_forget(waiter, p);
	scatter_close(&waiter->scatter);
	sums_close(&waiter->sums);
	pool_free(&waiter->pool);
	epoch_release(&waiter->epoch);
}
