/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is at fault, by made-up reports: two trainers, two engines of two ranks.
 */
#include "cli/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 6u

struct job {
	struct message_report report, before;
	struct report_member members[MEMBERS], members_before[MEMBERS];
	struct member waits[MEMBERS][2];
	struct nic_traffic nics[MEMBERS], nics_before[MEMBERS];
	struct report_event events[2];
	findings found;
};

static struct member trainer(uint32_t rank)
{
	return (struct member){ROLE_TRAINER, rank};
}

static struct member inference(uint32_t rank)
{
	return (struct member){ROLE_INFERENCE, rank};
}

static uint32_t place(struct member who)
{
	return (who.role == ROLE_TRAINER ? 0 : 2) + who.rank;
}

/* All have version 7, trainers compute, and ranks have just begun to wait for them. */
static int set_up(void **state)
{
	struct job *job = memory_zalloc(1, sizeof(*job));

	assert_non_null(job);
	job->report = (struct message_report){.state = "running",
					      .trainers = 2,
					      .engines = 2,
					      .engine_ranks = 2,
					      .heartbeat_ms = 500,
					      .lost_ms = 5000,
					      .missing = "",
					      .trouble = "",
					      .policy = "greedy",
					      .commit = "engine",
					      .members = job->members,
					      .member_count = MEMBERS};
	for (uint32_t i = 0; i < MEMBERS; i++) {
		struct report_member *one = &job->members[i];

		*one = (struct report_member){.who = i < 2 ? trainer(i) : inference(i - 2),
					      .host = "a",
					      .pid = 100 + i,
					      .phase = "connected",
					      .heard_ms = 100,
					      .version = 7,
					      .known = true};
		one->activity.what = i < 2 ? ACTIVITY_BETWEEN : ACTIVITY_RECEIVES;
		one->activity.version = i < 2 ? 0 : 8;
		one->activity.since_ms = 200;
		one->activity.trouble = "";
	}
	*state = job;
	return 0;
}

static int tear_down(void **state)
{
	struct job *job = *state;

	findings_free(&job->found);
	memory_free(job);
	return 0;
}

static struct report_member *of(struct job *job, struct member who)
{
	return &job->members[place(who)];
}

static void waits(struct job *job, struct member who, uint64_t since_ms, struct member first,
		  const struct member *second)
{
	struct message_activity *activity = &of(job, who)->activity;

	activity->waits = job->waits[place(who)];
	activity->waits[0] = first;
	activity->wait_count = second ? 2 : 1;
	if (second)
		activity->waits[1] = *second;
	activity->since_ms = since_ms;
}

static void judge(struct job *job, size_t count)
{
	findings_free(&job->found);
	assert_true(
		status_why(job->before.members ? &job->before : NULL, &job->report, &job->found));
	assert_int_equal(job->found.count, count);
}

static void assert_found(const struct job *job, size_t at, bool fault, const char *text)
{
	assert_int_equal(job->found.items[at].fault, fault);
	assert_string_equal(job->found.items[at].text, text);
}

static void test_quiet__a_job_whose_ranks_wait_for_a_moment_names_nobody(void **state)
{
	struct job *job = *state;

	waits(job, inference(0), 900, trainer(0), NULL);
	judge(job, 0);
	assert_false(findings_fault(&job->found));
}

static void test_computing__trainers_that_all_compute_are_a_note_and_no_fault(void **state)
{
	struct job *job = *state;
	struct member second = trainer(1);

	of(job, trainer(0))->activity.since_ms = of(job, trainer(1))->activity.since_ms = 9000;
	for (uint32_t rank = 0; rank < 4; rank++)
		waits(job, inference(rank), 8000 + rank, trainer(0), &second);
	judge(job, 2);
	assert_found(
		job, 0, false,
		"trainer 0 (host a, pid 100) has not begun update 8: its host program computes, or "
		"hangs, for 9.0 s; inference 3 (host a, pid 105) and 3 others wait for it, for 8.0 s");
	assert_false(findings_fault(&job->found));
}

