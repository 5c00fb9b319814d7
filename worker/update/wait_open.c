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

/* As receive_peer has it. */
static uint32_t stand_in_of(const struct peer *from, size_t count, size_t p)
{
	for (uint32_t i = 0; from[p].plan->stand_in && i < count; i++)
		if (from[i].plan->member.role == ROLE_TRAINER &&
		    from[i].plan->member.rank == from[p].plan->stand_in - 1)
			return i + 1;
	return 0;
}

static int open_sources(struct waiter *waiter, struct sources *sources, struct peer *from,
			size_t count, struct error *error)
{
	struct pool *pool = &waiter->pool;

	*sources = (struct sources){.from = from,
				    .count = count,
				    .peers = pool_array(pool, count, sizeof(*sources->peers)),
				    .links = pool_array(pool, count, sizeof(*sources->links)),
				    .seen = pool_array(pool, count, sizeof(*sources->seen)),
				    .taking = pool_array(pool, count, sizeof(*sources->taking))};
	if (!pool_ok(pool))
		return memory_error(error, "preparing updates", count * sizeof(*sources->links));
	for (size_t p = 0; p < count; p++) {
		sources->seen[p] = from[p].heard;
		sources->peers[p] = (struct receive_peer){
			from[p].name,	      from[p].plan->bytes,
			from[p].plan->pieces, transport_endpoint_path(from[p].endpoint),
			from[p].landed,	      from[p].landed_bytes,
			from[p].deltas,	      stand_in_of(from, count, p)};
	}
	return 0;
}

void waiter_use(struct waiter *waiter, const struct sources *sources)
{
	waiter->now = sources;
	waiter->heard = 0;
	receiver_init(&waiter->receiver, sources->peers, sources->count, sources->links,
		      waiter->epoch->plan->digest, waiter->epoch->sums);
	waiter->receiver.hedge_ns = (uint64_t)waiter->epoch->plan->hedge_ms * 1000000u;
	if (waiter->mates_count)
		receiver_meets(&waiter->receiver, waiter->epoch->options.params->landing);
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
	waiter->copy_until_ns = 0;
	waiter->copy_used = waiter->copy_unwanted = false;
	waiter->now = NULL;
	rc = open_sources(waiter, &waiter->trainers, epoch->peers, epoch->peer_count, error);
	if (!rc && waiter->copies)
		rc = open_sources(waiter, &waiter->donor, epoch->copied_from, 1, error);
	if (rc)
		return rc;
	waiter->unsaid = pool_array(&waiter->pool, epoch->peer_count + 1, sizeof(*waiter->unsaid));
	waiter->verified = NULL;
	waiter->clear_until_ns = 0;
	if (epoch->plan->hedge_ms && epoch->sums)
		waiter->verified = pool_array(&waiter->pool, epoch->plan->row_count + 1,
					      sizeof(*waiter->verified));
	if (!pool_ok(&waiter->pool))
		return memory_error(error, "preparing updates",
				    (epoch->peer_count + 1) * sizeof(*waiter->unsaid));
	for (size_t p = 0; p <= epoch->peer_count; p++)
		waiter->unsaid[p].kind = RECEIVE_WAIT;
	waiter_choose_mates(waiter);
	waiter_use(waiter, waiter->copies ? &waiter->donor : &waiter->trainers);
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

void waiter_close(struct waiter *waiter)
{
	waiter->past = waiter->receiver.past;
	waiter_meets_close(waiter);
	waiter->mates_count = 0;
	/* before anything is unpinned, released or unmapped that it may touch */
	if (waiter->epoch && waiter->epoch->options.params->device)
		device_quiet(waiter->epoch->options.params->device);
	for (uint32_t p = 0; waiter->epoch && waiter->now && p < waiter->now->count; p++)
		waiter_forget(waiter, p);
	scatter_close(&waiter->scatter);
	sums_close(&waiter->sums);
	pool_free(&waiter->pool);
	epoch_release(&waiter->epoch);
}
