/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of engines that come back to a job that goes on: who pauses when, and what becomes of it when more goes wrong.
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Workers 0, 1: trainers; 2, 3: engine 0; 4, 5: engine 1; 6, 7: engine 2. Engine 1 has left. */
static struct simulation *without_engine_1(const struct simulation_options *more)
{
	struct simulation_options options = *more;
	struct simulation *simulation;

	options.infer = "engines=3,tp=2";
	options.on_loss = "continue";
	simulation = simulation_running(&options);
	simulation_kill(simulation, 5);
	simulation_drop(simulation, 0, 3, "its process has ended");
	simulation_run(simulation, simulation_now(simulation) + 1000);
	return simulation;
}

/* That engine comes, and is there for that version. */
static void comes_for(struct simulation *s, uint32_t engine, uint64_t version)
{
	simulation_start_rank(s, 2 * engine);
	simulation_start_rank(s, 2 * engine + 1);
	simulation_run_for(s, 200);
	simulation_update(s, version);
	simulation_run_for(s, 1000);
}

static void test_engine__comes_back_between_two_versions(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank;

	(void)unused;
	simulation_update(s, 1);
	simulation_run_for(s, 500);
	rank = simulation_start_rank(s, 2);
	simulation_run_for(s, 500);
	simulation_start_rank(s, 3);
	simulation_run_for(s, 500);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_expect(
		s, "[  1516] inference 2: the job at tcp://head:29600 runs: this engine comes "
		   "in when all its ranks are here and trainers begin their next update\n"
		   "[  2017] controller: engine 1 (inference 2..3) is here, and comes in when "
		   "all trainers begin their next update\n"
		   "[  2514] trainer 0 pauses before version 2\n"
		   "[  2514] trainer 1 pauses before version 2\n"
		   "*inference 0 is planned\n"
		   "*controller: 3 of 3 engines are here from version 2 on\n"
		   "*trainer 0 begins version 2\n"
		   "*inference 2 publishes version 2\n");
	assert_int_equal(simulation_version(s, rank), 2);
	simulation_assert_all_at(s, 2);
	assert_int_equal(simulation_plan(s, rank)->next, 2);
	simulation_leave_all(s);
	simulation_run_for(s, 1000);
	simulation_expect(s, "*controller: done: all have left\n");
	simulation_assert_done(s);
	simulation_free(&s);
}

static void test_trainers__that_are_at_different_versions_meet_before_the_later_one(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});

	(void)unused;
	simulation_start_rank(s, 2);
	simulation_start_rank(s, 3);
	simulation_run_for(s, 200);
	simulation_begin(s, 0, 2); /* it has no part in version 1 */
	simulation_run_for(s, 1000);
	simulation_begin(s, 1, 1);
	simulation_run_for(s, 1000);
	simulation_expect(s, "*trainer 0 pauses before version 2\n"
			     "*trainer 1 pauses before version 1\n"
			     "*trainer 1 begins version 1\n"
			     "*trainer 1 ends version 1\n");
	simulation_expect_not(s, "engines are here from");
	simulation_begin(s, 1, 2);
	simulation_run_for(s, 100);
	simulation_expect(s, "*trainer 1 pauses before version 2\n");
	simulation_free(&s);
}

/* The table is what it was when all were here: who has its rows is not sent them again, and who comes is. */
static void test_engine__that_comes_back_costs_no_rows_of_the_others(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});

	(void)unused;
	comes_for(s, 1, 1);
	simulation_expect(s,
			  "*controller > trainer 0: plan attempt 2: rows of attempt 1, 1 peers*\n"
			  "*controller > inference 0: plan attempt 2: rows of attempt 1, 0 peers*\n"
			  "*controller > inference 2: plan attempt 2: 3 rows, 1 peers*\n"
			  "*trainer 0: plan attempt 2: 9 rows, 3 peers\n"
			  "*trainer 0 > endpoints attempt 2: 1 records*\n"
			  "*inference 0 > endpoints attempt 2: 0 records, 0 regions, 0 places*\n"
			  "*inference 2 > endpoints attempt 2: 1 records, 1 regions, 3 places*\n"
			  "*controller > inference 0: peers attempt 2: 0 peers\n"
			  "*controller > inference 2: peers attempt 2: 1 peers\n");
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
}

