/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h -- parts that a device packs (pack/cuda/launch.h), uploaded once and launched by ranges:
 *
 *   parts   0 1 2 3 | 4 5 | 6 7 8        on the host and, the same, on the device
 *                     └─ launch(4, 2): one kernel
 *
 * Threads: one at a time.
 */
#ifndef WORKER_DEVICE_TABLE_H
#define WORKER_DEVICE_TABLE_H

#include "pack/cuda/launch.h"
#include "worker/device/device.h"

struct device_table {
	struct pack_cuda_part *parts; /* not owned */
	uint32_t count;
	uint64_t at;                  /* of its copy */
	uint64_t launches;            /* counted */
};

/* Numbers the parts' tiles and uploads them. Whatever it returns, device_table_close. */
int device_table_open(struct device_table *table, const struct device *device, struct pack_cuda_part *parts, size_t count,
	       struct error *error);
/* What was launched from it is complete. */
void device_table_close(struct device_table *table, const struct device *device);
/* Queues parts [first, first + count) on the device's stream, as one kernel. */
int device_table_launch(struct device_table *table, const struct device *device, uint32_t first, uint32_t count, uint64_t bases,
		 uint64_t sums, struct error *error);

#endif
