/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of trainers that are lost to a job that goes on: what becomes of the version that they were sending, and of the next.
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SPLIT "world=2,pp=2" /* each trainer holds what the other does not */

/* Workers 0, 1: trainers; 2, 3: engine 0; 4, 5: engine 1 */
static struct simulation *running(const char *train, const struct simulation_options *more)
{
	struct simulation_options options = *more;

	options.train = train;
	options.infer = "engines=2,tp=2";
	options.on_loss = "continue";
	return simulation_running(&options);
}

static uint32_t start_trainer(struct simulation *simulation, uint32_t rank)
{
	return simulation_start(simulation,
				&(struct simulation_worker){.role = ROLE_TRAINER, .rank = rank});
}

/* Trainer 0 has ended it, and is told. */
static void lose_trainer_1_before_version_2(struct simulation *s)
{
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	simulation_begin(s, 0, 2);
	simulation_run_for(s, 100);
	simulation_kill(s, 1);
	simulation_run_for(s, 6000);
}

static void test_trainer__whose_part_others_hold_is_gone_on_without(void **unused)
{
	struct simulation *s = running("world=2", &(struct simulation_options){0});
	uint32_t again;

	(void)unused;
	lose_trainer_1_before_version_2(s);
	simulation_expect(
		s, "*trainer 0 ends version 2\n"
		   "*trainer 1 is killed\n"
		   "*controller: trainer 1 leaves, the job goes on with 1 of 2: trainer 1 (host a, "
		   "pid 1001) was lost: silent for *\n"
		   "*trainer 0: the job goes on without trainer 1: *\n"
		   "*inference 0: the job goes on without trainer 1: *\n");
	assert_int_equal(simulation_version(s, 3), 1); /* it was trainer 1 that served it */
	simulation_update(s, 3);
	simulation_run_for(s, 500);
	simulation_expect(s, "*trainer 0 pauses before version 3\n"
			     "*controller: 2 of 2 engines and 1 of 2 trainers are here from "
			     "version 3 on\n"
			     "*trainer 0 begins version 3\n"
			     "*inference 3 publishes version 3\n");
	simulation_assert_all_at(s, 3);
	again = start_trainer(s, 1);
	simulation_run_for(s, 500);
	simulation_expect(s, "*controller: trainer 1 is here, and comes in when all trainers begin "
			     "their next update\n");
	simulation_begin(s, 0, 4);
	simulation_run_for(s, 200);
	assert_int_equal(simulation_plan(s, again)->next, 4);
	simulation_begin(s, again, 4);
	simulation_run_for(s, 500);
	simulation_expect(s, "*controller: 2 of 2 engines are here from version 4 on\n");
	simulation_assert_all_at(s, 4);
	simulation_leave_all(s);
	simulation_run_for(s, 1000);
	simulation_assert_done(s);
	simulation_free(&s);
}

static void test_trainer__that_holds_what_nobody_else_does_is_waited_for(void **unused)
{
	struct simulation *s = running(SPLIT, &(struct simulation_options){0});

	(void)unused;
	lose_trainer_1_before_version_2(s);
	simulation_begin(s, 0, 3);
	simulation_run_for(s, 3000);
	simulation_expect(s, "*inference 3 gives up version 2\n"
			     "*trainer 0 pauses before version 3\n"
			     "*controller: waiting for another process for the rank of trainer 1, "
			     "20.0 s at most (--join-timeout): without it, *\n");
	simulation_begin(s, start_trainer(s, 1), 3); /* not before it has come in */
	simulation_run_for(s, 500);
	simulation_expect(s, "*trainer 1: the job at tcp://head:29600 runs: this trainer comes in "
			     "when ranks have what the one before it ended and trainers begin "
			     "their next update\n"
			     "*controller: 2 of 2 engines are here from version 3 on\n"
			     "*trainer 0 begins version 3\n");
	simulation_begin(s, 6, 3);
	simulation_run_for(s, 500);
	simulation_assert_all_at(s, 3);
	simulation_leave_all(s);
	simulation_run_for(s, 1000);
	simulation_assert_done(s);
	simulation_free(&s);
}

