/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_parts.h -- what the files of the suite share: the subject, its checks, and a pair
 * whose failures end the check.
 */
#ifndef TESTS_SUPPORT_CONFORMANCE_PARTS_H
#define TESTS_SUPPORT_CONFORMANCE_PARTS_H

#include "tests/support/conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

extern const struct conformance *conformance_subject;

#define CONFORMANCE_CHECKS(X) \
	X(write__moves_exactly_its_bytes_at_any_size) \
	X(write__counts_what_is_done_in_order) \
	X(write__refuses_what_lies_outside_and_stays_usable) \
	X(write_rows__gathers_them_where_they_lie_or_refuses) \
	X(signal__carries_tag_payload_and_sequence) \
	X(signal__that_is_only_posted_comes_and_the_next_waits_for_it) \
	X(signal__is_never_seen_before_its_data) \
	X(signal__goes_both_ways_at_once) \
	X(signal__payload_is_never_torn) \
	X(signal__wakes_a_waiting_thread) \
	X(interrupt__ends_a_wait_now_or_the_next) \
	X(endpoints__many_writers_and_targets_do_not_mix) \
	X(endpoints__hundreds_fit_in_one_domain) \
	X(records__garbled_or_cut_are_refused) \
	X(records__of_another_job_or_peer_are_refused) \
	X(endpoint__refuses_before_connect_and_twice) \
	X(endpoint__once_broken_keeps_its_first_error) \
	X(probe__again_is_fine_and_before_connect_is_refused) \
	X(probe__of_a_peer_that_has_not_connected_is_an_error) \
	X(fence__stops_a_peer_that_let_go) \
	X(fence__waits_for_a_peer_or_needs_nobody) \
	X(fence__refuses_a_peer_that_comes_later) \
	X(late_write__never_lands_in_memory_that_is_used_again) \
	X(pointer__stores_count_as_written) \
	X(mapped__memory_that_is_kept_is_there_again) \
	X(mapped__much_memory_that_is_kept_for_nothing_is_unmapped) \
	X(close__any_order_is_right) \
	X(session__survives_every_failed_allocation) \
	X(sessions__many_leave_nothing_behind) \
	X(misuse__is_answered)

#define X(check) void check(void **state);
CONFORMANCE_CHECKS(X)
#undef X

#define ok(call)                                                                               \
	do {                                                                                   \
		struct error error_ = {0};                                                     \
		int rc_ = (call);                                                              \
                                                                                               \
		if (rc_)                                                                       \
			fail_msg("%s: %s: %s", conformance_subject->name, #call, error_.text); \
	} while (0)

void open_pair(struct pair *pair, uint64_t bytes);
/* A fresh endpoint of a to a record: connected and probed, or the first error. */
int reach(struct pair *pair, const unsigned char *record, size_t length, struct error *error);

/* Waits until exactly that many signals have come to the domain. The sender's call may return a
 * moment before the target's processor can see the signal. */
void wait_signals(struct transport_domain *domain, uint64_t count);

/* Until the target has seen the signal: only who has may look at the bytes. */
void write_and_signal(struct pair *pair, uint64_t offset, uint64_t bytes);
bool all_bytes(const unsigned char *at, uint64_t bytes, unsigned char value);
uint64_t conformance_random(uint64_t below);

#endif
