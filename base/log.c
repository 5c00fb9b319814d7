/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"
#include "base/log_format.h"
#include "base/log_repeat.h"
#include "base/plain.h"
#include "base/trouble.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_BYTES 2048 /* as it is said */
#define PLAIN_BYTES   3072 /* and when it is plain */
#define JOB_BYTES     128

static struct {
	pthread_mutex_t lock;
	_Atomic int level;
	char program[64], host[64], who[32], job[JOB_BYTES];
	bool jobs_differ;	    /* workers of several are in this process: no line says one */
	_Atomic bool json, waiting; /* the latter: of repeats */
	bool level_set, format_set, told_format;
	struct log_repeats repeats;
	int file;	 /* of WEFT_LOG_FILE; < 0: stderr */
	uint64_t missed; /* lines that the file did not take */
	log_sink *sink;
	void *context;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_LEVEL_WARN, .file = -1};

static _Thread_local char thread_who[32];
static _Thread_local bool in_sink;

static void tell_missed(void);
__attribute__((format(printf, 1, 2))) static void say_now(const char *format, ...);

/* "weft.%h.%p.log" -> "weft.node7.4711.log" */
static void expand(const char *pattern, char *out, size_t out_bytes)
{
	size_t n = 0;

	for (; *pattern && n + 1 < out_bytes; pattern++) {
		if (pattern[0] == '%' && (pattern[1] == 'h' || pattern[1] == 'p')) {
			int more = pattern[1] == 'h'
					   ? snprintf(out + n, out_bytes - n, "%s", state.host)
					   : snprintf(out + n, out_bytes - n, "%d", (int)getpid());
			n += (size_t)more < out_bytes - n ? (size_t)more : out_bytes - n - 1;
			pattern++;
		} else {
			out[n++] = *pattern;
		}
	}
	out[n] = '\0';
}

/* The description is ours alone, so it can be one that does not wait: the file may be a pipe too. */
static void open_file(void)
{
	const char *pattern = getenv("WEFT_LOG_FILE");
	char path[4096];

	if (!pattern || !*pattern || state.file >= 0)
		return;
	expand(pattern, path, sizeof(path));
	state.file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
	if (state.file < 0)
		say_now("weft: WEFT_LOG_FILE: cannot open %s for writing: %s; logging to stderr",
			path, strerror(errno));
}

static void read_level(void)
{
	const char *level = getenv("WEFT_LOG");
	size_t i = 0;

	if (!level || !*level)
		return;
	while (i < 4 && strcmp(level, log_level_names[i]) != 0)
		i++;
	if (i < 4)
		atomic_store(&state.level, (int)i);
	else
		say_now("weft: WEFT_LOG is '%s': use error, warn, info or debug", level);
}

/* NULL: json or text. */
static const char *read_format(const char *format)
{
	bool json = !strcmp(format, "json");

	if (!json && *format && strcmp(format, "text") != 0)
		return format;
	atomic_store(&state.json, json);
	return NULL;
}

static void read_format_variable(void)
{
	const char *format = getenv("WEFT_LOG_FORMAT");
	const char *wrong = read_format(format ? format : "");

	if (wrong && !state.told_format)
		say_now("weft: WEFT_LOG_FORMAT is '%s': use json or text", wrong);
	state.told_format |= wrong != NULL;
}

static void find_host(void)
{
	char host[sizeof(state.host)] = "";

	gethostname(host, sizeof(host) - 1);
	plain_put(state.host, sizeof(state.host), host[0] ? host : "?");
}

void log_open(const char *program, const char *who)
{
	log_writer_on_missed(tell_missed);
	pthread_mutex_lock(&state.lock);
	snprintf(state.program, sizeof(state.program), "%s", program);
	snprintf(state.who, sizeof(state.who), "%s", who);
	find_host();
	if (!state.format_set)
		read_format_variable();
	open_file();
	if (!state.level_set)
		read_level();
	pthread_mutex_unlock(&state.lock);
}

