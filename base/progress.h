/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h -- what long work shows on stderr: on a terminal one line redrawn (bytes, percent,
 * rate, time left), elsewhere a plain line every interval and one at the end.
 */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what;     /* borrowed: "writing Qwen2.5-0.5B" */
	uint64_t total_bytes;
	uint64_t begin_ns, shown_ns;
	bool terminal, quiet;
};

void progress_begin(struct progress *progress, const char *what, uint64_t total_bytes, bool quiet);
void progress_at(struct progress *progress, uint64_t bytes); /* cheap when nothing is due */
void progress_end(struct progress *progress, uint64_t bytes);

#endif
