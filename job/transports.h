/* SPDX-License-Identifier: Apache-2.0
 *
 * transports.h -- which transports a job may use, as --transport says it: one name is what every pair
 * uses; a list is the order in which each pair looks for one that both sides have and that reaches.
 */
#ifndef JOB_TRANSPORTS_H
#define JOB_TRANSPORTS_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

#define TRANSPORTS_MAX        8
#define TRANSPORTS_NAME_BYTES 16 /* terminator included, as in records */
#define TRANSPORTS_TEXT_BYTES (TRANSPORTS_MAX * TRANSPORTS_NAME_BYTES)
#define TRANSPORTS_AUTO       "shm,verbs" /* what "auto" stands for */

struct transports {
	uint32_t count;
	char names[TRANSPORTS_MAX][TRANSPORTS_NAME_BYTES];
};

/* "shm", "shm,verbs,tcp" or "auto". ERROR_CONFIG says which name is wrong, and why. */
int transports_parse(struct transports *transports, const char *text, struct error *error);
/* The list as it is compared and printed: "auto" never is. */
char *transports_text(const struct transports *transports, char out[TRANSPORTS_TEXT_BYTES]);
/* Is it a list, as far as that shows without reading it? */
bool transports_listed(const char *text);
/* The place of a name in it, or its count. */
uint32_t transports_find(const struct transports *transports, const char *name);

#endif
