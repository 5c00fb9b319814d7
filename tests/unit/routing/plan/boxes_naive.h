/* SPDX-License-Identifier: Apache-2.0
 *
 * boxes_naive.h -- what there is to decide in a job whose trainers hold boxes, read aloud:
 *
 *   a pair that one trainer has all of          one unit
 *   else rows between two borders of boxes      one unit, if one trainer has all that the pair wants of them
 *   else columns between two borders            a unit each, by its first row; refused where it lies in a piece with more than
 *                                               one stride
 */
#ifndef TESTS_UNIT_ROUTING_PLAN_BOXES_NAIVE_H
#define TESTS_UNIT_ROUTING_PLAN_BOXES_NAIVE_H

#include "tests/unit/routing/plan/boxes_job.h"
#include "tests/unit/routing/plan/routing_naive.h"

struct boxes {
	struct naive units;
	size_t refused; /* cells that lie in a piece with more than one stride */
	size_t spread;	/* cells that are no one run of it */
};

static inline bool holds_box(const struct job *job, uint32_t trainer, const char *name,
			     const struct box *box)
{
	const struct holding *holding = job->trainers[trainer];

	for (size_t h = 0; h < holding->held_count; h++)
		if (strcmp(holding->tensors[holding->held[h].tensor].name, name) == 0 &&
		    box_within(box, &holding->held[h].box))
			return true;
	return false;
}

/* What the rank wants of these rows, piece after piece. */
struct parts {
	struct box box[64], whole[64];
	size_t count;
	uint64_t bytes, first_row;
};

static inline struct parts parts_in(const struct layout *layout, const char *name,
				    const struct box *rows)
{
	struct parts parts = {.first_row = UINT64_MAX};

	for (size_t p = 0; p < layout->piece_count; p++) {
		const struct piece *piece = &layout->pieces[p];
		struct box *part = &parts.box[parts.count];

		if (strcmp(layout->tensors[piece->tensor].name, name) != 0 ||
		    !box_intersect(&piece->src, rows, part))
			continue;
		parts.whole[parts.count] = piece->src;
		parts.bytes += box_elements(part) *
			       dtype_bytes(layout->tensors[piece->tensor].dtype);
		if (part->lo[0] < parts.first_row)
			parts.first_row = part->lo[0];
		parts.count++;
		assert_true(parts.count < ARRAY_SIZE(parts.box));
	}
	return parts;
}

/* Who has all of these in one box each? */
static inline bool holders_of(const struct job *job, const char *name, const struct parts *parts,
			      bool *holds)
{
	bool any = false;

	for (uint32_t t = 0; t < job->trainer_count; t++) {
		holds[t] = true;
		for (size_t i = 0; i < parts->count; i++)
			holds[t] = holds[t] && holds_box(job, t, name, &parts->box[i]);
		any = any || holds[t];
	}
	return any;
}

/* Does a box that meets `in` in all dimensions before d begin or end at `at` of d? */
static inline bool is_edge(const struct job *job, const char *name, const struct box *in, uint32_t d,
			   uint64_t at)
{
	for (uint32_t t = 0; t < job->trainer_count; t++) {
		const struct holding *holding = job->trainers[t];

		for (size_t h = 0; h < holding->held_count; h++) {
			const struct box *box = &holding->held[h].box;
			bool meets = strcmp(holding->tensors[holding->held[h].tensor].name,
					    name) == 0;

			for (uint32_t e = 0; e < d; e++)
				meets = meets && box->lo[e] < in->hi[e] && in->lo[e] < box->hi[e];
			if (meets && (box->lo[d] == at || box->hi[d] == at))
				return true;
		}
	}
	return false;
}

/* Walks over the part's elements, which follow each other in the piece row by row: how many runs they are, 0 when these are not
 * alike or not equally far from each other. */
static inline uint64_t runs_of(const struct box *part, const struct box *piece)
{
	uint64_t elements = box_elements(part), runs = 0, run = 0, length = 0, before = 0, begin = 0, step = 0;

	for (uint64_t k = 0; k <= elements; k++) {
		uint64_t number = k, at = 0, index[BOX_DIMS_MAX];

		for (uint32_t d = part->dims; d-- > 0 && k < elements;) {
			index[d] = part->lo[d] - piece->lo[d] + number % (part->hi[d] - part->lo[d]);
			number /= part->hi[d] - part->lo[d];
		}
		for (uint32_t d = 0; d < part->dims && k < elements; d++)
			at = at * (piece->hi[d] - piece->lo[d]) + index[d];
		if (k && k < elements && at == before + 1) {
			length++;
		} else {
			if (runs && (runs > 1 ? length != run : false))
				return 0;
			run = runs ? length : run;
			if (runs > 1 && k < elements && at - begin != step)
				return 0;
			if (runs == 1)
				step = at - begin;
			runs += k < elements;
			begin = at;
			length = 1;
		}
		before = at;
	}
	return runs;
}

