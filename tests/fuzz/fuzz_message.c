/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_message.c -- any bytes: a named error, or a message that encodes, decodes again, copies,
 * and encodes to the same bytes. A plan that is told by what differs from another one is a named
 * error then too, or a whole plan.
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

static void put_together(struct message *message)
{
	static char none[] = "";
	static struct plan_peer peers[] = {
		{.member = {ROLE_INFERENCE, 0}, .host = none, .transport = none, .pieces = 3},
		{.member = {ROLE_INFERENCE, 1}, .host = none, .transport = none, .pieces = 1}};
	static struct plan_row rows[] = {{.bytes = 4},
					 {.ordinal = 1, .bytes = 4},
					 {.peer = 1, .bytes = 4},
					 {.ordinal = 2, .bytes = 4}};
	struct message_plan before = {
		.peers = peers, .peer_count = 2, .rows = rows, .row_count = 4};
	struct error error = {0};

	if (message->type != MESSAGE_PLAN || !message->u.plan.rows_of)
		return;
	before.attempt = message->u.plan.rows_of;
	if (message_plan_complete(&message->u.plan, &before, &error))
		NEED(error_known((int)error.code) && error.text[0]);
	else
		NEED(!message->u.plan.rows_of && !message->u.plan.run_count);
}

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
	put_together(&copy);
	message_fini(&message);
	message_fini(&copy);
	return 0;
}
