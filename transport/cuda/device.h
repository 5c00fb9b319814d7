/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h -- the GPUs of this host: whether there are any, which one a user means, where an address lies.
 *
 * Threads: any. Nothing here is kept but what the driver keeps.
 */
#ifndef TRANSPORT_CUDA_DEVICE_H
#define TRANSPORT_CUDA_DEVICE_H

#include "base/error.h"
#include "transport/cuda/calls.h"

/* Starts the driver. ERROR_UNSUPPORTED: the first thing that is missing, and how to get it. */
int cuda_ready(struct error *error);
/* How many devices are visible; at least 1, else ERROR_UNSUPPORTED. Starts the driver. */
int cuda_device_count(int *count, struct error *error);
int cuda_device_facts(int device, struct cuda_facts *facts, struct error *error);

/* "cuda:1 (NVIDIA H100 80GB HBM3)", for messages; stays where it is until the thread's next call. */
const char *cuda_device_text(int device);

/* Makes the device the thread's, until cuda_leave: in pairs, and they nest. */
int cuda_enter(int device, struct error *error);
void cuda_leave(void);

/* "cuda" (the launcher's local rank among the devices, as torch programs choose theirs) or "cuda:N". */
int cuda_device_named(const char *name, int local_rank, int *device, struct error *error);

/* Where `bytes` at an address lie: all in one allocation, else ERROR_BOUNDS. What the driver does not know is host
 * memory: pointer->memory UNKNOWN. */
int cuda_pointer_of(const void *address, uint64_t bytes, struct cuda_pointer *pointer, struct error *error);

/* ERROR_UNSUPPORTED when `device` cannot use the memory of `peer` (both of this host), with what there is instead. */
int cuda_peer_check(int device, int peer, struct error *error);

/* absent.c: why the driver could not be started. `root` goes before every path: "" but in tests. `result` is what it
 * answered, `version` what it says of itself (0: nothing), `library` whether libcuda.so.1 can be opened. */
int cuda_absent(const char *root, int result, int version, bool library, struct error *error);

#endif
