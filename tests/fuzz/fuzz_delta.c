/* SPDX-License-Identifier: Apache-2.0
 *
 * What a peer says differs: of what is taken, applying it touches the bytes that it says it is of and no other.
 */
#include "pack/delta.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned element;
	uint64_t span;

	if (!size)
		return 0;
	element = 1u << data[0] % 3;
	span = delta_span(data + 1, size - 1, element);
	if (span && span <= 1 << 20) {
		unsigned char *memory = calloc(span, 1);
		uint64_t all = 0;
		uint32_t length;

		if (!memory)
			return 0;
		delta_apply(data + 1, size - 1, element, memory);
		free(memory);
		/* and chunk by chunk, as into runs: what is not the same takes no more than a chunk */
		for (size_t at = 1; at < size; at += length) {
			unsigned char chunk[DELTA_CHUNK_BYTES] = {0};

			all += delta_first(data + at, &length);
			if (!delta_is_same(data + at))
				delta_apply(data + at, length, element, chunk);
		}
		if (all != span)
			abort();
	}
	return 0;
}
