/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes are lost in the midst of updates, one to three of four, on either side: whatever of them is under way,
 * arrives late or never, every version is shown, none before its bytes, and no late byte lands over a newer one.
 * Then with what other ways of going on would have done, each of which must be caught:
 *
 *   without asking      replay at once, while the other side's end is open
 *   without closing     the other side answers, and its end still takes bytes
 *   counting twice      one sum for all lanes, and the answer is what was known already
 *   done is there       what libfabric has sent is taken for arrived
 */
#include "tests/support/ofi_mock_pair.h"
#include "tests/support/sanitized.h"

#include <rdma/fi_errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SESSIONS       (SANITIZED_THREADS ? 5 : SANITIZED ? 10 : 50) /* of each of two networks */
#define WRONG_SESSIONS 1000					     /* until one is caught */
#define VERSIONS       14
#define PROBES	       16 /* posts before the first update */
#define RECEIVES       20 /* before the first update: 8 of each endpoint, a probe on each lane of both */
#define LAG	       4000 /* turns: some of what is late is so by several versions */

static struct ofi_mock_pipeline result; /* of the session that runs */

/* `times` lanes are cut in the course of it. */
static int session(const struct ofi_mock_options *mock, uint64_t seed, uint64_t every,
		   uint32_t times, uint64_t wait_ms, struct error *error)
{
	struct ofi_mock_options options = *mock;
	struct ofi_mock_subject efa;
	int rc;

	options.devices = 2;
	options.seed = seed;
	options.wait_fd = options.background = true;
	options.watch = ofi_mock_pipeline_watch;
	ofi_mock_subject(&efa, &options, 2, 8, 512);
	efa.options.stream = options.stream;
	ofi_mock_open(&efa.mock);
	ofi_mock_cut(PROBES + 1 + seed * 7919 % 60, every, times, LAG);
	rc = ofi_mock_pipeline(&efa.subject, VERSIONS, wait_ms, &result, error);
	assert_string_equal(ofi_mock_violation(), "");
	assert_int_equal(ofi_mock_alive(), 0);
	if (!rc)
		assert_true(ofi_mock_cuts() > 0);
	ofi_mock_close();
	return rc;
}

static void expect_right(const struct ofi_mock_options *mock)
{
	for (uint64_t seed = 1; seed <= SESSIONS; seed++) {
		struct error error = {0};

		if (session(mock, seed, 1 + seed * 31 % 40, 1 + seed % 3, 60000, &error) ||
		    result.wrong || result.shown != VERSIONS)
			fail_msg("seed %llu: %llu of %u versions shown, %llu looks wrong: %s",
				 (unsigned long long)seed, (unsigned long long)result.shown,
				 VERSIONS, (unsigned long long)result.wrong, error.text);
	}
}

static void test_lost__lanes_that_keep_no_order_lose_nothing_and_leave_nothing_behind(void **state)
{
	(void)state;
	expect_right(&(struct ofi_mock_options){0});
}

static void test_lost__streams_lose_nothing_and_leave_nothing_behind(void **state)
{
	(void)state;
	expect_right(&(struct ofi_mock_options){.stream = true});
}

/* Probes are over, or that is what is told. */
static void test_lost__with_every_lane_is_an_error_that_names_stream_and_peer(void **state)
{
	const struct ofi_mock_options mock = {.stream = true};
	struct error error = {0};

	(void)state;
	assert_int_equal(session(&mock, 3, 1, 16, 60000, &error), -ERROR_PEER_LOST);
	assert_non_null(strstr(error.text, "inference 5"));
	assert_non_null(strstr(error.text, "stream"));
	assert_int_equal(result.wrong, 0);
}

/* ---- a signal that was complete, whose sender waits for nothing any more ---- */

/* A receive of the update cannot be posted, so a lane is lost after what it has brought was acknowledged. 1: the
 * signal was shown, 0: it was not, -1: told as an error, or that was before the update. */
static int lose_behind(uint64_t seed, uint64_t budget_ms,
		       void (*rewrite)(void *, size_t, uint64_t *))
{
	const struct ofi_mock_options options = {.devices = 2,
						 .seed = seed,
						 .wait_fd = true,
						 .background = true,
						 .rewrite = rewrite};
	struct ofi_mock_subject efa;
	struct error error = {0};
	int rc, struck;

	ofi_mock_subject(&efa, &options, 1, 4, 4096);
	ofi_mock_open(&efa.mock);
	ofi_mock_fail(OFI_MOCK_recv, RECEIVES + seed % 4, FI_ENOMEM);
	rc = conformance_session(&efa.subject, budget_ms * 1000000, &error);
	struck = ofi_mock_failed();
	assert_string_equal(ofi_mock_violation(), "");
	ofi_mock_close();
	if (!struck || (rc && !strstr(error.text, "cannot be read")))
		return -1;
	return rc == 0;
}

