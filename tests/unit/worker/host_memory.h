/* SPDX-License-Identifier: Apache-2.0
 *
 * host_memory.h -- memory of this process as weft.h takes it, for tests that have pointers.
 */
#ifndef TESTS_UNIT_WORKER_HOST_MEMORY_H
#define TESTS_UNIT_WORKER_HOST_MEMORY_H

#include "worker/api/weft.h"

#include <stdlib.h>

#define HOST(at, length)                                                                           \
	(&(weft_memory){.size = sizeof(weft_memory),                                               \
			.kind = WEFT_MEMORY_HOST,                                                  \
			.pointer = (void *)(uintptr_t)(at),                                        \
			.bytes = (length)})

/* weft_update_write_all of data[id], each as long as it was declared. */
static inline int host_write_all(weft_worker *worker, const void *const *data, weft_error *error)
{
	weft_tensor_view view = WEFT_TENSOR_VIEW_INIT;
	weft_memory *memory = NULL;
	uint32_t count = 0;
	int rc;

	while (!weft_tensor_at(worker, count, &view, NULL))
		count++;
	if (data)
		memory = calloc(count + 1u, sizeof(*memory));
	for (uint32_t id = 0; memory && !weft_tensor_at(worker, id, &view, NULL); id++)
		memory[id] = weft_host_memory(data[id], view.bytes);
	rc = weft_update_write_all(worker, memory, count, sizeof(*memory), error);
	free(memory);
	return rc;
}

#endif
