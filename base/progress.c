/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define INTERVAL_NS    200000000u
#define FIRST_AFTER_NS 1000000000u

/* A terminal reads it, and nobody asked for quiet. */
static bool wanted(void)
{
	return isatty(STDERR_FILENO) == 1 && log_on(LOG_LEVEL_WARN);
}

/* One line that is redrawn must be one: a longer one is cut at the terminal's last column but one. */
static void draw(const struct text *line, const char *end)
{
	struct winsize size;
	int columns =
		ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
	const char *text = text_string(line), *at = text;

	for (int used = 0; *at && used + 1 < columns; used++)
		do
			at++;
		while ((*at & 0xc0) == 0x80); /* of one character */
	fprintf(stderr, "\r%.*s\033[K%s", (int)(at - text), text, end);
	fflush(stderr);
}

void progress_begin(struct progress *progress, const char *what, uint64_t total_bytes, bool quiet)
{
	uint64_t now = clock_ns();

	*progress = (struct progress){what, total_bytes, now, now, !quiet && wanted(), false};
}

static void show(struct progress *progress, uint64_t bytes, uint64_t now, bool end)
{
	double seconds = (double)(now - progress->begin_ns) / 1e9;
	double rate = seconds > 0 ? (double)bytes / seconds : 0;
	char done[TEXT_SHORT_BYTES], total[TEXT_SHORT_BYTES], speed[TEXT_SHORT_BYTES];

	struct text line = {0};

	progress->shown = true;
	text_format(&line, "%s: %s of %s (%.0f %%), %s/s", progress->what, bytes_text(bytes, done),
		    bytes_text(progress->total_bytes, total),
		    progress->total_bytes ? 100.0 * (double)bytes / (double)progress->total_bytes
					  : 100.0,
		    bytes_text((uint64_t)rate, speed));
	if (end)
		text_format(&line, ", %.1f s", seconds);
	else if (rate > 0 && progress->total_bytes > bytes)
		text_format(&line, ", %.0f s left", (double)(progress->total_bytes - bytes) / rate);
	draw(&line, end ? "\n" : "");
	text_fini(&line);
}

void progress_at(struct progress *progress, uint64_t bytes)
{
	uint64_t now;

	if (!progress->shows)
		return;
	now = clock_ns();
	if (now - progress->shown_ns < (progress->shown ? INTERVAL_NS : FIRST_AFTER_NS))
		return;
	progress->shown_ns = now;
	show(progress, bytes, now, false);
}

void progress_end(struct progress *progress, uint64_t bytes)
{
	if (progress->shown)
		show(progress, bytes, clock_ns(), true);
}

void progress_step(const char *format, ...)
{
	struct text line = {0};
	char what[512];
	va_list args;

	if (!wanted())
		return;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	text_format(&line, "%s ..", what);
	draw(&line, "");
	text_fini(&line);
}

void progress_steps_end(void)
{
	if (!wanted())
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
}
