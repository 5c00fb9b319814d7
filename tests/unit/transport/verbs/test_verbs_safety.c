/* SPDX-License-Identifier: Apache-2.0
 *
 * Where weights could be wrong without a word: devices that lose what they have acknowledged, lanes
 * that cannot be closed, sequence numbers that wrap, readers that do not read, children of a fork.
 */
#include "tests/support/verbs_mock_pair.h"

#include "base/clock.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS	    100
#define FLUSH_SEEDS 100
#define WRAPS_FROM  2 /* each takes 20 s */
#else
#define SEEDS	    400
#define FLUSH_SEEDS 1600
#define WRAPS_FROM  1
#endif
#define BYTES	40000
#define BORDER	65536
#define SIGNALS (65536 + 300) /* 16 bits of the sequence are on the wire */

static struct verbs_settings settings;
static struct pair pair;
static uint64_t pair_bytes = BYTES;

static void begin(const struct verbs_mock_options *options)
{
	struct error error = {0};

	verbs_mock_open(options);
	if (verbs_pair_open(&pair, &settings, pair_bytes, &error))
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

static int send_and_check(uint64_t version, struct error *error)
{
	int rc = verbs_pair_send(&pair, version, verbs_pair_soon(), error);

	return rc ? rc : verbs_pair_check(&pair, version, verbs_pair_soon(), error);
}

static void kill_target_at_zero(void *context)
{
	uint64_t *steps = context;

	if (*steps && --*steps == 0)
		verbs_mock_kill(1, 1);
}

/* The sender has its completions and names the other NIC's lanes only. What the failed device had
 * acknowledged is nowhere, so the version must not be shown. */
static void test_device__that_fails_with_what_it_acknowledged_shows_no_version(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct verbs_mock_options options = {.seed = seed, .nics = 2};
		uint64_t steps = 1 + seed * 7 % 300;
		struct error error = {0};
		int rc;

		verbs_pair_settings(&settings);
		begin(&options);
		assert_int_equal(send_and_check(1, &error), 0);
		verbs_mock_watch(kill_target_at_zero, &steps);
		rc = send_and_check(2, &error);
		verbs_mock_watch(NULL, NULL);
		if (rc == -ERROR_CHECKSUM || rc == -ERROR_TIMEOUT || (rc && !error.text[0]))
			fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		end(seed);
	}
}

static void lose_link_at_zero(void *context)
{
	uint64_t *steps = context;

	if (*steps && --*steps == 0)
		verbs_mock_link(0, 1, false);
}

/* The target's device refuses to close the lane that the sender gave up: late packets could land
 * there at any time, so nothing may be shown. */
static void test_lane__that_the_target_cannot_close_shows_no_version(void **state)
{
	uint32_t refused = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS / 4; seed++) {
		struct verbs_mock_options options = {.seed = seed, .nics = 2};
		uint64_t steps = 1 + seed * 11 % 100;
		struct error error = {0};
		int rc;

		verbs_pair_settings(&settings);
		settings.qps = 1;
		begin(&options);
		assert_int_equal(send_and_check(1, &error), 0);
		/* the first is the sender's own end */
		verbs_mock_fail(VERBS_MOCK_modify_qp, 2, EIO, VERBS_MOCK_ERRNO, 0);
		verbs_mock_watch(lose_link_at_zero, &steps);
		rc = send_and_check(2, &error);
		verbs_mock_watch(NULL, NULL);
		if (verbs_mock_failed()) {
			refused++;
			assert_int_equal(rc, -ERROR_TRANSPORT);
			if (!strstr(error.text, "m1n0"))
				fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		} else {
			assert_int_equal(rc, 0);
		}
		verbs_mock_fail(VERBS_MOCK_modify_qp, 0, 0, VERBS_MOCK_ERRNO, 0);
		end(seed);
	}
	assert_true(refused > 0);
}

static void signal_one(uint32_t word)
{
	struct transport_signal signal = {0};
	struct error error = {0};
	uint64_t deadline = verbs_pair_soon();

	if (transport_signal(pair.ab, word, &word, sizeof(word), deadline, &error))
		fail_msg("signal %u: %s", word, error.text);
	while (transport_signal_read(pair.ba, &signal) != 0 || signal.tag != word)
		if (clock_ns() > deadline)
			fail_msg("signal %u was not seen", word);
	assert_int_equal(signal.sequence, word);
	assert_memory_equal(signal.payload, &word, sizeof(word));
}