static void test_behind__a_trainer_that_has_not_begun_what_another_one_has_is_at_fault(void **state)
{
	struct job *job = *state;

	of(job, trainer(0))->version = 8;
	of(job, trainer(0))->version_ms = 2000;
	of(job, trainer(1))->activity.since_ms = 4000;
	waits(job, inference(2), 3000, trainer(1), NULL);
	judge(job, 1);
	assert_true(job->found.items[0].fault);
	assert_int_equal(job->found.items[0].who.rank, 1);
}

/* Trainers of a healthy job do not begin in the same millisecond. */
static void test_behind__another_one_that_is_ahead_for_a_moment_makes_it_a_note(void **state)
{
	struct job *job = *state;

	of(job, trainer(0))->version = 8;
	of(job, trainer(0))->version_ms = 300;
	of(job, trainer(1))->activity.since_ms = 60000;
	waits(job, inference(2), 60000, trainer(1), NULL);
	judge(job, 1);
	assert_false(job->found.items[0].fault);
	/* nor do they write and end in the same one */
	of(job, trainer(0))->version = 7;
	of(job, trainer(0))->activity.what = ACTIVITY_ENDS;
	of(job, trainer(1))->activity.what = ACTIVITY_WRITES;
	of(job, trainer(0))->activity.version = of(job, trainer(1))->activity.version = 8;
	of(job, trainer(0))->activity.since_ms = 700;
	judge(job, 1);
	assert_false(job->found.items[0].fault);
}

/* What workers say is of different moments. */
static void test_stale__a_wait_for_what_has_been_done_since_names_nobody(void **state)
{
	struct job *job = *state;

	of(job, trainer(1))->version = 8; /* it has ended what the rank said that it waits for */
	waits(job, inference(2), 3000, trainer(1), NULL);
	judge(job, 0);
	of(job, trainer(1))->version = 7;
	of(job, inference(2))->heard_ms = 3000; /* what a silent one said last is no news */
	judge(job, 1);
	assert_int_equal(job->found.items[0].who.role, ROLE_INFERENCE);
}

static void test_poll__a_host_that_calls_no_more_is_at_fault(void **state)
{
	struct job *job = *state;

	/* it said that it waits for version 8 of trainer 0, which has ended that and waits for it at 9 */
	waits(job, inference(1), 20000, trainer(0), NULL);
	of(job, trainer(0))->version = 8;
	of(job, trainer(0))->activity.what = ACTIVITY_BEGINS;
	of(job, trainer(0))->activity.version = 9;
	waits(job, trainer(0), 4000, inference(1), NULL);
	judge(job, 1);
	assert_found(
		job, 0, true,
		"inference 1 (host a, pid 103) was at update 8 when its host program called last, 20.0 s after "
		"it had begun to: it calls weft_update_try_wait rarely, or hangs; trainer 0 (host a, pid 100) "
		"waits for it, for 4.0 s");
}

static void test_pause__who_has_stopped_is_not_blamed_and_who_has_not_is_a_note(void **state)
{
	struct job *job = *state;

	job->report.state = "pausing";
	of(job, trainer(0))->activity.what = ACTIVITY_PAUSED;
	waits(job, inference(0), 9000, trainer(0), NULL);
	of(job, trainer(1))->activity.since_ms = 10000;
	judge(job, 1);
	assert_found(
		job, 0, false,
		"the pause for another plan waits for trainer 1 (host a, pid 101), which is at 'between' "
		"for 10.0 s");
}

static void test_controller__that_hears_nobody_is_named_and_none_of_them(void **state)
{
	struct job *job = *state;

	for (uint32_t i = 0; i < MEMBERS; i++)
		job->members[i].heard_ms = 3000 + i;
	judge(job, 1);
	assert_found(
		job, 0, true,
		"the controller has heard none of 6 workers for 3.0 s: it stood still itself, or its host's "
		"network is cut");
}

static void
test_silent__who_is_not_heard_is_named_and_not_once_more_for_those_that_wait(void **state)
{
	struct job *job = *state;
	struct member second = trainer(0);

	of(job, trainer(1))->heard_ms = 2100;
	for (uint32_t rank = 0; rank < 4; rank++)
		waits(job, inference(rank), 2000, trainer(1), rank ? NULL : &second);
	waits(job, trainer(0), 1900, inference(0), NULL);
	judge(job, 1);
	assert_found(
		job, 0, true,
		"trainer 1 (host a, pid 101) is silent for 2.1 s: its process is stopped, its host "
		"stands still or its network is cut; it counts as lost after 5.0 s (--lost-after)");
}

