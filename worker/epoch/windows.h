/* SPDX-License-Identifier: Apache-2.0
 *
 * windows.h -- memory beside that of an inference rank's parameters, where what trainers send lands when
 * their transport cannot write these (pinned, of the host), or when it would be millions of small writes: bytes that are spread in a
 * parameter, and small pieces (routing/plan/merge.c); and what differs from the version before, where no more is sent (--delta). One
 * window for each such trainer.
 *
 *   trainer 0 ─► | window |   the rank puts what is there in place, piece by piece, while more lands
 *   trainer 1 ─► | window |   (update/update.h, update/take.c)
 *
 *   window   | entry 0 | entry 1 | ..  WINDOW_ENTRIES | bytes: a ring ..                        |
 *              what of which piece, and where it lies there ─┘
 *
 * However large the model is, all windows take landing_bytes.
 */
#ifndef WORKER_EPOCH_WINDOWS_H
#define WORKER_EPOCH_WINDOWS_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

struct epoch;
struct peer;

/* Entry n of an opening is in place n % WINDOW_ENTRIES: bytes [from, from + bytes) of a piece. */
struct window_entry {
	uint64_t from;
	uint64_t at;               /* in the ring */
	uint32_t ordinal, bytes;   /* of the pair's pieces */
	uint32_t coded;            /* what lies in the ring is so many bytes that say what of them differs from the version before */
	uint32_t element_bytes;    /* (pack/delta.h), in values of so many; 0: it is the bytes themselves */
};
/* What it takes of the ring. */
static inline uint32_t window_entry_bytes(const struct window_entry *entry)
{
	return entry->coded ? entry->coded : entry->bytes;
}

_Static_assert(sizeof(struct window_entry) == 32, "struct window_entry is a wire format");

#define WINDOW_ENTRIES	      512u
#define WINDOW_HEAD_BYTES     (WINDOW_ENTRIES * sizeof(struct window_entry))
#define WINDOW_RING_BYTES_MIN 65536u
#define WINDOW_DELTA_BYTES    16400u /* coded, at most: two chunks that differ all over (pack/delta.h) */

/* Can that peer's transport write nothing else of the rank's memory? */
bool windows_only(const struct epoch *epoch, const struct peer *peer);
/* Of an inference rank's epoch whose endpoints are open; says in the log what lands, and why. Fills the
 * peers' landed, window_at and window_bytes. */
int windows_open(struct epoch *epoch, struct error *error);

#endif
