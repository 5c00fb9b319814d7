/* SPDX-License-Identifier: Apache-2.0
 *
 * Provider fault: transparent without a policy (the whole suite passes through it), and with
 * one, every call of a session fails once: each ends in a named error and leaves nothing.
 */
#include "tests/support/conformance.h"
#include "transport/fault/fault.h"
#include "transport/mock/mock.h"
#include "transport/provider.h"

#include "base/clock.h"
#include "base/log.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct mock_options small = {
	.write_bytes_max = 4096, .inflight_max = 4, .rails = 2, .delay_max = 2};

static struct fault_options policy(const char *inner, const char *op, enum fault_kind kind)
{
	struct fault_options options = {.kind = kind};

	snprintf(options.inner, sizeof(options.inner), "%s", inner);
	snprintf(options.op, sizeof(options.op), "%s", op);
	if (strcmp(inner, "mock") == 0)
		options.inner_options = &small;
	return options;
}

static int session(const struct fault_options *options, uint64_t budget_ms, struct error *error)
{
	struct conformance subject = {.name = "fault", .provider = "fault", .options = options};

	*error = (struct error){0};
	return conformance_session(&subject, budget_ms * 1000000, error);
}

/* Until no domain made k calls of the op. Returns how many sessions failed. */
static unsigned sweep(const char *inner, const char *op)
{
	struct fault_options options = policy(inner, op, FAULT_FAIL);
	unsigned failures = 0;
	struct error error;

	for (options.at = 1; options.at < 2000; options.at++) {
		_Atomic uint64_t calls = 0;
		int rc;

		options.calls = &calls;
		rc = session(&options, 20000, &error);
		if (rc) {
			failures++;
			assert_int_equal(rc, -(int)error.code);
			assert_true(error_known(-rc));
			assert_true(strlen(error.text) > 10);
		}
		if (atomic_load(&calls) < options.at)
			return failures;
	}
	fail_msg("the sweep does not end");
	return 0;
}

static void test_fault__every_call_of_a_session_fails_once(void **state)
{
	struct conformance_footprint before, after;
	struct fault_options none = policy("shm", "any", FAULT_NONE);
	struct error error;

	(void)state;
	log_set_level(LOG_LEVEL_ERROR);
	assert_int_equal(session(&none, 20000, &error), 0);
	before = conformance_footprint();
	assert_true(sweep("shm", "any") > 15);
	assert_true(sweep("mock", "any") > 15);
	after = conformance_footprint();
	assert_int_equal(after.files, before.files);
	assert_true(after.mappings < before.mappings + 40);
}

/* Ops that must make the session fail when their first call does. */
static void test_fault__each_op_can_be_named(void **state)
{
	static const char *const ops[] = {"domain_open",   "region_allocate", "region_export",
					  "endpoint_open", "endpoint_record", "endpoint_connect",
					  "remote_import", "post_write",      "post_signal",
					  "poll",	   "settle",	      "endpoint_fence",
					  "signal_read"};
	struct error error;

	(void)state;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct fault_options options = policy("shm", ops[i], FAULT_FAIL);

		options.at = 1;
		assert_int_equal(session(&options, 20000, &error), -ERROR_TRANSPORT);
		if (strcmp(ops[i], "signal_read") != 0)
			assert_non_null(strstr(error.text, ops[i]));
	}
}

static void test_fault__a_dropped_completion_ends_at_the_deadline_with_counts(void **state)
{
	struct fault_options options = policy("shm", "completion", FAULT_DROP);
	struct error error;
	uint64_t began = clock_ns();

	(void)state;
	options.at = 1;
	assert_int_equal(session(&options, 60, &error), -ERROR_TIMEOUT);
	assert_true(clock_ns() - began >= 59000000);
	assert_non_null(strstr(error.text, "inference 5 (here)"));
	assert_non_null(strstr(error.text, "1 of 1 posts (20.0 kB of 20.0 kB)"));
}

static void test_fault__flipped_and_repeated_completions_are_errors(void **state)
{
	struct fault_options flip = policy("shm", "completion", FAULT_FLIP);
	struct fault_options repeat = policy("shm", "completion", FAULT_REPEAT);
	struct error error;

	(void)state;
	flip.at = repeat.at = 1;
	assert_int_equal(session(&flip, 20000, &error), -ERROR_TRANSPORT);
	assert_non_null(strstr(error.text, "flipped"));
	assert_int_equal(session(&repeat, 20000, &error), -ERROR_TRANSPORT);
	assert_non_null(strstr(error.text, "not in flight"));
}

