/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h -- one line a fact, at the place that knows it:
 *   2026-11-21T00:10:11.123Z I weft-worker[host:4711 t3] plan: 290 tensors, 1160 routes
 * The one process-wide thing of the project, but for who speaks, which is the thread's affair: a
 * process may have many workers. Level from WEFT_LOG (error, warn, info, debug), file from
 * WEFT_LOG_FILE (%h host, %p pid), JSON lines with WEFT_LOG_FORMAT=json. Thread safe. What repeats
 * is counted and told once (base/log_repeat.h).
 *
 * A message may name what a stranger said: it is made plain (base/plain.h) before anybody sees it, so a line is
 * one line. Nobody waits for who reads: base/log_writer.h.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/log_writer.h"
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Reads the environment; `program` and `who` ("t3", "i0", "" if none) are copied. */
void log_open(const char *program, const char *who);
/* Lines of this thread are from `who` from here on, whatever log_open said; copied. */
void log_as(const char *who);
/* Lines are of that job from here on; of several in one process, of none. Copied. */
void log_of_job(const char *job);
/* "json" or "text", whatever WEFT_LOG_FORMAT says; NULL: what it says. False: it is neither, and nothing changes. */
bool log_set_format(const char *format);

/* One line, for a sink; strings live as long as the call. */
struct log_record {
	enum log_level level;
	uint64_t time_ms;              /* since 1970 */
	const char *program, *host, *who, *job, *message; /* all plain; job "": none that is known */
	int pid;
	int code;                      /* WEFT-Ennn, of which it is; 0: of none */
	uint64_t repeats;              /* lines like this one that were not shown; 0: this is none that tells of such */
};
typedef void log_sink(void *context, const struct log_record *record);
/* Lines go to the sink instead of the file; NULL: back to the file. One call of it at a time, on the
 * thread that logs; a line that it logs itself is dropped. When this returns, the one before is not
 * running; not from inside of one. */
void log_set_sink(log_sink *sink, void *context);
bool log_inside_sink(void); /* this thread is */
/* Whatever the environment says; reset: what it says. */
void log_set_level(enum log_level level);
void log_reset_level(void);
bool log_on(enum log_level level);
void log_line(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Of a code that the text does not name. */
void log_line_of(enum log_level level, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* From time to time, of a thread that has a loop: tells how often a line came that is not shown any more. */
void log_settle(void);

/* A program's word to its user, on stderr whatever the level, the file or the sink: plain, or a line of JSON as the others; behind the
 * lines that were logged before, and without waiting for who reads. The line break is added. */
void log_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Before anything is written to stderr by other ways. */
#define log_flush log_writer_flush

#define log_error_of(code, ...) log_line_of(LOG_LEVEL_ERROR, (int)(code), __VA_ARGS__)
#define log_warn_of(code, ...)	log_line_of(LOG_LEVEL_WARN, (int)(code), __VA_ARGS__)
#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
