/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/epoch.h"

#include "base/memory.h"
#include <string.h>

/* ---- rows ---- */

const char *send_plan_name(const struct epoch *epoch, uint32_t id)
{
	return local_info(epoch->options.holding, &epoch->options.locals->items[id])->name;
}

int send_plan_bad_row(const struct epoch *epoch, size_t row, const char *what, struct error *error)
{
	return error_set(error, ERROR_MESSAGE, "%s: row %zu of the plan: %s", epoch->options.name,
			 row, what);
}

/* Where nobody can write its target, the plan says that, and not how it leaves here: as it lies where the transport reads
 * it so, else through the ring. */
static bool leaves_in_place(const struct epoch *epoch, const struct plan_row *row)
{
	const struct transport_caps *caps =
		transport_endpoint_caps(epoch->peers[row->peer].endpoint);
	const struct tensor_info *tensor = &epoch->options.holding->tensors[row->tensor];
	const struct held *held = holding_find(epoch->options.holding, row->tensor, &row->src);
	struct runs runs;
	bool registered = epoch->options.ranges->count != 0;
	bool reads = epoch->options.device
			     ? caps->gpu_direct && registered && !epoch->options.host_ring
			     : !caps->local_registration || registered;

	return reads && transform_plain(&row->transform) && held &&
	       (row->to == DTYPE_NONE || row->to == tensor->dtype) &&
	       placement_runs(&held->place, &held->box, &row->src, 1, &runs) && runs.rows == 1;
}

/* A kernel stores into whatever it reaches, where the plan says replica for another trainer's sake too. What it does not
 * reach, a transport that reads the GPU's memory sends as it lies; the rest goes through the ring. */
static enum route_path path_here(const struct epoch *epoch, const struct plan_row *row,
				 bool by_device)
{
	if (row->path == PATH_LANDED)
		return leaves_in_place(epoch, row) ? PATH_DIRECT : PATH_REPLICA;
	if (!epoch->options.device)
		return row->path;
	if (by_device)
		return PATH_MAPPED;
	return row->path == PATH_DIRECT ? PATH_DIRECT : PATH_REPLICA;
}

static int resolve_target(const struct epoch *epoch, size_t index, uint32_t copy,
			  struct send_target *target, struct error *error)
{
	const struct plan_row *row = &epoch->plan->rows[index];
	const struct peer *peer = &epoch->peers[row->peer];
	const struct peer_endpoints *theirs = peer->theirs;
	size_t params = theirs->copies ? theirs->place_count / theirs->copies : 0;
	const struct param_place *place;
	uint64_t size;

	if (row->path == PATH_LANDED)
		return 0;
	if (row->param >= params)
		return send_plan_bad_row(epoch, index, "its parameter has no place", error);
	place = &theirs->places[copy * params + row->param];
	target->remote = peer_remote(peer, place->region);
	if (!target->remote)
		return send_plan_bad_row(epoch, index,
					 "its parameter lies in a region that was not sent", error);
	target->pointer = transport_remote_pointer(target->remote);
	size = transport_remote_bytes(target->remote);
	if (__builtin_add_overflow(place->offset, row->offset, &target->offset) ||
	    target->offset > size || spread_span(&row->spread, row->bytes) > size - target->offset)
		return error_set(error, ERROR_BOUNDS,
				 "row %zu of the plan: bytes %llu..+%llu of a "
				 "region of %llu of %s",
				 index, (unsigned long long)target->offset,
				 (unsigned long long)row->bytes, (unsigned long long)size,
				 peer->name);
	if (epoch->options.device)
		target->pointer = peer_device_pointer(peer, place->region);
	else if (row->path == PATH_MAPPED && !target->pointer)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the plan says mapped for %s, but its "
				 "memory is not mapped here",
				 peer->name);
	return 0;
}

static int resolve_row(struct send_plan *plan, const struct epoch *epoch, size_t index,
		       struct error *error)
{
	const struct plan_row *row = &epoch->plan->rows[index];
	struct send_row *out = &plan->rows[index];

