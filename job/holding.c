/* SPDX-License-Identifier: Apache-2.0 */
#include "job/holding.h"

#include "base/array.h"
#include "base/compare.h"

#include <inttypes.h>
#include <string.h>

#define BOX_TEXT_BYTES 160

void holding_init(struct holding *holding)
{
	*holding = (struct holding){0};
}

void holding_fini(struct holding *holding)
{
	memory_free(holding->tensors);
	memory_free(holding->locals);
	memory_free(holding->held);
	strmap_fini(&holding->tensor_names);
	strmap_fini(&holding->local_names);
	pool_free(&holding->names);
	holding_init(holding);
}

int64_t holding_add_tensor(struct holding *holding, const char *name, enum dtype dtype,
			   uint32_t dims, const uint64_t *shape, uint32_t order,
			   struct error *error)
{
	return named_add(NAMED_LIST(holding, tensor, "tensor", false), name, dtype, dims, shape,
			 order, error);
}

int64_t holding_add_local(struct holding *holding, const char *name, enum dtype dtype,
			  uint32_t dims, const uint64_t *shape, struct error *error)
{
	return named_add(NAMED_LIST(holding, local, "local parameter", true), name, dtype, dims,
			 shape, 0, error);
}

static int check_box(const struct holding *holding, uint32_t tensor, const struct box *box,
		     struct error *error)
{
	const struct tensor_info *info;
	char text[BOX_TEXT_BYTES], shape[BOX_TEXT_BYTES];

	if (tensor >= holding->tensor_count)
		return error_set(error, ERROR_CONFIG, "a holding names tensor %u of %zu", tensor,
				 holding->tensor_count);
	info = &holding->tensors[tensor];
	if (box->dims > BOX_DIMS_MAX)
		return error_set(error, ERROR_BOUNDS,
				 "a holding is a box of %u dimensions of tensor %s", box->dims,
				 info->name);
	if (!box_in_shape(box, info->dims, info->shape))
		return error_set(error, ERROR_BOUNDS,
				 "a holding, %s, is outside of tensor %s, which is %s",
				 box_text(box, text, sizeof(text)), info->name,
				 shape_text(info->dims, info->shape, shape, sizeof(shape)));
	return 0;
}

static int add(struct holding *holding, const struct held *held, struct error *error)
{
	struct held *added = array_push_raw((void **)&holding->held, &holding->held_count,
					    &holding->held_capacity, sizeof(*held));

	if (!added)
		return memory_error(error, "adding a holding", sizeof(*held));
	*added = *held;
	return 0;
}

int holding_add(struct holding *holding, uint32_t tensor, const struct box *box,
		struct error *error)
{
	struct held held = {.tensor = tensor, .local = HELD_OWN, .box = *box};
	int rc = check_box(holding, tensor, box, error);

	if (rc)
		return rc;
	held.place = placement_dense(box);
	return add(holding, &held, error);
}

/* Dimensions of more than one element, by stride, the shortest first. */
static uint32_t by_stride(const struct held *held, uint32_t sorted[BOX_DIMS_MAX])
{
	uint32_t count = 0;

	for (uint32_t d = 0; d < held->box.dims; d++) {
		uint32_t at = count;

		if (held->box.hi[d] - held->box.lo[d] == 1)
			continue;
		for (; at > 0 && held->place.stride[sorted[at - 1]] > held->place.stride[d]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = d;
		count++;
	}
	return count;
}

/* Elements that its inner `count` dimensions span, each of them at a place of its own; 0: not so. */
static uint64_t span(const struct held *held, const uint32_t *sorted, uint32_t count)
{
	uint64_t elements = 1;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t stride = held->place.stride[sorted[i]];

		if (stride < elements)
			return 0;
		elements += (held->box.hi[sorted[i]] - held->box.lo[sorted[i]] - 1) * stride;
	}
	return elements;
}

