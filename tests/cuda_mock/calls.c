/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c -- the table itself, the devices, and what every call goes through: counted, failed when asked to, refused on
 * a lost device, in a forked child, and outside of enter and leave.
 */
#include "tests/cuda_mock/mock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH 16

struct gpu_state gpu = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

static _Thread_local struct {
	int devices[DEPTH], depth;
} entered;

static const struct cuda_calls table = {
#define X(name, parameters) .name = gpu_##name,
	CUDA_CALLS(X)
#undef X
};

void gpu_violation(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(gpu.violation, sizeof(gpu.violation), format, args);
	va_end(args);
	gpu.violations++;
	if (gpu.options.count)
		return;
	fprintf(stderr, "cuda mock: %s (process %d)\n", gpu.violation, (int)getpid());
	abort();
}

uint64_t gpu_random(void) /* splitmix64 */
{
	uint64_t z = gpu.random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* ---- every call ---- */

static bool fails(enum cuda_call call)
{
	struct cuda_mock_options *options = &gpu.options;
	uint64_t count = options->fail_call ? gpu.calls[call] : gpu.all;

	/* leave is no call that anybody can do without */
	if (!options->fail_at || call == CUDA_CALL_leave || count != options->fail_at)
		return false;
	return !options->fail_call || strcmp(options->fail_call, cuda_call_name(call)) == 0;
}

int gpu_begin(enum cuda_call call)
{
	int rc;

	if (!gpu.open || getpid() != gpu.pid)
		return CUDA_NOT_INITIALIZED;
	pthread_mutex_lock(&gpu.lock);
	gpu.calls[call]++;
	gpu.all += call != CUDA_CALL_leave;
	if (!fails(call))
		return 0;
	rc = gpu.options.fail_result ? gpu.options.fail_result : CUDA_UNKNOWN;
	gpu.options.fail_at = 0;
	if (cuda_lost(rc) && rc != CUDA_UNKNOWN && entered.depth)
		gpu.lost[entered.devices[entered.depth - 1]] = rc;
	pthread_mutex_unlock(&gpu.lock);
	return rc;
}

int gpu_end(int result)
{
	pthread_mutex_unlock(&gpu.lock);
	return result;
}

int gpu_device(void)
{
	return entered.depth ? entered.devices[entered.depth - 1] : -1;
}

int gpu_begin_on(enum cuda_call call, int *device)
{
	int rc = gpu_begin(call);

	*device = gpu_device();
	if (rc)
		return rc;
	if (*device < 0) {
		gpu_violation("%s was called and no device had been entered", cuda_call_name(call));
		return gpu_end(CUDA_INVALID_CONTEXT);
	}
	return gpu.lost[*device] ? gpu_end(gpu.lost[*device]) : 0;
}

/* ---- devices ---- */

int gpu_start(void)
{
	int rc = gpu_begin(CUDA_CALL_start);

	return rc ? rc : gpu_end(gpu.options.driver == CUDA_MOCK_GOOD ? 0 : CUDA_NO_DRIVER);
}

int gpu_driver_version(int *version)
{
	int rc = gpu_begin(CUDA_CALL_driver_version);

	if (rc)
		return rc;
	*version = gpu.options.driver == CUDA_MOCK_ABSENT ? 0
		   : gpu.options.driver == CUDA_MOCK_OLD  ? 11040
							  : 13000;
	return gpu_end(0);
}

int gpu_device_count(int *count)
{
	int rc = gpu_begin(CUDA_CALL_device_count);

	if (rc)
		return rc;
	*count = gpu.options.devices;
	return gpu_end(0);
}

static bool no_device(int device)
{
	return device < 0 || device >= gpu.options.devices;
}

int gpu_device_facts(int device, struct cuda_facts *facts)
{
	int rc = gpu_begin(CUDA_CALL_device_facts);

	if (rc)
		return rc;
	*facts = (struct cuda_facts){
		.memory_bytes = gpu.options.bytes,
		.major = 9,
		.processors = 4,
		.copy_engines = 2,
		.mapped_memory = !gpu.options.no_mapped,
		.dmabuf = !gpu.options.no_dmabuf,
		.gpudirect = true,
		.peermem = gpu.options.peermem,
		.flush = !gpu.options.no_flush,
		.flush_needed = !gpu.options.flush_lies,
		.stream_wait = true,
	};
	snprintf(facts->name, sizeof(facts->name), "Mock %d", device);
	snprintf(facts->pci, sizeof(facts->pci), "0000:%02x:00.0",
		 (unsigned)(0x3b + device) & 0xff);
	facts->uuid[0] = (unsigned char)(device + 1);
	return gpu_end(no_device(device) ? CUDA_INVALID_DEVICE : 0);
}

int gpu_peer_possible(int device, int peer, bool *possible)
{
	int rc = gpu_begin(CUDA_CALL_peer_possible);

	if (rc)
		return rc;
	*possible = device != peer && !gpu.options.no_peer;
	return gpu_end(no_device(device) || no_device(peer) ? CUDA_INVALID_DEVICE : 0);
}

int gpu_enter(int device)
{
	int rc = gpu_begin(CUDA_CALL_enter);

	if (rc)
		return rc;
	if (no_device(device))
		return gpu_end(CUDA_INVALID_DEVICE);
	if (entered.depth == DEPTH)
		gpu_violation("%d devices were entered and not left", DEPTH);
	else
		entered.devices[entered.depth++] = device;
	return gpu_end(0);
}

int gpu_leave(void)
{
	int rc = gpu_begin(CUDA_CALL_leave);

	if (rc)
		return rc;
	if (!entered.depth)
		gpu_violation("leave was called and no device had been entered");
	else
		entered.depth--;
	return gpu_end(0);
}

int gpu_peer_enable(int peer)
{
	int device, rc = gpu_begin_on(CUDA_CALL_peer_enable, &device);

	if (rc)
		return rc;
	if (no_device(peer) || peer == device)
		return gpu_end(CUDA_INVALID_DEVICE);
	if (gpu.options.no_peer)
		return gpu_end(CUDA_PEER_UNSUPPORTED);
	gpu.peers[device][peer] = true;
	return gpu_end(0);
}

int gpu_memory_left(uint64_t *free_bytes, uint64_t *bytes)
{
	int device, rc = gpu_begin_on(CUDA_CALL_memory_left, &device);

	if (rc)
		return rc;
	*bytes = gpu.options.bytes;
	*free_bytes = gpu.options.bytes - gpu.used[device];
	return gpu_end(0);
}

static struct cuda_kernel kernels[GPU_DEVICES_MAX]; /* all of a device are one */

int gpu_load(const struct cuda_image *image, cuda_kernel *kernel)
{
	int device, rc = gpu_begin_on(CUDA_CALL_load, &device);

	if (rc)
		return rc;
	if (strcmp(image->kernel, PACK_CUDA_KERNEL_NAME) != 0)
		return gpu_end(CUDA_NOT_FOUND);
	*kernel = &kernels[device];
	(*kernel)->device = device;
	gpu.kernels++;
	return gpu_end(0);
}

int gpu_unload(cuda_kernel kernel)
{
	int device, rc = gpu_begin_on(CUDA_CALL_unload, &device);

	if (rc)
		return rc;
	gpu.kernels--;
	return gpu_end(0);
}

/* ---- for tests ---- */

/* Its memory is mapped here too, and no business of a child's. */
static void forget_parent(void)
{
	pthread_mutex_init(&gpu.lock, NULL);
	pthread_cond_init(&gpu.work, NULL);
	gpu.physicals = NULL;
	gpu.ranges = NULL;
	gpu.range_count = gpu.range_room = 0;
	gpu.hosts = NULL;
	gpu.streams = NULL;
	gpu.events = NULL;
	gpu.kernels = 0;
	gpu.threaded = false;
	entered.depth = 0;
}

static void lock_gpu(void)
{
	pthread_mutex_lock(&gpu.lock);
}

static void unlock_gpu(void)
{
	pthread_mutex_unlock(&gpu.lock);
}

/* The thread that runs what is queued may hold the lock when another one forks, and the child frees what it inherited. */
static void watch_forks(void)
{
	pthread_atfork(lock_gpu, unlock_gpu, unlock_gpu);
}

void cuda_mock_open(const struct cuda_mock_options *options)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	if (gpu.open && gpu.pid != getpid())
		forget_parent();
	pthread_mutex_lock(&gpu.lock);
	gpu.options = *options;
	gpu.options.devices = options->devices ? options->devices : 1;
	gpu.options.bytes = options->bytes ? options->bytes : UINT64_C(16) << 30;
	gpu.random = options->seed;
	gpu.pid = getpid();
	gpu.open = true;
	gpu_arena_open();
	memset(gpu.calls, 0, sizeof(gpu.calls));
	memset(gpu.lost, 0, sizeof(gpu.lost));
	memset(gpu.peers, 0, sizeof(gpu.peers));
	memset(gpu.used, 0, sizeof(gpu.used));
	gpu.all = gpu.works = gpu.violations = 0;
	gpu.violation[0] = '\0';
	for (int i = 0; i < gpu.options.devices; i++) {
		gpu.defaults[i] = gpu_stream_new(i);
		gpu.defaults[i]->theirs = true;
	}
	pthread_mutex_unlock(&gpu.lock);
	if (gpu.options.order == CUDA_MOCK_RANDOM)
		gpu_thread_start();
	cuda_calls_tested = &table;
}

