/* SPDX-License-Identifier: Apache-2.0
 *
 * send_sources.c -- the distinct pieces among a trainer's rows: what is packed once for all that want
 * it, what is co-packed with it, and what needs no packing at all.
 */
#include "worker/epoch/epoch.h"

#include "base/compare.h"
#include "base/memory.h"
#include "worker/replica/ring.h"

#include <stdlib.h>
#include <string.h>

#define SCRATCH_BYTES_MAX (32ull << 20) /* scales that wait for their values' pass, at most */
/* A reader is fast from here on, and more columns would keep other threads waiting for them. */
#define GROUP_ROW_BYTES 4096u
/* Packed bytes are read faster than rows are gathered, and from so many rows on that pays. */
#define PACK_ROWS 4u
/* What a GPU packs in one go before it leaves its memory; more would only wait for the copy. */
#define DEVICE_GROUP_BYTES (UINT64_C(8) << 20)

/* What is read, and in which blocks: equal for values and their scales. */
static int compare_reads(const struct plan_row *x, const struct plan_row *y)
{
	const struct transform *a = &x->transform, *b = &y->transform;

	return compare_u64(x->tensor, y->tensor) ?: compare_u64(a->from_rows, b->from_rows) ?:
	       compare_u64(a->from_columns, b->from_columns) ?:
	       compare_u64(a->to_rows, b->to_rows) ?:
	       compare_u64(a->to_columns, b->to_columns) ?:
	       compare_u64(a->from_rows ? x->scales : 0, b->from_rows ? y->scales : 0) ?:
	       box_compare(&x->src, &y->src);
}

/* What it becomes: the tensor's own dtype is a copy. */
static enum dtype to_of(const struct epoch *epoch, const struct plan_row *row)
{
	return row->to == epoch->options.holding->tensors[row->tensor].dtype ? DTYPE_NONE : row->to;
}

/* Values before scales; with homes, a place of its own for each place in a parameter. */
static int compare_sources(const void *a, const void *b, void *context)
{
	const struct epoch *epoch = context;
	const struct plan_row *x = &epoch->plan->rows[*(const uint32_t *)a];
	const struct plan_row *y = &epoch->plan->rows[*(const uint32_t *)b];
	int order = compare_reads(x, y) ?: compare_u64(x->transform.part, y->transform.part) ?:
		    compare_u64(to_of(epoch, x), to_of(epoch, y));

	if (order || !epoch->options.full)
		return order;
	return compare_u64(x->param, y->param) ?: compare_u64(x->offset, y->offset);
}

/* Where the box, of a tensor of the plan, lies. */
static const struct held *find_held(const struct epoch *epoch, uint32_t tensor,
				    const struct box *box, struct pack_held *place,
				    struct error *error)
{
	const struct held *held = holding_find(epoch->options.holding, tensor, box);
	char text[160];

	if (held)
		*place = (struct pack_held){held->box, held->place};
	else
		error_set(error, ERROR_MESSAGE,
			  "tensor %s: the plan asks for %s, which no box that was declared has",
			  epoch->options.holding->tensors[tensor].name,
			  box_text(box, text, sizeof(text)));
	return held;
}

static int init_pack(const struct epoch *epoch, const struct plan_row *row,
		     const struct pack_held *held, const struct pack_held *scales,
		     struct send_source *source, struct error *error)
{
	const struct tensor_info *tensor = &epoch->options.holding->tensors[row->tensor];
	struct pack_source from = {
		.from = tensor->dtype,
		.to = row->to == DTYPE_NONE ? tensor->dtype : row->to,
		.dims = tensor->dims,
		.src = row->src,
		.held = held,
		.scales_held = scales,
		.transform = row->transform,
	};

	memcpy(from.shape, tensor->shape, sizeof(from.shape));
	if (pack_init(&source->pack, &from, error))
		return error_wrap(error, "tensor %s", tensor->name);
	if (source->pack.bytes != row->bytes)
		return error_set(error, ERROR_MESSAGE,
				 "tensor %s: a piece of %llu bytes is planned with %llu",
				 tensor->name, (unsigned long long)source->pack.bytes,
				 (unsigned long long)row->bytes);
	return 0;
}

