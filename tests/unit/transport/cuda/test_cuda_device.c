/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "tests/cuda_mock/cuda_mock.h"
#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];
static struct error error;

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *walk)
{
	(void)about, (void)type, (void)walk;
	return remove(path);
}

static int make_root(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/weft-cuda-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
	(void)state;
	return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *folder, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s%s", root, folder);
	assert_int_equal(file_make_directory(path, &error), 0);
	snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void expect_absent(int result, int version, bool library, const char *part)
{
	error.text[0] = '\0';
	assert_int_equal(cuda_absent(root, result, version, library, &error), -ERROR_UNSUPPORTED);
	if (!strstr(error.text, part))
		fail_msg("'%s' is not in: %s", part, error.text);
}

static void test_absent__each_missing_piece_has_its_own_message(void **unused)
{
	static const char version[] =
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021\n";
	static const char open_version[] =
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build\n";

	(void)unused;
	if (!cuda_built_version()) {
		expect_absent(CUDA_NOT_SUPPORTED, 0, false,
			      "this build knows no GPU memory: build with -DWEFT_CUDA=on");
		return;
	}
	expect_absent(CUDA_NO_DRIVER, 0, false, "this host has no NVIDIA GPU");
	put("/sys/bus/pci/devices/0000:00:1f.0", "vendor", "0x8086\n");
	put("/sys/bus/pci/devices/0000:04:00.0", "vendor", "0x10de\n"); /* an NVLink bridge, say */
	put("/sys/bus/pci/devices/0000:04:00.0", "class", "0x068000\n");
	expect_absent(CUDA_NO_DRIVER, 0, false, "this host has no NVIDIA GPU");
	put("/sys/bus/pci/devices/0000:3b:00.0", "vendor", "0x10de\n");
	put("/sys/bus/pci/devices/0000:3b:00.0", "class", "0x030200\n");
	expect_absent(CUDA_NO_DRIVER, 0, false,
		      "there is an NVIDIA GPU, 0000:3b:00.0, but the kernel has no driver");
	put("/proc/driver/nvidia", "version", open_version);
	expect_absent(CUDA_NO_DRIVER, 0, false,
		      "there is no /dev/nvidiactl: start the container with --gpus all");
	put("/dev", "nvidiactl", "");
	expect_absent(CUDA_NO_DRIVER, 0, false,
		      "driver 535.104.05, but its library libcuda.so.1 is not here");
	expect_absent(CUDA_NO_DRIVER, 0, true,
		      "the NVIDIA driver is too old: it is 535.104.05, and this build");
	put("/proc/driver/nvidia", "version", version);
	expect_absent(
		CUDA_NO_DRIVER, 11040, true,
		"the NVIDIA driver is too old: it is 470.57.02, for CUDA 11.4, and this build");
	expect_absent(CUDA_DRIVER_MISMATCH, 13000, true, "of different versions: reboot");
	expect_absent(CUDA_NO_DEVICE, 13000, true,
		      "no device is visible: see CUDA_VISIBLE_DEVICES");
}

static void test_absent__a_node_that_cannot_be_opened_is_told(void **unused)
{
	(void)unused;
	if (!cuda_built_version())
		skip();
	put("/proc/driver/nvidia", "version", "Kernel Module  580.65.06\n");
	put("/dev/nvidiactl", "in", ""); /* a folder: for root too */
	expect_absent(CUDA_NO_DRIVER, 0, true, "/dev/nvidiactl cannot be opened");
}

static void test_driver__that_is_absent_or_old_is_told_by_whoever_asks_first(void **unused)
{
	int device;

	(void)unused;
	if (!cuda_built_version())
		skip();
	cuda_mock_open(&(struct cuda_mock_options){.driver = CUDA_MOCK_OLD});
	assert_int_equal(cuda_device_named("cuda", 0, &device, &error), -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "too old: it is for CUDA 11.4, and"));
	assert_int_equal(cuda_mock_close(), 0);
	cuda_mock_open(&(struct cuda_mock_options){.driver = CUDA_MOCK_ABSENT});
	assert_int_equal(cuda_ready(&error), -ERROR_UNSUPPORTED);
	assert_int_equal(cuda_mock_close(), 0);
}

static void test_device__is_named_by_number_or_by_local_rank(void **unused)
{
	int device;

	(void)unused;
	cuda_mock_open(&(struct cuda_mock_options){.devices = 2});
	assert_int_equal(cuda_device_named("cuda:1", 0, &device, &error), 0);
	assert_int_equal(device, 1);
	assert_int_equal(cuda_device_named("cuda", 3, &device, &error), 0);
	assert_int_equal(device, 1);
	assert_int_equal(cuda_device_named("cuda", -1, &device, &error), 0);
	assert_int_equal(device, 0);
	assert_int_equal(cuda_device_named("cuda:2", 0, &device, &error), -ERROR_CONFIG);
	assert_string_equal(error.text,
			    "there is no device cuda:2: the driver shows 2 (cuda:0 to cuda:1; see "
			    "CUDA_VISIBLE_DEVICES)");
	for (const char *const *name = (const char *const[]){"cuda:", "cuda:x", "cuda:-1",
							     "cuda:1x", "gpu", "", NULL};
	     *name; name++) {
		assert_int_equal(cuda_device_named(*name, 0, &device, &error), -ERROR_CONFIG);
		assert_non_null(strstr(error.text, "names no device: cuda, or cuda:N"));
	}
	assert_int_equal(cuda_mock_close(), 0);
}

