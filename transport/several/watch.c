/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.c -- sleeping until a signal comes, whichever member it comes by. No two providers wait for the
 * same thing (a futex, a device's descriptor), so a thread sleeps in each and rings one doorbell.
 */
#include "transport/several/several.h"

#include "base/clock.h"
#include <signal.h>

static void *watch(void *context)
{
	const struct watcher *watcher = context;
	struct several *several = watcher->several;
	uint64_t seen = 0;

	pthread_setname_np(pthread_self(), "weft-signals");
	while (!atomic_load(&several->stop)) {
		uint64_t now = transport_signal_wait(watcher->member, seen, UINT64_MAX);

		if (now == seen)
			continue; /* woken for something else */
		atomic_fetch_add(&several->doorbell.count, now - seen - 1);
		doorbell_ring(&several->doorbell);
		seen = now;
	}
	return NULL;
}

int several_watch(struct several *several, struct error *error)
{
	sigset_t all, before;
	int rc = 0;

	if (several->count < 2)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (several->watching < several->count && !rc) {
		struct watcher *watcher = &several->watchers[several->watching];

		watcher->several = several;
		watcher->member = several->members[several->watching];
		rc = pthread_create(&watcher->thread, NULL, watch, watcher);
		several->watching += !rc;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc)
		return 0;
	several_unwatch(several);
	return error_set_errno(error, ERROR_LIMIT, rc,
			       "a thread that waits for signals of transport %s",
			       several->members[several->watching]->wire_name);
}

void several_unwatch(struct several *several)
{
	atomic_store(&several->stop, true);
	for (uint32_t i = 0; i < several->watching; i++)
		transport_domain_interrupt(several->watchers[i].member);
	for (uint32_t i = 0; i < several->watching; i++)
		pthread_join(several->watchers[i].thread, NULL);
}

uint64_t several_signal_wait(struct transport_domain *domain, uint64_t seen, uint64_t deadline_ns)
{
	struct several *several = domain->state;
	struct transport_domain *only = several->members[0];

	if (several->count == 1) /* an interrupt of the whole is one of the member */
		return only->ops.signal_wait(only, seen, deadline_ns);
	return doorbell_wait(&several->doorbell, seen, deadline_ns, &domain->interrupt_pending);
}

/* Calls on the members' endpoints look at the whole's interrupts themselves (wait.c). */
void several_domain_wake(struct transport_domain *domain)
{
	struct several *several = domain->state;

	for (uint32_t i = 0; i < several->count; i++)
		transport_domain_wake(several->members[i]);
	doorbell_wake(&several->doorbell);
}
