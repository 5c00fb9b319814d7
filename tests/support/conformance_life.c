/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance_parts.h"
#include "tests/support/sanitized.h"

#include "base/clock.h"
#include "base/memory.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void endpoint__refuses_before_connect_and_twice(void **state)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_endpoint *fresh = NULL, *back = NULL;
	struct error error;
	struct pair pair;
	size_t length;

	(void)state;
	open_pair(&pair, 4096);
	ok(transport_endpoint_open(pair.a, (struct member){ROLE_INFERENCE, 5}, NULL, &fresh,
				   &error_));
	assert_int_equal(transport_signal(fresh, 1, NULL, 0, soon(), &error), -ERROR_STATE);
	assert_int_equal(transport_flush(fresh, soon(), &error), -ERROR_STATE);
	assert_non_null(strstr(error.text, "inference 5"));
	ok(transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 3}, NULL, &back, &error_));
	ok(transport_endpoint_record(back, record, &length, &error_));
	ok(transport_endpoint_connect(fresh, record, length, soon(), &error_));
	assert_int_equal(transport_endpoint_connect(fresh, record, length, soon(), &error),
			 -ERROR_STATE);
	transport_endpoint_close(&fresh);
	/* a record of an endpoint that is gone: known at connect, or found out by probing */
	transport_endpoint_close(&back);
	assert_int_equal(reach(&pair, record, length, &error), -ERROR_PEER_LOST);
	assert_non_null(strstr(error.text, "inference 5"));
	pair_close(&pair);
}

void probe__again_is_fine_and_before_connect_is_refused(void **state)
{
	struct transport_endpoint *fresh = NULL;
	struct error error;
	struct pair pair;

	(void)state;
	open_pair(&pair, 4096); /* probes both sides */
	ok(transport_endpoint_open(pair.a, (struct member){ROLE_INFERENCE, 5}, NULL, &fresh,
				   &error_));
	assert_int_equal(transport_endpoint_probe(fresh, soon(), &error), -ERROR_STATE);
	assert_non_null(strstr(error.text, "inference 5"));
	transport_endpoint_close(&fresh);
	memset(pair.from, 3, 4096);
	for (int i = 0; i < 3; i++) {
		ok(transport_endpoint_probe(pair.ab, soon(), &error_));
		ok(transport_endpoint_probe(pair.ba, soon(), &error_));
		write_and_signal(&pair, 0, 4096);
	}
	assert_true(all_bytes(pair.to, 4096, 3));
	pair_close(&pair);
}

void probe__of_a_peer_that_has_not_connected_is_an_error(void **state)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_endpoint *fresh = NULL, *back = NULL;
	struct error first = {0}, later = {0};
	struct pair pair;
	size_t length;
	int rc;

	(void)state;
	open_pair(&pair, 4096);
	ok(transport_endpoint_open(pair.a, (struct member){ROLE_INFERENCE, 5}, NULL, &fresh,
				   &error_));
	ok(transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 3}, NULL, &back, &error_));
	ok(transport_endpoint_record(back, record, &length, &error_));
	ok(transport_endpoint_connect(fresh, record, length, soon(), &error_));
	rc = transport_endpoint_probe(fresh, within_ms(50), &first);
	if (!conformance_subject->probes) {
		assert_int_equal(rc, 0); /* connect has probed it */
	} else {
		assert_true(rc == -ERROR_TIMEOUT || rc == -ERROR_PEER_LOST);
		assert_non_null(strstr(first.text, "inference 5"));
		assert_int_equal(transport_signal(fresh, 1, NULL, 0, soon(), &later), rc);
		assert_string_equal(first.text, later.text);
	}
	transport_endpoint_close(&fresh);
	transport_endpoint_close(&back);
	pair_close(&pair);
}

void endpoint__once_broken_keeps_its_first_error(void **state)
{
	struct error first = {0}, later = {0};
	struct pair pair;
	uint64_t done;
	int rc = 0;

	(void)state;
	open_pair(&pair, 4096);
	(void)transport_endpoint_fence(pair.ba, clock_ns() + 1000000, &first);
	rc = transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, 4096, soon(), &first);
	if (!rc)
		rc = transport_flush(pair.ab, soon(), &first);
	if (!rc)
		rc = transport_signal(pair.ab, 1, NULL, 0, soon(), &first);
	assert_true(rc < 0);
	assert_int_equal(rc, -(int)first.code);
	assert_int_equal(
		transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, 1, soon(), &later),
		rc);
	assert_string_equal(first.text, later.text);
	assert_int_equal(transport_flush(pair.ab, soon(), &later), rc);
	assert_int_equal(transport_progress(pair.ab, &done, &later), rc);
	assert_int_equal(transport_signal(pair.ab, 1, NULL, 0, soon(), &later), rc);
	assert_string_equal(first.text, later.text);
	assert_null(transport_remote_pointer(pair.remote));
	pair_close(&pair);
}

/* After the fence returned 0, the peer's stores cannot land, whatever it tries. */
void fence__stops_a_peer_that_let_go(void **state)
{
	struct error error;
	struct pair pair;

	(void)state;
	open_pair(&pair, 4096);
	memset(pair.from, 5, 4096);
	write_and_signal(&pair, 0, 4096);
	transport_endpoint_close(&pair.ab);
	ok(transport_endpoint_fence(pair.ba, soon(), &error_));
	assert_int_equal(transport_signal(pair.ba, 1, NULL, 0, soon(), &error), -ERROR_STATE);
	ok(transport_endpoint_fence(pair.ba, soon(), &error_)); /* again is fine */
	pair_close(&pair);
}

