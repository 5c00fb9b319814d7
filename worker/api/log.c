/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c -- lines of the library for the host's own log.
 */
#include "worker/api/worker.h"

#include "base/array.h"
#include "base/log.h"

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
	char time[24], pid[16];
	const weft_log_field fields[] = {
		{sizeof(fields[0]), "time_ms", time},
		{sizeof(fields[0]), "level", levels[record->level]},
		{sizeof(fields[0]), "program", record->program},
		{sizeof(fields[0]), "host", record->host},
		{sizeof(fields[0]), "pid", pid},
		{sizeof(fields[0]), "who", record->who},
		{sizeof(fields[0]), "message", record->message},
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