/* Once with all lanes, once with one that dies at the wrap. */
static void test_signals__go_on_when_the_number_on_the_wire_wraps(void **state)
{
	(void)state;
	for (uint64_t seed = WRAPS_FROM; seed <= 2; seed++) {
		struct verbs_mock_options options = {.seed = seed, .nics = 2};

		verbs_pair_settings(&settings);
		settings.qps = 1;
		begin(&options);
		for (uint32_t word = 1; word <= SIGNALS; word++) {
			if (seed == 2 && word == 65535)
				verbs_mock_link(0, 1, false);
			signal_one(word);
		}
		end(seed);
	}
}

static void test_signals__that_nobody_reads_end_at_the_senders_deadline(void **state)
{
	struct verbs_mock_options options = {.seed = 3, .nics = 2};
	struct transport_signal signal = {0};
	struct error error = {0};
	uint64_t begin_ns, sent = 0;
	int rc = 0;

	(void)state;
	verbs_pair_settings(&settings);
	begin(&options);
	do {
		begin_ns = clock_ns();
		rc = transport_signal(pair.ab, (uint32_t)sent + 1, NULL, 0, begin_ns + 100000000,
				      &error);
		sent += !rc;
	} while (!rc && sent < 1000);
	assert_int_equal(rc, -ERROR_TIMEOUT);
	assert_true(clock_ns() - begin_ns < UINT64_C(2000000000));
	assert_non_null(strstr(error.text, "inference 1"));
	assert_in_range(sent, settings.receive_depth / settings.qps - 1, 1000);
	/* what was sent is read, and nothing that was not */
	for (uint64_t deadline = verbs_pair_soon(); signal.sequence < sent;) {
		transport_signal_read(pair.ba, &signal);
		if (clock_ns() > deadline)
			fail_msg("signal %llu of %llu", (unsigned long long)signal.sequence,
				 (unsigned long long)sent);
	}
	end(3);
}

static uint64_t destroying_calls(void)
{
	return verbs_mock_called(VERBS_MOCK_destroy_qp) + verbs_mock_called(VERBS_MOCK_destroy_cq) +
	       verbs_mock_called(VERBS_MOCK_destroy_srq) + verbs_mock_called(VERBS_MOCK_dereg_mr) +
	       verbs_mock_called(VERBS_MOCK_dealloc_pd) + verbs_mock_called(VERBS_MOCK_modify_qp) +
	       verbs_mock_called(VERBS_MOCK_close_device) + verbs_mock_called(VERBS_MOCK_poll_cq) +
	       verbs_mock_called(VERBS_MOCK_destroy_comp_channel) +
	       verbs_mock_called(VERBS_MOCK_get_async_event);
}

