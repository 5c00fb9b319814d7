/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks that change while bytes move: links and devices that die, late packets, events of every
 * kind, addresses that move, completions that nobody asked for, and many peers.
 */
#include "tests/support/verbs_mock_pair.h"

#include "base/clock.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS	   20
#define RECONNECTS 100
#define PEERS	   64
#else
#define SEEDS	   200
#define RECONNECTS 1000
#define PEERS	   256
#endif
#define BYTES 40000

static struct verbs_settings settings;
static struct pair pair;

static void begin(const struct verbs_mock_options *options)
{
	struct error error = {0};

	verbs_pair_settings(&settings);
	verbs_mock_open(options);
	if (verbs_pair_open(&pair, &settings, BYTES, &error))
		fail_msg("seed %llu: %s", (unsigned long long)options->seed, error.text);
}

static void end(uint64_t seed)
{
	pair_close(&pair);
	if (verbs_mock_alive() || verbs_mock_violations())
		fail_msg("seed %llu: %d left, %s", (unsigned long long)seed, verbs_mock_alive(),
			 verbs_mock_violation());
	verbs_mock_close();
}

static void send_right(uint64_t seed, uint64_t version)
{
	struct error error = {0};
	int rc = verbs_pair_send(&pair, version, verbs_pair_soon(), &error);

	if (!rc)
		rc = verbs_pair_check(&pair, version, verbs_pair_soon(), &error);
	if (rc)
		fail_msg("seed %llu, version %llu: %s", (unsigned long long)seed,
			 (unsigned long long)version, error.text);
}

/* Breaks something at a random moment of a transfer: when the network has made so many steps. */
struct moment {
	uint64_t steps;
	void (*trouble)(void);
};

static void at_moment(void *context)
{
	struct moment *moment = context;

	if (moment->steps && --moment->steps == 0)
		moment->trouble();
}

static void lose_link(void)
{
	verbs_mock_link(0, 1, false);
}

static void kill_local(void)
{
	verbs_mock_kill(0, 1);
}

static void kill_remote(void)
{
	verbs_mock_kill(1, 0);
}

/* The bytes of one version are right by way of what is left, or the error is a clean one. */
static uint32_t lose_something(void (*trouble)(void), uint64_t seeds)
{
	uint32_t arrived = 0;

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct verbs_mock_options options = {.seed = seed, .nics = 2};
		struct moment moment = {1 + seed * 7 % 300, trouble};
		struct error error = {0};
		int rc;

		begin(&options);
		send_right(seed, 1);
		verbs_mock_watch(at_moment, &moment);
		rc = verbs_pair_send(&pair, 2, verbs_pair_soon(), &error);
		if (!rc)
			rc = verbs_pair_check(&pair, 2, verbs_pair_soon(), &error);
		if (rc == -ERROR_TIMEOUT || rc == -ERROR_CHECKSUM || (rc && !error.text[0]))
			fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		arrived += !rc;
		verbs_mock_watch(NULL, NULL);
		end(seed);
	}
	return arrived;
}

static void test_link__lost_in_the_middle_of_a_transfer_leaves_the_other_one(void **state)
{
	(void)state;
	assert_int_equal(lose_something(lose_link, SEEDS), SEEDS);
}

static void test_device__lost_in_the_middle_of_a_transfer_is_no_hang(void **state)
{
	(void)state;
	/* few: its completions never come, and 2 s are waited for them */
	lose_something(kill_local, 10);
	lose_something(kill_remote, 10);
}

/* Completions never come, for nobody takes the signals. */
static int send_in_vain(uint32_t ports_down, uint64_t wait_ns, struct error *error)
{
	struct verbs_mock_options options = {.seed = 13, .nics = 2};
	int rc;

	begin(&options);
	verbs_mock_receives_hide(true);
	for (uint32_t nic = 0; nic < ports_down; nic++)
		assert_true(verbs_mock_event(0, nic, IBV_EVENT_PORT_ERR, 1));
	rc = verbs_pair_send(&pair, 1, clock_ns() + wait_ns, error);
	verbs_mock_receives_hide(false);
	end(13);
	return rc;
}

static void
test_ports__that_all_have_no_link_are_told_though_the_device_reports_nothing(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(send_in_vain(1, 300000000, &error), -ERROR_TIMEOUT);
	assert_int_equal(send_in_vain(2, 60000000000, &error), -ERROR_TRANSPORT);
	if (!strstr(error.text, "the sending port has no link") || !strstr(error.text, "m0n"))
		fail_msg("%s", error.text);
}

/* What was sent over a lane that died is delivered as late as it can be; the next version must
 * never show a byte of it. */