static void test_lost__a_complete_signal_is_shown_though_its_sender_asks_for_nothing(void **state)
{
	uint64_t shown = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 4 * SESSIONS; seed++) {
		int is_shown = lose_behind(seed, 60000, NULL);

		assert_int_not_equal(is_shown, 0);
		shown += is_shown == 1;
	}
	assert_true(shown > 0);
}

/* ---- what must be caught ---- */

#if !SANITIZED /* what is wrong there are bytes, or it is waited for */

static void without_word(void *bytes, size_t length, uint64_t *data)
{
	struct ofi_message *message = bytes;

	if (!data && length == sizeof(*message))
		message->complete = 0;
}

static void test_lost__without_the_word_that_it_was_complete_it_stays_away(void **state)
{
	uint64_t seed = 0;

	(void)state;
	while (++seed < 10 * WRONG_SESSIONS && lose_behind(seed, 100, without_word))
		;
	assert_true(seed < 10 * WRONG_SESSIONS);
}

/* What takes up to a minute until it is caught: bytes have to be late by just as much as matters. */
static bool is_soak(void)
{
	return getenv("WEFT_OFI_LATE") && strcmp(getenv("WEFT_OFI_LATE"), "0") != 0;
}

static void expect_caught(const struct ofi_mock_options *mock)
{
	uint64_t seed = 0;

	do {
		struct error error = {0};

		(void)session(mock, ++seed, 1, 1, 20, &error);
	} while (!result.wrong && seed < WRONG_SESSIONS);
	assert_true(result.wrong > 0);
}

/* What the other side would say if it had none but those that are known to be there. */
static void none_but_known(struct ofi_message *message)
{
	for (uint32_t i = 0; result.from && i < result.from->lane_count; i++)
		message->writes[i] = result.from->lanes[i].told;
}

static bool answer_oneself(void *bytes, size_t length)
{
	struct ofi_message *message = bytes;

	if (length != sizeof(*message) || message->kind != OFI_MESSAGE_LOST)
		return false;
	none_but_known(message);
	return true;
}

static void test_replay__without_asking_is_caught(void **state)
{
	(void)state;
	expect_caught(&(struct ofi_mock_options){.reflect = answer_oneself});
	if (is_soak())
		expect_caught(
			&(struct ofi_mock_options){.reflect = answer_oneself, .stream = true});
}

static void test_replay__after_an_answer_without_closing_is_caught(void **state)
{
	(void)state;
	if (!is_soak())
		skip();
	expect_caught(&(struct ofi_mock_options){.wrong = OFI_MOCK_LATE_LANDS});
}

static void count_in_one_sum(void *bytes, size_t length, uint64_t *data)
{
	struct ofi_message *message = bytes;

	if (data)
		*data &= ~(uint64_t)(OFI_RAILS_MAX - 1);
	if (data || length != sizeof(*message))
		return;
	if (message->kind == OFI_MESSAGE_LOST)
		none_but_known(message);
	for (uint32_t i = 1; message->kind == OFI_MESSAGE_SIGNAL && i < OFI_RAILS_MAX; i++) {
		message->writes[0] += message->writes[i];
		message->writes[i] = 0;
	}
}

static void test_replay__of_what_was_counted_is_caught_where_one_sum_counts_it_twice(void **state)
{
	(void)state;
	expect_caught(&(struct ofi_mock_options){.rewrite = count_in_one_sum});
}

#endif

#if !SANITIZED_THREADS

/* Then less is counted than was believed to be there, and it cannot be sent again. */
static void test_streams__where_sent_is_taken_for_arrived_are_noticed(void **state)
{
	const struct ofi_mock_options mock = {.stream = true, .wrong = OFI_MOCK_DELIVERY_EARLY};
	uint64_t noticed = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= WRONG_SESSIONS && !noticed; seed++) {
		struct error error = {0};

		if (session(&mock, seed, 1, 1, 20, &error) == 0)
			continue;
		assert_int_equal(error.code, ERROR_MESSAGE);
		assert_non_null(strstr(error.text, "has counted"));
		noticed++;
	}
	assert_true(noticed > 0);
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_lost__lanes_that_keep_no_order_lose_nothing_and_leave_nothing_behind),
		cmocka_unit_test(test_lost__streams_lose_nothing_and_leave_nothing_behind),
		cmocka_unit_test(test_lost__with_every_lane_is_an_error_that_names_stream_and_peer),
		cmocka_unit_test(
			test_lost__a_complete_signal_is_shown_though_its_sender_asks_for_nothing),
#if !SANITIZED
		cmocka_unit_test(test_lost__without_the_word_that_it_was_complete_it_stays_away),
		cmocka_unit_test(test_replay__without_asking_is_caught),
		cmocka_unit_test(test_replay__after_an_answer_without_closing_is_caught),
		cmocka_unit_test(
			test_replay__of_what_was_counted_is_caught_where_one_sum_counts_it_twice),
#endif
#if !SANITIZED_THREADS
		cmocka_unit_test(test_streams__where_sent_is_taken_for_arrived_are_noticed),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
