/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_mock.c -- that the mock devices can catch: each mistake that users of CUDA make is made here once, and the
 * bytes are wrong, or it is told.
 */
#include "tests/cuda_mock/cuda_mock.h"
#include "pack/cuda/launch.h"
#include "transport/cuda/errors.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 100000u

static const struct cuda_calls *calls;
static unsigned char host[BYTES], back[BYTES];

static void begin_with(const struct cuda_mock_options *options)
{
	cuda_mock_open(options);
	calls = cuda_calls();
	assert_int_equal(calls->enter(0), 0);
	for (size_t i = 0; i < BYTES; i++)
		host[i] = (unsigned char)(i * 7 + i / 251);
	memset(back, 0, sizeof(back));
}

static void begin(enum cuda_mock_order order)
{
	begin_with(&(struct cuda_mock_options){
		.order = order, .devices = 2, .seed = 3, .count = true});
}

static void end(uint64_t violations)
{
	calls->leave();
	if (cuda_mock_violations() != violations)
		fail_msg("%s", cuda_mock_violation());
	assert_int_equal(cuda_mock_close(), 0);
}

static uint64_t allocate(uint64_t bytes)
{
	uint64_t address = 0;

	assert_int_equal(calls->allocate(bytes, &address), 0);
	return address;
}

static cuda_stream stream_new(void)
{
	cuda_stream stream;

	assert_int_equal(calls->stream_create(&stream), 0);
	return stream;
}

static uint64_t at(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

static void test_copies__come_down_as_they_went_up_in_every_order(void **unused)
{
	(void)unused;
	for (enum cuda_mock_order order = CUDA_MOCK_EAGER; order <= CUDA_MOCK_LATE; order++) {
		begin(order);
		uint64_t a = allocate(BYTES), b = allocate(BYTES);
		cuda_stream one = stream_new(), two = stream_new();
		cuda_event event;

		assert_int_equal(calls->event_create(&event), 0);
		assert_int_equal(calls->host_register(back, BYTES), 0);
		assert_int_equal(calls->copy(a, at(host), BYTES, one), 0);
		assert_int_equal(calls->event_record(event, one), 0);
		assert_int_equal(calls->stream_wait(two, event), 0);
		assert_int_equal(calls->copy(b, a, BYTES, two), 0);
		assert_int_equal(calls->copy_rows(at(back), b + 100, 50, 1000, 10, two), 0);
		assert_int_equal(calls->stream_synchronize(two), 0);
		for (int row = 0; row < 10; row++)
			assert_memory_equal(back + 50 * row, host + 100 + 1000 * row, 50);
		assert_int_equal(calls->host_unregister(back), 0);
		assert_int_equal(calls->event_destroy(event), 0);
		assert_int_equal(calls->stream_destroy(one), 0);
		assert_int_equal(calls->stream_destroy(two), 0);
		assert_int_equal(calls->release(a), 0);
		assert_int_equal(calls->release(b), 0);
		end(0);
	}
}

static void test_memory__of_a_device_is_nothing_that_the_processor_can_touch(void **unused)
{
	int status;

	(void)unused;
	begin(CUDA_MOCK_EAGER);
	uint64_t memory = allocate(BYTES);
	pid_t child = fork();

	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(volatile unsigned char *)(uintptr_t)memory);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
	calls->release(memory);
	end(0);
}

static void test_late__what_nobody_waited_for_has_not_happened(void **unused)
{
	unsigned char now[16];

	(void)unused;
	begin(CUDA_MOCK_LATE);
	uint64_t memory = allocate(BYTES);
	cuda_stream one = stream_new(), two = stream_new();

	calls->copy(memory, at(host), BYTES, one);
	cuda_mock_peek(memory, now, sizeof(now));
	assert_memory_not_equal(now, host, sizeof(now));
	calls->stream_synchronize(two); /* of the other stream */
	cuda_mock_peek(memory, now, sizeof(now));
	assert_memory_not_equal(now, host, sizeof(now));
	assert_int_equal(calls->stream_query(one), CUDA_NOT_READY);
	assert_int_equal(calls->stream_query(one), CUDA_NOT_READY);
	assert_int_equal(calls->stream_query(one), 0);
	cuda_mock_peek(memory, now, sizeof(now));
	assert_memory_equal(now, host, sizeof(now));
	calls->stream_destroy(one);
	calls->stream_destroy(two);
	calls->release(memory);
	end(0);
}