static void test_late_packets__never_land_in_a_later_version(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct verbs_mock_options options = {.seed = seed, .nics = 2};
		struct moment moment = {1 + seed * 11 % 250, lose_link};

		begin(&options);
		send_right(seed, 1);
		verbs_mock_watch(at_moment, &moment);
		send_right(seed, 2);
		verbs_mock_watch(NULL, NULL);
		send_right(seed, 3);
		verbs_mock_deliver_late(true);
		verbs_mock_pump(2000);
		for (uint64_t i = 0; i < BYTES; i++)
			assert_int_equal(pair.to[i], (unsigned char)(3 * 37 + i * 5 + (i >> 9)));
		verbs_mock_deliver_late(false);
		send_right(seed, 4);
		end(seed);
	}
}

static void test_events__of_every_kind_are_drained_and_acknowledged(void **state)
{
	static const enum ibv_event_type harmless[] = {
		IBV_EVENT_COMM_EST,	     IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG,
		IBV_EVENT_PORT_ACTIVE,	     IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE,
		IBV_EVENT_SM_CHANGE,	     IBV_EVENT_GID_CHANGE, IBV_EVENT_CLIENT_REREGISTER,
		IBV_EVENT_SRQ_LIMIT_REACHED,
	};
	struct verbs_mock_options options = {.seed = 3, .ports = 2};
	uint64_t before;

	(void)state;
	begin(&options);
	before = verbs_mock_called(VERBS_MOCK_ack_async_event);
	for (uint64_t i = 0; i < 200; i++) {
		enum ibv_event_type type = harmless[i % ARRAY_SIZE(harmless)];

		assert_true(verbs_mock_event((uint32_t)i & 1, 0, type, (uint8_t)(1 + i % 2)));
		if (i % 50 == 0)
			verbs_mock_fail(VERBS_MOCK_get_async_event, 1, EINTR, VERBS_MOCK_ERRNO, 0);
		if (i % 20 == 0)
			send_right(3, 1 + i);
	}
	for (uint64_t end_ns = clock_ns() + UINT64_C(2000000000), version = 500;
	     verbs_mock_called(VERBS_MOCK_ack_async_event) - before < 200 && clock_ns() < end_ns;)
		send_right(3, version++);
	assert_int_equal(verbs_mock_called(VERBS_MOCK_ack_async_event) - before, 200);
	end(3);
}

/* These mean that something cannot be relied on any more: an error, and no hang. */
static void test_events__that_are_fatal_end_in_an_error(void **state)
{
	static const enum ibv_event_type fatal[] = {IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(fatal); i++) {
		struct verbs_mock_options options = {.seed = 4};
		struct error error = {0};
		int rc = 0;

		begin(&options);
		assert_true(verbs_mock_event(1, 0, fatal[i], 0));
		for (uint64_t version = 1, end_ns = verbs_pair_soon(); !rc && clock_ns() < end_ns;
		     version++) {
			rc = verbs_pair_send(&pair, version, verbs_pair_soon(), &error);
			if (!rc)
				rc = verbs_pair_check(&pair, version, verbs_pair_soon(), &error);
		}
		if (rc >= 0 || rc == -ERROR_TIMEOUT)
			fail_msg("event %d: %d %s", (int)fatal[i], rc, error.text);
		assert_non_null(strstr(error.text, "m1n0"));
		end(4);
	}
}

static void test_gids__that_move_between_record_and_connect_are_found_again(void **state)
{
	struct verbs_mock_options options = {.seed = 5};
	struct error error = {0};

	(void)state;
	verbs_pair_settings(&settings);
	verbs_mock_open(&options);
	assert_int_equal(verbs_pair_domains(&pair, &settings, BYTES, &error), 0);
	verbs_mock_gids_move(0, 0);
	verbs_mock_gids_move(1, 0);
	if (verbs_pair_connect(&pair, &error))
		fail_msg("%s", error.text);
	send_right(5, 1);
	end(5);
}

static void test_completions__of_unknown_queue_pairs_change_nothing_for_signals(void **state)
{
	struct verbs_mock_options options = {.seed = 6};
	struct ibv_wc stray = {.status = IBV_WC_SUCCESS,
			       .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
			       .wc_flags = IBV_WC_WITH_IMM,
			       .qp_num = 0xabcde,
			       .imm_data = 0x01000300};

	(void)state;
	begin(&options);
	for (uint64_t version = 1; version <= 20; version++) {
		assert_true(verbs_mock_inject(1, 0, true, &stray));
		send_right(6, version);
	}
	end(6);
}

