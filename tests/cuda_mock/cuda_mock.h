/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_mock.h -- devices that are not there, for a host without GPUs: the table of transport/cuda/calls.h once more,
 * as bad as hardware may be.
 *
 *   memory    what `allocate` answers is an address that the processor cannot touch (PROT_NONE); the mock has a
 *             second mapping of the same bytes for itself. Freed addresses are never used again, so that whoever
 *             uses one is told.
 *   streams   are as late as they may be:
 *               eager    each operation is run in its call, unless it has to wait
 *               random   on a thread of its own, streams in any order that events allow, with pauses
 *               late     only once somebody has waited for it, or asked three times
 *   copies    registered host memory is read and written when the operation runs; other memory is read in the call,
 *             and written before it returns
 *   sharing   memfds: IPC handles and descriptors cross processes; freeing what a living process has open, opening
 *             it twice, or opening one's own, is told
 *   NICs      write behind the devices' back: kernels and copies see it once the device was flushed
 *   failure   any call, once, with any number; a device can be lost, after which all calls on it answer that
 *
 * What the driver forbids, or leaves undefined, is a violation: one line on stderr and abort(), or counted.
 */
#ifndef TESTS_CUDA_MOCK_H
#define TESTS_CUDA_MOCK_H

#include "transport/cuda/calls.h"

enum cuda_mock_order { CUDA_MOCK_EAGER, CUDA_MOCK_RANDOM, CUDA_MOCK_LATE };
enum cuda_mock_driver { CUDA_MOCK_GOOD, CUDA_MOCK_ABSENT, CUDA_MOCK_OLD };

struct cuda_mock_options {
	int devices;         /* 0: 1 */
	uint64_t bytes;      /* of each; 0: 16 GiB */
	enum cuda_mock_order order;
	uint64_t seed;
	enum cuda_mock_driver driver;
	bool no_peer, no_mapped, no_dmabuf, no_ipc, no_flush; /* what the devices cannot do */
	bool peermem;        /* nvidia-peermem is loaded */
	bool flush_lies;     /* what NICs write is seen after a flush, and devices say that they need none */
	bool count;          /* violations are counted, not the end */
	bool touchable;      /* the processor may touch ordinary device memory: for checks that look where they wrote */
	/* one call fails: the nth (from 1) of that name, or of all */
	uint64_t fail_at;
	const char *fail_call; /* NULL: of all */
	int fail_result;     /* 0: 999 */
	uint64_t lose_at;    /* the nth launch or copy loses its device, with 719; 0: none */
};

/* Makes it the table in use. Once at a time; in a forked child anew, for what its parent had is not the child's. */
void cuda_mock_open(const struct cuda_mock_options *options);
/* Waits for its streams and takes it away. Returns how much was left open: allocations, streams, events, handles,
 * imports, registrations; each is named on stderr. */
int cuda_mock_close(void);

uint64_t cuda_mock_violations(void);
const char *cuda_mock_violation(void); /* the last one, or "" */
uint64_t cuda_mock_count(enum cuda_call call);
uint64_t cuda_mock_count_all(void);
/* From now on: the nth call of that name (NULL: of all) answers `result`, once. */
void cuda_mock_fail(const char *call, uint64_t nth, int result);
void cuda_mock_lose(int device);

enum cuda_mock_kind {
	CUDA_MOCK_PLAIN,
	CUDA_MOCK_POOL,        /* cudaMallocAsync */
	CUDA_MOCK_MANAGED,
	CUDA_MOCK_MAPPED,      /* physical parts of 2 MiB under one reservation, with descriptors */
	CUDA_MOCK_UNSHAREABLE, /* the same, made without asking for descriptors */
};
/* Memory that another part of the program made. */
uint64_t cuda_mock_allocate(int device, enum cuda_mock_kind kind, uint64_t bytes);
void cuda_mock_free(uint64_t address);
/* The bytes as they are now, whatever streams have still to do. */
void cuda_mock_peek(uint64_t address, void *to, uint64_t bytes);
void cuda_mock_poke(uint64_t address, const void *from, uint64_t bytes);

/* ---- what a NIC does, beside all streams ---- */

/* Memory of a device that a descriptor of `dmabuf` stands for; false: it is none. */
bool cuda_mock_dmabuf(int fd, uint64_t *address, uint64_t *bytes);
bool cuda_mock_is_device(uint64_t address);
void cuda_mock_nic_read(uint64_t address, void *to, uint64_t bytes);
void cuda_mock_nic_write(uint64_t address, const void *from, uint64_t bytes);

/* From "devices=2,order=late,..: 0, or the message. WEFT_CUDA_MOCK opens it before main (install.c). */
int cuda_mock_parse(const char *text, struct cuda_mock_options *options, char *message, size_t bytes);

#endif
