/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c -- one blocking wait of the shared layer.
 *
 * Completions come from memory that this thread must look at, so waiting is looking
 * again: at first without a pause (a chunk takes microseconds), later in sleeps that grow
 * to 1/4 ms.
 */
#include "transport/provider.h"

#include "base/clock.h"
#include "base/text.h"
#include <sched.h>
#include <time.h>

#define LOOK_TURNS   16 /* while spinning: reading the clock can cost more than a turn */
#define SPIN_TURNS   256
#define YIELD_TURNS  512
#define SLOW_TURNS   1024
#define SLEEP_NS     50000
#define SLEEP_MAX_NS 250000

/* Of the domain, and of the one of several that it is a member of. */
static uint64_t interrupts(const struct transport_domain *domain)
{
	return atomic_load(&domain->interrupts) +
	       (domain->owner ? atomic_load(&domain->owner->interrupts) : 0);
}

void wait_begin(struct transport_wait *wait, struct transport_domain *domain, uint64_t deadline_ns)
{
	*wait = (struct transport_wait){
		.domain = domain,
		.deadline_ns = deadline_ns,
		.started_ns = clock_ns(),
		.interrupts = interrupts(domain),
		.sleeps = domain->idles,
	};
}

static void pause_for(uint32_t turns)
{
	struct timespec step = {0, SLEEP_NS};

	if (turns < SPIN_TURNS)
		return;
	if (turns < YIELD_TURNS) {
		sched_yield();
		return;
	}
	if (turns >= SLOW_TURNS)
		step.tv_nsec = SLEEP_MAX_NS;
	nanosleep(&step, NULL);
}

bool wait_looks(const struct transport_wait *wait)
{
	return wait->sleeps || wait->turns >= SPIN_TURNS || wait->turns % LOOK_TURNS == 0;
}

int wait_turn(struct transport_wait *wait, struct error *error)
{
	char took[TEXT_SHORT_BYTES];
	uint64_t now;

	if (!wait_looks(wait)) {
		wait->turns++;
		return 0;
	}
	now = clock_ns();
	if (interrupts(wait->domain) != wait->interrupts)
		return error_set(error, ERROR_INTERRUPTED, "interrupted after %s",
				 seconds_text(now - wait->started_ns, took));
	if (now >= wait->deadline_ns)
		return error_set(error, ERROR_TIMEOUT, "deadline passed after %s",
				 seconds_text(now - wait->started_ns, took));
	if (wait->sleeps)
		wait->domain->ops.idle(wait->domain, wait->turns);
	else
		pause_for(wait->turns);
	if (wait->turns < UINT32_MAX / 2)
		wait->turns++;
	return 0;
}
