/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/core.h"

#include "base/array.h"
#include "base/assert.h"
#include <stdio.h>
#include <string.h>

static void action_fini(struct action *action)
{
	if (action->type == ACTION_SEND)
		message_fini(&action->message);
	memory_free(action->line);
	*action = (struct action){0};
}

struct action *action_push(struct actions *actions, int type)
{
	struct action *action = array_push(actions);

	if (!action) {
		actions->failed = true;
		action_fini(&actions->lost);
		action = &actions->lost;
	}
	action->type = type;
	return action;
}

char *action_string(struct actions *actions, const char *text)
{
	char *copy = memory_string(text);

	actions->failed |= !copy;
	return copy;
}

void action_log(struct actions *actions, bool warn, const char *format, ...)
{
	struct action *action = action_push(actions, ACTION_LOG);
	char line[ERROR_TEXT_BYTES + 256];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	action->warn = warn;
	action->line = action_string(actions, line);
}

void actions_clear(struct actions *actions)
{
	for (size_t i = 0; i < actions->count; i++)
		action_fini(&actions->items[i]);
	action_fini(&actions->lost);
	array_free(actions);
	actions->failed = false;
}

void patience_begin(struct patience *patience, uint64_t now_ms)
{
	*patience = (struct patience){.since_ms = now_ms};
}

enum patience_says patience_look(struct patience *patience, uint64_t now_ms, uint64_t limit_ms)
{
	uint64_t waited = now_ms - patience->since_ms;

	WEFT_ASSERT_OP(now_ms, >=, patience->since_ms);
	if (waited >= limit_ms)
		return PATIENCE_ENDS;
	if (patience->warned || waited < limit_ms / 4)
		return PATIENCE_WAITS;
	patience->warned = true;
	return PATIENCE_WARNS;
}

uint64_t patience_next_ms(const struct patience *patience, uint64_t limit_ms)
{
	return patience->since_ms + (patience->warned ? limit_ms : limit_ms / 4);
}

bool core_stood_still(uint64_t gap_ms, uint32_t heartbeat_ms, uint32_t lost_ms)
{
	return gap_ms > (uint64_t)heartbeat_ms + lost_ms / 2;
}

int core_check_job(const char *job, struct error *error)
{
	if (job && *job && strlen(job) < LIMIT_JOB_BYTES)
		return 0;
	return error_set(error, ERROR_CONFIG, "the job id '%.40s' is empty or longer than %d bytes",
			 job ? job : "", LIMIT_JOB_BYTES - 1);
}
