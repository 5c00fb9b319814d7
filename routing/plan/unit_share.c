/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_share.c -- what a layout wants of one tensor, cut where its holders change:
 *
 *   segments       [ 0        )[ 1        )[ 2        )     who holds changes at the borders
 *   blocks wanted  |     |     |     |     |     |          of 4 rows: the border 0|1 is inside
 *   shares         [ 0 and 1              )[ 2        )     held by who holds 0 and 1 together
 */
#include "routing/plan/unit_builder.h"

#include "base/assert.h"
#include "base/compare.h"
#include <inttypes.h>
#include <stdlib.h>

/* For messages: an inference rank that has the layout. */
static uint32_t rank_of(const struct problem *problem, uint32_t layout)
{
	uint32_t rank = 0;

	while (problem->inference_layout[rank] != layout)
		rank++;
	return rank;
}

static bool holds_scales(const struct problem_holding *holding, const struct unit_wants *wants,
			 uint64_t lo, uint64_t hi)
{
	for (size_t i = 0; i < wants->count; i++) {
		const struct piece *piece = &wants->pieces[i];
		struct box part, scales;

		if (!piece->transform.from_rows || !box_cut_rows(&piece->src, lo, hi, &part))
			continue;
		scales = transform_scales_box(&piece->transform, &part);
		if (!problem_held_in(holding, piece->scales, &scales))
			return false;
	}
	return true;
}

/* Rows [lo, hi) cannot be sent: nobody has them whole, or nobody has their scales too. */
static int unsourced(const struct unit_builder *b, const struct unit_wants *wants, uint64_t lo,
		     uint64_t hi, struct error *error)
{
	const struct problem *problem = b->problem;
	const struct problem_layout *layout = &problem->layouts[wants->layout];
	const struct piece *piece = NULL, *found = NULL;
	struct box part, scales;

	for (size_t i = 0; i < wants->count && !found; i++)
		if (box_cut_rows(&wants->pieces[i].src, lo, hi, &part) &&
		    !transform_plain(&wants->pieces[i].transform))
			found = piece = &wants->pieces[i];
	if (!found) /* copies are cut anywhere; but beside a piece that is not, nothing is cut in columns */
		return error_set(
			error, ERROR_UNSOURCED,
			"inference %" PRIu32 " needs rows %" PRIu64 "..%" PRIu64
			" of tensor '%s' in pieces that are transformed, so that its columns are not cut, and no "
			"trainer holds all that it needs of them",
			rank_of(problem, wants->layout), lo, hi,
			problem->tensors[wants->tensor].name);
	if (piece->transform.part == TRANSFORM_TRANSPOSED)
		return error_set(
			error, ERROR_UNSOURCED,
			"parameter '%s' of inference %" PRIu32
			" is tensor '%s' transposed, so that each of its rows needs all rows "
			"of the tensor, and no trainer holds rows %" PRIu64 "..%" PRIu64
			" together: use source=gathered, or one that cuts these rows at most as often as the engine "
			"(megatron: tp, etp)",
			layout->layout->params[piece->param].name, rank_of(problem, wants->layout),
			problem->tensors[wants->tensor].name, lo, hi);
	if (b->segments.items[unit_segment_at(b, part.lo[0])].cell_count)
		return error_set(
			error, ERROR_UNSOURCED,
			"parameter '%s' of inference %" PRIu32
			" is transformed in blocks of tensor '%s', and no trainer holds all columns that it needs of rows "
			"%" PRIu64 "..%" PRIu64
			": blocks are not put together from columns of several trainers; cut such tensors across their "
			"rows in trainers (tp, etp, mesh) at most as often as in engines",
			layout->layout->params[piece->param].name, rank_of(problem, wants->layout),
			problem->tensors[wants->tensor].name, lo, hi);
	if (!piece->transform.from_rows)
		return error_set(
			error, ERROR_UNSOURCED,
			"parameter '%s' of inference %" PRIu32
			" is transformed in blocks of %" PRIu32
			" rows of tensor '%s', and no trainer holds rows %" PRIu64 "..%" PRIu64
			" in one place: its shards, or the groups of a fused parameter, end inside of a "
			"block; use source=gathered, or trainers or blocks whose borders meet",
			layout->layout->params[piece->param].name, rank_of(problem, wants->layout),
			piece->transform.to_rows, problem->tensors[wants->tensor].name, lo, hi);
	scales = transform_scales_box(&piece->transform, &part);
	return error_set(error, ERROR_UNSOURCED,
			 "parameter '%s' of inference %" PRIu32 " needs rows %" PRIu64 "..%" PRIu64
			 " of tensor '%s' with their scales, rows %" PRIu64 "..%" PRIu64
			 " of '%s' (blocks of %" PRIu32 " rows), and no trainer holds both: use "
			 "source=gathered, or a trainer world whose shards end between blocks",
			 layout->layout->params[piece->param].name, rank_of(problem, wants->layout),
			 lo, hi, problem->tensors[wants->tensor].name, scales.lo[0], scales.hi[0],
			 problem->tensors[piece->scales].name, piece->transform.from_rows);
}

