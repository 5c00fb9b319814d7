/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device/lane.h"

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"

#include <pthread.h>
#include <sched.h>

#define LANES	 64u
#define PAGE	 4096u
#define SPIN_NS	 UINT64_C(200000) /* then it sleeps between two looks */
#define SLEEP_NS 20000

enum { DATA, SCALES, BASES };

/* What the device reads, in pinned memory. */
struct lane {
	struct pack_cuda_part parts[PACK_COLUMNS_MAX];
	uint64_t bases[BASES];
	struct lanes *lanes;
	struct lane *next;
	uint32_t count;
	cuda_event mark;
};

struct lanes {
	const struct device *device;
	pthread_mutex_t lock;
	struct lane *memory, *spare;
	uint64_t bytes;
	_Atomic uint64_t launches;
};

int lanes_open(struct lanes **out, const struct device *device, struct error *error)
{
	struct lanes *lanes = *out = memory_zalloc(1, sizeof(*lanes));
	int rc;

	if (!lanes)
		return memory_error(error, "preparing a device's lanes", sizeof(*lanes));
	pthread_mutex_init(&lanes->lock, NULL);
	lanes->device = device;
	lanes->bytes = (LANES * sizeof(*lanes->memory) + PAGE - 1) / PAGE * PAGE;
	lanes->memory = memory_aligned(PAGE, lanes->bytes);
	if (!lanes->memory)
		return memory_error(error, "preparing a device's lanes", lanes->bytes);
	memset(lanes->memory, 0, lanes->bytes);
	rc = device_pin(device, lanes->memory, lanes->bytes, error);
	if (rc) {
		memory_free(lanes->memory);
		lanes->memory = NULL;
		return rc;
	}
	for (uint32_t i = 0; i < LANES; i++) {
		lanes->memory[i].lanes = lanes;
		lanes->memory[i].next = lanes->spare;
		lanes->spare = &lanes->memory[i];
	}
	return 0;
}

void lanes_close(struct lanes **where)
{
	struct lanes *lanes = *where;
	struct error ignored;

	*where = NULL;
	if (!lanes)
		return;
	device_finish(lanes->device, &ignored);
	if (lanes->memory)
		device_unpin(lanes->device, lanes->memory);
	memory_free(lanes->memory);
	pthread_mutex_destroy(&lanes->lock);
	memory_free(lanes);
}

struct lane *lanes_take(struct lanes *lanes)
{
	for (;;) {
		struct lane *lane;

		pthread_mutex_lock(&lanes->lock);
		lane = lanes->spare;
		if (lane)
			lanes->spare = lane->next;
		pthread_mutex_unlock(&lanes->lock);
		if (lane)
			return lane;
		sched_yield();
	}
}

void lanes_give(struct lanes *lanes, struct lane *lane)
{
	pthread_mutex_lock(&lanes->lock);
	lane->next = lanes->spare;
	lanes->spare = lane;
	pthread_mutex_unlock(&lanes->lock);
}

void lane_begin(struct lane *lane, const void *data, const void *scales)
{
	lane->bases[DATA] = (uint64_t)(uintptr_t)data;
	lane->bases[SCALES] = (uint64_t)(uintptr_t)scales;
	lane->count = 0;
}

void lane_add(struct lane *lane, const struct pack *pack, uint64_t from, uint64_t bytes,
	      void *target, void *scales_target)
{
	WEFT_ASSERT_OP(lane->count, <, PACK_COLUMNS_MAX);
	struct pack_cuda_part *part = &lane->parts[lane->count++];

	pack_cuda_part_init(part, pack, DATA, SCALES, from, bytes, (uint64_t)(uintptr_t)target);
	part->scales_target = (uint64_t)(uintptr_t)scales_target;
}

int lane_launch(struct lane *lane, struct error *error)
{
	struct pack_cuda_launch launch;
	uint32_t launched;
	int rc;

	pack_cuda_table_finish(lane->parts, lane->count);
	launch = pack_cuda_launch_of(lane->parts, 0, lane->count, (uint64_t)(uintptr_t)lane->parts,
				     (uint64_t)(uintptr_t)lane->bases, 0);
	lane->mark = NULL;
	rc = device_launch(lane->lanes->device, &launch, &launched, error);
	atomic_fetch_add_explicit(&lane->lanes->launches, launched, memory_order_relaxed);
	return rc || !launched ? rc : device_mark(lane->lanes->device, &lane->mark, error);
}

int lane_wait(struct lane *lane, uint64_t deadline_ns, struct error *error)
{
	const struct device *device = lane->lanes->device;
	uint64_t begin = clock_ns();
	int rc = 0;

	while (lane->mark && !rc) {
		rc = device_reached(device, lane->mark, error);
		if (!rc && clock_ns() >= deadline_ns)
			rc = error_set(error, ERROR_TIMEOUT,
				       "%s has not packed what was written in time: a kernel of "
				       "this process may hold it, or the stream that was given "
				       "with a tensor waits for something",
				       device_text(device));
		if (!rc && clock_ns() - begin > SPIN_NS)
			clock_sleep_ns(SLEEP_NS);
	}
	device_unmark(device, lane->mark);
	return rc < 0 ? rc : 0;
}

uint64_t lanes_launches(const struct lanes *lanes)
{
	return atomic_load_explicit(&lanes->launches, memory_order_relaxed);
}
