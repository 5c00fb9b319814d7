/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/unit_builder.h"

#include "base/assert.h"
#include "base/compare.h"

static int by_low(const void *x, const void *y)
{
	const struct unit_source *a = x, *b = y;

	return compare_u64(a->lo, b->lo) ?: compare_u64(a->holding, b->holding);
}

static int collect_sources(struct unit_builder *b, size_t t, bool *uniform, struct error *error)
{
	const struct problem *problem = b->problem;

	b->sources.count = b->borders.count = 0;
	*uniform = true;
	for (size_t h = 0; h < problem->holding_count; h++) {
		const struct problem_holding *holding = &problem->holdings[h];

		for (uint32_t i = holding->held_of[t]; i < holding->held_of[t + 1]; i++) {
			const struct box *box = &holding->held[i].box;
			uint64_t lo = box->lo[0], hi = box->hi[0];

			if (box_whole_rows(box, problem->tensors[t].shape))
				box = NULL;
			if (!array_add(&b->sources,
				       (struct unit_source){lo, hi, (uint32_t)h, box}) ||
			    !array_add(&b->borders, lo) || !array_add(&b->borders, hi))
				return unit_no_memory(error);
			if (box || lo != b->sources.items[0].lo || hi != b->sources.items[0].hi)
				*uniform = false;
		}
	}
	return 0;
}

/* Of the tensor's rows, those that anybody holds: from the first to the last. */
static struct unit_segment extent(const struct unit_builder *b)
{
	struct unit_segment all = {.lo = UINT64_MAX};

	for (size_t i = 0; i < b->sources.count; i++) {
		const struct unit_source *source = &b->sources.items[i];

		all.lo = source->lo < all.lo ? source->lo : all.lo;
		all.hi = source->hi > all.hi ? source->hi : all.hi;
	}
	return all;
}

/* Where the scales of blocks of so many rows begin and end in a holding. */
static int add_borders(struct unit_builder *b, const struct unit_segment *all, uint32_t holding,
		       const struct piece *piece, bool *uniform, struct error *error)
{
	const struct problem_holding *from = &b->problem->holdings[holding];

	for (uint32_t i = from->held_of[piece->scales]; i < from->held_of[piece->scales + 1]; i++) {
		const uint64_t rows[2] = {from->held[i].box.lo[0] * piece->transform.from_rows,
					  from->held[i].box.hi[0] * piece->transform.from_rows};

		for (int end = 0; end < 2; end++) {
			if (rows[end] <= all->lo || rows[end] >= all->hi)
				continue;
			if (!array_add(&b->borders, rows[end]))
				return unit_no_memory(error);
			*uniform = false;
		}
	}
	return 0;
}

/* A tensor in blocks is held as far as its scales are. */
static int collect_scales(struct unit_builder *b, size_t t, bool *uniform, struct error *error)
{
	const struct problem *problem = b->problem;
	const struct unit_segment all = extent(b);
	const struct piece *last = NULL;

	for (size_t l = 0; problem->transformed_count > 1 && l < problem->layout_count; l++) {
		const struct problem_layout *layout = &problem->layouts[l];

		for (uint32_t p = layout->pieces_of[t]; p < layout->pieces_of[t + 1]; p++) {
			const struct piece *piece = &layout->pieces[p];

			if (!piece->transform.from_rows ||
			    (last && last->scales == piece->scales &&
			     last->transform.from_rows == piece->transform.from_rows))
				continue;
			last = piece;
			for (uint32_t h = 0; h < problem->holding_count; h++) {
				int rc = add_borders(b, &all, h, piece, uniform, error);

				if (rc)
					return rc;
			}
		}
	}
	return 0;
}

