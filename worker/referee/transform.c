/* SPDX-License-Identifier: Apache-2.0
 *
 * transform.c -- for blocks of `to` a band is read twice, whatever its size: once for the largest
 * magnitude of each block, once for the values. So memory stays bounded.
 *
 *   band of to_rows rows    | block | block | block |      stripe: REFEREE_ELEMENTS blocks at most
 *   pass 1                    amax    amax    amax    ──► scales
 *   pass 2                    x * (1 / scale)         ──► values
 */
#include "worker/referee/transform.h"

#include "base/memory.h"
#include "worker/referee/transform_element.h"

#include <string.h>

struct referee_transform_work {
	unsigned char raw[REFEREE_ELEMENTS * 8];      /* as the tensor has them */
	unsigned char expected[REFEREE_ELEMENTS * 4]; /* as the parameter has them */
	float values[REFEREE_ELEMENTS];
	float from_scales[REFEREE_ELEMENTS];	  /* of the blocks that the values lie in */
	float to_scales[REFEREE_ELEMENTS];	  /* of the stripe's blocks */
	unsigned char tile[REFEREE_ELEMENTS * 8]; /* a transposed square, as the parameter has it */
};

int referee_transform_open(struct referee_transform *transform, struct error *error)
{
	transform->work = memory_alloc(sizeof(*transform->work));
	return transform->work ? 0 : memory_error(error, "verifying", sizeof(*transform->work));
}

void referee_transform_close(struct referee_transform *transform)
{
	memory_free(transform->work);
	transform->work = NULL;
}

/* ---- one piece ---- */

/* What one call works on. Rows are runs of the box: `width` elements each, `stride` elements from
 * one to the next in the tensor, dense in the parameter. */
