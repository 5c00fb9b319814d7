/* SPDX-License-Identifier: Apache-2.0
 *
 * send_plan.c -- a trainer's rows of the routing table, resolved once at join to what an update
 * needs: how each piece is packed from the held rows, the target's address in every copy, distinct
 * sources, and the memory of the CPU replica. Everything a peer said is checked here, so that the
 * update only moves bytes.
 *
 *   plan rows ─► send rows ─► sources (equal rows share one) ─► parts ─► ring, or homes
 */
#include "worker/api/worker.h"

#include "base/log.h"
#include "base/numa.h"

#include <stdlib.h>
#include <string.h>

#define RING_BYTES_MIN (4 * RING_ALIGN)
#define KEPT_BYTES_MAX (32ull << 20) /* scales kept from their values' pass, at most */

static int bad_row(const struct weft_worker *worker, size_t row, const char *what,
		   struct error *error)
{
	return error_set(error, ERROR_MESSAGE, "%s: row %zu of the plan: %s", worker->self_name,
			 row, what);
}

/* ---- rows ---- */

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
	target->pointer = transport_remote_pointer(target->remote);
	size = transport_remote_bytes(target->remote);
	if (__builtin_add_overflow(place->offset, row->offset, &target->offset) ||
	    target->offset > size || row->bytes > size - target->offset)
		return error_set(error, ERROR_BOUNDS,
				 "row %zu of the plan: bytes %llu..+%llu of a "
				 "region of %llu of %s",
				 index, (unsigned long long)target->offset,
				 (unsigned long long)row->bytes, (unsigned long long)size,
				 peer->name);
	if (row->how == HOW_MAPPED && !target->pointer)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the plan says mapped for %s, but its "
				 "memory is not mapped here",
				 peer->name);
	return 0;
}

static int resolve_row(struct weft_worker *worker, size_t index, struct error *error)
{
	const struct plan_row *row = &worker->plan->rows[index];
	struct trainer *trainer = &worker->trainer;
	struct send_row *out = &trainer->rows[index];

	if (row->peer >= worker->peer_count || row->tensor >= worker->holding.tensor_count ||
	    row->ordinal >= worker->peers[row->peer].plan->pieces || row->how >= HOW_COUNT ||
	    (row->make.from_rows && row->scales >= worker->holding.tensor_count))
		return bad_row(worker, index, "peer, tensor, piece or way is out of range", error);
	*out = (struct send_row){.peer = row->peer,
				 .ordinal = row->ordinal,
				 .how = row->how,
				 .stored = worker->full || row->how != HOW_REPLICA,
				 .target = (uint32_t)trainer->target_count};
	if (worker->peers[row->peer].theirs->copies > VERSIONS_COPIES_MAX)
		return bad_row(worker, index, "its target has too many copies", error);
	for (uint32_t c = 0; c < worker->peers[row->peer].theirs->copies; c++) {
		struct target *target = &trainer->targets[trainer->target_count++];
		int rc = resolve_target(worker, index, c, target, error);

		if (rc)
			return rc;
		out->stored = out->stored && target->pointer;
	}
	return 0;
}

static int resolve_rows(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	size_t rows = worker->plan->row_count, copies = 1;
	int rc = 0;

	for (size_t p = 0; p < worker->peer_count; p++)
		if (worker->peers[p].theirs->copies > copies)
			copies = worker->peers[p].theirs->copies;
	trainer->rows = memory_zalloc(rows, sizeof(*trainer->rows));
	trainer->targets = memory_zalloc(rows * copies, sizeof(*trainer->targets));
	if (!trainer->rows || !trainer->targets)
		return memory_error(error, "preparing updates", rows * sizeof(*trainer->rows));
	trainer->row_count = rows;
	for (size_t i = 0; i < rows && !rc; i++)
		rc = resolve_row(worker, i, error);
	return rc;
}

/* ---- sources ---- */