uint32_t unit_name_holdings(struct unit_builder *b, size_t first, uint32_t count)
{
	uint32_t *members = b->members.items + first, kept = 0;

	for (uint32_t k = 0; k < count; k++)
		members[k] = b->sources.items[members[k]].holding;
	sort_items(members, count, compare_u32s);
	for (uint32_t k = 0; k < count; k++)
		if (k == 0 || members[k] != members[kept - 1])
			members[kept++] = members[k];
	return kept;
}

static int add_segment(struct unit_builder *b, uint64_t lo, uint64_t hi, const uint32_t *holdings,
		       uint32_t count, struct error *error)
{
	WEFT_ASSERT_OP(lo, <, hi);
	WEFT_ASSERT_OP(count, >, 0);
	if (!array_add(&b->segments,
		       (struct unit_segment){
			       .lo = lo, .hi = hi, .first = b->members.count, .count = count}))
		return unit_no_memory(error);
	for (uint32_t i = 0; i < count; i++)
		if (!array_add(&b->members, holdings[i]))
			return unit_no_memory(error);
	return 0;
}

/* Sweeps the borders upwards; `scratch` is the sources (by index) that reach the segment. */
static int sweep(struct unit_builder *b, size_t t, struct error *error)
{
	size_t next = 0, borders = 0;

	sort_items(b->sources.items, b->sources.count, by_low);
	sort_items(b->borders.items, b->borders.count, compare_u64s);
	for (size_t i = 0; i < b->borders.count; i++)
		if (i == 0 || b->borders.items[i] != b->borders.items[borders - 1])
			b->borders.items[borders++] = b->borders.items[i];
	b->scratch.count = 0;
	for (size_t i = 0; i + 1 < borders; i++) {
		uint64_t lo = b->borders.items[i], hi = b->borders.items[i + 1];
		size_t kept = 0, first = b->members.count; /* of the segment; its cells' follow */

		/* every source begins at a border */
		WEFT_ASSERT(next == b->sources.count || b->sources.items[next].lo >= lo);

		for (size_t k = 0; k < b->scratch.count; k++)
			if (b->sources.items[b->scratch.items[k]].hi > lo)
				b->scratch.items[kept++] = b->scratch.items[k];
		b->scratch.count = kept;
		for (; next < b->sources.count && b->sources.items[next].lo == lo; next++)
			if (!array_add(&b->scratch, (uint32_t)next))
				return unit_no_memory(error);
		if (b->scratch.count == 0)
			continue; /* held by nobody, and wanted by nobody (problem_check) */
		int rc =
			add_segment(b, lo, hi, b->scratch.items, (uint32_t)b->scratch.count, error);

		if (!rc)
			rc = unit_cells(b, t, &b->segments.items[b->segments.count - 1],
					b->scratch.items, (uint32_t)b->scratch.count, error);
		if (rc)
			return rc;
		b->segments.items[b->segments.count - 1].count =
			unit_name_holdings(b, first, (uint32_t)b->scratch.count);
	}
	return 0;
}

int unit_segments(struct unit_builder *b, size_t t, struct error *error)
{
	bool uniform;
	int rc = collect_sources(b, t, &uniform, error);

	if (!rc)
		rc = collect_scales(b, t, &uniform, error);
	b->segments.count = b->members.count = b->cells.count = 0;
	if (rc || b->sources.count == 0)
		return rc;
	if (!uniform)
		return sweep(b, t, error);
	/* gathered: all holders have the same rows, holdings come ascending */
	b->scratch.count = 0;
	for (size_t i = 0; i < b->sources.count; i++)
		if (!array_add(&b->scratch, b->sources.items[i].holding))
			return unit_no_memory(error);
	return add_segment(b, b->sources.items[0].lo, b->sources.items[0].hi, b->scratch.items,
			   (uint32_t)b->scratch.count, error);
}

/* The segment that has this row. */
size_t unit_segment_at(const struct unit_builder *b, uint64_t row)
{
	size_t behind = search_first(at, 0, b->segments.count, b->segments.items[at].lo > row);

	WEFT_ASSERT_OP(behind, >, 0);
	return behind - 1;
}
