/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c -- sleeping until a signal comes, by any number of threads.
 *
 *   one thread (wait_lock)   poll(2): wake_fd, and of each NIC the channel and the async events
 *   all others               the doorbell, in short slices: one of them takes over when the
 *                            sleeper leaves
 *
 * The sleeper asks for an event first, then looks once more, then sleeps: what came before it
 * asked makes no event.
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define SLICE_NS 5000000u
#define FDS_MAX	 (1 + 2 * VERBS_NICS_MAX)

static int arm(struct verbs_domain *domain, struct error *error)
{
	verbs_each_nic(nic, domain) {
		int rc = domain->calls->req_notify_cq(nic->receive_cq, 0);

		if (rc && !atomic_load(&nic->lost))
			return verbs_step_error(error, VERBS_STEP_NOTIFY, nic->limits.name,
						verbs_errno(rc), "asking to be told of signals");
	}
	return 0;
}

/* The channel has an event: take it, so that the next sleep does not end at once. */
static void take_event(struct verbs_nic *nic)
{
	struct ibv_cq *cq;
	void *user;

	if (nic->domain->calls->get_cq_event(nic->channel, &cq, &user))
		return;
	nic->domain->calls->ack_cq_events(cq, 1);
}

static void take_wakes(int fd)
{
	uint64_t count;

	TEMP_FAILURE_RETRY(read(fd, &count, sizeof(count)));
}

/* fds[0] is wake_fd, then channel and async of each NIC. A broken domain has nothing to say: only
 * its deadline and an interrupt end the wait. */
static nfds_t descriptors(const struct verbs_domain *domain, struct pollfd fds[FDS_MAX])
{
	nfds_t n = 0;

	fds[n++] = (struct pollfd){.fd = domain->wake_fd, .events = POLLIN};
	if (atomic_load(&domain->is_broken))
		return n;
	verbs_each_nic(nic, domain) {
		bool lost = atomic_load(&nic->lost); /* its descriptors are readable for good */

		fds[n++] = (struct pollfd){.fd = lost ? -1 : nic->channel->fd, .events = POLLIN};
		fds[n++] =
			(struct pollfd){.fd = lost ? -1 : nic->context->async_fd, .events = POLLIN};
	}
	return n;
}

/* Holds wait_lock. Returns when there may be something to see. */
static void sleep_here(struct transport_domain *shared, uint64_t seen, uint64_t deadline_ns)
{
	struct verbs_domain *domain = shared->state;
	struct pollfd fds[FDS_MAX];
	struct error error = {0};
	bool async = false;
	nfds_t n;

	if (!atomic_load(&domain->is_broken) && arm(domain, &error))
		verbs_domain_break(domain, &error);
	verbs_receive(domain);
	if (atomic_load(&domain->doorbell.count) != seen || atomic_load(&shared->interrupt_pending))
		return;
	n = descriptors(domain, fds);
	if (poll(fds, n, clock_left_ms(deadline_ns)) <= 0)
		return;
	if (fds[0].revents)
		take_wakes(domain->wake_fd);
	for (nfds_t i = 1; i < n; i++) {
		if (!fds[i].revents)
			continue;
		if (i % 2)
			take_event(&domain->nics[(i - 1) / 2]);
		else
			async = true;
	}
	if (async)
		verbs_events(domain);
}

/* Another thread sleeps on the descriptors; it rings the doorbell when it counts a signal. */
static void sleep_aside(struct verbs_domain *domain, uint64_t seen, uint64_t deadline_ns)
{
	_Atomic uint32_t never = 0; /* interrupts are looked at by the caller */
	uint64_t slice = clock_ns() + SLICE_NS;

	doorbell_wait(&domain->doorbell, seen, slice < deadline_ns ? slice : deadline_ns, &never);
}

uint64_t verbs_signal_wait(struct transport_domain *shared, uint64_t seen, uint64_t deadline_ns)
{
	struct verbs_domain *domain = shared->state;
	uint64_t count;

	for (;;) {
		verbs_receive(domain);
		count = atomic_load(&domain->doorbell.count);
		if (count != seen || clock_ns() >= deadline_ns ||
		    atomic_exchange(&shared->interrupt_pending, 0))
			return count;
		if (pthread_mutex_trylock(&domain->wait_lock) == 0) {
			sleep_here(shared, seen, deadline_ns);
			pthread_mutex_unlock(&domain->wait_lock);
		} else {
			sleep_aside(domain, seen, deadline_ns);
		}
	}
}
