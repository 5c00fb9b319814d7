/* SPDX-License-Identifier: Apache-2.0
 *
 * problem_transformed.c -- numbers the ways in which each tensor is transformed, so that "the same
 * bytes" is a comparison of two numbers wherever routes are grouped. A tensor's numbers follow each
 * other.
 */
#include "routing/plan/problem.h"

#include "base/array.h"

struct list {
	ARRAY(struct problem_transformed) items;
};

static bool copied(const struct problem *problem, const struct problem_layout *layout, size_t p)
{
	const struct piece *piece = &layout->pieces[p];

	return transform_plain(&piece->transform) &&
	       layout->layout->params[piece->param].dtype == problem->tensors[piece->tensor].dtype;
}

static bool same(const struct problem_transformed *a, const struct problem_transformed *b)
{
	return transform_equal(&a->transform, &b->transform) && a->scales == b->scales &&
	       a->to == b->to;
}

/* The number of a way that is no copy; `first` is the tensor's first. */
static int number(struct list *list, size_t first, const struct problem_transformed *transformed,
		  uint32_t *out, struct error *error)
{
	for (size_t i = first; i < list->items.count; i++) {
		if (same(&list->items.items[i], transformed)) {
			*out = (uint32_t)i;
			return 0;
		}
	}
	if (!array_add(&list->items, *transformed))
		return memory_error(error, "listing how tensors are transformed",
				    sizeof(*transformed));
	*out = (uint32_t)list->items.count - 1;
	return 0;
}

static int number_tensor(struct list *list, struct problem *problem, size_t t, struct error *error)
{
	size_t first = list->items.count;

	for (size_t l = 0; l < problem->layout_count; l++) {
		struct problem_layout *layout = &problem->layouts[l];

		for (uint32_t p = layout->pieces_of[t]; p < layout->pieces_of[t + 1]; p++) {
			const struct piece *piece = &layout->pieces[p];
			enum dtype to = layout->layout->params[piece->param].dtype;
			const struct problem_transformed transformed = {piece->transform,
									piece->scales, to};
			int rc;

			if (copied(problem, layout, p))
				continue;
			rc = number(list, first, &transformed, &layout->transformed[p], error);
			if (rc)
				return rc;
		}
	}
	return 0;
}

int problem_find_transformed(struct problem *problem, struct error *error)
{
	struct list list = {0};
	const struct problem_transformed *copy = array_push(&list.items);
	bool all_copied = true;
	int rc = 0;

	if (!copy)
		return memory_error(error, "listing how tensors are transformed", sizeof(*copy));
	for (size_t l = 0; l < problem->layout_count; l++) {
		struct problem_layout *layout = &problem->layouts[l];

		layout->transformed = pool_array(&problem->pool, layout->piece_count,
						 sizeof(*layout->transformed));
		if (!layout->transformed)
			rc = memory_error(error, "listing how tensors are transformed",
					  layout->piece_count);
		for (size_t p = 0; all_copied && p < layout->piece_count; p++)
			all_copied = copied(problem, layout, p);
	}
	for (size_t t = 0; !rc && !all_copied && t < problem->tensor_count; t++)
		rc = number_tensor(&list, problem, t, error);
	problem->transformed = list.items.items; /* problem_free's from here */
	problem->transformed_count = list.items.count;
	return rc;
}
