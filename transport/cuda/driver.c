/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c -- starting the driver, its devices, and which of them is the thread's.
 */
#include "transport/cuda/driver.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DRIVER_DEVICES_MAX 64
#define DRIVER_AS_OF	   12000

struct driver driver;

_Static_assert(CUDA_OUT_OF_MEMORY == (int)CUDA_ERROR_OUT_OF_MEMORY &&
		       CUDA_NO_DRIVER == (int)cudaErrorInsufficientDriver &&
		       CUDA_NO_BINARY == (int)CUDA_ERROR_NO_BINARY_FOR_GPU &&
		       CUDA_NOT_READY == (int)CUDA_ERROR_NOT_READY &&
		       CUDA_HOST_REGISTERED == (int)CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
		       CUDA_LAUNCH_FAILED == (int)CUDA_ERROR_LAUNCH_FAILED &&
		       CUDA_NOT_SUPPORTED == (int)CUDA_ERROR_NOT_SUPPORTED &&
		       CUDA_DRIVER_MISMATCH == (int)CUDA_ERROR_SYSTEM_DRIVER_MISMATCH &&
		       CUDA_EXTERNAL_DEVICE == (int)CUDA_ERROR_EXTERNAL_DEVICE &&
		       CUDA_IPC_BYTES == sizeof(CUipcMemHandle),
	       "errors.h and calls.h have the driver's numbers");

/* ---- start ---- */

static int find(const char *name, void **function)
{
	enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
	cudaError_t rc = cudaGetDriverEntryPointByVersion(name, function, DRIVER_AS_OF,
							  cudaEnableLegacyStream, &found);
#else
	cudaError_t rc = cudaGetDriverEntryPoint(name, function, cudaEnableLegacyStream, &found);
#endif

	if (rc != cudaSuccess)
		return (int)rc; /* the runtime's numbers are the driver's where both have one */
	return found == cudaDriverEntryPointSuccess && *function ? 0 : CUDA_NO_DRIVER;
}

static int find_all(void)
{
	static const struct {
		const char *name;
		size_t at;
	} functions[] = {
#define X(name) {#name, offsetof(struct driver, name##_)},
		DRIVER_FUNCTIONS(X)
#undef X
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *function = NULL;
		int rc = find(functions[i].name, &function);

		if (rc)
			return rc;
		memcpy((char *)&driver + functions[i].at, &function, sizeof(function));
	}
	return driver_answer(driver.cuInit_(0));
}

int driver_start(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool started;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!started)
		rc = find_all();
	started = started || !rc;
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Works where `start` does not: a driver that is too old still tells its version. */
int driver_driver_version(int *version)
{
	return (int)cudaDriverGetVersion(version);
}

int cuda_built_version(void)
{
	return CUDART_VERSION;
}

/* NVIDIA's table "CUDA minor version compatibility": the least driver of a major version. */
const char *cuda_driver_needed(void)
{
	return CUDART_VERSION >= 13000 ? "580" : "525";
}

/* ---- devices ---- */

int driver_device_count(int *count)
{
	return driver_answer(driver.cuDeviceGetCount_(count));
}

static int attribute(CUdevice device, CUdevice_attribute which, int *rc)
{
	int value = 0;
	CUresult result = driver.cuDeviceGetAttribute_(&value, which, device);

	/* an attribute that an older driver does not know is one that the device does not have */
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE && !*rc)
		*rc = driver_answer(result);
	return result == CUDA_SUCCESS ? value : 0;
}

#define ATTRIBUTE(name) attribute(device, CU_DEVICE_ATTRIBUTE_##name, &rc)

