/* SPDX-License-Identifier: Apache-2.0 */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

struct work {
	void (*body)(void *context);
	void *context;
};

uint32_t threads_here(void)
{
	uint32_t count = 1;
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		count = (uint32_t)CPU_COUNT(&cpus);
	return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : count;
}

static void *run(void *context)
{
	const struct work *work = context;

	work->body(work->context);
	return NULL;
}

void threads_run(uint32_t count, void (*body)(void *context), void *context)
{
	struct work work = {body, context};
	pthread_t threads[THREADS_MAX];
	sigset_t all, before;
	uint32_t started = 0;

	if (count > 1) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		while (started < THREADS_MAX && started + 1 < count &&
		       pthread_create(&threads[started], NULL, run, &work) == 0)
			started++;
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	body(context);
	while (started)
		pthread_join(threads[--started], NULL);
}
