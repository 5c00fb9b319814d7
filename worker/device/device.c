/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device/device.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "pack/cuda/image.h"
#include "pack/cuda/launch.h"
#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <inttypes.h>
#include <string.h>

#define PAGE	 4096u
#define WAIT_MS	 60000u /* for work of our own that is short */
#define CLOSE_MS 5000u
#define AGAIN_MS 100u
#define SPIN_NS	 UINT64_C(200000) /* then it sleeps between two looks */
#define SLEEP_NS 20000

const char *device_text(const struct device *device)
{
	return cuda_device_text(device->number);
}

/* One that was not opened is of a call that waits for all it does. */
static bool is_stuck(const struct device *device)
{
	return device->live && device->live->stuck;
}

/* ---- life ---- */

static int open_entered(struct device *device, struct error *error)
{
	const struct cuda_calls *calls = cuda_calls();
	size_t bytes;
	const struct cuda_image image = {pack_cuda_image(&bytes), PACK_CUDA_KERNEL_NAME};
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++)
		if ((rc = calls->stream_create(&device->streams[i])))
			device->streams[i] = NULL;
	if (!rc && (rc = calls->event_create(&device->behind)))
		device->behind = NULL;
	if (!rc && (rc = calls->load(&image, &device->kernel)))
		device->kernel = NULL;
	return rc ? cuda_failed(rc, error, "opening %s", device_text(device)) : 0;
}

static int open_published(struct device *device, struct error *error)
{
	void *page = memory_aligned(PAGE, PAGE);
	int rc;

	if (!page)
		return memory_error(error, "opening a device", PAGE);
	memset(page, 0, PAGE);
	rc = device_pin(device, page, PAGE, error);
	if (rc)
		memory_free(page);
	else
		device->published = page;
	return rc;
}

/* In one block: what is const to those who use the device, and what is not. */
struct opened {
	struct device device;
	struct device_live live;
};

int device_open(struct device **out, const char *name, int local_rank, struct error *error)
{
	struct opened *opened = memory_zalloc(1, sizeof(*opened));
	struct device *device = *out = opened ? &opened->device : NULL;
	int rc;

	if (!device)
		return memory_error(error, "opening a device", sizeof(*opened));
	device->live = &opened->live;
	pthread_mutex_init(&device->live->after, NULL);
	rc = cuda_device_named(name, local_rank, &device->number, error);
	if (!rc)
		rc = cuda_device_facts(device->number, &device->facts, error);
	if (!rc)
		rc = cuda_enter(device->number, error);
	if (!rc) {
		rc = open_entered(device, error);
		cuda_leave();
	}
	return rc ? rc : open_published(device, error);
}

static void close_entered(struct device *device)
{
	const struct cuda_calls *calls = cuda_calls();

	if (device->kernel)
		calls->unload(device->kernel);
	if (device->behind)
		calls->event_destroy(device->behind);
	for (int i = 0; i < 2; i++)
		if (device->streams[i])
			calls->stream_destroy(device->streams[i]);
}

/* Pages with a word that streams of the host program may look at as long as they live: linked by what follows it. */
static _Atomic(void *) kept;

static void keep(void *page)
{
	void **next = (void **)page + 1;

	*next = kept;
	while (!atomic_compare_exchange_weak(&kept, next, page))
		;
}

void device_close(struct device **where)
{
	struct device *device = *where;

	*where = NULL;
	if (!device)
		return;
	if (device->streams[DEVICE_KERNELS] && device_quiet(device) &&
	    !cuda_enter(device->number, NULL)) {
		close_entered(device);
		cuda_leave();
	}
	if (device->published && (is_stuck(device) || device->live->awaited)) {
		keep((void *)device->published);
	} else if (device->published) {
		device_unpin(device, (void *)device->published);
		memory_free((void *)device->published);
	}
	pthread_mutex_destroy(&device->live->after);
	memory_free(device); /* the opened it is the first of */
}