static void test_trainer__that_nobody_replaces_ends_the_job_with_its_name(void **unused)
{
	struct simulation *s = running(SPLIT, &(struct simulation_options){0});

	(void)unused;
	simulation_fail(s, 1, "its NIC is gone");
	simulation_run_for(s, 100);
	simulation_begin(s, 0, 1);
	simulation_run_for(s, 19000);
	assert_int_equal(simulation_state(s, 0), WORKER_RUN);
	simulation_run_for(s, 3000);
	simulation_expect(s,
			  "*controller: trainer 1 leaves, the job goes on with 1 of 2: *\n"
			  "*controller: the job fails: no other process has come for the rank of "
			  "trainer 1 for 20.*\n");
	simulation_expect(
		s, "*trainer 0 fails: no other process has come for the rank of trainer 1*\n");
	assert_int_equal(simulation_state(s, 3), WORKER_FAILED);
	simulation_free(&s);
}

/* As when the whole training side is started again: what comes next is what ranks have not. */
static void test_trainers__that_all_are_replaced_go_on_after_the_last_version(void **unused)
{
	struct simulation *s = running(SPLIT, &(struct simulation_options){0});
	uint32_t first, second;

	(void)unused;
	for (uint64_t version = 1; version <= 3; version++) {
		simulation_update(s, version);
		simulation_run_for(s, 500);
	}
	simulation_kill(s, 0);
	simulation_kill(s, 1);
	simulation_run_for(s, 7000);
	first = start_trainer(s, 0);
	simulation_run_for(s, 2000);
	second = start_trainer(s, 1);
	simulation_run_for(s, 500);
	assert_int_equal(simulation_plan(s, first)->next, 4);
	assert_int_equal(simulation_plan(s, second)->next, 4);
	simulation_begin(s, first, 4);
	simulation_begin(s, second, 4);
	simulation_run_for(s, 500);
	simulation_assert_all_at(s, 4);
	simulation_free(&s);
}

static void test_trainer__that_is_lost_in_the_exchange_is_waited_for_again(void **unused)
{
	struct simulation *s = running(SPLIT, &(struct simulation_options){.connect_ms = 500});
	uint32_t again;

	(void)unused;
	simulation_fail(s, 1, "its NIC is gone");
	simulation_run_for(s, 100);
	simulation_begin(s, 0, 1);
	again = start_trainer(s, 1);
	simulation_run_for(s, 300);
	simulation_kill(s, again); /* while all connect */
	simulation_run_for(s, 8000);
	simulation_expect(s,
			  "*controller: trainer 1 leaves*\n"
			  "*controller: trainer 1 leaves*\n"
			  "*controller: waiting for another process for the rank of trainer 1*\n");
	again = start_trainer(s, 1);
	simulation_run_for(s, 2000);
	simulation_begin(s, again, 1);
	simulation_run_for(s, 500);
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
}

/* Another model, or what else no plan fits, is the newcomer's fault, and the place is free again. */
static void test_trainer__that_does_not_fit_is_turned_away_and_another_waited_for(void **unused)
{
	struct simulation *s = running(SPLIT, &(struct simulation_options){0});
	uint32_t again;

	(void)unused;
	simulation_fail(s, 1, "its NIC is gone");
	simulation_run_for(s, 100);
	simulation_begin(s, 0, 1);
	simulation_run_for(s, 500);
	simulation_start(s, &(struct simulation_worker){.role = ROLE_TRAINER,
							.rank = 1,
							.boot = "boot-b"}); /* over shm */
	simulation_run_for(s, 500);
	simulation_expect(s, "*controller: waiting for another process for the rank of trainer 1*\n"
			     "*controller: refused: transport shm needs one host: *\n");
	again = start_trainer(s, 1);
	simulation_run_for(s, 500);
	simulation_begin(s, again, 1);
	simulation_run_for(s, 500);
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
}

/* The one who is here is not the one who is missing, and is not planned for again and again. */
static void test_trainers__of_whom_one_is_missing_wait_for_that_one(void **unused)
{
	struct simulation *s =
		running(SPLIT, &(struct simulation_options){.join_timeout_ms = 10000});

	(void)unused;
	simulation_kill(s, 0);
	simulation_kill(s, 1);
	simulation_run_for(s, 7000);
	start_trainer(s, 0);
	simulation_run_for(s, 12000);
	simulation_expect(s,
			  "*controller: waiting for another process for the rank of trainer 0*\n"
			  "*controller: the job fails: no other process has come for the rank of "
			  "trainer 1 *\n");
	simulation_free(&s);
}

/* What it would still have to send nobody can. */
static void test_trainer__that_is_lost_while_another_leaves_ends_the_job(void **unused)
{
	struct simulation *s = running(SPLIT, &(struct simulation_options){0});

	(void)unused;
	simulation_begin(s, 0, 1);
	simulation_run_for(s, 5);
	simulation_fail(s, 1, "its NIC is gone");
	simulation_run_for(s, 200);
	simulation_leave(s, 0, true);
	simulation_run_for(s, 1000);
	simulation_expect(s, "*controller: trainer 1 leaves, *\n"
			     "*controller: the job fails: trainer 1 (host a, pid 1001) failed at "
			     "version 0: its NIC is gone\n");
	assert_int_equal(simulation_state(s, 3), WORKER_FAILED);
	simulation_free(&s);
}

