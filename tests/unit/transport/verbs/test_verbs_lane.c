/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes that die under way, on a mock network of two hosts with two NICs each: what they had
 * not finished arrives by the others, nothing of it lands late, and the last one's death is told.
 */
#include "tests/support/conformance.h"
#include "tests/support/verbs_mock.h"
#include "transport/verbs/verbs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEEDS 24
#define BYTES 100000u

static struct verbs_settings settings;
static struct verbs_options options[2];
static struct pair pair;

#define ok(call)                                                \
	do {                                                    \
		struct error error_ = {0};                      \
                                                                \
		if (call)                                       \
			fail_msg("%s: %s", #call, error_.text); \
	} while (0)

static struct transport_domain *open_host(uint32_t host, struct member self)
{
	struct transport_options how = {.self = self, .secret = 42};
	struct transport_domain *domain = NULL;

	options[host] =
		(struct verbs_options){.calls = verbs_mock_calls(host), .settings = &settings};
	how.provider_options = &options[host];
	ok(transport_domain_open(&domain, "verbs", &how, &error_));
	return domain;
}

static void join(struct transport_endpoint *from, const struct transport_endpoint *to)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;

	ok(transport_endpoint_record(to, record, &length, &error_));
	ok(transport_endpoint_connect(from, record, length, soon(), &error_));
}

static void open_hosts(uint64_t seed)
{
	struct verbs_mock_options mock = {.seed = seed, .nics = 2, .background = true};
	struct member a = {ROLE_TRAINER, 3}, b = {ROLE_INFERENCE, 5};
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;

	verbs_settings_default(&settings);
	settings.qps = 2;
	settings.depth = 16;
	settings.chunk_bytes = 4096;
	settings.new_post = seed % 2 ? VERBS_AUTO : VERBS_OFF;
	verbs_mock_open(&mock);
	pair = (struct pair){.bytes = BYTES, .a = open_host(0, a), .b = open_host(1, b)};
	ok(transport_region_allocate(pair.a, BYTES, &pair.source, &error_));
	ok(transport_region_allocate(pair.b, BYTES, &pair.target, &error_));
	pair.from = transport_region_memory(pair.source);
	pair.to = transport_region_memory(pair.target);
	ok(transport_endpoint_open(pair.a, b, NULL, &pair.ab, &error_));
	ok(transport_endpoint_open(pair.b, a, NULL, &pair.ba, &error_));
	ok(transport_region_export(pair.target, record, &length, &error_));
	join(pair.ab, pair.ba);
	join(pair.ba, pair.ab);
	ok(transport_endpoint_probe(pair.ab, soon(), &error_));
	ok(transport_endpoint_probe(pair.ba, soon(), &error_));
	ok(transport_remote_import(pair.ab, record, length, &pair.remote, &error_));
}

static void close_hosts(void)
{
	pair_close(&pair);
	assert_int_equal(verbs_mock_alive(), 0);
	if (verbs_mock_violations())
		fail_msg("%s", verbs_mock_violation());
	verbs_mock_close();
}

static void write_version(uint32_t version)
{
	for (uint32_t i = 0; i < BYTES; i++)
		pair.from[i] = (unsigned char)(i * 31 + version * 7);
	ok(transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, BYTES, soon(),
			   &error_));
}

static void see_version(uint32_t version)
{
	struct transport_signal signal = {0};
	uint64_t seen = 0;

	ok(transport_signal(pair.ab, version, NULL, 0, soon(), &error_));
	while (transport_signal_read(pair.ba, &signal) != 0 || signal.tag != version)
		seen = transport_signal_wait(pair.b, seen, within_ms(100));
	assert_int_equal(signal.sequence, version);
	assert_memory_equal(pair.to, pair.from, BYTES);
}

static uint32_t ready_lanes(struct transport_endpoint *shared)
{
	const struct verbs_endpoint *endpoint = shared->state;
	uint32_t count = 0;

	for (uint32_t i = 0; i < endpoint->lane_count; i++)
		count += verbs_lane_lives(&endpoint->lanes[i]);
	return count;
}

static void test_lane__that_dies_hands_its_work_to_the_others(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		open_hosts(seed);
		write_version(1);
		see_version(1);
		if (seed % 3 == 0)
			verbs_mock_link(1, 1, false);
		write_version(2);
		if (seed % 3 == 1)
			verbs_mock_link(1, (uint32_t)(seed / 3 % 2), false);
		if (seed % 3 == 2)
			verbs_mock_link(0, (uint32_t)(seed / 3 % 2), false);
		see_version(2);
		write_version(3);
		see_version(3);
		/* the lost NIC's writes of version 2 come out of the network now */
		verbs_mock_deliver_late(true);
		verbs_mock_pump(2000);
		assert_memory_equal(pair.to, pair.from, BYTES);
		write_version(4);
		see_version(4);
		assert_int_equal(ready_lanes(pair.ab), 2);
		close_hosts();
	}
}

static void test_lane__closed_by_the_sender_is_closed_at_the_target_before_the_signal(void **state)
{
	(void)state;
	for (uint64_t seed = 100; seed < 100 + SEEDS / 2; seed++) {
		open_hosts(seed);
		write_version(1);
		verbs_mock_link(1, 1, false);
		see_version(1);
		/* all four lanes, or the lost ones are closed here already */
		if (ready_lanes(pair.ab) == 2)
			assert_int_equal(ready_lanes(pair.ba), 2);
		close_hosts();
	}
}

static void test_lane__the_last_one_breaks_the_endpoint_and_names_the_peer(void **state)
{
	struct error error = {0};
	int rc;

	(void)state;
	open_hosts(7);
	write_version(1);
	see_version(1);
	verbs_mock_link(1, 0, false);
	verbs_mock_link(1, 1, false);
	rc = transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, BYTES, soon(),
			     &error);
	if (!rc)
		rc = transport_flush(pair.ab, soon(), &error);
	assert_true(rc < 0);
	assert_non_null(strstr(error.text, "inference 5"));
	assert_non_null(strstr(error.text, "RETRY_EXC_ERR"));
	close_hosts();
}

static void test_device__that_fails_is_left_for_the_others(void **state)
{
	(void)state;
	for (uint64_t seed = 200; seed < 204; seed++) {
		open_hosts(seed);
		write_version(1);
		see_version(1);
		write_version(2);
		verbs_mock_kill(0, (uint32_t)(seed % 2));
		see_version(2);
		write_version(3);
		see_version(3);
		close_hosts();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lane__that_dies_hands_its_work_to_the_others),
		cmocka_unit_test(
			test_lane__closed_by_the_sender_is_closed_at_the_target_before_the_signal),
		cmocka_unit_test(test_lane__the_last_one_breaks_the_endpoint_and_names_the_peer),
		cmocka_unit_test(test_device__that_fails_is_left_for_the_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
