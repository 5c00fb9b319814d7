/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h -- what long work shows on stderr, if that is a terminal: one line redrawn (bytes, percent, rate,
 * time left), from the second on that the work takes. Pipes and files get nothing, and neither does who asked
 * for quiet (WEFT_LOG=error, --quiet).
 */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what;     /* borrowed: "writing Qwen2.5-0.5B" */
	uint64_t total_bytes;
	uint64_t begin_ns, shown_ns;
	bool shows, shown;
};

void progress_begin(struct progress *progress, const char *what, uint64_t total_bytes, bool quiet);
void progress_at(struct progress *progress, uint64_t bytes); /* cheap when nothing is due */
void progress_end(struct progress *progress, uint64_t bytes);

/* Work in steps that cannot say how far they are: which one this is, at once. The next takes the line. */
void progress_step(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_steps_end(void); /* before anything is printed, or at the end: the line goes */

#endif
