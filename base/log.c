/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"
#include "base/json_write.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static struct {
	pthread_mutex_t lock;
	_Atomic int level;
	char program[64], host[64], who[32];
	bool json, level_set;
	FILE *stream; /* NULL: stderr */
	log_sink *sink;
	void *context;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_LEVEL_WARN};

static _Thread_local char thread_who[32];
static _Thread_local bool in_sink;

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

static void open_file(void)
{
	const char *pattern = getenv("WEFT_LOG_FILE");
	char path[4096];
	FILE *stream;

	if (!pattern || !*pattern || state.stream)
		return;
	expand(pattern, path, sizeof(path));
	stream = fopen(path, "ae");
	if (!stream)
		fprintf(stderr,
			"weft: WEFT_LOG_FILE: cannot open %s for writing; logging to stderr\n",
			path);
	state.stream = stream;
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
		fprintf(stderr, "weft: WEFT_LOG is '%s': use error, warn, info or debug\n", level);
}

void log_open(const char *program, const char *who)
{
	const char *format = getenv("WEFT_LOG_FORMAT");

	pthread_mutex_lock(&state.lock);
	snprintf(state.program, sizeof(state.program), "%s", program);
	snprintf(state.who, sizeof(state.who), "%s", who);
	if (gethostname(state.host, sizeof(state.host)) != 0)
		snprintf(state.host, sizeof(state.host), "?");
	state.host[sizeof(state.host) - 1] = '\0';
	state.json = format && strcmp(format, "json") == 0;
	open_file();
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

static void format_line(const struct log_record *record, char *out, size_t out_bytes)
{
	char when[32];
	struct text text = {0};
	struct json json;

	stamp(record->time_ms, when);
	if (!state.json) {
		snprintf(out, out_bytes, "%s %c %s[%s:%d%s%s] %s", when, "EWID"[record->level],
			 record -> program, record -> host, record -> pid,
			 record -> who[0] ? " " : "", record->who, record->message);
		return;
	}
	json_to_text(&json, &text);
	json_put_object(&json);
	json_put_key_string(&json, "time", when);
	json_put_key_string(&json, "level", level_names[record->level]);
	json_put_key_string(&json, "program", record->program);
	json_put_key_string(&json, "host", record->host);
	json_put_key_u64(&json, "pid", (uint64_t)record->pid);
	json_put_key_string(&json, "who", record->who);
	json_put_key_string(&json, "message", record->message);
	json_put_object_end(&json);
	snprintf(out, out_bytes, "%s", text_string(&text));
	text_fini(&text);
}

static void put_line(const struct log_record *record)
{
	FILE *stream = state.stream ? state.stream : stderr;
	char line[3072];

	format_line(record, line, sizeof(line));
	fprintf(stream, "%s\n", line);
	fflush(stream);
}

void log_line(enum log_level level, const char *format, ...)
{
	char message[2048];
	struct log_record record;
	va_list args;

	if (!log_on(level) || in_sink)
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	pthread_mutex_lock(&state.lock);
	record = (struct log_record){.level = level,
				     .time_ms = clock_wall_ms(),
				     .program = state.program,
				     .host = state.host,
				     .who = thread_who[0] ? thread_who : state.who,
				     .message = message,
				     .pid = (int)getpid()};
	if (state.sink) {
		in_sink = true;
		state.sink(state.context, &record);
		in_sink = false;
	} else {
		put_line(&record);
	}
	pthread_mutex_unlock(&state.lock);
}
