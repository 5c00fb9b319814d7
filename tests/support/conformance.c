/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance_parts.h"

#include "base/clock.h"
#include "tests/support/conformance_process.h"

const struct conformance *conformance_subject;

static uint64_t random_state = 1;

uint64_t conformance_random(uint64_t below)
{
	uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (z ^ z >> 31) % below;
}

void open_pair(struct pair *pair, uint64_t bytes)
{
	struct error error = {0};

	if (pair_open(pair, conformance_subject, bytes, &error))
		fail_msg("%s: %s", conformance_subject->name, error.text);
}

int reach(struct pair *pair, const unsigned char *record, size_t length, struct error *error)
{
	struct transport_endpoint *fresh = NULL;
	int rc;

	ok(transport_endpoint_open(pair->a, (struct member){ROLE_INFERENCE, 5}, NULL, &fresh,
				   &error_));
	rc = transport_endpoint_connect(fresh, record, length, soon(), error);
	if (!rc)
		rc = transport_endpoint_probe(fresh, soon(), error);
	transport_endpoint_close(&fresh);
	return rc;
}

static uint64_t newest(const struct pair *pair)
{
	struct transport_signal signal;

	return transport_signal_read(pair->ba, &signal) == 0 ? signal.sequence : 0;
}

void write_and_signal(struct pair *pair, uint64_t offset, uint64_t bytes)
{
	uint64_t before = newest(pair), end = soon();

	ok(transport_write(pair->ab, pair->from, pair->source, pair->remote, offset, bytes, soon(),
			   &error_));
	ok(transport_flush(pair->ab, soon(), &error_));
	ok(transport_signal(pair->ab, 1, NULL, 0, soon(), &error_));
	while (newest(pair) == before && clock_ns() < end)
		transport_signal_wait(pair->b, UINT64_MAX, clock_ns() + 1000000);
	assert_int_equal(newest(pair), before + 1);
}

void wait_signals(struct transport_domain *domain, uint64_t count)
{
	uint64_t seen = 0, end = soon();

	while (seen < count && clock_ns() < end)
		seen = transport_signal_wait(domain, seen, end);
	assert_int_equal(seen, count);
}

bool all_bytes(const unsigned char *at, uint64_t bytes, unsigned char value)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i] != value)
			return false;
	return true;
}

int conformance_run(const struct conformance *given)
{
#define X(check) cmocka_unit_test(check),
	const struct CMUnitTest tests[] = {CONFORMANCE_CHECKS(X)};
#undef X
	int failed;

	conformance_subject = given;
	failed = cmocka_run_group_tests_name(given->name, tests, NULL, NULL);
	if (given->processes)
		failed += conformance_process_run(given);
	return failed;
}
