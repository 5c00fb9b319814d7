/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call into libibverbs fails once, at every turn: the answer is a clean message or a session
 * that is right all the same, and nothing is left behind.
 */
#include "tests/support/verbs_mock_pair.h"

#include "base/clock.h"
#include "base/log.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCHEDULES_NS UINT64_C(5000000000)
#else
#define SCHEDULES_NS UINT64_C(15000000000)
#endif
#define BYTES 20000

static struct verbs_mock_options plain = {.seed = 1, .nics = 2};

static void nothing_left(const char *what, uint64_t at)
{
	if (verbs_mock_alive())
		fail_msg("%s %llu: %d objects or events are left", what, (unsigned long long)at,
			 verbs_mock_alive());
	if (verbs_mock_violations())
		fail_msg("%s %llu: %s", what, (unsigned long long)at, verbs_mock_violation());
	verbs_mock_close();
}

/* The message says which device, where one call on one device failed. */
static void expect_message(const char *call, uint64_t at, int rc, const struct error *error)
{
	if (rc == -ERROR_TIMEOUT || rc == -ERROR_CHECKSUM)
		fail_msg("%s %llu: %s", call, (unsigned long long)at, error->text);
	if (strlen(error->text) < 20 || strstr(error->text, "Success"))
		fail_msg("%s %llu is told as \"%s\"", call, (unsigned long long)at, error->text);
	if (strcmp(call, "get_device_list") && !strstr(error->text, "m0n") &&
	    !strstr(error->text, "m1n"))
		fail_msg("%s %llu is told without a device: \"%s\"", call, (unsigned long long)at,
			 error->text);
}

static void sweep_call(enum verbs_mock_call call, enum verbs_mock_how how, bool send_ops)
{
	struct verbs_mock_options options = plain;
	struct verbs_settings settings;
	bool struck = true;

	options.no_send_ops = !send_ops;
	verbs_pair_settings(&settings);
	for (uint64_t at = 1; struck && at < 3000; at += 1 + at / 4) {
		struct error error = {0};
		int rc;

		options.seed = at;
		verbs_mock_open(&options);
		verbs_mock_fail(call, at, ENOMEM, how, (uint32_t)at % 3);
		rc = verbs_pair_session(&settings, BYTES, 2, &error);
		struck = verbs_mock_failed();
		verbs_mock_fail(call, 0, 0, how, 0);
		if (rc)
			expect_message(verbs_mock_call_name(call), at, rc, &error);
		if (rc && !struck)
			fail_msg("%s: %s", verbs_mock_call_name(call), error.text);
		nothing_left(verbs_mock_call_name(call), at);
	}
}

static void sweep(enum verbs_mock_how how, bool send_ops)
{
	for (int call = 0; call < VERBS_MOCK_CALL_COUNT; call++)
		if (verbs_mock_can_fail((enum verbs_mock_call)call))
			sweep_call((enum verbs_mock_call)call, how, send_ops);
}

static void test_calls__that_fail_once_are_told_and_leave_nothing(void **state)
{
	(void)state;
	sweep(VERBS_MOCK_ERRNO, true);
}

static void test_calls__that_fail_without_an_errno_never_say_success(void **state)
{
	(void)state;
	sweep(VERBS_MOCK_SILENT, false);
}

/* The order in which things land is drawn anew; the bytes are right at every signal. */
static void test_sessions__are_right_in_any_order_that_devices_may_choose(void **state)
{
	uint64_t end = clock_ns() + SCHEDULES_NS, versions = 0;
	struct verbs_settings settings;

	(void)state;
	verbs_pair_settings(&settings);
	for (uint64_t seed = 1; clock_ns() < end; seed++) {
		struct verbs_mock_options options = {.seed = seed,
						     .nics = 1 + seed % 3,
						     .no_send_ops = seed % 2,
						     .infiniband = seed % 5 == 0,
						     .mtu = {seed % 7 ? 4096 : 1024},
						     .steps_per_poll = 1 + seed % 9};
		struct error error = {0};
		struct pair pair;
		int rc;

		settings.qps = 1 + seed % 4;
		verbs_mock_open(&options);
		rc = verbs_pair_open(&pair, &settings, BYTES, &error);
		for (uint64_t version = 1; version <= 500 && !rc; version++, versions++) {
			verbs_mock_seed(seed * 1000 + version);
			rc = verbs_pair_send(&pair, version, verbs_pair_soon(), &error);
			if (!rc)
				rc = verbs_pair_check(&pair, version, verbs_pair_soon(), &error);
		}
		if (rc)
			fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		pair_close(&pair);
		nothing_left("seed", seed);
	}
	print_message("%llu versions\n", (unsigned long long)versions);
	assert_true(versions > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sessions__are_right_in_any_order_that_devices_may_choose),
		cmocka_unit_test(test_calls__that_fail_once_are_told_and_leave_nothing),
		cmocka_unit_test(test_calls__that_fail_without_an_errno_never_say_success),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