static int compare_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int compare_boxes(const struct box *a, const struct box *b)
{
	for (uint32_t d = 0; d < a->dims && d < b->dims; d++) {
		int order = compare_u64(a->lo[d], b->lo[d]);

		if (!order)
			order = compare_u64(a->hi[d], b->hi[d]);
		if (order)
			return order;
	}
	return compare_u64(a->dims, b->dims);
}

/* What is read, and in which blocks: equal for values and their scales. */
static int compare_reads(const struct plan_row *x, const struct plan_row *y)
{
	const uint32_t a[] = {
		x->tensor,	 x->make.from_rows,  x->make.from_columns,
		x->make.to_rows, x->make.to_columns, x->make.from_rows ? x->scales : 0};
	const uint32_t b[] = {
		y->tensor,	 y->make.from_rows,  y->make.from_columns,
		y->make.to_rows, y->make.to_columns, y->make.from_rows ? y->scales : 0};

	for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return compare_boxes(&x->src, &y->src);
}

/* Values before scales; with homes, a place of its own for each place in a parameter. */
static int compare_sources(const void *a, const void *b, void *context)
{
	const struct weft_worker *worker = context;
	const struct plan_row *x = &worker->plan->rows[*(const uint32_t *)a];
	const struct plan_row *y = &worker->plan->rows[*(const uint32_t *)b];
	int order = compare_reads(x, y);

	if (!order)
		order = compare_u64(x->make.part, y->make.part);
	if (!order)
		order = compare_u64(x->to, y->to);
	if (!order && worker->full)
		order = compare_u64(x->param, y->param);
	if (!order && worker->full)
		order = compare_u64(x->offset, y->offset);
	return order;
}

static int init_pack(struct weft_worker *worker, const struct plan_row *row, struct source *source,
		     struct error *error)
{
	const struct tensor_info *tensor = &worker->holding.tensors[row->tensor];
	struct pack_source from = {
		.from = tensor->dtype,
		.to = row->to == DTYPE_NONE ? tensor->dtype : row->to,
		.dims = tensor->dims,
		.src = row->src,
		.held_lo = worker->held[row->tensor].lo,
		.held_hi = worker->held[row->tensor].hi,
		.make = row->make,
	};

	memcpy(from.shape, tensor->shape, sizeof(from.shape));
	if (row->make.from_rows) {
		from.scales_lo = worker->held[row->scales].lo;
		from.scales_hi = worker->held[row->scales].hi;
	}
	if (row->src.dims != tensor->dims)
		return error_set(error, ERROR_MESSAGE, "tensor %s: a box of %u dimensions",
				 tensor->name, row->src.dims);
	if (pack_init(&source->pack, &from, error))
		return error_wrap(error, "tensor %s", tensor->name);
	if (source->pack.bytes != row->bytes)
		return error_set(error, ERROR_MESSAGE,
				 "tensor %s: a piece of %llu bytes is planned with %llu",
				 tensor->name, (unsigned long long)source->pack.bytes,
				 (unsigned long long)row->bytes);
	return 0;
}

static int add_source(struct weft_worker *worker, uint32_t first, const struct plan_row *row,
		      struct error *error)
{
	struct source *source = &worker->trainer.sources[worker->trainer.source_count];

	*source = (struct source){
		.tensor = row->tensor,
		.scales = row->make.from_rows ? row->scales : NO_TENSOR,
		.first_row = first,
		.follower = NO_SOURCE,
	};
	worker->trainer.source_count++;
	return init_pack(worker, row, source, error);
}

