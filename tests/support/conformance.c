/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance_parts.h"

#include "tests/support/conformance_process.h"

const struct conformance *conformance_subject;

static uint64_t random_state = 1;

uint64_t random_below(uint64_t below)
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

void write_and_signal(struct pair *pair, uint64_t offset, uint64_t bytes)
{
	ok(transport_write(pair->ab, pair->from, pair->source, pair->remote, offset, bytes, soon(),
			   &error_));
	ok(transport_flush(pair->ab, soon(), &error_));
	ok(transport_signal(pair->ab, 1, NULL, 0, soon(), &error_));
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
