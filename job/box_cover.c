/* SPDX-License-Identifier: Apache-2.0 */
#include "job/box_cover.h"

#include "base/compare.h"

struct level {
	size_t first; /* into cover->inside */
	size_t count;
	uint32_t dim;
};

/* Borders inside of the box's dimension, and its own two: cover->edges from *first on. */
static bool find_edges(struct box_cover *cover, const struct box *box, const struct level *level,
		       size_t *first)
{
	size_t kept;

	*first = kept = cover->edges.count;
	if (!array_add(&cover->edges, box->lo[level->dim]) ||
	    !array_add(&cover->edges, box->hi[level->dim]))
		return false;
	for (size_t i = 0; i < level->count; i++) {
		const struct box *other =
			&cover->boxes.items[cover->inside.items[level->first + i]];
		const uint64_t ends[2] = {other->lo[level->dim], other->hi[level->dim]};

		for (int e = 0; e < 2; e++)
			if (ends[e] > box->lo[level->dim] && ends[e] < box->hi[level->dim] &&
			    !array_add(&cover->edges, ends[e]))
				return false;
	}
	sort_items(cover->edges.items + *first, cover->edges.count - *first, compare_u64s);
	for (size_t i = *first; i < cover->edges.count; i++)
		if (i == *first || cover->edges.items[i] != cover->edges.items[kept - 1])
			cover->edges.items[kept++] = cover->edges.items[i];
	cover->edges.count = kept;
	return true;
}

/* Of the level's boxes those that have [lo, hi) of its dimension: the next level. */
static bool go_inside(struct box_cover *cover, const struct level *level, uint64_t lo, uint64_t hi,
		      struct level *next)
{
	*next = (struct level){cover->inside.count, 0, level->dim + 1};
	for (size_t i = 0; i < level->count; i++) {
		uint32_t b = cover->inside.items[level->first + i];
		const struct box *other = &cover->boxes.items[b];

		if (other->lo[level->dim] > lo || other->hi[level->dim] < hi)
			continue;
		if (!array_add(&cover->inside, b))
			return false;
		next->count++;
	}
	return true;
}

static int cover_level(struct box_cover *cover, const struct box *box, const struct level *level,
		       bool *covered, struct box *gap)
{
	size_t first, edges = cover->edges.count, inside = cover->inside.count;
	bool memory = find_edges(cover, box, level, &first);

	for (size_t e = first; memory && *covered && e + 1 < cover->edges.count; e++) {
		struct box part = *box;
		struct level next;

		part.lo[level->dim] = cover->edges.items[e];
		part.hi[level->dim] = cover->edges.items[e + 1];
		memory = go_inside(cover, level, part.lo[level->dim], part.hi[level->dim], &next);
		if (memory && !next.count) {
			*covered = false;
			*gap = part;
		} else if (memory && next.dim < box->dims) {
			memory = cover_level(cover, &part, &next, covered, gap) == 0;
		}
		cover->inside.count = inside;
	}
	cover->edges.count = edges;
	return memory ? 0 : -1;
}

int box_cover_all(struct box_cover *cover, const struct box *box, bool *covered, struct box *gap)
{
	struct level level = {0};
	struct box both;

	*covered = true;
	cover->inside.count = cover->edges.count = 0;
	for (size_t i = 0; i < cover->boxes.count; i++) {
		if (!box_intersect(&cover->boxes.items[i], box, &both))
			continue;
		if (!array_add(&cover->inside, (uint32_t)i))
			return -1;
		level.count++;
	}
	return cover_level(cover, box, &level, covered, gap);
}

void box_cover_fini(struct box_cover *cover)
{
	array_free(&cover->boxes);
	array_free(&cover->inside);
	array_free(&cover->edges);
}
