/* SPDX-License-Identifier: Apache-2.0
 *
 * send_device.c -- a trainer's rows as a GPU packs them: by peer and tensor, each straight into its target, and once more
 * for its checksum (worker/device/batch.h).
 */
#include "worker/epoch/epoch.h"

#include "base/compare.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>

/* The host's own memory in another process is not reached: it gets its bytes from the ring. */
bool send_plan_reaches_all(const struct epoch *epoch)
{
	if (!epoch->options.device)
		return false;
	for (size_t p = 0; p < epoch->peer_count; p++)
		for (size_t r = 0; r < epoch->peers[p].theirs->region_count; r++)
			if (!transport_remote_device_pointer(epoch->peers[p].remotes[r]))
				return false;
	return true;
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

static size_t list_pieces(const struct send_plan *plan, const struct epoch *epoch,
			  const uint32_t *rows, struct batch_piece *pieces)
{
	size_t count = 0;

	for (size_t first = 0, end; first < plan->row_count; first = end) {
		uint32_t peer = plan->rows[rows[first]].peer;

		for (end = first; end < plan->row_count && plan->rows[rows[end]].peer == peer;)
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
				};
			}
	}
	return count;
}

/* Sources are by tensor already. */
static size_t list_summed(const struct send_plan *plan, struct batch_summed *summed)
{
	for (size_t s = 0; plan->sums && s < plan->source_count; s++)
		summed[s] = (struct batch_summed){&plan->sources[s].pack, plan->sources[s].tensor,
						  scales_of(&plan->sources[s]),
						  plan->sources[s].first_block};
	return plan->sums ? plan->source_count : 0;
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
	int rc;

	if (!pool_ok(&pool)) {
		rc = memory_error(error, "preparing updates", plan->target_count * sizeof(*pieces));
	} else {
		for (size_t i = 0; i < plan->row_count; i++)
			rows[i] = (uint32_t)i;
		qsort_r(rows, plan->row_count, sizeof(*rows), compare_rows, plan);
		options.piece_count = list_pieces(plan, epoch, rows, pieces);
		options.summed_count = list_summed(plan, summed);
		rc = batch_open(&plan->batch, &options, error);
	}
	if (!rc)
		log_info(
			"%s: %s packs %zu pieces straight into their targets, in one launch a peer",
			epoch->options.name, device_text(epoch->options.device), plan->row_count);
	pool_free(&pool);
	return rc;
}