struct job {
	const struct referee_transform *transform;
	const struct layout *layout;
	const struct piece *piece;
	const struct tensor_info *tensor;
	enum dtype to;
	uint64_t rows, width, first, stride;
	struct error *error;
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The values times the scales of the blocks that they lie in. */
static int apply_scales(const struct job *job, uint64_t at, uint32_t count)
{
	const struct transform *transform = &job->piece->transform;
	const struct tensor_info *scales = &job->layout->tensors[job->piece->scales];
	uint64_t row = at / job->tensor->shape[1], column = at % job->tensor->shape[1];
	uint64_t block = column / transform->from_columns;
	uint64_t last = (column + count - 1) / transform->from_columns;
	float *values = job->transform->work->values, *factors = job->transform->work->from_scales;
	int rc = job->transform->read(job->transform->context, scales,
				      (row / transform->from_rows * scales->shape[1] + block) * 4,
				      (last - block + 1) * 4, factors, job->error);

	for (uint64_t done = 0; done < count && !rc; block++, factors++) {
		uint64_t end = least(count, (block + 1) * transform->from_columns - column);

		referee_scale(values + done, *factors, (uint32_t)(end - done));
		done = end;
	}
	return rc;
}

/* `count` elements from element `at` of the tensor on; they lie in one row. */
static int read_raw(const struct job *job, uint64_t at, uint32_t count)
{
	uint32_t bytes = dtype_bytes(job->tensor->dtype);

	return job->transform->read(job->transform->context, job->tensor, at * bytes,
				    (uint64_t)count * bytes, job->transform->work->raw, job->error);
}

/* The same as values. */
static int load(const struct job *job, uint64_t at, uint32_t count)
{
	struct referee_transform_work *work = job->transform->work;
	int rc = read_raw(job, at, count);

	if (!rc)
		referee_widen(job->tensor->dtype, work->raw, work->values, count);
	return rc || !job->piece->transform.from_rows ? rc : apply_scales(job, at, count);
}

/* `offset`: in the piece's own bytes. */
static int take(const struct job *job, uint64_t offset, const void *expected, uint64_t bytes)
{
	return job->transform->take(job->transform->context, job->piece,
				    job->piece->offset + offset, expected, bytes, job->error);
}

/* Copied or converted. */
static int plain_run(const struct job *job, uint64_t row)
{
	struct referee_transform_work *work = job->transform->work;
	bool copy = transform_plain(&job->piece->transform) && job->to == job->tensor->dtype;
	uint32_t bytes = dtype_bytes(job->to);
	int rc = 0;

	for (uint64_t done = 0; done < job->width && !rc; done += REFEREE_ELEMENTS) {
		uint32_t n = (uint32_t)least(REFEREE_ELEMENTS, job->width - done);
		uint64_t at = job->first + row * job->stride + done;

		rc = copy ? read_raw(job, at, n) : load(job, at, n);
		if (!rc && !copy)
			referee_narrow(job->to, work->values, work->expected, n);
		if (!rc)
			rc = take(job, (row * job->width + done) * bytes,
				  copy ? work->raw : work->expected, (uint64_t)n * bytes);
	}
	return rc;
}

#define TILE_SIDE 256u
_Static_assert(TILE_SIDE *TILE_SIDE <= REFEREE_ELEMENTS, "a tile fits");

/* A corner of the box; what it becomes is written run by run, one of each column. */
static int transposed_tile(const struct job *job, uint64_t row, uint64_t column)
{
	struct referee_transform_work *work = job->transform->work;
	uint32_t rows = (uint32_t)least(TILE_SIDE, job->rows - row);
	uint32_t columns = (uint32_t)least(TILE_SIDE, job->width - column);
	uint32_t bytes = dtype_bytes(job->to);
	bool copy = job->to == job->tensor->dtype;
	const unsigned char *line = copy ? work->raw : work->expected;
	int rc = 0;

	for (uint32_t r = 0; r < rows && !rc; r++) {
		uint64_t at = job->first + (row + r) * job->stride + column;

		rc = copy ? read_raw(job, at, columns) : load(job, at, columns);
		if (!rc && !copy)
			referee_narrow(job->to, work->values, work->expected, columns);
		for (uint32_t c = 0; c < columns && !rc; c++)
			memcpy(work->tile + ((uint64_t)c * rows + r) * bytes,
			       line + (uint64_t)c * bytes, bytes);
	}
	for (uint32_t c = 0; c < columns && !rc; c++)
		rc = take(job, ((column + c) * job->rows + row) * bytes,
			  work->tile + (uint64_t)c * rows * bytes, (uint64_t)rows * bytes);
	return rc;
}

static int transpose(const struct job *job)
{
	int rc = 0;

	for (uint64_t row = 0; row < job->rows && !rc; row += TILE_SIDE)
		for (uint64_t column = 0; column < job->width && !rc; column += TILE_SIDE)
			rc = transposed_tile(job, row, column);
	return rc;
}

/* Each row as it is, and zeroes behind it. */
static int pad(const struct job *job)
{
	static const unsigned char zeroes[REFEREE_ELEMENTS];
	uint32_t bytes = dtype_bytes(job->to);
	uint64_t width = job->piece->transform.to_columns;
	uint64_t own = transform_row_elements(&job->piece->src);
	int rc = 0;

	for (uint64_t row = 0, rows = job->rows * job->width / own; row < rows && !rc; row++) {
		uint64_t at = row * own, padding = (width - own) * bytes, n;

		/* rows are whole in a run of memory, of which there may be one or many */
		rc = read_raw(job, job->first + at / job->width * job->stride + at % job->width,
			      (uint32_t)own);
		if (!rc)
			rc = take(job, row * width * bytes, job->transform->work->raw, own * bytes);
		for (uint64_t done = 0; done < padding && !rc; done += n) {
			n = least(padding - done, sizeof(zeroes));
			rc = take(job, (row * width + own) * bytes + done, zeroes, n);
		}
	}
	return rc;
}

/* Columns [column, end) of a band. */
struct stripe {
	uint64_t row, rows, column, end;
};

/* Of `n` values from column `at` of the stripe on, by the blocks that they lie in: pass 1 notes their
 * largest magnitudes in to_scales, pass 2 quantises by these. */
static void pass_blocks(const struct job *job, const struct stripe *stripe, uint64_t at, uint32_t n,
			bool quantise)
{
	struct referee_transform_work *work = job->transform->work;
	uint64_t width = job->piece->transform.to_columns;

	for (uint32_t i = 0, part; i < n; i += part) {
		uint64_t inside = at + i - stripe->column;
		float *scale = &work->to_scales[inside / width], most;

		part = (uint32_t)least(n - i, width - inside % width);
		if (quantise) {
			referee_quantise(work->values + i, *scale, work->expected + i, part);
			continue;
		}
		most = referee_largest(work->values + i, part);
		if (most > *scale)
			*scale = most;
	}
}

static int pass_stripe(const struct job *job, const struct stripe *stripe, bool quantise)
{
	for (uint64_t row = stripe->row; row < stripe->row + stripe->rows; row++)
		for (uint64_t at = stripe->column; at < stripe->end; at += REFEREE_ELEMENTS) {
			uint32_t n = (uint32_t)least(REFEREE_ELEMENTS, stripe->end - at);
			int rc = load(job, job->first + row * job->stride + at, n);

			if (!rc)
				pass_blocks(job, stripe, at, n, quantise);
			if (!rc && quantise)
				rc = take(job, row * job->width + at,
					  job->transform->work->expected, n);
			if (rc)
				return rc;
		}
	return 0;
}

/* to_scales of the stripe's blocks. */
static int find_scales(const struct job *job, const struct stripe *stripe, uint64_t blocks)
{
	float *scales = job->transform->work->to_scales;
	int rc;

	for (uint64_t b = 0; b < blocks; b++)
		scales[b] = TRANSFORM_AMAX_MIN;
	rc = pass_stripe(job, stripe, false);
	for (uint64_t b = 0; b < blocks; b++)
		scales[b] /= TRANSFORM_FP8_MAX;
	return rc;
}

static int quantise_band(const struct job *job, uint64_t row)
{
	const struct transform *transform = &job->piece->transform;
	uint64_t per_row = (job->width + transform->to_columns - 1) / transform->to_columns;
	uint64_t most = (uint64_t)REFEREE_ELEMENTS * transform->to_columns;
	int rc = 0;

	for (uint64_t column = 0; column < job->width && !rc; column += most) {
		struct stripe stripe = {.row = row,
					.rows = least(transform->to_rows, job->rows - row),
					.column = column,
					.end = least(column + most, job->width)};
		uint64_t blocks =
			(stripe.end - column + transform->to_columns - 1) / transform->to_columns;

		rc = find_scales(job, &stripe, blocks);
		if (!rc && transform->part == TRANSFORM_SCALES)
			rc = take(job,
				  (row / transform->to_rows * per_row +
				   column / transform->to_columns) *
					  4,
				  job->transform->work->to_scales, blocks * 4);
		else if (!rc)
			rc = pass_stripe(job, &stripe, true);
	}
	return rc;
}

/* A box in blocks row by row, any other by its runs in memory. */
static int find_rows(struct job *job)
{
	const struct box *src = &job->piece->src;
	const uint64_t *shape = job->tensor->shape;
	uint32_t bytes = dtype_bytes(job->tensor->dtype), row = src->dims == 3;
	struct runs runs;

	if (!transform_plain(&job->piece->transform) &&
	    job->piece->transform.part != TRANSFORM_PADDED) {
		job->rows = src->hi[row] - src->lo[row];
		job->width = src->hi[row + 1] - src->lo[row + 1];
		job->stride = shape[row + 1];
		job->first = src->lo[row] * job->stride + src->lo[row + 1];
		if (row) /* one matrix of several */
			job->first += src->lo[0] * shape[1] * shape[2];
		return 0;
	}
	if (!box_runs(src, job->tensor->shape, bytes, &runs))
		return error_set(job->error, ERROR_UNSUPPORTED, "tensor %s: a box with two strides",
				 job->tensor->name);
	job->rows = runs.rows;
	job->width = runs.row_bytes / bytes;
	job->stride = runs.stride_bytes / bytes;
	job->first = runs.offset / bytes;
	return 0;
}

int referee_transform_piece(const struct referee_transform *transform, const struct layout *layout,
			    const struct piece *piece, struct error *error)
{
	struct job job = {.transform = transform,
			  .layout = layout,
			  .piece = piece,
			  .tensor = &layout->tensors[piece->tensor],
			  .to = layout->params[piece->param].dtype,
			  .error = error};
	uint64_t step = transform_grain_rows(&piece->transform);
	int rc = find_rows(&job);

	if (!rc && piece->transform.part == TRANSFORM_TRANSPOSED)
		return transpose(&job);
	if (!rc && piece->transform.part == TRANSFORM_PADDED)
		return pad(&job);
	for (uint64_t row = 0; row < job.rows && !rc; row += step)
		rc = piece->transform.to_rows ? quantise_band(&job, row) : plain_run(&job, row);
	return rc;
}
