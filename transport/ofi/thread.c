/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.c -- the threads that look after rails while their owner does not.
 *
 *   target   the thread sleeps on the queues' descriptors; what arrives is placed by its reads
 *   sender   the owner reads the queues itself after each post. Two who take turns at it would only
 *            wait for each other's locks, so the thread stands aside from the rails that it looks at.
 *
 * A byte is copied by whoever reads its queue, so more threads copy more where there are processors
 * for them; where there are few, threads of one process that wake each other by turns cost more than
 * they bring. Half of the processors: the other half is the other side's, or the host's program's.
 */
#include "transport/ofi/way.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SLEEP_MS 1000
#define SLICE_MS 1 /* where a queue cannot be slept on, and while the owner is at one */
#define LEFT	 2 /* slices in which the owner did not look: it does something else */

/* What one thread knows of its rails; by their index in the domain. */
struct watch {
	struct ofi_thread *thread;
	uint64_t looks[OFI_RAILS_MAX]; /* of the owner */
	unsigned aside[OFI_RAILS_MAX]; /* slices that are still left to the owner */
};

static bool with_owner(struct watch *watch, const struct ofi_rail *rail)
{
	uint64_t now = atomic_load_explicit(&rail->owner_looks, memory_order_relaxed);

	if (now != watch->looks[rail->index]) {
		watch->looks[rail->index] = now;
		watch->aside[rail->index] = LEFT;
	}
	return watch->aside[rail->index] > 0;
}

static bool look(struct ofi_rail *rail)
{
	bool found;

	pthread_mutex_lock(&rail->lock);
	found = ofi_rail_read(rail);
	if (atomic_load_explicit(&rail->mend, memory_order_relaxed))
		ofi_rail_mend(rail);
	pthread_mutex_unlock(&rail->lock);
	return found;
}

/* At all of its rails but those that the owner looks at. True: there was something. */
static bool look_at_all(struct watch *watch)
{
	bool found = false;

	ofi_each_watched(rail, watch->thread)
		if (!with_owner(watch, rail))
			found |= look(rail);
	return found;
}

static void look_at_events(struct ofi_rail *rail)
{
	pthread_mutex_lock(&rail->lock);
	rail->domain->way->events(rail);
	pthread_mutex_unlock(&rail->lock);
}

/* What is slept on, and which of it tells of a rail's events. */
struct bed {
	struct pollfd fds[1 + 2 * OFI_RAILS_MAX];
	struct ofi_rail *events[1 + 2 * OFI_RAILS_MAX];
	nfds_t count;
	int ms; /* 0: there is something already */
};

static void add(struct bed *bed, int fd, struct ofi_rail *events)
{
	bed->fds[bed->count] = (struct pollfd){.fd = fd, .events = POLLIN};
	bed->events[bed->count++] = events;
}

static void make_bed(struct watch *watch, struct bed *bed)
{
	bool aside = false;

	bed->count = 0;
	bed->ms = SLEEP_MS;
	add(bed, watch->thread->wake_fd, NULL);
	ofi_each_watched(rail, watch->thread) {
		bool owners = with_owner(watch, rail), sleeps = rail->cq_fd >= 0 && !owners;

		aside |= owners;
		if (bed->ms && (owners || rail->cq_fd < 0 || atomic_load(&rail->mend)))
			bed->ms = SLICE_MS;
		if (!ofi_rail_may_sleep(rail, sleeps, true))
			bed->ms = 0;
		add(bed, sleeps ? rail->cq_fd : -1, NULL);
		add(bed, rail->eq_fd, rail->eq ? rail : NULL);
	}
	atomic_store(&watch->thread->aside, aside);
}

/* The owner sleeps from now on, whatever it looked at before. */
static bool recalled(struct watch *watch)
{
	if (!atomic_exchange(&watch->thread->recalled, false))
		return false;
	ofi_each_watched(rail, watch->thread) {
		watch->looks[rail->index] = atomic_load(&rail->owner_looks);
		watch->aside[rail->index] = 0;
	}
	return true;
}

/* Until something may be there, or it may be time to look after a rail again. */
static void sleep_here(struct watch *watch)
{
	struct bed bed;
	uint64_t woken;

	make_bed(watch, &bed);
	if (recalled(watch))
		return;
	if (bed.ms && poll(bed.fds, bed.count, bed.ms) > 0 && bed.fds[0].revents)
		TEMP_FAILURE_RETRY(read(watch->thread->wake_fd, &woken, sizeof(woken)));
	for (nfds_t i = 0; i < bed.count; i++)
		if (bed.events[i] && (!bed.ms || bed.fds[i].revents))
			look_at_events(bed.events[i]);
	ofi_each_watched(rail, watch->thread)
		if (watch->aside[rail->index])
			watch->aside[rail->index]--;
	recalled(watch);
}

static void *thread_main(void *context)
{
	struct watch watch = {.thread = context};
	unsigned empty = 0;

	while (!atomic_load(&watch.thread->stop)) {
		empty = look_at_all(&watch) ? 0 : empty + 1;
		if (empty >= OFI_EMPTY_LOOKS) {
			sleep_here(&watch);
			empty = 0;
		}
	}
	return NULL;
}

/* ---- for the owner ---- */

static void wake(struct ofi_thread *thread)
{
	uint64_t one = 1;

	TEMP_FAILURE_RETRY(
		write(thread->wake_fd, &one, sizeof(one))); /* EAGAIN: it is set already */
}

void ofi_thread_wake(struct ofi_rail *rail)
{
	struct ofi_domain *domain = rail->domain;

	if (domain->thread_count)
		wake(&domain->threads[rail->index % domain->thread_count]);
}

void ofi_threads_recall(struct ofi_domain *domain)
{
	for (uint32_t i = 0; i < domain->thread_count; i++) {
		struct ofi_thread *thread = &domain->threads[i];

		atomic_store(&thread->recalled, true);
		if (atomic_load(&thread->aside))
			wake(thread);
	}
}

static uint32_t processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : (uint32_t)CPU_COUNT(&set);
}

static int start(struct ofi_thread *thread, struct error *error)
{
	sigset_t all, before;
	int rc;

	thread->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (thread->wake_fd < 0)
		return error_set_errno(error, ERROR_LIMIT, errno,
				       "%s: no file descriptor is left: raise ulimit -n",
				       thread->domain->name);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&thread->id, NULL, thread_main, thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc)
		return 0;
	close(thread->wake_fd);
	return error_set_errno(error, ERROR_LIMIT, rc, "%s: a thread for its streams",
			       thread->domain->name);
}

int ofi_threads_start(struct ofi_domain *domain, struct error *error)
{
	uint32_t wanted = processors() / 2;
	int rc = 0;

	wanted = wanted < 1 ? 1 : wanted > domain->rail_count ? domain->rail_count : wanted;
	while (domain->thread_count < wanted && !rc) {
		struct ofi_thread *thread = &domain->threads[domain->thread_count];

		thread->domain = domain;
		thread->index = domain->thread_count;
		thread->stride = wanted;
		rc = start(thread, error);
		if (!rc)
			domain->thread_count++;
	}
	return rc;
}

void ofi_threads_stop(struct ofi_domain *domain)
{
	while (domain->thread_count) {
		struct ofi_thread *thread = &domain->threads[--domain->thread_count];

		atomic_store(&thread->stop, true);
		wake(thread);
		pthread_join(thread->id, NULL);
		close(thread->wake_fd);
	}
}
