/* SPDX-License-Identifier: Apache-2.0
 *
 * error_help.h -- what each code of base/error.h means, and what to do about it, for `weft explain` and docs/messages.md (which
 * tests/house/messages.py makes of error_help.c).
 */
#ifndef BASE_ERROR_HELP_H
#define BASE_ERROR_HELP_H

#include "base/error.h"

struct error_help {
	enum error_code code;
	const char *name;    /* "TIMEOUT" */
	const char *meaning, *remedy;
};

/* "WEFT-E130", "E130", "130", "timeout", in any case; NULL: it is none. */
const struct error_help *error_help_find(const char *text);
/* In the order of error.h; NULL: there are no more. */
const struct error_help *error_help_at(unsigned place);

#endif
