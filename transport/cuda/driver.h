/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.h -- the CUDA driver's functions, found by the CUDA runtime's own loader (linked statically), so that a
 * binary needs no libcuda.so.1 to start. Private to driver*.c.
 *
 *   program ──► CUDA runtime (in the binary) ──dlopen──► libcuda.so.1 (of the driver, if there is one)
 *
 * Each is asked for as it was in CUDA 12.0, so a later toolkit that gives a name another meaning changes nothing.
 */
#ifndef TRANSPORT_CUDA_DRIVER_H
#define TRANSPORT_CUDA_DRIVER_H

#include "transport/cuda/calls.h"
#include "transport/cuda/errors.h"

#include <cuda.h>

#define DRIVER_FUNCTIONS(X)                                                                                      \
	X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName)                    \
	X(cuDeviceGetUuid) X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDeviceGetPCIBusId)                    \
	X(cuDeviceCanAccessPeer) X(cuDevicePrimaryCtxRetain) X(cuCtxPushCurrent) X(cuCtxPopCurrent)              \
	X(cuCtxGetDevice) X(cuCtxEnablePeerAccess) X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree)                    \
	X(cuPointerGetAttributes) X(cuMemHostRegister) X(cuMemHostUnregister) X(cuIpcGetMemHandle)               \
	X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle) X(cuMemCreate) X(cuMemRetainAllocationHandle) X(cuMemRelease)              \
	X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle) X(cuMemAddressReserve)                 \
	X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemGetHandleForAddressRange)         \
	X(cuFlushGPUDirectRDMAWrites) X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamQuery)                      \
	X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamWaitValue64) X(cuEventCreate) X(cuEventDestroy)    \
	X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuMemcpyAsync) X(cuMemcpy2DAsync)               \
	X(cuMemsetD8Async) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetModule)       \
	X(cuLaunchKernel)

struct driver {
#define X(name) __typeof__(&name) name##_;
	DRIVER_FUNCTIONS(X)
#undef X
};

extern struct driver driver; /* full once `start` answered 0 */

static inline int driver_answer(CUresult result)
{
	return (int)result;
}

/* The rows of the table, typed as calls.h has them: driver_start and so on. */
#define X(name, parameters) int driver_##name parameters;
CUDA_CALLS(X)
#undef X

#endif