static void test_fork__a_child_that_closes_everything_calls_no_device(void **state)
{
	struct verbs_mock_options options = {.seed = 4, .nics = 2};
	struct error error = {0};
	int status = 0;
	pid_t child;

	(void)state;
	verbs_pair_settings(&settings);
	begin(&options);
	assert_int_equal(send_and_check(1, &error), 0);
	child = fork();
	if (child == 0) {
		uint64_t before = destroying_calls();
		struct transport_signal signal;
		int rc = transport_signal_read(pair.ba, &signal) == 1 ? 0 : 1;

		rc |= transport_flush(pair.ab, verbs_pair_soon(), &error) == -ERROR_STATE ? 0 : 2;
		rc |= transport_endpoint_fence(pair.ba, verbs_pair_soon(), &error) == -ERROR_STATE
			      ? 0
			      : 4;
		pair_close(&pair);
		_exit(destroying_calls() == before ? rc : 8);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(send_and_check(2, &error), 0);
	end(4);
}

static void *interrupt_soon(void *context)
{
	clock_sleep_ms(30);
	transport_domain_interrupt(context);
	return NULL;
}

/* The links are down and nobody gives up: only the interrupt ends the wait. */
static void test_interrupt__ends_a_write_a_flush_a_signal_and_a_proof(void **state)
{
	(void)state;
	for (int call = 0; call < 4; call++) {
		struct verbs_mock_options options = {.seed = 5, .patience = 2000000000};
		struct error error = {0};
		uint64_t begin_ns;
		pthread_t thread;
		int rc = 0;

		verbs_pair_settings(&settings);
		settings.timeout = 20;
		begin(&options);
		assert_int_equal(send_and_check(1, &error), 0);
		verbs_mock_link(0, 0, false);
		if (call == 1)
			rc = transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, 4096,
					     verbs_pair_soon(), &error);
		assert_int_equal(rc, 0);
		pthread_create(&thread, NULL, interrupt_soon, pair.a);
		begin_ns = clock_ns();
		if (call == 0)
			rc = verbs_pair_send(&pair, 2, verbs_pair_soon(), &error);
		if (call == 1)
			rc = transport_flush(pair.ab, verbs_pair_soon(), &error);
		if (call == 2)
			rc = transport_signal(pair.ab, 2, NULL, 0, verbs_pair_soon(), &error);
		if (call == 3)
			rc = transport_endpoint_probe(pair.ab, verbs_pair_soon(), &error);
		assert_int_equal(rc, -ERROR_INTERRUPTED);
		assert_true(clock_ns() - begin_ns < UINT64_C(2000000000));
		pthread_join(thread, NULL);
		end(5);
	}
}

static void test_queues__too_short_to_work_with_are_refused(void **state)
{
	(void)state;
	for (uint32_t depth = 1; depth <= 8; depth *= 2) {
		struct verbs_mock_options options = {.seed = 6, .max_qp_wr = depth};
		struct error error = {0};
		int rc;

		verbs_pair_settings(&settings);
		verbs_mock_open(&options);
		rc = verbs_pair_session(&settings, BYTES, 2, &error);
		if (rc != (depth < 4 ? -ERROR_UNSUPPORTED : 0))
			fail_msg("%u: %s", depth, error.text);
		assert_int_equal(verbs_mock_alive(), 0);
		verbs_mock_close();
	}
}

/* A device takes the first part of a chunk that crosses a border of registrations, and fails before
 * the second: the whole chunk goes out again by another lane. When flush returns, nothing reads the
 * source any more. */
static void test_flush__leaves_no_part_of_a_chunk_that_was_refused_half_way(void **state)
{
	uint32_t struck = 0;

	(void)state;
	pair_bytes = 2 * BORDER;
	for (uint64_t seed = 1; seed <= FLUSH_SEEDS; seed++) {
		struct verbs_mock_options options = {
			.seed = seed, .nics = 3, .max_mr_size = BORDER, .steps_per_poll = 2};
		struct error error = {0};
		unsigned char sent[4096];

		verbs_pair_settings(&settings);
		settings.qps = 1;
		settings.new_post = VERBS_OFF;
		begin(&options);
		for (uint32_t i = 0; i < sizeof(sent); i++)
			sent[i] = (unsigned char)(seed + i * 3);
		/* so that the lane which is next is not the one that takes over */
		assert_int_equal(transport_write(pair.ab, pair.from, pair.source, pair.remote,
						 BORDER, 4096, verbs_pair_soon(), &error),
				 0);
		assert_int_equal(transport_flush(pair.ab, verbs_pair_soon(), &error), 0);
		memcpy(pair.from + BORDER - 2048, sent, sizeof(sent));
		verbs_mock_event(0, (uint32_t)(seed % 3), IBV_EVENT_QP_ACCESS_ERR, 0);
		verbs_mock_fail(VERBS_MOCK_post_send, 1, EIO, VERBS_MOCK_ERRNO, 1);
		/* parts in the source, none in the target */
		if (transport_write(pair.ab, pair.from + BORDER - 2048, pair.source, pair.remote, 0,
				    sizeof(sent), verbs_pair_soon(), &error) ||
		    transport_flush(pair.ab, verbs_pair_soon(), &error)) {
			assert_true(error.code == ERROR_TRANSPORT && error.text[0]);
		} else {
			struck += verbs_mock_failed();
			verbs_mock_fail(VERBS_MOCK_post_send, 0, 0, VERBS_MOCK_ERRNO, 0);
			memset(pair.from, 0xee, pair.bytes);
			signal_one(1);
			if (memcmp(pair.to, sent, sizeof(sent)) != 0)
				fail_msg("seed %llu: bytes of after the flush were sent",
					 (unsigned long long)seed);
		}
		verbs_mock_fail(VERBS_MOCK_post_send, 0, 0, VERBS_MOCK_ERRNO, 0);
		end(seed);
	}
	pair_bytes = BYTES;
	assert_true(struck > 0);
}

