/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device/batch.h"

#include "base/compare.h"
#include "base/memory.h"
#include "base/pool.h"
#include <string.h>

#define PAGE	      4096u
#define SCRATCH_BYTES (UINT64_C(64) << 20) /* or one block, where that is more */
#define SUM_ALIGN     256u

/* Parts that wait for tensors. */
struct lot {
	struct device_table table;
	struct pack_cuda_part *parts;
	bool *launched;
};

struct batch {
	const struct device *device;
	struct pool pool;
	size_t tensors;
	uint32_t groups;
	uint32_t *group_first; /* of its parts; one more than groups */
	struct lot targets;
	/* sums: parts into scratch, the same blocks' sums, and where scratch begins again */
	struct lot blocks;
	struct device_table sums;
	uint32_t *turn;
	uint64_t scratch, sums_at, block_count;
	/* by tensor */
	uint64_t *bases; /* pinned; the device's copy is at bases_at */
	uint64_t bases_at;
	bool *here;
	uint32_t *low,
		*high; /* values that need it as their scales lie in between; low > high: none */
};

/* ---- building ---- */

static int no_memory(const struct batch *batch, struct error *error)
{
	return memory_error(error, "preparing a batch", batch->tensors * sizeof(*batch->bases));
}

static void note_scales(struct batch *batch, uint32_t tensor, uint32_t scales)
{
	if (scales == PACK_CUDA_NO_TENSOR)
		return;
	if (tensor < batch->low[scales])
		batch->low[scales] = tensor;
	if (tensor > batch->high[scales])
		batch->high[scales] = tensor;
}

static int open_lot(struct batch *batch, struct lot *lot, size_t count, struct error *error)
{
	lot->launched = pool_array(&batch->pool, count, sizeof(*lot->launched));
	if (!lot->launched)
		return no_memory(batch, error);
	return device_table_open(&lot->table, batch->device, lot->parts, count, error);
}

static int open_targets(struct batch *batch, const struct batch_options *options,
			struct error *error)
{
	struct pack_cuda_part *parts =
		pool_array(&batch->pool, options->piece_count, sizeof(*parts));
	uint32_t count = 0, group = 0;

	if (!parts)
		return no_memory(batch, error);
	for (size_t i = 0; i < options->piece_count; i++) {
		const struct batch_piece *piece = &options->pieces[i];
		struct pack_cuda_part *part = &parts[count];

		while (group < piece->group)
			batch->group_first[++group] = count;
		pack_cuda_part_init(part, piece->pack, piece->tensor, piece->scales, 0,
				    piece->pack->bytes, piece->target);
		if (piece->spread.run_bytes)
			pack_cuda_part_spread(part, &piece->spread, 0);
		note_scales(batch, piece->tensor, part->scales);
		if (piece->follows)
			pack_cuda_part_merge(part - 1, part);
		else
			count++;
	}
	while (group < batch->groups)
		batch->group_first[++group] = count;
	batch->targets.parts = parts;
	return open_lot(batch, &batch->targets, count, error);
}

/* ---- sums ---- */

static uint64_t scratch_bytes(const struct batch_options *options)
{
	uint64_t bytes = SCRATCH_BYTES;

	for (size_t i = 0; i < options->summed_count; i++) {
		uint64_t block = options->summed[i].pack->block_bytes;

		bytes = block > bytes ? block : bytes;
	}
	return bytes + SUM_ALIGN;
}

static void add_blocks(struct batch *batch, const struct batch_summed *summed,
		       struct pack_cuda_part *sums, uint64_t bytes, uint64_t *used, uint32_t *count)
{
	const struct pack *pack = summed->pack;
	uint32_t number = summed->first_block;

	for (uint64_t from = 0; from < pack->bytes; from += pack->block_bytes, ++*count) {
		uint64_t left = pack->bytes - from;
		uint64_t block = left < pack->block_bytes ? left : pack->block_bytes;
		bool full = *used + block > bytes;

		batch->turn[*count] = *count ? batch->turn[*count - 1] + full : 0;
		*used = full ? 0 : *used;
		pack_cuda_part_init(&batch->blocks.parts[*count], pack, summed->tensor,
				    summed->scales, from, block, batch->scratch + *used);
		pack_cuda_sum_init(&sums[*count], batch->scratch + *used, block, number++);
		*used += (block + SUM_ALIGN - 1) / SUM_ALIGN * SUM_ALIGN;
	}
}

