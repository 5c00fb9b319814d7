/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/fluid.h"

#include <math.h>

/* Levels closer than this are equal: far above rounding, far below anything of interest. */
#define SAME 1e-11

int fluid_init(struct fluid *fluid, uint32_t resources, uint32_t slots, uint32_t path_max,
	       struct event_queue *queue, struct error *error)
{
	*fluid = (struct fluid){.resource_count = resources,
				.slot_count = slots,
				.path_max = path_max,
				.queue = queue};
	fluid->resources = pool_array(&fluid->pool, resources, sizeof(*fluid->resources));
	fluid->slots = pool_array(&fluid->pool, slots, sizeof(*fluid->slots));
	fluid->paths = pool_array(&fluid->pool, (size_t)slots * path_max, sizeof(*fluid->paths));
	fluid->pending = pool_array(&fluid->pool, resources, sizeof(*fluid->pending));
	fluid->touched = pool_array(&fluid->pool, slots, sizeof(*fluid->touched));
	if (!pool_ok(&fluid->pool)) {
		fluid_fini(fluid);
		return memory_error(error, "simulating",
				    (size_t)slots * path_max * sizeof(*fluid->paths));
	}
	for (uint32_t r = 0; r < resources; r++)
		fluid->resources[r].level = INFINITY;
	return 0;
}

void fluid_fini(struct fluid *fluid)
{
	pool_free(&fluid->pool);
	*fluid = (struct fluid){0};
}

/* ---- what has to be looked at again ---- */

static void look_at(struct fluid *fluid, uint32_t r)
{
	uint32_t at = fluid->pending_first + fluid->pending_count;

	if (fluid->resources[r].queued)
		return;
	fluid->resources[r].queued = true;
	fluid->pending[at < fluid->resource_count ? at : at - fluid->resource_count] = r;
	fluid->pending_count++;
}

static void touch(struct fluid *fluid, uint32_t slot)
{
	if (fluid->slots[slot].touched)
		return;
	fluid->slots[slot].touched = true;
	fluid->touched[fluid->touched_count++] = slot;
}

/* ---- flows ---- */

void fluid_start(struct fluid *fluid, uint32_t slot, const struct fluid_load *loads,
		 uint32_t length, double bytes, double now)
{
	uint32_t base = slot * fluid->path_max;

	for (uint32_t i = 0; i < length; i++) {
		struct fluid_resource *resource = &fluid->resources[loads[i].resource];
		struct fluid_path *path = &fluid->paths[base + i];

		*path = (struct fluid_path){loads[i], resource->first, 0};
		if (resource->first)
			fluid->paths[resource->first - 1].previous = base + i + 1;
		resource->first = base + i + 1;
		resource->flows++;
		look_at(fluid, loads[i].resource);
	}
	fluid->slots[slot].length = length;
	fluid->slots[slot].left_bytes = bytes;
	fluid->slots[slot].rate = 0;
	fluid->slots[slot].settled_seconds = now;
	touch(fluid, slot);
}

/* What moved since the last change of the flow's rate. */
static void settle(struct fluid *fluid, uint32_t index, double now)
{
	struct fluid_slot *slot = &fluid->slots[index];
	double bytes = slot->rate * (now - slot->settled_seconds);

	bytes = bytes < slot->left_bytes ? bytes : slot->left_bytes;
	if (bytes > 0 && fluid->moved)
		fluid->moved(fluid->context, index, slot->settled_seconds, now, bytes);
	slot->left_bytes -= bytes;
	slot->settled_seconds = now;
}

double fluid_stop(struct fluid *fluid, uint32_t index, double now)
{
	struct fluid_slot *slot = &fluid->slots[index];

	settle(fluid, index, now);
	for (uint32_t i = 0; i < slot->length; i++) {
		struct fluid_path *path = &fluid->paths[index * fluid->path_max + i];
		struct fluid_resource *resource = &fluid->resources[path->load.resource];

		if (path->previous)
			fluid->paths[path->previous - 1].next = path->next;
		else
			resource->first = path->next;
		if (path->next)
			fluid->paths[path->next - 1].previous = path->previous;
		resource->flows--;
		look_at(fluid, path->load.resource);
	}
	slot->length = 0;
	event_queue_drop(fluid->queue, index);
	return slot->left_bytes;
}

