/* SPDX-License-Identifier: Apache-2.0
 *
 * tally.h -- what strangers can bring about as often as they like: told the first time, then once a minute.
 */
#ifndef CONTROLLER_TALLY_H
#define CONTROLLER_TALLY_H

#include <stdint.h>

struct tally {
	uint64_t count, told, told_ms;
};

/* How many more than were told, and they are told now; 0: none, or not yet. */
uint64_t tally_due(struct tally *tally, uint64_t now_ms);

#endif
