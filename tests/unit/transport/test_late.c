/* SPDX-License-Identifier: Apache-2.0
 *
 * What may still be written: the list (transport/late.h), and the turn that a writer over shm takes
 * (transport/shm/turn.h) under two real threads.
 */
#include "transport/late.h"
#include "transport/identity.h"
#include "transport/shm/turn.h"
#include "transport/transport.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static unsigned char memory[300];
static bool done;
static unsigned dropped;

static bool is_done(void *state)
{
	(void)state;
	return done;
}

static void count_drop(void *state)
{
	(void)state;
	dropped++;
}

/* Bytes 100 to 199, by that process or, with 0, by a device. */
static void hold(uint64_t pid, uint64_t start, int pidfd)
{
	struct late_write *late = late_new(0);

	assert_non_null(late);
	late->at = (uintptr_t)memory + 100;
	late->bytes = 100;
	late->pid = pid;
	late->start = start;
	late->pidfd = pidfd;
	late->done = is_done;
	late->drop = count_drop;
	snprintf(late->name, sizeof(late->name), "trainer 3 (host b)");
	late_hold(late);
}

static void test_check__refuses_what_overlaps_and_nothing_else(void **state)
{
	const struct {
		size_t from, bytes;
		bool refused;
	} rows[] = {
		{0, 100, false},  {0, 101, true},    {99, 2, true},
		{100, 100, true}, {0, 300, true},    {150, 1, true},
		{199, 50, true},  {200, 100, false}, {50, 0, false},
	};
	struct error error = {0};

	(void)state;
	done = false;
	assert_int_equal(transport_memory_check(memory, sizeof(memory), NULL), 0);
	hold(0, 0, -1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(
			transport_memory_check(memory + rows[i].from, rows[i].bytes, &error),
			rows[i].refused ? -ERROR_UNSAFE : 0);
	dropped = 0;
	done = true;
	assert_int_equal(transport_memory_check(memory, sizeof(memory), &error), 0);
	assert_int_equal(dropped, 1);
}

/* As a peer may claim it: the check does not wrap around. */
static void test_check__of_a_range_beyond_all_memory_does_not_wrap(void **state)
{
	struct late_write *late = late_new(0);

	(void)state;
	done = false;
	late->at = (uintptr_t)memory;
	late->bytes = UINT64_MAX;
	late->done = is_done;
	late_hold(late);
	assert_int_equal(transport_memory_check(memory + 200, 1, NULL), -ERROR_UNSAFE);
	assert_int_equal(transport_memory_check((void *)1, 1, NULL), 0);
	done = true;
	assert_int_equal(transport_memory_check(memory + 200, 1, NULL), 0);
}

static pid_t start_child(void)
{
	pid_t child = fork();

	if (child == 0)
		for (;;)
			pause();
	return child;
}

static uint64_t start_of(pid_t pid)
{
	char path[64], line[1024], *at;
	uint64_t start = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	fclose(file);
	at = strrchr(line, ')') + 2;
	for (int field = 3; field < 22; field++)
		at = strchr(at, ' ') + 1;
	assert_int_equal(sscanf(at, "%lu", &start), 1);
	return start;
}

static void
test_memory__of_a_stopped_process_is_refused_in_every_provider_until_it_died(void **state)
{
	static const char *const providers[] = {"shm", "mock"};
	struct transport_options options = {.self = {ROLE_INFERENCE, 0}};
	struct error error = {0};
	char name[32];

	(void)state;
	for (int by_pidfd = 0; by_pidfd < 2; by_pidfd++) {
		pid_t child = start_child();
		uint64_t start = start_of(child);

		done = false;
		dropped = 0;
		kill(child, SIGSTOP);
		hold((uint64_t)child, start, by_pidfd ? process_open((uint64_t)child, start) : -1);
		snprintf(name, sizeof(name), "process %d", (int)child);
		for (size_t i = 0; i < 2; i++) {
			struct transport_domain *domain = NULL;
			struct transport_region *region = NULL;

			assert_int_equal(
				transport_domain_open(&domain, providers[i], &options, &error), 0);
			assert_int_equal(
				transport_region_register(domain, memory, 150, &region, &error),
				-ERROR_UNSAFE);
			assert_null(region);
			assert_non_null(strstr(error.text, "trainer 3 (host b)"));
			assert_non_null(strstr(error.text, name));
			assert_non_null(strstr(error.text, "100 bytes at"));
			assert_int_equal(
				transport_region_register(domain, memory, 100, &region, &error), 0);
			transport_region_close(&region);
			transport_domain_close(&domain);
		}
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, NULL, 0), child);
		assert_int_equal(transport_memory_check(memory, 300, &error), 0);
		assert_int_equal(dropped, 1);
	}
}

/* Its memory is a copy that nobody knows of. */
static void test_fork__a_childs_memory_is_refused_by_nothing(void **state)
{
	struct transport_options options = {.self = {ROLE_INFERENCE, 0}};
	struct transport_domain *domain = NULL;
	int status = 1;
	pid_t child;

	(void)state;
	/* the first domain of a process watches its forks */
	assert_int_equal(transport_domain_open(&domain, "mock", &options, NULL), 0);
	transport_domain_close(&domain);
	done = false;
	hold(0, 0, -1);
	child = fork();
	if (child == 0)
		_exit(transport_memory_check(memory, 300, NULL) ? 1 : 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(transport_memory_check(memory, 300, NULL), -ERROR_UNSAFE);
	done = true;
	assert_int_equal(transport_memory_check(memory, 300, NULL), 0);
}

/* ---- the turn, under real threads ---- */

static struct shm_slot slot;
static uint64_t shared; /* no atomic: who has the turn, or has taken it back, is alone with it */

static void *write_until_stopped(void *context)
{
	(void)context;
	for (bool may = true; may;) {
		shm_turn_say(&slot, (uintptr_t)&shared, sizeof(shared));
		may = shm_turn_may(&slot);
		if (may)
			shared++;
		shm_turn_end(&slot);
	}
	return NULL;
}

static void test_turn__is_never_had_by_two_threads_at_once(void **state)
{
	uint64_t written = 0;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		pthread_t thread;

		memset(&slot, 0, sizeof(slot));
		assert_int_equal(pthread_create(&thread, NULL, write_until_stopped, NULL), 0);
		for (volatile int spin = 0; spin < round * 10; spin++)
			;
		atomic_store(&slot.stop, 1);
		while (shm_turn_busy(&slot))
			;
		written += shared;
		shared = UINT64_C(1)
			 << 40; /* ours now: the writer may come back, but not in here */
		sched_yield();
		assert_int_equal(shared, UINT64_C(1) << 40);
		pthread_join(thread, NULL);
		assert_int_equal(shared, UINT64_C(1) << 40);
		shared = 0;
	}
	assert_true(written > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check__refuses_what_overlaps_and_nothing_else),
		cmocka_unit_test(test_check__of_a_range_beyond_all_memory_does_not_wrap),
		cmocka_unit_test(
			test_memory__of_a_stopped_process_is_refused_in_every_provider_until_it_died),
		cmocka_unit_test(test_fork__a_childs_memory_is_refused_by_nothing),
		cmocka_unit_test(test_turn__is_never_had_by_two_threads_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
