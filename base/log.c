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
	bool json;
	FILE *stream; /* NULL: stderr */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_LEVEL_WARN};

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

void log_open(const char *program, const char *who)
{
	const char *level = getenv("WEFT_LOG"), *format = getenv("WEFT_LOG_FORMAT");

	pthread_mutex_lock(&state.lock);
	snprintf(state.program, sizeof(state.program), "%s", program);
	snprintf(state.who, sizeof(state.who), "%s", who);
	if (gethostname(state.host, sizeof(state.host)) != 0)
		snprintf(state.host, sizeof(state.host), "?");
	state.host[sizeof(state.host) - 1] = '\0';
	state.json = format && strcmp(format, "json") == 0;
	open_file();
	if (level && *level) {
		size_t i = 0;

		while (i < 4 && strcmp(level, level_names[i]) != 0)
			i++;
		if (i < 4)
			atomic_store(&state.level, (int)i);
		else
			fprintf(stderr, "weft: WEFT_LOG is '%s': use error, warn, info or debug\n",
				level);
	}
	pthread_mutex_unlock(&state.lock);
}

void log_set_level(enum log_level level)
{
	atomic_store(&state.level, (int)level);
}

bool log_on(enum log_level level)
{
	return (int)level <= atomic_load_explicit(&state.level, memory_order_relaxed);
}

static void stamp(char out[32])
{
	uint64_t ms = clock_wall_ms();
	time_t seconds = (time_t)(ms / 1000);
	struct tm utc;
	size_t n;

	gmtime_r(&seconds, &utc);
	n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(out + n, 32 - n, ".%03uZ", (unsigned)(ms % 1000));
}

static void format_line(enum log_level level, const char *message, char *out, size_t out_bytes)
{
	char when[32];
	struct text text = {0};
	struct json json;

	stamp(when);
	if (!state.json) {
		snprintf(out, out_bytes, "%s %c %s[%s:%d%s%s] %s", when, "EWID"[level],
			 state.program, state.host, (int)getpid(), state.who[0] ? " " : "",
			 state.who, message);
		return;
	}
	json_to_text(&json, &text);
	json_put_object(&json);
	json_put_key_string(&json, "time", when);
	json_put_key_string(&json, "level", level_names[level]);
	json_put_key_string(&json, "program", state.program);
	json_put_key_string(&json, "host", state.host);
	json_put_key_u64(&json, "pid", (uint64_t)getpid());
	json_put_key_string(&json, "who", state.who);
	json_put_key_string(&json, "message", message);
	json_put_object_end(&json);
	snprintf(out, out_bytes, "%s", text_string(&text));
	text_fini(&text);
}

void log_line(enum log_level level, const char *format, ...)
{
	char message[2048], line[3072];
	FILE *stream;
	va_list args;

	if (!log_on(level))
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	pthread_mutex_lock(&state.lock);
	stream = state.stream ? state.stream : stderr;
	format_line(level, message, line, sizeof(line));
	fprintf(stream, "%s\n", line);
	fflush(stream);
	pthread_mutex_unlock(&state.lock);
}
