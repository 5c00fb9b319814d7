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

uint64_t clock_wall_ns(void)
{
	return read_ns(CLOCK_REALTIME);
}

uint64_t clock_wall_ms(void)
{
	return clock_wall_ns() / 1000000;
}

void clock_sleep_ns(uint64_t ns)
{
	struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	TEMP_FAILURE_RETRY(nanosleep(&left, &left));
}

void clock_sleep_ms(uint64_t ms)
{
	clock_sleep_ns(ms * 1000000);
}