int holding_add_placed(struct holding *holding, const struct held *held, struct error *error)
{
	const struct tensor_info *tensor, *local;
	uint32_t sorted[BOX_DIMS_MAX];
	char text[BOX_TEXT_BYTES];
	uint64_t last;
	int rc = check_box(holding, held->tensor, &held->box, error);

	if (rc)
		return rc;
	if (held->local >= holding->local_count)
		return error_set(error, ERROR_CONFIG, "a holding names local parameter %u of %zu",
				 held->local, holding->local_count);
	tensor = &holding->tensors[held->tensor];
	local = &holding->locals[held->local];
	box_text(&held->box, text, sizeof(text));
	if (tensor->dtype != local->dtype)
		return error_set(
			error, ERROR_CONFLICT,
			"tensor %s is %s, and local parameter %s, which has %s of it, is %s",
			tensor->name, dtype_name(tensor->dtype), local->name, text,
			dtype_name(local->dtype));
	for (uint32_t d = 0; d < held->box.dims; d++)
		if (!held->place.stride[d])
			return error_set(
				error, ERROR_BOUNDS,
				"%s of tensor %s in local parameter %s has stride 0 in dimension "
				"%u; the least is 1",
				text, tensor->name, local->name, d);
	if (!placement_last(&held->place, &held->box, &last) ||
	    last >= local->bytes / dtype_bytes(local->dtype))
		return error_set(error, ERROR_BOUNDS,
				 "%s of tensor %s from element %" PRIu64
				 " on leaves local parameter %s, which has %" PRIu64 " elements",
				 text, tensor->name, held->place.offset, local->name,
				 local->bytes / dtype_bytes(local->dtype));
	if (!span(held, sorted, by_stride(held, sorted)))
		return error_set(
			error, ERROR_CONFLICT,
			"%s of tensor %s has two elements at one place of local parameter %s: "
			"its strides are too short",
			text, tensor->name, local->name);
	return add(holding, held, error);
}

/* ---- flat ranges ---- */

/* The largest box that begins at element `from` and ends at `to` or before: whole slices of the outermost dimension where it
 * begins at one. */
static struct box flat_box(const struct tensor_info *info, uint64_t from, uint64_t to)
{
	struct box box = {.dims = info->dims};
	uint64_t inner = 1, left = from;
	uint32_t d = info->dims - 1;

	/* the outermost dimension that it begins a slice of, and has one */
	while (d > 0 && from % (inner * info->shape[d]) == 0 && to - from >= inner * info->shape[d])
		inner *= info->shape[d--];
	for (uint32_t i = info->dims; i-- > d + 1;)
		box.hi[i] = info->shape[i];
	left = from / inner;
	box.lo[d] = left % info->shape[d];
	box.hi[d] = box.lo[d] + (to - from) / inner;
	if (box.hi[d] > info->shape[d])
		box.hi[d] = info->shape[d];
	left /= info->shape[d];
	for (uint32_t i = d; i-- > 0;) {
		box.lo[i] = left % info->shape[i];
		box.hi[i] = box.lo[i] + 1;
		left /= info->shape[i];
	}
	return box;
}

int holding_add_flat(struct holding *holding, uint32_t tensor, uint64_t from, uint64_t to,
		     uint32_t local, uint64_t offset, struct error *error)
{
	const struct tensor_info *info, *into;
	size_t before = holding->held_count;
	int rc = 0;

	if (tensor >= holding->tensor_count)
		return error_set(error, ERROR_CONFIG, "a holding names tensor %u of %zu", tensor,
				 holding->tensor_count);
	info = &holding->tensors[tensor];
	if (local >= holding->local_count)
		return error_set(error, ERROR_CONFIG, "a holding names local parameter %u of %zu",
				 local, holding->local_count);
	into = &holding->locals[local];
	if (from >= to || to > info->bytes / dtype_bytes(info->dtype))
		return error_set(error, ERROR_BOUNDS,
				 "elements %" PRIu64 "..%" PRIu64
				 " of tensor %s, which has %" PRIu64,
				 from, to, info->name, info->bytes / dtype_bytes(info->dtype));
	if (offset > into->bytes / dtype_bytes(into->dtype) ||
	    to - from > into->bytes / dtype_bytes(into->dtype) - offset)
		return error_set(error, ERROR_BOUNDS,
				 "elements %" PRIu64 "..%" PRIu64
				 " of tensor %s from element %" PRIu64
				 " on leave local parameter %s, which has %" PRIu64 " elements",
				 from, to, info->name, offset, into->name,
				 into->bytes / dtype_bytes(into->dtype));
	while (from < to && !rc) {
		struct held held = {
			.tensor = tensor, .local = local, .box = flat_box(info, from, to)};
		uint64_t elements = box_elements(&held.box);

		held.place = placement_dense(&held.box);
		held.place.offset = offset;
		rc = holding_add_placed(holding, &held, error);
		from += elements;
		offset += elements; /* of a box that has room: no overflow */
	}
	if (rc)
		holding->held_count = before; /* all of it, or nothing */
	return rc;
}