static int open_sums(struct batch *batch, const struct batch_options *options, struct error *error)
{
	struct pack_cuda_part *sums;
	uint64_t bytes = scratch_bytes(options), used = 0;
	uint32_t count = 0;
	int rc;

	if (!options->summed_count)
		return 0;
	batch->block_count = options->blocks;
	sums = pool_array(&batch->pool, options->blocks, sizeof(*sums));
	batch->blocks.parts =
		pool_array(&batch->pool, options->blocks, sizeof(*batch->blocks.parts));
	batch->turn = pool_array(&batch->pool, options->blocks, sizeof(*batch->turn));
	if (!pool_ok(&batch->pool))
		return no_memory(batch, error);
	rc = device_allocate(batch->device, bytes, &batch->scratch, error);
	if (!rc)
		rc = device_allocate(batch->device, options->blocks * sizeof(uint64_t),
				     &batch->sums_at, error);
	if (rc)
		return error_wrap(error, "scratch memory for checksums");
	for (size_t i = 0; i < options->summed_count; i++) {
		note_scales(batch, options->summed[i].tensor, options->summed[i].scales);
		add_blocks(batch, &options->summed[i], sums, bytes, &used, &count);
	}
	rc = open_lot(batch, &batch->blocks, count, error);
	return rc ? rc : device_table_open(&batch->sums, batch->device, sums, count, error);
}

/* ---- life ---- */

static uint64_t bases_bytes(const struct batch *batch)
{
	return (batch->tensors * sizeof(*batch->bases) + PAGE) / PAGE * PAGE;
}

static int open_bases(struct batch *batch, struct error *error)
{
	uint64_t bytes = bases_bytes(batch);
	uint64_t *bases = memory_aligned(PAGE, bytes);
	int rc;

	if (!bases)
		return no_memory(batch, error);
	memset(bases, 0, bytes);
	rc = device_pin(batch->device, bases, bytes, error);
	if (rc) {
		memory_free(bases);
		return rc;
	}
	batch->bases = bases;
	return device_allocate(batch->device, bytes, &batch->bases_at, error);
}

int batch_open(struct batch **out, const struct batch_options *options, struct error *error)
{
	struct batch *batch = *out = memory_zalloc(1, sizeof(*batch));
	int rc;

	if (!batch)
		return memory_error(error, "preparing a batch", sizeof(*batch));
	batch->device = options->device;
	batch->tensors = options->tensors;
	batch->groups = options->groups;
	batch->group_first =
		pool_array(&batch->pool, options->groups + 1, sizeof(*batch->group_first));
	batch->here = pool_array(&batch->pool, options->tensors, sizeof(*batch->here));
	batch->low = pool_array(&batch->pool, options->tensors, sizeof(*batch->low));
	batch->high = pool_array(&batch->pool, options->tensors, sizeof(*batch->high));
	if (!pool_ok(&batch->pool))
		return no_memory(batch, error);
	memset(batch->low, 0xff, options->tensors * sizeof(*batch->low));
	rc = open_bases(batch, error);
	if (!rc)
		rc = open_targets(batch, options, error);
	return rc ? rc : open_sums(batch, options, error);
}

void batch_close(struct batch **where)
{
	struct batch *batch = *where;

	*where = NULL;
	if (!batch || !device_quiet(batch->device))
		return;
	device_table_close(&batch->targets.table, batch->device);
	device_table_close(&batch->blocks.table, batch->device);
	device_table_close(&batch->sums, batch->device);
	device_release(batch->device, batch->scratch);
	device_release(batch->device, batch->sums_at);
	device_release(batch->device, batch->bases_at);
	if (batch->bases)
		device_unpin(batch->device, batch->bases);
	memory_free(batch->bases);
	pool_free(&batch->pool);
	memory_free(batch);
}

/* ---- a version ---- */

void batch_begin(struct batch *batch)
{
	memset(batch->here, 0, batch->tensors * sizeof(*batch->here));
	memset(batch->targets.launched, 0, batch->targets.table.count);
	if (batch->blocks.launched)
		memset(batch->blocks.launched, 0, batch->blocks.table.count);
}

