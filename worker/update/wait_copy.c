/* SPDX-License-Identifier: Apache-2.0
 *
 * wait_copy.c -- how an inference rank that another one sends what it shows (donor.h) comes from there to trainers:
 *
 *   END         verified, loaded, shown                                          ─┐
 *   ABORT       the donor cannot, or has waited too long                          ├─► trainers are waited for
 *   gone        its process has ended, its engine has left, it is not reached    ─┤
 *   given up    by a mate of this rank, or by it: a later version is asked for   ─┘
 *
 * Nothing that the donor writes may land after that. One that has said END or ABORT has written all; one that was never told
 * where to writes nothing; else its word is waited for, and who does not say it is fenced.
 */
#include "worker/update/wait.h"

#include "base/clock.h"

#include <string.h>

#define FENCE_MS 5000u

bool waiter_hears_no_copy(struct waiter *waiter, const struct transport_signal *signal)
{
	if (!waiter->copies)
		return false;
	waiter->copy_used =
		waiter->copy_used || signal->tag == UPDATE_END || signal->tag == UPDATE_ABORT;
	if (signal->tag == UPDATE_ABORT)
		waiter->now->from->gone = true;
	return signal->tag == UPDATE_ABORT;
}

bool waiter_copy_never_comes(struct waiter *waiter, struct error *error,
			     struct receive_event *event)
{
	struct receiver *receiver = &waiter->receiver;

	if (!receive_is_alone(receiver) && clock_ns() < waiter->copy_until_ns)
		return false;
	receiver->past = waiter->copies > receiver->past ? waiter->copies : receiver->past;
	error_set(error, ERROR_ABORTED,
		  "update %llu was given up: %s, which was to send what it shows, does not",
		  (unsigned long long)waiter->copies, waiter->now->from->name);
	*event = (struct receive_event){.kind = RECEIVE_FAILED, .error = error};
	return true;
}

/* It is here, or never comes. */
static bool is_over(struct waiter *waiter)
{
	uint64_t version = waiter->copies;

	return waiter->receiver.phase == RECEIVE_CLOSED &&
	       (waiter->copy_unwanted || waiter->receiver.past >= version ||
		waiter->mates_past >= version || waiter->versions->prepared >= version ||
		versions_published(waiter->versions) >= version);
}

bool waiter_may_be_copied(const struct waiter *waiter)
{
	return waiter->copies && waiter->now->links[0].opening && !waiter->copy_used;
}

/* That this rank has no use for it; it may have gone. */
static void decline(struct waiter *waiter)
{
	const struct update_accept accept = {.opening = 1,
					     .min_version = waiter->copies + 1,
					     .max_version = waiter->copies + 1,
					     .plan = waiter->epoch->plan->digest,
					     .sums_region = UINT32_MAX,
					     .window_region = UINT32_MAX};
	struct error error;

	if (!waiter->now->links[0].opening && !waiter->now->from->gone)
		transport_signal(waiter->now->from->endpoint, UPDATE_ACCEPT, &accept,
				 sizeof(accept), clock_deadline_ns(WAIT_SLICE_MS), &error);
}

/* 1: its word is waited for; 0: it will not say any. */
static int hear_last(struct waiter *waiter)
{
	struct transport_signal signal;
	struct error error;
	bool broken;

	if (transport_signal_read(waiter->now->from->endpoint, &signal) == 0 &&
	    signal.sequence != waiter->now->seen[0]) {
		waiter->now->seen[0] = signal.sequence;
		waiter_hears_no_copy(waiter, &signal);
	}
	waiter_hear_gone(waiter);
	return waiter_may_be_copied(waiter) && !waiter_misses(waiter, 0, &broken, &error) &&
	       clock_ns() < waiter->copy_until_ns;
}

/* Trainers are waited for after it; or, without block, WEFT_AGAIN: the donor may still write. */
static int end_copy(struct waiter *waiter, bool block, struct error *error)
{
	uint64_t past = waiter->receiver.past;
	int rc;

	decline(waiter);
	while (waiter_may_be_copied(waiter) && hear_last(waiter)) {
		rc = health_check(waiter->health, error);
		if (rc)
			return rc;
		if (!block)
			return WEFT_AGAIN;
		waiter->signals =
			transport_signal_wait(waiter->epoch->options.domain, waiter->signals,
					      clock_deadline_ns(WAIT_SLICE_MS));
	}
	if (waiter_may_be_copied(waiter)) {
		rc = waiter_fence(waiter->now->from, "was to send what it shows",
				  clock_deadline_ns(FENCE_MS), error);
		if (rc)
			return health_fail(waiter->health, error,
					   versions_published(waiter->versions));
	}
	waiter_use(waiter, &waiter->trainers);
	waiter->receiver.past = past > waiter->copies ? past : waiter->copies;
	waiter->copies = 0;
	return 0;
}

int waiter_begin_copy(struct waiter *waiter, uint64_t version, bool block, struct error *error)
{
	if (!waiter->copies)
		return 0;
	if (!waiter->copy_until_ns) /* trainers wait longer for who has not accepted, and the donor less */
		waiter->copy_until_ns = clock_deadline_ns(waiter->epoch->wait_ms / 8 * 7);
	if (version > waiter->copies)
		waiter->copy_unwanted = true;
	return is_over(waiter) ? end_copy(waiter, block, error) : 0;
}
