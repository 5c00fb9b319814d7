/* SPDX-License-Identifier: Apache-2.0
 *
 * send_device.c -- a trainer's rows as a GPU packs them. Those whose targets its kernels reach: by peer and tensor, each
 * straight into its target, and once more for its checksum (worker/device/batch.h). The others go through a ring, on the
 * GPU where every NIC that sends from there reads it, else on the host.
 */
#include "worker/epoch/epoch.h"

#include "base/compare.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>

/* The first peer that is sent something from the ring by a transport whose NICs do not read the GPU's memory. */
static const struct peer *cannot_read(const struct send_plan *plan, const struct epoch *epoch)
{
	for (size_t i = 0; i < plan->row_count; i++) {
		const struct peer *peer = &epoch->peers[plan->rows[i].peer];

		if (plan->rows[i].path == PATH_REPLICA &&
		    !transport_endpoint_caps(peer->endpoint)->gpu_direct)
			return peer;
	}
	return NULL;
}

/* A copy down to the host is slower than a NIC on the GPU's own switch: nobody shall have to find out. */
void send_plan_place_ring(struct send_plan *plan, const struct epoch *epoch)
{
	const struct peer *peer = cannot_read(plan, epoch);
	const struct transport_domain *by;
	const char *why;

	plan->ring_on_device = !peer && !epoch->options.host_ring;
	if (!peer)
		return;
	by = transport_endpoint_domain(peer->endpoint);
	why = transport_domain_no_gpu(by);
	log_line(why[0] && !epoch->options.host_ring ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
		 "%s: pieces for %s go through pinned memory of the host, which %s reads instead "
		 "of %s%s%s",
		 epoch->options.name, peer->name, transport_domain_name(by),
		 device_text(epoch->options.device), why[0] ? ": " : "", why);
}

/* Scales come right behind their values: sources are numbered so. */
static int compare_rows(const void *a, const void *b, void *context)
{
	const struct send_plan *plan = context;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	const struct send_row *p = &plan->rows[x], *q = &plan->rows[y];

	return compare_u64(p->peer, q->peer) ?:
	       compare_u64(plan->sources[p->source].tensor, plan->sources[q->source].tensor) ?:
	       compare_u64(p->source, q->source) ?: compare_u64(x, y);
}

static uint32_t scales_of(const struct send_source *source)
{
	return source->scales == NO_TENSOR ? PACK_CUDA_NO_TENSOR : source->scales;
}

/* Made with the values before it, which are of the same peer. */
static bool follows(const struct send_plan *plan, const uint32_t *row, const uint32_t *first)
{
	uint32_t source = plan->rows[*row].source;

	return row > first && plan->rows[row[-1]].peer == plan->rows[*row].peer &&
	       plan->sources[plan->rows[row[-1]].source].follower == source;
}

static uint64_t address_of(const struct send_target *target)
{
	return (uint64_t)(uintptr_t)target->pointer + target->offset;
}

static size_t list_rows(const struct send_plan *plan, uint32_t *rows)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->row_count; i++)
		if (plan->rows[i].by_device)
			rows[count++] = (uint32_t)i;
	qsort_r(rows, count, sizeof(*rows), compare_rows, (void *)(uintptr_t)plan);
	return count;
}

static size_t list_pieces(const struct send_plan *plan, const struct epoch *epoch,
			  const uint32_t *rows, size_t row_count, struct batch_piece *pieces)
{
	size_t count = 0;

	for (size_t first = 0, end; first < row_count; first = end) {
		uint32_t peer = plan->rows[rows[first]].peer;

		for (end = first; end < row_count && plan->rows[rows[end]].peer == peer;)
			end++;
		for (uint32_t copy = 0; copy < epoch->peers[peer].theirs->copies; copy++)
			for (size_t i = first; i < end; i++) {
				const struct send_row *row = &plan->rows[rows[i]];
				const struct send_source *source = &plan->sources[row->source];

				pieces[count++] = (struct batch_piece){
					.pack = &source->pack,
					.group = peer * plan->copies + copy,
					.tensor = source->tensor,
					.scales = scales_of(source),
					.follows = follows(plan, &rows[i], rows),
					.target = address_of(&plan->targets[row->target + copy]),
					.spread = epoch->plan->rows[rows[i]].spread,
				};
			}
	}
	return count;
}

/* Sources are by tensor already. What a task packs is summed by it. */
static size_t list_summed(const struct send_plan *plan, struct batch_summed *summed)
{
	size_t count = 0;

	for (size_t s = 0; plan->sums && s < plan->source_count; s++)
		if (!plan->sources[s].scheduled)
			summed[count++] = (struct batch_summed){
				&plan->sources[s].pack, plan->sources[s].tensor,
				scales_of(&plan->sources[s]), plan->sources[s].first_block};
	return count;
}

int send_plan_open_batch(struct send_plan *plan, const struct epoch *epoch, struct error *error)
{
	struct pool pool = {0};
	uint32_t *rows = pool_array(&pool, plan->row_count, sizeof(*rows));
	struct batch_piece *pieces = pool_array(&pool, plan->target_count, sizeof(*pieces));
	struct batch_summed *summed = pool_array(&pool, plan->source_count, sizeof(*summed));
	struct batch_options options = {
		.device = epoch->options.device,
		.pieces = pieces,
		.groups = (uint32_t)plan->peer_count * plan->copies,
		.tensors = plan->tensor_count,
		.summed = summed,
		.blocks = plan->block_count,
	};
	size_t count = 0;
	int rc = pool_ok(&pool) ? 0
				: memory_error(error, "preparing updates",
					       plan->target_count * sizeof(*pieces));

	if (!rc)
		count = list_rows(plan, rows);
	if (count) {
		options.piece_count = list_pieces(plan, epoch, rows, count, pieces);
		options.summed_count = list_summed(plan, summed);
		rc = batch_open(&plan->batch, &options, error);
	}
	if (!rc && count)
		log_info(
			"%s: %s packs %zu pieces straight into their targets, in one launch a peer",
			epoch->options.name, device_text(epoch->options.device), count);
	pool_free(&pool);
	return rc;
}
