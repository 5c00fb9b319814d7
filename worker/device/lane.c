/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device/lane.h"

#include "base/array.h"
#include "base/assert.h"
#include "base/memory.h"

#include <pthread.h>

#define LANES 16u
#define PAGE  4096u

enum { DATA, SCALES, BASES };

/* What the device reads and writes in the lane itself, which is pinned. */
struct lane {
	struct pack_cuda_part packs[PACK_COLUMNS_MAX], summed[PACK_COLUMNS_MAX];
	uint64_t bases[BASES], sums[PACK_COLUMNS_MAX];
	/* the host alone */
	struct lane_copy {
		uint64_t to, from, bytes;
	} copies[PACK_COLUMNS_MAX];
	uint32_t pack_count, sum_count, copy_count, count;
	uint32_t sum_of[PACK_COLUMNS_MAX]; /* of part i */
	uint64_t staged;		   /* bytes of the lane's staging */
	struct lanes *lanes;
	struct lane *next;
	uint64_t staging;
	bool on_device; /* the tensors: a copy from the host to the host would be the driver's, who waits */
	cuda_event packed, done;
};

struct lanes {
	const struct device *device;
	pthread_mutex_t lock;
	pthread_cond_t given;
	struct lane *memory, *spare;
	bool broken;
	struct error error;
	uint64_t bytes, staging_bytes, staging;
	_Atomic uint64_t launches;
};

/* ---- life ---- */

static int open_lane(struct lanes *lanes, uint32_t i, struct error *error)
{
	struct lane *lane = &lanes->memory[i];
	int rc = device_event(lanes->device, &lane->packed, error);

	if (!rc)
		rc = device_event(lanes->device, &lane->done, error);
	if (rc)
		return rc;
	lane->lanes = lanes;
	lane->staging = lanes->staging + i * lanes->staging_bytes;
	lane->next = lanes->spare;
	lanes->spare = lane;
	return 0;
}

static int open_memory(struct lanes *lanes, struct error *error)
{
	int rc;

	lanes->bytes = (LANES * sizeof(*lanes->memory) + PAGE - 1) / PAGE * PAGE;
	lanes->memory = memory_aligned(PAGE, lanes->bytes);
	if (!lanes->memory)
		return memory_error(error, "preparing a device's lanes", lanes->bytes);
	memset(lanes->memory, 0, lanes->bytes);
	rc = device_pin(lanes->device, lanes->memory, lanes->bytes, error);
	if (rc) {
		memory_free(lanes->memory);
		lanes->memory = NULL;
	}
	return rc;
}

int lanes_open(struct lanes **out, const struct device *device, uint64_t staging_bytes,
	       struct error *error)
{
	struct lanes *lanes = *out = memory_zalloc(1, sizeof(*lanes));
	int rc;

	if (!lanes)
		return memory_error(error, "preparing a device's lanes", sizeof(*lanes));
	pthread_mutex_init(&lanes->lock, NULL);
	pthread_cond_init(&lanes->given, NULL);
	lanes->device = device;
	lanes->staging_bytes = lane_staged(staging_bytes);
	rc = open_memory(lanes, error);
	if (!rc && staging_bytes) {
		rc = device_allocate(device, LANES * lanes->staging_bytes, &lanes->staging, error);
		if (rc)
			return error_wrap(error, "memory to pack in before it goes to the host");
	}
	for (uint32_t i = 0; i < LANES && !rc; i++)
		rc = open_lane(lanes, i, error);
	return rc;
}

static void close_memory(struct lanes *lanes)
{
	for (uint32_t i = 0; lanes->memory && i < LANES; i++) {
		device_unmark(lanes->device, lanes->memory[i].packed);
		device_unmark(lanes->device, lanes->memory[i].done);
	}
	device_release(lanes->device, lanes->staging);
	if (lanes->memory)
		device_unpin(lanes->device, lanes->memory);
	memory_free(lanes->memory);
}

void lanes_close(struct lanes **where)
{
	struct lanes *lanes = *where;

	*where = NULL;
	if (!lanes)
		return;
	if (device_quiet(lanes->device))
		close_memory(lanes);
	pthread_cond_destroy(&lanes->given);
	pthread_mutex_destroy(&lanes->lock);
	memory_free(lanes);
}

struct lane *lanes_take(struct lanes *lanes)
{
	struct lane *lane;

	pthread_mutex_lock(&lanes->lock);
	while (!lanes->spare && !lanes->broken)
		pthread_cond_wait(&lanes->given, &lanes->lock);
	lane = lanes->broken ? NULL : lanes->spare;
	if (lane)
		lanes->spare = lane->next;
	pthread_mutex_unlock(&lanes->lock);
	return lane;
}

void lanes_break(struct lanes *lanes, const struct error *error)
{
	pthread_mutex_lock(&lanes->lock);
	if (!lanes->broken)
		lanes->error = *error;
	lanes->broken = true;
	pthread_cond_broadcast(&lanes->given);
	pthread_mutex_unlock(&lanes->lock);
}

int lanes_broken(struct lanes *lanes, struct error *error)
{
	bool broken;

	pthread_mutex_lock(&lanes->lock);
	broken = lanes->broken;
	if (broken)
		*error = lanes->error;
	pthread_mutex_unlock(&lanes->lock);
	return broken ? -(int)error->code : 0;
}