static void test_endpoint__that_breaks_while_the_pause_lasts_is_not_kept(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});

	(void)unused;
	simulation_start_rank(s, 2);
	simulation_start_rank(s, 3);
	simulation_run_for(s, 200);
	simulation_begin(s, 0, 1);
	simulation_run_for(s, 200);
	simulation_break(s, 0); /* it has said that it stopped, and keeps what it has */
	simulation_run_for(s, 200);
	simulation_begin(s, 1, 1);
	simulation_run_for(s, 1000);
	simulation_expect(s,
			  "*trainer 0 pauses before version 1\n"
			  "*trainer 1 pauses before version 1\n"
			  "*controller > trainer 0: plan attempt 2: rows of attempt 1, 3 peers*\n"
			  "*controller > trainer 1: plan attempt 2: rows of attempt 1, 1 peers*\n"
			  "*trainer 0 > endpoints attempt 2: 3 records*\n"
			  "*trainer 1 > endpoints attempt 2: 1 records*\n");
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
}

static void lose_engine(struct simulation *s, uint32_t world, uint32_t engine)
{
	simulation_kill(s, world + 2 * engine);
	simulation_drop(s, 0, 2 * engine, "its process has ended");
	simulation_run_for(s, 1000);
}

/* Bytes said by and to trainer 0, and the first rank of engine 0, when engine 1 comes back; alone, or while engine 2 is away. */
static void say_bytes(const char *infer, const char *train, bool alone, uint64_t bytes[2])
{
	struct simulation *s = simulation_running(&(struct simulation_options){
		.infer = infer, .train = train, .on_loss = "continue", .tensors = 48});
	uint32_t world = (uint32_t)strtoul(train + strlen("world="), NULL, 10);

	lose_engine(s, world, 1);
	if (!alone)
		lose_engine(s, world, 2);
	bytes[0] = simulation_said_bytes(s, 0);
	bytes[1] = simulation_said_bytes(s, world);
	comes_for(s, 1, 1);
	bytes[0] = simulation_said_bytes(s, 0) - bytes[0];
	bytes[1] = simulation_said_bytes(s, world) - bytes[1];
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
}

/* What a change costs those whom it does not concern does not grow with the job. */
static void
test_engine__that_comes_back_costs_the_others_what_it_is_and_not_what_the_job_is(void **unused)
{
	uint64_t small[2], large[2];

	(void)unused;
	for (int alone = 0; alone < 2; alone++) {
		say_bytes("engines=3,tp=2", "world=2", alone, small);
		/* with some away others send what balance asks; of these two nobody can */
		say_bytes("engines=24,tp=2", alone ? "world=8,source=gathered" : "world=2", alone,
			  large);
		for (int i = 0; i < 2; i++)
			if (large[i] > small[i] + 128) /* numbers of a large one are longer */
				fail_msg("%s: %llu bytes in a job of 8, %llu in a large one",
					 i ? "inference 0" : "trainer 0",
					 (unsigned long long)small[i],
					 (unsigned long long)large[i]);
	}
}

/* The rows of an engine that is away go, and come again with it; those of the others stay where they are. */
static void test_engine__that_comes_while_another_is_away_costs_its_own_rows(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});

	(void)unused;
	lose_engine(s, 2, 2);
	comes_for(s, 1, 1);
	simulation_expect(s,
			  "*controller > trainer 0: plan attempt 2: rows of attempt 1, 1 peers*\n"
			  "*controller > inference 0: plan attempt 2: rows of attempt 1, 0 peers*\n"
			  "*trainer 0: plan attempt 2: 6 rows, 2 peers\n");
	simulation_assert_all_at(s, 1);
	comes_for(s, 2, 2);
	simulation_expect(
		s,
		"*controller > trainer 0: plan attempt 3: 3 rows and rows of attempt 2, 1 peers*\n"
		"*controller > inference 0: plan attempt 3: rows of attempt 2, 0 peers*\n"
		"*trainer 0: plan attempt 3: 9 rows, 3 peers\n");
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