static int add_source(struct send_plan *plan, const struct epoch *epoch, uint32_t first,
		      const struct plan_row *row, struct error *error)
{
	struct send_source *source = &plan->sources[plan->source_count++];
	const struct locals *locals = epoch->options.locals;
	const struct tensor_info *tensor = &epoch->options.holding->tensors[row->tensor];
	struct pack_held place, scales_place;
	const struct held *held, *scales = NULL;

	*source = (struct send_source){
		.scales = NO_TENSOR,
		.first_row = first,
		.follower = NO_SOURCE,
	};
	if (row->src.dims != tensor->dims || (row->transform.from_rows && row->src.dims != 2))
		return error_set(error, ERROR_MESSAGE, "tensor %s: a box of %u dimensions",
				 tensor->name, row->src.dims);
	held = find_held(epoch, row->tensor, &row->src, &place, error);
	if (held && row->transform.from_rows) {
		struct box box = transform_scales_box(&row->transform, &row->src);

		scales = find_held(epoch, row->scales, &box, &scales_place, error);
		if (!scales)
			return -(int)error->code;
		source->scales = locals_of(locals, scales);
	}
	if (!held)
		return -(int)error->code;
	source->tensor = locals_of(locals, held);
	return init_pack(epoch, row, &place, scales ? &scales_place : NULL, source, error);
}

/* Scales of the very box of the values before them are packed with these; by a task they wait in scratch memory. */
static void find_follower(struct send_plan *plan, const struct epoch *epoch, size_t values,
			  size_t scales)
{
	struct send_source *leader = &plan->sources[values], *source = &plan->sources[scales];
	const struct plan_row *rows = epoch->plan->rows;

	if (leader->scheduled != source->scheduled ||
	    leader->pack.transform.part != TRANSFORM_VALUES || !leader->pack.transform.to_rows ||
	    source->pack.transform.part != TRANSFORM_SCALES || leader->follower != NO_SOURCE ||
	    compare_reads(&rows[plan->source_rows[leader->first_row]],
			  &rows[plan->source_rows[source->first_row]]) ||
	    (source->scheduled && plan->scratch_bytes + source->pack.bytes > SCRATCH_BYTES_MAX))
		return;
	leader->follower = (uint32_t)scales;
	source->follows = true;
	if (!source->scheduled)
		return;
	source->scratch = plan->scratch_bytes;
	plan->scratch_bytes += ring_aligned(source->pack.bytes);
}

/* Where a post is the copy itself and can read rows in place, packing them first is a copy too many:
 * for a few targets, and rows so long that no columns would be packed together. */
static bool gathers(const struct send_plan *plan, const struct epoch *epoch,
		    const struct send_source *source)
{
	const struct pack *pack = &source->pack;

	if (epoch->options.device)
		return false;
	for (uint32_t i = 0; i < source->row_count && source->slots; i++) {
		uint32_t peer = plan->rows[plan->source_rows[source->first_row + i]].peer;

		if (!transport_endpoint_caps(epoch->peers[peer].endpoint)->gathers)
			return false;
	}
	return source->slots && transform_plain(&pack->transform) && pack->from == pack->to &&
	       pack->runs.row_bytes > GROUP_ROW_BYTES / 2 && source->row_count < PACK_ROWS;
}

/* Rows as they are sorted: those of one source stand together. */
static int list_sources(struct send_plan *plan, const struct epoch *epoch, struct error *error)
{
	const uint32_t *sorted = plan->source_rows;
	void *context = (void *)(uintptr_t)epoch;
	int rc = 0;

	for (size_t i = 0; i < plan->row_count && !rc; i++) {
		struct send_row *row = &plan->rows[sorted[i]];
		struct send_source *source;

		if (!i || compare_sources(&sorted[i - 1], &sorted[i], context))
			rc = add_source(plan, epoch, (uint32_t)i, &epoch->plan->rows[sorted[i]],
					error);
		row->source = (uint32_t)plan->source_count - 1;
		source = &plan->sources[row->source];
		if (!rc && row->spread &&
		    epoch->plan->rows[sorted[i]].spread.run_bytes % dtype_bytes(source->pack.to))
			rc = send_plan_bad_row(epoch, sorted[i],
					       "its runs end inside of an element", error);
		source->row_count++;
		source->scheduled |= !row->by_device;
		if (!rc && row->path == PATH_DIRECT &&
		    (!transform_plain(&source->pack.transform) ||
		     source->pack.from != source->pack.to ||
		     (source->pack.runs.rows > 1 &&
		      source->pack.runs.stride_bytes != source->pack.runs.row_bytes)))
			rc = send_plan_bad_row(epoch, sorted[i], "it cannot go out as it lies",
					       error);
	}
	return rc;
}

