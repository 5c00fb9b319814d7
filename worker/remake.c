/* SPDX-License-Identifier: Apache-2.0
 *
 * remake.c -- for blocks of `to` a band is read twice, whatever its size: once for the largest
 * magnitude of each block, once for the values. So memory stays bounded.
 *
 *   band of to_rows rows    | block | block | block |      stripe: REMAKE_ELEMENTS blocks at most
 *   pass 1                    amax    amax    amax    ──► scales
 *   pass 2                    x * (1 / scale)         ──► values
 */
#include "worker/remake.h"

#include "common/memory.h"

#include <math.h>
#include <string.h>

struct remake_work {
	unsigned char raw[REMAKE_ELEMENTS * 8];	     /* as the tensor has them */
	unsigned char expected[REMAKE_ELEMENTS * 4]; /* as the parameter has them */
	float values[REMAKE_ELEMENTS];
	float from_scales[REMAKE_ELEMENTS]; /* of the blocks that the values lie in */
	float to_scales[REMAKE_ELEMENTS];   /* of the stripe's blocks */
};

int remake_open(struct remake *remake, struct error *error)
{
	remake->work = memory_alloc(sizeof(*remake->work));
	return remake->work ? 0 : memory_error(error, "verifying", sizeof(*remake->work));
}

void remake_close(struct remake *remake)
{
	memory_free(remake->work);
	remake->work = NULL;
}

/* ---- one element ---- */

static double power_of_two(int exponent)
{
	uint64_t bits = (uint64_t)(1023 + exponent) << 52;
	double power;

	memcpy(&power, &bits, sizeof(power));
	return power;
}

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* A finite magnitude of a small format. */
static float small_value(uint32_t code, int mantissa, int bias)
{
	uint32_t exponent = code >> mantissa, fraction = code & ((1u << mantissa) - 1);

	if (!exponent)
		return (float)(fraction * power_of_two(1 - bias - mantissa));
	return (float)((fraction + (1u << mantissa)) *
		       power_of_two((int)exponent - bias - mantissa));
}

/* The code of a finite magnitude, nearest even; at and past the largest it runs on into the codes
 * above. */
static uint32_t small_code(float magnitude, int mantissa, int bias)
{
	int exponent = (int)(bits_of(magnitude) >> 23) - 127;

	if (exponent < 1 - bias)
		exponent = 1 - bias;
	/* in steps of the last bit the number is a whole one, or halfway */
	return (uint32_t)((exponent + bias - 1) * (1 << mantissa) +
			  (int)lrint((double)magnitude * power_of_two(mantissa - exponent)));
}

float remake_widen(enum dtype from, const void *element)
{
	uint16_t half;
	uint8_t byte;
	float value;

	if (from == DTYPE_F32) {
		memcpy(&value, element, sizeof(value));
		return value;
	}
	if (from == DTYPE_F8_E4M3) {
		memcpy(&byte, element, sizeof(byte));
		value = (byte & 0x7f) == 0x7f ? float_of(0x7fc00000)
					      : small_value(byte & 0x7f, 3, 7);
		return byte & 0x80 ? -value : value;
	}
	memcpy(&half, element, sizeof(half));
	if (from == DTYPE_BF16) {
		value = float_of((uint32_t)half << 16);
		return isnan(value) ? float_of((uint32_t)half << 16 | 0x00400000) : value;
	}
	if ((half & 0x7c00) == 0x7c00)
		value = half & 0x03ff ? float_of(0x7fc00000 | (half & 0x03ffu) << 13) : INFINITY;
	else
		value = small_value(half & 0x7fff, 10, 15);
	return half & 0x8000 ? -value : value;
}

static uint16_t half_of(float value, int mantissa, int bias, uint32_t infinity)
{
	uint32_t sign = bits_of(value) >> 31 << 15, code;

	if (isnan(value))
		code = infinity | 1u << (mantissa - 1) |
		       ((bits_of(value) & 0x007fffff) >> (23 - mantissa));
	else if (isinf(value))
		code = infinity;
	else
		code = small_code(fabsf(value), mantissa, bias);
	return (uint16_t)(sign | (isnan(value) || code < infinity ? code : infinity));
}

