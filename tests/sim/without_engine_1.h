/* SPDX-License-Identifier: Apache-2.0
 *
 * without_engine_1.h -- a job of three engines that has lost one, for stories of engines that come in between two updates.
 */
#ifndef TESTS_SIM_WITHOUT_ENGINE_1_H
#define TESTS_SIM_WITHOUT_ENGINE_1_H

#include "tests/support/simulator.h"

/* Workers 0, 1: trainers; 2, 3: engine 0; 4, 5: engine 1; 6, 7: engine 2. All have version 1, then engine 1 leaves. from: who
 * sends the last version to who lacks it. */
static inline struct simulation *without_engine_1_from(const char *from, const struct simulation_options *more)
{
	struct simulation_options options = *more;
	struct simulation *simulation;

	options.infer = "engines=3,tp=2";
	options.on_loss = "continue";
	options.catch_up_from = from;
	simulation = simulation_running(&options);
	simulation_update(simulation, 1);
	simulation_run_for(simulation, 1000);
	simulation_assert_all_at(simulation, 1);
	simulation_kill(simulation, 5);
	simulation_drop(simulation, 0, 3, "its process has ended");
	simulation_run_for(simulation, 1000);
	return simulation;
}

static inline uint32_t start_engine_1(struct simulation *simulation)
{
	uint32_t rank = simulation_start_rank(simulation, 2);

	simulation_start_rank(simulation, 3);
	simulation_run_for(simulation, 200);
	return rank;
}

/* Whatever is lost, doubled or late: who comes in between two versions has the last one, and all have the next. never: what
 * nobody says. */
static inline void newcomers_on_a_bad_network(const char *from, const char *never)
{
	for (uint64_t seed = 1; seed <= SIMULATION_SEEDS / 2; seed++) {
		struct simulation *s = without_engine_1_from(
			from, &(struct simulation_options){.seed = seed, .jitter_ms = 5});
		uint32_t rank = 0;

		for (uint64_t version = 2; version <= 5; version++) {
			if (rank && (seed + version) % 2) {
				simulation_kill(s, rank + seed % 2);
				simulation_run_for(s, 7000 + (seed * version) % 5000);
				rank = 0;
			}
			if (!rank)
				rank = start_engine_1(s);
			for (uint32_t turn = 0; turn < 20; turn++) { /* as a host that asks now and then */
				simulation_repeat(s);
				simulation_run_for(s, 500 + seed % 7);
			}
			assert_int_equal(simulation_version(s, rank), version - 1);
			simulation_update(s, version);
			simulation_run_for(s, 15000);
			simulation_assert_all_at(s, version);
		}
		simulation_expect_not(s, never);
		simulation_leave_all(s);
		simulation_run_for(s, 20000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

#endif