/* Links at both sides and queue pairs go, one after the other, at moments drawn from a seed. */
struct chaos {
	uint64_t state;
	uint32_t blows;
};

static uint32_t draw(struct chaos *chaos, uint32_t below)
{
	chaos->state = chaos->state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(chaos->state >> 33) % below;
}

static void blow(void *context)
{
	struct chaos *chaos = context;

	if (!chaos->blows || draw(chaos, 60))
		return;
	chaos->blows--;
	switch (draw(chaos, 4)) {
	case 0:
		verbs_mock_link(0, draw(chaos, 3), false);
		break;
	case 1:
		verbs_mock_link(1, draw(chaos, 3), false);
		break;
	case 2:
		verbs_mock_event(0, draw(chaos, 3), IBV_EVENT_QP_FATAL, 0);
		break;
	default:
		verbs_mock_event(1, draw(chaos, 3), IBV_EVENT_QP_ACCESS_ERR, 0);
		break;
	}
	verbs_mock_deliver_late(draw(chaos, 2));
}

static void test_lanes__lost_at_both_sides_at_once_show_no_wrong_version(void **state)
{
	uint64_t whole = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct verbs_mock_options options = {.seed = seed, .nics = 3};
		struct chaos chaos = {seed * 77, 1 + seed % 5};
		struct error error = {0};
		int rc = 0;

		verbs_pair_settings(&settings);
		settings.qps = 1 + seed % 3;
		begin(&options);
		verbs_mock_watch(blow, &chaos);
		for (uint64_t version = 1; version <= 6 && !rc; version++) {
			rc = send_and_check(version, &error);
			whole += !rc;
		}
		verbs_mock_watch(NULL, NULL);
		if (rc == -ERROR_CHECKSUM || rc == -ERROR_TIMEOUT || (rc && !error.text[0]))
			fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		verbs_mock_deliver_late(false);
		end(seed);
	}
	assert_true(whole > SEEDS);
}

static void inject_once(void *context)
{
	const struct ibv_wc wc = {.wr_id = UINT64_MAX, .status = IBV_WC_SUCCESS};
	uint32_t *looks = context;

	if (++*looks == 4)
		verbs_mock_inject(0, 0, false, &wc);
}

static void test_proof__refuses_a_completion_of_a_lane_that_is_not_there(void **state)
{
	struct verbs_mock_options options = {.seed = 7};
	struct error error = {0};
	uint32_t looks = 0;

	(void)state;
	verbs_pair_settings(&settings);
	begin(&options);
	verbs_mock_watch(inject_once, &looks);
	assert_int_equal(transport_endpoint_probe(pair.ab, verbs_pair_soon(), &error),
			 -ERROR_TRANSPORT);
	verbs_mock_watch(NULL, NULL);
	assert_non_null(strstr(error.text, "not in flight"));
	assert_non_null(strstr(error.text, "m0n0"));
	end(7);
}

#define TEST(name) cmocka_unit_test(test_##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(device__that_fails_with_what_it_acknowledged_shows_no_version),
		TEST(lane__that_the_target_cannot_close_shows_no_version),
		TEST(signals__go_on_when_the_number_on_the_wire_wraps),
		TEST(signals__that_nobody_reads_end_at_the_senders_deadline),
		TEST(flush__leaves_no_part_of_a_chunk_that_was_refused_half_way),
		TEST(lanes__lost_at_both_sides_at_once_show_no_wrong_version),
		TEST(proof__refuses_a_completion_of_a_lane_that_is_not_there),
		TEST(fork__a_child_that_closes_everything_calls_no_device),
		TEST(interrupt__ends_a_write_a_flush_a_signal_and_a_proof),
		TEST(queues__too_short_to_work_with_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