static void test_pointer__ends_with_its_allocation(void **unused)
{
	struct cuda_pointer pointer;
	uint64_t memory;
	int on_host;

	(void)unused;
	cuda_mock_open(&(struct cuda_mock_options){.devices = 1});
	memory = cuda_mock_allocate(0, CUDA_MOCK_PLAIN, 10000);
	assert_int_equal(
		cuda_pointer_of((void *)(uintptr_t)(memory + 9000), 1000, &pointer, &error), 0);
	assert_int_equal(pointer.memory, CUDA_MEMORY_DEVICE);
	assert_int_equal(pointer.base, memory);
	assert_true(pointer.ipc);
	assert_int_equal(
		cuda_pointer_of((void *)(uintptr_t)(memory + 9000), 1001, &pointer, &error),
		-ERROR_BOUNDS);
	assert_non_null(strstr(error.text, "reach beyond their allocation, 10000 bytes at"));
	assert_int_equal(cuda_pointer_of(&on_host, sizeof(on_host), &pointer, &error), 0);
	assert_int_equal(pointer.memory, CUDA_MEMORY_UNKNOWN);
	cuda_mock_free(memory);
	assert_int_equal(cuda_mock_close(), 0);
}

static void test_peer__access_that_there_is_not_is_told_with_what_there_is(void **unused)
{
	(void)unused;
	cuda_mock_open(&(struct cuda_mock_options){.devices = 2});
	assert_int_equal(cuda_peer_check(0, 1, &error), 0);
	assert_int_equal(cuda_mock_close(), 0);
	cuda_mock_open(&(struct cuda_mock_options){.devices = 2, .no_peer = true});
	assert_int_equal(cuda_peer_check(1, 1, &error), 0);
	assert_int_equal(cuda_peer_check(0, 1, &error), -ERROR_UNSUPPORTED);
	assert_non_null(
		strstr(error.text, "no peer access from cuda:0 (Mock 0) to cuda:1 (Mock 1)"));
	assert_non_null(strstr(error.text, "use --transport verbs or tcp"));
	assert_int_equal(cuda_mock_close(), 0);
}

static void test_failed__tells_what_the_driver_means(void **unused)
{
	(void)unused;
	assert_int_equal(cuda_failed(CUDA_OUT_OF_MEMORY, &error, "cuda:%d", 3), -ERROR_MEMORY);
	assert_memory_equal(error.text, "cuda:3: out of device memory: leave more free", 44);
	assert_int_equal(cuda_failed(CUDA_ILLEGAL_ADDRESS, &error, "a copy"), -ERROR_TRANSPORT);
	assert_non_null(strstr(error.text, "this process cannot use the device any more"));
	assert_true(cuda_lost(CUDA_ILLEGAL_ADDRESS));
	assert_false(cuda_lost(CUDA_OUT_OF_MEMORY));
	assert_int_equal(cuda_failed(4711, &error, "a copy"), -ERROR_TRANSPORT);
	assert_string_equal(error.text, "a copy: the driver answers CUDA error 4711");
}

static void test_child__of_a_fork_is_refused_by_the_driver(void **unused)
{
	(void)unused;
	cuda_mock_open(&(struct cuda_mock_options){.devices = 1});
	if (fork() == 0)
		_exit(cuda_calls()->enter(0) == CUDA_NOT_INITIALIZED ? 7 : 0);
	int status;

	assert_true(wait(&status) > 0);
	assert_int_equal(WEXITSTATUS(status), 7);
	assert_int_equal(cuda_mock_close(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_absent__each_missing_piece_has_its_own_message,
						make_root, drop_root),
		cmocka_unit_test_setup_teardown(test_absent__a_node_that_cannot_be_opened_is_told,
						make_root, drop_root),
		cmocka_unit_test(test_driver__that_is_absent_or_old_is_told_by_whoever_asks_first),
		cmocka_unit_test(test_device__is_named_by_number_or_by_local_rank),
		cmocka_unit_test(test_pointer__ends_with_its_allocation),
		cmocka_unit_test(test_peer__access_that_there_is_not_is_told_with_what_there_is),
		cmocka_unit_test(test_failed__tells_what_the_driver_means),
		cmocka_unit_test(test_child__of_a_fork_is_refused_by_the_driver),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
