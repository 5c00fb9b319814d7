/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.h -- every call into the CUDA driver, as a table: the seam where tests put devices whose memory nobody may
 * touch, whose streams are as late as they may be, and that fail.
 *
 * No type of CUDA's is named here, so that everything above is compiled with and without a toolkit. Each call answers
 * 0 or the driver's own number for what went wrong (cuda.h, CUresult; errors.h says them in words). A result that is
 * not named otherwise is stored only with 0.
 *
 * All but the first rows want a device that was entered: `enter` makes its context (the primary one, which the CUDA
 * runtime and torch use too) the thread's, `leave` takes it away again, and they nest, so a host program's own choice
 * of a device is as it was. Streams, events, kernels and addresses are of the device that was entered when they were
 * made; addresses are of all devices (unified addressing).
 *
 * Threads: any, at once.
 */
#ifndef TRANSPORT_CUDA_CALLS_H
#define TRANSPORT_CUDA_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cuda_stream *cuda_stream; /* NULL: the default stream, which waits for all others that are no
					    `apart` ones, and they for it */
typedef struct cuda_event *cuda_event;
typedef struct cuda_kernel *cuda_kernel;
typedef uint64_t cuda_physical; /* memory without an address (cuMemCreate) */

#define CUDA_IPC_BYTES 64

struct cuda_facts {
	char name[96], pci[16]; /* pci: "0000:3b:00.0", as /sys/bus/pci/devices has it */
	unsigned char uuid[16];
	uint64_t memory_bytes;
	int major, minor;       /* compute capability */
	int processors;         /* multiprocessors */
	int copy_engines;
	bool mapped_memory;     /* memory without an address, and file descriptors for it */
	bool dmabuf;
	bool gpudirect;         /* NICs may reach its memory */
	bool peermem;           /* nvidia-peermem is loaded: NICs register its addresses as they are */
	bool flush;             /* flush_writes works, and ..*/
	bool flush_needed;      /* .. is needed before kernels see what a NIC wrote */
	bool stream_wait;       /* stream_wait_value */
	bool exclusive;         /* of one process alone (compute mode) */
};

enum cuda_memory { CUDA_MEMORY_UNKNOWN, CUDA_MEMORY_HOST, CUDA_MEMORY_DEVICE, CUDA_MEMORY_MANAGED };

/* What the driver knows of an address. UNKNOWN: nothing, so it is ordinary host memory, or none at all. */
struct cuda_pointer {
	enum cuda_memory memory;
	int device;
	uint64_t base, bytes; /* of the allocation; of mapped memory: of the physical part that lies there */
	uint64_t id;          /* never used twice in a process: another one, another allocation */
	bool ipc;             /* ipc_export takes it */
	bool pool;            /* of a pool (cudaMallocAsync) */
	bool mapped;          /* physical memory under an address (cuMemMap): retain takes it */
	bool rdma;            /* made so that NICs may reach it */
};

/* What a launch reads: code for devices, and its kernel's name. */
struct cuda_image {
	const void *bytes;
	const char *kernel;
};

struct cuda_dim {
	uint32_t blocks, threads;
};