void remake_narrow(enum dtype to, float value, void *element)
{
	uint16_t half;
	uint8_t byte;

	switch (to) {
	case DTYPE_BF16:
		half = half_of(value, 7, 127, 0x7f80);
		memcpy(element, &half, sizeof(half));
		return;
	case DTYPE_F16:
		half = half_of(value, 10, 15, 0x7c00);
		memcpy(element, &half, sizeof(half));
		return;
	case DTYPE_F8_E4M3:
		byte = isnan(value) ? 0x7f : 0x7e; /* 448 */
		if (fabsf(value) < MAKE_FP8_MAX)
			byte = (uint8_t)small_code(fabsf(value), 3, 7);
		byte |= (uint8_t)(bits_of(value) >> 31 << 7);
		memcpy(element, &byte, sizeof(byte));
		return;
	default:
		memcpy(element, &value, sizeof(value));
	}
}

/* ---- one piece ---- */

/* What one call works on. Rows are runs of the box: `width` elements each, `stride` elements from
 * one to the next in the tensor, dense in the parameter. */
struct job {
	const struct remake *remake;
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
	const struct make *make = &job->piece->make;
	const struct tensor_info *scales = &job->layout->tensors[job->piece->scales];
	uint64_t row = at / job->tensor->shape[1], column = at % job->tensor->shape[1];
	uint64_t block = column / make->from_columns;
	uint64_t last = (column + count - 1) / make->from_columns;
	float *values = job->remake->work->values, *factors = job->remake->work->from_scales;
	int rc = job->remake->read(job->remake->context, scales,
				   (row / make->from_rows * scales->shape[1] + block) * 4,
				   (last - block + 1) * 4, factors, job->error);

	for (uint32_t i = 0; i < count && !rc; block++, factors++) {
		uint64_t end = (block + 1) * make->from_columns - column;

		for (; i < count && i < end; i++) {
			float product = values[i] * *factors;

			/* of a NaN only the element's sign is left */
			values[i] = isnan(product) ? copysignf(float_of(0x7fc00000), values[i])
						   : product;
		}
	}
	return rc;
}

/* `count` values from element `at` of the tensor on; they lie in one row. */
static int load(const struct job *job, uint64_t at, uint32_t count)
{
	struct remake_work *work = job->remake->work;
	uint32_t bytes = dtype_bytes(job->tensor->dtype);
	int rc = job->remake->read(job->remake->context, job->tensor, at * bytes,
				   (uint64_t)count * bytes, work->raw, job->error);

	for (uint32_t i = 0; i < count && !rc; i++)
		work->values[i] = remake_widen(job->tensor->dtype, work->raw + (size_t)i * bytes);
	return rc || !job->piece->make.from_rows ? rc : apply_scales(job, at, count);
}

/* `offset`: in the piece's own bytes. */
static int take(const struct job *job, uint64_t offset, const void *expected, uint64_t bytes)
{
	return job->remake->take(job->remake->context, job->piece, job->piece->offset + offset,
				 expected, bytes, job->error);
}

static int copy_run(const struct job *job, uint64_t row)
{
	uint32_t bytes = dtype_bytes(job->tensor->dtype);
	unsigned char *raw = job->remake->work->raw;
	int rc = 0;

	for (uint64_t done = 0; done < job->width && !rc; done += REMAKE_ELEMENTS) {
		uint64_t n = least(REMAKE_ELEMENTS, job->width - done) * bytes;

		rc = job->remake->read(job->remake->context, job->tensor,
				       (job->first + row * job->stride + done) * bytes, n, raw,
				       job->error);
		if (!rc)
			rc = take(job, (row * job->width + done) * bytes, raw, n);
	}
	return rc;
}

static int convert_run(const struct job *job, uint64_t row)
{
	struct remake_work *work = job->remake->work;
	uint32_t bytes = dtype_bytes(job->to);
	int rc = 0;

	for (uint64_t done = 0; done < job->width && !rc; done += REMAKE_ELEMENTS) {
		uint32_t n = (uint32_t)least(REMAKE_ELEMENTS, job->width - done);

		rc = load(job, job->first + row * job->stride + done, n);
		for (uint32_t i = 0; i < n && !rc; i++)
			remake_narrow(job->to, work->values[i], work->expected + (size_t)i * bytes);
		if (!rc)
			rc = take(job, (row * job->width + done) * bytes, work->expected,
				  (uint64_t)n * bytes);
	}
	return rc;
}

/* Columns [column, end) of a band. */
struct stripe {
	uint64_t row, rows, column, end;
};

