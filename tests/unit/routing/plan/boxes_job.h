/* SPDX-License-Identifier: Apache-2.0
 *
 * boxes_job.h -- jobs whose trainers hold boxes: by hand, or random: cut by rows, by columns, by both, flat, in two groups that
 * cut differently, with replicas and with whole tensors beside shards.
 */
#ifndef TESTS_UNIT_ROUTING_PLAN_BOXES_JOB_H
#define TESTS_UNIT_ROUTING_PLAN_BOXES_JOB_H

#include "tests/unit/routing/routing_job.h"

static inline void hold_box(struct job *job, uint32_t trainer, const struct random_tensor *tensor,
			    const struct box *box)
{
	struct holding *holding = &job->holdings[trainer];
	int64_t index = holding_add_tensor(holding, tensor->name, tensor->dtype, tensor->dims,
					   tensor->shape, tensor->order, NULL);

	assert_true(index >= 0);
	assert_int_equal(holding_add(holding, (uint32_t)index, box, NULL), 0);
}

/* Elements from..to, in a flat buffer that has something else first. */
static inline void hold_flat(struct job *job, uint32_t trainer, const struct random_tensor *tensor,
			     uint64_t from, uint64_t to)
{
	struct holding *holding = &job->holdings[trainer];
	struct error error = {0};
	uint64_t size = to - from + 3;
	char name[sizeof(tensor->name) + 8];

	snprintf(name, sizeof(name), "flat.%.31s", tensor->name);
	int64_t index = holding_add_tensor(holding, tensor->name, tensor->dtype, tensor->dims,
					   tensor->shape, tensor->order, NULL);
	int64_t local = holding_add_local(holding, name, tensor->dtype, 1, &size, NULL);

	assert_true(index >= 0 && local >= 0);
	if (holding_add_flat(holding, (uint32_t)index, from, to, (uint32_t)local, 3, &error))
		fail_msg("flat: %s", error.text);
}

/* The part number `at` of so many; false when it is empty. */
static inline bool part_of(uint64_t size, uint32_t parts, uint32_t at, uint64_t *lo, uint64_t *hi)
{
	uint64_t chunk = (size + parts - 1) / parts;

	*lo = chunk * at < size ? chunk * at : size;
	*hi = *lo + chunk < size ? *lo + chunk : size;
	return *lo < *hi;
}

/* How trainers first .. first + count cut a tensor; more of them than parts are replicas. */
struct mesh {
	uint32_t first, count, rows, columns, dim;
	bool flat;
};

static inline struct mesh mesh_random(struct dice *dice, uint32_t first, uint32_t count,
				      const struct random_tensor *tensor)
{
	struct mesh mesh = {first, count, 1, 1, 1 + (uint32_t)dice_below(dice, tensor->dims - 1),
			    false};
	uint64_t kind = dice_below(dice, 4);

	if (kind != 1)
		mesh.rows = 1 + (uint32_t)dice_below(dice, count);
	if (kind == 1 || kind == 2)
		mesh.columns = 1 + (uint32_t)dice_below(dice, count / mesh.rows);
	mesh.flat = kind == 3;
	return mesh;
}

static inline void hold_mesh(struct job *job, const struct mesh *mesh, uint32_t trainer,
			     const struct random_tensor *tensor)
{
	uint32_t at = (trainer - mesh->first) % (mesh->rows * mesh->columns);
	struct box box = box_whole(tensor->dims, tensor->shape);
	uint64_t from, to;

	if (mesh->flat) {
		if (part_of(box_elements(&box), mesh->rows, at, &from, &to))
			hold_flat(job, trainer, tensor, from, to);
		return;
	}
	if (part_of(tensor->shape[0], mesh->rows, at / mesh->columns, &box.lo[0], &box.hi[0]) &&
	    part_of(tensor->shape[mesh->dim], mesh->columns, at % mesh->columns,
		    &box.lo[mesh->dim], &box.hi[mesh->dim]))
		hold_box(job, trainer, tensor, &box);
}