/* name, parameters */
#define CUDA_CALLS(X)                                                                                   \
	/* for all devices; nothing need be entered */                                                  \
	X(start, (void))                                                                                \
	X(driver_version, (int *version)) /* 12040: 12.4 */                                             \
	X(device_count, (int *count))                                                                   \
	X(device_facts, (int device, struct cuda_facts *facts))                                         \
	X(peer_possible, (int device, int peer, bool *possible))                                        \
	X(pointer, (uint64_t address, struct cuda_pointer *pointer))                                    \
	X(enter, (int device))                                                                          \
	X(leave, (void))                                                                                \
	/* the device entered may use the memory of the peer; more than once is fine */                 \
	X(peer_enable, (int peer))                                                                      \
	X(memory_left, (uint64_t *free_bytes, uint64_t *bytes))                                         \
	X(allocate, (uint64_t bytes, uint64_t *address))                                                \
	X(release, (uint64_t address)) /* waits for the device */                                       \
	/* host memory that copies need not stage, and that kernels reach at its own address */         \
	X(host_register, (void *memory, uint64_t bytes))                                                \
	X(host_unregister, (void *memory))                                                              \
	/* an allocation for other processes; opened at its base, once a process and device */          \
	X(ipc_export, (uint64_t address, unsigned char handle[CUDA_IPC_BYTES]))                         \
	X(ipc_open, (const unsigned char handle[CUDA_IPC_BYTES], uint64_t *base))                       \
	X(ipc_close, (uint64_t base))                                                                   \
	/* mapped memory: its physical part, a descriptor of that, and the way back */                  \
	X(physical_create, (uint64_t bytes, cuda_physical *physical)) /* whole 2 MiB */                 \
	X(retain, (uint64_t address, cuda_physical *physical))                                          \
	X(physical_export, (cuda_physical physical, int *fd))                                           \
	X(physical_import, (int fd, cuda_physical *physical))                                           \
	X(physical_release, (cuda_physical physical))                                                   \
	X(reserve, (uint64_t bytes, uint64_t *address))                                                 \
	X(unreserve, (uint64_t address, uint64_t bytes))                                                \
	X(map, (uint64_t address, uint64_t bytes, cuda_physical physical))                              \
	X(unmap, (uint64_t address, uint64_t bytes))                                                    \
	/* whole host pages of one allocation, or of memory that is mapped all through, for NICs */     \
	X(dmabuf, (uint64_t address, uint64_t bytes, int *fd))                                          \
	/* what NICs wrote is seen by what is launched after it */                                      \
	X(flush_writes, (void))                                                                         \
	X(stream_create, (cuda_stream *stream)) /* apart: it waits for nobody unasked */                \
	X(stream_destroy, (cuda_stream stream))                                                         \
	X(stream_query, (cuda_stream stream)) /* CUDA_NOT_READY */                                      \
	X(stream_synchronize, (cuda_stream stream))                                                     \
	X(stream_wait, (cuda_stream stream, cuda_event event))                                          \
	/* waits until the word at a device's or registered host's address is at least that */          \
	X(stream_wait_value, (cuda_stream stream, uint64_t address, uint64_t least))                    \
	X(event_create, (cuda_event *event))                                                            \
	X(event_destroy, (cuda_event event))                                                            \
	X(event_record, (cuda_event event, cuda_stream stream))                                         \
	X(event_query, (cuda_event event)) /* CUDA_NOT_READY */                                         \
	X(event_synchronize, (cuda_event event))                                                        \
	/* between any two of host and device; host memory that is not registered may be staged */      \
	X(copy, (uint64_t to, uint64_t from, uint64_t bytes, cuda_stream stream))                       \
	X(copy_rows,                                                                                    \
	  (uint64_t to, uint64_t from, uint64_t row_bytes, uint64_t from_stride, uint64_t rows,         \
	   cuda_stream stream)) /* rows end to end at `to` */                                           \
	X(fill, (uint64_t to, uint8_t byte, uint64_t bytes, cuda_stream stream))                        \
	X(load, (const struct cuda_image *image, cuda_kernel *kernel))                                  \
	X(unload, (cuda_kernel kernel))                                                                 \
	/* one argument, read before the call returns */                                                \
	X(launch, (cuda_kernel kernel, struct cuda_dim dim, void *argument, cuda_stream stream))

struct cuda_calls {
#define X(name, parameters) int(*name) parameters;
	CUDA_CALLS(X)
#undef X
};

enum cuda_call {
#define X(name, parameters) CUDA_CALL_##name,
	CUDA_CALLS(X)
#undef X
		CUDA_CALL_COUNT
};

extern const struct cuda_calls cuda_calls_system; /* the driver's; or, without a toolkit, ones that say so */
extern const struct cuda_calls *cuda_calls_tested; /* set by tests before the first call, or NULL */

/* The table in use. */
const struct cuda_calls *cuda_calls(void);
const char *cuda_call_name(enum cuda_call call);
/* CUDA version that this was built with, as driver_version has it; 0: without. */
int cuda_built_version(void);
/* The least driver that this build's runtime works with, for messages: "525"; or NULL. */
const char *cuda_driver_needed(void);

#endif
