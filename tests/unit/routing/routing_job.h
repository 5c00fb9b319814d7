/* SPDX-License-Identifier: Apache-2.0
 *
 * routing_job.h -- small jobs for the tests of routing: by hand, or random from a seed that is
 * printed (WEFT_TEST_SEED repeats a run).
 */
#ifndef TESTS_UNIT_ROUTING_ROUTING_JOB_H
#define TESTS_UNIT_ROUTING_ROUTING_JOB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/memory.h"
#include "routing/plan/policy.h"
#include "routing/plan/table.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB_RANKS_MAX 32

struct job {
	struct holding holdings[JOB_RANKS_MAX];
	struct layout layouts[JOB_RANKS_MAX];
	uint32_t trainer_count, inference_count, ranks_per_engine;
	const struct holding *trainers[JOB_RANKS_MAX];
	const struct layout *inference[JOB_RANKS_MAX];
	struct digest trainer_digests[JOB_RANKS_MAX], inference_digests[JOB_RANKS_MAX];
	bool registered[JOB_RANKS_MAX], mapped[JOB_RANKS_MAX];
	struct problem_input input;
	struct problem *problem;
};

static inline void job_init(struct job *job, uint32_t trainers, uint32_t inference)
{
	memset(job, 0, sizeof(*job));
	job->trainer_count = trainers;
	job->inference_count = inference;
	for (uint32_t i = 0; i < JOB_RANKS_MAX; i++) {
		holding_init(&job->holdings[i]);
		layout_init(&job->layouts[i]);
		job->registered[i] = job->mapped[i] = true;
	}
}

static inline void job_fini(struct job *job)
{
	problem_free(&job->problem);
	for (uint32_t i = 0; i < JOB_RANKS_MAX; i++) {
		holding_fini(&job->holdings[i]);
		layout_fini(&job->layouts[i]);
	}
}

static inline void job_declare(struct job *job)
{
	struct error error = {0};

	for (uint32_t t = 0; t < job->trainer_count; t++) {
		if (holding_finish(&job->holdings[t], &error))
			fail_msg("holding: %s", error.text);
		job->trainers[t] = &job->holdings[t];
		job->trainer_digests[t] = holding_digest(&job->holdings[t]);
	}
	for (uint32_t i = 0; i < job->inference_count; i++) {
		if (layout_finish(&job->layouts[i], &error))
			fail_msg("layout: %s", error.text);
		job->inference[i] = &job->layouts[i];
		job->inference_digests[i] = layout_digest(&job->layouts[i]);
	}
	job->input = (struct problem_input){
		.model = "tiny", .train = "by hand", .infer = "by hand too",
		.ranks_per_engine = job->ranks_per_engine,
		.trainers = job->trainers, .trainer_digests = job->trainer_digests,
		.trainer_registered = job->registered, .trainer_count = job->trainer_count,
		.inference = job->inference, .inference_digests = job->inference_digests,
		.inference_mapped = job->mapped, .inference_count = job->inference_count,
	};
}

static inline void job_build(struct job *job)
{
	struct error error = {0};

	job_declare(job);
	if (problem_build(&job->problem, &job->input, &error))
		fail_msg("problem: %s", error.text);
}

static inline struct table *job_plan(struct job *job, const char *policy)
{
	struct error error = {0};
	struct table *table;

	if (table_plan(&table, job->problem, policy_find(policy), NULL, &error))
		fail_msg("plan: %s", error.text);
	return table;
}

/* Trainer holds rows lo..hi of an F32 tensor [rows, columns]. */
static inline void job_hold(struct job *job, uint32_t trainer, const char *name, uint32_t order,
			    uint64_t rows, uint64_t columns, uint64_t lo, uint64_t hi)
{
	struct holding *holding = &job->holdings[trainer];
	uint64_t shape[2] = {rows, columns};
	int64_t index = holding_add_tensor(holding, name, DTYPE_F32, 2, shape, order, NULL);
	struct box box = {.dims = 2, .lo = {lo, 0}, .hi = {hi, columns}};

	assert_true(index >= 0);
	if (lo < hi)
		assert_int_equal(holding_add(holding, (uint32_t)index, &box, NULL), 0);
}