static void
test_registered__memory_is_read_when_the_copy_runs_and_other_memory_in_the_call(void **unused)
{
	unsigned char now[1];

	(void)unused;
	begin(CUDA_MOCK_LATE);
	uint64_t memory = allocate(BYTES);
	cuda_stream stream = stream_new();

	calls->copy(memory, at(host), BYTES, stream);
	host[0] = 1;
	calls->stream_synchronize(stream);
	cuda_mock_peek(memory, now, 1);
	assert_int_equal(now[0], 0);
	calls->host_register(host, BYTES);
	assert_int_equal(calls->host_register(host + 10, 10), CUDA_HOST_REGISTERED);
	calls->copy(memory, at(host), BYTES, stream);
	host[0] = 2;
	calls->stream_synchronize(stream);
	cuda_mock_peek(memory, now, 1);
	assert_int_equal(now[0], 2);
	calls->host_unregister(host);
	calls->stream_destroy(stream);
	calls->release(memory);
	end(0);
}

static void test_mistakes__are_each_told(void **unused)
{
	cuda_stream other;
	uint64_t left, all, base;

	(void)unused;
	begin(CUDA_MOCK_EAGER);
	uint64_t memory = allocate(BYTES);
	cuda_stream stream = stream_new();

	calls->release(memory);
	calls->copy(memory, at(host), 10, stream); /* freed; and so the device is lost */
	assert_int_equal(cuda_mock_violations(), 1);
	assert_int_equal(calls->memory_left(&left, &all), CUDA_ILLEGAL_ADDRESS);
	calls->leave();
	calls->leave(); /* nothing was entered */
	assert_int_equal(cuda_mock_violations(), 2);
	assert_int_equal(calls->allocate(10, &base), CUDA_INVALID_CONTEXT);
	assert_int_equal(cuda_mock_violations(), 3);
	calls->enter(1);
	calls->copy(allocate(BYTES), at(host), BYTES, stream); /* a stream of another device */
	assert_int_equal(cuda_mock_violations(), 4);
	assert_int_equal(calls->stream_create(&other), 0);
	calls->stream_destroy(other);
	calls->stream_query(other);
	assert_int_equal(cuda_mock_violations(), 5);
	memory = allocate(BYTES);
	calls->copy(memory + 1, at(host), BYTES, NULL); /* beyond its end */
	assert_int_equal(cuda_mock_violations(), 6);
	calls->leave();
	assert_int_equal(cuda_mock_close(), 3); /* a stream and two allocations */
}

static void test_lost__device_answers_all_with_what_it_was_lost_by(void **unused)
{
	cuda_stream stream;
	uint64_t address;

	(void)unused;
	begin(CUDA_MOCK_EAGER);
	cuda_mock_lose(0);
	assert_int_equal(calls->stream_create(&stream), CUDA_LAUNCH_FAILED);
	assert_int_equal(calls->allocate(10, &address), CUDA_LAUNCH_FAILED);
	calls->enter(1);
	calls->release(allocate(10));
	calls->leave();
	end(0);
}

static void test_call__fails_where_it_is_asked_to_and_once(void **unused)
{
	uint64_t address;

	(void)unused;
	begin(CUDA_MOCK_EAGER);
	calls->release(allocate(10));
	cuda_mock_fail("allocate", 2, CUDA_OUT_OF_MEMORY);
	calls->release(allocate(10));
	assert_int_equal(calls->allocate(10, &address), CUDA_OUT_OF_MEMORY);
	calls->release(allocate(10));
	assert_int_equal(calls->allocate(UINT64_C(1) << 40, &address), CUDA_OUT_OF_MEMORY);
	cuda_mock_fail(NULL, 1, 0);
	assert_int_equal(calls->allocate(10, &address), CUDA_UNKNOWN);
	end(0);
}

static void test_value__is_waited_for_by_a_stream_alone(void **unused)
{
	static _Alignas(64) _Atomic uint64_t word;
	unsigned char now[4];

	(void)unused;
	begin(CUDA_MOCK_RANDOM);
	uint64_t memory = allocate(BYTES);
	cuda_stream stream = stream_new();

	atomic_store(&word, 4);
	calls->host_register((void *)&word, sizeof(word));
	assert_int_equal(calls->stream_wait_value(stream, at((void *)&word), 5), 0);
	calls->copy(memory, at(host), BYTES, stream);
	usleep(20000);
	cuda_mock_peek(memory, now, 4);
	assert_memory_not_equal(now, host, 4);
	atomic_store(&word, 6);
	assert_int_equal(calls->stream_synchronize(stream), 0);
	cuda_mock_peek(memory, now, 4);
	assert_memory_equal(now, host, 4);
	calls->host_unregister((void *)&word);
	calls->stream_destroy(stream);
	calls->release(memory);
	end(0);
}

/* ---- other processes ---- */

struct told {
	unsigned char handle[CUDA_IPC_BYTES];
	_Atomic int turn;
	int results[8];
};