/* Scales of the very box of the values before them are made along with these. */
static void find_follower(struct weft_worker *worker, size_t values, size_t scales)
{
	struct trainer *trainer = &worker->trainer;
	struct source *leader = &trainer->sources[values], *source = &trainer->sources[scales];
	const struct plan_row *rows = worker->plan->rows;

	if (leader->pack.make.part != MAKE_VALUES || !leader->pack.make.to_rows ||
	    source->pack.make.part != MAKE_SCALES || leader->follower != NO_SOURCE ||
	    compare_reads(&rows[trainer->source_rows[leader->first_row]],
			  &rows[trainer->source_rows[source->first_row]]) ||
	    trainer->kept_bytes + source->pack.bytes > KEPT_BYTES_MAX)
		return;
	leader->follower = (uint32_t)scales;
	source->follows = true;
	source->kept = trainer->kept_bytes;
	trainer->kept_bytes += (source->pack.bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
}

/* Equal rows share a source. */
static int find_sources(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	size_t rows = trainer->row_count;
	uint32_t *sorted = memory_zalloc(rows, sizeof(*sorted));
	int rc = 0;

	trainer->source_rows = sorted;
	if (!sorted)
		return memory_error(error, "preparing updates", rows * sizeof(*sorted));
	for (size_t i = 0; i < rows; i++)
		sorted[i] = (uint32_t)i;
	qsort_r(sorted, rows, sizeof(*sorted), compare_sources, worker);
	for (size_t i = 0; i < rows; i++)
		trainer->source_count += !i || compare_sources(&sorted[i - 1], &sorted[i], worker);
	trainer->sources = memory_zalloc(trainer->source_count, sizeof(*trainer->sources));
	if (!trainer->sources)
		return memory_error(error, "preparing updates",
				    trainer->source_count * sizeof(*trainer->sources));
	trainer->source_count = 0;
	for (size_t i = 0; i < rows && !rc; i++) {
		struct send_row *row = &trainer->rows[sorted[i]];
		struct source *source;

		if (!i || compare_sources(&sorted[i - 1], &sorted[i], worker)) {
			rc = add_source(worker, (uint32_t)i, &worker->plan->rows[sorted[i]], error);
			if (!rc && trainer->source_count > 1)
				find_follower(worker, trainer->source_count - 2,
					      trainer->source_count - 1);
		}
		row->source = (uint32_t)trainer->source_count - 1;
		source = &trainer->sources[row->source];
		source->row_count++;
		source->slots |= row->how == HOW_REPLICA && !source->follows && !worker->full;
		if (!rc && row->how == HOW_DIRECT &&
		    (!make_plain(&source->pack.make) || source->pack.from != source->pack.to ||
		     (source->pack.runs.rows > 1 &&
		      source->pack.runs.stride_bytes != source->pack.runs.row_bytes)))
			rc = bad_row(worker, sorted[i], "it cannot go out as it lies", error);
	}
	return rc;
}

/* A tensor's rows are those that read it, also as somebody's scales. */
static int group_by_tensor(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	size_t tensors = worker->holding.tensor_count, entries = 0;
	uint32_t *first = memory_zalloc(tensors + 2, sizeof(*first));

	for (size_t i = 0; i < trainer->row_count; i++)
		entries += worker->plan->rows[i].make.from_rows ? 2 : 1;
	trainer->tensor_first = first;
	trainer->tensor_rows = memory_zalloc(entries, sizeof(*trainer->tensor_rows));
	trainer->given = memory_zalloc(tensors, sizeof(*trainer->given));
	trainer->direct = memory_zalloc(tensors, sizeof(*trainer->direct));
	if (!first || !trainer->tensor_rows || !trainer->given || !trainer->direct)
		return memory_error(error, "preparing updates", tensors * sizeof(*first));
	/* counting sort; first[t + 1] walks from the start to the end of tensor t's rows */
	for (size_t i = 0; i < trainer->row_count; i++) {
		const struct plan_row *row = &worker->plan->rows[i];

		first[row->tensor + 2]++;
		if (row->make.from_rows)
			first[row->scales + 2]++;
	}
	for (size_t t = 1; t < tensors + 2; t++)
		first[t] += first[t - 1];
	for (size_t i = 0; i < trainer->row_count; i++) {
		const struct plan_row *row = &worker->plan->rows[i];

		trainer->tensor_rows[first[row->tensor + 1]++] = (uint32_t)i;
		if (row->make.from_rows)
			trainer->tensor_rows[first[row->scales + 1]++] = (uint32_t)i;
		trainer->direct[row->tensor] |= row->how == HOW_DIRECT;
	}
	return 0;
}

/* ---- parts, and where they are packed ---- */

/* A quarter of the ring is what one part may take, or one grain where that is more. */
static int cut_source(const struct weft_worker *worker, struct source *source, uint64_t ring,
		      struct error *error)
{
	const struct pack *pack = &source->pack;
	uint64_t grain = pack->grain_bytes > RING_ALIGN
				 ? pack->grain_bytes
				 : RING_ALIGN / pack->grain_bytes * pack->grain_bytes;

	source->part_bytes = pack->block_bytes;
	if (source->slots && source->part_bytes > ring / 4) {
		source->part_bytes = ring / 4 < grain ? grain : ring / 4 / grain * grain;
		if (source->part_bytes > ring && pack->bytes > ring)
			return error_set(error, ERROR_CONFIG,
					 "a ring of %llu bytes has no room for a row of blocks of "
					 "tensor %s, %llu bytes; raise ring_bytes (--ring-bytes)",
					 (unsigned long long)ring,
					 worker->holding.tensors[source->tensor].name,
					 (unsigned long long)grain);
	}
	source->sum_parts = !source->follows && (source->part_bytes == pack->block_bytes ||
						 pack->bytes <= source->part_bytes);
	source->parts = (uint32_t)((pack->bytes + source->part_bytes - 1) / source->part_bytes);
	return 0;
}

/* *bytes: that one update puts into the ring. */
static int cut_sources(struct weft_worker *worker, uint64_t ring, uint64_t *bytes,
		       struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t blocks = 0;
	int rc = 0;

	*bytes = 0;
	for (size_t s = 0; s < trainer->source_count && !rc; s++) {
		struct source *source = &trainer->sources[s];

		rc = cut_source(worker, source, ring, error);
		source->first_block = (uint32_t)blocks;
		blocks += source->parts;
		if (source->slots)
			*bytes += source->pack.bytes + (uint64_t)source->parts * RING_ALIGN;
		if (!rc && blocks >= UINT32_MAX)
			rc = error_set(error, ERROR_LIMIT,
				       "a ring of %llu bytes cuts this update "
				       "into too many blocks; raise ring_bytes",
				       (unsigned long long)ring);
	}
	if (rc)
		return rc;
	trainer->block_count = blocks;
	trainer->blocks = memory_zalloc(blocks, sizeof(*trainer->blocks));
	if (worker->sums)
		trainer->block_sums = memory_zalloc(blocks, sizeof(*trainer->block_sums));
	if (!trainer->blocks || (worker->sums && !trainer->block_sums))
		return memory_error(error, "preparing updates", blocks * sizeof(uint64_t));
	return 0;
}

/* Packed bytes go from there to a NIC, if there is one. */
static int find_node(const struct weft_worker *worker)
{
	uint32_t count;
	const struct transport_nic *nics = transport_domain_nics(worker->domain, &count);
	const struct transport_nic *nearest = NULL;
	int node = -1;

	for (uint32_t i = 0; i < count; i++)
		if (!nearest || nics[i].distance < nearest->distance)
			nearest = &nics[i];
	if (nearest)
		node = numa_node_of_nic(NULL, nearest->name);
	return node >= 0 ? node : numa_node_here(NULL);
}

static int allocate_near(struct weft_worker *worker, uint64_t bytes,
			 struct transport_region **region, struct error *error)
{
	int node = worker->trainer.node, rc;
	struct numa_policy before;

	numa_prefer(&before, node);
	rc = transport_region_allocate(worker->domain, bytes, region, error);
	numa_restore(&before);
	if (rc)
		return error_wrap(error, "CPU replica of %llu bytes", (unsigned long long)bytes);
	numa_place(transport_region_memory(*region), bytes, node);
	if (node >= 0)
		log_debug("%s: %llu bytes of the CPU replica on node %d", worker->self_name,
			  (unsigned long long)bytes, node);
	return 0;
}

/* No larger than what one update puts in, for all of it is taken from the host now; a ring cut
 * short by the limit has room for four blocks. */
static int open_ring(struct weft_worker *worker, uint64_t limit, uint64_t bytes,
		     struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc;

	if (!bytes)
		return 0;
	rc = allocate_near(worker, bytes < limit ? bytes : limit, &trainer->ring_region, error);
	return rc ? rc
		  : replica_open(&trainer->replica, transport_region_memory(trainer->ring_region),
				 transport_region_bytes(trainer->ring_region), trainer->block_count,
				 error);
}

static int open_full(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct full_place *places = memory_zalloc(trainer->source_count, sizeof(*places));
	int rc;

	if (!places)
		return memory_error(error, "laying out the CPU replica",
				    trainer->source_count * sizeof(*places));
	for (size_t s = 0; s < trainer->source_count; s++) {
		const struct plan_row *row =
			&worker->plan->rows[trainer->source_rows[trainer->sources[s].first_row]];

		places[s] = (struct full_place){
			.param = row->param, .offset = row->offset, .bytes = row->bytes};
	}
	rc = full_open(&trainer->full, places, trainer->source_count, error);
	if (rc || !trainer->full.bytes)
		return rc;
	return allocate_near(worker, trainer->full.bytes, &trainer->ring_region, error);
}

static int open_replica(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t limit = worker->ring_bytes < RING_BYTES_MIN ? RING_BYTES_MIN : worker->ring_bytes;
	uint64_t bytes;
	int rc;

	limit = limit / RING_ALIGN * RING_ALIGN; /* what is cut must fit the ring as it will be */
	rc = cut_sources(worker, limit, &bytes, error);
	trainer->node = find_node(worker);
	if (!rc && trainer->kept_bytes)
		rc = allocate_near(worker, trainer->kept_bytes, &trainer->kept_region, error);
	if (rc)
		return rc;
	if (trainer->kept_region)
		trainer->kept = transport_region_memory(trainer->kept_region);
	return worker->full ? open_full(worker, error) : open_ring(worker, limit, bytes, error);
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
	int rc = resolve_rows(worker, error);

	trainer->done = memory_zalloc(worker->peer_count, sizeof(*trainer->done));
	if (!rc && !trainer->done)
		rc = memory_error(error, "preparing updates", worker->peer_count * 8);
	if (!rc)
		rc = find_sources(worker, error);
	if (!rc)
		rc = group_by_tensor(worker, error);
	if (!rc)
		rc = open_replica(worker, error);
	if (!rc)
		rc = open_sums(worker, error);
	if (!rc)
		rc = jobs_start(worker, error);
	return rc;
}

void send_plan_close(struct weft_worker *worker)
{
	struct trainer *trainer = &worker->trainer;

	jobs_stop(worker);
	memory_free(trainer->rows);
	memory_free(trainer->targets);
	memory_free(trainer->sources);
	memory_free(trainer->source_rows);
	memory_free(trainer->tensor_first);
	memory_free(trainer->tensor_rows);
	memory_free(trainer->given);
	memory_free(trainer->direct);
	memory_free(trainer->blocks);
	memory_free(trainer->block_sums);
	memory_free(trainer->done);
	replica_close(&trainer->replica);
	full_close(&trainer->full);
	transport_region_close(&trainer->ring_region);
	transport_region_close(&trainer->kept_region);
	transport_region_close(&trainer->sums_region);
	memset(trainer, 0, offsetof(struct trainer, locks));
	trainer->node = -1;
}