/* ---- events, and waiting for them ---- */

int device_event(const struct device *device, cuda_event *event, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	*event = NULL;
	if (rc)
		return rc;
	rc = cuda_calls()->event_create(event);
	cuda_leave();
	if (!rc)
		return 0;
	*event = NULL;
	return cuda_failed(rc, error, "making an event on %s", device_text(device));
}

int device_record(const struct device *device, cuda_event event, enum device_stream stream,
		  struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = cuda_calls()->event_record(event, device->streams[stream]);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "marking a stream of %s", device_text(device)) : 0;
}

int device_mark(const struct device *device, cuda_event *mark, struct error *error)
{
	int rc = device_event(device, mark, error);

	if (!rc)
		rc = device_record(device, *mark, DEVICE_KERNELS, error);
	if (rc) {
		device_unmark(device, *mark);
		*mark = NULL;
	}
	return rc;
}

int device_reached(const struct device *device, cuda_event mark, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = cuda_calls()->event_query(mark);
	cuda_leave();
	if (rc && rc != CUDA_NOT_READY)
		return cuda_failed(rc, error, "waiting for %s", device_text(device));
	return !rc;
}

void device_unmark(const struct device *device, cuda_event mark)
{
	if (!mark || cuda_enter(device->number, NULL))
		return;
	cuda_calls()->event_destroy(mark);
	cuda_leave();
}

int device_reach(const struct device *device, cuda_event mark, uint64_t until_ns,
		 struct error *error)
{
	uint64_t begin = clock_ns();

	for (;;) {
		int rc = device_reached(device, mark, error);

		if (rc)
			return rc > 0 ? 0 : rc;
		if (clock_ns() >= until_ns)
			return error_set(error, ERROR_TIMEOUT,
					 "%s has not done what was queued on it in time: a kernel "
					 "of this process may hold it, or a stream that was given "
					 "with memory waits for something",
					 device_text(device));
		if (clock_ns() - begin > SPIN_NS)
			clock_sleep_ns(SLEEP_NS);
	}
}

static int settle(const struct device *device, enum device_stream stream, uint64_t until_ns,
		  struct error *error)
{
	cuda_event mark;
	int rc = device_event(device, &mark, error);

	if (!rc)
		rc = device_record(device, mark, stream, error);
	if (!rc)
		rc = device_reach(device, mark, until_ns, error);
	device_unmark(device, mark);
	return rc;
}

int device_settle(const struct device *device, uint64_t until_ns, struct error *error)
{
	int rc = settle(device, DEVICE_KERNELS, until_ns, error);

	return rc ? rc : settle(device, DEVICE_COPIES, until_ns, error);
}

bool device_quiet(const struct device *device)
{
	struct error error;
	int rc;
	bool before = device->live->stuck;

	/* what it was stuck at may have ended meanwhile; nobody waits as long for that twice */
	device->live->stuck = false;
	rc = device_settle(device, clock_deadline_ns(before ? AGAIN_MS : CLOSE_MS), &error);
	if (rc && rc != -(int)ERROR_TIMEOUT && !cuda_enter(device->number, NULL)) {
		/* no event was to be had: the driver waits, or says that the device is lost */
		for (int i = 0; i < 2; i++)
			cuda_calls()->stream_synchronize(device->streams[i]);
		cuda_leave();
	}
	if (rc != -(int)ERROR_TIMEOUT)
		return true;
	device->live->stuck = true;
	if (!before)
		log_warn("%s; memory that it may still touch stays as it is until this process "
			 "ends",
			 error.text);
	return false;
}

bool device_closes(const struct device *device)
{
	bool quiet = device_quiet(device);

	if (!quiet)
		device->live->left = true;
	return quiet;
}

/* ---- memory ---- */