static void test_newcomer__that_dies_again_keeps_nobody_waiting(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank;

	(void)unused;
	rank = simulation_start_rank(s, 2);
	simulation_run_for(s, 100);
	simulation_kill(s, rank); /* before it is an engine */
	simulation_run_for(s, 7000);
	simulation_expect(s, "*controller: inference 2 (host a, pid 1008) is silent for *");
	simulation_update(s, 1);
	simulation_run_for(s, 500);
	simulation_assert_all_at(s, 1);
	simulation_start_rank(s, 2);
	rank = simulation_start_rank(s, 3);
	simulation_run_for(s, 100);
	simulation_kill(s, rank); /* when the pause has begun */
	simulation_run_for(s, 100);
	simulation_update(s, 2);
	simulation_run_for(s, 20000);
	simulation_expect(
		s, "*controller: engine 1 (inference 2..3) leaves, the job goes on with 2 of "
		   "3: inference 3 (host a, pid 1010) was lost*\n"
		   "*controller: 2 of 3 engines are here from version 2 on\n");
	simulation_assert_all_at(s, 2);
	simulation_leave_all(s);
	simulation_run_for(s, 7000);
	simulation_assert_done(s);
	simulation_free(&s);
}

static void test_engine__that_is_lost_in_the_exchange_is_planned_without(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.open_ms = 100});

	(void)unused;
	simulation_start_rank(s, 2);
	simulation_start_rank(s, 3);
	simulation_run_for(s, 200);
	simulation_update(s, 1);
	simulation_run_for(s, 50);
	simulation_fail(s, 7, "its NIC is gone"); /* of engine 2 */
	simulation_run_for(s, 3000);
	simulation_expect(
		s, "*controller: engine 2 (inference 4..5) leaves, the job goes on with 2 of 3*\n"
		   "*controller: 2 of 3 engines are here from version 1 on\n");
	simulation_assert_all_at(s, 1);
	simulation_start_rank(s, 4);
	simulation_start_rank(s, 5);
	simulation_run_for(s, 300);
	simulation_update(s, 2);
	simulation_run_for(s, 3000);
	simulation_expect(s, "*controller: 3 of 3 engines are here from version 2 on\n");
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

static uint32_t start_rank_with(struct simulation *simulation, uint32_t rank, bool unsourced)
{
	return simulation_start(simulation,
				&(struct simulation_worker){.role = ROLE_INFERENCE,
							    .rank = rank,
							    .needs_unsourced = unsourced,
							    .needs_less = !unsourced});
}

static void test_newcomer__may_have_another_layout_if_there_is_a_plan_with_it(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank = start_rank_with(s, 2, true);

	(void)unused;
	start_rank_with(s, 3, true);
	simulation_run_for(s, 200);
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	assert_int_equal(simulation_state(s, rank), WORKER_FAILED);
	assert_non_null(strstr(simulation_error(s, rank)->text, "lost.3.weight"));
	simulation_assert_all_at(s, 1);
	rank = start_rank_with(s, 2, false);
	start_rank_with(s, 3, false);
	simulation_run_for(s, 200);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	assert_int_equal(simulation_version(s, rank), 2);
	simulation_free(&s);
}

static void test_newcomer__to_a_rank_that_is_held_is_refused_as_ever(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank = simulation_start_rank(s, 0);

	(void)unused;
	simulation_run_for(s, 2000);
	assert_int_equal(simulation_state(s, rank), WORKER_FAILED);
	assert_non_null(strstr(simulation_error(s, rank)->text, "holds its rank and is alive"));
	assert_int_equal(simulation_state(s, 0), WORKER_RUN);
	simulation_free(&s);
}

static void test_job__that_is_done_sends_newcomers_home(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank = simulation_start_rank(s, 2);

	(void)unused;
	simulation_run_for(s, 200);
	for (uint32_t i = 0; i < 8; i++)
		simulation_leave(s, i, true);
	simulation_run_for(s, 1000);
	assert_int_equal(simulation_state(s, rank), WORKER_FAILED);
	assert_non_null(strstr(simulation_error(s, rank)->text, "the job is done"));
	simulation_assert_done(s);
	simulation_free(&s);
}

