/* SPDX-License-Identifier: Apache-2.0 */
#include "base/closest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 256

/* Levenshtein distance without regard to case; long names count as far. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t row[NAME_MAX_BYTES + 1], n = strlen(b);

	if (strlen(a) > NAME_MAX_BYTES || n > NAME_MAX_BYTES)
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			bool differs = tolower((unsigned char)a[i - 1]) !=
				       tolower((unsigned char)b[j - 1]);
			size_t best = diagonal + differs;

			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[n];
}

void closest_offer(struct closest *closest, const char *name)
{
	size_t distance = edit_distance(closest->wanted, name), at = closest->count;

	while (at > 0 && closest->distances[at - 1] > distance)
		at--;
	if (at == CLOSEST_MAX)
		return;
	if (closest->count < CLOSEST_MAX)
		closest->count++;
	for (size_t i = closest->count - 1; i > at; i--) {
		closest->names[i] = closest->names[i - 1];
		closest->distances[i] = closest->distances[i - 1];
	}
	closest->names[at] = name;
	closest->distances[at] = distance;
}

char *closest_text(const struct closest *closest, char *out, size_t out_bytes)
{
	size_t at = 0;

	out[0] = '\0';
	for (size_t i = 0; i < closest->count && at < out_bytes; i++)
		at += (size_t)snprintf(out + at, out_bytes - at, "%s%s", i ? ", " : "",
				       closest->names[i]);
	return out;
}