/* Every list is emptied; what should have been closed is counted. */
#define EMPTY(list, left, what, drop)                                           \
	while (list) {                                                          \
		__typeof__(list) one = list;                                    \
                                                                                \
		list = one->next;                                               \
		if (left) {                                                     \
			count++;                                                \
			fprintf(stderr, "cuda mock: " what " was left open\n"); \
		}                                                               \
		drop;                                                           \
		free(one);                                                      \
	}

static int empty(void)
{
	int count = 0;

	EMPTY(gpu.events, !one->destroyed, "an event", )
	EMPTY(gpu.streams, !one->destroyed && !one->theirs, "a stream", )
	for (size_t i = 0; i < gpu.range_count; i++) {
		if (!gpu.ranges[i]->freed) {
			fprintf(stderr, "cuda mock: memory of a device was left open\n");
			count++;
		}
		gpu_range_free(gpu.ranges[i]);
	}
	gpu_arena_close();
	EMPTY(gpu.hosts, true, "a registration of host memory", )
	while (gpu.physicals) {
		fprintf(stderr, "cuda mock: a handle of physical memory was left open\n");
		count++;
		gpu.physicals->holders = 1;
		gpu_physical_drop(gpu.physicals);
	}
	if (gpu.kernels)
		fprintf(stderr, "cuda mock: %d kernels were left loaded\n", gpu.kernels);
	count += gpu.kernels;
	gpu.kernels = 0;
	return count;
}

