/* SPDX-License-Identifier: Apache-2.0
 *
 * post.c -- a write is shm's copy between host and host, and else a copy on the endpoint's stream. Posts are reported in
 * their order:
 *
 *   posts   ... reported ........ posted        each is complete at once, or when its event is
 */
#include "transport/cuda/cuda.h"

#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <inttypes.h>

struct way {
	uint64_t source, target; /* addresses of the copy; rows: of the first row */
	bool device;		 /* one of them is a device's */
};

/* Where no region says it, the driver does. */
static int on_device(const struct provider_write *write, uint64_t source, bool *device,
		     struct error *error)
{
	struct cuda_pointer pointer;
	int rc;

	*device = write->region && write->region->on_device;
	if (write->region)
		return 0;
	rc = cuda_calls()->pointer(source, &pointer);
	*device = !rc &&
		  (pointer.memory == CUDA_MEMORY_DEVICE || pointer.memory == CUDA_MEMORY_MANAGED);
	return rc ? cuda_failed(rc, error, "asking where 0x%" PRIx64 " lies", source) : 0;
}

/* A peer's memfd, for copies from a device into it: once, by the first. The host program may have done so itself. */
static int pin_remote(struct transport_remote *remote, struct error *error)
{
	struct shm_remote *shm = remote->state;
	struct cuda_remote *cuda = shm->more;
	int device = cuda_domain_of(remote->endpoint->domain)->device, rc;

	if (cuda->pinned)
		return 0;
	rc = cuda_enter(device, error);
	if (rc)
		return rc;
	rc = cuda_calls()->host_register(shm->memory, shm->map_bytes);
	cuda_leave();
	cuda->pinned = !rc;
	return rc && rc != CUDA_HOST_REGISTERED
		       ? cuda_failed(rc, error,
				     "pinning %" PRIu64
				     " bytes of the peer's memory for copies from %s",
				     shm->map_bytes, cuda_device_text(device))
		       : 0;
}

static int way_of(struct transport_endpoint *endpoint, const struct provider_write *write,
		  struct way *way, struct error *error)
{
	struct shm_remote *shm = write->remote->state;
	const struct cuda_remote *cuda = shm->more;
	int rc;

	way->source = (uint64_t)(uintptr_t)(write->rows ? write->rows->first
							: (const void *)write->source);
	way->target = cuda->address + write->offset;
	way->device = cuda->device;
	if (cuda->device)
		return 0;
	rc = on_device(write, way->source, &way->device, error);
	if (rc || !way->device)
		return rc;
	if (shm->record.kind == SHM_PROCESS)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"a GPU cannot write the memory that %s registered: let it use memory of weft's allocator",
			endpoint->name);
	way->target = (uint64_t)(uintptr_t)(shm->memory + write->offset);
	return pin_remote(write->remote, error);
}

/* Whole rows in one call, the ends that are none alone. */
static int copy_rows(const struct provider_write *write, const struct way *way, cuda_stream stream)
{
	const struct transport_rows *rows = write->rows;
	const struct cuda_calls *calls = cuda_calls();
	uint64_t done = 0;
	int rc = 0;

	while (done < write->bytes && !rc) {
		uint64_t row = (write->from + done) / rows->row_bytes,
			 skip = (write->from + done) % rows->row_bytes;
		uint64_t from = way->source + row * rows->stride_bytes + skip,
			 left = write->bytes - done;
		uint64_t bytes = rows->row_bytes - skip, whole = left / rows->row_bytes;

		if (!skip && whole) {
			bytes = whole * rows->row_bytes;
			rc = calls->copy_rows(way->target + done, from, rows->row_bytes,
					      rows->stride_bytes, whole, stream);
		} else {
			bytes = bytes < left ? bytes : left;
			rc = calls->copy(way->target + done, from, bytes, stream);
		}
		done += bytes;
	}
	return rc;
}

static int write_device(struct transport_endpoint *endpoint, const struct provider_write *write,
			const struct way *way, struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	struct cuda_endpoint *cuda = shm->more;
	uint64_t place = shm->posted % CUDA_RING;
	int device = cuda_domain_of(endpoint->domain)->device,
	    rc = shm_check_allowed(endpoint, error);

	if (!rc)
		rc = cuda_enter(device, error);
	if (rc)
		return rc;
	rc = write->rows ? copy_rows(write, way, cuda->stream)
			 : cuda_calls()->copy(way->target, way->source, write->bytes, cuda->stream);
	if (!rc)
		rc = cuda_calls()->event_record(cuda->events[place], cuda->stream);
	cuda_leave();
	if (rc)
		return cuda_failed(rc, error, "copying %" PRIu64 " bytes on %s", write->bytes,
				   cuda_device_text(device));
	cuda->copies[place] = true;
	shm->posted++;
	return 0;
}

static int write_one(struct transport_endpoint *endpoint, const struct provider_write *write,
		     struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	struct cuda_endpoint *cuda = shm->more;
	uint32_t posted;
	struct way way;
	int rc = way_of(endpoint, write, &way, error);

	if (rc)
		return rc;
	if (way.device)
		return write_device(endpoint, write, &way, error);
	cuda->copies[shm->posted % CUDA_RING] = false;
	return shm_post_write(endpoint, 0, write, 1, &posted, error);
}

int cuda_post_write(struct transport_endpoint *endpoint, uint32_t rail,
		    const struct provider_write *writes, uint32_t count, uint32_t *posted,
		    struct error *error)
{
	int rc = 0;

	for (*posted = 0; *posted < count && !rc; *posted += !rc)
		rc = write_one(endpoint, &writes[*posted], error);
	return rc;
}

int cuda_post_signal(struct transport_endpoint *endpoint, uint64_t id,
		     const struct transport_signal *signal, struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	struct cuda_endpoint *cuda = shm->more;

	cuda->copies[shm->posted % CUDA_RING] = false;
	return shm_post_signal(endpoint, id, signal, error);
}

/* 1: the oldest post is complete; 0: not yet. */
static int oldest_complete(struct transport_endpoint *endpoint, struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	struct cuda_endpoint *cuda = shm->more;
	uint64_t place = shm->reported % CUDA_RING;
	int device = cuda_domain_of(endpoint->domain)->device, rc;

	if (!cuda->copies[place])
		return 1;
	rc = cuda_enter(device, error);
	if (rc)
		return rc;
	rc = cuda_calls()->event_query(cuda->events[place]);
	cuda_leave();
	if (rc && rc != CUDA_NOT_READY)
		return cuda_failed(rc, error, "waiting for a copy on %s", cuda_device_text(device));
	return !rc;
}

int cuda_poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
	      struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	int n = 0, complete = 1;

	while (n < max && shm->reported < shm->posted) {
		complete = oldest_complete(endpoint, error);
		if (complete <= 0)
			break;
		out[n++] = (struct provider_completion){.id = shm->reported++};
	}
	return complete < 0 ? complete : n;
}
