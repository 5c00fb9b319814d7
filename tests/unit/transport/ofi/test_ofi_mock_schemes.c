/* SPDX-License-Identifier: Apache-2.0
 *
 * Provider "efa" over networks that reorder all they may: no signal is ever seen before its bytes. Then
 * over networks that break a promise, and with what the wire carries changed on the way into what other
 * ways of counting would have sent: each of those must be caught, or the first says nothing.
 *
 *   right            one count a lane; writes that are complete have landed
 *   wrong networks   remote data before its bytes; "delivered" writes that are under way; a message that
 *                    is lost; writes of a closed endpoint that land
 *   wrong schemes    a signal shown as it comes; one count for all lanes
 */
#include "tests/support/ofi_mock_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCHEDULES    2000
#define LATE_WRITERS 40
#else
#define SCHEDULES    50000 /* of each of two networks */
#define LATE_WRITERS 200
#endif
#define WRONG_SCHEDULES 1000
#define CHUNK		1024
#define DEPTH		8

/* In a network of two devices with two streams each. */
static int pipeline(const struct ofi_mock_options *mock, uint64_t schedules, uint64_t wait_ms,
		    struct ofi_mock_pipeline *result)
{
	struct ofi_mock_subject efa;
	struct error error = {0};
	int rc;

	ofi_mock_subject(&efa, mock, 2, DEPTH, CHUNK);
	ofi_mock_open(&efa.mock);
	rc = ofi_mock_pipeline(&efa.subject, schedules, wait_ms, result, &error);
	if (rc)
		print_message("%s\n", error.text);
	assert_string_equal(ofi_mock_violation(), "");
	assert_int_equal(ofi_mock_alive(), 0);
	ofi_mock_close();
	return rc;
}

static void expect_right(const struct ofi_mock_options *mock)
{
	struct ofi_mock_pipeline result;

	assert_int_equal(pipeline(mock, SCHEDULES, 60000, &result), 0);
	assert_int_equal(result.shown, SCHEDULES);
	assert_int_equal(result.wrong, 0);
}

static void test_scheme__counts_of_each_lane_are_never_early(void **state)
{
	(void)state;
	expect_right(&(struct ofi_mock_options){.devices = 2});
	expect_right(&(struct ofi_mock_options){.devices = 2, .again_in = 2, .steps_per_read = 3});
}

#ifndef __SANITIZE_THREAD__ /* bytes are looked at while they land, and that is the point */

/* Whether another thread's look finds a signal before its bytes; on a busy machine it may look late for long. */
static bool caught(const struct ofi_mock_options *mock)
{
	struct ofi_mock_subject efa;
	unsigned tries = 100;
	uint64_t wrong;

	ofi_mock_subject(&efa, mock, 2, DEPTH, CHUNK);
	efa.subject.registered = true;
	efa.mock.lag = 500; /* so that the other side's thread sees it under way */
	ofi_mock_open(&efa.mock);
	do
		wrong = conformance_violations(&efa.subject, 50);
	while (!wrong && --tries);
	ofi_mock_close();
	return wrong > 0;
}

static void test_network__that_tells_of_bytes_before_they_are_there_is_caught(void **state)
{
	const struct ofi_mock_options early = {.devices = 2, .wrong = OFI_MOCK_DATA_EARLY};

	(void)state;
	assert_true(caught(&early));
}

static void test_network__whose_delivered_writes_are_under_way_is_caught(void **state)
{
	const struct ofi_mock_options early = {.devices = 2, .wrong = OFI_MOCK_DELIVERY_EARLY};
	struct ofi_mock_pipeline result;

	(void)state;
	(void)pipeline(&early, WRONG_SCHEDULES, 200, &result);
	assert_true(result.wrong > 0);
}

static void show_at_once(void *bytes, size_t length, uint64_t *data)
{
	struct ofi_message *message = bytes;

	if (!data && length == sizeof(*message))
		memset(message->writes, 0, sizeof(message->writes));
}