static int facts_of(CUdevice device, struct cuda_facts *facts)
{
	int rc = 0;

	facts->major = ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR);
	facts->minor = ATTRIBUTE(COMPUTE_CAPABILITY_MINOR);
	facts->processors = ATTRIBUTE(MULTIPROCESSOR_COUNT);
	facts->copy_engines = ATTRIBUTE(ASYNC_ENGINE_COUNT);
	facts->mapped_memory = ATTRIBUTE(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
			       ATTRIBUTE(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
	facts->dmabuf = ATTRIBUTE(DMA_BUF_SUPPORTED);
	facts->gpudirect = ATTRIBUTE(GPU_DIRECT_RDMA_SUPPORTED);
	facts->peermem = access("/sys/module/nvidia_peermem", F_OK) == 0 ||
			 access("/sys/kernel/mm/memory_peers/nv_mem", F_OK) == 0;
	facts->flush = ATTRIBUTE(GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
		       CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
	facts->flush_needed = ATTRIBUTE(GPU_DIRECT_RDMA_WRITES_ORDERING) <
			      CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
	facts->stream_wait = ATTRIBUTE(CAN_USE_64_BIT_STREAM_MEM_OPS);
	facts->exclusive = ATTRIBUTE(COMPUTE_MODE) == CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
	return rc;
}

/* sysfs writes what the driver has in capitals in small letters */
static void small_letters(char *text)
{
	for (; *text; text++)
		if (*text >= 'A' && *text <= 'Z')
			*text = (char)(*text - 'A' + 'a');
}

int driver_device_facts(int number, struct cuda_facts *facts)
{
	CUdevice device;
	CUuuid uuid;
	size_t bytes = 0;
	CUresult rc = driver.cuDeviceGet_(&device, number);

	*facts = (struct cuda_facts){.name = ""};
	if (rc == CUDA_SUCCESS)
		rc = driver.cuDeviceGetName_(facts->name, sizeof(facts->name), device);
	if (rc == CUDA_SUCCESS)
		rc = driver.cuDeviceGetPCIBusId_(facts->pci, sizeof(facts->pci), device);
	if (rc == CUDA_SUCCESS)
		rc = driver.cuDeviceGetUuid_(&uuid, device);
	if (rc == CUDA_SUCCESS)
		rc = driver.cuDeviceTotalMem_(&bytes, device);
	if (rc != CUDA_SUCCESS)
		return driver_answer(rc);
	memcpy(facts->uuid, uuid.bytes, sizeof(facts->uuid));
	facts->memory_bytes = bytes;
	small_letters(facts->pci);
	return facts_of(device, facts);
}

int driver_peer_possible(int device, int peer, bool *possible)
{
	int can = 0;
	CUresult rc = driver.cuDeviceCanAccessPeer_(&can, device, peer);

	*possible = can != 0;
	return driver_answer(rc);
}

/* ---- the thread's device ---- */

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext
	contexts[DRIVER_DEVICES_MAX]; /* retained once, and never let go: it is the host's too */

static CUresult context_of(int number, CUcontext *context)
{
	CUdevice device;
	CUresult rc = CUDA_SUCCESS;

	if (number < 0 || number >= DRIVER_DEVICES_MAX)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&contexts_lock);
	if (!contexts[number]) {
		rc = driver.cuDeviceGet_(&device, number);
		if (rc == CUDA_SUCCESS)
			rc = driver.cuDevicePrimaryCtxRetain_(&contexts[number], device);
		if (rc != CUDA_SUCCESS)
			contexts[number] = NULL;
	}
	*context = contexts[number];
	pthread_mutex_unlock(&contexts_lock);
	return rc;
}

int driver_enter(int device)
{
	CUcontext context;
	CUresult rc = context_of(device, &context);

	return driver_answer(rc == CUDA_SUCCESS ? driver.cuCtxPushCurrent_(context) : rc);
}

int driver_leave(void)
{
	CUcontext context;

	return driver_answer(driver.cuCtxPopCurrent_(&context));
}

int driver_peer_enable(int peer)
{
	CUcontext context;
	CUresult rc = context_of(peer, &context);

	if (rc == CUDA_SUCCESS)
		rc = driver.cuCtxEnablePeerAccess_(context, 0);
	return rc == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? 0 : driver_answer(rc);
}

const struct cuda_calls cuda_calls_system = {
#define X(name, parameters) .name = driver_##name,
	CUDA_CALLS(X)
#undef X
};
