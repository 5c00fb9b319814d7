/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device/sums.h"

#include "base/memory.h"

static uint64_t blocks_of(const struct sums_piece *piece)
{
	return (piece->bytes + piece->block_bytes - 1) / piece->block_bytes;
}

static int fill(struct sums *sums, const struct sums_piece *pieces, size_t blocks,
		struct error *error)
{
	struct pack_cuda_part *parts = pool_array(&sums->pool, blocks, sizeof(*parts));
	uint32_t number = 0;

	sums->blocks = pool_array(&sums->pool, blocks, sizeof(*sums->blocks));
	sums->first = pool_array(&sums->pool, sums->count + 1, sizeof(*sums->first));
	if (!pool_ok(&sums->pool))
		return memory_error(error, "preparing checksums", blocks * sizeof(*parts));
	for (size_t i = 0; i < sums->count; i++) {
		const struct sums_piece *piece = &pieces[i];
		uint64_t at = (uint64_t)(uintptr_t)piece->memory;

		sums->first[i] = number;
		for (uint64_t from = 0; from < piece->bytes; from += piece->block_bytes, number++) {
			uint64_t left = piece->bytes - from;
			bool spread = piece->spread.run_bytes != 0;

			pack_cuda_sum_init(&parts[number], spread ? at : at + from,
					   left < piece->block_bytes ? left : piece->block_bytes,
					   number);
			if (spread)
				pack_cuda_part_spread(&parts[number], &piece->spread, from);
		}
	}
	sums->first[sums->count] = number;
	return device_table_open(&sums->table, sums->device, parts, number, error);
}

int sums_open(struct sums *sums, const struct device *device, const struct sums_piece *pieces,
	      size_t count, struct error *error)
{
	uint64_t blocks = 0;
	int rc;

	*sums = (struct sums){.device = device, .count = count};
	for (size_t i = 0; i < count; i++)
		blocks += blocks_of(&pieces[i]);
	if (blocks >= UINT32_MAX)
		return error_set(error, ERROR_LIMIT, "%llu blocks of checksums",
				 (unsigned long long)blocks);
	rc = fill(sums, pieces, blocks, error);
	if (rc || !blocks)
		return rc;
	return device_allocate(device, blocks * sizeof(*sums->blocks), &sums->at, error);
}

void sums_close(struct sums *sums)
{
	if (!sums->device)
		return;
	device_table_close(&sums->table, sums->device);
	device_release(sums->device, sums->at);
	pool_free(&sums->pool);
	*sums = (struct sums){.device = NULL};
}

int sums_run(struct sums *sums, size_t first, size_t count, struct error *error)
{
	uint32_t from = sums->first[first], blocks = sums->first[first + count] - from;
	int rc;

	if (!blocks)
		return 0;
	rc = device_table_launch(&sums->table, sums->device, from, blocks, 0, sums->at, error);
	if (rc)
		return rc;
	return device_copy(sums->device, (uint64_t)(uintptr_t)(sums->blocks + from),
			   sums->at + from * sizeof(*sums->blocks), blocks * sizeof(*sums->blocks),
			   error);
}

uint64_t sums_of(const struct sums *sums, size_t piece)
{
	return pack_sum(&sums->blocks[sums->first[piece]],
			sums->first[piece + 1] - sums->first[piece]);
}
