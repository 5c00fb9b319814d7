/* SPDX-License-Identifier: Apache-2.0
 *
 * histogram.h -- how long something took, counted by bounds: 1 ms to 120 s. Plain data; who shares one has a lock.
 */
#ifndef METRICS_HISTOGRAM_H
#define METRICS_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BOUNDS 16

struct histogram {
	uint64_t in[HISTOGRAM_BOUNDS + 1]; /* up to that bound and above the one before; the last: above all */
	uint64_t count, sum_ns;
};

extern const double histogram_bounds[HISTOGRAM_BOUNDS]; /* seconds */
void histogram_add(struct histogram *histogram, uint64_t ns);

#endif
