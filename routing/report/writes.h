/* SPDX-License-Identifier: Apache-2.0
 *
 * writes.h -- the requests that one update of a table takes: a piece is one (a transport may send what is large in several),
 * and what is small and lands goes out many to one (routing/plan/merge.c).
 */
#ifndef ROUTING_REPORT_WRITES_H
#define ROUTING_REPORT_WRITES_H

#include "routing/plan/table.h"

/* Assumed of a trainer: posting alone is 9 times as fast (docs/benchmarks.md, "Posting"); each write is scheduled, packed and completed
 * besides. */
#define WRITES_PER_SECOND  1e6

struct writes {
	uint64_t count, smallest_bytes, median_bytes;
	uint64_t most;    /* of one trainer, */
	uint32_t trainer; /* the first that has so many */
};

int writes_of(struct writes *writes, const struct table *table, struct error *error);
/* The same without their sizes, which take sorting. */
int writes_count(struct writes *writes, const struct table *table, struct error *error);

static inline bool write_is_merged(const struct route_piece *piece)
{
	return piece->path == PATH_LANDED && piece->bytes < MERGE_BYTES;
}

#endif
