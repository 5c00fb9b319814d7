/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/tally.h"

#define TELL_MS 60000

uint64_t tally_due(struct tally *tally, uint64_t now_ms)
{
	uint64_t more = tally->count - tally->told;

	if (!more || (tally->told && now_ms < tally->told_ms + TELL_MS))
		return 0;
	tally->told = tally->count;
	tally->told_ms = now_ms;
	return more;
}
