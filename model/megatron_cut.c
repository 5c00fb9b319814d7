/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron_cut.c -- boxes of a matrix in a local parameter, and the cuts of Megatron's linears: column parallel ones by rows of the
 * tensor, row parallel ones by its columns, the vocabulary rounded up, gate and up in one:
 *
 *   linear_fc1    gate, its half | up, its half           interleaved by n    n of gate | n of up | n of gate | ..
 */
#include "model/megatron.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void local_name(const struct megatron *m, char out[MEGATRON_NAME_BYTES])
{
	snprintf(out, MEGATRON_NAME_BYTES, "%s%s", m->prefix,
		 m->row.megatron ? m->row.megatron : source_suffix(m->job->model, m->tensor));
}

struct megatron_part megatron_rows(const struct megatron *m, uint64_t lo, uint64_t hi, uint64_t at,
				   uint64_t rows)
{
	return (struct megatron_part){
		.lo = lo, .hi = hi, .right = m->matrix.columns, .rows = rows, .at = at};
}

/* Its shape: rows, and what of the tensor's dimensions are columns; a matrix of a stack alone. */
static uint32_t local_shape(const struct megatron *m, const struct megatron_part *part,
			    uint64_t shape[BOX_DIMS_MAX])
{
	const struct megatron_matrix *matrix = &m->matrix;
	uint32_t dims = m->tensor->dims - matrix->stacked;

	memcpy(shape, m->tensor->shape, sizeof(m->tensor->shape));
	shape[0] = part->rows;
	if (matrix->column < m->tensor->dims && dims == 2)
		shape[1] = part->right - part->left;
	return dims;
}

int megatron_put(const struct megatron *m, const struct megatron_part *part, struct error *error)
{
	const struct megatron_matrix *matrix = &m->matrix;
	struct box box = box_whole(m->tensor->dims, m->tensor->shape);
	uint64_t columns = part->right - part->left, shape[BOX_DIMS_MAX];
	uint32_t dims = local_shape(m, part, shape);
	struct placement place = placement_dense(&box);
	char name[MEGATRON_NAME_BYTES];
	int64_t local;

	local_name(m, name);
	local = source_local(m->job, name, m->tensor->dtype, dims, shape, error);
	if (local < 0)
		return (int)local;
	if (matrix->stacked) {
		box.lo[0] = m->expert;
		box.hi[0] = m->expert + 1;
		place.stride[0] = part->rows * columns;
	}
	box.lo[matrix->row] = part->lo;
	box.hi[matrix->row] = part->hi;
	place.stride[matrix->row] = columns;
	if (matrix->column < m->tensor->dims && dims == 2) {
		box.lo[matrix->column] = part->left;
		box.hi[matrix->column] = part->right;
		place.stride[matrix->column] = 1;
	}
	return source_box(m->job, m->order, &box, (uint32_t)local, part->at * columns, place.stride,
			  error);
}

int megatron_indivisible(const struct megatron *m, uint64_t number, struct error *error)
{
	return error_set(error, ERROR_CONFIG,
			 "--train: tensor %s has %" PRIu64
			 " %s to cut, which %s=%u does not divide",
			 m->tensor->name, number, m->row.cut == SOURCE_COLUMNS ? "columns" : "rows",
			 m->tensor->expert == EXPERT_NONE ? "tp" : "etp", m->size);
}

int megatron_whole(struct megatron *m, struct error *error)
{
	struct megatron_part part = megatron_rows(m, 0, m->matrix.rows, 0, m->matrix.rows);

	return megatron_put(m, &part, error);
}

int megatron_cut_rows(struct megatron *m, struct error *error)
{
	uint64_t rows = m->matrix.rows / m->size;
	struct megatron_part part = megatron_rows(m, m->rank * rows, (m->rank + 1) * rows, 0, rows);

	return m->matrix.rows % m->size ? megatron_indivisible(m, m->matrix.rows, error)
					: megatron_put(m, &part, error);
}

int megatron_cut_columns(struct megatron *m, struct error *error)
{
	uint64_t columns = m->matrix.columns / m->size;
	struct megatron_part part = megatron_rows(m, 0, m->matrix.rows, 0, m->matrix.rows);

	part.left = m->rank * columns;
	part.right = part.left + columns;
	return m->matrix.columns % m->size ? megatron_indivisible(m, m->matrix.columns, error)
					   : megatron_put(m, &part, error);
}

/* The rows that Megatron adds are no rows of the checkpoint's, and a rank may have nothing else. */
int megatron_vocabulary(struct megatron *m, struct error *error)
{
	uint64_t each = (uint64_t)m->job->train->vocab_pad * m->size, all = m->matrix.rows;
	uint64_t rows = (all + each - 1) / each * each / m->size;
	uint64_t lo = m->rank * rows;
	struct megatron_part part = megatron_rows(m, lo, least(lo + rows, all), 0, rows);

	return lo >= all ? 0 : megatron_put(m, &part, error);
}

/* ---- gate and up ---- */

int megatron_halves(const struct megatron *m, uint64_t share, uint32_t interleave,
		    struct megatron_halves *halves, struct error *error)
{
	if (interleave && share % interleave)
		return error_set(error, ERROR_CONFIG,
				 "--train: %s=%u: tensor %s has %" PRIu64
				 " rows of gate a rank, which are no multiple of it",
				 m->tensor->expert == EXPERT_NONE ? "shared_glu_interleave"
								  : "glu_interleave",
				 interleave, m->tensor->name, share);
	*halves = (struct megatron_halves){interleave ? interleave : share,
					   interleave ? share / interleave : 1};
	return 0;
}

static uint32_t interleave_of(const struct megatron *m)
{
	const struct train_spec *train = m->job->train;

	if (m->tensor->expert != EXPERT_NONE)
		return train->glu_interleave;
	return strncmp(m->row.megatron, MEGATRON_SHARED, strlen(MEGATRON_SHARED)) == 0
		       ? train->shared_glu_interleave
		       : 0;
}

/* `part` of two in each rank's share: gate, then up. [from, from + rows) of the tensor are all of it. */
static int hold_half(const struct megatron *m, uint32_t part, uint64_t from, uint64_t rows,
		     struct error *error)
{
	uint64_t share = rows / m->size, lo = from + m->rank * share;
	struct megatron_halves halves = {0};
	int rc;

	if (rows % m->size)
		return megatron_indivisible(m, rows, error);
	rc = megatron_halves(m, share, interleave_of(m), &halves, error);
	for (uint64_t i = 0; i < halves.times && !rc; i++) {
		uint64_t first = lo + i * halves.count;
		struct megatron_part run =
			megatron_rows(m, first, first + halves.count,
				      megatron_half_at(&halves, i, part), 2 * share);

		rc = megatron_put(m, &run, error);
	}
	return rc;
}

int megatron_gate(struct megatron *m, struct error *error)
{
	return hold_half(m, 0, 0, m->matrix.rows, error);
}

int megatron_up(struct megatron *m, struct error *error)
{
	return hold_half(m, 1, 0, m->matrix.rows, error);
}

int megatron_gate_up(struct megatron *m, struct error *error)
{
	uint64_t half = m->matrix.rows / 2;
	int rc = hold_half(m, 0, 0, half, error);

	return rc ? rc : hold_half(m, 1, half, half, error);
}
