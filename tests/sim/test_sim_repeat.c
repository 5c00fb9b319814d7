/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of trainers that have nothing new to send and take in engines that wait: the last version once more, to them alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/without_engine_1.h"

static struct simulation *without_engine_1(const struct simulation_options *more)
{
	return without_engine_1_from("trainers", more);
}

static void test_newcomer__is_sent_the_last_version_while_trainers_have_nothing_new(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank;

	(void)unused;
	simulation_repeat(s); /* nobody waits */
	rank = start_engine_1(s);
	simulation_repeat(s);
	simulation_run_for(s, 300);
	simulation_expect(
		s, "*trainer 0 pauses after version 1\n"
		   "*trainer 1 pauses after version 1\n"
		   "*controller: 3 of 3 engines are here from version 2 on; who lacks version "
		   "1 is sent it before, once more\n"
		   "*trainer 0 sends version 1 once more\n"
		   "*inference 2 publishes version 1\n");
	simulation_assert_all_at(s, 1);
	assert_int_equal(simulation_plan(s, rank)->next, 1);
	assert_int_equal(simulation_plan(s, 2)->next, 2);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	simulation_leave_all(s);
	simulation_run_for(s, 1000);
	simulation_assert_done(s);
	simulation_free(&s);
}

static void test_trainers__of_whom_one_begins_the_next_version_send_nothing_once_more(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank = start_engine_1(s);

	(void)unused;
	simulation_repeat_one(s, 0);
	simulation_run_for(s, 100);
	simulation_begin(s, 1, 2);
	simulation_run_for(s, 300);
	simulation_expect(s, "*controller: 3 of 3 engines are here from version 2 on\n");
	simulation_expect_not(s, "once more");
	assert_int_equal(simulation_plan(s, rank)->next, 2);
	simulation_begin(s, 0, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

/* Trainer 1 is in the midst of version 2 when trainer 0, which is through with it, asks. */
static void test_trainer__that_is_ahead_of_another_waits_for_it(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});

	(void)unused;
	simulation_begin(s, 0, 2);
	simulation_run_for(s, 500);
	start_engine_1(s);
	simulation_repeat_one(s, 0);
	simulation_run_for(s, 500);
	simulation_repeat_one(s, 1); /* it may not stop here: version 2 is its part too */
	simulation_run_for(s, 100);
	simulation_expect_not(s, "engines are here from");
	simulation_begin(s, 1, 2);
	simulation_run_for(s, 500);
	simulation_repeat(s);
	simulation_run_for(s, 500);
	simulation_expect(s, "*controller: 3 of 3 engines are here from version 3 on; who lacks "
			     "version 2 is sent it before, once more\n");
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

static void test_newcomer__that_dies_while_it_is_sent_the_last_version_harms_nobody(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.write_ms = 200});
	uint32_t rank = start_engine_1(s);

	(void)unused;
	simulation_repeat(s);
	simulation_run_for(s, 60);
	simulation_expect(s, "*trainer 1 sends version 1 once more\n");
	simulation_kill(s, rank);
	simulation_run_for(s, 8000);
	simulation_update(s, 2);
	simulation_run_for(s, 8000);
	simulation_assert_all_at(s, 2);
	simulation_start_rank(s, 2);
	simulation_start_rank(s, 3);
	simulation_run_for(s, 200);
	simulation_repeat(s);
	simulation_run_for(s, 2000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

/* Another engine is lost in the exchange: who comes in has had no plan that ran, and is sent the last version all the same. */
static void test_exchange__that_is_made_again_knows_who_comes_in(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.open_ms = 100});
	uint32_t rank = start_engine_1(s);

	(void)unused;
	simulation_repeat(s);
	simulation_run_for(s, 50);
	simulation_fail(s, 7, "its NIC is gone"); /* of engine 2 */
	simulation_run_for(s, 3000);
	simulation_expect(
		s, "*controller: 2 of 3 engines are here from version 2 on; who lacks version "
		   "1 is sent it before, once more\n");
	assert_int_equal(simulation_version(s, rank), 1);
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
}