bool log_set_format(const char *format)
{
	bool known;

	pthread_mutex_lock(&state.lock);
	known = !format || !read_format(format);
	if (!state.program[0]) { /* a program's first line may come before log_open */
		snprintf(state.program, sizeof(state.program), "%s", program_invocation_short_name);
		find_host();
	}
	if (!format)
		read_format_variable();
	state.format_set = format && known;
	pthread_mutex_unlock(&state.lock);
	return known;
}

void log_of_job(const char *job)
{
	pthread_mutex_lock(&state.lock);
	state.jobs_differ |= state.job[0] && strcmp(state.job, job) != 0;
	snprintf(state.job, sizeof(state.job), "%s", job);
	pthread_mutex_unlock(&state.lock);
}

void log_set_level(enum log_level level)
{
	pthread_mutex_lock(&state.lock);
	state.level_set = true;
	atomic_store(&state.level, (int)level);
	pthread_mutex_unlock(&state.lock);
}

void log_reset_level(void)
{
	pthread_mutex_lock(&state.lock);
	state.level_set = false;
	atomic_store(&state.level, LOG_LEVEL_WARN);
	read_level();
	pthread_mutex_unlock(&state.lock);
}

bool log_on(enum log_level level)
{
	return (int)level <= atomic_load_explicit(&state.level, memory_order_relaxed);
}

void log_as(const char *who)
{
	snprintf(thread_who, sizeof(thread_who), "%s", who);
}

bool log_inside_sink(void)
{
	return in_sink;
}

void log_set_sink(log_sink *sink, void *context)
{
	pthread_mutex_lock(&state.lock);
	state.sink = sink;
	state.context = context;
	pthread_mutex_unlock(&state.lock);
}

static size_t format_line(const struct log_record *record, char out[LOG_LINE_BYTES])
{
	return atomic_load(&state.json) ? log_format_json(record, out)
					: log_format_text(record, out);
}

static bool put_in_file(const char *line, size_t bytes)
{
	ssize_t n = write(state.file, line, bytes);

	if (n == (ssize_t)bytes) {
		trouble_over(TROUBLE_LOG);
		return true;
	}
	trouble_set(TROUBLE_LOG, "lines of its log are lost (WEFT_LOG_FILE): %s",
		    strerrordesc_np(n < 0 ? errno : ENOSPC));
	return false;
}

/* False: the file did not take it. What stderr does not take, its writer counts. */
static bool put_line(const struct log_record *record)
{
	char line[LOG_LINE_BYTES];
	size_t bytes = format_line(record, line);

	if (state.file >= 0)
		return put_in_file(line, bytes);
	log_writer_put(line, bytes);
	return true;
}

static struct log_record record_of(enum log_level level, const char *message)
{
	return (struct log_record){.level = level,
				   .time_ms = clock_wall_ms(),
				   .program = state.program,
				   .host = state.host,
				   .who = thread_who[0] ? thread_who : state.who,
				   .job = state.jobs_differ ? "" : state.job,
				   .message = message,
				   .code = log_code_in(message),
				   .pid = (int)getpid()};
}

/* Under the lock, before the next line. */
static void put_missed(void)
{
	uint64_t missed = state.file < 0 ? log_writer_missed() : state.missed;
	struct log_record record;
	char message[128];

	if (!missed)
		return;
	snprintf(message, sizeof(message), "%llu log lines were dropped: %s",
		 (unsigned long long)missed,
		 state.file < 0 ? "nobody read stderr"
				: "they could not be written to WEFT_LOG_FILE");
	record = record_of(LOG_LEVEL_WARN, message);
	if (put_line(&record))
		state.missed = 0;
}

static void tell_missed(void)
{
	pthread_mutex_lock(&state.lock);
	put_missed();
	pthread_mutex_unlock(&state.lock);
}

/* What was said, plain, with "..." where it was too long. */
static void say(char *out, size_t room, const char *format, va_list args)
{
	char said[MESSAGE_BYTES];

	if (vsnprintf(said, sizeof(said), format, args) >= (int)sizeof(said)) {
		size_t end = sizeof(said) - 4;

		while (end && (said[end] & 0xc0) == 0x80) /* not inside of a character */
			end--;
		strcpy(said + end, "...");
	}
	plain_put(out, room, said);
}

