/* SPDX-License-Identifier: Apache-2.0
 *
 * send_plan.c -- a trainer's rows of the routing table, resolved once at join to what an update
 * needs: runs in the held rows, the target's address in every copy, distinct sources, replica
 * blocks. Everything a peer said is checked here, so that the update only moves bytes.
 */
#include "worker/worker.h"

#include "common/log.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (8ull << 20) /* of the replica: one packed write; a quarter ring at most */

static int bad_row(const struct weft_worker *worker, size_t row, const char *what,
		   struct error *error)
{
	return error_set(error, ERROR_MESSAGE, "%s: row %zu of the plan: %s", worker->self_name,
			 row, what);
}

static int resolve_target(const struct weft_worker *worker, size_t index, uint32_t copy,
			  struct target *target, struct error *error)
{
	const struct plan_row *row = &worker->plan->rows[index];
	const struct peer *peer = &worker->peers[row->peer];
	const struct peer_endpoints *theirs = peer->theirs;
	size_t params = theirs->copies ? theirs->place_count / theirs->copies : 0;
	const struct param_place *place;
	uint64_t size;
	size_t r = 0;

	if (row->param >= params)
		return bad_row(worker, index, "its parameter has no place", error);
	place = &theirs->places[copy * params + row->param];
	while (r < theirs->region_count && theirs->regions[r].region != place->region)
		r++;
	if (r == theirs->region_count)
		return bad_row(worker, index, "its parameter lies in a region that was not sent",
			       error);
	target->remote = peer->remotes[r];
	size = transport_remote_bytes(target->remote);
	if (__builtin_add_overflow(place->offset, row->offset, &target->offset) ||
	    target->offset > size || row->bytes > size - target->offset)
		return error_set(error, ERROR_BOUNDS,
				 "row %zu of the plan: bytes %llu..+%llu of a "
				 "region of %llu of %s",
				 index, (unsigned long long)target->offset,
				 (unsigned long long)row->bytes, (unsigned long long)size,
				 peer->name);
	if (row->how == HOW_MAPPED && !transport_remote_pointer(target->remote))
		return error_set(error, ERROR_UNSUPPORTED,
				 "the plan says mapped for %s, but its "
				 "memory is not mapped here",
				 peer->name);
	return 0;
}

static int resolve_row(struct weft_worker *worker, size_t index, struct error *error)
{
	const struct plan_row *row = &worker->plan->rows[index];
	struct send_row *out = &worker->trainer.rows[index];
	struct tensor_info *tensor;
	struct box held;

	if (row->peer >= worker->peer_count || row->tensor >= worker->holding.tensor_count ||
	    row->ordinal >= worker->peers[row->peer].plan->pieces || row->how >= HOW_COUNT)
		return bad_row(worker, index, "peer, tensor, piece or way is out of range", error);
	tensor = &worker->holding.tensors[row->tensor];
	if (!make_plain(&row->make) || row->to != DTYPE_NONE)
		return error_set(error, ERROR_UNSUPPORTED,
				 "tensor %s: this trainer copies, and the plan asks for another "
				 "dtype or for blocks; declare tensor and parameter alike",
				 tensor->name);
	held = box_whole(tensor->dims, tensor->shape);
	held.lo[0] = worker->held[row->tensor].lo;
	held.hi[0] = worker->held[row->tensor].hi;
	if (!box_in_shape(&row->src, tensor->dims, tensor->shape) ||
	    !box_inside(&row->src, &held) ||
	    row->bytes != box_elements(&row->src) * dtype_bytes(tensor->dtype))
		return bad_row(worker, index, "its box is not held here", error);
	*out = (struct send_row){.peer = row->peer, .ordinal = row->ordinal, .how = row->how};
	if (worker->peers[row->peer].theirs->copies > VERSIONS_COPIES_MAX)
		return bad_row(worker, index, "its target has too many copies", error);
	for (uint32_t c = 0; c < worker->peers[row->peer].theirs->copies; c++) {
		int rc = resolve_target(worker, index, c, &out->target[c], error);

		if (rc)
			return rc;
	}
	return 0;
}

static int compare_sources(const void *a, const void *b, void *context)
{
	const struct plan_row *rows = context;
	const struct plan_row *x = &rows[*(const uint32_t *)a], *y = &rows[*(const uint32_t *)b];

	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	for (uint32_t d = 0; d < x->src.dims; d++) {
		if (x->src.lo[d] != y->src.lo[d])
			return x->src.lo[d] < y->src.lo[d] ? -1 : 1;
		if (x->src.hi[d] != y->src.hi[d])
			return x->src.hi[d] < y->src.hi[d] ? -1 : 1;
	}
	return 0;
}

static int add_source(struct weft_worker *worker, const struct plan_row *row, struct error *error)
{
	struct source *source = &worker->trainer.sources[worker->trainer.source_count];
	const struct tensor_info *tensor = &worker->holding.tensors[row->tensor];
	struct pack_source from = {
		.from = tensor->dtype,
		.to = tensor->dtype,
		.dims = tensor->dims,
		.src = row->src,
		.held_lo = worker->held[row->tensor].lo,
		.held_hi = worker->held[row->tensor].hi,
	};

	memcpy(from.shape, tensor->shape, sizeof(from.shape));
	*source = (struct source){.tensor = row->tensor, .bytes = row->bytes};
	if (pack_init(&source->pack, &from, error))
		return error_wrap(error, "tensor %s", tensor->name);
	worker->trainer.source_count++;
	return 0;
}