static void test_scheme__that_shows_a_signal_as_it_comes_is_caught(void **state)
{
	const struct ofi_mock_options mock = {.devices = 2, .rewrite = show_at_once};

	(void)state;
	assert_true(caught(&mock));
}

#endif

static void count_all_as_one(void *bytes, size_t length, uint64_t *data)
{
	struct ofi_message *message = bytes;

	if (data)
		*data &= ~(uint64_t)(OFI_RAILS_MAX - 1);
	for (uint32_t i = 1; !data && length == sizeof(*message) && i < OFI_RAILS_MAX; i++) {
		message->writes[0] += message->writes[i];
		message->writes[i] = 0;
	}
}

/* One signal alone: its bytes are not there, and nothing else is counted for them later. */
static void test_scheme__one_count_for_all_lanes_takes_a_lost_write_for_there(void **state)
{
	const struct ofi_mock_options mock = {
		.devices = 2, .wrong = OFI_MOCK_LOST_AND_TWICE, .rewrite = count_all_as_one};
	struct ofi_mock_pipeline result;

	(void)state;
	assert_int_equal(pipeline(&mock, 1, 60000, &result), 0);
	assert_int_equal(result.shown, 1);
	assert_true(result.wrong > 0);
}

static void test_scheme__counts_of_each_lane_notice_a_lost_write(void **state)
{
	const struct ofi_mock_options mock = {.devices = 2, .wrong = OFI_MOCK_LOST_AND_TWICE};
	struct ofi_mock_pipeline result;

	(void)state;
	assert_int_equal(pipeline(&mock, 1, 100, &result), 0);
	assert_int_equal(result.shown, 0);
	assert_int_equal(result.wrong, 0);
}

static void test_network__that_loses_a_delivered_message_is_noticed(void **state)
{
	const struct ofi_mock_options mock = {.devices = 2, .wrong = OFI_MOCK_MESSAGE_LOST};
	struct ofi_mock_pipeline result;

	(void)state;
	assert_int_equal(pipeline(&mock, 1, 100, &result), 0);
	assert_int_equal(result.shown, 0);
}

static uint64_t late_writes(enum ofi_mock_wrong wrong, unsigned rounds)
{
	const struct ofi_mock_options mock = {.seed = 11, .devices = 2, .wrong = wrong};
	struct ofi_mock_subject efa;
	uint64_t landed;

	ofi_mock_subject(&efa, &mock, 1, DEPTH, CHUNK);
	efa.subject.registered = true;
	efa.subject.wrong = wrong;
	ofi_mock_open(&efa.mock);
	landed = conformance_late_writes(&efa.subject, rounds);
	assert_string_equal(ofi_mock_violation(), "");
	ofi_mock_close();
	return landed;
}

static void test_network__in_which_late_writes_land_is_caught(void **state)
{
	(void)state;
	assert_int_equal(late_writes(OFI_MOCK_RIGHT, LATE_WRITERS), 0);
#ifndef __SANITIZE_THREAD__ /* a late write races with whoever uses the memory again */
	assert_true(late_writes(OFI_MOCK_LATE_LANDS, LATE_WRITERS) > 0);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scheme__counts_of_each_lane_are_never_early),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(test_network__that_tells_of_bytes_before_they_are_there_is_caught),
		cmocka_unit_test(test_network__whose_delivered_writes_are_under_way_is_caught),
		cmocka_unit_test(test_scheme__that_shows_a_signal_as_it_comes_is_caught),
#endif
		cmocka_unit_test(test_scheme__one_count_for_all_lanes_takes_a_lost_write_for_there),
		cmocka_unit_test(test_scheme__counts_of_each_lane_notice_a_lost_write),
		cmocka_unit_test(test_network__that_loses_a_delivered_message_is_noticed),
		cmocka_unit_test(test_network__in_which_late_writes_land_is_caught),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