int device_memory_left(const struct device *device, uint64_t *bytes, struct error *error)
{
	uint64_t all = 0;
	int rc = cuda_enter(device->number, error);

	*bytes = 0;
	if (rc)
		return rc;
	rc = cuda_calls()->memory_left(bytes, &all);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "asking %s what is free", device_text(device)) : 0;
}

int device_allocate(const struct device *device, uint64_t bytes, uint64_t *address,
		    struct error *error)
{
	uint64_t left = 0, all = 0, made = 0;
	int rc = cuda_enter(device->number, error);

	*address = 0;
	if (rc)
		return rc;
	rc = cuda_calls()->allocate(bytes, &made);
	if (rc)
		cuda_calls()->memory_left(&left, &all);
	cuda_leave();
	if (rc == CUDA_OUT_OF_MEMORY)
		return cuda_failed(rc, error,
				   "%" PRIu64 " bytes on %s (%" PRIu64 " of %" PRIu64 " are free)",
				   bytes, device_text(device), left, all);
	if (rc)
		return cuda_failed(rc, error, "allocating %" PRIu64 " bytes on %s", bytes,
				   device_text(device));
	rc = device_zero(device, made, bytes, error);
	if (rc)
		device_release(device, made);
	else
		*address = made;
	return rc;
}

int device_zero(const struct device *device, uint64_t address, uint64_t bytes, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = cuda_calls()->fill(address, 0, bytes, device->streams[DEVICE_KERNELS]);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "zeroing %" PRIu64 " bytes on %s", bytes,
				device_text(device))
		  : settle(device, DEVICE_KERNELS, clock_deadline_ns(WAIT_MS), error);
}

void device_release(const struct device *device, uint64_t address)
{
	if (!address || is_stuck(device) || cuda_enter(device->number, NULL))
		return;
	cuda_calls()->release(address);
	cuda_leave();
}

int device_pin(const struct device *device, void *memory, uint64_t bytes, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	bytes = (bytes + PAGE - 1) / PAGE * PAGE;
	if (rc)
		return rc;
	rc = cuda_calls()->host_register(memory, bytes);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "pinning %" PRIu64 " bytes at %p for %s", bytes, memory,
				device_text(device))
		  : 0;
}

void device_unpin(const struct device *device, void *memory)
{
	if (is_stuck(device) || cuda_enter(device->number, NULL))
		return;
	cuda_calls()->host_unregister(memory);
	cuda_leave();
}

static enum cuda_memory kind_of(const void *memory)
{
	struct cuda_pointer pointer;

	return cuda_calls()->pointer((uint64_t)(uintptr_t)memory, &pointer) ? CUDA_MEMORY_UNKNOWN
									    : pointer.memory;
}

int device_pin_pages(const struct device *device, void *memory, uint64_t bytes, void **pinned,
		     struct error *error)
{
	uintptr_t at = (uintptr_t)memory / PAGE * PAGE;
	uintptr_t end = ((uintptr_t)memory + bytes + PAGE - 1) / PAGE * PAGE;
	int rc;

	*pinned = NULL;
	/* neighbours on a heap share their first and last page */
	if (kind_of((void *)at) == CUDA_MEMORY_HOST)
		at += PAGE;
	if (end > at && kind_of((void *)(end - PAGE)) == CUDA_MEMORY_HOST)
		end -= PAGE;
	if (end <= at || kind_of((void *)at) == CUDA_MEMORY_HOST)
		return 0;
	rc = device_pin(device, (void *)at, end - at, error);
	if (!rc)
		*pinned = (void *)at;
	return rc;
}

int device_queue_copy(const struct device *device, enum device_stream stream, uint64_t to,
		      uint64_t from, uint64_t bytes, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = cuda_calls()->copy(to, from, bytes, device->streams[stream]);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "copying %" PRIu64 " bytes on %s", bytes,
				device_text(device))
		  : 0;
}

int device_copy(const struct device *device, uint64_t to, uint64_t from, uint64_t bytes,
		struct error *error)
{
	int rc = device_queue_copy(device, DEVICE_KERNELS, to, from, bytes, error);

