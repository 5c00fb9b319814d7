/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers' memory gets its pages here beside updates: every page, the last range first, nothing after a stop. The kernel's advice and
 * the start of the thread are this file's.
 */
#include "worker/epoch/mapper.h"

#include "base/clock.h"
#include "base/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define RANGE_BYTES (UINT64_C(10) << 20)
#define RANGES	    3
#define CALLS_MAX   64

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static struct call {
	uintptr_t at;
	size_t bytes;
} calls[CALLS_MAX];
static _Atomic size_t made;
static _Atomic bool stands, refused;

/* No memory is touched, so ranges may be made up. */
__attribute__((visibility("default"))) int madvise(void *memory, size_t bytes, int advice)
{
	size_t number = atomic_load(&made);

	(void)advice;
	if (number < CALLS_MAX)
		calls[number] = (struct call){(uintptr_t)memory, bytes};
	atomic_store(&made, number + 1);
	while (atomic_load(&stands))
		clock_sleep_ms(1);
	return 0;
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
							  const pthread_attr_t *attributes,
							  void *(*start)(void *), void *argument)
{
	void *symbol = dlsym(RTLD_NEXT, "pthread_create");
	create_fn *create;

	if (atomic_load(&refused))
		return EAGAIN;
	memcpy(&create, &symbol, sizeof(create));
	return create(thread, attributes, start, argument);
}

static struct mapper_range ranges[RANGES];

static int set_up(void **state)
{
	(void)state;
	for (size_t i = 0; i < RANGES; i++)
		ranges[i] = (struct mapper_range){
			(const unsigned char *)((i + 1) * (UINT64_C(1) << 30)), RANGE_BYTES,
			10 * ((uint32_t)i + 1)};
	made = 0;
	stands = refused = false;
	return 0;
}

static void wait_left(const struct mapper *mapper, uint32_t left)
{
	while (atomic_load(&mapper->left) > left)
		clock_sleep_ms(1);
}

static void wait_call(void)
{
	while (!atomic_load(&made))
		clock_sleep_ms(1);
}

/* Of each range, from its first byte to its last, without a gap. */
static void check_calls(void)
{
	size_t call = 0;

	for (size_t i = RANGES; i--;)
		for (uint64_t at = 0; at < RANGE_BYTES; at += calls[call++].bytes) {
			assert_true(call < made);
			assert_int_equal(calls[call].at, (uintptr_t)ranges[i].memory + at);
			assert_true(calls[call].bytes && calls[call].bytes <= RANGE_BYTES / 2);
		}
	assert_int_equal(call, made);
}

static void test_mapper__maps_every_page_and_the_last_range_first(void **state)
{
	struct mapper mapper = {.ranges = NULL};

	(void)state;
	mapper_start(&mapper, ranges, RANGES);
	assert_true(mapper.running);
	wait_left(&mapper, 0);
	mapper_stop(&mapper);
	check_calls();
}

static void test_mapper__lacks_what_the_thread_has_yet_to_map(void **state)
{
	struct mapper mapper = {.ranges = NULL};

	(void)state;
	assert_false(mapper_lacks(&mapper, 0));
	stands = true;
	mapper_start(&mapper, ranges, RANGES);
	wait_call();
	assert_true(mapper_lacks(&mapper, 0));
	assert_true(mapper_lacks(&mapper, ranges[RANGES - 1].target));
	assert_false(mapper_lacks(&mapper, ranges[RANGES - 1].target + 1)); /* was mapped before */
	stands = false;
	wait_left(&mapper, 0);
	assert_false(mapper_lacks(&mapper, 0));
	mapper_stop(&mapper);
}

/* What is unmapped afterwards is not asked for. */
static void test_mapper__asks_for_nothing_after_a_stop(void **state)
{
	struct mapper mapper = {.ranges = NULL};

	(void)state;
	stands = true;
	mapper_start(&mapper, ranges, RANGES);
	wait_call();
	atomic_store(&mapper.stopped, true); /* as mapper_stop does, which waits for the thread */
	stands = false;
	mapper_stop(&mapper);
	assert_int_equal(made, 1);
	assert_false(mapper_lacks(&mapper, 0)); /* and may be started again */
	mapper_start(&mapper, ranges, 1);
	wait_left(&mapper, 0);
	mapper_stop(&mapper);
	assert_true(made > 1);
}

static void test_mapper__maps_all_itself_where_no_thread_starts(void **state)
{
	struct mapper mapper = {.ranges = NULL};

	(void)state;
	refused = true;
	mapper_start(&mapper, ranges, RANGES);
	assert_false(mapper.running);
	assert_false(mapper_lacks(&mapper, 0));
	check_calls();
	mapper_stop(&mapper);
}

static void test_mapper__starts_no_thread_for_nothing(void **state)
{
	struct mapper mapper = {.ranges = NULL};

	(void)state;
	mapper_start(&mapper, ranges, 0);
	assert_false(mapper.running);
	mapper_stop(&mapper);
	assert_int_equal(made, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_mapper__maps_every_page_and_the_last_range_first,
				       set_up),
		cmocka_unit_test_setup(test_mapper__lacks_what_the_thread_has_yet_to_map, set_up),
		cmocka_unit_test_setup(test_mapper__asks_for_nothing_after_a_stop, set_up),
		cmocka_unit_test_setup(test_mapper__maps_all_itself_where_no_thread_starts, set_up),
		cmocka_unit_test_setup(test_mapper__starts_no_thread_for_nothing, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