int cuda_mock_close(void)
{
	int count;

	gpu_thread_stop();
	pthread_mutex_lock(&gpu.lock);
	gpu_device_wait(-1);
	cuda_calls_tested = NULL;
	gpu.open = false;
	count = empty();
	memset(gpu.defaults, 0, sizeof(gpu.defaults));
	pthread_mutex_unlock(&gpu.lock);
	return count;
}

uint64_t cuda_mock_violations(void)
{
	return gpu.violations;
}

const char *cuda_mock_violation(void)
{
	return gpu.violation;
}

uint64_t cuda_mock_count(enum cuda_call call)
{
	return gpu.calls[call];
}

uint64_t cuda_mock_count_all(void)
{
	return gpu.all;
}

void cuda_mock_fail(const char *call, uint64_t nth, int result)
{
	pthread_mutex_lock(&gpu.lock);
	gpu.options.fail_call = call;
	gpu.options.fail_at = nth;
	gpu.options.fail_result = result;
	if (nth)
		for (int i = 0; i < CUDA_CALL_COUNT; i++)
			if (!call || strcmp(call, cuda_call_name((enum cuda_call)i)) == 0)
				gpu.options.fail_at = nth + (call ? gpu.calls[i] : gpu.all);
	pthread_mutex_unlock(&gpu.lock);
}

void cuda_mock_lose(int device)
{
	pthread_mutex_lock(&gpu.lock);
	gpu.lost[device] = CUDA_LAUNCH_FAILED;
	pthread_mutex_unlock(&gpu.lock);
}
