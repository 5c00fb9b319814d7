/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.c -- who reads a rail's queues: its thread, and the owner while it posts and polls.
 *
 *   target   the thread sleeps on the queues' descriptors; what arrives is placed by its reads
 *   sender   the owner reads them itself after each post. Two who take turns at it would only wait
 *            for each other's locks, so the thread stands aside while the owner looks.
 */
#include "transport/ofi/way.h"

#include "base/log.h"
#include <errno.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <unistd.h>

#define BATCH	    32
#define SLEEP_MS    1000
#define SLICE_MS    1 /* where a queue cannot be slept on, and of the owner's sleep */
#define ASIDE_MS    1 /* the owner is at it */
#define EMPTY_LOOKS 2 /* before a sleep, which costs the next arrival a wake-up */

static void read_error(struct ofi_rail *rail)
{
	struct fi_cq_err_entry entry = {0};

	if (fi_cq_readerr(rail->cq, &entry, 0) == 1)
		ofi_complete_error(rail, &entry);
}

/* True: there was something. */
static bool read_batch(struct ofi_rail *rail)
{
	struct fi_cq_data_entry entries[BATCH];
	ssize_t n = fi_cq_read(rail->cq, entries, BATCH);

	if (n == -FI_EAVAIL) {
		read_error(rail);
		return true;
	}
	if (n < 0 && n != -FI_EAGAIN && n != -FI_EINTR)
		ofi_rail_failed(rail, (int)-n);
	for (ssize_t i = 0; i < n; i++)
		ofi_complete(rail, &entries[i]);
	return n > 0;
}

void ofi_rail_drain(struct ofi_rail *rail)
{
	while (read_batch(rail))
		;
}

void ofi_rail_progress(struct ofi_rail *rail)
{
	atomic_fetch_add_explicit(&rail->owner_looks, 1, memory_order_relaxed);
	if (pthread_mutex_trylock(&rail->lock))
		return;
	ofi_rail_drain(rail);
	pthread_mutex_unlock(&rail->lock);
}

static bool look(struct ofi_rail *rail)
{
	bool found;

	pthread_mutex_lock(&rail->lock);
	found = read_batch(rail);
	pthread_mutex_unlock(&rail->lock);
	return found;
}

static void look_at_events(struct ofi_rail *rail)
{
	pthread_mutex_lock(&rail->lock);
	rail->domain->way->events(rail);
	pthread_mutex_unlock(&rail->lock);
}

/* libfabric says whether its descriptors tell all there is; false: there is something. */
static bool may_sleep(struct ofi_rail *rail, bool events)
{
	struct fid *fids[2] = {&rail->cq->fid, rail->eq ? &rail->eq->fid : NULL};
	int rc;

	pthread_mutex_lock(&rail->lock);
	rc = fi_trywait(rail->fabric, fids, rail->eq && events ? 2 : 1);
	pthread_mutex_unlock(&rail->lock);
	return rc == 0;
}

/* Until something may be there. */
static void sleep_here(struct ofi_rail *rail)
{
	struct pollfd fds[3] = {{.fd = rail->wake_fd, .events = POLLIN},
				{.fd = rail->cq_fd, .events = POLLIN},
				{.fd = rail->eq_fd, .events = POLLIN}};
	bool blind = rail->cq_fd < 0;

	if ((blind || may_sleep(rail, true)) && poll(fds, 3, blind ? SLICE_MS : SLEEP_MS) >= 0 &&
	    !fds[2].revents)
		return;
	if (rail->eq)
		look_at_events(rail);
}

/* The owner waits for completions: it sleeps where they would be told, and takes them itself. */
void ofi_idle(struct transport_domain *domain, uint32_t turns)
{
	struct ofi_domain *ofi = domain->state;
	struct pollfd fds[OFI_RAILS_MAX];

	if (turns < EMPTY_LOOKS)
		return;
	ofi_each_rail(rail, ofi) {
		fds[rail->index] = (struct pollfd){.fd = rail->cq_fd, .events = POLLIN};
		if (rail->cq_fd >= 0 && !may_sleep(rail, false))
			return;
	}
	poll(fds, ofi->rail_count, SLICE_MS);
}

static void wake(struct ofi_rail *rail)
{
	uint64_t one = 1;

	TEMP_FAILURE_RETRY(write(rail->wake_fd, &one, sizeof(one))); /* EAGAIN: it is set already */
}

void ofi_thread_recall(struct ofi_rail *rail)
{
	if (atomic_exchange(&rail->aside, false))
		wake(rail);
}

static void stand_aside(struct ofi_rail *rail)
{
	struct pollfd fd = {.fd = rail->wake_fd, .events = POLLIN};
	uint64_t count;

	atomic_store(&rail->aside, true);
	poll(&fd, 1, ASIDE_MS);
	if (!atomic_exchange(&rail->aside, false) && !atomic_load(&rail->stop))
		TEMP_FAILURE_RETRY(read(rail->wake_fd, &count, sizeof(count)));
}

static void *rail_thread(void *context)
{
	struct ofi_rail *rail = context;
	uint64_t looks = 0;
	unsigned empty = 0;

	while (!atomic_load(&rail->stop)) {
		uint64_t now = atomic_load_explicit(&rail->owner_looks, memory_order_relaxed);

		if (now != looks) {
			looks = now;
			empty = 0;
			stand_aside(rail);
			if (rail->eq)
				look_at_events(rail);
		}
		empty = look(rail) ? 0 : empty + 1;
		if (empty >= EMPTY_LOOKS) {
			sleep_here(rail);
			empty = 0;
		}
	}
	return NULL;
}

int ofi_thread_start(struct ofi_rail *rail, struct error *error)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&rail->thread, NULL, rail_thread, rail);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return error_set_errno(error, ERROR_LIMIT, rc, "%s: a thread for %s",
				       rail->domain->name, rail->interface.name);
	rail->has_thread = true;
	return 0;
}

void ofi_thread_stop(struct ofi_rail *rail)
{
	if (!rail->has_thread)
		return;
	atomic_store(&rail->stop, true);
	wake(rail);
	pthread_join(rail->thread, NULL);
	rail->has_thread = false;
}
