/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_format.h"

#include "base/json_write.h"
#include "base/plain.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PLAIN_BYTES 3072 /* a message */
#define HEAD_BYTES  768	 /* all of a JSON line but its message, at most */
#define JOB_BYTES   96	 /* of the job's name, as a line shows it */

const char *const log_level_names[4] = {"error", "warn", "info", "debug"};

const char *log_role(const char *program, const char *who, int *rank)
{
	char *end = NULL;
	long number = who[0] == 't' || who[0] == 'i' ? strtol(who + 1, &end, 10) : -1;

	*rank = -1;
	if (end && end > who + 1 && !*end && number >= 0) {
		*rank = (int)number;
		return who[0] == 't' ? "trainer" : "inference";
	}
	return strcmp(program, "weft-controller") ? "" : "controller";
}

int log_code_in(const char *message)
{
	const char *at = strstr(message, "WEFT-E");
	int code = 0;

	for (int i = 0; at && i < 3; i++) {
		if (at[6 + i] < '0' || at[6 + i] > '9')
			return 0;
		code = code * 10 + at[6 + i] - '0';
	}
	return code;
}

static void stamp(uint64_t ms, char out[32])
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm utc;
	size_t n;

	gmtime_r(&seconds, &utc);
	n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(out + n, 32 - n, ".%03uZ", (unsigned)(ms % 1000));
}

/* "..." for what is more than `room` bytes once it stands in JSON, which doubles quotes and backslashes. */
static const char *fitting(const char *message, size_t room, char out[PLAIN_BYTES])
{
	size_t bytes = 0;

	for (size_t i = 0; message[i] && room; i++) {
		size_t cost = message[i] == '"' || message[i] == '\\' ? 2 : 1;

		room = room > cost ? room - cost : 0;
		bytes = i + 1;
	}
	if (!message[bytes])
		return message;
	plain_put(out, bytes < PLAIN_BYTES ? bytes : PLAIN_BYTES, message);
	return out;
}

size_t log_format_json(const struct log_record *record, char out[LOG_LINE_BYTES])
{
	/* of a size that nothing outgrows, so that a line needs no memory of the heap */
	struct text text = {.data = out, .capacity = LOG_LINE_BYTES};
	const char *role;
	char when[32], cut[PLAIN_BYTES], job[JOB_BYTES], code[16];
	struct json json;
	int rank;

	stamp(record->time_ms, when);
	role = log_role(record->program, record->who, &rank);
	plain_put(job, sizeof(job), record->job);
	snprintf(code, sizeof(code), "WEFT-E%d", record->code);
	json_to_text(&json, &text);
	json_put_object(&json);
	json_put_key_string(&json, "time", when);
	json_put_key_string(&json, "level", log_level_names[record->level]);
	json_put_key_string(&json, "program", record->program);
	json_put_key_string(&json, "host", record->host);
	json_put_key_u64(&json, "pid", (uint64_t)record->pid);
	json_put_key_string(&json, "who", record->who);
	if (role[0])
		json_put_key_string(&json, "role", role);
	if (rank >= 0)
		json_put_key_u64(&json, "rank", (uint64_t)rank);
	if (job[0])
		json_put_key_string(&json, "job", job);
	if (record->code)
		json_put_key_string(&json, "code", code);
	if (record->repeats)
		json_put_key_u64(&json, "repeats", record->repeats);
	json_put_key_string(&json, "message",
			    fitting(record->message, LOG_LINE_BYTES - HEAD_BYTES, cut));
	json_put_line_end(&json);
	return text.bytes;
}

size_t log_format_text(const struct log_record *record, char out[LOG_LINE_BYTES])
{
	char when[32];

	stamp(record->time_ms, when);
	return (size_t)snprintf(out, LOG_LINE_BYTES, "%s %c %s[%s:%d%s%s] %s\n", when,
				"EWID"[record->level], record -> program, record -> host,
				record -> pid, record -> who[0] ? " " : "", record->who,
				record->message);
}
