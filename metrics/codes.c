/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/codes.h"

static const enum error_code places[CODE_PLACES] = {
#define X(name, number, exit_code, words) ERROR_##name,
	ERROR_CODES(X)
#undef X
};

void codes_count(struct code_counts *counts, enum error_code code)
{
	for (uint32_t i = 0; i < CODE_PLACES; i++)
		counts->of[i] += places[i] == code;
}

enum error_code codes_at(uint32_t place)
{
	return places[place];
}