static void child_opens(struct told *told)
{
	uint64_t base = 0, again;

	begin(CUDA_MOCK_LATE);
	told->results[0] = calls->ipc_open(told->handle, &base);
	told->results[1] = calls->ipc_open(told->handle, &again);
	told->results[2] = (int)cuda_mock_violations();
	cuda_stream stream = stream_new();

	calls->copy(base + 5000, at(host), 1000, stream);
	calls->stream_synchronize(stream);
	atomic_store(&told->turn, 1);
	while (atomic_load(&told->turn) != 2)
		usleep(100);
	calls->stream_destroy(stream);
	told->results[3] = calls->ipc_close(base);
	calls->leave();
	_exit(cuda_mock_close());
}

static void test_ipc__crosses_processes_and_a_free_under_an_open_handle_is_told(void **unused)
{
	struct told *told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned char now[1000];
	uint64_t base;
	int status, ready[2];

	(void)unused;
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork(); /* before there is a driver, as it must be */

	if (!child) {
		char byte;

		if (read(ready[0], &byte, 1) == 1)
			child_opens(told);
		_exit(99);
	}
	begin(CUDA_MOCK_EAGER);
	uint64_t memory = allocate(BYTES);

	assert_int_equal(calls->ipc_export(memory + 77, told->handle), 0);
	assert_int_equal(calls->ipc_open(told->handle, &base),
			 CUDA_INVALID_CONTEXT); /* one's own */
	assert_int_equal(write(ready[1], "x", 1), 1);
	while (atomic_load(&told->turn) != 1)
		usleep(100);
	cuda_mock_peek(memory + 5000, now, sizeof(now));
	assert_memory_equal(now, host, sizeof(now));
	calls->release(memory);
	assert_int_equal(cuda_mock_violations(), 1);
	assert_non_null(strstr(cuda_mock_violation(), "has it open"));
	atomic_store(&told->turn, 2);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(told->results[0], 0);
	assert_int_equal(told->results[1], CUDA_INVALID_VALUE);
	assert_int_equal(told->results[2], 1);
	assert_int_equal(told->results[3], 0);
	close(ready[0]);
	close(ready[1]);
	munmap(told, sizeof(*told));
	end(1);
}

static void test_mapped__memory_goes_through_descriptors_part_by_part(void **unused)
{
	uint64_t bytes = 3u << 21, window, physical, imported;
	unsigned char now[8];
	int fd;

	(void)unused;
	begin(CUDA_MOCK_EAGER);
	uint64_t memory = cuda_mock_allocate(0, CUDA_MOCK_MAPPED, bytes);

	assert_int_equal(calls->reserve(bytes, &window), 0);
	for (uint64_t at_part = 0; at_part < bytes; at_part += 2u << 20) {
		assert_int_equal(calls->retain(memory + at_part + 5, &physical), 0);
		assert_int_equal(calls->physical_export(physical, &fd), 0);
		assert_int_equal(calls->physical_release(physical), 0);
		assert_int_equal(calls->physical_import(fd, &imported), 0);
		close(fd);
		assert_int_equal(calls->map(window + at_part, 2u << 20, imported), 0);
		assert_int_equal(calls->physical_release(imported), 0);
	}
	calls->copy(window + (2u << 20) - 4, at(host), 8, NULL); /* across two parts */
	cuda_mock_peek(memory + (2u << 20) - 4, now, 8);
	assert_memory_equal(now, host, 8);
	assert_int_equal(calls->unmap(window, bytes), 0);
	assert_int_equal(calls->unreserve(window, bytes), 0);
	cuda_mock_free(memory);
	memory = cuda_mock_allocate(0, CUDA_MOCK_UNSHAREABLE, bytes);
	assert_int_equal(calls->retain(memory, &physical), 0);
	assert_int_equal(calls->physical_export(physical, &fd), CUDA_INVALID_VALUE);
	assert_int_equal(calls->physical_release(physical), 0);
	cuda_mock_free(memory);
	end(0);
}

/* ---- kernels ---- */

static struct pack_cuda_part copy_part(uint64_t target)
{
	return (struct pack_cuda_part){.work = PACK_CUDA_COPY,
				       .from_bytes = 1,
				       .to_bytes = 1,
				       .target = target,
				       .scales = PACK_CUDA_NO_TENSOR,
				       .bytes = 1000,
				       .run_rows = 1,
				       .row_bytes = 1000,
				       .run_stride_bytes = 1000};
}