/* Shards cut a piece so that it lies in its parameter with more than one stride. */
static int cut_through(const struct unit_builder *b, const struct unit_wants *wants,
		       const struct piece *piece, const struct box *cell, struct error *error)
{
	const struct problem *problem = b->problem;
	char text[160], need[160];

	if (piece->transform.to_rows)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"parameter '%s' of inference %" PRIu32
			" is transformed in blocks of %" PRIu32
			" columns of tensor '%s', and no trainer holds all of them: one holds %s, which ends inside of a "
			"block; cut its rows across at most as often as the engine does (tp, etp, mesh), or at multiples of "
			"%" PRIu32 " columns",
			problem->layouts[wants->layout].layout->params[piece->param].name,
			rank_of(problem, wants->layout), piece->transform.to_columns,
			problem->tensors[wants->tensor].name, box_text(cell, text, sizeof(text)),
			piece->transform.to_columns);
	if (piece->transform.part == TRANSFORM_TRANSPOSED)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"parameter '%s' of inference %" PRIu32
			" is tensor '%s' transposed, so that each of its rows needs all rows of %s, and no trainer holds "
			"these together, the one with %s not: cut such rows in trainers (tp, etp) at most as often as in "
			"engines",
			problem->layouts[wants->layout].layout->params[piece->param].name,
			rank_of(problem, wants->layout), problem->tensors[wants->tensor].name,
			box_text(&piece->src, need, sizeof(need)),
			box_text(cell, text, sizeof(text)));
	return error_set(
		error, ERROR_UNSUPPORTED,
		"parameter '%s' of inference %" PRIu32
		" needs %s of tensor '%s', no trainer holds all of it, and what the one with %s has lies there "
		"with more than one stride: hold it cut in dimension 0 and one other at most",
		problem->layouts[wants->layout].layout->params[piece->param].name,
		rank_of(problem, wants->layout), box_text(&piece->src, need, sizeof(need)),
		problem->tensors[wants->tensor].name, box_text(cell, text, sizeof(text)));
}

/* What the piece has of rows [lo, hi), and of the cell, unless that is NULL: its bytes, perhaps 0. */
static int part_bytes(const struct unit_builder *b, const struct unit_wants *wants,
		      const struct piece *piece, uint64_t lo, uint64_t hi, const struct box *cell,
		      uint64_t *bytes, struct error *error)
{
	struct piece rows, part;
	bool refused = false;

	*bytes = 0;
	if (!piece_cut_rows(piece, lo, hi, &rows))
		return 0;
	if (!cell)
		*bytes = rows.bytes;
	else if (piece_cut_columns(&rows, cell, &part, &refused) && !refused)
		*bytes = part.bytes;
	return refused ? cut_through(b, wants, &rows, cell, error) : 0;
}

