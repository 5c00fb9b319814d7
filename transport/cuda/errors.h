/* SPDX-License-Identifier: Apache-2.0
 *
 * errors.h -- what the driver's numbers mean, and what to do about them.
 *
 * Some are sticky: after them every call of the process on that device answers the same, nothing on the device is to
 * be believed, and only a new process gets out of it.
 */
#ifndef TRANSPORT_CUDA_ERRORS_H
#define TRANSPORT_CUDA_ERRORS_H

#include "base/error.h"

/* name, number (driver.c holds them to cuda.h's), weft's code, sticky, words and cure */
#define CUDA_RESULTS(X)                                                                                          \
	X(INVALID_VALUE, 1, INTERNAL, false, "a value that the driver refuses")                                  \
	X(OUT_OF_MEMORY, 2, MEMORY, false,                                                                       \
	  "out of device memory: leave more free (a framework's cache: torch.cuda.empty_cache(), a smaller "     \
	  "--gpu-memory-utilization or --mem-fraction-static)")                                                  \
	X(NOT_INITIALIZED, 3, UNSUPPORTED, false, "the driver could not be started")                             \
	X(DEINITIALIZED, 4, STATE, false, "the process is ending and the driver is gone")                        \
	X(STUB_LIBRARY, 34, UNSUPPORTED, false,                                                                  \
	  "libcuda.so.1 is the toolkit's stub: take its folder out of LD_LIBRARY_PATH")                          \
	X(NO_DRIVER, 35, UNSUPPORTED, false, "no driver, or one older than this build needs")                    \
	X(DEVICE_UNAVAILABLE, 46, UNSUPPORTED, false,                                                            \
	  "the device is busy: another process has it for itself (compute mode: nvidia-smi -c DEFAULT)")         \
	X(NO_DEVICE, 100, UNSUPPORTED, false, "no device is visible: see CUDA_VISIBLE_DEVICES")                  \
	X(INVALID_DEVICE, 101, CONFIG, false, "no such device")                                                  \
	X(INVALID_IMAGE, 200, UNSUPPORTED, false, "the image of the kernels is damaged")                         \
	X(INVALID_CONTEXT, 201, STATE, false, "no device was entered, or its context was destroyed")             \
	X(NO_BINARY, 209, UNSUPPORTED, false,                                                                    \
	  "this build's kernels are not for this device: build with its architecture in "                       \
	  "WEFT_CUDA_ARCHITECTURES")                                                                             \
	X(ECC_UNCORRECTABLE, 214, TRANSPORT, true, "the device found a memory error that it cannot correct")     \
	X(PEER_UNSUPPORTED, 217, UNSUPPORTED, false, "the two devices cannot use each other's memory")           \
	X(INVALID_PTX, 218, UNSUPPORTED, false, "this driver cannot make code for this device of what is built in") \
	X(NVLINK_UNCORRECTABLE, 220, TRANSPORT, true, "an NVLink failed")                                        \
	X(UNSUPPORTED_PTX, 222, UNSUPPORTED, false,                                                              \
	  "the driver is older than the toolkit of this build: update the driver, or build with its CUDA")       \
	X(INVALID_HANDLE, 400, INTERNAL, false, "a handle that the driver does not know")                        \
	X(NOT_FOUND, 500, INTERNAL, false, "a name that the driver does not know")                               \
	X(NOT_READY, 600, INTERNAL, false, "not complete yet")                                                   \
	X(ILLEGAL_ADDRESS, 700, TRANSPORT, true, "a kernel or copy touched memory that is not there")            \
	X(LAUNCH_OUT_OF_RESOURCES, 701, UNSUPPORTED, false, "the kernel needs more than the device has")         \
	X(LAUNCH_TIMEOUT, 702, TRANSPORT, true, "a kernel was ended by the watchdog of the screen")              \
	X(CONTEXT_DESTROYED, 709, STATE, true, "the device was reset in this process (cudaDeviceReset)")         \
	X(HOST_REGISTERED, 712, STATE, false, "the memory, or a part of it, is registered already")              \
	X(HOST_NOT_REGISTERED, 713, STATE, false, "the memory is not registered")                                \
	X(HARDWARE_STACK, 714, TRANSPORT, true, "the device failed")                                             \
	X(ILLEGAL_INSTRUCTION, 715, TRANSPORT, true, "the device met an illegal instruction")                    \
	X(MISALIGNED, 716, TRANSPORT, true, "a kernel used an address that is not aligned")                      \
	X(LAUNCH_FAILED, 719, TRANSPORT, true, "a kernel failed")                                                \
	X(NOT_PERMITTED, 800, UNSUPPORTED, false, "the operation is not permitted")                              \
	X(NOT_SUPPORTED, 801, UNSUPPORTED, false, "the device, its driver or this kind of memory cannot do it")  \
	X(SYSTEM_NOT_READY, 802, UNSUPPORTED, false, "the fabric manager (NVSwitch) is not running")             \
	X(DRIVER_MISMATCH, 803, UNSUPPORTED, false,                                                              \
	  "the driver's library and its kernel module are of different versions: reboot, or in a container use " \
	  "the host's libcuda.so.1")                                                                             \
	X(COMPAT_UNSUPPORTED, 804, UNSUPPORTED, false,                                                           \
	  "CUDA's compatibility library does not work with this device: take it out of LD_LIBRARY_PATH")         \
	X(EXTERNAL_DEVICE, 911, TRANSPORT, true, "another device of the job failed")                             \
	X(UNKNOWN, 999, TRANSPORT, true, "the driver does not say")

enum cuda_result {
	CUDA_OK = 0,
#define X(name, number, code, sticky, words) CUDA_##name = number,
	CUDA_RESULTS(X)
#undef X
};

/* Sets *error and returns -code: "<what>: <words> (CUDA error 719)". What begins with the device. */
int cuda_failed(int result, struct error *error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Nothing on the device will work again in this process. */
bool cuda_lost(int result);

#endif
