/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update/copy_sums.h"

#include "base/memory.h"
#include "pack/pack.h"
#include "worker/device/sums.h"

static struct sums_piece whole(const struct epoch *epoch, size_t id, uint32_t copy, bool landed)
{
	const struct params *params = epoch->options.params;
	uint64_t bytes = epoch->options.layout->params[id].bytes;

	return (struct sums_piece){.memory = landed ? params_landed(params, copy, id)
						    : params_memory(params, copy, id),
				   .bytes = bytes,
				   .block_bytes =
					   bytes < PACK_BLOCK_BYTES ? bytes : PACK_BLOCK_BYTES};
}

/* It is for once: nothing is kept on the device. */
static int sum_on_device(const struct device *device, const struct sums_piece *pieces, size_t count,
			 uint64_t *out, struct error *error)
{
	struct sums sums;
	int rc = sums_open(&sums, device, pieces, count, error);

	if (!rc)
		rc = sums_run(&sums, 0, count, error);
	for (size_t i = 0; i < count && !rc; i++)
		out[i] = sums_of(&sums, i);
	sums_close(&sums);
	return rc;
}

int copy_sums(const struct epoch *epoch, uint32_t copy, bool landed, size_t first, size_t count,
	      uint64_t *sums, struct error *error)
{
	const struct params *params = epoch->options.params;
	bool on_device = params_on_device(params);
	struct sums_piece *pieces = memory_zalloc(count + 1, sizeof(*pieces));
	int rc = 0;

	if (!pieces)
		return memory_error(error, "checksums of parameters", count * sizeof(*pieces));
	for (size_t i = 0; i < count; i++) {
		pieces[i] = whole(epoch, first + i, copy, landed);
		if (!on_device)
			sums[first + i] = pack_piece_sum(pieces[i].memory, pieces[i].bytes,
							 pieces[i].block_bytes);
	}
	if (on_device && count)
		rc = sum_on_device(params->device, pieces, count, sums + first, error);
	memory_free(pieces);
	return rc;
}
