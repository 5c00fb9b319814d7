/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tool.c -- any bytes of another tool: a named error, or a message that encodes to bytes
 * which decode again, to the same bytes.
 */
#include "base/memory.h"
#include "wire/tool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition)                                                       \
	do {                                                                  \
		if (!(condition)) {                                           \
			fprintf(stderr, "%s (%s)\n", #condition, error.text); \
			abort();                                              \
		}                                                             \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tool_message message, again;
	struct error error = {0};
	unsigned char *first, *second;
	size_t first_length, second_length;

	if (tool_decode(&message, data, size, &error)) {
		NEED(error_known((int)error.code) && error.text[0]);
		return 0;
	}
	NEED(tool_encode(&message, &first, &first_length, &error) == 0);
	NEED(tool_decode(&again, first, first_length, &error) == 0);
	NEED(tool_encode(&again, &second, &second_length, &error) == 0);
	NEED(first_length == second_length && memcmp(first, second, first_length) == 0);
	memory_free(first);
	memory_free(second);
	tool_fini(&message);
	tool_fini(&again);
	return 0;
}