	return rc ? rc : settle(device, DEVICE_KERNELS, clock_deadline_ns(WAIT_MS), error);
}

int device_holds(const struct device *device, const void *memory, uint64_t bytes, const char *what,
		 struct error *error)
{
	struct cuda_pointer pointer;
	int rc = cuda_pointer_of(memory, bytes, &pointer, error);

	if (rc)
		return error_wrap(error, "%s", what);
	if (pointer.memory == CUDA_MEMORY_MANAGED ||
	    (pointer.memory == CUDA_MEMORY_DEVICE && pointer.device == device->number))
		return 0;
	if (pointer.memory == CUDA_MEMORY_DEVICE)
		return error_set(error, ERROR_USAGE,
				 "%s: %p is memory of cuda:%d, but this worker uses %s: open it "
				 "with memory \"cuda:%d\" (--memory cuda:%d)",
				 what, memory, pointer.device, device_text(device), pointer.device,
				 pointer.device);
	return error_set(
		error, ERROR_USAGE,
		"%s: %p is no device memory of this process; pass host memory with kind "
		"WEFT_MEMORY_HOST, registered (weft_source_register) where it is a tensor's",
		what, memory);
}

bool device_has(const void *memory)
{
	enum cuda_memory kind = kind_of(memory);

	return kind == CUDA_MEMORY_DEVICE || kind == CUDA_MEMORY_MANAGED;
}

/* ---- streams ---- */

int device_after(const struct device *device, void *stream, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	pthread_mutex_lock(&device->live->after);
	rc = cuda_calls()->event_record(device->behind, stream);
	if (!rc)
		rc = cuda_calls()->stream_wait(device->streams[DEVICE_KERNELS], device->behind);
	pthread_mutex_unlock(&device->live->after);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "waiting for stream %p of the host on %s", stream,
				device_text(device))
		  : 0;
}

int device_copies_after(const struct device *device, cuda_event event, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = cuda_calls()->stream_wait(device->streams[DEVICE_COPIES], event);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "ordering streams of %s", device_text(device)) : 0;
}

int device_launch(const struct device *device, struct pack_cuda_launch *launch, uint32_t *launched,
		  struct error *error)
{
	const struct cuda_dim dim = {pack_cuda_blocks(launch, device->facts.processors),
				     PACK_CUDA_THREADS};
	int rc;

	*launched = 0;
	if (!dim.blocks)
		return 0;
	rc = cuda_enter(device->number, error);
	if (rc)
		return rc;
	rc = cuda_calls()->launch(device->kernel, dim, launch, device->streams[DEVICE_KERNELS]);
	cuda_leave();
	*launched = !rc;
	return rc ? cuda_failed(rc, error, "packing %u pieces on %s", launch->count,
				device_text(device))
		  : 0;
}

int device_flush(const struct device *device, struct error *error)
{
	int rc;

	if (!device->facts.flush_needed)
		return 0;
	rc = cuda_enter(device->number, error);
	if (rc)
		return rc;
	rc = cuda_calls()->flush_writes();
	cuda_leave();
	return rc ? cuda_failed(rc, error, "flushing what NICs wrote into memory of %s",
				device_text(device))
		  : 0;
}

/* ---- versions, for streams ---- */

void device_publish(const struct device *device, uint64_t version)
{
	atomic_store(device->published, version);
}

void device_let_go(const struct device *device)
{
	if (device->published)
		device_publish(device, INT64_MAX); /* the driver compares the difference, signed */
}

int device_stream_wait(const struct device *device, void *stream, uint64_t version,
		       struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	device->live->awaited = true;
	rc = cuda_calls()->stream_wait_value(stream, (uint64_t)(uintptr_t)device->published,
					     version);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "letting a stream of %s wait for version %" PRIu64,
				device_text(device), version)
		  : 0;
}