/* An engine and a trainer at once, and both come back. */
static void test_engine_and_trainer__are_lost_together_and_come_back(void **unused)
{
	struct simulation *s = running(SPLIT, &(struct simulation_options){0});
	uint32_t again;

	(void)unused;
	simulation_update(s, 1);
	simulation_run_for(s, 500);
	simulation_kill(s, 1);
	simulation_kill(s, 4);
	simulation_run_for(s, 7000);
	simulation_start(s, &(struct simulation_worker){.role = ROLE_INFERENCE, .rank = 2});
	simulation_start(s, &(struct simulation_worker){.role = ROLE_INFERENCE, .rank = 3});
	simulation_run_for(s, 500);
	simulation_begin(s, 0, 2);
	simulation_run_for(s, 500);
	again = start_trainer(s, 1);
	simulation_run_for(s, 500);
	simulation_begin(s, again, 2);
	simulation_run_for(s, 500);
	assert_int_equal(simulation_version(s, 2), 2);
	assert_int_equal(simulation_version(s, 6), 2);
	assert_int_equal(simulation_version(s, 7), 2);
	simulation_free(&s);
}

/* That trainer dies, another one comes, and whoever lives goes on up to where all are together: the next version. */
static uint64_t replaced(struct simulation *s, uint32_t trainers[2], uint32_t dies,
			 uint64_t version, uint64_t random)
{
	const struct message_plan *plan = NULL;

	simulation_kill(s, trainers[dies]);
	simulation_run_for(s, random % 9000);
	trainers[dies] = start_trainer(s, dies);
	for (uint32_t more = 1; more < 4 && !plan; more++) {
		simulation_begin(s, trainers[1 - dies], version + more);
		simulation_run_for(s, 25000);
		plan = simulation_plan(s, trainers[dies]);
	}
	if (!plan || plan->next < version || plan->next > version + 3) {
		fputs(simulation_transcript(s), stderr);
		fail_msg("no plan for a version after %llu", (unsigned long long)version);
	}
	return plan->next;
}

/* Whatever is lost, doubled or late: trainers die at any point of a version, and each rank has it whole or not at all. */
static void test_bad_network__trainers_come_and_go(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= SIMULATION_SEEDS; seed++) {
		const char *train = seed % 2 ? SPLIT : "world=2";
		struct simulation *s =
			running(train, &(struct simulation_options){.seed = seed,
								    .drop_percent = 8,
								    .double_percent = 10,
								    .jitter_ms = 50,
								    .join_timeout_ms = 60000});
		uint32_t trainers[2] = {0, 1};
		uint64_t version = 0;

		for (uint32_t round = 0; round < 6; round++) {
			uint32_t dies = (uint32_t)(seed + round) % 3; /* 2: nobody */

			version++;
			for (uint32_t t = 0; t < 2; t++)
				simulation_begin(s, trainers[t], version);
			simulation_run_for(s, (seed * 7 + round * 13) % 60);
			if (dies < 2)
				version = replaced(s, trainers, dies, version,
						   seed * 37 * (round + 1));
			for (uint32_t t = 0; t < 2 && dies < 2; t++)
				simulation_begin(s, trainers[t], version);
			simulation_run_for(s, 20000);
			simulation_assert_all_at(s, version);
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
		cmocka_unit_test(test_trainer__whose_part_others_hold_is_gone_on_without),
		cmocka_unit_test(test_trainer__that_holds_what_nobody_else_does_is_waited_for),
		cmocka_unit_test(test_trainer__that_nobody_replaces_ends_the_job_with_its_name),
		cmocka_unit_test(test_trainers__that_all_are_replaced_go_on_after_the_last_version),
		cmocka_unit_test(test_trainer__that_is_lost_in_the_exchange_is_waited_for_again),
		cmocka_unit_test(
			test_trainer__that_does_not_fit_is_turned_away_and_another_waited_for),
		cmocka_unit_test(test_trainers__of_whom_one_is_missing_wait_for_that_one),
		cmocka_unit_test(test_trainer__that_is_lost_while_another_leaves_ends_the_job),
		cmocka_unit_test(test_engine_and_trainer__are_lost_together_and_come_back),
		cmocka_unit_test(test_bad_network__trainers_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
