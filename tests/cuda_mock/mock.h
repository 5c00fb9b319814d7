/* SPDX-License-Identifier: Apache-2.0
 *
 * mock.h -- what the files of this folder share. Everything is under gpu.lock but where it says otherwise.
 */
#ifndef TESTS_CUDA_MOCK_MOCK_H
#define TESTS_CUDA_MOCK_MOCK_H

#include "pack/cuda/launch.h"
#include "tests/cuda_mock/cuda_mock.h"
#include "transport/cuda/errors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define GPU_DEVICES_MAX 8
#define GPU_PART_BYTES	 (2u << 20)
#define GPU_HEAD_BYTES	 4096u /* before the data in each memfd: who has it open */
#define GPU_OPENERS	 64
#define GPU_STREAM_LATE_QUERIES 3

/* A process that has the memory open, as the memory itself says. */
struct gpu_head {
	_Atomic uint64_t openers[GPU_OPENERS]; /* pid; 0: none */
};

/* Bytes that exist: a memfd, with the mock's own mapping of it. */
struct gpu_physical {
	struct gpu_physical *next;
	int fd, device, holders; /* holders: handles, and addresses that it is mapped at */
	int handles;             /* of them, what must be released */
	uint64_t bytes, id;
	unsigned char *alias;
	struct gpu_head *head;
	bool imported, shareable;
};

/* Addresses of a device. `parts` in the order in which they lie; a hole is a reserved part. */
struct gpu_range {
	uint64_t address, bytes, part_bytes;
	int device;
	enum cuda_mock_kind kind;
	bool freed, opened, reserved; /* opened: by ipc_open; reserved: by `reserve`, mapped part by part */
	struct gpu_physical **parts;
	uint64_t count;
};

struct gpu_host {
	struct gpu_host *next;
	uintptr_t address;
	uint64_t bytes;
};

enum gpu_work { GPU_COPY, GPU_ROWS, GPU_FILL, GPU_KERNEL, GPU_WAIT_EVENT, GPU_WAIT_VALUE };

struct gpu_op {
	struct gpu_op *next;
	enum gpu_work work;
	uint64_t to, from, bytes, stride, rows, least;
	uint8_t byte;
	void *staged;              /* what lay at `from` in the call */
	struct pack_cuda_launch launch;
	uint32_t blocks;
	struct cuda_stream *other; /* WAIT_EVENT: until that has done `upto` operations */
	uint64_t upto;
};

struct cuda_stream {
	struct cuda_stream *next;
	int device;
	bool destroyed, theirs;    /* theirs: the default stream */
	struct gpu_op *first, **last;
	uint64_t queued, done;
	unsigned queries;
};

struct cuda_event {
	struct cuda_event *next;
	int device;
	struct cuda_stream *stream; /* NULL: never recorded */
	uint64_t upto;
	unsigned queries;
	bool destroyed;
};

struct cuda_kernel {
	int device;
};

/* Bytes that a NIC wrote, and no kernel sees yet. */
struct gpu_nic_write {
	struct gpu_nic_write *next;
	uint64_t address, bytes;
	int device;
	unsigned char data[];
};

struct gpu_state {
	pthread_mutex_t lock;
	struct cuda_mock_options options;
	bool open, stop, threaded;
	pid_t pid;
	pthread_t thread;
	pthread_cond_t work;
	uint64_t random, ids;
	uint64_t used[GPU_DEVICES_MAX];
	int lost[GPU_DEVICES_MAX];  /* the number that every call answers; 0: well */
	bool peers[GPU_DEVICES_MAX][GPU_DEVICES_MAX];
	struct gpu_physical *physicals;
	uint64_t arena, next_address; /* all that was handed out, in turn */
	struct gpu_range **ranges;    /* by address; freed ones stay */
	size_t range_count, range_room;
	struct gpu_host *hosts;
	struct gpu_nic_write *nic_writes, **nic_last;
	struct cuda_stream *streams, *defaults[GPU_DEVICES_MAX];
	struct cuda_event *events;
	int kernels;
	uint64_t calls[CUDA_CALL_COUNT], all;
	uint64_t works;              /* copies and launches so far */
	uint64_t violations;
	char violation[256];
};
extern struct gpu_state gpu;

/* ---- calls.c ---- */
void gpu_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t gpu_random(void);
int gpu_device(void);           /* the thread's; -1 after a violation */
/* Takes the lock and counts; 0, or what the call answers at once (without the lock). */
int gpu_begin(enum cuda_call call);
/* The same, and a device must be entered that is not lost: *device. */
int gpu_begin_on(enum cuda_call call, int *device);
int gpu_end(int result);        /* gives the lock back */

/* ---- memory.c ---- */
void gpu_arena_open(void);
void gpu_arena_close(void);
struct gpu_range *gpu_range_of(uint64_t address);
bool gpu_range_mapped(const struct gpu_range *range, uint64_t address, uint64_t bytes);
struct gpu_host *gpu_host_of(uint64_t address, uint64_t bytes);
/* By one registration or several that meet, as a kernel may touch it. */
bool gpu_host_covers(uint64_t address, uint64_t bytes);
/* Where `bytes` lie for the mock, in one part; less is stored into *piece where a part ends. NULL: told. */
unsigned char *gpu_reach(uint64_t address, uint64_t bytes, uint64_t *piece);
struct gpu_physical *gpu_physical_new(int device, uint64_t bytes, int fd);
void gpu_physical_drop(struct gpu_physical *physical);
struct gpu_range *gpu_range_new(int device, enum cuda_mock_kind kind, uint64_t bytes, uint64_t part_bytes);
void gpu_range_free(struct gpu_range *range);
void gpu_head_enter(struct gpu_head *head);
void gpu_head_leave(struct gpu_head *head);

/* ---- nic.c ---- */
/* What waits of a device becomes seen; of memory that goes, it is forgotten. */
void gpu_nic_flush(int device);
void gpu_nic_drop(uint64_t address, uint64_t bytes);

/* ---- work.c: an operation is run; 0, or the number with which its device is lost ---- */
int gpu_run(struct cuda_stream *stream, struct gpu_op *op);

/* ---- stream.c ---- */
struct cuda_stream *gpu_stream(cuda_stream stream, int device);
struct cuda_stream *gpu_stream_new(int device);
/* Runs what must be done before `upto` operations of the stream are. false: something waits for a value. */
bool gpu_stream_run(struct cuda_stream *stream, uint64_t upto);
void gpu_device_wait(int device); /* -1: all of them */
void gpu_thread_start(void);
void gpu_thread_stop(void);

/* The rows of the table. */
#define X(name, parameters) int gpu_##name parameters;
CUDA_CALLS(X)
#undef X

#endif