/* cell: what it takes of these rows; NULL: all of them. */
static int add_share(struct unit_builder *b, const struct unit_wants *wants, uint64_t lo,
		     uint64_t hi, struct unit_cell *cell, const uint32_t *holdings,
		     uint32_t holding_count, struct error *error)
{
	uint64_t bytes = 0, more;
	uint32_t set = 0;
	int rc;

	WEFT_ASSERT_OP(lo, <, hi);
	for (size_t i = 0; i < wants->count; i++) {
		rc = part_bytes(b, wants, &wants->pieces[i], lo, hi, cell ? &cell->box : NULL,
				&more, error);
		if (rc)
			return rc;
		if (__builtin_add_overflow(bytes, more, &bytes) || bytes > UNIT_BYTES_MAX)
			return error_set(error, ERROR_LIMIT,
					 "one inference rank needs more than "
					 "2^62 bytes of one tensor");
	}
	if (bytes == 0)
		return 0;
	b->able.count = 0;
	for (uint32_t k = 0; k < holding_count; k++) {
		if (holds_scales(&b->problem->holdings[holdings[k]], wants, lo, hi) &&
		    !array_add(&b->able, holdings[k]))
			return unit_no_memory(error);
	}
	if (b->able.count == 0)
		return unsourced(b, wants, lo, hi, error);
	rc = unit_intern(b, b->able.items, (uint32_t)b->able.count, &set, error);
	if (rc)
		return rc;
	WEFT_ASSERT_OP(set, <, b->keys.count);
	if (cell && !cell->published) {
		if (!array_add(&b->boxes, cell->box))
			return unit_no_memory(error);
		cell->published = (uint32_t)b->boxes.count;
	}
	return array_add(&b->shares, (struct unit_share){lo, hi, bytes, set,
							 cell ? cell->published - 1 : UNIT_FULL})
		       ? 0
		       : unit_no_memory(error);
}

/* Holdings that have the part of every piece in rows [lo, hi) in one run of their memory, and its
 * scales; into scratch. */
static int common_holders(struct unit_builder *b, const struct unit_wants *wants, uint64_t lo,
			  uint64_t hi, struct error *error)
{
	const struct piece *pieces = wants->pieces;
	size_t first = 0;
	struct box part;

	b->scratch.count = 0;
	while (first < wants->count && !box_cut_rows(&pieces[first].src, lo, hi, &part))
		first++;
	if (first == wants->count)
		return 0; /* a hole between pieces */
	const struct unit_segment *segment = &b->segments.items[unit_segment_at(b, part.lo[0])];

	for (uint32_t k = 0; k < segment->count; k++) {
		uint32_t h = b->members.items[segment->first + k];

		WEFT_ASSERT_OP(h, <, b->problem->holding_count);
		const struct problem_holding *holding = &b->problem->holdings[h];
		bool all = true;

		for (size_t i = first; i < wants->count && all; i++)
			all = !box_cut_rows(&pieces[i].src, lo, hi, &part) ||
			      problem_held_in(holding, wants->tensor, &part);
		if (all && holds_scales(holding, wants, lo, hi) && !array_add(&b->scratch, h))
			return unit_no_memory(error);
	}
	return 0;
}

/* Is anything of it padded, or made out of blocks? Then it is not cut into cells. */
static bool keeps_columns(const struct unit_wants *wants)
{
	for (size_t i = 0; i < wants->count; i++)
		if (!transform_cuts_columns(&wants->pieces[i].transform))
			return true;
	return false;
}

/* May the pair be cut at that row? Not inside of a block that a piece becomes. */
static bool may_cut(const struct unit_wants *wants, uint64_t row)
{
	for (size_t i = 0; i < wants->count; i++) {
		const struct piece *piece = &wants->pieces[i];

		if (row % transform_grain_rows(&piece->transform) && piece->src.lo[0] < row &&
		    row < piece->src.hi[0])
			return false;
	}
	return true;
}

/* Shares of cells: by their first row, and as cells stand where that is the same. */
static int by_first_row(const void *x, const void *y, void *context)
{
	const struct unit_builder *b = context;
	const struct unit_share *p = x, *q = y;

	return compare_u64(p->lo, q->lo)
		       ?: box_compare(&b->boxes.items[p->cell], &b->boxes.items[q->cell]);
}

