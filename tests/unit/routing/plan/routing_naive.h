/* SPDX-License-Identifier: Apache-2.0
 *
 * routing_naive.h -- what there is to decide in a job, and rules about it, read aloud: no heaps,
 * no interning, names and boxes only. O(units x holders).
 */
#ifndef TESTS_UNIT_ROUTING_PLAN_ROUTING_NAIVE_H
#define TESTS_UNIT_ROUTING_PLAN_ROUTING_NAIVE_H

#include "tests/unit/routing/routing_job.h"

#define NAIVE_UNITS_MAX 2048

struct naive_unit {
	const char *name;
	uint32_t rank;
	uint64_t bytes;
	bool holds[JOB_RANKS_MAX];
	uint32_t sender; /* what the rule says */
};

struct naive {
	const struct job *job;
	struct naive_unit units[NAIVE_UNITS_MAX];
	size_t count;
};

static inline const struct tensor_info *find_info(const struct tensor_info *tensors, size_t count,
					   const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(tensors[i].name, name) == 0)
			return &tensors[i];
	return NULL;
}

static inline bool naive_holds(const struct job *job, uint32_t trainer, const char *name, uint64_t lo,
			uint64_t hi)
{
	const struct holding *holding = job->trainers[trainer];

	for (size_t h = 0; h < holding->held_count; h++) {
		const struct held *held = &holding->held[h];

		if (strcmp(holding->tensors[held->tensor].name, name) == 0 &&
		    held->box.lo[0] <= lo && held->box.hi[0] >= hi)
			return true;
	}
	return false;
}

static inline bool is_border(const struct job *job, const char *name, uint64_t row)
{
	for (uint32_t t = 0; t < job->trainer_count; t++) {
		const struct holding *holding = job->trainers[t];

		for (size_t h = 0; h < holding->held_count; h++)
			if (strcmp(holding->tensors[holding->held[h].tensor].name, name) == 0 &&
			    (holding->held[h].box.lo[0] == row ||
			     holding->held[h].box.hi[0] == row))
				return true;
	}
	return false;
}

static inline uint64_t bytes_between(const struct layout *layout, const char *name, uint64_t lo,
			      uint64_t hi)
{
	uint64_t bytes = 0;

	for (size_t p = 0; p < layout->piece_count; p++) {
		const struct piece *piece = &layout->pieces[p];
		struct box part;

		if (strcmp(layout->tensors[piece->tensor].name, name) == 0 &&
		    box_cut_rows(&piece->src, lo, hi, &part))
			bytes += box_elements(&part) *
				 dtype_bytes(layout->tensors[piece->tensor].dtype);
	}
	return bytes;
}

static inline struct naive_unit *naive_add(struct naive *naive, const char *name, uint32_t rank,
					   uint64_t bytes)
{
	assert_true(naive->count < NAIVE_UNITS_MAX);
	naive->units[naive->count] = (struct naive_unit){.name = name, .rank = rank,
							 .bytes = bytes};
	return &naive->units[naive->count++];
}

static inline void naive_pair(struct naive *naive, const char *name, uint32_t rank)
{
	const struct job *job = naive->job;
	const struct layout *layout = job->inference[rank];
	const struct tensor_info *info = find_info(layout->tensors, layout->tensor_count, name);
	bool holds[JOB_RANKS_MAX] = {false}, any = false;

	if (!info || bytes_between(layout, name, 0, info->shape[0]) == 0)
		return;
	for (uint32_t t = 0; t < job->trainer_count; t++) {
		holds[t] = true;
		for (size_t p = 0; p < layout->piece_count; p++)
			if (strcmp(layout->tensors[layout->pieces[p].tensor].name, name) == 0)
				holds[t] = holds[t] &&
					   naive_holds(job, t, name, layout->pieces[p].src.lo[0],
						       layout->pieces[p].src.hi[0]);
		any = any || holds[t];
	}
	if (any) {
		struct naive_unit *unit = naive_add(naive, name, rank,
						    bytes_between(layout, name, 0, info->shape[0]));

		memcpy(unit->holds, holds, sizeof(holds));
		return;
	}
	for (uint64_t lo = 0, hi; lo < info->shape[0]; lo = hi) {
		for (hi = lo + 1; hi < info->shape[0] && !is_border(job, name, hi); hi++)
			;
		uint64_t bytes = bytes_between(layout, name, lo, hi);

		if (bytes == 0)
			continue;
		struct naive_unit *unit = naive_add(naive, name, rank, bytes);

		for (uint32_t t = 0; t < job->trainer_count; t++)
			unit->holds[t] = naive_holds(job, t, name, lo, hi);
	}
}