static inline void hold_boxes(struct job *job, struct dice *dice, const struct random_tensor *tensor)
{
	uint32_t world = job->trainer_count;
	uint32_t first = world > 1 && dice_below(dice, 3) == 0
				 ? 1 + (uint32_t)dice_below(dice, world - 1)
				 : world;
	struct mesh one = mesh_random(dice, 0, first, tensor), two = {0};
	struct box whole = box_whole(tensor->dims, tensor->shape);
	bool some_whole = dice_below(dice, 5) == 0;

	if (first < world)
		two = mesh_random(dice, first, world - first, tensor);
	for (uint32_t t = 0; t < world; t++) {
		if (some_whole && dice_below(dice, 4) == 0)
			hold_box(job, t, tensor, &whole);
		else
			hold_mesh(job, t < first ? &one : &two, t, tensor);
	}
}

/* What rank `at` of `width` wants of a tensor: its rows, its columns, all, or anything. */
static inline struct box want_box(struct dice *dice, const struct random_tensor *tensor,
				  uint32_t width, uint32_t at)
{
	struct box box = box_whole(tensor->dims, tensor->shape);
	uint32_t d = (uint32_t)dice_below(dice, tensor->dims);
	uint64_t kind = dice_below(dice, 5);

	if (kind == 0)
		random_box(dice, tensor, &box);
	else if (kind > 1 &&
		 !part_of(tensor->shape[d], width, at, &box.lo[d], &box.hi[d]))
		box = box_whole(tensor->dims, tensor->shape);
	return box;
}

/* The box as one piece, or as one of each `step` rows, the lower ones first or last. */
static inline void want_pieces(struct layout *layout, uint32_t tensor, uint32_t param,
			       const struct box *box, uint64_t step, bool backwards,
			       uint64_t element_bytes, uint64_t offset)
{
	uint64_t left = box_elements(box) * element_bytes;
	struct error error = {0};

	for (uint64_t lo = box->lo[0]; lo < box->hi[0]; lo += step) {
		struct piece piece = {.tensor = tensor, .param = param};

		assert_true(box_cut_rows(box, lo, lo + step, &piece.src));
		piece.bytes = box_elements(&piece.src) * element_bytes;
		left -= piece.bytes;
		piece.offset = backwards ? offset + left : offset;
		offset += backwards ? 0 : piece.bytes;
		if (layout_add_piece(layout, &piece, &error))
			fail_msg("piece: %s", error.text);
	}
}

static inline void want_boxes(struct job *job, struct dice *dice, uint32_t rank, uint32_t number,
			      const struct random_tensor *tensors, size_t count, uint32_t width)
{
	struct layout *layout = &job->layouts[rank];
	const struct random_tensor *from[3];
	struct box boxes[3];
	size_t n = 1 + dice_below(dice, 3);
	uint64_t elements = 0, size = dtype_bytes(tensors[0].dtype), at = 0;
	char name[32];

	for (size_t i = 0; i < n; i++) {
		from[i] = &tensors[dice_below(dice, count)];
		boxes[i] = want_box(dice, from[i], width, rank % width);
		elements += box_elements(&boxes[i]);
	}
	snprintf(name, sizeof(name), "param.%" PRIu32, number);
	int64_t param = layout_add_param(layout, name, tensors[0].dtype, 1, &elements, NULL);

	assert_true(param >= 0);
	for (size_t i = 0; i < n; i++) {
		int64_t tensor = layout_add_tensor(layout, from[i]->name, from[i]->dtype,
						   from[i]->dims, from[i]->shape, NULL);
		uint64_t rows = boxes[i].hi[0] - boxes[i].lo[0];
		uint64_t step = dice_below(dice, 3) ? 1 + dice_below(dice, rows) : 1;

		assert_true(tensor >= 0);
		want_pieces(layout, (uint32_t)tensor, (uint32_t)param, &boxes[i], step,
			    dice_below(dice, 2), size, at);
		at += box_elements(&boxes[i]) * size;
	}
}