/* ---- finish ---- */

static int compare_held(const void *left, const void *right)
{
	const struct held *a = left, *b = right;

	return compare_u64(a->tensor, b->tensor) ?: box_compare(&a->box, &b->box);
}

/* Those before the one at hand that it may meet. */
struct abreast {
	const struct held *items[HELD_ABREAST_MAX];
	size_t count;
};

static int too_many(const struct holding *holding, const struct held *held, struct error *error)
{
	return error_set(
		error, ERROR_LIMIT,
		"more than %u boxes of tensor %s, or beside it in its memory, lie abreast of each other",
		HELD_ABREAST_MAX, holding->tensors[held->tensor].name);
}

static int check_tensors(const struct holding *holding, struct abreast *abreast,
			 struct error *error)
{
	for (size_t i = 0; i < holding->held_count; i++) {
		const struct held *held = &holding->held[i];
		size_t kept = 0;
		struct box both;
		char text[BOX_TEXT_BYTES];

		if (i >= HELD_OF_TENSOR_MAX && held[-HELD_OF_TENSOR_MAX].tensor == held->tensor)
			return error_set(error, ERROR_LIMIT,
					 "tensor %s is held in more than %d boxes",
					 holding->tensors[held->tensor].name, HELD_OF_TENSOR_MAX);

		for (size_t k = 0; k < abreast->count; k++) {
			const struct held *other = abreast->items[k];

			if (other->tensor != held->tensor || other->box.hi[0] <= held->box.lo[0])
				continue;
			if (box_intersect(&other->box, &held->box, &both))
				return error_set(error, ERROR_CONFLICT,
						 "%s of tensor %s is held twice",
						 box_text(&both, text, sizeof(text)),
						 holding->tensors[held->tensor].name);
			abreast->items[kept++] = other;
		}
		if (kept == HELD_ABREAST_MAX)
			return too_many(holding, held, error);
		abreast->items[kept++] = held;
		abreast->count = kept;
	}
	return 0;
}

static uint64_t last_of(const struct held *held)
{
	uint64_t last = 0;

	(void)placement_last(&held->place, &held->box, &last); /* holding_add_placed asked */
	return last;
}

/* Of memory as a table of `period` elements a row: the columns that it lies in, from *from on. */
static uint64_t columns_in(const struct held *held, uint64_t period, uint64_t *from)
{
	uint32_t sorted[BOX_DIMS_MAX], count = by_stride(held, sorted);

	if (count && held->place.stride[sorted[count - 1]] == period)
		count--;
	*from = held->place.offset % period;
	return span(held, sorted, count);
}

/* Do strides show that no element is of both? In a table as wide as the rows of one of them, they have columns of their own. */
static bool apart_in(const struct held *a, const struct held *b, uint64_t period)
{
	uint64_t from_a, from_b;
	uint64_t wide_a = columns_in(a, period, &from_a), wide_b = columns_in(b, period, &from_b);

	if (from_a + wide_a > period || from_b + wide_b > period)
		return false; /* one goes around */
	return from_a + wide_a <= from_b || from_b + wide_b <= from_a;
}

static uint64_t longest_stride(const struct held *held)
{
	uint32_t sorted[BOX_DIMS_MAX], count = by_stride(held, sorted);

	return count ? held->place.stride[sorted[count - 1]] : 1;
}

static bool apart(const struct held *a, const struct held *b)
{
	return apart_in(a, b, longest_stride(a)) || apart_in(a, b, longest_stride(b));
}

