/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device/scatter.h"

#include "base/assert.h"
#include "base/memory.h"
#include "pack/cuda/launch.h"

#define PAGE 4096u

struct scatter {
	const struct device *device;
	struct pack_cuda_part *parts; /* pinned */
	uint32_t count, room;
	cuda_event done;
	bool launched;
};

static int open_table(struct scatter *scatter, struct error *error)
{
	uint64_t bytes = (scatter->room * sizeof(*scatter->parts) + PAGE - 1) / PAGE * PAGE;
	struct pack_cuda_part *parts = memory_aligned(PAGE, bytes);
	int rc;

	if (!parts)
		return memory_error(error, "preparing what lands", bytes);
	rc = device_pin(scatter->device, parts, bytes, error);
	if (rc)
		memory_free(parts);
	else
		scatter->parts = parts;
	return rc;
}

int scatter_open(struct scatter **out, const struct device *device, uint32_t room,
		 struct error *error)
{
	struct scatter *scatter = *out = memory_zalloc(1, sizeof(*scatter));
	int rc;

	if (!scatter)
		return memory_error(error, "preparing what lands", sizeof(*scatter));
	scatter->device = device;
	scatter->room = room;
	rc = open_table(scatter, error);
	return rc ? rc : device_event(device, &scatter->done, error);
}

void scatter_close(struct scatter **where)
{
	struct scatter *scatter = *where;

	*where = NULL;
	if (!scatter)
		return;
	if (device_quiet(scatter->device)) {
		device_unmark(scatter->device, scatter->done);
		if (scatter->parts)
			device_unpin(scatter->device, scatter->parts);
		memory_free(scatter->parts);
	}
	memory_free(scatter);
}

cuda_event scatter_last(const struct scatter *scatter)
{
	return scatter->launched ? scatter->done : NULL;
}

void scatter_begin(struct scatter *scatter)
{
	scatter->count = 0;
	scatter->launched = false;
}

void scatter_add(struct scatter *scatter, uint64_t piece, const struct spread *spread, uint64_t at,
		 uint64_t from, uint64_t bytes)
{
	struct pack_cuda_part *part = &scatter->parts[scatter->count++];

	WEFT_ASSERT_OP(scatter->count, <=, scatter->room);
	pack_cuda_copy_init(part, from, bytes, piece + (spread->run_bytes ? 0 : at));
	if (spread->run_bytes)
		pack_cuda_part_spread(part, spread, at);
}

int scatter_run(struct scatter *scatter, struct error *error)
{
	struct pack_cuda_launch launch;
	uint32_t launched;
	int rc;

	if (!scatter->count)
		return 0;
	pack_cuda_table_finish(scatter->parts, scatter->count);
	launch = pack_cuda_launch_of(scatter->parts, 0, scatter->count,
				     (uint64_t)(uintptr_t)scatter->parts, 0, 0);
	/* whatever fails from here on: a kernel may read the table */
	scatter->launched = true;
	rc = device_launch(scatter->device, &launch, &launched, error);
	return rc ? rc : device_record(scatter->device, scatter->done, DEVICE_KERNELS, error);
}