/* Some row of it is packed into the ring. */
static bool in_ring(const struct send_plan *plan, const struct send_source *source)
{
	for (uint32_t i = 0; i < source->row_count && !source->follows && !plan->full; i++)
		if (plan->rows[plan->source_rows[source->first_row + i]].path == PATH_REPLICA)
			return true;
	return false;
}

/* Equal rows share a source. */
int send_plan_find_sources(struct send_plan *plan, const struct epoch *epoch, struct error *error)
{
	size_t rows = plan->row_count;
	uint32_t *sorted = pool_array(&plan->pool, rows, sizeof(*sorted));
	int rc;

	plan->source_rows = sorted;
	if (!sorted)
		return memory_error(error, "preparing updates", rows * sizeof(*sorted));
	for (size_t i = 0; i < rows; i++)
		sorted[i] = (uint32_t)i;
	qsort_r(sorted, rows, sizeof(*sorted), compare_sources, (void *)(uintptr_t)epoch);
	for (size_t i = 0; i < rows; i++)
		plan->source_count +=
			!i || compare_sources(&sorted[i - 1], &sorted[i], (void *)(uintptr_t)epoch);
	plan->sources = pool_array(&plan->pool, plan->source_count, sizeof(*plan->sources));
	if (!plan->sources)
		return memory_error(error, "preparing updates",
				    plan->source_count * sizeof(*plan->sources));
	plan->source_count = 0;
	rc = list_sources(plan, epoch, error);
	for (size_t s = 0; s + 1 < plan->source_count && !rc; s++)
		find_follower(plan, epoch, s, s + 1);
	for (size_t s = 0; s < plan->source_count && !rc; s++) {
		plan->sources[s].slots = in_ring(plan, &plan->sources[s]);
		plan->sources[s].gathers = gathers(plan, epoch, &plan->sources[s]);
		plan->sources[s].slots &= !plan->sources[s].gathers;
	}
	return rc;
}

/* Neighbours in the list of sources: the next columns of the same rows. */
static bool joins(const struct send_source *a, const struct send_source *b)
{
	return a->tensor == b->tensor && a->part_bytes == b->part_bytes &&
	       pack_can_copack(&a->pack, &b->pack) &&
	       a->pack.runs.offset + a->pack.runs.row_bytes == b->pack.runs.offset;
}

static uint8_t group_max(const struct send_plan *plan, const struct send_source *source)
{
	uint64_t row_bytes = source->pack.runs.row_bytes;
	uint64_t most = row_bytes ? GROUP_ROW_BYTES / row_bytes : 1;

	if (most > PACK_COLUMNS_MAX)
		most = PACK_COLUMNS_MAX;
	/* pieces larger than the ring together would lose their slots before their turn */
	if (source->slots && most > plan->ring_bytes / source->pack.bytes)
		most = plan->ring_bytes / source->pack.bytes;
	if (plan->device && most > DEVICE_GROUP_BYTES / source->part_bytes)
		most = DEVICE_GROUP_BYTES / source->part_bytes;
	return most ? (uint8_t)most : 1;
}

static bool packs(const struct send_plan *plan, const struct send_source *source)
{
	if (!source->scheduled)
		return false;
	if (plan->full || source->slots || plan->sums || source->follower != NO_SOURCE)
		return true;
	for (uint32_t i = 0; i < source->row_count; i++)
		if (plan->rows[plan->source_rows[source->first_row + i]].stored)
			return true;
	return false;
}

void send_plan_find_work(struct send_plan *plan)
{
	for (size_t s = plan->source_count; s--;) {
		struct send_source *source = &plan->sources[s];

		source->packs = packs(plan, source);
		source->group_max = group_max(plan, source);
		source->joins_next = s + 1 < plan->source_count && source->packs &&
				     source[1].packs && joins(source, source + 1);
	}
}