static int compare_places(const void *left, const void *right)
{
	const struct held *a = *(const struct held *const *)left,
			  *b = *(const struct held *const *)right;

	return compare_u64(a->local, b->local) ?: compare_u64(a->place.offset, b->place.offset) ?:
	       compare_held(a, b);
}

static int check_places(const struct holding *holding, const struct held *const *sorted,
			size_t count, struct abreast *abreast, struct error *error)
{
	abreast->count = 0;
	for (size_t i = 0; i < count; i++) {
		const struct held *held = sorted[i];
		size_t kept = 0;

		for (size_t k = 0; k < abreast->count; k++) {
			const struct held *other = abreast->items[k];

			if (other->local != held->local || last_of(other) < held->place.offset)
				continue;
			if (!apart(other, held))
				return error_set(
					error, ERROR_CONFLICT,
					"tensors %s and %s are given the same elements of local "
					"parameter %s, from element %" PRIu64
					" on, or their strides do not show that they are not",
					holding->tensors[other->tensor].name,
					holding->tensors[held->tensor].name,
					holding->locals[held->local].name, held->place.offset);
			abreast->items[kept++] = other;
		}
		if (kept == HELD_ABREAST_MAX)
			return too_many(holding, held, error);
		abreast->items[kept++] = held;
		abreast->count = kept;
	}
	return 0;
}

int holding_finish(struct holding *holding, struct error *error)
{
	struct abreast *abreast = memory_zalloc(1, sizeof(*abreast));
	const struct held **sorted = memory_zalloc(holding->held_count, sizeof(*sorted));
	size_t placed = 0;
	int rc;

	sort_items(holding->held, holding->held_count, compare_held);
	if (!abreast || !sorted) {
		rc = memory_error(error, "checking a holding",
				  holding->held_count * sizeof(*sorted));
	} else {
		for (size_t i = 0; i < holding->held_count; i++)
			if (holding->held[i].local != HELD_OWN)
				sorted[placed++] = &holding->held[i];
		sort_items(sorted, placed, compare_places);
		rc = check_tensors(holding, abreast, error);
		if (!rc)
			rc = check_places(holding, sorted, placed, abreast, error);
	}
	memory_free(abreast);
	memory_free(sorted);
	return rc;
}

const struct held *holding_find(const struct holding *holding, uint32_t tensor,
				const struct box *box)
{
	size_t i = search_first(at, 0, holding->held_count, holding->held[at].tensor >= tensor);

	for (; i < holding->held_count && holding->held[i].tensor == tensor; i++)
		if (box_within(box, &holding->held[i].box))
			return &holding->held[i];
	return NULL;
}

/* Boxes of their own memory as they always were: that they are is what nothing behind them says. */
struct digest holding_digest(const struct holding *holding)
{
	struct digest_stream stream;

	digest_begin(&stream);
	digest_add_string(&stream, "holding/1");
	digest_add_u64(&stream, holding->tensor_count);
	for (size_t i = 0; i < holding->tensor_count; i++) {
		tensor_info_digest(&stream, &holding->tensors[i]);
		digest_add_u64(&stream, holding->tensors[i].order);
	}
	digest_add_u64(&stream, holding->held_count);
	for (size_t i = 0; i < holding->held_count; i++) {
		const struct held *held = &holding->held[i];

		digest_add_u64(&stream, held->tensor);
		for (uint32_t d = 0; d < held->box.dims; d++) {
			digest_add_u64(&stream, held->box.lo[d]);
			digest_add_u64(&stream, held->box.hi[d]);
		}
		if (held->local == HELD_OWN)
			continue;
		digest_add_u64(&stream, UINT64_MAX); /* no tensor's number */
		digest_add_u64(&stream, held->local);
		digest_add_u64(&stream, held->place.offset);
		for (uint32_t d = 0; d < held->box.dims; d++)
			digest_add_u64(&stream, held->place.stride[d]);
	}
	if (holding->local_count) {
		digest_add_u64(&stream, holding->local_count);
		for (size_t i = 0; i < holding->local_count; i++)
			tensor_info_digest(&stream, &holding->locals[i]);
	}
	return digest_end(&stream);
}