/* The peer is alive and does nothing. Either the fence cannot be had from it in time, or it needs
 * nobody; then whatever the peer does next fails and leaves the memory alone. */
void fence__waits_for_a_peer_or_needs_nobody(void **state)
{
	struct error error = {0};
	struct pair pair;
	int rc;

	(void)state;
	open_pair(&pair, 4096);
	memset(pair.from, 5, 4096);
	write_and_signal(&pair, 0, 4096);
	rc = transport_endpoint_fence(pair.ba, within_ms(20), &error);
	if (transport_endpoint_caps(pair.ba)->fence_waits) {
		assert_int_equal(rc, -ERROR_TIMEOUT);
		assert_non_null(strstr(error.text, "trainer 3"));
		pair_close(&pair);
		return;
	}
	assert_int_equal(rc, 0);
	memset(pair.from, 6, 4096);
	rc = transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, 4096, soon(), &error);
	if (!rc)
		rc = transport_flush(pair.ab, soon(), &error);
	if (!rc)
		rc = transport_signal(pair.ab, 2, NULL, 0, soon(), &error);
	assert_true(rc < 0);
	assert_non_null(strstr(error.text, "inference 5"));
	assert_true(all_bytes(pair.to, 4096, 5));
	pair_close(&pair);
}

void fence__refuses_a_peer_that_comes_later(void **state)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_endpoint *back = NULL;
	struct error error;
	struct pair pair;
	size_t length;

	(void)state;
	open_pair(&pair, 4096);
	ok(transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 3}, NULL, &back, &error_));
	ok(transport_endpoint_record(back, record, &length, &error_));
	ok(transport_endpoint_fence(back, soon(), &error_));
	transport_endpoint_close(&back);
	assert_int_equal(reach(&pair, record, length, &error), -ERROR_PEER_LOST);
	pair_close(&pair);
}

/* All 120 orders; on a slow machine every seventh, among which each of the five is once the first. */
void close__any_order_is_right(void **state)
{
	unsigned step = test_repeats(7) < 7 ? 7 : 1;
	struct pair pair;

	(void)state;
	for (unsigned order = 0; order < 120; order += step) {
		unsigned left[5] = {0, 1, 2, 3, 4}, n = 5, code = order;

		open_pair(&pair, 4096);
		while (n) {
			unsigned at = code % n, which = left[at];

			code /= n;
			left[at] = left[--n];
			if (which == 0)
				transport_remote_close(&pair.remote);
			else if (which == 1)
				transport_endpoint_close(&pair.ab);
			else if (which == 2)
				transport_endpoint_close(&pair.ba);
			else if (which == 3)
				transport_region_close(&pair.target);
			else
				transport_region_close(&pair.source);
		}
		pair_close(&pair); /* tolerates what is gone */
	}
}

#define SESSIONS (SANITIZED ? 200 : 1000)

/* On a machine of ordinary speed. */
void sessions__many_leave_nothing_behind(void **state)
{
	struct conformance_footprint before = {0, 0}, after;
	uint64_t wanted = conformance_subject->sessions ? conformance_subject->sessions : SESSIONS;
	uint64_t many = test_repeats(wanted) < 40 ? 40 : test_repeats(wanted);

	(void)state;
	for (uint64_t i = 0; i < many; i++) {
		if (i == 20)
			before = conformance_footprint();
		ok(conformance_session(conformance_subject, UINT64_C(60000000000), &error_));
	}
	after = conformance_footprint();
	assert_int_equal(after.files, before.files);
	/* an allocator may map a little more; a leak would be one a session */
	assert_true(after.mappings < before.mappings + 40);
}

void session__survives_every_failed_allocation(void **state)
{
	struct conformance_footprint before = conformance_footprint();
	struct error error = {0};
	int rc = -1;

	(void)state;
	for (uint64_t k = 1; rc && k < 500; k++) {
		error.code = ERROR_NONE;
		memory_fail_at(k);
		rc = conformance_session(conformance_subject, UINT64_C(60000000000), &error);
		memory_fail_at(0);
		if (rc)
			assert_int_equal(rc, -ERROR_MEMORY);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(conformance_footprint().files, before.files);
}

void misuse__is_answered(void **state)
{
	struct transport_options options = {.provider_options = conformance_subject->options};
	struct transport_domain *domain = NULL;
	struct transport_region *region = NULL;
	struct transport_endpoint *endpoint = NULL;
	struct transport_remote *remote = NULL;
	struct error error;

	(void)state;
	assert_int_equal(transport_domain_open(&domain, "carrier_pigeon", &options, &error),
			 -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "shm"));
	assert_null(domain);
	ok(transport_domain_open(&domain, conformance_subject->provider, &options, &error_));
	assert_int_equal(transport_region_allocate(domain, 0, &region, &error), -ERROR_USAGE);
	assert_int_equal(transport_region_register(domain, NULL, 5, &region, &error), -ERROR_USAGE);
	assert_int_equal(transport_region_allocate(domain, UINT64_C(1) << 60, &region, &error) < 0,
			 1);
	transport_remote_close(&remote);
	transport_endpoint_close(&endpoint);
	transport_region_close(&region);
	transport_domain_close(&domain);
	transport_domain_close(&domain);
}
