/* SPDX-License-Identifier: Apache-2.0
 *
 * Hundreds of small jobs on a bad network, some with a death in them. Whatever happens, every
 * worker that lives ends within its deadlines: with its work done, or with an error that names
 * somebody. Every step is checked by the simulator (equal plans, whole versions, no deadline
 * in the past).
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define END_MS 120000

static uint64_t state;

static uint32_t dice(uint32_t sides)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)((state * 0x2545F4914F6CDD1Du) >> 33) % sides;
}

static bool names_somebody(const char *text)
{
	return strstr(text, "trainer") || strstr(text, "inference") || strstr(text, "controller");
}

static bool ended(const struct simulation *simulation, uint32_t worker)
{
	enum worker_state at = simulation_state(simulation, worker);

	return at == WORKER_LEFT || at == WORKER_FAILED;
}

static void check_ends(struct simulation *simulation, uint64_t seed)
{
	for (uint32_t i = 0; i < simulation_workers(simulation); i++) {
		if (!simulation_alive(simulation, i) ||
		    (ended(simulation, i) &&
		     (simulation_state(simulation, i) == WORKER_LEFT ||
		      names_somebody(simulation_error(simulation, i)->text))))
			continue;
		print_message("%s", simulation_transcript(simulation));
		fail_msg("seed %llu: worker %u hangs in state %s", (unsigned long long)seed, i,
			 worker_state_name(simulation_state(simulation, i)));
	}
}

static struct simulation *begin(uint64_t seed, bool bad, uint32_t restarts, char train[64],
				char infer[64])
{
	struct simulation_options options = {
		.seed = seed, .train = train, .infer = infer, .restarts = restarts};
	struct simulation *simulation;

	state = seed * 0x9E3779B97F4A7C15u + 7;
	snprintf(train, 64, "world=%u,source=gathered", 1 + dice(4));
	snprintf(infer, 64, "engines=%u,tp=%u", 1 + dice(2), 1 + dice(3));
	options.policy = dice(2) ? "greedy" : "round-robin";
	options.tensors = 1 + dice(5);
	options.open_ms = 1 + dice(300);
	options.connect_ms = 1 + dice(300);
	options.write_ms = 1 + dice(100);
	if (bad) {
		options.latency_ms = 1 + dice(50);
		options.jitter_ms = dice(400);
		options.drop_percent = dice(25);
		options.double_percent = dice(30);
		options.reorder = dice(2);
	}
	simulation = simulation_new(&options);
	simulation_controller_start(simulation);
	simulation_start_all(simulation);
	return simulation;
}

/* A bad network alone must never fail a job: messages are sent again until answered. */
static void run_to_the_end(uint64_t seed)
{
	char train[64], infer[64];
	struct simulation *simulation = begin(seed, true, 0, train, infer);
	struct error error = {0};

	if (!simulation_run_to(simulation, WORKER_RUN, 20000)) {
		print_message("%s", simulation_transcript(simulation));
		fail_msg("seed %llu: not all run", (unsigned long long)seed);
	}
	for (uint64_t version = 1; version <= 3; version++) {
		simulation_update(simulation, version);
		simulation_run(simulation, simulation_now(simulation) + 3000);
		for (uint32_t i = 0; i < simulation_workers(simulation); i++)
			assert_int_equal(simulation_version(simulation, i), version);
	}
	simulation_leave_all(simulation);
	simulation_run(simulation, END_MS);
	check_ends(simulation, seed);
	for (uint32_t i = 0; i < simulation_workers(simulation); i++)
		assert_int_equal(simulation_state(simulation, i), WORKER_LEFT);
	if (!simulation_controller_over(simulation, &error) || error.code != ERROR_NONE) {
		/* every leave of one worker may be lost: then it counts as lost */
		assert_int_equal(error.code, ERROR_PEER_LOST);
	}
	simulation_free(&simulation);
}

static void test_chaos__a_bad_network_alone_fails_no_job(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= 250; seed++)
		run_to_the_end(seed);
}

static void strike(struct simulation *simulation, uint32_t before)
{
	uint32_t victim = dice(before);
	struct simulation_worker again = {0};

	switch (dice(6)) {
	case 0:
	case 1:
		simulation_kill(simulation, victim);
		break;
	case 2:
		simulation_controller_kill(simulation);
		break;
	case 3: /* killed, and back as another process of the same rank */
		simulation_kill(simulation, 0);
		simulation_run(simulation, simulation_now(simulation) + dice(3000));
		simulation_start(simulation, &again);
		break;
	case 4:
		simulation_controller_kill(simulation);
		simulation_run(simulation, simulation_now(simulation) + dice(3000));
		simulation_controller_start(simulation);
		break;
	case 5:
		simulation_partition(simulation, victim, simulation_now(simulation) + dice(12000));
		break;
	}
}

static void survive(uint64_t seed)
{
	char train[64], infer[64];
	struct simulation *simulation = begin(seed, seed % 2, seed % 3, train, infer);
	uint32_t workers = simulation_workers(simulation);
	uint64_t strike_ms = dice(2) ? dice(3000) : dice(100);

	simulation_run(simulation, strike_ms);
	if (dice(2))
		simulation_update(simulation, 1);
	simulation_run(simulation, simulation_now(simulation) + dice(300));
	strike(simulation, workers);
	if (simulation_run_to(simulation, WORKER_RUN, 40000)) {
		/* the strike was survived: the job goes on */
		simulation_update(simulation, 2);
		simulation_run(simulation, simulation_now(simulation) + 6000);
	}
	simulation_run(simulation, 60000);
	simulation_leave_all(simulation);
	simulation_run(simulation, END_MS);
	check_ends(simulation, seed);
	simulation_free(&simulation);
}

static void test_chaos__a_death_leaves_nobody_hanging(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= 400; seed++)
		survive(seed);
}

/* After a kill while all run, the survivors know within two silences and a few heartbeats. */
static void test_chaos__survivors_of_a_running_job_end_in_time(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= 150; seed++) {
		char train[64], infer[64];
		struct simulation *simulation = begin(seed, true, 0, train, infer);
		uint32_t victim;

		assert_true(simulation_run_to(simulation, WORKER_RUN, 20000));
		victim = dice(simulation_workers(simulation) + 1);
		if (victim == simulation_workers(simulation))
			simulation_controller_kill(simulation);
		else
			simulation_kill(simulation, victim);
		simulation_run(simulation, simulation_now(simulation) + 2 * 5000 + 3000);
		for (uint32_t i = 0; i < simulation_workers(simulation); i++)
			if (simulation_alive(simulation, i))
				assert_int_equal(simulation_state(simulation, i), WORKER_FAILED);
		check_ends(simulation, seed);
		simulation_free(&simulation);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chaos__a_bad_network_alone_fails_no_job),
		cmocka_unit_test(test_chaos__a_death_leaves_nobody_hanging),
		cmocka_unit_test(test_chaos__survivors_of_a_running_job_end_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