/* Inference rank wants rows lo..hi, columns left..right of it as parameter `param`. */
static inline void job_want(struct job *job, uint32_t inference, const char *param,
			    const char *name, uint64_t rows, uint64_t columns, uint64_t lo,
			    uint64_t hi, uint64_t left, uint64_t right)
{
	struct layout *layout = &job->layouts[inference];
	uint64_t shape[2] = {rows, columns}, own[2] = {hi - lo, right - left};
	int64_t tensor = layout_add_tensor(layout, name, DTYPE_F32, 2, shape, NULL);
	int64_t to = layout_add_param(layout, param, DTYPE_F32, 2, own, NULL);

	assert_true(tensor >= 0 && to >= 0);
	struct piece piece = {.tensor = (uint32_t)tensor, .param = (uint32_t)to,
			      .src = {.dims = 2, .lo = {lo, left}, .hi = {hi, right}},
			      .bytes = own[0] * own[1] * 4};

	assert_int_equal(layout_add_piece(layout, &piece, NULL), 0);
}

/* The largest thing that cannot be cut: one row of a tensor, for all who want it. */
static inline uint64_t problem_largest_row(const struct problem *problem)
{
	uint64_t most = 0;

	for (size_t t = 0; t < problem->tensor_count; t++)
		for (uint64_t row = 0; row < problem->tensors[t].shape[0]; row++) {
			uint64_t bytes = 0;

			for (uint32_t i = 0; i < problem->inference_count; i++) {
				const struct problem_layout *layout =
					&problem->layouts[problem->inference_layout[i]];

				for (uint32_t p = layout->pieces_of[t];
				     p < layout->pieces_of[t + 1]; p++) {
					const struct piece *piece = &layout->pieces[p];

					if (piece->src.lo[0] <= row && piece->src.hi[0] > row)
						bytes += piece->bytes /
							 (piece->src.hi[0] - piece->src.lo[0]);
				}
			}
			most = bytes > most ? bytes : most;
		}
	return most;
}

/* ---- random jobs ---- */

struct dice {
	uint64_t state;
};