/* ---- levels ---- */

/* The least level on the flow's path, but for one resource of it. */
static double level_elsewhere(const struct fluid *fluid, uint32_t slot, uint32_t but)
{
	const struct fluid_path *path = &fluid->paths[slot * fluid->path_max];
	double least = INFINITY;

	for (uint32_t i = 0; i < fluid->slots[slot].length; i++) {
		double level = fluid->resources[path[i].load.resource].level;

		if (path[i].load.resource != but && level < least)
			least = level;
	}
	return least;
}

/* Fills the resource: flows that are held back elsewhere below the level take what they can,
 * the others share the rest. Starts with all sharing; each turn those who cannot take their
 * share leave it to the others, so the level only rises. */
static double level_of(const struct fluid *fluid, uint32_t r)
{
	const struct fluid_resource *resource = &fluid->resources[r];
	double level = 0;

	for (uint32_t held_before = UINT32_MAX;;) {
		double taken = 0, sharing = 0;
		uint32_t held = 0;

		for (uint32_t at = resource->first; at; at = fluid->paths[at - 1].next) {
			double share = fluid->paths[at - 1].load.share;
			double elsewhere = level_elsewhere(fluid, (at - 1) / fluid->path_max, r);

			if (elsewhere <= level) {
				taken += share * elsewhere;
				held++;
			} else {
				sharing += share;
			}
		}
		if (held == resource->flows)
			return INFINITY; /* all held back elsewhere, or none here */
		if (held == held_before)
			return level;
		held_before = held;
		/* fmax: equals must not change sides by rounding */
		level = fmax(level, (resource->bytes_per_second - taken) / sharing);
	}
}

static bool same(double a, double b)
{
	if (isinf(a) || isinf(b))
		return a == b;
	return fabs(a - b) <= SAME * fabs(b);
}

/* Whoever's level depends on how this resource held the flow back. */
static void spread(struct fluid *fluid, uint32_t slot, uint32_t from, double old)
{
	const struct fluid_path *path = &fluid->paths[slot * fluid->path_max];
	double level = fluid->resources[from].level;

	for (uint32_t i = 0; i < fluid->slots[slot].length; i++) {
		uint32_t r = path[i].load.resource;
		double theirs = fluid->resources[r].level;

		/* a flow that meets its level elsewhere at or above theirs is held back by them
		 * before and after: nothing changes for them */
		if (r != from && (theirs > old || theirs > level || theirs == INFINITY))
			look_at(fluid, r);
	}
}

static void update(struct fluid *fluid, uint32_t r, double now)
{
	struct fluid_resource *resource = &fluid->resources[r];
	double old = resource->level, level = level_of(fluid, r);

	fluid->updates++;
	if (same(level, old))
		return;
	if (old == INFINITY)
		resource->full_since = now;
	else if (level == INFINITY)
		resource->full_seconds += now - resource->full_since;
	resource->level = level;
	for (uint32_t at = resource->first; at; at = fluid->paths[at - 1].next) {
		uint32_t slot = (at - 1) / fluid->path_max;

		touch(fluid, slot);
		spread(fluid, slot, r, old);
	}
}

void fluid_solve(struct fluid *fluid, double now)
{
	while (fluid->pending_count) {
		uint32_t r = fluid->pending[fluid->pending_first];

		fluid->pending_count--;
		if (++fluid->pending_first == fluid->resource_count)
			fluid->pending_first = 0;
		fluid->resources[r].queued = false;
		update(fluid, r, now);
	}
	for (uint32_t i = 0; i < fluid->touched_count; i++) {
		uint32_t index = fluid->touched[i];
		struct fluid_slot *slot = &fluid->slots[index];
		double rate = level_elsewhere(fluid, index, UINT32_MAX);

		slot->touched = false;
		if (!slot->length || same(rate, slot->rate))
			continue;
		settle(fluid, index, now);
		slot->rate = rate;
		event_queue_put(fluid->queue, index, now + slot->left_bytes / rate);
	}
	fluid->touched_count = 0;
}
