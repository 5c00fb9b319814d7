/* SPDX-License-Identifier: Apache-2.0
 *
 * pages.h -- memory of weft's own that nobody maps: zeroed, in huge pages where there are any, and
 * all of it taken at once.
 */
#ifndef TRANSPORT_PAGES_H
#define TRANSPORT_PAGES_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

struct pages {
	void *memory;
	uint64_t bytes; /* mapped: whole pages */
	bool huge;      /* reserved huge pages, not those that the kernel gives on advice */
};

/* ERROR_MEMORY says how much was wanted and how much is left. `who` asks, for log lines. */
int pages_map(struct pages *pages, uint64_t bytes, const char *who, struct error *error);
void pages_unmap(struct pages *pages); /* zeroed is fine */

#endif
