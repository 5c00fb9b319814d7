/* SPDX-License-Identifier: Apache-2.0
 *
 * codes.h -- how often each error code was met.
 */
#ifndef METRICS_CODES_H
#define METRICS_CODES_H

#include "base/error.h"
#include <stdint.h>

enum code_place {
#define X(name, number, exit_code, words) CODE_PLACE_##name,
	ERROR_CODES(X)
#undef X
	CODE_PLACES
};

struct code_counts {
	uint64_t of[CODE_PLACES];
};

/* ERROR_NONE counts as nothing. */
void codes_count(struct code_counts *counts, enum error_code code);
enum error_code codes_at(uint32_t place);

#endif