struct pair {
	struct boxes *boxes;
	const struct job *job;
	const char *name;
	uint32_t rank;
	size_t first; /* units of these rows begin here */
	uint64_t first_row[256];
};

/* After those of the same rows that begin with the same row or before. */
static inline void add_cell_unit(struct pair *pair, const struct parts *parts, const bool *holds)
{
	struct naive *naive = &pair->boxes->units;
	size_t at = naive->count;

	naive_add(naive, pair->name, pair->rank, 0);
	assert_true(at - pair->first < ARRAY_SIZE(pair->first_row));
	for (; at > pair->first && pair->first_row[at - 1 - pair->first] > parts->first_row; at--) {
		naive->units[at] = naive->units[at - 1];
		pair->first_row[at - pair->first] = pair->first_row[at - 1 - pair->first];
	}
	naive->units[at] = (struct naive_unit){pair->name, pair->rank, parts->bytes, {0}, 0};
	memcpy(naive->units[at].holds, holds, JOB_RANKS_MAX * sizeof(*holds));
	pair->first_row[at - pair->first] = parts->first_row;
}

static inline void naive_cell(struct pair *pair, const struct box *cell)
{
	struct parts parts = parts_in(pair->job->inference[pair->rank], pair->name, cell);
	bool holds[JOB_RANKS_MAX] = {false}, any;

	if (!parts.count)
		return;
	any = holders_of(pair->job, pair->name, &parts, holds);
	assert_true(any); /* else problem_build had refused it */
	for (size_t i = 0; i < parts.count; i++) {
		uint64_t runs = runs_of(&parts.box[i], &parts.whole[i]);

		pair->boxes->refused += runs == 0;
		pair->boxes->spread += runs > 1;
	}
	add_cell_unit(pair, &parts, holds);
}

/* From dimension d on: `cell` is a part of all before. */
static inline void naive_cells(struct pair *pair, struct box cell, uint32_t d,
			       const uint64_t *shape)
{
	if (d >= cell.dims || d >= BOX_DIMS_MAX) {
		naive_cell(pair, &cell);
		return;
	}
	for (uint64_t lo = 0, hi; lo < shape[d]; lo = hi) {
		for (hi = lo + 1; hi < shape[d] && !is_edge(pair->job, pair->name, &cell, d, hi);
		     hi++)
			;
		cell.lo[d] = lo;
		cell.hi[d] = hi;
		naive_cells(pair, cell, d + 1, shape);
	}
}

static inline void naive_box_pair(struct pair *pair, bool cut)
{
	const struct layout *layout = pair->job->inference[pair->rank];
	const struct tensor_info *info =
		find_info(layout->tensors, layout->tensor_count, pair->name);
	bool holds[JOB_RANKS_MAX] = {false};
	struct parts parts;
	struct box rows;

	if (!info)
		return;
	rows = box_whole(info->dims, info->shape);
	parts = parts_in(layout, pair->name, &rows);
	if (!cut && parts.count && holders_of(pair->job, pair->name, &parts, holds)) {
		memcpy(naive_add(&pair->boxes->units, pair->name, pair->rank, parts.bytes)->holds,
		       holds, sizeof(holds));
		return;
	}
	for (uint64_t lo = 0, hi; lo < info->shape[0]; lo = hi) {
		for (hi = lo + 1; hi < info->shape[0] && !is_border(pair->job, pair->name, hi); hi++)
			;
		rows.lo[0] = lo;
		rows.hi[0] = hi;
		parts = parts_in(layout, pair->name, &rows);
		pair->first = pair->boxes->units.count;
		if (!parts.count)
			continue;
		if (holders_of(pair->job, pair->name, &parts, holds))
			add_cell_unit(pair, &parts, holds);
		else
			naive_cells(pair, rows, 1, info->shape);
	}
}

/* cut: at every border, even where one trainer holds all of a pair. */
static inline void boxes_list(struct boxes *boxes, const struct job *job, bool cut)
{
	boxes->units.job = job;
	boxes->units.count = boxes->refused = boxes->spread = 0;
	for (size_t t = 0; t < job->problem->tensor_count; t++) {
		for (uint32_t i = 0; i < job->inference_count; i++) {
			struct pair pair = {.boxes = boxes, .job = job, .rank = i,
					    .name = job->problem->tensors[t].name};

			naive_box_pair(&pair, cut);
		}
	}
}

#endif