/* Under the lock. */
static void put_record(const struct log_record *record)
{
	if (state.sink) {
		in_sink = true;
		state.sink(state.context, record);
		in_sink = false;
	} else {
		put_missed();
		state.missed += !put_line(record);
	}
}

/* Under the lock: what was counted and not said, of those kinds of lines that are over, or of all. */
static void put_repeated(bool all)
{
	struct log_repeated told;

	while (log_repeat_take(&state.repeats, clock_ms(), all, &told)) {
		char message[LOG_REPEAT_BYTES + 80];
		struct log_record record;

		snprintf(message, sizeof(message), "last message %llu times more in %.1f s: %s",
			 (unsigned long long)told.count, (double)told.ms / 1e3, told.text);
		record = record_of((enum log_level)told.level, message);
		record.who = told.who;
		record.code = told.code;
		record.repeats = told.count;
		put_record(&record);
	}
	atomic_store(&state.waiting, state.repeats.waiting > 0);
}

/* Under the lock. Who asked for every line gets every line. */
static bool passes(const struct log_record *record, const char *format)
{
	const struct log_repeat_line line = {.level = (int)record->level,
					     .code = record->code,
					     .failure = record->level == LOG_LEVEL_ERROR,
					     .place = strcmp(format, "%s") ? format : NULL,
					     .who = record->who,
					     .text = record->message};
	bool result = record->level == LOG_LEVEL_DEBUG ||
		      log_repeat_passes(&state.repeats, &line, clock_ms());

	atomic_store(&state.waiting, state.repeats.waiting > 0);
	return result;
}

static void put_said(enum log_level level, int code, const char *format, va_list args)
{
	char message[PLAIN_BYTES];
	struct log_record record;

	if (!log_on(level) || in_sink)
		return;
	say(message, sizeof(message), format, args);
	pthread_mutex_lock(&state.lock);
	put_repeated(false);
	record = record_of(level, message);
	record.code = code ? code : record.code;
	if (passes(&record, format))
		put_record(&record);
	pthread_mutex_unlock(&state.lock);
}

void log_line(enum log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put_said(level, 0, format, args);
	va_end(args);
}

void log_line_of(enum log_level level, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put_said(level, code, format, args);
	va_end(args);
}

static void settle(bool all)
{
	if (!atomic_load_explicit(&state.waiting, memory_order_relaxed) || in_sink)
		return;
	pthread_mutex_lock(&state.lock);
	put_repeated(all);
	pthread_mutex_unlock(&state.lock);
}

void log_settle(void)
{
	settle(false);
}

/* In JSON it is a line like others, so that all of stderr is lines of JSON; and on stderr all the same. */
static size_t format_said(const char *message, char line[LOG_LINE_BYTES])
{
	struct log_record record = record_of(LOG_LEVEL_WARN, message);
	size_t bytes = strlen(message);

	record.level = record.code ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO;
	if (atomic_load(&state.json))
		return log_format_json(&record, line);
	memcpy(line, message, bytes);
	line[bytes] = '\n';
	return bytes + 1;
}

/* Under the lock, or inside of a sink, which is. */
static void vsay_now(const char *format, va_list args)
{
	char line[LOG_LINE_BYTES], message[PLAIN_BYTES];

	say(message, sizeof(message), format, args);
	log_writer_put(line, format_said(message, line));
}

static void say_now(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsay_now(format, args);
	va_end(args);
}

void log_say(const char *format, ...)
{
	va_list args;

	settle(true);
	va_start(args, format);
	if (!in_sink)
		pthread_mutex_lock(&state.lock);
	vsay_now(format, args);
	if (!in_sink)
		pthread_mutex_unlock(&state.lock);
	va_end(args);
}

/* Before the writer ends, whose destructor has a priority. */
__attribute__((destructor)) static void at_end(void)
{
	settle(true);
}

/* A child has this thread alone: nobody else would give the lock back. */
static void in_child(void)
{
	if (!in_sink)
		pthread_mutex_init(&state.lock, NULL);
}

__attribute__((constructor)) static void at_begin(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
