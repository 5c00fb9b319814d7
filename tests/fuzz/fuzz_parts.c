/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of messages in parts, in any order and of any kind: memory stays within the budget, what is whole
 * has as many bytes as were carried, and nothing is left behind. The input says each frame's head and how
 * much it carries; the bytes themselves do not matter.
 */
#include "wire/parts.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned char frame[PART_BYTES] = {0xc1};
	struct parts_budget budget = {.most = 1 << 20};
	struct parts_in in[2] = {0};
	struct error error;
	uint64_t carried[2] = {0};

	for (; size >= 15; data += 15, size -= 15) {
		size_t who = data[14] & 1;
		size_t bytes = PART_HEAD_BYTES + (data[12] | (size_t)data[13] << 8) %
							 (PART_BYTES - PART_HEAD_BYTES + 1);
		int rc;

		memcpy(frame + 1, data, 12);
		must(parts_is(frame, bytes));
		rc = parts_take(&in[who], &budget, frame, bytes, 1 << 19, &error);
		must(rc == 0 || rc == 1 || rc == -ERROR_MESSAGE || rc == -ERROR_LIMIT);
		must(budget.used <= budget.most && in[who].have <= in[who].room);
		carried[who] = rc < 0 ? 0 : carried[who] + bytes;
		must(in[who].have <= carried[who]);
		if (rc == 1) {
			must(in[who].have == in[who].total && in[who].total <= 1 << 19);
			parts_drop(&in[who], &budget);
		}
	}
	parts_drop(&in[0], &budget);
	parts_drop(&in[1], &budget);
	must(budget.used == 0);
	return 0;
}
