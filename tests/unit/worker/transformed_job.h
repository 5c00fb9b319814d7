/* SPDX-License-Identifier: Apache-2.0
 *
 * transformed_job.h -- random jobs whose parameters are copied, converted, quantised and cut
 * between blocks, from trainers whose shards end anywhere.
 */
#ifndef TESTS_UNIT_WORKER_TRANSFORMED_JOB_H
#define TESTS_UNIT_WORKER_TRANSFORMED_JOB_H

#include "tests/unit/routing/routing_job.h"

/* How trainers hold the tensors. */
enum holding_mode { GATHERED, ALIGNED, SHARDED, ANYHOW, HOLDING_MODES };

/* A matrix, in blocks of its own or not. */
struct source {
	struct random_tensor values, scales;
	uint32_t block[2]; /* 0, 0: not in blocks */
};

static inline void hold_shards(struct job *job, const struct random_tensor *tensor, uint64_t chunk)
{
	uint64_t rows = tensor->shape[0];

	for (uint32_t t = 0; t < job->trainer_count; t++) {
		uint64_t lo = chunk * t, hi = lo + chunk;

		hold_rows(job, t, tensor, lo < rows ? lo : rows, hi < rows ? hi : rows);
	}
}

/* Aligned: shards of values end where 12 rows do, and every block is of 1 to 4 rows. */
static inline void hold_source(struct job *job, struct dice *dice, enum holding_mode mode,
			const struct source *source)
{
	const uint64_t world = job->trainer_count;
	const struct random_tensor *both[2] = {&source->values, &source->scales};

	for (uint32_t i = 0; i < (source->block[0] ? 2u : 1u); i++) {
		uint64_t rows = both[i]->shape[0];
		uint64_t unit = mode == ALIGNED ? (i ? 12 / source->block[0] : 12) : 1;
		uint64_t chunk = ((rows + unit - 1) / unit + world - 1) / world * unit;

		if (mode == ALIGNED && i) /* as many blocks as the values' shards have */
			chunk = ((source->values.shape[0] + 11) / 12 + world - 1) / world * unit;
		if (mode == GATHERED)
			hold_random(job, dice, 0, both[i], 1);
		else if (mode == ANYHOW)
			hold_anyhow(job, dice, both[i]);
		else
			hold_shards(job, both[i], chunk);
	}
}

static inline void random_source(struct dice *dice, struct source *source, uint32_t index)
{
	static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16};
	struct random_tensor *values = &source->values, *scales = &source->scales;

	memset(source, 0, sizeof(*source));
	snprintf(values->name, sizeof(values->name), "tensor.%u", index);
	snprintf(scales->name, sizeof(scales->name), "tensor.%u.scale", index);
	values->dtype = dtypes[dice_below(dice, 3)];
	values->dims = scales->dims = 2;
	values->order = 2 * index;
	scales->order = 2 * index + (uint32_t)dice_below(dice, 2);
	scales->dtype = DTYPE_F32;
	for (uint32_t d = 0; d < 2; d++)
		values->shape[d] = 1 + dice_below(dice, d ? 9 : 60);
	if (dice_below(dice, 2))
		return;
	values->dtype = DTYPE_F8_E4M3;
	for (uint32_t d = 0; d < 2; d++) {
		source->block[d] = 1 + (uint32_t)dice_below(dice, 4);
		scales->shape[d] = (values->shape[d] + source->block[d] - 1) / source->block[d];
	}
}

/* lo..hi at multiples of grain, hi maybe at the end. */
static inline void random_range(struct dice *dice, uint64_t size, uint32_t grain, uint64_t *lo,
			 uint64_t *hi)
{
	uint64_t grains = (size + grain - 1) / grain;
	uint64_t first = dice_below(dice, grains);
	uint64_t end = first + 1 + dice_below(dice, grains - first);

	*lo = first * grain;
	*hi = end * grain < size ? end * grain : size;
}

/* One parameter of one piece, or of two: cut where it may be. */
static inline void want(struct job *job, struct dice *dice, uint32_t rank, struct piece piece,
		 enum dtype to)
{
	struct layout *layout = &job->layouts[rank];
	const struct tensor_info *tensor = &layout->tensors[piece.tensor];
	uint64_t grain = transform_grain_rows(&piece.transform);
	uint64_t row = piece.src.lo[0] / grain * grain + grain * dice_below(dice, 8), elements;
	struct piece part;
	char name[32];

	assert_true(
		transform_bytes(&piece.transform, &piece.src, 2, tensor->shape, to, &piece.bytes));
	elements = piece.bytes / dtype_bytes(to);
	snprintf(name, sizeof(name), "param.%zu", layout->param_count);
	int64_t param = layout_add_param(layout, name, to, 1, &elements, NULL);
	struct error error;

	assert_true(param >= 0);
	piece.param = (uint32_t)param;
	if (piece_cut_rows(&piece, 0, row, &part) && layout_add_piece(layout, &part, &error))
		fail_msg("%s", error.text);
	if (piece_cut_rows(&piece, row, UINT64_MAX, &part) &&
	    layout_add_piece(layout, &part, &error))
		fail_msg("%s", error.text);
}

static inline void want_source(struct job *job, struct dice *dice, uint32_t rank,
			const struct source *source)
{
	static const enum dtype floats[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16};
	struct layout *layout = &job->layouts[rank];
	const struct random_tensor *from = &source->values;
	struct piece piece = {.src.dims = 2};
	enum dtype to = from->dtype;
	uint64_t kind = dice_below(dice, 3); /* as it is, other floats, blocks */

	piece.tensor =
		(uint32_t)layout_add_tensor(layout, from->name, from->dtype, 2, from->shape, NULL);
	if (kind && source->block[0]) {
		piece.transform.from_rows = source->block[0];
		piece.transform.from_columns = source->block[1];
		piece.scales = (uint32_t)layout_add_tensor(layout, source->scales.name, DTYPE_F32,
							   2, source->scales.shape, NULL);
	}
	if (kind == 1)
		to = floats[dice_below(dice, 3)];
	if (kind == 2) {
		piece.transform.to_rows = 1 + (uint32_t)dice_below(dice, 4);
		piece.transform.to_columns = 1 + (uint32_t)dice_below(dice, 4);
		to = DTYPE_F8_E4M3;
	}
	for (uint32_t d = 0; d < 2; d++) {
		uint32_t grain = d ? piece.transform.to_columns : piece.transform.to_rows;

		random_range(dice, from->shape[d], grain ? grain : 1, &piece.src.lo[d],
			     &piece.src.hi[d]);
	}
	want(job, dice, rank, piece, to);
	piece.transform.part = TRANSFORM_SCALES;
	if (kind == 2)
		want(job, dice, rank, piece, DTYPE_F32);
}

static inline void job_transformed(struct job *job, struct dice *dice, enum holding_mode mode)
{
	struct source sources[3];
	uint32_t count = 1 + (uint32_t)dice_below(dice, 3);

	job_init(job, 1 + (uint32_t)dice_below(dice, 5), 1 + (uint32_t)dice_below(dice, 4));
	for (uint32_t i = 0; i < count; i++) {
		random_source(dice, &sources[i], i);
		hold_source(job, dice, mode, &sources[i]);
	}
	for (uint32_t r = 0; r < job->inference_count; r++) {
		struct dice same = {dice_next(dice)};

		job->mapped[r] = dice_below(dice, 2);
		for (uint32_t i = 0; i < count; i++)
			for (uint64_t n = 1 + dice_below(&same, 2); n; n--)
				want_source(job, &same, r, &sources[i]);
	}
	job_build(job);
}

#endif
