/* SPDX-License-Identifier: Apache-2.0
 *
 * update.h -- the words that the two sides of an update exchange, as signals over their
 * endpoints; no controller is in this path.
 *
 *   inference rank                                 trainer
 *   update_wait(v): opens its memory
 *       ACCEPT opening 4, versions v..v ─────────► update_begin(v): all targets accept v
 *                                                   writes ...
 *       counts, verifies, publishes ◄───────────── END opening 4, version v, digest, bytes
 *
 * An opening is one permission to write: it is used by each trainer once, and an END counts
 * only for the opening that it names. So a trainer that was given up under opening 3 and ends
 * late changes nothing about what opening 4 publishes: it must end again, under 4, after which
 * its own bytes (no other trainer's rows overlap them) are of the version it says.
 * A wait that timed out keeps its opening for the next wait of the same version; every other
 * failure closes it.
 *
 * Payloads are the structs themselves: both ends run on little-endian machines.
 */
#ifndef WORKER_UPDATE_H
#define WORKER_UPDATE_H

#include "common/digest.h"
#include "transport/transport.h"
#include <stdint.h>

enum update_word {
	UPDATE_ACCEPT = 1, /* inference rank -> trainer */
	UPDATE_END = 2,    /* trainer -> inference rank */
	UPDATE_ABORT = 3
};

struct update_accept {
	uint64_t opening;          /* from 1, per inference rank */
	uint64_t min_version, max_version;
	struct digest plan;
	uint64_t sums_offset;      /* where this trainer's checksums go, and in which region */
	uint32_t sums_region;      /* UINT32_MAX: no checksums */
	uint32_t copy;
};

struct update_end {
	uint64_t opening, version;
	struct digest plan;
	uint64_t bytes;
	uint32_t pieces, sums;     /* sums: checksums written, 0 or pieces */
};

struct update_abort {
	uint64_t opening, version;
	char why[80];              /* terminated, cut when longer */
};

_Static_assert(sizeof(struct update_accept) == 56, "struct update_accept is a wire format");
_Static_assert(sizeof(struct update_end) == 48, "struct update_end is a wire format");
_Static_assert(sizeof(struct update_abort) == TRANSPORT_PAYLOAD_BYTES,
	       "struct update_abort is a wire format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payloads are little-endian");

#endif