static bool due(const struct batch *batch, const struct lot *lot, uint32_t i)
{
	const struct pack_cuda_part *part = &lot->parts[i];

	return !lot->launched[i] && batch->here[part->tensor] &&
	       (part->scales == PACK_CUDA_NO_TENSOR || batch->here[part->scales]);
}

static int launch(struct batch *batch, struct lot *lot, uint32_t first, uint32_t end,
		  struct error *error)
{
	int rc = device_table_launch(&lot->table, batch->device, first, end - first,
				     batch->bases_at, 0, error);

	if (!rc && lot == &batch->blocks)
		rc = device_table_launch(&batch->sums, batch->device, first, end - first,
					 batch->bases_at, batch->sums_at, error);
	if (!rc)
		memset(lot->launched + first, true, end - first);
	return rc;
}

/* Runs of what is due among [first, end). What shares scratch with what came before waits for its sum. */
static int launch_due(struct batch *batch, struct lot *lot, uint32_t first, uint32_t end,
		      struct error *error)
{
	int rc = 0;

	while (first < end && !rc) {
		uint32_t last = first;

		while (last < end && due(batch, lot, last) &&
		       (lot != &batch->blocks || batch->turn[last] == batch->turn[first]))
			last++;
		if (last > first)
			rc = launch(batch, lot, first, last, error);
		first = last > first ? last : first + 1;
	}
	return rc;
}

/* Parts of tensors [low, high] among [first, end), which are by tensor. */
static int launch_tensors(struct batch *batch, struct lot *lot, uint32_t first, uint32_t end,
			  uint32_t low, uint32_t high, struct error *error)
{
	const struct pack_cuda_part *parts = lot->parts;
	size_t from = search_first(at, first, end, parts[at].tensor >= low);
	size_t to = search_first(at, from, end, parts[at].tensor > high);

	return launch_due(batch, lot, (uint32_t)from, (uint32_t)to, error);
}

/* Whole runs of ids, and of none but these: what another call adds meanwhile is read by the device when it likes. */
static int upload_bases(struct batch *batch, const uint32_t *ids, size_t count, struct error *error)
{
	int rc = 0;

	for (size_t i = 0, next; i < count && !rc; i = next) {
		next = i + 1;
		while (next < count && ids[next] == ids[next - 1] + 1)
			next++;
		rc = device_queue_copy(batch->device, DEVICE_KERNELS,
				       batch->bases_at + ids[i] * sizeof(uint64_t),
				       (uint64_t)(uintptr_t)&batch->bases[ids[i]],
				       (next - i) * sizeof(uint64_t), error);
	}
	return rc;
}

int batch_write(struct batch *batch, const void *const *data, const uint32_t *ids, size_t count,
		const uint32_t *groups, size_t group_count, struct error *error)
{
	uint32_t low = UINT32_MAX, high = 0;
	int rc;

	for (size_t i = 0; i < count; i++) {
		uint32_t id = ids[i];

		batch->bases[id] = (uint64_t)(uintptr_t)data[id];
		batch->here[id] = true;
		low = id < low ? id : low;
		high = id > high ? id : high;
		if (batch->low[id] > batch->high[id])
			continue;
		low = batch->low[id] < low ? batch->low[id] : low;
		high = batch->high[id] > high ? batch->high[id] : high;
	}
	if (!count)
		return 0;
	rc = upload_bases(batch, ids, count, error);
	for (size_t g = 0; g < group_count && !rc; g++)
		rc = launch_tensors(batch, &batch->targets, batch->group_first[groups[g]],
				    batch->group_first[groups[g] + 1], low, high, error);
	if (!rc && batch->block_count)
		rc = launch_tensors(batch, &batch->blocks, 0, batch->blocks.table.count, low, high,
				    error);
	return rc;
}

int batch_sums(struct batch *batch, uint64_t *sums, struct error *error)
{
	if (!batch->block_count)
		return 0;
	return device_copy(batch->device, (uint64_t)(uintptr_t)sums, batch->sums_at,
			   batch->block_count * sizeof(*sums), error);
}

uint64_t batch_launches(const struct batch *batch)
{
	return batch->targets.table.launches + batch->blocks.table.launches + batch->sums.launches;
}