/* The first row of [lo, hi) that any piece wants of the cell. */
static uint64_t first_row(const struct unit_wants *wants, uint64_t lo, uint64_t hi,
			  const struct box *cell)
{
	uint64_t first = hi;
	struct box rows = *cell, part;

	rows.lo[0] = lo;
	rows.hi[0] = hi;
	for (size_t i = 0; i < wants->count; i++)
		if (box_intersect(&wants->pieces[i].src, &rows, &part) && part.lo[0] < first)
			first = part.lo[0];
	return first;
}

/* Nobody has all that is wanted of a segment's rows: a share a cell. Where pieces want other rows of other columns, a cell that
 * stands before another may begin behind it. */
static int cell_shares(struct unit_builder *b, const struct unit_wants *wants,
		       const struct unit_segment *segment, uint64_t lo, uint64_t hi,
		       struct error *error)
{
	size_t before = b->shares.count;
	bool sorted = true;
	int rc = 0;

	for (uint32_t c = 0; c < segment->cell_count && !rc; c++) {
		struct unit_cell *cell = &b->cells.items[segment->cell_first + c];
		uint64_t first = first_row(wants, lo, hi, &cell->box);

		if (first == hi)
			continue;
		rc = add_share(b, wants, first, hi, cell, b->members.items + cell->first,
			       cell->count, error);
		sorted = sorted && (rc || b->shares.count < before + 2 ||
				    b->shares.items[b->shares.count - 2].lo <= first);
	}
	if (!rc && !sorted)
		qsort_r(b->shares.items + before, b->shares.count - before,
			sizeof(struct unit_share), by_first_row, b);
	return rc;
}

/* Segments from *s on to the first border where the pair may be cut: one share. */
static int next_share(struct unit_builder *b, const struct unit_wants *wants, size_t *s,
		      size_t last, uint64_t lo, uint64_t hi, struct error *error)
{
	const struct unit_segment *segment = &b->segments.items[*s];
	const bool cells = segment->cell_count && !keeps_columns(wants);
	const uint32_t *holdings = b->members.items + segment->first;
	uint32_t count = segment->count;
	uint64_t from = segment->lo > lo ? segment->lo : lo;
	size_t end = *s;
	int rc;

	while (end < last && !may_cut(wants, b->segments.items[end].hi))
		end++;
	uint64_t to = b->segments.items[end].hi < hi ? b->segments.items[end].hi : hi;

	WEFT_ASSERT_OP(from, <, to); /* first and last hold rows that are wanted */

	if (end != *s || segment->cell_count) {
		rc = common_holders(b, wants, from, to, error);
		if (rc)
			return rc;
		holdings = b->scratch.items;
		count = (uint32_t)b->scratch.count;
		if (!count && cells && end == *s) {
			*s = end + 1;
			return cell_shares(b, wants, segment, from, to, error);
		}
	}
	*s = end + 1;
	return add_share(b, wants, from, to, NULL, holdings, count, error);
}

int unit_shares(struct unit_builder *b, const struct unit_wants *wants, struct error *error)
{
	uint64_t lo = UINT64_MAX, hi = 0;
	int rc = 0;

	for (size_t i = 0; i < wants->count; i++) {
		const struct box *src = &wants->pieces[i].src;

		lo = src->lo[0] < lo ? src->lo[0] : lo;
		hi = src->hi[0] > hi ? src->hi[0] : hi;
	}
	WEFT_ASSERT_OP(lo, <, hi);
	size_t first = unit_segment_at(b, lo), last = unit_segment_at(b, hi - 1);

	WEFT_ASSERT_OP(first, <=, last);

	if ((first != last || b->segments.items[first].cell_count) && !b->cut) {
		rc = common_holders(b, wants, lo, hi, error);
		if (rc)
			return rc;
		if (b->scratch.count)
			return add_share(b, wants, lo, hi, NULL, b->scratch.items,
					 (uint32_t)b->scratch.count, error);
	}
	while (!rc && first <= last)
		rc = next_share(b, wants, &first, last, lo, hi, error);
	return rc;
}
