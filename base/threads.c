/* SPDX-License-Identifier: Apache-2.0 */
#include "base/threads.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#define NICER 10

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

int threads_start(pthread_t *thread, void *(*body)(void *context), void *context)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(thread, NULL, body, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

void threads_step_back(const char *name)
{
	pthread_setname_np(pthread_self(), name);
	setpriority(PRIO_PROCESS, 0,
		    getpriority(PRIO_PROCESS, 0) + NICER); /* of this thread, on Linux */
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
	uint32_t started = 0;

	while (started < THREADS_MAX && started + 1 < count &&
	       threads_start(&threads[started], run, &work) == 0)
		started++;
	body(context);
	while (started)
		pthread_join(threads[--started], NULL);
}
