/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.c -- reading a rail's queues: what its thread (thread.c) and the owner, while it posts and
 * polls, both do.
 */
#include "transport/ofi/way.h"

#include <poll.h>
#include <rdma/fi_errno.h>

#define BATCH	 32
#define SLICE_MS 1 /* of the owner's sleep */

static void read_error(struct ofi_rail *rail)
{
	struct fi_cq_err_entry entry = {0};

	if (fi_cq_readerr(rail->cq, &entry, 0) == 1)
		ofi_complete_error(rail, &entry);
}

bool ofi_rail_read(struct ofi_rail *rail)
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
	while (ofi_rail_read(rail))
		;
}

void ofi_rail_progress(struct ofi_rail *rail)
{
	atomic_fetch_add_explicit(&rail->owner_looks, 1, memory_order_relaxed);
	if (pthread_mutex_trylock(&rail->lock))
		return;
	ofi_rail_drain(rail);
	if (atomic_load_explicit(&rail->mend, memory_order_relaxed))
		ofi_rail_mend(rail);
	pthread_mutex_unlock(&rail->lock);
}

bool ofi_rail_may_sleep(struct ofi_rail *rail, bool completions, bool events)
{
	struct fid *fids[2];
	int count = 0, rc;

	if (completions)
		fids[count++] = &rail->cq->fid;
	if (events && rail->eq)
		fids[count++] = &rail->eq->fid;
	pthread_mutex_lock(&rail->lock);
	rc = count ? fi_trywait(rail->fabric, fids, count) : 0;
	pthread_mutex_unlock(&rail->lock);
	return rc == 0;
}

/* The owner waits for completions: it sleeps where they would be told, and takes them itself. */
void ofi_idle(struct transport_domain *domain, uint32_t turns)
{
	struct ofi_domain *ofi = domain->state;
	struct pollfd fds[OFI_RAILS_MAX];

	if (turns < OFI_EMPTY_LOOKS)
		return;
	ofi_each_rail(rail, ofi) {
		fds[rail->index] = (struct pollfd){.fd = rail->cq_fd, .events = POLLIN};
		if (rail->cq_fd >= 0 && !ofi_rail_may_sleep(rail, true, false))
			return;
	}
	poll(fds, ofi->rail_count, SLICE_MS);
}