/* One trainer stops for the pause, another one has done its work: nobody waits for what will not come. */
static void test_trainer__that_has_left_ends_a_pause(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});

	(void)unused;
	simulation_start_rank(s, 2);
	simulation_start_rank(s, 3);
	simulation_run_for(s, 200);
	simulation_begin(s, 0, 1);
	simulation_leave(s, 1, true);
	simulation_run_for(s, 1000);
	simulation_expect(
		s, "*controller: the job fails: trainer 1 (host a, pid 1001) did its work and "
		   "left after version 0, but all trainers who are here are about to begin "
		   "version 1*\n");
	simulation_free(&s);
}

static void test_trainer__that_never_comes_to_an_update_is_named(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});

	(void)unused;
	simulation_start_rank(s, 2);
	simulation_start_rank(s, 3);
	simulation_run_for(s, 200);
	simulation_begin(s, 0, 1);
	simulation_run_for(s, 32000);
	simulation_expect(
		s, "*controller: the job fails: the job pauses for another plan, and all wait for "
		   "trainer 1 (host a, pid 1001) to begin an update (weft_update_begin) for *");
	simulation_free(&s);
}

/* Whatever is lost, doubled or late: an engine goes and comes again and again, and each version is everybody's. */
static void test_bad_network__engines_come_and_go(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= SIMULATION_SEEDS; seed++) {
		struct simulation *s = without_engine_1(&(struct simulation_options){
			.seed = seed, .drop_percent = 8, .double_percent = 10, .jitter_ms = 50});
		uint32_t ranks[2] = {0, 0}, kills = 0;

		simulation_run_for(s, 10000);
		for (uint64_t version = 1; version <= 6; version++) {
			if (ranks[0] && (seed + version) % 3 == 0) {
				simulation_kill(s, ranks[(seed + version) % 2]);
				kills++;
				simulation_run_for(s, (seed * version) % 9000);
			}
			if (kills == 0 || version > 4) {
				ranks[0] = simulation_start_rank(s, 2);
				ranks[1] = simulation_start_rank(s, 3);
			}
			simulation_run_for(s, (seed * 37 * version) % 4000);
			simulation_update(s, version);
			simulation_run_for(s, 15000);
			for (uint32_t i = 0; i < simulation_workers(s); i++)
				if (i != 4 && i != 5 && i < 8 &&
				    (simulation_state(s, i) != WORKER_RUN ||
				     simulation_version(s, i) != version))
					fail_msg(
						"seed %llu: worker %u is %s at version %llu of %llu\n%s",
						(unsigned long long)seed, i,
						worker_state_name(simulation_state(s, i)),
						(unsigned long long)simulation_version(s, i),
						(unsigned long long)version,
						simulation_transcript(s));
		}
		simulation_leave_all(s);
		simulation_run_for(s, 20000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_engine__comes_back_between_two_versions),
		cmocka_unit_test(
			test_trainers__that_are_at_different_versions_meet_before_the_later_one),
		cmocka_unit_test(test_engine__that_comes_back_costs_no_rows_of_the_others),
		cmocka_unit_test(test_endpoint__that_breaks_while_the_pause_lasts_is_not_kept),
		cmocka_unit_test(
			test_engine__that_comes_back_costs_the_others_what_it_is_and_not_what_the_job_is),
		cmocka_unit_test(test_engine__that_comes_while_another_is_away_costs_its_own_rows),
		cmocka_unit_test(test_newcomer__that_dies_again_keeps_nobody_waiting),
		cmocka_unit_test(test_engine__that_is_lost_in_the_exchange_is_planned_without),
		cmocka_unit_test(test_newcomer__may_have_another_layout_if_there_is_a_plan_with_it),
		cmocka_unit_test(test_newcomer__to_a_rank_that_is_held_is_refused_as_ever),
		cmocka_unit_test(test_job__that_is_done_sends_newcomers_home),
		cmocka_unit_test(test_trainer__that_has_left_ends_a_pause),
		cmocka_unit_test(test_trainer__that_never_comes_to_an_update_is_named),
		cmocka_unit_test(test_bad_network__engines_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
