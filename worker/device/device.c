/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device/device.h"

#include "base/memory.h"
#include "pack/cuda/image.h"
#include "pack/cuda/launch.h"
#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <inttypes.h>
#include <string.h>

#define PAGE 4096u

const char *device_text(const struct device *device)
{
	return cuda_device_text(device->number);
}

/* ---- life ---- */

static int open_entered(struct device *device, struct error *error)
{
	const struct cuda_calls *calls = cuda_calls();
	size_t bytes;
	const struct cuda_image image = {pack_cuda_image(&bytes), PACK_CUDA_KERNEL_NAME};
	int rc = calls->stream_create(&device->stream);

	if (rc)
		device->stream = NULL;
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

int device_open(struct device **out, const char *name, int local_rank, struct error *error)
{
	struct device *device = *out = memory_zalloc(1, sizeof(*device));
	int rc;

	if (!device)
		return memory_error(error, "opening a device", sizeof(*device));
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

void device_close(struct device **where)
{
	struct device *device = *where;

	*where = NULL;
	if (!device)
		return;
	if (device->published) {
		device_unpin(device, (void *)device->published);
		memory_free((void *)device->published);
	}
	if (device->stream && !cuda_enter(device->number, NULL)) {
		cuda_calls()->stream_synchronize(device->stream);
		if (device->kernel)
			cuda_calls()->unload(device->kernel);
		if (device->behind)
			cuda_calls()->event_destroy(device->behind);
		cuda_calls()->stream_destroy(device->stream);
		cuda_leave();
	}
	memory_free(device);
}

/* ---- memory ---- */

static int zero_entered(const struct device *device, uint64_t address, uint64_t bytes)
{
	int rc = cuda_calls()->fill(address, 0, bytes, device->stream);

	return rc ? rc : cuda_calls()->stream_synchronize(device->stream);
}

int device_allocate(const struct device *device, uint64_t bytes, uint64_t *address,
		    struct error *error)
{
	uint64_t left = 0, all = 0, made;
	int rc = cuda_enter(device->number, error);

	*address = 0;
	if (rc)
		return rc;
	rc = cuda_calls()->allocate(bytes, &made);
	if (rc)
		cuda_calls()->memory_left(&left, &all);
	else if ((rc = zero_entered(device, made, bytes)))
		cuda_calls()->release(made);
	else
		*address = made;
	cuda_leave();
	if (rc == CUDA_OUT_OF_MEMORY)
		return cuda_failed(rc, error,
				   "%" PRIu64 " bytes on %s (%" PRIu64 " of %" PRIu64 " are free)",
				   bytes, device_text(device), left, all);
	return rc ? cuda_failed(rc, error, "allocating %" PRIu64 " bytes on %s", bytes,
				device_text(device))
		  : 0;
}

int device_zero(const struct device *device, uint64_t address, uint64_t bytes, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = zero_entered(device, address, bytes);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "zeroing %" PRIu64 " bytes on %s", bytes,
				device_text(device))
		  : 0;
}

void device_release(const struct device *device, uint64_t address)
{
	if (!address || cuda_enter(device->number, NULL))
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
	if (cuda_enter(device->number, NULL))
		return;
	cuda_calls()->host_unregister(memory);
	cuda_leave();
}

int device_queue_copy(const struct device *device, uint64_t to, uint64_t from, uint64_t bytes,
		      struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = cuda_calls()->copy(to, from, bytes, device->stream);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "copying %" PRIu64 " bytes on %s", bytes,
				device_text(device))
		  : 0;
}

int device_copy(const struct device *device, uint64_t to, uint64_t from, uint64_t bytes,
		struct error *error)
{
	int rc = device_queue_copy(device, to, from, bytes, error);

	return rc ? rc : device_finish(device, error);
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
	return error_set(error, ERROR_USAGE,
			 "%s: %p is no device memory of this process; pass host memory with kind "
			 "WEFT_MEMORY_HOST to a worker that is opened with memory \"host\"",
			 what, memory);
}

/* ---- the stream ---- */

int device_after(const struct device *device, void *stream, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = cuda_calls()->event_record(device->behind, stream);
	if (!rc)
		rc = cuda_calls()->stream_wait(device->stream, device->behind);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "waiting for stream %p of the host on %s", stream,
				device_text(device))
		  : 0;
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
	rc = cuda_calls()->launch(device->kernel, dim, launch, device->stream);
	cuda_leave();
	*launched = !rc;
	return rc ? cuda_failed(rc, error, "packing %u pieces on %s", launch->count,
				device_text(device))
		  : 0;
}

int device_mark(const struct device *device, cuda_event *mark, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	*mark = NULL;
	if (rc)
		return rc;
	rc = cuda_calls()->event_create(mark);
	if (rc)
		*mark = NULL;
	else if ((rc = cuda_calls()->event_record(*mark, device->stream))) {
		cuda_calls()->event_destroy(*mark);
		*mark = NULL;
	}
	cuda_leave();
	return rc ? cuda_failed(rc, error, "marking a stream of %s", device_text(device)) : 0;
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

int device_finish(const struct device *device, struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = cuda_calls()->stream_synchronize(device->stream);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "waiting for %s", device_text(device)) : 0;
}

/* ---- versions, for streams ---- */

void device_publish(const struct device *device, uint64_t version)
{
	atomic_store(device->published, version);
}

int device_stream_wait(const struct device *device, void *stream, uint64_t version,
		       struct error *error)
{
	int rc = cuda_enter(device->number, error);

	if (rc)
		return rc;
	rc = cuda_calls()->stream_wait_value(stream, (uint64_t)(uintptr_t)device->published,
					     version);
	cuda_leave();
	return rc ? cuda_failed(rc, error, "letting a stream of %s wait for version %" PRIu64,
				device_text(device), version)
		  : 0;
}