/* Equal boxes of equal tensors share a source. */
static int find_sources(struct weft_worker *worker, struct error *error)
{
	const struct message_plan *plan = worker->plan;
	uint32_t *sorted = memory_zalloc(plan->row_count, sizeof(*sorted));
	int rc = 0;

	if (!sorted)
		return memory_error(error, "preparing updates", plan->row_count * sizeof(*sorted));
	for (size_t i = 0; i < plan->row_count; i++)
		sorted[i] = (uint32_t)i;
	qsort_r(sorted, plan->row_count, sizeof(*sorted), compare_sources, plan->rows);
	for (size_t i = 0; i < plan->row_count && !rc; i++) {
		if (!i || compare_sources(&sorted[i - 1], &sorted[i], plan->rows))
			rc = add_source(worker, &plan->rows[sorted[i]], error);
		if (!rc)
			worker->trainer.rows[sorted[i]].source =
				(uint32_t)worker->trainer.source_count - 1;
	}
	memory_free(sorted);
	return rc;
}

static int group_by_tensor(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	size_t tensors = worker->holding.tensor_count;
	uint32_t *first = memory_zalloc(tensors + 2, sizeof(*first));

	trainer->tensor_rows = memory_zalloc(trainer->row_count, sizeof(*trainer->tensor_rows));
	trainer->written = memory_zalloc(tensors, sizeof(*trainer->written));
	trainer->direct = memory_zalloc(tensors, sizeof(*trainer->direct));
	trainer->tensor_first = first;
	if (!first || !trainer->tensor_rows || !trainer->written || !trainer->direct)
		return memory_error(error, "preparing updates", tensors * sizeof(*first));
	/* counting sort; first[t + 1] walks from the start to the end of tensor t's rows */
	for (size_t i = 0; i < trainer->row_count; i++)
		first[worker->plan->rows[i].tensor + 2]++;
	for (size_t t = 1; t < tensors + 2; t++)
		first[t] += first[t - 1];
	for (size_t i = 0; i < trainer->row_count; i++) {
		trainer->tensor_rows[first[worker->plan->rows[i].tensor + 1]++] = (uint32_t)i;
		trainer->direct[worker->plan->rows[i].tensor] |= trainer->rows[i].how == HOW_DIRECT;
	}
	return 0;
}

/* Ring and blocks, when any row goes through the replica. */
static int open_replica(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t bytes = 0, limit = worker->ring_bytes, blocks = 0;
	int rc;

	if (limit < 4 * RING_ALIGN)
		limit = 4 * RING_ALIGN;
	trainer->block_bytes = limit / 4 < BLOCK_BYTES ? limit / 4 : BLOCK_BYTES;
	trainer->block_bytes = trainer->block_bytes / RING_ALIGN * RING_ALIGN;
	for (size_t i = 0; i < trainer->row_count; i++) {
		struct source *source = &trainer->sources[trainer->rows[i].source];

		if (trainer->rows[i].how != HOW_REPLICA || source->first_block)
			continue;
		source->first_block = (uint32_t)blocks + 1; /* 0: not in the replica */
		blocks += (source->bytes + trainer->block_bytes - 1) / trainer->block_bytes;
		bytes += source->bytes + RING_ALIGN;
		if (blocks >= UINT32_MAX)
			return error_set(error, ERROR_LIMIT,
					 "a ring of %llu bytes cuts this update "
					 "into too many blocks; raise ring_bytes",
					 (unsigned long long)limit);
	}
	if (!blocks)
		return 0;
	/* no larger than what one update puts in, for all of it is taken from the host now; a
	 * ring cut short by the limit has room for four blocks */
	if (bytes > limit)
		bytes = limit;
	rc = transport_region_allocate(worker->domain, bytes, &trainer->ring_region, error);
	if (!rc)
		rc = replica_open(&trainer->replica, transport_region_memory(trainer->ring_region),
				  bytes, blocks + 1, error);
	return rc ? error_wrap(error, "CPU replica of %llu bytes", (unsigned long long)bytes) : 0;
}

static int open_sums(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc;

	rc = peers_open_sums(worker, &trainer->sums_region, error);
	if (rc || !trainer->sums_region)
		return rc;
	trainer->sums = transport_region_memory(trainer->sums_region);
	return 0;
}

int send_plan_open(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	size_t rows = worker->plan->row_count;
	int rc = 0;

	trainer->rows = memory_zalloc(rows, sizeof(*trainer->rows));
	trainer->sources = memory_zalloc(rows, sizeof(*trainer->sources));
	if (!trainer->rows || !trainer->sources)
		return memory_error(error, "preparing updates", rows * sizeof(*trainer->rows));
	trainer->row_count = rows;
	for (size_t i = 0; i < rows && !rc; i++)
		rc = resolve_row(worker, i, error);
	if (!rc)
		rc = find_sources(worker, error);
	if (!rc)
		rc = group_by_tensor(worker, error);
	if (!rc)
		rc = open_replica(worker, error);
	if (!rc)
		rc = open_sums(worker, error);
	return rc;
}

void send_plan_close(struct weft_worker *worker)
{
	struct trainer *trainer = &worker->trainer;

	memory_free(trainer->rows);
	memory_free(trainer->sources);
	memory_free(trainer->tensor_first);
	memory_free(trainer->tensor_rows);
	memory_free(trainer->written);
	memory_free(trainer->direct);
	replica_close(&trainer->replica);
	transport_region_close(&trainer->ring_region);
	transport_region_close(&trainer->sums_region);
	memset(trainer, 0, sizeof(*trainer));
}
