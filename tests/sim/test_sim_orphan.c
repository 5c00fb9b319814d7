/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of a controller that is lost while updates run (--orphan), and of one that takes its place.
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct simulation *orphans(const struct simulation_options *more)
{
	struct simulation_options options = *more;
	struct simulation *simulation;

	options.orphan_ms = 60000;
	simulation = simulation_running(&options);
	simulation_update(simulation, 1);
	simulation_run(simulation, 1000);
	simulation_controller_kill(simulation);
	return simulation;
}

static void assert_all(const struct simulation *simulation, enum worker_state state,
		       uint64_t version)
{
	for (uint32_t i = 0; i < simulation_workers(simulation); i++) {
		assert_int_equal(simulation_state(simulation, i), state);
		assert_int_equal(simulation_version(simulation, i), version);
	}
}

static void test_updates__go_on_without_the_controller_and_all_leave_well(void **unused)
{
	struct simulation *s = orphans(&(struct simulation_options){0});

	(void)unused;
	simulation_run(s, 30000);
	assert_all(s, WORKER_RUN, 1);
	simulation_update(s, 2);
	simulation_run(s, 40000);
	assert_all(s, WORKER_RUN, 2);
	simulation_leave_all(s);
	simulation_run(s, 40001);
	assert_all(s, WORKER_LEFT, 2);
	simulation_free(&s);
}

static void test_job__that_lasts_longer_than_orphans_may_ends(void **unused)
{
	struct simulation *s = orphans(&(struct simulation_options){0});

	(void)unused;
	simulation_run(s, 60000);
	assert_all(s, WORKER_RUN, 1);
	simulation_run(s, 67000);
	assert_all(s, WORKER_FAILED, 1);
	assert_non_null(strstr(simulation_error(s, 0)->text, "is silent for 65"));
	simulation_free(&s);
}

static void test_other_controller__takes_the_job_over_with_the_plan_that_it_has(void **unused)
{
	struct simulation *s = orphans(&(struct simulation_options){0});

	(void)unused;
	simulation_run(s, 10000);
	simulation_controller_start(s);
	simulation_update(s, 2);
	simulation_run(s, 12000);
	simulation_expect(s, "*trainer 0: another controller answers at *\n"
			     "*trainer 0 > hello trainer 0 *\n"
			     "*controller: takes over a job that runs*\n"
			     "*trainer 0: the controller at *\n");
	simulation_expect_not(s, "plan attempt 2:");
	assert_all(s, WORKER_RUN, 2);
	simulation_update(s, 3);
	simulation_run(s, 20000);
	assert_all(s, WORKER_RUN, 3);
	simulation_leave_all(s);
	simulation_run(s, 22000);
	assert_all(s, WORKER_LEFT, 3);
	simulation_assert_done(s);
	simulation_free(&s);
}

/* Before anybody has missed the first one. */
static void test_other_controller__that_comes_at_once_takes_the_job_over_too(void **unused)
{
	struct simulation *s = orphans(&(struct simulation_options){0});

	(void)unused;
	simulation_controller_start(s);
	simulation_run(s, 4000);
	simulation_expect(s, "*controller: takes over a job that runs*\n");
	simulation_expect_not(s, "updates go on without it");
	assert_all(s, WORKER_RUN, 1);
	simulation_free(&s);
}

