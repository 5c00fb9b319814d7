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
#define SLICE_MS    1  /* where a queue cannot be slept on */
#define ASIDE_MS    1  /* the owner is at it */
#define EMPTY_LOOKS 64 /* before a sleep, which costs the next arrival a wake-up */

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
	if (rail->eq)
		rail->domain->way->events(rail);
	pthread_mutex_unlock(&rail->lock);
	return found;
}

/* Until something may be there. libfabric says whether its descriptors tell all there is. */
static void sleep_here(struct ofi_rail *rail)
{
	struct fid *fids[2] = {&rail->cq->fid, rail->eq ? &rail->eq->fid : NULL};
	struct pollfd fds[3] = {{.fd = rail->wake_fd, .events = POLLIN},
				{.fd = rail->cq_fd, .events = POLLIN},
				{.fd = rail->eq_fd, .events = POLLIN}};
	int timeout_ms = SLEEP_MS, rc;

	if (rail->cq_fd < 0) {
		timeout_ms = SLICE_MS;
	} else {
		pthread_mutex_lock(&rail->lock);
		rc = fi_trywait(rail->fabric, fids, rail->eq ? 2 : 1);
		pthread_mutex_unlock(&rail->lock);
		if (rc)
			return;
	}
	poll(fds, 3, timeout_ms);
}

static void *rail_thread(void *context)
{
	struct ofi_rail *rail = context;
	uint64_t looks = 0;
	unsigned empty = 0;

	while (!atomic_load(&rail->stop)) {
		uint64_t now = atomic_load_explicit(&rail->owner_looks, memory_order_relaxed);

		if (now != looks) {
			struct pollfd wake = {.fd = rail->wake_fd, .events = POLLIN};

			looks = now;
			empty = 0;
			poll(&wake, 1, ASIDE_MS);
		}
		empty = look(rail) ? 0 : empty + 1;
		if (empty >= EMPTY_LOOKS) {
			sleep_here(rail);
			empty = EMPTY_LOOKS - 1;
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
	uint64_t one = 1;

	if (!rail->has_thread)
		return;
	atomic_store(&rail->stop, true);
	TEMP_FAILURE_RETRY(write(rail->wake_fd, &one, sizeof(one)));
	pthread_join(rail->thread, NULL);
	rail->has_thread = false;
}