static void test_completions__told_twice_break_the_endpoint_and_name_the_device(void **state)
{
	struct verbs_mock_options options = {.seed = 7};
	struct error error = {0};
	struct ibv_wc again;
	int rc;

	(void)state;
	begin(&options);
	send_right(7, 1);
	assert_true(verbs_mock_last(0, 0, false, &again));
	assert_true(verbs_mock_inject(0, 0, false, &again));
	rc = verbs_pair_send(&pair, 2, verbs_pair_soon(), &error);
	assert_int_equal(rc, -ERROR_TRANSPORT);
	if (!strstr(error.text, "m0n0"))
		fail_msg("%s", error.text);
	end(7);
}

static void test_receives__that_run_out_end_at_the_deadline_or_go_on_later(void **state)
{
	struct verbs_mock_options options = {.seed = 8};
	struct error error = {0};

	(void)state;
	begin(&options);
	verbs_mock_receives_hide(true);
	assert_int_equal(verbs_pair_send(&pair, 1, clock_ns() + 50000000, &error), -ERROR_TIMEOUT);
	assert_non_null(strstr(error.text, "; it is written over verbs, m"));
	verbs_mock_receives_hide(false);
	end(8);
	options.seed = 9;
	begin(&options);
	send_right(9, 1);
	end(9);
}

static void test_packets__that_are_too_large_for_the_path_are_told_by_the_probe(void **state)
{
	struct verbs_mock_options options = {.seed = 10, .packet_max = 1500};
	struct error error = {0};

	(void)state;
	verbs_pair_settings(&settings);
	verbs_mock_open(&options);
	assert_int_equal(verbs_pair_open(&pair, &settings, BYTES, &error), -ERROR_TRANSPORT);
	assert_non_null(strstr(error.text, "4096"));
	end(10);
}

static void test_endpoints__made_again_and_again_leave_nothing(void **state)
{
	struct verbs_mock_options options = {.seed = 11, .nics = 2};
	struct verbs_mock_counts before, after;
	struct error error = {0};

	(void)state;
	begin(&options);
	before = verbs_mock_counts();
	for (uint64_t i = 1; i <= RECONNECTS; i++) {
		transport_remote_close(&pair.remote);
		transport_endpoint_close(&pair.ab);
		transport_endpoint_close(&pair.ba);
		if (verbs_pair_connect(&pair, &error))
			fail_msg("connection %llu: %s", (unsigned long long)i, error.text);
		if (i % 16 == 0)
			send_right(11, i);
	}
	after = verbs_mock_counts();
	assert_int_equal(after.qps, before.qps);
	assert_int_equal(after.cqs, before.cqs);
	assert_int_equal(after.mrs, before.mrs);
	end(11);
}

static void test_peers__by_the_hundred_cost_queue_pairs_and_no_descriptors(void **state)
{
	static struct transport_endpoint *endpoints[PEERS];
	struct verbs_mock_options options = {.seed = 12};
	struct conformance_footprint before, after;
	struct verbs_mock_counts counts;
	struct error error = {0};

	(void)state;
	begin(&options);
	before = conformance_footprint();
	counts = verbs_mock_counts();
	for (uint32_t i = 0; i < PEERS; i++)
		if (transport_endpoint_open(pair.a, (struct member){ROLE_INFERENCE, 10 + i}, NULL,
					    &endpoints[i], &error))
			fail_msg("peer %u: %s", i, error.text);
	after = conformance_footprint();
	assert_int_equal(verbs_mock_counts().qps - counts.qps, PEERS * 2);
	assert_int_equal(verbs_mock_counts().channels, counts.channels);
	assert_true(verbs_mock_counts().mrs - counts.mrs <= PEERS / 16 + 1);
	assert_int_equal(after.files, before.files);
	for (uint32_t i = 0; i < PEERS; i++)
		transport_endpoint_close(&endpoints[i]);
	end(12);
}

#define TEST(name) cmocka_unit_test(test_##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(link__lost_in_the_middle_of_a_transfer_leaves_the_other_one),
		TEST(device__lost_in_the_middle_of_a_transfer_is_no_hang),
		TEST(ports__that_all_have_no_link_are_told_though_the_device_reports_nothing),
		TEST(late_packets__never_land_in_a_later_version),
		TEST(events__of_every_kind_are_drained_and_acknowledged),
		TEST(events__that_are_fatal_end_in_an_error),
		TEST(gids__that_move_between_record_and_connect_are_found_again),
		TEST(completions__of_unknown_queue_pairs_change_nothing_for_signals),
		TEST(completions__told_twice_break_the_endpoint_and_name_the_device),
		TEST(receives__that_run_out_end_at_the_deadline_or_go_on_later),
		TEST(packets__that_are_too_large_for_the_path_are_told_by_the_probe),
		TEST(endpoints__made_again_and_again_leave_nothing),
		TEST(peers__by_the_hundred_cost_queue_pairs_and_no_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
