/* SPDX-License-Identifier: Apache-2.0
 *
 * how.h -- the way a piece's bytes reach the wire, from facts alone:
 *
 *   source box contiguous, no conversion, trainer's tensors registered   -> direct (no copy)
 *   else target memory mapped in the trainer                              -> mapped (one copy)
 *   else                                                                  -> replica (pack, write)
 */
#ifndef ROUTING_HOW_H
#define ROUTING_HOW_H

#include "common/box.h"
#include "common/member.h"

enum route_how how_piece(const struct box *src, const uint64_t *shape, bool registered,
			 bool mapped);

#endif
