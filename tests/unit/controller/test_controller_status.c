/* SPDX-License-Identifier: Apache-2.0
 *
 * What the controller answers to `weft status`.
 */
#include "tests/unit/controller/controller_bench.h"

static const struct message_report *ask(struct bench *bench, const char *job, const char *key_role)
{
	struct message message = {.type = MESSAGE_ASK, .u.ask.links = true};

	snprintf(message.job, sizeof(message.job), "%s", job);
	assert_int_equal(step(bench, (struct controller_event){.type = CONTROLLER_RECEIVED,
							       .peer = "observer",
							       .key_role = key_role,
							       .message = &message}),
			 0);
	assert_int_equal(bench->actions.count, 1);
	assert_string_equal(bench->actions.items[0].peer, "observer");
	assert_int_equal(bench->actions.items[0].message.type, MESSAGE_REPORT);
	assert_string_equal(bench->actions.items[0].message.job, JOB);
	return &bench->actions.items[0].message.u.report;
}

static void says(struct bench *bench, int who, enum activity what, uint64_t bytes)
{
	struct message message = from_worker(bench, who, MESSAGE_ACTIVITY);

	message.u.activity.what = what;
	message.u.activity.version = 3;
	message.u.activity.since_ms = 40;
	message.u.activity.bytes = bytes;
	message.u.activity.trouble = memory_string("");
	receive(bench, who, &message);
	assert_int_equal(bench->actions.count, 0); /* it is answered by nothing */
}

static void test_ask__before_anybody_is_here_says_who_is_missing(void **state)
{
	struct bench *bench = *state;
	const struct message_report *report = ask(bench, "of any name", NULL);

	assert_string_equal(report->state, "gathering");
	assert_string_equal(report->missing, "trainer 0 of 1, inference 0 of 1 to join");
	assert_int_equal(report->member_count, 2);
	assert_string_equal(report->members[T0].phase, "absent");
	assert_string_equal(report->members[T0].host, "");
	assert_false(report->members[T0].known);
	assert_int_equal(report->plans, 0);
	assert_int_equal(report->link_count, 0);
}

static void test_ask__of_a_running_job_shows_plan_links_and_what_each_said_last(void **state)
{
	struct bench *bench = *state;
	const struct message_report *report;

	reach(bench, TO_RUN);
	says(bench, T0, ACTIVITY_OPEN, 1000);
	bench->now += 500;
	says(bench, T0, ACTIVITY_ENDS, 3000);
	bench->now += 100;
	report = ask(bench, JOB, "observer");
	assert_string_equal(report->state, "running");
	assert_string_equal(report->missing, "");
	assert_int_equal(report->attempt, 1);
	assert_int_equal(report->largest_bytes, 64);
	assert_int_equal(report->bound_bytes, 64);
	assert_int_equal(report->link_count, 1);
	assert_int_equal(report->links[0].bytes, 64);
	assert_true(report->members[T0].known);
	assert_int_equal(report->members[T0].activity.what, ACTIVITY_ENDS);
	assert_int_equal(report->members[T0].age_ms, 100);
	assert_int_equal(report->members[T0].bytes_per_second, 4000);
	assert_int_equal(report->members[T0].plan_bytes, 64);
	assert_false(report->members[I0].known);
}

/* Read-only: what a stranger asks leaves the job as it was, whatever key he came with, and makes him no member. */
static void test_ask__changes_nothing_and_makes_nobody_a_member(void **state)
{
	struct bench *bench = *state;
	char *before, *after;

	reach(bench, TO_RUN);
	before = controller_line(bench->controller, bench->now);
	for (int i = 0; i < 4; i++)
		ask(bench, JOB, i % 2 ? "trainer" : "observer");
	after = controller_line(bench->controller, bench->now);
	assert_string_equal(before, after);
	assert_false(controller_is_member(bench->controller, "observer"));
	memory_free(before);
	memory_free(after);
}

/* Of one 20 in a second, or four with links; others are answered all the same. */
static void test_ask__more_often_than_reports_are_made_is_answered_in_the_next_second(void **state)
{
	struct bench *bench = *state;
	struct message message = {.type = MESSAGE_ASK, .job = JOB};

	for (int i = 0; i < 4; i++)
		ask(bench, JOB, NULL);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(step(bench, (struct controller_event){.type = CONTROLLER_RECEIVED,
								       .peer = "observer",
								       .message = &message}),
				 0);
		assert_int_equal(bench->actions.count, 0);
	}
	assert_int_equal(step(bench, (struct controller_event){.type = CONTROLLER_RECEIVED,
							       .peer = "somebody else",
							       .message = &message}),
			 0);
	assert_int_equal(bench->actions.count, 1);
	tick(bench, 500);
	bench->now = 1000;
	ask(bench, JOB, NULL);
}

static void test_activity__of_a_stranger_is_not_taken(void **state)
{
	struct bench *bench = *state;
	struct message message = from_worker(bench, T0, MESSAGE_ACTIVITY);

	message.from = 0x99;
	message.u.activity.trouble = memory_string("mine");
	receive(bench, T0, &message);
	assert_false(ask(bench, JOB, NULL)->members[T0].known);
}

static void test_failure__is_an_event_with_its_age(void **state)
{
	struct bench *bench = *state;
	struct message message;
	const struct message_report *report;

	reach(bench, TO_RUN);
	bench->now = 100;
	message = from_worker(bench, I0, MESSAGE_FAILURE);
	message.u.failure.code = ERROR_CHECKSUM;
	message.u.failure.text = memory_string("bytes differ");
	receive(bench, I0, &message);
	bench->now += 700;
	report = ask(bench, JOB, NULL);
	assert_string_equal(report->state, "failed");
	assert_int_equal(report->event_count, 1);
	assert_int_equal(report->events[0].age_ms, 700);
	assert_int_equal(report->events[0].code, ERROR_CHECKSUM);
	assert_int_equal(report->events[0].who.role, ROLE_INFERENCE);
	assert_non_null(strstr(report->events[0].text, "bytes differ"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_ask__before_anybody_is_here_says_who_is_missing),
		TEST(test_ask__of_a_running_job_shows_plan_links_and_what_each_said_last),
		TEST(test_ask__changes_nothing_and_makes_nobody_a_member),
		TEST(test_ask__more_often_than_reports_are_made_is_answered_in_the_next_second),
		TEST(test_activity__of_a_stranger_is_not_taken),
		TEST(test_failure__is_an_event_with_its_age),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