static inline uint64_t dice_next(struct dice *dice)
{
	uint64_t z = (dice->state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline uint64_t dice_below(struct dice *dice, uint64_t n)
{
	return dice_next(dice) % n;
}

static inline struct dice dice_seeded(const char *who)
{
	const char *text = getenv("WEFT_TEST_SEED");
	struct dice dice = {text ? strtoull(text, NULL, 0) : UINT64_C(20250711)};

	print_message("%s: WEFT_TEST_SEED=%" PRIu64 "\n", who, dice.state);
	return dice;
}

#define JOB_TENSORS_MAX 6

struct random_tensor {
	char name[32];
	enum dtype dtype;
	uint32_t dims, order;
	uint64_t shape[BOX_DIMS_MAX];
};

static inline void hold_rows(struct job *job, uint32_t trainer,
			     const struct random_tensor *tensor, uint64_t lo, uint64_t hi)
{
	struct holding *holding = &job->holdings[trainer];
	struct box box = box_whole(tensor->dims, tensor->shape);
	int64_t index = holding_add_tensor(holding, tensor->name, tensor->dtype, tensor->dims,
					   tensor->shape, tensor->order, NULL);

	assert_true(index >= 0);
	box.lo[0] = lo;
	box.hi[0] = hi;
	if (lo < hi)
		assert_int_equal(holding_add(holding, (uint32_t)index, &box, NULL), 0);
}

/* Any trainer any rows, each row by someone: whole here, shards there, odd borders. */
static inline void hold_anyhow(struct job *job, struct dice *dice,
			       const struct random_tensor *tensor)
{
	uint64_t rows = tensor->shape[0], lo = 0, hi;

	for (; lo < rows; lo = hi) {
		hi = lo + 1 + dice_below(dice, rows - lo);
		uint32_t someone = (uint32_t)dice_below(dice, job->trainer_count);

		for (uint32_t t = 0; t < job->trainer_count; t++)
			if (t == someone || dice_below(dice, 3) == 0)
				hold_rows(job, t, tensor, lo, hi);
	}
}

/* mode 0: gathered, by stages; 1: sharded, with shard groups; 2: anyhow. */
static inline void hold_random(struct job *job, struct dice *dice, uint64_t mode,
			       const struct random_tensor *tensor, uint32_t parts)
{
	uint32_t world = job->trainer_count;
	uint64_t rows = tensor->shape[0], chunk = (rows + parts - 1) / parts;
	uint32_t stage = (uint32_t)dice_below(dice, parts);

	if (mode == 2) {
		hold_anyhow(job, dice, tensor);
		return;
	}
	for (uint32_t t = 0; t < world; t++) {
		if (mode == 0) {
			if (t / (world / parts) == stage)
				hold_rows(job, t, tensor, 0, rows);
			continue;
		}
		uint64_t lo = chunk * (t % parts), hi = lo + chunk;

		hold_rows(job, t, tensor, lo < rows ? lo : rows, hi < rows ? hi : rows);
	}
}

static inline void random_box(struct dice *dice, const struct random_tensor *tensor,
			      struct box *box)
{
	struct runs runs;

	do {
		*box = box_whole(tensor->dims, tensor->shape);
		for (uint32_t d = 0; d < tensor->dims; d++) {
			if (dice_below(dice, 2))
				continue;
			box->lo[d] = dice_below(dice, tensor->shape[d]);
			box->hi[d] = box->lo[d] + 1 +
				     dice_below(dice, tensor->shape[d] - box->lo[d]);
		}
	} while (!box_runs(box, tensor->shape, 1, &runs));
}

/* A parameter that stacks one to four boxes of tensors of one dtype, maybe with a fill. */
static inline void want_random(struct job *job, struct dice *dice, uint32_t rank, uint32_t number,
			       const struct random_tensor *tensors, size_t count)
{
	struct layout *layout = &job->layouts[rank];
	const struct random_tensor *from[4];
	struct box boxes[4];
	size_t n = 0, tries = 1 + dice_below(dice, 4);
	uint64_t elements = 0, fill = dice_below(dice, 3) == 0 ? 1 + dice_below(dice, 5) : 0;
	uint64_t fill_at = dice_below(dice, 5);
	char name[32];

	while (tries--) {
		const struct random_tensor *tensor = &tensors[dice_below(dice, count)];

		if (n && tensor->dtype != from[0]->dtype)
			continue;
		from[n] = tensor;
		random_box(dice, tensor, &boxes[n]);
		elements += box_elements(&boxes[n++]);
	}
	uint64_t shape = elements + fill, size = dtype_bytes(from[0]->dtype), at = 0;

	snprintf(name, sizeof(name), "param.%" PRIu32, number);
	int64_t param = layout_add_param(layout, name, from[0]->dtype, 1, &shape, NULL);

	assert_true(param >= 0);
	for (size_t i = 0; i <= n; i++) {
		if (fill && (i == fill_at || (i == n && fill_at > n))) {
			struct fill hole = {(uint32_t)param, at, fill * size};

			assert_int_equal(layout_add_fill(layout, &hole, NULL), 0);
			at += fill * size;
		}
		if (i == n)
			break;
		int64_t tensor = layout_add_tensor(layout, from[i]->name, from[i]->dtype,
						   from[i]->dims, from[i]->shape, NULL);
		struct piece piece = {.tensor = (uint32_t)tensor,
				      .param = (uint32_t)param,
				      .src = boxes[i],
				      .offset = at,
				      .bytes = box_elements(&boxes[i]) * size};

		assert_true(tensor >= 0);
		assert_int_equal(layout_add_piece(layout, &piece, NULL), 0);
		at += piece.bytes;
	}
}

static inline uint32_t random_divisor(struct dice *dice, uint32_t n)
{
	uint32_t divisor;

	do
		divisor = 1 + (uint32_t)dice_below(dice, n);
	while (n % divisor);
	return divisor;
}

static inline void job_random(struct job *job, struct dice *dice)
{
	static const enum dtype dtypes[] = {DTYPE_U8, DTYPE_BF16, DTYPE_F32};
	struct random_tensor tensors[JOB_TENSORS_MAX];
	size_t count = 1 + dice_below(dice, JOB_TENSORS_MAX);
	uint32_t engines = 1 + (uint32_t)dice_below(dice, 3);
	uint32_t width = 1 + (uint32_t)dice_below(dice, 3);
	uint64_t mode = dice_below(dice, 3);

	job_init(job, 1 + (uint32_t)dice_below(dice, 6), engines * width);
	job->ranks_per_engine = dice_below(dice, 4) ? width : 0;
	uint32_t parts = random_divisor(dice, job->trainer_count);

	for (size_t i = 0; i < count; i++) {
		struct random_tensor *tensor = &tensors[i];

		/* names against the order, orders sometimes equal */
		snprintf(tensor->name, sizeof(tensor->name), "tensor.%c%zu", (char)('z' - i), i);
		tensor->dtype = dtypes[dice_below(dice, 3)];
		tensor->dims = 1 + (uint32_t)dice_below(dice, 3);
		tensor->order = (uint32_t)dice_below(dice, count);
		for (uint32_t d = 0; d < tensor->dims; d++)
			tensor->shape[d] = 1 + dice_below(dice, d ? 5 : 11);
		hold_random(job, dice, mode, tensor, parts);
	}
	for (uint32_t t = 0; t < job->trainer_count; t++)
		job->registered[t] = dice_below(dice, 4) != 0;
	for (uint32_t i = 0; i < job->inference_count; i++) {
		uint64_t begin = dice->state;

		job->mapped[i] = dice_below(dice, 4) != 0;
		/* the same layout for the same rank of each engine, as engines are */
		struct dice same = {begin ^ 1};

		if (i < width || dice_below(dice, 5) == 0) {
			uint32_t params = 1 + (uint32_t)dice_below(&same, 4);

			for (uint32_t p = 0; p < params; p++)
				want_random(job, &same, i, p, tensors, count);
			continue;
		}
		const struct layout *model = &job->layouts[i % width];

		for (size_t t = 0; t < model->tensor_count; t++)
			layout_add_tensor(&job->layouts[i], model->tensors[t].name,
					  model->tensors[t].dtype, model->tensors[t].dims,
					  model->tensors[t].shape, NULL);
		for (size_t p = 0; p < model->param_count; p++)
			layout_add_param(&job->layouts[i], model->params[p].name,
					 model->params[p].dtype, model->params[p].dims,
					 model->params[p].shape, NULL);
		for (size_t p = 0; p < model->piece_count; p++)
			layout_add_piece(&job->layouts[i], &model->pieces[p], NULL);
		for (size_t f = 0; f < model->fill_count; f++)
			layout_add_fill(&job->layouts[i], &model->fills[f], NULL);
	}
	job_build(job);
}

/* The round-robin of `senders` that hold everything: rank r of every engine is one kind. */
static inline void round_robin_of(uint32_t senders, uint32_t engines, uint32_t width,
				  uint32_t *sender)
{
	uint32_t kind[512];
	const struct round_robin_targets targets = {engines * width, kind, width};

	assert_true(targets.count <= ARRAY_SIZE(kind));
	for (uint32_t i = 0; i < targets.count; i++)
		kind[i] = i % width;
	assert_int_equal(round_robin_deal(&targets, senders, sender, NULL), 0);
}

#endif
