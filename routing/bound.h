/* SPDX-License-Identifier: Apache-2.0
 *
 * bound.h -- the least possible largest load when every byte may go to any trainer of its set.
 */
#ifndef ROUTING_BOUND_H
#define ROUTING_BOUND_H

#include "routing/unit.h"

/* max over all sets T of trainers of (bytes whose holders are all in T) / |T|, exactly, rounded
 * up to a byte. The total of `bytes` must be at most 2^62 (units_weigh checks). */
int bound_of(uint64_t *bound, const struct holder_set *sets, const uint64_t *bytes, size_t count,
	     uint32_t trainer_count, struct error *error);

#endif