/* Pass 1: to_scales of the stripe's blocks. */
static int find_scales(const struct job *job, const struct stripe *stripe, uint64_t blocks)
{
	struct remake_work *work = job->remake->work;
	uint64_t width = job->piece->make.to_columns;

	for (uint64_t b = 0; b < blocks; b++)
		work->to_scales[b] = MAKE_AMAX_MIN;
	for (uint64_t row = stripe->row; row < stripe->row + stripe->rows; row++)
		for (uint64_t at = stripe->column; at < stripe->end; at += REMAKE_ELEMENTS) {
			uint32_t n = (uint32_t)least(REMAKE_ELEMENTS, stripe->end - at);
			int rc = load(job, job->first + row * job->stride + at, n);

			if (rc)
				return rc;
			for (uint32_t i = 0; i < n; i++) {
				float x = fabsf(work->values[i]);
				float *most = &work->to_scales[(at + i - stripe->column) / width];

				if (isfinite(x) && x > *most)
					*most = x;
			}
		}
	for (uint64_t b = 0; b < blocks; b++)
		work->to_scales[b] /= MAKE_FP8_MAX;
	return 0;
}

/* Pass 2. */
static int quantise_stripe(const struct job *job, const struct stripe *stripe)
{
	struct remake_work *work = job->remake->work;
	uint64_t width = job->piece->make.to_columns;

	for (uint64_t row = stripe->row; row < stripe->row + stripe->rows; row++)
		for (uint64_t at = stripe->column; at < stripe->end; at += REMAKE_ELEMENTS) {
			uint32_t n = (uint32_t)least(REMAKE_ELEMENTS, stripe->end - at);
			int rc = load(job, job->first + row * job->stride + at, n);

			for (uint32_t i = 0; i < n && !rc; i++) {
				uint64_t b = (at + i - stripe->column) / width;
				float inverse = 1.0f / work->to_scales[b];

				remake_narrow(DTYPE_F8_E4M3, work->values[i] * inverse,
					      &work->expected[i]);
			}
			if (!rc)
				rc = take(job, row * job->width + at, work->expected, n);
			if (rc)
				return rc;
		}
	return 0;
}

static int quantise_band(const struct job *job, uint64_t row)
{
	const struct make *make = &job->piece->make;
	uint64_t per_row = (job->width + make->to_columns - 1) / make->to_columns;
	uint64_t most = (uint64_t)REMAKE_ELEMENTS * make->to_columns;
	int rc = 0;

	for (uint64_t column = 0; column < job->width && !rc; column += most) {
		struct stripe stripe = {.row = row,
					.rows = least(make->to_rows, job->rows - row),
					.column = column,
					.end = least(column + most, job->width)};
		uint64_t blocks = (stripe.end - column + make->to_columns - 1) / make->to_columns;

		rc = find_scales(job, &stripe, blocks);
		if (!rc && make->part == MAKE_SCALES)
			rc = take(job,
				  (row / make->to_rows * per_row + column / make->to_columns) * 4,
				  job->remake->work->to_scales, blocks * 4);
		else if (!rc)
			rc = quantise_stripe(job, &stripe);
	}
	return rc;
}

/* A box in blocks row by row, any other by its runs in memory. */
static int find_rows(struct job *job)
{
	const struct box *src = &job->piece->src;
	uint32_t bytes = dtype_bytes(job->tensor->dtype);
	struct runs runs;

	if (!make_plain(&job->piece->make)) {
		job->rows = src->hi[0] - src->lo[0];
		job->width = src->hi[1] - src->lo[1];
		job->stride = job->tensor->shape[1];
		job->first = src->lo[0] * job->stride + src->lo[1];
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

int remake_piece(const struct remake *remake, const struct layout *layout,
		 const struct piece *piece, struct error *error)
{
	struct job job = {.remake = remake,
			  .layout = layout,
			  .piece = piece,
			  .tensor = &layout->tensors[piece->tensor],
			  .to = layout->params[piece->param].dtype,
			  .error = error};
	bool copy = make_plain(&piece->make) && job.to == job.tensor->dtype;
	uint64_t step = make_grain_rows(&piece->make);
	int rc = find_rows(&job);

	for (uint64_t row = 0; row < job.rows && !rc; row += step)
		rc = piece->make.to_rows ? quantise_band(&job, row)
		     : copy		 ? copy_run(&job, row)
					 : convert_run(&job, row);
	return rc;
}
