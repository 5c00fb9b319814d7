/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c -- lines of the library for the host's own log.
 */
#include "worker/api/worker.h"

#include "base/array.h"
#include "base/log.h"
#include "base/log_format.h"
#include "worker/api/weft_play.h"

#include <stdio.h>

/* The host's, while it has one; changed only while no line is being made (log_set_sink). */
struct host_sink {
	weft_log_sink *call;
	void *context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct host_sink sinks[2]; /* the one in use, and the one before */
static unsigned in_use;

_Static_assert((int)WEFT_LOG_ERROR == LOG_LEVEL_ERROR + 1 &&
		       (int)WEFT_LOG_DEBUG == LOG_LEVEL_DEBUG + 1,
	       "levels differ");

static void hand_over(void *context, const struct log_record *record)
{
	static const char *const levels[] = {"error", "warn", "info", "debug"};
	const struct host_sink *sink = context;
	char time[24], pid[16], rank_text[16] = "", code[16] = "", repeats[24] = "";
	int rank;
	const char *role = log_role(record->program, record->who, &rank);
	const weft_log_field fields[] = {
		{sizeof(fields[0]), "time_ms", time},
		{sizeof(fields[0]), "level", levels[record->level]},
		{sizeof(fields[0]), "program", record->program},
		{sizeof(fields[0]), "host", record->host},
		{sizeof(fields[0]), "pid", pid},
		{sizeof(fields[0]), "who", record->who},
		{sizeof(fields[0]), "message", record->message},
		{sizeof(fields[0]), "role", role},
		{sizeof(fields[0]), "rank", rank_text},
		{sizeof(fields[0]), "job", record->job},
		{sizeof(fields[0]), "code", code},
		{sizeof(fields[0]), "repeats", repeats},
	};
	const weft_log_entry entry = {
		.size = sizeof(entry),
		.time_ms = record->time_ms,
		.level = (enum weft_log_level)(record->level + 1),
		.who = record->who,
		.text = record->message,
		.fields = fields,
		.field_count = ARRAY_SIZE(fields),
		.field_stride = sizeof(fields[0]),
	};

	snprintf(time, sizeof(time), "%llu", (unsigned long long)record->time_ms);
	snprintf(pid, sizeof(pid), "%d", record->pid);
	if (rank >= 0)
		snprintf(rank_text, sizeof(rank_text), "%d", rank);
	if (record->code)
		snprintf(code, sizeof(code), "WEFT-E%d", record->code);
	if (record->repeats)
		snprintf(repeats, sizeof(repeats), "%llu", (unsigned long long)record->repeats);
	sink->call(sink->context, &entry);
}

int weft_set_log(weft_log_sink *sink, void *context, enum weft_log_level level, weft_error *error)
{
	struct error inner;
	struct host_sink *next;
	int rc = 0;

	if ((int)level < 0 || level > WEFT_LOG_DEBUG)
		rc = error_set(&inner, ERROR_USAGE,
			       "weft_set_log: level is %d; it is 0 (as WEFT_LOG "
			       "says) or WEFT_LOG_ERROR (%d) to WEFT_LOG_DEBUG (%d)",
			       (int)level, WEFT_LOG_ERROR, WEFT_LOG_DEBUG);
	else if (log_inside_sink())
		rc = error_set(&inner, ERROR_STATE,
			       "weft_set_log is not possible inside of a log sink");
	if (rc)
		return worker_result(rc, &inner, error);
	pthread_mutex_lock(&lock);
	next = &sinks[!in_use];
	*next = (struct host_sink){sink, context};
	log_set_sink(sink ? hand_over : NULL, next);
	in_use = !in_use;
	pthread_mutex_unlock(&lock);
	if (level)
		log_set_level((enum log_level)(level - 1));
	else
		log_reset_level();
	return 0;
}

int weft_set_log_format(const char *format, weft_error *error)
{
	struct error inner;
	int rc = log_set_format(format && *format ? format : NULL)
			 ? 0
			 : error_set(&inner, ERROR_CONFIG,
				     "the log's format is '%.40s'; it is \"text\" or \"json\"",
				     format);

	return worker_result(rc, &inner, error);
}

void weft_say(const char *line)
{
	log_say("%s", line);
}
