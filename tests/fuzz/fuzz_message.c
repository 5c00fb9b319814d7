/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_message.c -- any bytes: a named error, or a message that encodes, decodes again, copies,
 * and encodes to the same bytes.
 */
#include "base/memory.h"
#include "wire/message_text.h"
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
	struct message message, again, copy;
	struct error error = {0};
	unsigned char *first, *second;
	size_t first_length, second_length;
	char line[MESSAGE_TEXT_BYTES];

	if (message_decode(&message, data, size, &error)) {
		NEED(error_known((int)error.code) && error.text[0]);
		return 0;
	}
	message_text(&message, line, sizeof(line));
	NEED(!strchr(line, '\n'));
	NEED(message_encode(&message, &first, &first_length, &error) == 0);
	NEED(message_decode(&again, first, first_length, &error) == 0);
	NEED(message_copy(&copy, &again, &error) == 0);
	message_fini(&again);
	NEED(message_encode(&copy, &second, &second_length, &error) == 0);
	NEED(first_length == second_length && memcmp(first, second, first_length) == 0);
	memory_free(first);
	memory_free(second);
	message_fini(&message);
	message_fini(&copy);
	return 0;
}
