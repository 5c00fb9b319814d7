/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda.h -- provider "cuda": processes of one host, with memory of its GPUs on either side or on both. Private to this
 * folder.
 *
 * It stands on shm: endpoints, mailboxes, signals, fences and host memory are shm's (shm.h, `more`). What it adds:
 *
 *   region    memory of a device, shared whole:    ordinary allocation   one IPC handle of it, and an offset
 *                                                  mapped memory         a descriptor of each physical part
 *   remote    that memory, opened here:            at an address that kernels and copies of this process's device reach
 *   write     host to host is shm's copy; any other a copy on the endpoint's stream, with an event behind it
 *
 *   trainer                             inference rank
 *     stream ── copy, copy, event ──►   device memory
 *     poll: the event is complete
 *     signal (shm's mailbox) ───────►   kernels launched from now on see the bytes
 *
 * A signal first waits for its endpoint's copies (caps.ordered is false), for a stream's work is ordered with nothing
 * that the processor does. Memory that a peer has opened cannot be taken back from it, and a driver leaves undefined what
 * comes of freeing it: so a fence waits until the peer has closed it, and so does a stop where device memory was
 * registered. What is closed without is refused (late.h) while a peer that lives may have it open.
 */
#ifndef TRANSPORT_CUDA_CUDA_H
#define TRANSPORT_CUDA_CUDA_H

#include "transport/cuda/calls.h"
#include "transport/shm/shm.h"

#define CUDA_CHUNK_BYTES (UINT64_C(64) << 20)
#define CUDA_RING	 (2u * SHM_INFLIGHT_MAX) /* posts of an endpoint that are not reported */
#define CUDA_UNIT_BYTES	 65536u                  /* parts of mapped memory are told in these */
#define CUDA_PARTS_MAX	 460u                    /* that a record has room for */

/* ---- records.c ---- */

enum cuda_way { CUDA_HOST_MEMORY = 1, CUDA_IPC = 2, CUDA_MAPPED = 3 };

struct cuda_part {
	uint32_t fd, units; /* CUDA_UNIT_BYTES each */
};

/* How device memory is opened by another process. */
struct cuda_region_record {
	struct identity identity;
	unsigned char uuid[16]; /* of the device */
	uint32_t way;
	uint64_t address;       /* in its own process */
	uint64_t offset;        /* of the region in what is shared */
	uint64_t shared_bytes;
	unsigned char handle[CUDA_IPC_BYTES]; /* ipc */
	uint32_t count;         /* mapped */
	struct cuda_part parts[CUDA_PARTS_MAX];
};

void cuda_region_record_put(struct record_writer *writer, const struct cuda_region_record *record);
int cuda_region_record_get(struct record_reader *reader, uint64_t bytes, struct cuda_region_record *record,
			   struct error *error);

/* ---- objects: shm's `more` ---- */

/* A descriptor of physical memory that peers take from this process (share.c). */
struct cuda_exported {
	uint64_t id;
	int fd;
	uint32_t holders;
};

struct cuda_domain {
	int device;
	const struct cuda_region *regions; /* those that were exported */
	bool device_targets; /* some peer's memory is a device's */
	ARRAY(struct cuda_exported) exported;
};

struct cuda_region {
	bool exported, pinned;            /* pinned: memory of the host that copies begin in, registered by us */
	const struct cuda_region *next;   /* cuda_domain.regions */
	uint64_t bytes;
	struct cuda_region_record record; /* of a device's that is no source; way 0: of none */
	uint64_t ids[CUDA_PARTS_MAX];     /* its parts' places in cuda_domain.exported */
};

struct cuda_endpoint {
	cuda_stream stream;
	cuda_event events[CUDA_RING];
	bool copies[CUDA_RING]; /* a post that is complete when its event is */
	struct late_write *late;
};

struct cuda_remote {
	bool device, pinned;   /* pinned: a peer's memfd, registered for copies */
	uint64_t address;      /* of the region here */
	struct cuda_opened *opened;          /* ipc: shared by all remotes of an allocation */
	uint64_t window, window_bytes;       /* mapped */
};

static inline struct cuda_domain *cuda_domain_of(const struct transport_domain *domain)
{
	return ((struct shm_domain *)domain->state)->more;
}

/* ---- share.c: fills record.way .. parts and ids; refuses what cannot be shared, with the cure ---- */
int cuda_share(struct transport_region *region, const struct cuda_pointer *pointer, struct error *error);
void cuda_unshare(struct transport_region *region);

/* ---- opened.c: the allocations of peers, opened once a process and device ---- */
struct cuda_opened;
int cuda_opened_get(const struct cuda_region_record *record, int device, struct cuda_opened **opened,
		    uint64_t *base, struct error *error);
int cuda_opened_put(struct cuda_opened *opened); /* the driver's number, when it does not let go */

/* The ops, typed as provider.h has them. */
#define X(op) extern __typeof__(*((struct provider *)NULL)->op) cuda_##op;
PROVIDER_OPS(X)
#undef X

#endif