static inline void naive_list(struct naive *naive, const struct job *job)
{
	naive->job = job;
	naive->count = 0;
	for (size_t t = 0; t < job->problem->tensor_count; t++)
		for (uint32_t i = 0; i < job->inference_count; i++)
			naive_pair(naive, job->problem->tensors[t].name, i);
}

/* ---- rules ---- */

static inline uint32_t naive_holders(const struct naive_unit *unit)
{
	uint32_t count = 0;

	for (uint32_t t = 0; t < JOB_RANKS_MAX; t++)
		count += unit->holds[t];
	return count;
}

static inline uint32_t naive_holder(const struct naive_unit *unit, uint32_t number)
{
	for (uint32_t t = 0; t < JOB_RANKS_MAX; t++)
		if (unit->holds[t] && number-- == 0)
			return t;
	fail_msg("no such holder");
	return 0;
}

static inline void naive_least(struct naive_unit *unit, uint64_t *loads)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t t = 0; t < JOB_RANKS_MAX; t++)
		if (unit->holds[t] && (best == UINT32_MAX || loads[t] < loads[best]))
			best = t;
	assert_true(best != UINT32_MAX);
	unit->sender = best;
	loads[best] += unit->bytes;
}

static inline void naive_greedy(struct naive *naive)
{
	uint64_t loads[JOB_RANKS_MAX] = {0};

	for (size_t u = 0; u < naive->count; u++)
		naive_least(&naive->units[u], loads);
}

/* The largest that is left, the first of equals, again and again. */
static inline void naive_lpt(struct naive *naive)
{
	uint64_t loads[JOB_RANKS_MAX] = {0};
	bool done[NAIVE_UNITS_MAX] = {0};

	for (size_t n = 0; n < naive->count; n++) {
		size_t largest = SIZE_MAX;

		for (size_t u = 0; u < naive->count; u++)
			if (!done[u] && (largest == SIZE_MAX ||
					 naive->units[u].bytes > naive->units[largest].bytes))
				largest = u;
		done[largest] = true;
		naive_least(&naive->units[largest], loads);
	}
}

static inline void naive_modulo(struct naive *naive)
{
	for (size_t u = 0; u < naive->count; u++) {
		struct naive_unit *unit = &naive->units[u];

		unit->sender = naive_holder(unit, unit->rank % naive_holders(unit));
	}
}

static inline void naive_first_holder(struct naive *naive)
{
	for (size_t u = 0; u < naive->count; u++)
		naive->units[u].sender = naive_holder(&naive->units[u], 0);
}

static inline void naive_equals(const struct naive *naive, const struct table *table)
{
	assert_int_equal(naive->count, table->route_count);
	for (size_t u = 0; u < naive->count; u++) {
		const struct naive_unit *unit = &naive->units[u];
		const struct route *route = &table->routes[u];

		assert_string_equal(naive->job->problem->tensors[route->tensor].name, unit->name);
		assert_int_equal(route->inference, unit->rank);
		assert_int_equal(route->bytes, unit->bytes);
		assert_int_equal(route->trainer, unit->sender);
	}
}

#endif