/* A host is gone that had the controller and one trainer or all; what only they held, their new processes hold too. */
static void test_trainers__that_are_lost_with_their_controller_come_back_with_another(void **unused)
{
	static const char *const trains[] = {"world=2,source=gathered", "world=2,pp=2"};

	(void)unused;
	for (uint32_t row = 0; row < 4; row++) {
		uint32_t lost = 1 + row / 2;
		struct simulation *s =
			orphans(&(struct simulation_options){.train = trains[row % 2],
							     .infer = "engines=2,tp=1",
							     .on_loss = "continue"});

		for (uint32_t t = 0; t < lost; t++)
			simulation_kill(s, t);
		simulation_run_for(s, 7000);
		simulation_controller_start(s);
		for (uint32_t t = 0; t < lost; t++)
			simulation_start(
				s, &(struct simulation_worker){.role = ROLE_TRAINER, .rank = t});
		simulation_run_for(s, 8000);
		simulation_expect(
			s,
			"*controller: trainer 0 leaves, the job goes on with 1 of 2: trainer 0*\n"
			"*controller: takes over a job that runs*\n");
		simulation_update_next(s);
		simulation_run_for(s, 8000);
		simulation_update_next(s);
		simulation_run_for(s, 8000);
		simulation_expect(s, "*controller: 2 of 2 engines are here from version 2 on\n");
		for (uint32_t i = lost; i < simulation_workers(s); i++)
			assert_int_equal(simulation_version(s, i),
					 simulation_version(s, simulation_workers(s) - 1));
		assert_true(simulation_version(s, 2) > 1);
		simulation_leave_all(s);
		simulation_run_for(s, 8000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* The pause for a lost trainer and the exchange after it take some 100 ms: the controller is lost in each of them. */
static void test_controller__that_is_lost_at_any_moment_of_an_exchange_is_replaced(void **unused)
{
	uint32_t anew = 0, same = 0;

	(void)unused;
	for (uint32_t after = 0; after < 140; after += 2) {
		struct simulation *s =
			simulation_running(&(struct simulation_options){.orphan_ms = 60000,
									.on_loss = "continue",
									.infer = "engines=2,tp=2",
									.jitter_ms = 12,
									.open_ms = 20,
									.connect_ms = 20,
									.seed = after});

		simulation_update(s, 1);
		simulation_run_for(s, 1000);
		simulation_kill(s, 0);
		while (!strstr(simulation_transcript(s), "trainer 0 leaves"))
			simulation_run_for(s, 1);
		simulation_run_for(s, 20);
		simulation_update_next(s);
		simulation_run_for(s, after);
		simulation_controller_kill(s);
		simulation_run_for(s, after * 50);
		simulation_controller_start(s);
		simulation_start(s, &(struct simulation_worker){.role = ROLE_TRAINER, .rank = 0});
		for (uint32_t i = 0; i < 4; i++) {
			simulation_run_for(s, 8000);
			simulation_update_next(s);
		}
		simulation_run_for(s, 8000);
		anew += strstr(simulation_transcript(s), "another one is made") != NULL;
		same += strstr(simulation_transcript(s), "all have the plan that they had") != NULL;
		for (uint32_t i = 1; i < simulation_workers(s); i++) {
			assert_int_equal(simulation_state(s, i), WORKER_RUN);
			assert_int_equal(simulation_version(s, i), simulation_version(s, 1));
		}
		assert_true(simulation_version(s, 1) > 3);
		simulation_free(&s);
	}
	if (anew < 10 || same < 10)
		fail_msg("%u in an exchange, %u not", anew, same);
}

/* Engine 1, of ranks 2 and 3, dies while there is no controller, and is started again. */
static void test_engine__that_is_new_to_a_job_that_is_taken_over_comes_in_like_others(void **unused)
{
	struct simulation *s = orphans(
		&(struct simulation_options){.infer = "engines=2,tp=2", .on_loss = "continue"});

	(void)unused;
	simulation_run(s, 8000);
	simulation_kill(s, 4);
	simulation_kill(s, 5);
	for (uint32_t t = 0; t < 2; t++)
		simulation_drop(s, t, 2, "its process has ended");
	simulation_controller_start(s);
	for (uint32_t rank = 2; rank < 4; rank++)
		simulation_start(s,
				 &(struct simulation_worker){.role = ROLE_INFERENCE, .rank = rank});
	simulation_run(s, 12000);
	simulation_expect(s,
			  "*controller: engine 1 (inference 2..3) leaves, the job goes on with 1 "
			  "of 2: inference 2*\n"
			  "*controller: takes over a job that runs*\n");
	simulation_update(s, 2);
	simulation_run(s, 20000);
	simulation_expect(s, "*controller: 2 of 2 engines are here from version 2 on*\n");
	for (uint32_t i = 0; i < simulation_workers(s); i++)
		if (simulation_alive(s, i)) {
			assert_int_equal(simulation_state(s, i), WORKER_RUN);
			assert_int_equal(simulation_version(s, i), 2);
		}
	simulation_leave_all(s);
	simulation_run(s, 23000);
	simulation_assert_done(s);
	simulation_free(&s);
}

static void fails_with(struct simulation *s, const char *part)
{
	for (uint32_t i = 0; i < simulation_workers(s); i++)
		if (simulation_alive(s, i)) {
			assert_int_equal(simulation_state(s, i), WORKER_FAILED);
			if (!strstr(simulation_error(s, i)->text, part))
				fail_msg("%s", simulation_error(s, i)->text);
		}
	simulation_free(&s);
}

static void test_takeover__of_a_job_with_a_new_trainer_or_engine_fails_by_name(void **unused)
{
	struct simulation *s = orphans(&(struct simulation_options){0});

	(void)unused;
	simulation_kill(s, 1);
	simulation_start(s, &(struct simulation_worker){.role = ROLE_TRAINER, .rank = 1});
	simulation_controller_start(s);
	simulation_run(s, 10000);
	fails_with(s,
		   "trainer 1 (host a, pid 1004) was started anew while the job had no controller, "
		   "and the job ends");

	s = orphans(&(struct simulation_options){0});
	simulation_kill(s, 2);
	simulation_start(s, &(struct simulation_worker){.role = ROLE_INFERENCE, .rank = 0});
	simulation_controller_start(s);
	simulation_run(s, 10000);
	fails_with(s, "was started anew while the job had no controller, and the job ends");
}

static void
test_worker__that_is_lost_in_the_midst_of_a_takeover_ends_nobody_elses_job(void **unused)
{
	(void)unused;
	for (uint32_t row = 0; row < 4; row++) {
		bool failed = row % 2, trainer = row / 2;
		uint32_t victim = trainer ? 1 : 3;
		struct simulation *s = orphans(&(struct simulation_options){
			.infer = "engines=2,tp=1", .on_loss = "continue", .jitter_ms = 30});
		char joins[64];

		snprintf(joins, sizeof(joins), "controller: %s 1 (host a, pid %u) joins, ",
			 trainer ? "trainer" : "inference", 1000 + victim);
		simulation_controller_start(s);
		while (simulation_now(s) < 8000 && !strstr(simulation_transcript(s), joins))
			simulation_run_for(s, 1);
		if (failed)
			simulation_fail(s, victim, "its NIC is gone");
		else
			simulation_leave(s, victim, false);
		simulation_run_for(s, 8000);
		simulation_expect_not(s, "the job fails");
		simulation_start(s, &(struct simulation_worker){.role = trainer ? ROLE_TRAINER
										: ROLE_INFERENCE,
								.rank = 1});
		simulation_run_for(s, 8000);
		simulation_update_next(s);
		simulation_run_for(s, 8000);
		simulation_update_next(s);
		simulation_run_for(s, 8000);
		assert_true(simulation_version(s, 0) > 1);
		for (uint32_t i = 0; i < 5; i++)
			if (i != victim)
				assert_int_equal(simulation_version(s, i),
						 simulation_version(s, 0));
		simulation_free(&s);
	}
}

static void
test_engine__of_which_a_rank_died_while_there_was_no_controller_is_told_when_another_comes(
	void **unused)
{
	struct simulation *s = orphans(
		&(struct simulation_options){.infer = "engines=2,tp=2", .on_loss = "continue"});

	(void)unused;
	simulation_kill(s, 5);
	simulation_run_for(s, 1000);
	simulation_start_rank(s, 3);
	simulation_controller_start(s);
	simulation_run_for(s, 8000);
	simulation_expect(
		s, "*controller: takes over a job that runs*\n"
		   "*inference 2 fails: inference 3 (host a, pid 1006) was started anew while "
		   "the job had no controller\n");
	simulation_start_rank(s, 2);
	simulation_run_for(s, 1000);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

/* Others hold what the trainer held, so the plan is without it. */
static void test_other_controller__takes_a_job_over_that_goes_on_without_a_trainer(void **unused)
{
	struct simulation *s = simulation_running(&(struct simulation_options){
		.orphan_ms = 60000, .on_loss = "continue", .join_timeout_ms = 60000});

	(void)unused;
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	simulation_kill(s, 0);
	simulation_run_for(s, 7000);
	simulation_update(s, 2);
	simulation_run_for(s, 2000);
	simulation_expect(
		s, "*controller: 1 of 1 engines and 1 of 2 trainers are here from version 2 on\n");
	simulation_controller_kill(s);
	simulation_run_for(s, 1000);
	simulation_controller_start(s);
	simulation_run_for(s, 8000);
	simulation_expect(s, "*controller: takes over a job that runs*\n");
	simulation_update(s, 3);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 3);
	simulation_start(s, &(struct simulation_worker){.role = ROLE_TRAINER, .rank = 0});
	simulation_run_for(s, 1000);
	simulation_update(s, 4);
	simulation_run_for(s, 1000);
	simulation_update(s, 4);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 4);
	/* whose plan follows the one without it: a controller more cannot make that one */
	simulation_controller_kill(s);
	simulation_run_for(s, 1000);
	simulation_controller_start(s);
	simulation_run_for(s, 8000);
	simulation_expect(
		s,
		"*controller: takes over a job that runs, 0.5 s after it was started: who came and went has shaped its plan*\n");
	simulation_update(s, 5);
	simulation_run_for(s, 1000);
	simulation_update(s, 5);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 5);
	simulation_leave_all(s);
	simulation_run_for(s, 1000);
	simulation_assert_done(s);
	simulation_free(&s);
}

/* Whatever is lost, doubled or late. */
static void test_bad_network__the_job_is_taken_over(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= SIMULATION_SEEDS; seed++) {
		struct simulation *s = orphans(
			&(struct simulation_options){.infer = "engines=2,tp=2",
						     .on_loss = seed % 2 ? "continue" : "end",
						     .seed = seed,
						     .drop_percent = 20,
						     .double_percent = 10,
						     .jitter_ms = 50});
		uint64_t now = simulation_now(s);

		simulation_run(s, now + 100 * (seed % 100));
		simulation_controller_start(s);
		simulation_run(s, now + 30000);
		for (uint32_t i = 0; i < simulation_workers(s); i++)
			if (simulation_state(s, i) != WORKER_RUN)
				fail_msg("seed %llu: worker %u is %s\n%s", (unsigned long long)seed,
					 i, worker_state_name(simulation_state(s, i)),
					 simulation_transcript(s));
		simulation_expect(s, "*controller: takes over a job that runs*\n");
		simulation_leave_all(s);
		simulation_run(s, now + 45000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* As long as a trainer reaches its ranks, an engine that is lost meanwhile takes nobody with it. */
static void test_engine__that_is_lost_meanwhile_is_gone_on_without(void **unused)
{
	struct simulation *s = orphans(
		&(struct simulation_options){.infer = "engines=2,tp=1", .on_loss = "continue"});

	(void)unused;
	simulation_run(s, 10000);
	simulation_kill(s, 3);
	simulation_drop(s, 0, 1, "its process has ended");
	simulation_drop(s, 1, 1, "its process has ended");
	simulation_run(s, 20000);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(simulation_state(s, i), WORKER_RUN);
	simulation_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_updates__go_on_without_the_controller_and_all_leave_well),
		cmocka_unit_test(test_job__that_lasts_longer_than_orphans_may_ends),
		cmocka_unit_test(
			test_other_controller__takes_the_job_over_with_the_plan_that_it_has),
		cmocka_unit_test(test_other_controller__that_comes_at_once_takes_the_job_over_too),
		cmocka_unit_test(
			test_trainers__that_are_lost_with_their_controller_come_back_with_another),
		cmocka_unit_test(
			test_controller__that_is_lost_at_any_moment_of_an_exchange_is_replaced),
		cmocka_unit_test(
			test_engine__that_is_new_to_a_job_that_is_taken_over_comes_in_like_others),
		cmocka_unit_test(
			test_takeover__of_a_job_with_a_new_trainer_or_engine_fails_by_name),
		cmocka_unit_test(
			test_worker__that_is_lost_in_the_midst_of_a_takeover_ends_nobody_elses_job),
		cmocka_unit_test(
			test_engine__of_which_a_rank_died_while_there_was_no_controller_is_told_when_another_comes),
		cmocka_unit_test(
			test_other_controller__takes_a_job_over_that_goes_on_without_a_trainer),
		cmocka_unit_test(test_bad_network__the_job_is_taken_over),
		cmocka_unit_test(test_engine__that_is_lost_meanwhile_is_gone_on_without),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
