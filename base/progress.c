/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include "base/clock.h"
#include "base/text.h"
#include <stdio.h>
#include <unistd.h>

#define TERMINAL_INTERVAL_NS 200000000u
#define PLAIN_INTERVAL_NS    10000000000u

void progress_begin(struct progress *progress, const char *what, uint64_t total_bytes, bool quiet)
{
	uint64_t now = clock_ns();

	*progress =
		(struct progress){what, total_bytes, now, now, isatty(STDERR_FILENO) == 1, quiet};
}

static void show(struct progress *progress, uint64_t bytes, uint64_t now, bool end)
{
	double seconds = (double)(now - progress->begin_ns) / 1e9;
	double rate = seconds > 0 ? (double)bytes / seconds : 0;
	char done[TEXT_SHORT_BYTES], total[TEXT_SHORT_BYTES], speed[TEXT_SHORT_BYTES];

	fprintf(stderr, "%s%s: %s of %s (%.0f %%), %s/s", progress->terminal ? "\r" : "",
		progress->what, bytes_text(bytes, done), bytes_text(progress->total_bytes, total),
		progress->total_bytes ? 100.0 * (double)bytes / (double)progress->total_bytes
				      : 100.0,
		bytes_text((uint64_t)rate, speed));
	if (end)
		fprintf(stderr, ", %.1f s", seconds);
	else if (rate > 0 && progress->total_bytes > bytes)
		fprintf(stderr, ", %.0f s left", (double)(progress->total_bytes - bytes) / rate);
	fputs(progress->terminal ? "\033[K" : "", stderr);
	if (end || !progress->terminal)
		fputc('\n', stderr);
	fflush(stderr);
}

void progress_at(struct progress *progress, uint64_t bytes)
{
	uint64_t now;

	if (progress->quiet)
		return;
	now = clock_ns();
	if (now - progress->shown_ns <
	    (progress->terminal ? TERMINAL_INTERVAL_NS : PLAIN_INTERVAL_NS))
		return;
	progress->shown_ns = now;
	show(progress, bytes, now, false);
}

void progress_end(struct progress *progress, uint64_t bytes)
{
	if (!progress->quiet)
		show(progress, bytes, clock_ns(), true);
}