static int launch_copy(cuda_kernel kernel, uint64_t from, uint64_t target)
{
	uint64_t table = allocate(sizeof(struct pack_cuda_part)),
		 bases = allocate(sizeof(uint64_t));
	struct pack_cuda_part part = copy_part(target);
	int rc;

	pack_cuda_table_finish(&part, 1);
	calls->copy(table, at(&part), sizeof(part), NULL);
	calls->copy(bases, at(&from), sizeof(from), NULL);
	struct pack_cuda_launch launch = pack_cuda_launch_of(&part, 0, 1, table, bases, 0);

	rc = calls->launch(kernel, (struct cuda_dim){1, PACK_CUDA_THREADS}, &launch, NULL);
	calls->release(table);
	calls->release(bases);
	return rc;
}

static void test_kernel__reaches_devices_and_registered_memory_alone(void **unused)
{
	const struct cuda_image image = {"", PACK_CUDA_KERNEL_NAME};
	cuda_kernel kernel;

	(void)unused;
	begin(CUDA_MOCK_EAGER);
	uint64_t memory = allocate(BYTES);

	assert_int_equal(calls->load(&image, &kernel), 0);
	calls->host_register(host, BYTES);
	assert_int_equal(launch_copy(kernel, at(host), memory + 8), 0);
	cuda_mock_peek(memory + 8, back, 1000);
	assert_memory_equal(back, host, 1000);
	calls->host_unregister(host);
	calls->unload(kernel);
	calls->release(memory);
	end(0);
	begin(CUDA_MOCK_EAGER);
	assert_int_equal(calls->load(&image, &kernel), 0);
	memory = allocate(BYTES);
	assert_int_equal(launch_copy(kernel, at(host), memory), CUDA_ILLEGAL_ADDRESS);
	assert_non_null(strstr(cuda_mock_violation(), "which are not registered"));
	assert_true(cuda_mock_violations() > 0);
	calls->leave();
	cuda_mock_close();
	begin(CUDA_MOCK_EAGER); /* another device's, without peer access, and with */
	assert_int_equal(calls->load(&image, &kernel), 0);
	uint64_t far = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, BYTES);

	memory = allocate(BYTES);
	assert_int_equal(calls->peer_enable(1), 0);
	assert_int_equal(launch_copy(kernel, memory, far), 0);
	cuda_mock_free(far);
	calls->release(memory);
	calls->unload(kernel);
	end(0);
	begin(CUDA_MOCK_EAGER);
	assert_int_equal(calls->load(&image, &kernel), 0);
	far = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, BYTES);
	memory = allocate(BYTES);
	assert_int_equal(launch_copy(kernel, memory, far), CUDA_ILLEGAL_ADDRESS);
	assert_non_null(strstr(cuda_mock_violation(), "peer access is not enabled"));
	calls->leave();
	cuda_mock_close();
}

static void test_setting__knows_its_words_and_no_other(void **unused)
{
	struct cuda_mock_options options;
	char message[128];

	(void)unused;
	assert_int_equal(
		cuda_mock_parse("devices=2,bytes=3G,order=late,seed=7,peer=no,fail=copy:3:719",
				&options, message, sizeof(message)),
		0);
	assert_int_equal(options.devices, 2);
	assert_int_equal(options.bytes, UINT64_C(3) << 30);
	assert_int_equal(options.order, CUDA_MOCK_LATE);
	assert_true(options.no_peer);
	assert_string_equal(options.fail_call, "copy");
	assert_int_equal(options.fail_at, 3);
	assert_int_equal(options.fail_result, 719);
	for (const char *const *bad = (const char *const[]){"order=soon", "gpus=2", "bytes=3X",
							    "fail=nothing:1", NULL};
	     *bad; bad++)
		assert_int_equal(cuda_mock_parse(*bad, &options, message, sizeof(message)), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_ipc__crosses_processes_and_a_free_under_an_open_handle_is_told),
		cmocka_unit_test(test_copies__come_down_as_they_went_up_in_every_order),
		cmocka_unit_test(test_memory__of_a_device_is_nothing_that_the_processor_can_touch),
		cmocka_unit_test(test_late__what_nobody_waited_for_has_not_happened),
		cmocka_unit_test(
			test_registered__memory_is_read_when_the_copy_runs_and_other_memory_in_the_call),
		cmocka_unit_test(test_mistakes__are_each_told),
		cmocka_unit_test(test_lost__device_answers_all_with_what_it_was_lost_by),
		cmocka_unit_test(test_call__fails_where_it_is_asked_to_and_once),
		cmocka_unit_test(test_value__is_waited_for_by_a_stream_alone),
		cmocka_unit_test(test_mapped__memory_goes_through_descriptors_part_by_part),
		cmocka_unit_test(test_kernel__reaches_devices_and_registered_memory_alone),
		cmocka_unit_test(test_setting__knows_its_words_and_no_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
