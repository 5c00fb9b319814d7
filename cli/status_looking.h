/* SPDX-License-Identifier: Apache-2.0
 *
 * status_looking.h -- what the rules of status_why.c and status_waits.c share; nobody else includes it.
 */
#ifndef CLI_STATUS_LOOKING_H
#define CLI_STATUS_LOOKING_H

#include "base/text.h"
#include "cli/status.h"

#define BEATS_MISSED 2

struct looking {
	const struct message_report *before, *now; /* before: or NULL */
	findings *out;
	bool *named; /* by place among the members */
	bool failed;
};

bool looking_is_phase(const struct report_member *member, const char *phase);
/* Part of the job, and has to be heard. */
bool looking_is_here(const struct report_member *member);
/* What is older than that is no news. */
uint64_t looking_stale_ms(const struct message_report *report);
bool looking_is_silent(const struct message_report *report, const struct report_member *member);
/* who NULL: the job. */
void looking_name(struct looking *looking, bool fault, const struct report_member *who,
		  const struct text *text);

#define NAME(looking, fault, who, ...)             \
	do {                                       \
		struct text text_ = {0};           \
		text_format(&text_, __VA_ARGS__);  \
		looking_name(looking, fault, who, &text_); \
		text_fini(&text_);                 \
	} while (0)


/* status_waits.c */
void looking_pause(struct looking *looking);
void looking_waits(struct looking *looking);
void looking_circle(struct looking *looking);

#endif