	if (row->peer >= epoch->peer_count || row->tensor >= epoch->options.holding->tensor_count ||
	    row->ordinal >= epoch->peers[row->peer].plan->pieces || row->path >= PATH_COUNT ||
	    (row->transform.from_rows && row->scales >= epoch->options.holding->tensor_count))
		return send_plan_bad_row(epoch, index, "peer, tensor, piece or way is out of range",
					 error);
	*out = (struct send_row){.peer = row->peer,
				 .ordinal = row->ordinal,
				 .stored = !epoch->options.device &&
					   (epoch->options.full || row->path != PATH_REPLICA),
				 .by_device = epoch->options.device != NULL,
				 .landed = row->path == PATH_LANDED,
				 .target = (uint32_t)plan->target_count};
	out->spread = row->spread.run_bytes != 0;
	if (out->spread && !out->landed && row->path != PATH_MAPPED)
		return send_plan_bad_row(epoch, index,
					 "what is spread in its target is neither mapped nor lands",
					 error);
	if (epoch->peers[row->peer].theirs->copies > PARAMS_COPIES_MAX)
		return send_plan_bad_row(epoch, index, "its target has too many copies", error);
	for (uint32_t c = 0; c < epoch->peers[row->peer].theirs->copies; c++) {
		struct send_target *target = &plan->targets[plan->target_count++];
		int rc = resolve_target(epoch, index, c, target, error);

		if (rc)
			return rc;
		out->stored = out->stored && target->pointer;
		out->by_device = out->by_device && target->pointer;
	}
	if (out->spread && !out->landed && epoch->options.device && !out->by_device)
		return send_plan_bad_row(
			epoch, index,
			"it is to be packed into runs of its target, which this GPU does not reach",
			error);
	out->path = path_here(epoch, row, out->by_device);
	plan->scheduled = plan->scheduled || !out->by_device;
	plan->posts = plan->posts || (!out->stored && !out->by_device);
	return 0;
}

static int resolve_rows(struct send_plan *plan, const struct epoch *epoch, struct error *error)
{
	size_t rows = epoch->plan->row_count, copies = 1;
	int rc = 0;

	for (size_t p = 0; p < epoch->peer_count; p++)
		if (epoch->peers[p].theirs->copies > copies)
			copies = epoch->peers[p].theirs->copies;
	plan->rows = pool_array(&plan->pool, rows, sizeof(*plan->rows));
	plan->targets = pool_array(&plan->pool, rows * copies, sizeof(*plan->targets));
	if (!pool_ok(&plan->pool))
		return memory_error(error, "preparing updates", rows * sizeof(*plan->rows));
	plan->lands = pool_array(&plan->pool, epoch->peer_count, sizeof(*plan->lands));
	plan->deltas = pool_array(&plan->pool, epoch->peer_count, sizeof(*plan->deltas));
	if (!pool_ok(&plan->pool))
		return memory_error(error, "preparing updates", epoch->peer_count);
	for (size_t p = 0; p < epoch->peer_count; p++) {
		plan->lands[p] = epoch->peers[p].landed;
		plan->deltas[p] = epoch->peers[p].deltas;
	}
	plan->row_count = rows;
	plan->copies = (uint32_t)copies;
	for (size_t i = 0; i < rows && !rc; i++)
		rc = resolve_row(plan, epoch, i, error);
	return rc;
}

/* Of targets whose pages are not mapped yet; ranges NULL: counted only. */
static size_t list_unmapped(const struct send_plan *plan, const struct epoch *epoch,
			    struct mapper_range *ranges)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->row_count && !plan->device; i++) {
		const struct plan_row *row = &epoch->plan->rows[i];
		const struct send_target *target = &plan->targets[plan->rows[i].target];
		uint64_t bytes = spread_span(&row->spread, row->bytes);

		for (uint32_t c = 0; c < epoch->peers[row->peer].theirs->copies; c++) {
			if (!mapper_wants(target[c].remote, bytes))
				continue;
			if (ranges)
				ranges[count] = (struct mapper_range){
					.memory = target[c].pointer + target[c].offset,
					.bytes = bytes,
					.target = plan->rows[i].target + c};
			count++;
		}
	}
	return count;
}

