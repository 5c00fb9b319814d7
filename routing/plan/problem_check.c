/* SPDX-License-Identifier: Apache-2.0
 *
 * problem_check.c -- for each tensor the union of all held rows; every piece must lie inside.
 *
 *   held     [0 ......... 4)      [6 ...... 9)
 *   wanted         [2 ............... 7)        gap: rows 4..6
 */
#include "routing/plan/problem.h"

#include "base/array.h"
#include "base/compare.h"
#include "job/box_cover.h"
#include <inttypes.h>

struct rows {
	uint64_t lo, hi;
};

struct ranges {
	ARRAY(struct rows) list;
	struct box_cover boxes; /* where shards are no whole rows */
};

static int by_low(const void *x, const void *y)
{
	const struct rows *a = x, *b = y;

	return compare_u64(a->lo, b->lo) ?: compare_u64(a->hi, b->hi);
}

/* Disjoint ascending ranges of everything held of tensor t; and its boxes, where they are not all whole rows. */
static int held_union(struct ranges *ranges, const struct problem *problem, size_t t,
		      struct error *error)
{
	uint64_t rows = problem->tensors[t].shape[0];
	size_t out = 0;
	bool whole = true;

	ranges->list.count = ranges->boxes.boxes.count = 0;
	for (size_t h = 0; h < problem->holding_count; h++) {
		const struct problem_holding *holding = &problem->holdings[h];

		for (uint32_t i = holding->held_of[t]; i < holding->held_of[t + 1]; i++) {
			const struct box *box = &holding->held[i].box;
			struct rows *range = array_push(&ranges->list);

			if (!range || !array_add(&ranges->boxes.boxes, *box))
				return memory_error(error, "checking sources", sizeof(*range));
			*range = (struct rows){box->lo[0], box->hi[0]};
			if (!box_whole_rows(box, problem->tensors[t].shape))
				whole = false;
			else if (range->lo == 0 && range->hi == rows) {
				/* whole: nothing can be missing */
				ranges->list.items[0] = *range;
				ranges->list.count = 1;
				ranges->boxes.boxes.count = 0;
				return 0;
			}
		}
	}
	struct rows *items = ranges->list.items;

	if (whole)
		ranges->boxes.boxes.count = 0;
	if (ranges->list.count == 0)
		return 0;
	sort_items(items, ranges->list.count, by_low);
	for (size_t i = 1; i < ranges->list.count; i++) {
		if (items[i].lo <= items[out].hi) {
			if (items[i].hi > items[out].hi)
				items[out].hi = items[i].hi;
		} else {
			items[++out] = items[i];
		}
	}
	ranges->list.count = out + 1;
	return 0;
}

/* First missing rows of [lo, hi), if any. */
static bool find_gap(const struct ranges *ranges, uint64_t lo, uint64_t hi, struct rows *gap)
{
	const struct rows *items = ranges->list.items;
	size_t from = search_first(at, 0, ranges->list.count, items[at].hi > lo);

	gap->lo = lo;
	gap->hi = hi;
	if (from < ranges->list.count && items[from].lo <= lo) {
		if (items[from].hi >= hi)
			return false;
		gap->lo = items[from++].hi;
	}
	if (from < ranges->list.count && items[from].lo < hi)
		gap->hi = items[from].lo;
	return true;
}

static uint64_t distance(const struct rows *a, const struct rows *b)
{
	if (a->hi <= b->lo)
		return b->lo - a->hi;
	return a->lo >= b->hi ? a->lo - b->hi : 0;
}

static int unsourced(const struct problem *problem, const struct problem_layout *layout,
		     const struct piece *piece, uint32_t inference, const struct rows *gap,
		     const uint32_t *holding_first, struct error *error)
{
	const char *param = layout->layout->params[piece->param].name;
	const struct problem_tensor *tensor = &problem->tensors[piece->tensor];
	uint64_t closest = UINT64_MAX;
	struct rows near = {0, 0};
	uint32_t who = 0;

	for (size_t h = 0; h < problem->holding_count; h++) {
		const struct problem_holding *holding = &problem->holdings[h];

		for (uint32_t i = holding->held_of[piece->tensor];
		     i < holding->held_of[piece->tensor + 1]; i++) {
			const struct rows here = {holding->held[i].box.lo[0],
						  holding->held[i].box.hi[0]};
			uint64_t away = distance(&here, gap);

			if (away < closest) {
				closest = away;
				near = here;
				who = holding_first[h];
			}
		}
	}
	if (closest == UINT64_MAX)
		return error_set(error, ERROR_UNSOURCED,
				 "parameter '%s' of inference %" PRIu32 " needs rows %" PRIu64
				 "..%" PRIu64 " of tensor '%s', and no trainer holds any row of "
				 "it",
				 param, inference, gap->lo, gap->hi, tensor->name);
	return error_set(error, ERROR_UNSOURCED,
			 "parameter '%s' of inference %" PRIu32 " needs rows %" PRIu64 "..%" PRIu64
			 " of tensor '%s' (%" PRIu64
			 " rows), and no trainer holds them; the closest is trainer %" PRIu32
			 " with rows %" PRIu64 "..%" PRIu64,
			 param, inference, gap->lo, gap->hi, tensor->name, tensor->shape[0], who,
			 near.lo, near.hi);
}

/* Rows are there; are all columns that the piece needs? */
static int check_boxes(struct ranges *ranges, const struct problem *problem,
		       const struct problem_layout *layout, const struct piece *piece,
		       uint32_t inference, struct error *error)
{
	char need[160], text[160];
	struct box gap;
	bool covered;

	if (!ranges->boxes.boxes.count)
		return 0;
	if (box_cover_all(&ranges->boxes, &piece->src, &covered, &gap))
		return memory_error(error, "checking sources", sizeof(gap));
	if (covered)
		return 0;
	return error_set(error, ERROR_UNSOURCED,
			 "parameter '%s' of inference %" PRIu32
			 " needs %s of tensor '%s', and no trainer holds %s of "
			 "it",
			 layout->layout->params[piece->param].name, inference,
			 box_text(&piece->src, need, sizeof(need)),
			 problem->tensors[piece->tensor].name, box_text(&gap, text, sizeof(text)));
}

int problem_check(const struct problem *problem, const uint32_t *layout_first,
		  const uint32_t *holding_first, struct error *error)
{
	struct ranges ranges = {0};
	struct rows gap;
	int rc = 0;

	for (size_t t = 0; !rc && t < problem->tensor_count; t++) {
		rc = held_union(&ranges, problem, t, error);
		for (size_t l = 0; !rc && l < problem->layout_count; l++) {
			const struct problem_layout *layout = &problem->layouts[l];

			for (uint32_t i = layout->pieces_of[t]; i < layout->pieces_of[t + 1]; i++) {
				const struct piece *piece = &layout->pieces[i];

				if (!find_gap(&ranges, piece->src.lo[0], piece->src.hi[0], &gap)) {
					rc = check_boxes(&ranges, problem, layout, piece,
							 layout_first[l], error);
					if (rc)
						break;
					continue;
				}
				rc = unsourced(problem, layout, piece, layout_first[l], &gap,
					       holding_first, error);
				break;
			}
		}
	}
	array_free(&ranges.list);
	box_cover_fini(&ranges.boxes);
	return rc;
}
