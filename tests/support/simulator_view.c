/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/simulator_parts.h"

uint32_t simulation_workers(const struct simulation *simulation)
{
	return (uint32_t)simulation->workers.count;
}

bool simulation_alive(const struct simulation *simulation, uint32_t worker)
{
	return simulation->workers.items[worker]->alive;
}

enum worker_state simulation_state(const struct simulation *simulation, uint32_t worker)
{
	return worker_core_state(simulation->workers.items[worker]->core);
}

const struct error *simulation_error(const struct simulation *simulation, uint32_t worker)
{
	return &simulation->workers.items[worker]->error;
}

uint64_t simulation_said_bytes(const struct simulation *simulation, uint32_t worker)
{
	return simulation->workers.items[worker]->said_bytes;
}

uint64_t simulation_version(const struct simulation *simulation, uint32_t worker)
{
	return simulation->workers.items[worker]->version;
}

const struct message_plan *simulation_plan(const struct simulation *simulation, uint32_t worker)
{
	return simulation->workers.items[worker]->plan;
}

const struct history *simulation_history(const struct simulation *simulation)
{
	return &simulation->history;
}

const char *simulation_transcript(const struct simulation *simulation)
{
	return text_string(&simulation->transcript);
}

void simulation_expect(const struct simulation *simulation, const char *lines)
{
	const char *at = text_string(&simulation->transcript);

	while (*lines) {
		size_t length = strcspn(lines, "\n");
		bool found = false, rest = length && lines[length - 1] == '*';
		bool any_time = *lines == '*';
		const char *line = lines + any_time;
		size_t wanted = length - any_time;

		while (*at && !found) {
			size_t all = strcspn(at, "\n"), cut = any_time ? strlen("[     0] ") : 0;
			size_t here = all > cut ? all - cut : 0;

			found = rest ? here >= wanted - 1 && memcmp(at + cut, line, wanted - 1) == 0
				     : here == wanted && memcmp(at + cut, line, wanted) == 0;
			at += all + (at[all] == '\n');
		}
		if (!found) {
			fputs(text_string(&simulation->transcript), stderr);
			fail_msg("not in the transcript, or out of order:\n%.*s", (int)length,
				 lines);
		}
		lines += length + (lines[length] == '\n');
	}
}

void simulation_assert_done(const struct simulation *simulation)
{
	struct error error;

	assert_true(simulation_controller_over(simulation, &error));
	assert_int_equal(error.code, ERROR_NONE);
}

void simulation_assert_all_at(const struct simulation *simulation, uint64_t version)
{
	for (uint32_t i = 0; i < simulation_workers(simulation); i++) {
		enum worker_state state = simulation_state(simulation, i);

		if (!simulation_alive(simulation, i) || state == WORKER_FAILED ||
		    (state == WORKER_RUN && simulation_version(simulation, i) == version))
			continue;
		fputs(simulation_transcript(simulation), stderr);
		fail_msg("worker %u is %s at version %llu, not at %llu", i,
			 worker_state_name(state),
			 (unsigned long long)simulation_version(simulation, i),
			 (unsigned long long)version);
	}
}

void simulation_expect_not(const struct simulation *simulation, const char *part)
{
	if (!strstr(text_string(&simulation->transcript), part))
		return;
	fputs(text_string(&simulation->transcript), stderr);
	fail_msg("in the transcript: %s", part);
}