int send_plan_map_targets(struct send_plan *plan, const struct epoch *epoch, struct error *error)
{
	size_t count = list_unmapped(plan, epoch, NULL);
	struct mapper_range *ranges;

	if (!count)
		return 0;
	ranges = pool_array(&plan->pool, count, sizeof(*ranges));
	if (!ranges)
		return memory_error(error, "listing what is to be mapped", count * sizeof(*ranges));
	list_unmapped(plan, epoch, ranges);
	mapper_start(&plan->mapper, ranges, count);
	return 0;
}

static const struct send_source *source_of(const struct send_plan *plan, size_t row)
{
	return &plan->sources[plan->rows[row].source];
}

/* A tensor's rows are those that read it, also as somebody's scales. */
static int group_by_tensor(struct send_plan *plan, const struct epoch *epoch, struct error *error)
{
	size_t tensors = epoch->options.locals->count, entries = 0;
	uint32_t *first = pool_array(&plan->pool, tensors + 2, sizeof(*first));

	for (size_t i = 0; i < plan->row_count; i++)
		entries += source_of(plan, i)->scales != NO_TENSOR ? 2 : 1;
	plan->tensor_count = tensors;
	plan->tensor_first = first;
	plan->tensor_rows = pool_array(&plan->pool, entries, sizeof(*plan->tensor_rows));
	plan->direct = pool_array(&plan->pool, tensors, sizeof(*plan->direct));
	if (!pool_ok(&plan->pool))
		return memory_error(error, "preparing updates", tensors * sizeof(*first));
	/* counting sort; first[t + 1] walks from the start to the end of tensor t's rows */
	for (size_t i = 0; i < plan->row_count; i++) {
		const struct send_source *source = source_of(plan, i);

		first[source->tensor + 2]++;
		if (source->scales != NO_TENSOR)
			first[source->scales + 2]++;
	}
	for (size_t t = 1; t < tensors + 2; t++)
		first[t] += first[t - 1];
	for (size_t i = 0; i < plan->row_count; i++) {
		const struct send_source *source = source_of(plan, i);

		plan->tensor_rows[first[source->tensor + 1]++] = (uint32_t)i;
		if (source->scales != NO_TENSOR)
			plan->tensor_rows[first[source->scales + 1]++] = (uint32_t)i;
		plan->direct[source->tensor] |= plan->rows[i].path == PATH_DIRECT;
	}
	return 0;
}

int send_plan_open(struct send_plan *plan, struct epoch *epoch, struct error *error)
{
	int rc;

	plan->node = -1;
	plan->full = epoch->options.full;
	plan->device = epoch->options.device;
	plan->peer_count = epoch->peer_count;
	rc = resolve_rows(plan, epoch, error);
	if (!rc && plan->device)
		send_plan_place_ring(plan, epoch);
	/* what is packed there the processor does not compare */
	if (!rc && plan->ring_on_device)
		memset(plan->deltas, 0, plan->peer_count * sizeof(*plan->deltas));
	if (!rc)
		rc = send_plan_find_sources(plan, epoch, error);
	if (!rc)
		rc = group_by_tensor(plan, epoch, error);
	if (!rc)
		rc = send_plan_open_memory(plan, epoch, error);
	if (!rc && plan->device)
		rc = send_plan_open_batch(plan, epoch, error);
	if (!rc)
		send_plan_find_work(plan);
	return rc;
}

void send_plan_close(struct send_plan *plan)
{
	mapper_stop(&plan->mapper);
	batch_close(&plan->batch);
	pool_free(&plan->pool);
	full_close(&plan->homes);
	send_plan_close_memory(plan);
	*plan = (struct send_plan){.node = -1};
}
