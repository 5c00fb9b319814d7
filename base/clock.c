/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

static uint64_t read_ns(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_wall_ms(void)
{
	return read_ns(CLOCK_REALTIME) / 1000000;
}

void clock_sleep_ms(uint64_t ms)
{
	struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	TEMP_FAILURE_RETRY(nanosleep(&left, &left));
}
