/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_cell.c -- a segment whose holders have not all of its rows' columns: the boxes that each of them has all or nothing of.
 * As rows are cut where any box of a tensor begins or ends, so is the second dimension among the boxes that are left, then the
 * third:
 *
 *   boxes    aaaaaaaaaaaa........          cells   [ a )[ a b )[ b )
 *            .....bbbbbbbbbbbbbbb
 *
 * Where shards do not overlap, which is how trainers cut, cells are the shards themselves.
 */
#include "routing/plan/unit_builder.h"

#include "base/assert.h"
#include "base/compare.h"
#include <inttypes.h>

/* Sources of one level, at b->inside.items[first ..]. */
struct level {
	size_t first;
	uint32_t count, dim;
};

static struct box box_of(const struct unit_builder *b, size_t t, uint32_t source)
{
	const struct unit_source *from = &b->sources.items[source];
	const struct problem_tensor *tensor = &b->problem->tensors[t];

	return from->box ? *from->box : box_whole(tensor->dims, tensor->shape);
}

static int add_cell(struct unit_builder *b, size_t t, const struct box *box,
		    const struct level *level, struct error *error)
{
	size_t first = b->members.count;

	if (b->cells.count == UNIT_CELLS_MAX)
		return error_set(
			error, ERROR_LIMIT,
			"tensor '%s' is cut into more than %u parts by the boxes that trainers hold",
			b->problem->tensors[t].name, UNIT_CELLS_MAX);
	for (uint32_t i = 0; i < level->count; i++)
		if (!array_add(&b->members, b->inside.items[level->first + i]))
			return unit_no_memory(error);
	if (!array_add(&b->cells, (struct unit_cell){.box = *box, .first = first}))
		return unit_no_memory(error);
	b->cells.items[b->cells.count - 1].count = unit_name_holdings(b, first, level->count);
	return 0;
}

/* Borders of the level's dimension, ascending, each once: b->edges from *first on. */
static int find_edges(struct unit_builder *b, size_t t, const struct level *level, size_t *first,
		      struct error *error)
{
	size_t kept;

	*first = kept = b->edges.count;
	for (uint32_t i = 0; i < level->count; i++) {
		struct box box = box_of(b, t, b->inside.items[level->first + i]);

		if (!array_add(&b->edges, box.lo[level->dim]) ||
		    !array_add(&b->edges, box.hi[level->dim]))
			return unit_no_memory(error);
	}
	sort_items(b->edges.items + *first, b->edges.count - *first, compare_u64s);
	for (size_t i = *first; i < b->edges.count; i++)
		if (i == *first || b->edges.items[i] != b->edges.items[kept - 1])
			b->edges.items[kept++] = b->edges.items[i];
	b->edges.count = kept;
	return 0;
}

static int cut_level(struct unit_builder *b, size_t t, struct box *box, const struct level *level,
		     struct error *error)
{
	size_t first, edges = b->edges.count, inside = b->inside.count;
	int rc = find_edges(b, t, level, &first, error);

	for (size_t e = first; !rc && e + 1 < b->edges.count; e++) {
		struct level next = {.first = b->inside.count, .dim = level->dim + 1};
		uint64_t lo = b->edges.items[e], hi = b->edges.items[e + 1];

		for (uint32_t i = 0; i < level->count; i++) {
			uint32_t source = b->inside.items[level->first + i];
			struct box of = box_of(b, t, source);

			if (of.lo[level->dim] > lo || of.hi[level->dim] < hi)
				continue;
			if (!array_add(&b->inside, source))
				return unit_no_memory(error);
			next.count++;
		}
		box->lo[level->dim] = lo;
		box->hi[level->dim] = hi;
		if (next.count)
			rc = next.dim == box->dims ? add_cell(b, t, box, &next, error)
						   : cut_level(b, t, box, &next, error);
		b->inside.count = inside;
	}
	b->edges.count = edges;
	return rc;
}

int unit_cells(struct unit_builder *b, size_t t, struct unit_segment *segment,
	       const uint32_t *sources, uint32_t count, struct error *error)
{
	const struct problem_tensor *tensor = &b->problem->tensors[t];
	struct box box = box_whole(tensor->dims, tensor->shape);
	struct level level = {.count = count, .dim = 1};
	bool whole = true;
	int rc;

	for (uint32_t i = 0; i < count; i++)
		whole = whole && !b->sources.items[sources[i]].box;
	if (whole)
		return 0;
	WEFT_ASSERT_OP(tensor->dims, >, 1); /* what has rows alone has whole ones */
	b->inside.count = b->edges.count = 0;
	for (uint32_t i = 0; i < count; i++)
		if (!array_add(&b->inside, sources[i]))
			return unit_no_memory(error);
	box.lo[0] = segment->lo;
	box.hi[0] = segment->hi;
	segment->cell_first = b->cells.count;
	rc = cut_level(b, t, &box, &level, error);
	segment->cell_count = (uint32_t)(b->cells.count - segment->cell_first);
	return rc;
}
