/* SPDX-License-Identifier: Apache-2.0
 *
 * How many engines there may be (--infer engines=) costs nobody anything: who has yet to come is neither planned for nor told of one
 * by one, in plans or to and by a controller that takes the job over.
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* Workers 0, 1: trainers; 2, 3: engine 0, which runs alone. */
static struct simulation *of_engines(uint32_t engines)
{
	static char infer[64]; /* the simulation borrows it */
	struct simulation *s;

	snprintf(infer, sizeof(infer), "engines=%u,tp=2", engines);
	s = simulation_new(&(struct simulation_options){
		.infer = infer, .on_loss = "continue", .engines_min = 1, .orphan_ms = 60000});
	simulation_controller_start(s);
	for (uint32_t rank = 0; rank < 2; rank++)
		simulation_start(s, &(struct simulation_worker){.rank = rank});
	simulation_start_rank(s, 0);
	simulation_start_rank(s, 1);
	assert_true(simulation_run_to(s, WORKER_RUN, 15000));
	return s;
}

static uint32_t come(struct simulation *s, uint32_t engine, uint64_t version)
{
	uint32_t newcomer = simulation_start_rank(s, 2 * engine);

	simulation_start_rank(s, 2 * engine + 1);
	simulation_run_for(s, 200);
	simulation_update(s, version);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, version);
	return newcomer;
}

static void take_over(struct simulation *s)
{
	simulation_controller_kill(s);
	simulation_run_for(s, 10000);
	simulation_controller_start(s);
	simulation_run_for(s, 30000);
	simulation_expect(s, "*controller: takes over a job that runs*\n");
}

enum { BEGINS, COMES, NEWCOMER, TAKEN_OVER, FIGURES };

/* Bytes said by and to trainer 0 as the job begins, as an engine comes, and to a rank of that; and as another controller comes. */
static void say_bytes(uint32_t engines, uint64_t bytes[FIGURES])
{
	struct simulation *s = of_engines(engines);
	uint32_t newcomer;

	bytes[BEGINS] = simulation_said_bytes(s, 0);
	newcomer = come(s, 5, 1);
	bytes[COMES] = simulation_said_bytes(s, 0) - bytes[BEGINS];
	bytes[NEWCOMER] = simulation_said_bytes(s, newcomer);
	bytes[TAKEN_OVER] = simulation_said_bytes(s, 0);
	take_over(s);
	bytes[TAKEN_OVER] = simulation_said_bytes(s, 0) - bytes[TAKEN_OVER];
	simulation_free(&s);
}

static void test_engines__that_have_yet_to_come_cost_nothing_to_say(void **unused)
{
	static const char *const of[] = {"trainer 0 as the job begins",
					 "trainer 0 as an engine comes", "the engine",
					 "trainer 0 as another controller comes"};
	uint64_t low[FIGURES], high[FIGURES];

	(void)unused;
	say_bytes(8, low);
	say_bytes(4096, high);
	for (int i = 0; i < FIGURES; i++)
		if (high[i] > low[i] + 48) /* the longer numbers are 2 bytes and more */
			fail_msg("%s: %llu bytes where there may be 8 engines, %llu for 4096",
				 of[i], (unsigned long long)low[i], (unsigned long long)high[i]);
}

/* Who says hello to it names those that were away: of thousands that has to fit what a stranger may send. */
static void test_job__of_thousands_that_have_yet_to_come_is_taken_over(void **unused)
{
	struct simulation *s = of_engines(4096);

	(void)unused;
	come(s, 5, 1);
	take_over(s);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	come(s, 30, 3);
	simulation_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_engines__that_have_yet_to_come_cost_nothing_to_say),
		cmocka_unit_test(test_job__of_thousands_that_have_yet_to_come_is_taken_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
