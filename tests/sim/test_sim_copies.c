/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of engines that come in while trainers have nothing new, and are sent the last version by engines that show it.
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
	return without_engine_1_from("engines", more);
}

static void test_newcomer__is_sent_the_last_version_by_an_engine_that_shows_it(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank = start_engine_1(s);

	(void)unused;
	simulation_repeat(s);
	simulation_run_for(s, 300);
	simulation_expect(s, "*controller: 3 of 3 engines are here from version 2 on; who lacks "
			     "version 1 is sent it by engines that show it\n"
			     "*inference 0 sends version 1 to inference 2\n"
			     "*inference 2 publishes version 1\n"
			     "*inference 1 sends version 1 to inference 3\n");
	simulation_expect_not(s, "once more");
	simulation_assert_all_at(s, 1);
	assert_int_equal(simulation_plan(s, rank)->next, 1);
	assert_int_equal(simulation_plan(s, 2)->next, 2);
	assert_int_equal(simulation_plan(s, 0)->repeat, 0);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	simulation_leave_all(s);
	simulation_run_for(s, 1000);
	simulation_assert_done(s);
	simulation_free(&s);
}

/* Two engines come, and each of the donor's ranks has one of two to send to. */
static void test_donors__are_those_that_send_to_the_fewest(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});

	(void)unused;
	simulation_fail(s, 7, "its NIC is gone"); /* of engine 2 */
	simulation_run_for(s, 1000);
	simulation_start_rank(s, 4);
	simulation_start_rank(s, 5);
	start_engine_1(s);
	simulation_repeat(s);
	simulation_run_for(s, 1000);
	simulation_expect(s, "*inference 0 sends version 1 to inference 2\n"
			     "*inference 0 sends version 1 to inference 4\n");
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
	s = without_engine_1(&(struct simulation_options){0});
	simulation_fail(s, 2, "its NIC is gone"); /* of engine 0 */
	simulation_run_for(s, 1000);
	simulation_start_rank(s, 0);
	simulation_start_rank(s, 1);
	start_engine_1(s);
	simulation_repeat(s);
	simulation_run_for(s, 1000);
	simulation_expect(s, "*inference 4 sends version 1 to inference 0\n");
	simulation_expect(s, "*inference 5 sends version 1 to inference 3\n");
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
}

static void test_trainers__of_whom_one_begins_the_next_version_leave_nothing_to_copy(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});
	uint32_t rank = start_engine_1(s);

	(void)unused;
	simulation_repeat_one(s, 0);
	simulation_run_for(s, 100);
	simulation_begin(s, 1, 2);
	simulation_run_for(s, 300);
	simulation_expect(s, "*controller: 3 of 3 engines are here from version 2 on\n");
	assert_int_equal(simulation_plan(s, rank)->copy, 0);
	simulation_begin(s, 0, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

/* It needs one tensor less than the others: nobody shows what it is to hold. */
static void test_engine__of_another_layout_is_sent_the_version_by_trainers(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){0});

	(void)unused;
	for (uint32_t rank = 2; rank < 4; rank++)
		simulation_start(s, &(struct simulation_worker){.role = ROLE_INFERENCE,
								.rank = rank,
								.needs_less = true});
	simulation_run_for(s, 200);
	simulation_repeat(s);
	simulation_run_for(s, 1000);
	simulation_expect(s, "*controller: 3 of 3 engines are here from version 2 on; who lacks "
			     "version 1 is sent it before, once more\n"
			     "*trainer 0 sends version 1 once more\n");
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
}

static void test_donor__that_is_lost_leaves_the_newcomer_the_next_version(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.write_ms = 200});
	uint32_t rank = start_engine_1(s);

	(void)unused;
	simulation_repeat(s);
	simulation_run_for(s, 60);
	simulation_fail(s, 3, "its NIC is gone"); /* of engine 0, which sends */
	simulation_run_for(s, 1000);
	simulation_expect(s, "*inference 2 is not sent version 1: who shows it is gone\n");
	simulation_update(s, 2);
	simulation_run_for(s, 3000);
	simulation_assert_all_at(s, 2);
	assert_int_equal(simulation_version(s, rank), 2);
	simulation_free(&s);
}

static void test_newcomer__that_dies_while_it_is_sent_a_copy_harms_nobody(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.write_ms = 200});
	uint32_t rank = start_engine_1(s);

	(void)unused;
	simulation_repeat(s);
	simulation_run_for(s, 60);
	simulation_kill(s, rank);
	simulation_run_for(s, 8000);
	simulation_update(s, 2);
	simulation_run_for(s, 8000);
	simulation_assert_all_at(s, 2);
	start_engine_1(s);
	simulation_repeat(s);
	simulation_run_for(s, 2000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

/* Some ranks had all of it when the trainer was lost; others gave it up, and engine 1 comes. */
static void test_version__that_a_lost_trainer_had_sent_to_some_is_sent_on_by_them(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.write_ms = 100});
	uint32_t rank;

	(void)unused;
	simulation_update(s, 2);
	simulation_run_for(s, 250);
	simulation_fail(s, 1, "its GPU is gone");
	simulation_run_for(s, 1000);
	rank = start_engine_1(s);
	simulation_repeat(s);
	simulation_run_for(s, 3000);
	simulation_expect(s,
			  "*inference 5 has nothing of version 2\n"
			  "*controller: 3 of 3 engines and 1 of 2 trainers are here from version "
			  "3 on; who lacks version 2 is sent it by engines that show it\n");
	simulation_expect(s, "*inference 1 sends version 2 to inference 5\n");
	simulation_expect_not(s, "once more");
	simulation_assert_all_at(s, 2);
	assert_int_equal(simulation_version(s, rank), 2);
	simulation_update(s, 3);
	simulation_run_for(s, 3000);
	simulation_assert_all_at(s, 3);
	simulation_free(&s);
}

/* A trainer that is lost meanwhile: the job pauses when the copy is there. */
static void test_trainer__that_is_lost_while_ranks_copy_changes_nothing_for_them(void **unused)
{
	struct simulation *s = without_engine_1(&(struct simulation_options){.write_ms = 200});
	uint32_t rank = start_engine_1(s);

	(void)unused;
	simulation_repeat(s);
	simulation_run_for(s, 60);
	simulation_fail(s, 1, "its GPU is gone");
	simulation_run_for(s, 3000);
	assert_int_equal(simulation_version(s, rank), 1);
	simulation_update(s, 2);
	simulation_run_for(s, 3000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

static void test_bad_network__newcomers_are_sent_copies(void **unused)
{
	(void)unused;
	newcomers_on_a_bad_network("engines", "once more");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_newcomer__is_sent_the_last_version_by_an_engine_that_shows_it),
		cmocka_unit_test(test_donors__are_those_that_send_to_the_fewest),
		cmocka_unit_test(
			test_trainers__of_whom_one_begins_the_next_version_leave_nothing_to_copy),
		cmocka_unit_test(test_engine__of_another_layout_is_sent_the_version_by_trainers),
		cmocka_unit_test(test_donor__that_is_lost_leaves_the_newcomer_the_next_version),
		cmocka_unit_test(test_newcomer__that_dies_while_it_is_sent_a_copy_harms_nobody),
		cmocka_unit_test(
			test_version__that_a_lost_trainer_had_sent_to_some_is_sent_on_by_them),
		cmocka_unit_test(
			test_trainer__that_is_lost_while_ranks_copy_changes_nothing_for_them),
		cmocka_unit_test(test_bad_network__newcomers_are_sent_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
