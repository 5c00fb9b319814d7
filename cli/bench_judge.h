/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_judge.h -- whether somebody disturbed an update of `weft bench update`. The memcpy beside it
 * is measured before and after: where one of the two is far from the best of the run so far
 * (updates that only warm up count), the machine was not ours, and the line says so.
 */
#ifndef CLI_BENCH_JUDGE_H
#define CLI_BENCH_JUDGE_H

#include <stdbool.h>

#define BENCH_DISTURBED_BELOW 0.8 /* of the best memcpy of the run */

struct bench_judge {
	double best; /* bytes a second; 0: nothing measured yet */
};

/* Both count for the best, so the order of calls is the order of the run. */
static inline bool bench_disturbed(struct bench_judge *judge, double before, double after)
{
	double slower = before < after ? before : after, faster = before < after ? after : before;

	if (faster > judge->best)
		judge->best = faster;
	return slower < BENCH_DISTURBED_BELOW * judge->best;
}

#endif