static inline void job_boxes(struct job *job, struct dice *dice)
{
	static const enum dtype dtypes[] = {DTYPE_U8, DTYPE_BF16, DTYPE_F32};
	struct random_tensor tensors[3];
	size_t count = 1 + dice_below(dice, 3);
	enum dtype dtype = dtypes[dice_below(dice, 3)];
	uint32_t engines = 1 + (uint32_t)dice_below(dice, 2);
	uint32_t width = 1 + (uint32_t)dice_below(dice, 4);

	job_init(job, 1 + (uint32_t)dice_below(dice, 7), engines * width);
	job->ranks_per_engine = width;
	for (size_t i = 0; i < count; i++) {
		struct random_tensor *tensor = &tensors[i];

		snprintf(tensor->name, sizeof(tensor->name), "tensor.%c%zu", (char)('z' - i), i);
		tensor->dtype = dtype;
		tensor->dims = 2 + (uint32_t)dice_below(dice, 2);
		tensor->order = (uint32_t)dice_below(dice, count);
		for (uint32_t d = 0; d < tensor->dims; d++)
			tensor->shape[d] = 1 + dice_below(dice, d == 2 ? 4 : 7);
		hold_boxes(job, dice, tensor);
	}
	for (uint32_t t = 0; t < job->trainer_count; t++)
		job->registered[t] = dice_below(dice, 4) != 0;
	for (uint32_t i = 0; i < job->inference_count; i++) {
		struct dice same = {dice->state + i % width};
		uint32_t params = 1 + (uint32_t)dice_below(&same, 2);

		/* ranks of one number are alike in all engines, most of them */
		if (dice_below(&(struct dice){dice->state + 100 + i}, 8) == 0)
			same.state ^= i + 1;
		job->mapped[i] = (dice->state >> i) & 1;
		for (uint32_t p = 0; p < params; p++)
			want_boxes(job, &same, i, p, tensors, count, width);
	}
	dice_next(dice);
	job_build(job);
}

/* ---- by hand ---- */

static inline struct random_tensor f32_tensor(const char *name, uint32_t order, uint64_t rows,
				      uint64_t columns)
{
	struct random_tensor tensor = {
		.dtype = DTYPE_F32, .dims = 2, .order = order, .shape = {rows, columns}};

	snprintf(tensor.name, sizeof(tensor.name), "%s", name);
	return tensor;
}

static inline struct box box_of(uint64_t lo, uint64_t hi, uint64_t left, uint64_t right)
{
	return (struct box){.dims = 2, .lo = {lo, left}, .hi = {hi, right}};
}

static inline void hold_part(struct job *job, uint32_t trainer, const struct random_tensor *tensor, uint64_t lo,
		 uint64_t hi, uint64_t left, uint64_t right)
{
	struct box box = box_of(lo, hi, left, right);

	hold_box(job, trainer, tensor, &box);
}

/* As a parameter of the box's own, in pieces of one row each. */
static inline void want_rows(struct job *job, uint32_t rank, const char *param,
		      const struct random_tensor *from, uint64_t lo, uint64_t hi, uint64_t left,
		      uint64_t right)
{
	struct layout *layout = &job->layouts[rank];
	const struct box box = box_of(lo, hi, left, right);
	uint64_t elements = box_elements(&box);
	int64_t tensor =
		layout_add_tensor(layout, from->name, from->dtype, from->dims, from->shape, NULL);
	int64_t to = layout_add_param(layout, param, from->dtype, 1, &elements, NULL);

	assert_true(tensor >= 0 && to >= 0);
	want_pieces(layout, (uint32_t)tensor, (uint32_t)to, &box, 1, false, 4, 0);
}

#endif
