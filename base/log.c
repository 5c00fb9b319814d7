/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"
#include "base/json_write.h"
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
#define HEAD_BYTES    512  /* all of a JSON line but its message, at most */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static struct {
	pthread_mutex_t lock;
	_Atomic int level;
	char program[64], host[64], who[32];
	bool json, level_set;
	int file;	 /* of WEFT_LOG_FILE; < 0: stderr */
	uint64_t missed; /* lines that the file did not take */
	log_sink *sink;
	void *context;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_LEVEL_WARN, .file = -1};

static _Thread_local char thread_who[32];
static _Thread_local bool in_sink;

static void tell_missed(void);

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
		log_say("weft: WEFT_LOG_FILE: cannot open %s for writing: %s; logging to stderr",
			path, strerror(errno));
}

static void read_level(void)
{
	const char *level = getenv("WEFT_LOG");
	size_t i = 0;

	if (!level || !*level)
		return;
	while (i < 4 && strcmp(level, level_names[i]) != 0)
		i++;
	if (i < 4)
		atomic_store(&state.level, (int)i);
	else
		log_say("weft: WEFT_LOG is '%s': use error, warn, info or debug", level);
}

void log_open(const char *program, const char *who)
{
	const char *format = getenv("WEFT_LOG_FORMAT");
	char host[sizeof(state.host)] = "";

	log_writer_on_missed(tell_missed);
	pthread_mutex_lock(&state.lock);
	snprintf(state.program, sizeof(state.program), "%s", program);
	snprintf(state.who, sizeof(state.who), "%s", who);
	gethostname(host, sizeof(host) - 1);
	plain_put(state.host, sizeof(state.host), host[0] ? host : "?");
	state.json = format && strcmp(format, "json") == 0;
	open_file();
	if (format && *format && !state.json && strcmp(format, "text") != 0)
		log_say("weft: WEFT_LOG_FORMAT is '%s': use json or text", format);
	if (!state.level_set)
		read_level();
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

static size_t json_line(const struct log_record *record, const char *when, char out[LOG_LINE_BYTES])
{
	/* of a size that nothing outgrows, so that a line needs no memory of the heap */
	struct text text = {.data = out, .capacity = LOG_LINE_BYTES};
	char cut[PLAIN_BYTES];
	struct json json;

	json_to_text(&json, &text);
	json_put_object(&json);
	json_put_key_string(&json, "time", when);
	json_put_key_string(&json, "level", level_names[record->level]);
	json_put_key_string(&json, "program", record->program);
	json_put_key_string(&json, "host", record->host);
	json_put_key_u64(&json, "pid", (uint64_t)record->pid);
	json_put_key_string(&json, "who", record->who);
	json_put_key_string(&json, "message",
			    fitting(record->message, LOG_LINE_BYTES - HEAD_BYTES, cut));
	json_put_line_end(&json);
	return text.bytes;
}

static size_t format_line(const struct log_record *record, char out[LOG_LINE_BYTES])
{
	char when[32];

	stamp(record->time_ms, when);
	if (state.json)
		return json_line(record, when, out);
	return (size_t)snprintf(out, LOG_LINE_BYTES, "%s %c %s[%s:%d%s%s] %s\n", when,
				"EWID"[record->level], record -> program, record -> host,
				record -> pid, record -> who[0] ? " " : "", record->who,
				record->message);
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
				   .message = message,
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

void log_line(enum log_level level, const char *format, ...)
{
	char message[PLAIN_BYTES];
	struct log_record record;
	va_list args;

	if (!log_on(level) || in_sink)
		return;
	va_start(args, format);
	say(message, sizeof(message), format, args);
	va_end(args);
	pthread_mutex_lock(&state.lock);
	record = record_of(level, message);
	if (state.sink) {
		in_sink = true;
		state.sink(state.context, &record);
		in_sink = false;
	} else {
		put_missed();
		state.missed += !put_line(&record);
	}
	pthread_mutex_unlock(&state.lock);
}

void log_say(const char *format, ...)
{
	char line[LOG_LINE_BYTES];
	va_list args;
	size_t bytes;

	va_start(args, format);
	say(line, PLAIN_BYTES, format, args);
	va_end(args);
	bytes = strlen(line);
	line[bytes++] = '\n';
	log_writer_put(line, bytes);
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
