/* SPDX-License-Identifier: Apache-2.0
 *
 * log_writer.h -- lines on their way to stderr, which may be a pipe that nobody reads. Who logs never waits:
 *
 *   line ──► stderr, as long as it takes what it gets      a write that cannot block, no thread, nothing kept
 *            when it does not: ──► queue ──► a thread      which waits for stderr, and ends with the queue
 *                              when it is full: counted    and told once there is room again
 *
 * stderr is shared with other processes, so O_NONBLOCK is never set on it: a pipe or terminal is opened once
 * more for the write. Where that is not allowed (another user's pipe) the thread writes all lines.
 */
#ifndef BASE_LOG_WRITER_H
#define BASE_LOG_WRITER_H

#include <stddef.h>
#include <stdint.h>

/* Of a line and its break, at most. A pipe takes so much whole or not at all (PIPE_BUF), so lines of several
 * processes on one pipe do not mix. */
#define LOG_LINE_BYTES	4096
#define LOG_QUEUE_BYTES (1 << 20)

/* `line` ends with its break. Any thread. */
void log_writer_put(const char *line, size_t bytes);
/* Lines that were dropped, once more can be taken; asking forgets them. Until then all further lines are
 * dropped too, so that what tells the number stands where they are missing. */
uint64_t log_writer_missed(void);
/* Called on the writer's thread when log_writer_missed() has something to tell. */
void log_writer_on_missed(void (*tell)(void));
/* Waits until stderr has all, or has taken nothing for a quarter of a second. */
void log_writer_flush(void);

#endif
