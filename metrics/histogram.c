/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/histogram.h"

const double histogram_bounds[HISTOGRAM_BOUNDS] = {
	0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};

void histogram_add(struct histogram *histogram, uint64_t ns)
{
	double seconds = (double)ns / 1e9;
	uint32_t i = 0;

	while (i < HISTOGRAM_BOUNDS && seconds > histogram_bounds[i])
		i++;
	histogram->in[i]++;
	histogram->count++;
	histogram->sum_ns += ns;
}