/* Its pause is asked for right behind go, before trainers have begun what the first one waits for. */
static void test_engine__that_is_whole_while_another_comes_in_is_sent_the_version_too(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.open_ms = 100});
	uint32_t first, second;

	(void)unused;
	simulation_fail(s, 7, "its NIC is gone"); /* of engine 2 */
	simulation_run_for(s, 1000);
	first = start_engine_1(s);
	simulation_repeat(s);
	simulation_run_for(s, 20);
	second = simulation_start_rank(s, 4);
	simulation_start_rank(s, 5);
	for (uint32_t turn = 0; turn < 20; turn++) {
		simulation_run_for(s, 50);
		simulation_repeat(s);
	}
	simulation_expect(
		s, "*controller: 2 of 3 engines are here from version 2 on; who lacks version "
		   "1 is sent it before, once more\n"
		   "*controller: engine 2 (inference 4..5) is here*\n"
		   "*inference 2 publishes version 1\n"
		   "*controller: 3 of 3 engines are here from version 2 on; who lacks version "
		   "1 is sent it before, once more\n"
		   "*inference 4 publishes version 1\n");
	assert_int_equal(simulation_version(s, first), 1);
	assert_int_equal(simulation_version(s, second), 1);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

/* Engines 0 and 2 had given it up, and engine 1 comes. */
static void
test_version__that_a_lost_trainer_had_not_sent_is_sent_once_more_to_all_who_lack_it(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.write_ms = 100});
	uint32_t rank;

	(void)unused;
	simulation_update(s, 2);
	simulation_run_for(s, 50);
	simulation_fail(s, 1, "its GPU is gone");
	simulation_run_for(s, 1000); /* trainer 0 ends version 2, ranks give it up */
	rank = start_engine_1(s);
	simulation_repeat(s);
	simulation_run_for(s, 3000);
	simulation_expect(
		s,
		"*trainer 1 fails: its GPU is gone\n"
		"*inference 1 has nothing of version 2\n"
		"*controller: 3 of 3 engines and 1 of 2 trainers are here from version 3 on; who lacks "
		"version 2 is sent it before, once more\n"
		"*trainer 0 sends version 2 once more\n");
	simulation_assert_all_at(s, 2);
	assert_int_equal(simulation_version(s, rank), 2);
	simulation_update(s, 3);
	simulation_run_for(s, 3000);
	simulation_assert_all_at(s, 3);
	simulation_free(&s);
}

static void
test_trainer__that_is_lost_while_it_sends_once_more_leaves_the_next_version(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.write_ms = 200});
	uint32_t rank = start_engine_1(s);

	(void)unused;
	simulation_repeat(s);
	simulation_run_for(s, 60);
	simulation_fail(s, 1, "its GPU is gone");
	simulation_run_for(s, 3000);
	simulation_update(s, 2);
	simulation_run_for(s, 3000);
	simulation_assert_all_at(s, 2);
	assert_int_equal(simulation_version(s, rank), 2);
	simulation_free(&s);
}

/* A trainer that is new has nothing to send once more. */
static void test_trainer__that_comes_in_with_the_engine_sends_the_next_version_only(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank;

	(void)unused;
	simulation_fail(s, 1, "its GPU is gone");
	rank = start_engine_1(s);
	simulation_start(s, &(struct simulation_worker){.role = ROLE_TRAINER, .rank = 1});
	simulation_run_for(s, 500);
	simulation_repeat(s);
	simulation_run_for(s, 2000);
	simulation_expect(s, "*controller: 3 of 3 engines are here from version 2 on\n");
	simulation_expect_not(s, "once more");
	simulation_update(s, 2);
	simulation_run_for(s, 2000);
	simulation_assert_all_at(s, 2);
	assert_int_equal(simulation_version(s, rank), 2);
	simulation_free(&s);
}

static void test_bad_network__newcomers_are_sent_the_last_version(void **unused)
{
	(void)unused;
	newcomers_on_a_bad_network("trainers", "by engines that show it");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_newcomer__is_sent_the_last_version_while_trainers_have_nothing_new),
		cmocka_unit_test(
			test_trainers__of_whom_one_begins_the_next_version_send_nothing_once_more),
		cmocka_unit_test(test_trainer__that_is_ahead_of_another_waits_for_it),
		cmocka_unit_test(
			test_newcomer__that_dies_while_it_is_sent_the_last_version_harms_nobody),
		cmocka_unit_test(test_exchange__that_is_made_again_knows_who_comes_in),
		cmocka_unit_test(
			test_engine__that_is_whole_while_another_comes_in_is_sent_the_version_too),
		cmocka_unit_test(
			test_version__that_a_lost_trainer_had_not_sent_is_sent_once_more_to_all_who_lack_it),
		cmocka_unit_test(
			test_trainer__that_is_lost_while_it_sends_once_more_leaves_the_next_version),
		cmocka_unit_test(
			test_trainer__that_comes_in_with_the_engine_sends_the_next_version_only),
		cmocka_unit_test(test_bad_network__newcomers_are_sent_the_last_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
