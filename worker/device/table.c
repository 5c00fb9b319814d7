/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device/table.h"

int device_table_open(struct device_table *table, const struct device *device,
		      struct pack_cuda_part *parts, size_t count, struct error *error)
{
	uint64_t bytes = count * sizeof(*parts);
	int rc;

	*table = (struct device_table){.parts = parts};
	if (!count)
		return 0;
	if (count >= UINT32_MAX)
		return error_set(error, ERROR_LIMIT, "%zu parts for one launch table", count);
	pack_cuda_table_finish(parts, count);
	rc = device_allocate(device, bytes, &table->at, error);
	if (rc)
		return error_wrap(error, "the table of %zu pieces", count);
	table->count = (uint32_t)count;
	return device_copy(device, table->at, (uint64_t)(uintptr_t)parts, bytes, error);
}

void device_table_close(struct device_table *table, const struct device *device)
{
	device_release(device, table->at);
	*table = (struct device_table){.parts = NULL};
}

int device_table_launch(struct device_table *table, const struct device *device, uint32_t first,
			uint32_t count, uint64_t bases, uint64_t sums, struct error *error)
{
	struct pack_cuda_launch launch =
		pack_cuda_launch_of(table->parts, first, count, table->at, bases, sums);
	uint32_t launched;
	int rc = device_launch(device, &launch, &launched, error);

	table->launches += launched;
	return rc;
}
