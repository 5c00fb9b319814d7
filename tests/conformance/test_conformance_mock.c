/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite over several well-behaved mock networks, and then over networks that break the
 * contract: there the suite's ordering check must find something, or it proves nothing.
 */
#include "tests/support/conformance.h"
#include "transport/mock/mock.h"

#include "base/clock.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct conformance_watch watch;

#define WATCHED .signal_placed = conformance_watch_call, .context = &watch

static const struct mock_options plain = {WATCHED};
static const struct mock_options tiny = {.write_bytes_max = 1000,
					 .inflight_max = 3,
					 .rails = 2,
					 .delay_max = 5,
					 .local_registration = true,
					 WATCHED};
static const struct mock_options early = {.write_bytes_max = 4096,
					  .complete_early = true,
					  .ordered = true,
					  .mapped = true,
					  .rails = 4,
					  WATCHED};
static const struct mock_options overtakes = {
	.write_bytes_max = 4096, .ordered = true, .wrong = MOCK_SIGNAL_OVERTAKES, WATCHED};
static const struct mock_options drops = {
	.write_bytes_max = 4096, .wrong = MOCK_CHUNK_DROPPED, WATCHED};
static const struct mock_options twice = {.wrong = MOCK_COMPLETES_TWICE, .wrong_every = 1};
static const struct mock_options late = {.wrong = MOCK_LATE_LANDS};
static const struct mock_options mute = {.connect_never = true};

static uint64_t violations(const struct mock_options *options, unsigned rounds)
{
	struct conformance subject = {.name = "mock, wrong",
				      .provider = "mock",
				      .options = options,
				      .watch = &watch,
				      .wrong = true};

	return conformance_violations(&subject, rounds);
}

static void test_mock__a_signal_that_overtakes_its_data_is_caught(void **state)
{
	(void)state;
	assert_true(violations(&overtakes, 40) > 0);
}

static void test_mock__a_dropped_chunk_is_caught(void **state)
{
	(void)state;
	assert_true(violations(&drops, 20) > 0);
}

static void test_mock__a_completion_that_comes_twice_is_an_error(void **state)
{
	struct conformance subject = {.provider = "mock", .options = &twice};
	struct error error = {0};

	(void)state;
	assert_int_equal(conformance_session(&subject, UINT64_C(60000000000), &error),
			 -ERROR_TRANSPORT);
	assert_non_null(strstr(error.text, "not in flight"));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LATE_WRITERS 2000
#else
#define LATE_WRITERS 100000
#endif

static void test_mock__late_writes_land_nowhere_in_many_schedules(void **state)
{
	struct conformance subject = {.name = "mock", .provider = "mock", .options = &plain};

	(void)state;
	assert_int_equal(conformance_late_writes(&subject, LATE_WRITERS / 2), 0);
	subject.registered = true;
	assert_int_equal(conformance_late_writes(&subject, LATE_WRITERS / 2), 0);
}

static void test_mock__a_late_write_that_lands_is_caught(void **state)
{
	struct conformance subject = {.name = "mock, wrong",
				      .provider = "mock",
				      .options = &late,
				      .registered = true,
				      .wrong = true};

	(void)state;
	assert_true(conformance_late_writes(&subject, 60) > 0);
}

static void test_mock__a_connect_without_an_answer_ends_at_its_deadline(void **state)
{
	struct transport_options options = {.provider_options = &mute};
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_domain *domain = NULL;
	struct transport_endpoint *endpoint = NULL;
	struct error error = {0}, later = {0};
	uint64_t began = clock_ns();
	size_t length;

	(void)state;
	assert_int_equal(transport_domain_open(&domain, "mock", &options, &error), 0);
	assert_int_equal(transport_endpoint_open(domain, (struct member){ROLE_TRAINER, 0},
						 "trainer 0 (host b)", &endpoint, &error),
			 0);
	assert_int_equal(transport_endpoint_record(endpoint, record, &length, &error), 0);
	assert_int_equal(
		transport_endpoint_connect(endpoint, record, length, began + 20000000, &error),
		-ERROR_TIMEOUT);
	assert_true(clock_ns() - began >= 19000000);
	assert_non_null(strstr(error.text, "trainer 0 (host b)"));
	assert_int_equal(transport_flush(endpoint, soon(), &later), -ERROR_TIMEOUT);
	assert_string_equal(error.text, later.text);
	transport_endpoint_close(&endpoint);
	transport_domain_close(&domain);
}

static void test_mock__one_seed_gives_one_schedule(void **state)
{
	uint64_t left[2][20];

	(void)state;
	for (int run = 0; run < 2; run++) {
		struct mock_network *network = NULL;
		struct mock_options options = {.write_bytes_max = 256, .inflight_max = 64};
		struct conformance subject = {.provider = "mock", .options = &options};
		struct error error = {0};
		struct pair pair;

		assert_int_equal(mock_network_open(&network, 99, &error), 0);
		options.network = network;
		assert_int_equal(pair_open(&pair, &subject, 4096, &error), 0);
		assert_int_equal(transport_write(pair.ab, pair.from, pair.source, pair.remote, 0,
						 4096, soon(), &error),
				 0);
		for (int i = 0; i < 20; i++)
			left[run][i] = mock_pump(network, 1);
		pair_close(&pair);
		mock_network_close(&network);
	}
	assert_memory_equal(left[0], left[1], sizeof(left[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mock__a_signal_that_overtakes_its_data_is_caught),
		cmocka_unit_test(test_mock__a_dropped_chunk_is_caught),
		cmocka_unit_test(test_mock__a_completion_that_comes_twice_is_an_error),
		cmocka_unit_test(test_mock__late_writes_land_nowhere_in_many_schedules),
		cmocka_unit_test(test_mock__a_late_write_that_lands_is_caught),
		cmocka_unit_test(test_mock__a_connect_without_an_answer_ends_at_its_deadline),
		cmocka_unit_test(test_mock__one_seed_gives_one_schedule),
	};
	const struct conformance subjects[] = {
		{.name = "mock",
		 .provider = "mock",
		 .options = &plain,
		 .probes = true,
		 .watch = &watch},
		{.name = "mock, tiny limits",
		 .provider = "mock",
		 .options = &tiny,
		 .registered = true,
		 .probes = true,
		 .watch = &watch},
		{.name = "mock, early completions",
		 .provider = "mock",
		 .options = &early,
		 .probes = true,
		 .watch = &watch},
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
		failed += conformance_run(&subjects[i]);
	return failed;
}