void lanes_mend(struct lanes *lanes)
{
	pthread_mutex_lock(&lanes->lock);
	lanes->spare = NULL;
	for (uint32_t i = 0; i < LANES; i++) {
		lanes->memory[i].next = lanes->spare;
		lanes->spare = &lanes->memory[i];
	}
	lanes->broken = false;
	pthread_mutex_unlock(&lanes->lock);
}

void lanes_give(struct lanes *lanes, struct lane *lane)
{
	pthread_mutex_lock(&lanes->lock);
	lane->next = lanes->spare;
	lanes->spare = lane;
	pthread_cond_signal(&lanes->given);
	pthread_mutex_unlock(&lanes->lock);
}

/* ---- parts ---- */

static uint64_t address_of(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

void lane_begin(struct lane *lane, const void *data, const void *scales)
{
	lane->bases[DATA] = address_of(data);
	lane->bases[SCALES] = address_of(scales);
	lane->pack_count = lane->sum_count = lane->copy_count = lane->count = 0;
	lane->staged = 0;
	lane->on_device = device_has(data);
}

/* Its bytes lie in the tensor as they go out. */
static bool lies_packed(const struct pack *pack)
{
	const struct runs *runs = &pack->runs;

	return transform_plain(&pack->transform) && pack->from == pack->to &&
	       (runs->rows <= 1 || runs->stride_bytes == runs->row_bytes);
}

static void add_pack(struct lane *lane, const struct lane_part *part, uint64_t target)
{
	struct pack_cuda_part *pack = &lane->packs[lane->pack_count++];

	pack_cuda_part_init(pack, part->pack, DATA, SCALES, part->from, part->bytes, target);
	pack->scales_target = address_of(part->scales_target);
}

/* Where the part's bytes are once the kernel has run, and what brings them to their slot. */
static uint64_t place(struct lane *lane, const struct lane_part *part)
{
	uint64_t slot = address_of(part->target), at = slot;

	if (!part->pack)
		return slot;
	if (lies_packed(part->pack) &&
	    (!part->target || (lane->lanes->staging_bytes && lane->on_device))) {
		at = lane->bases[DATA] + part->pack->runs.offset + part->from;
	} else {
		if (lane->lanes->staging_bytes) {
			at = lane->staging + lane->staged;
			lane->staged += lane_staged(part->bytes);
			WEFT_ASSERT_OP(lane->staged, <=, lane->lanes->staging_bytes);
		}
		add_pack(lane, part, at);
	}
	if (part->target && at != slot)
		lane->copies[lane->copy_count++] = (struct lane_copy){slot, at, part->bytes};
	return at;
}

void lane_add(struct lane *lane, const struct lane_part *part)
{
	uint64_t at;

	WEFT_ASSERT_OP(lane->count, <, PACK_COLUMNS_MAX);
	at = place(lane, part);
	if (part->sum) {
		pack_cuda_sum_init(&lane->summed[lane->sum_count], at, part->bytes,
				   lane->sum_count);
		lane->sum_of[lane->count] = lane->sum_count++;
	}
	lane->count++;
}

/* ---- run ---- */

static int launch(struct lane *lane, struct pack_cuda_part *parts, uint32_t count,
		  struct error *error)
{
	struct pack_cuda_launch launch;
	uint32_t launched;
	int rc;

	if (!count)
		return 0;
	pack_cuda_table_finish(parts, count);
	launch = pack_cuda_launch_of(parts, 0, count, address_of(parts), address_of(lane->bases),
				     address_of(lane->sums));
	rc = device_launch(lane->lanes->device, &launch, &launched, error);
	atomic_fetch_add_explicit(&lane->lanes->launches, launched, memory_order_relaxed);
	return rc;
}

/* Behind the kernels, or behind what a host program queued before on what is copied as it lies. */
static int copy_down(struct lane *lane, struct error *error)
{
	const struct device *device = lane->lanes->device;
	int rc = device_record(device, lane->packed, DEVICE_KERNELS, error);

	if (!rc)
		rc = device_copies_after(device, lane->packed, error);
	for (uint32_t i = 0; i < lane->copy_count && !rc; i++)
		rc = device_queue_copy(device, DEVICE_COPIES, lane->copies[i].to,
				       lane->copies[i].from, lane->copies[i].bytes, error);
	return rc;
}

int lane_run(struct lane *lane, cuda_event *done, struct error *error)
{
	const struct device *device = lane->lanes->device;
	bool copies = lane->copy_count != 0;
	int rc = launch(lane, lane->packs, lane->pack_count, error);

	if (!rc)
		rc = launch(lane, lane->summed, lane->sum_count, error);
	if (!rc && copies)
		rc = copy_down(lane, error);
	*done = lane->done;
	return rc ? rc
		  : device_record(device, lane->done, copies ? DEVICE_COPIES : DEVICE_KERNELS,
				  error);
}

uint64_t lane_sum(const struct lane *lane, uint32_t i)
{
	return lane->sums[lane->sum_of[i]];
}

uint64_t lanes_launches(const struct lanes *lanes)
{
	return atomic_load_explicit(&lanes->launches, memory_order_relaxed);
}
