/* SPDX-License-Identifier: Apache-2.0
 *
 * log_format.h -- a line of the log as text, or as one JSON object, and what can be read out of it.
 */
#ifndef BASE_LOG_FORMAT_H
#define BASE_LOG_FORMAT_H

#include "base/log.h"
#include <stddef.h>

extern const char *const log_level_names[4];

/* Who speaks: "trainer", "inference", "controller", or "" for anything else; *rank -1: none. */
const char *log_role(const char *program, const char *who, int *rank);
/* The first WEFT-Ennn that it says; 0: none. */
int log_code_in(const char *message);
/* With its line break; bytes. */
size_t log_format_text(const struct log_record *record, char out[LOG_LINE_BYTES]);
size_t log_format_json(const struct log_record *record, char out[LOG_LINE_BYTES]);

#endif
