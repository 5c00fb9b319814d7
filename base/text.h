/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h -- a growing string, and the spellings people use for numbers.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed struct is empty. Out of memory is sticky: later adds do nothing and text_ok() is
 * false, so a writer checks once, at the end. */
struct text {
	char *data; /* always terminated once anything was added; NULL before */
	size_t bytes, capacity;
	bool failed;
};

void text_add(struct text *text, const char *string);
void text_add_bytes(struct text *text, const void *data, size_t bytes);
void text_format(struct text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
bool text_ok(const struct text *text);
bool text_ends(const char *string, const char *tail);
const char *text_string(const struct text *text); /* "" when empty */
void text_fini(struct text *text);

/* "8M", "1G", "4KiB", "1024", "512 MB" (powers of 1024 with or without i/B). */
bool parse_bytes(const char *string, uint64_t *bytes);
/* "30s", "2m", "500ms", "1h"; a bare number is seconds, fractions are fine. */
bool parse_duration_ms(const char *string, uint64_t *ms);
bool parse_u64(const char *string, uint64_t *value); /* decimal, whole string, no sign */
bool parse_flag(const char *string, bool *on); /* "1", "0" or "", as a variable has it */

/* What follows "key:" where a line begins with it, blanks before the colon or not, as files of /proc
 * have it; NULL when no line does. */
const char *text_line(const char *text, const char *key);

#define TEXT_SHORT_BYTES 32
/* "988 MB", "1.03 TB": powers of 1000, three digits, for people. Returns out. */
char *bytes_text(uint64_t bytes, char out[TEXT_SHORT_BYTES]);
/* "988,065,536" */
char *grouped_text(uint64_t value, char out[TEXT_SHORT_BYTES]);
char *seconds_text(uint64_t ns, char out[TEXT_SHORT_BYTES]); /* "12.3 ms", "1.04 s" */

/* The same as an argument: the text lasts as long as the block around it. */
#define TEXT_HERE           ((char[TEXT_SHORT_BYTES]){0})
#define BYTES_TEXT(bytes)   bytes_text((bytes), TEXT_HERE)
#define GROUPED_TEXT(value) grouped_text((value), TEXT_HERE)
#define SECONDS_TEXT(ns)    seconds_text((ns), TEXT_HERE)

#endif
