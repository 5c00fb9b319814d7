/* SPDX-License-Identifier: Apache-2.0
 *
 * path.h -- the path of a piece's bytes, from facts alone:
 *
 *   target memory that peers cannot write                            -> landed (beside it; put in place by the target)
 *   else bytes that are spread in the target: mapped if it is, else  -> landed
 *   else source one run of bytes, a copy, trainer's tensors registered -> direct (no copy)
 *   else target memory mapped in the trainer                         -> mapped (one copy)
 *   else                                                             -> replica (pack, write)
 * and what is written by requests and is small, where there are many such               -> landed (table.h, MERGE_BYTES)
 */
#ifndef ROUTING_PLAN_PATH_H
#define ROUTING_PLAN_PATH_H

#include "job/member.h"
#include <stdbool.h>

/* Of memory that peers can write. copy: the target gets the tensor's bytes as they are (problem.h, `transformed` 0). in_one_run: its bytes
 * lie beside each other in the trainer's memory. */
enum route_path path_of_piece(bool copy, bool in_one_run, bool registered, bool mapped);

/* Why a piece goes that way, for people: what keeps it from being sent as it lies, and what is done instead. */
struct path_reason {
	const char *because; /* NULL: nothing does */
	const char *way;
};
/* spread: in runs of the target's (job/layout.h). written: by the pair's transport, if only this piece were asked. */
struct path_reason path_reason(enum route_path path, bool copy, bool in_one_run, bool spread, bool written);

#endif