static void test_chain__of_those_that_wait_for_each_other_the_last_one_is_named(void **state)
{
	struct job *job = *state;

	/* trainer 0 waits for rank 1, which meets rank 0, which loads */
	waits(job, trainer(0), 3000, inference(1), NULL);
	waits(job, inference(1), 4000, inference(0), NULL);
	of(job, inference(1))->activity.what = ACTIVITY_MEETS;
	of(job, inference(0))->activity.what = ACTIVITY_LOADS;
	of(job, inference(0))->activity.version = 8;
	of(job, inference(0))->activity.since_ms = 4200;
	judge(job, 1);
	assert_found(
		job, 0, true,
		"inference 0 (host a, pid 102) loads update 8 for 4.2 s: its post-load hook, or the "
		"copy of what was staged; inference 1 (host a, pid 103) waits for it, for 4.0 s");
}

static void test_rank__that_is_not_in_a_wait_while_trainers_have_begun_is_at_fault(void **state)
{
	struct job *job = *state;

	of(job, inference(3))->activity.what = ACTIVITY_BETWEEN;
	of(job, inference(3))->activity.since_ms = 7000;
	of(job, inference(2))->activity.since_ms = 6000; /* the other one of its engine is there */
	of(job, trainer(0))->activity.what = ACTIVITY_BEGINS;
	of(job, trainer(0))->activity.version = 8;
	waits(job, trainer(0), 2500, inference(3), NULL);
	judge(job, 1);
	assert_found(
		job, 0, true,
		"inference 3 (host a, pid 105) is not in weft_update_wait for update 8: its host program "
		"serves, or hangs, for 7.0 s; trainer 0 (host a, pid 100) waits for it, for 2.5 s");
	/* an engine that serves as a whole is no fault */
	of(job, inference(2))->activity.what = ACTIVITY_BETWEEN;
	judge(job, 1);
	assert_false(job->found.items[0].fault);
}

static void test_lost__an_engine_is_named_by_the_rank_that_is_to_blame(void **state)
{
	struct job *job = *state;

	of(job, inference(2))->phase = of(job, inference(3))->phase = "lost";
	job->events[0] = (struct report_event){1500, inference(3), 131, "it has died"};
	job->report.events = job->events;
	job->report.event_count = 1;
	judge(job, 1);
	assert_found(job, 0, true,
		     "inference 3 (host a, pid 105) is lost for 1.5 s: WEFT-E131: it has died");
}

static void nic(struct job *job, struct member who, uint64_t bytes, uint64_t busy_ms)
{
	uint32_t at = place(who);

	job->nics[at] = (struct nic_traffic){"mlx5_0:1", bytes, busy_ms, 0};
	job->members[at].activity.nics = &job->nics[at];
	job->members[at].activity.nic_count = 1;
}

static void test_slow__a_nic_that_carries_a_quarter_of_the_median_while_busy_is_named(void **state)
{
	struct job *job = *state;

	nic(job, trainer(0), 1000000000, 1000);
	nic(job, trainer(1), 30000000, 1000);
	judge(job, 1); /* by all that ever was: a note */
	assert_found(
		job, 0, false,
		"NIC mlx5_0:1 of trainer 1 (host a, pid 101) carries 30.0 MB/s while it is busy, others "
		"1.00 GB/s (the median): look at its cable, its port and its counters");
	/* idle is not slow: it was hardly busy */
	nic(job, trainer(1), 30000, 30);
	judge(job, 0);
	nic(job, trainer(1), 300000000, 1000);
	judge(job, 0);
}

