/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h -- the only place that reads the time. Cores never include it: time reaches them
 * inside events.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);      /* monotonic */
uint64_t clock_wall_ns(void); /* since 1970 */
uint64_t clock_wall_ms(void); /* for log lines */
void clock_sleep_ms(uint64_t ms);
void clock_sleep_ns(uint64_t ns);

/* So far from now. */
static inline uint64_t clock_deadline_ns(uint64_t timeout_ms)
{
	return clock_ns() + timeout_ms * 1000000u;
}

/* Milliseconds until then, as poll(2) takes them: rounded up, 0 when it has passed. */
static inline int clock_left_ms(uint64_t deadline_ns)
{
	uint64_t now = clock_ns(), left = deadline_ns > now ? deadline_ns - now : 0;

	left = left / 1000000 + (left % 1000000 != 0);
	return left > INT32_MAX ? INT32_MAX : (int)left;
}

static inline uint64_t clock_ms(void)
{
	return clock_ns() / 1000000;
}

#endif
