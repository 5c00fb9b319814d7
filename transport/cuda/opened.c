/* SPDX-License-Identifier: Apache-2.0
 *
 * opened.c -- allocations of other processes that are open in this one. A driver opens a handle once a process and
 * device, while a job has hundreds of regions in one allocation, and may have several domains: so they are counted
 * here, for the whole process.
 */
#include "transport/cuda/cuda.h"

#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <inttypes.h>
#include <pthread.h>

struct cuda_opened {
	struct cuda_opened *next;
	struct identity owner;
	unsigned char handle[CUDA_IPC_BYTES];
	int device;
	uint64_t base;
	uint32_t holders;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_opened *all;

static struct cuda_opened *find(const struct cuda_region_record *record, int device)
{
	struct cuda_opened *one = all;

	while (one && (one->device != device || one->owner.pid != record->identity.pid ||
		       one->owner.start != record->identity.start ||
		       memcmp(one->handle, record->handle, sizeof(one->handle)) != 0))
		one = one->next;
	return one;
}

static int open_new(const struct cuda_region_record *record, int device, struct cuda_opened **out,
		    struct error *error)
{
	struct cuda_opened *one = memory_zalloc(1, sizeof(*one));
	int rc;

	if (!one)
		return memory_error(error, "opening device memory of a peer", sizeof(*one));
	rc = cuda_calls()->ipc_open(record->handle, &one->base);
	if (rc) {
		memory_free(one);
		return cuda_failed(rc, error, "opening device memory of process %" PRIu64 " on %s",
				   record->identity.pid, cuda_device_text(device));
	}
	one->owner = record->identity;
	memcpy(one->handle, record->handle, sizeof(one->handle));
	one->device = device;
	one->next = all;
	all = one;
	*out = one;
	return 0;
}

/* The device is entered. */
int cuda_opened_get(const struct cuda_region_record *record, int device,
		    struct cuda_opened **opened, uint64_t *base, struct error *error)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	*opened = find(record, device);
	if (!*opened)
		rc = open_new(record, device, opened, error);
	if (!rc) {
		(*opened)->holders++;
		*base = (*opened)->base;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

/* The device is entered. Closing fails on a lost device, which may hold on until this process ends. */
int cuda_opened_put(struct cuda_opened *opened)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (--opened->holders == 0) {
		struct cuda_opened **link = &all;

		while (*link != opened)
			link = &(*link)->next;
		*link = opened->next;
		rc = cuda_calls()->ipc_close(opened->base);
		memory_free(opened);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}