static void test_fault__delayed_completions_only_take_longer(void **state)
{
	struct fault_options options = policy("mock", "completion", FAULT_DELAY);
	struct error error;
	uint64_t began = clock_ns();

	(void)state;
	options.rate = 1;
	options.delay_ms = 10;
	assert_int_equal(session(&options, 20000, &error), 0);
	assert_true(clock_ns() - began >= 10000000);
}

static void test_fault__a_rate_hits_some_and_one_seed_the_same(void **state)
{
	unsigned failed[2] = {0, 0};
	struct error error;

	(void)state;
	for (int run = 0; run < 2; run++)
		for (uint64_t seed = 0; seed < 40; seed++) {
			struct fault_options options = policy("shm", "post_signal", FAULT_FAIL);

			options.rate = 0.5;
			options.seed = seed * 77;
			failed[run] += session(&options, 20000, &error) != 0;
		}
	assert_int_equal(failed[0], failed[1]);
	assert_in_range(failed[0], 5, 35);
}

static void test_fault__the_environment_wraps_a_provider_by_name(void **state)
{
	struct conformance shm = {.name = "shm", .provider = "shm"};
	struct conformance mock = {.name = "mock", .provider = "mock", .options = &small};
	struct error error = {0};

	(void)state;
	setenv("WEFT_FAULT", "inner=shm,op=post_write,at=1,kind=fail", 1);
	assert_int_equal(conformance_session(&shm, UINT64_C(20000000000), &error),
			 -ERROR_TRANSPORT);
	assert_non_null(strstr(error.text, "injected fault: post_write, call 1"));
	assert_int_equal(conformance_session(&mock, UINT64_C(20000000000), &error), 0);
	setenv("WEFT_FAULT", "inner=mock,op=post_signal,at=1", 1);
	assert_int_equal(conformance_session(&mock, UINT64_C(20000000000), &error),
			 -ERROR_TRANSPORT);
	assert_int_equal(conformance_session(&shm, UINT64_C(20000000000), &error), 0);
	setenv("WEFT_FAULT", "inner=shm,op=nonsense", 1);
	assert_int_equal(conformance_session(&shm, 1, &error), -ERROR_CONFIG);
	unsetenv("WEFT_FAULT");
}

static void test_fault__a_wrong_policy_is_named(void **state)
{
	static const char *const wrong[][2] = {
		{"op", "not key=value"},
		{"op=nonsense", "nonsense"},
		{"kind=maybe", "maybe"},
		{"at=-1", "-1"},
		{"rate=2", "2"},
		{"rate=", "rate"},
		{"color=red", "color"},
		{"kind=drop", "completion"},
		{"delay=soon", "soon"},
		{"op=completion,kind=fail", "flip"},
		{"inner=averyveryverylongname", "averyveryverylongname"},
	};
	struct fault_options options;
	struct error error;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(fault_options_parse(&options, wrong[i][0], &error), -ERROR_CONFIG);
		assert_non_null(strstr(error.text, wrong[i][1]));
	}
	assert_int_equal(fault_options_parse(&options,
					     "inner=mock,op=poll,kind=delay,delay=50ms,"
					     "rate=0.25,seed=5",
					     &error),
			 0);
	assert_int_equal(options.delay_ms, 50);
	assert_true(options.rate > 0.24 && options.rate < 0.26);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fault__every_call_of_a_session_fails_once),
		cmocka_unit_test(test_fault__each_op_can_be_named),
		cmocka_unit_test(test_fault__a_dropped_completion_ends_at_the_deadline_with_counts),
		cmocka_unit_test(test_fault__flipped_and_repeated_completions_are_errors),
		cmocka_unit_test(test_fault__delayed_completions_only_take_longer),
		cmocka_unit_test(test_fault__a_rate_hits_some_and_one_seed_the_same),
		cmocka_unit_test(test_fault__the_environment_wraps_a_provider_by_name),
		cmocka_unit_test(test_fault__a_wrong_policy_is_named),
	};
	const struct fault_options shm = policy("shm", "any", FAULT_NONE);
	const struct fault_options mock = policy("mock", "any", FAULT_NONE);
	const struct conformance subjects[] = {
		{.name = "fault over shm", .provider = "fault", .options = &shm, .processes = true},
		{.name = "fault over mock", .provider = "fault", .options = &mock, .probes = true},
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
		failed += conformance_run(&subjects[i]);
	return failed;
}