/* It was fast for a day, and is slow for a second. */
static void test_slow__is_what_lies_between_two_looks_and_not_all_that_ever_was(void **state)
{
	struct job *job = *state;

	nic(job, trainer(0), 1000000000, 1000);
	nic(job, trainer(1), 1000000000, 1000);
	memcpy(job->nics_before, job->nics, sizeof(job->nics));
	memcpy(job->members_before, job->members, sizeof(job->members));
	job->before = job->report;
	job->before.members = job->members_before;
	for (uint32_t i = 0; i < 2; i++)
		job->members_before[i].activity.nics = &job->nics_before[i];
	nic(job, trainer(0), 2000000000, 2000);
	nic(job, trainer(1), 1010000000, 2000);
	judge(job, 1);
	assert_true(job->found.items[0].fault);
	assert_int_equal(job->found.items[0].who.rank, 1);
	/* the fast one has long had nothing to do: the slow one holds everybody up */
	job->nics_before[0] = job->nics[0];
	judge(job, 1);
	assert_int_equal(job->found.items[0].who.rank, 1);
	/* one that was slow, and does nothing now, is not judged by that */
	job->nics_before[1] = job->nics[1] = (struct nic_traffic){"mlx5_0:1", 30000000, 2000, 0};
	judge(job, 0);
	nic(job, trainer(1), 40000000, 3000);
	judge(job, 1);
	/* and of a lost one's nothing is said */
	of(job, trainer(1))->phase = "left";
	judge(job, 0);
}

static void test_trouble__a_full_disk_is_told_of_whoever_has_it(void **state)
{
	struct job *job = *state;

	of(job, inference(1))->activity.trouble = "its log is lost: No space left on device";
	job->report.trouble = "--metrics-file: No space left on device";
	judge(job, 2);
	assert_found(
		job, 0, true,
		"inference 1 (host a, pid 103): its log is lost: No space left on device (its updates "
		"go on)");
	assert_found(job, 1, true,
		     "the controller: --metrics-file: No space left on device (the job goes on)");
}

static void test_faults__come_before_notes(void **state)
{
	struct job *job = *state;

	job->report.state = "gathering";
	job->report.missing = "trainer 1 of 2 to join";
	job->report.trouble = "full";
	judge(job, 2);
	assert_true(job->found.items[0].fault);
	assert_found(job, 1, false, "the job is gathering, and waits for: trainer 1 of 2 to join");
}

static void test_circle__of_waits_without_an_end_is_told(void **state)
{
	struct job *job = *state;

	/* trainer 0 for rank 0, which meets rank 1, which waits for trainer 0 */
	of(job, trainer(0))->activity.what = ACTIVITY_BEGINS;
	of(job, trainer(0))->activity.version = 8;
	waits(job, trainer(0), 6000, inference(0), NULL);
	of(job, inference(0))->activity.what = ACTIVITY_MEETS;
	waits(job, inference(0), 5600, inference(1), NULL);
	waits(job, inference(1), 5500, trainer(0), NULL);
	judge(job, 1);
	assert_found(
		job, 0, false,
		"trainer 0 (host a, pid 100) waits for inference 0 for 6.0 s, which waits for others "
		"in its turn");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(test_quiet__a_job_whose_ranks_wait_for_a_moment_names_nobody),
		TEST(test_computing__trainers_that_all_compute_are_a_note_and_no_fault),
		TEST(test_behind__a_trainer_that_has_not_begun_what_another_one_has_is_at_fault),
		TEST(test_behind__another_one_that_is_ahead_for_a_moment_makes_it_a_note),
		TEST(test_stale__a_wait_for_what_has_been_done_since_names_nobody),
		TEST(test_poll__a_host_that_calls_no_more_is_at_fault),
		TEST(test_pause__who_has_stopped_is_not_blamed_and_who_has_not_is_a_note),
		TEST(test_controller__that_hears_nobody_is_named_and_none_of_them),
		TEST(test_silent__who_is_not_heard_is_named_and_not_once_more_for_those_that_wait),
		TEST(test_chain__of_those_that_wait_for_each_other_the_last_one_is_named),
		TEST(test_rank__that_is_not_in_a_wait_while_trainers_have_begun_is_at_fault),
		TEST(test_lost__an_engine_is_named_by_the_rank_that_is_to_blame),
		TEST(test_slow__a_nic_that_carries_a_quarter_of_the_median_while_busy_is_named),
		TEST(test_slow__is_what_lies_between_two_looks_and_not_all_that_ever_was),
		TEST(test_trouble__a_full_disk_is_told_of_whoever_has_it),
		TEST(test_faults__come_before_notes),
		TEST(test_circle__of_waits_without_an_end_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
