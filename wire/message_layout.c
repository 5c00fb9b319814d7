/* SPDX-License-Identifier: Apache-2.0
 *
 * message_layout.c -- the two bodies: what an inference rank needs, what a trainer holds.
 *
 *   layout   {"digest":bin16, "layout":[tensors, params, pieces, fills]}
 *     tensors  [[name, dtype, [d0, d1, ..]], ..]        pieces and fills name tensors and
 *     params   [[name, dtype, [d0, d1, ..]], ..]        params by their place in these lists
 *     pieces   [[tensor, param, [lo0, hi0, lo1, hi1, ..], offset, bytes], ..]
 *              and where it is more than a copy or a conversion: [.., bytes, transform, scales]
 *     transform [part, from_rows, from_columns, to_rows, to_columns]
 *     fills    [[param, offset, bytes], ..]
 *
 *   holding  {"digest":bin16, "holding":[tensors, locals, held]}
 *     tensors  [[name, dtype, [d0, d1, ..], order], ..]
 *     locals   [[name, dtype, [d0, d1, ..]], ..]        the trainer's own parameters
 *     held     [[tensor, [lo0, hi0, ..]], ..]           memory of its own, or, in one of those:
 *              [tensor, [lo0, hi0, ..], local, offset, [stride0, ..]]
 *
 * Arrays, because a body has one item a piece: about 25 bytes each, where maps take 60. The
 * order inside is fixed, so tensors and params stand before the pieces that point at them, and
 * every item goes straight through layout_add_*: there is no second, laxer way to a layout.
 */
#include "wire/message_parts.h"

static int keep_order(int64_t index, size_t place, const char *name, struct error *error)
{
	if (index < 0)
		return (int)index;
	if ((size_t)index != place)
		return error_set(error, ERROR_MESSAGE, "tensor %s stands here a second time", name);
	return 0;
}

static int add_layout_tensor(void *owner, const void *item, size_t place, struct error *error)
{
	const struct tensor_info *tensor = item;

	return keep_order(layout_add_tensor(owner, tensor->name, tensor->dtype, tensor->dims,
					    tensor->shape, error),
			  place, tensor->name, error);
}

static int add_param(void *owner, const void *item, size_t place, struct error *error)
{
	const struct tensor_info *param = item;
	int64_t index = layout_add_param(owner, param->name, param->dtype, param->dims,
					 param->shape, error);

	(void)place; /* a second parameter of a name is refused, so places agree */
	return index < 0 ? (int)index : 0;
}

static int add_piece(void *owner, const void *item, size_t place, struct error *error)
{
	return layout_add_piece(owner, item, error);
}

static int add_fill(void *owner, const void *item, size_t place, struct error *error)
{
	return layout_add_fill(owner, item, error);
}

static int add_holding_tensor(void *owner, const void *item, size_t place, struct error *error)
{
	const struct tensor_info *tensor = item;

	return keep_order(holding_add_tensor(owner, tensor->name, tensor->dtype, tensor->dims,
					     tensor->shape, tensor->order, error),
			  place, tensor->name, error);
}

static int add_local(void *owner, const void *item, size_t place, struct error *error)
{
	const struct tensor_info *local = item;
	int64_t index = holding_add_local(owner, local->name, local->dtype, local->dims,
					  local->shape, error);

	(void)place; /* a second one of a name is refused, so places agree */
	return index < 0 ? (int)index : 0;
}

/* Without the last three fields they are zero, which no stride is. */
static int add_held(void *owner, const void *item, size_t place, struct error *error)
{
	const struct held *held = item;

	return held->local == HELD_OWN || !held->place.stride[0]
		       ? holding_add(owner, held->tensor, &held->box, error)
		       : holding_add_placed(owner, held, error);
}

static int finish_layout(void *item, struct error *error)
{
	return layout_finish(item, error);
}

static void free_layout(void *item)
{
	layout_fini(item);
}

static int finish_holding(void *item, struct error *error)
{
	return holding_finish(item, error);
}

static void free_holding(void *item)
{
	holding_fini(item);
}

static const struct codec_field tensor_fields[] = {
	FIELD_TEXT(struct tensor_info, name, LIMIT_NAME_BYTES),
	FIELD_DTYPE(struct tensor_info, dtype), FIELD_SHAPE(struct tensor_info, shape, dims),
	FIELD_U32(struct tensor_info, order, UINT32_MAX), /* holdings only */
};
static const struct codec_record plain_tensor_record = {
	.size = sizeof(struct tensor_info), .fields = tensor_fields, .field_count = 3};
static const struct codec_record holding_tensor_record = {
	CODEC_RECORD_OF(struct tensor_info, tensor_fields)};

_Static_assert(TRANSFORM_VALUES == 0 && TRANSFORM_SCALES == 1 && TRANSFORM_TRANSPOSED == 2 &&
		       TRANSFORM_PADDED == 3 && TRANSFORM_PART_COUNT == 4,
	       "part on the wire");

static const struct codec_field transform_fields[] = {
	FIELD_U32(struct transform, part, TRANSFORM_PART_COUNT - 1),
	FIELD_U32(struct transform, from_rows, TRANSFORM_BLOCK_MAX),
	FIELD_U32(struct transform, from_columns, TRANSFORM_BLOCK_MAX),
	FIELD_U32(struct transform, to_rows, TRANSFORM_BLOCK_MAX),
	FIELD_U32(struct transform, to_columns, TRANSFORM_BLOCK_MAX),
};
const struct codec_record message_transform_record = {
	CODEC_RECORD_OF(struct transform, transform_fields)};

static bool piece_is_transformed(const void *item)
{
	static const struct transform copy;
	const struct piece *piece = item;

	return !transform_equal(&piece->transform, &copy) || piece->scales;
}

static const struct codec_field piece_fields[] = {
	FIELD_U32(struct piece, tensor, LIMIT_TENSORS - 1),
	FIELD_U32(struct piece, param, LIMIT_PARAMS - 1),
	FIELD_BOX(struct piece, src),
	FIELD_U64(struct piece, offset),
	FIELD_U64(struct piece, bytes),
	FIELD_RECORD(struct piece, transform, struct transform, message_transform_record),
	FIELD_U32(struct piece, scales, LIMIT_TENSORS - 1),
};
static const struct codec_record piece_record = {CODEC_RECORD_OF(struct piece, piece_fields),
						 .tail = 2, .has_tail = piece_is_transformed};

static const struct codec_field fill_fields[] = {
	FIELD_U32(struct fill, param, LIMIT_PARAMS - 1),
	FIELD_U64(struct fill, offset),
	FIELD_U64(struct fill, bytes),
};
static const struct codec_record fill_record = {CODEC_RECORD_OF(struct fill, fill_fields)};

static bool held_is_placed(const void *item)
{
	const struct held *held = item;

	return held->local != HELD_OWN;
}

static const struct codec_field held_fields[] = {
	FIELD_U32(struct held, tensor, LIMIT_TENSORS - 1), FIELD_BOX(struct held, box),
	FIELD_U32(struct held, local, LIMIT_PARAMS - 1),   FIELD_U64(struct held, place.offset),
	FIELD_SHAPE(struct held, place.stride, box.dims),
};
static const struct codec_record held_record = {CODEC_RECORD_OF(struct held, held_fields),
						.tail = 3, .has_tail = held_is_placed};

static const struct codec_field layout_fields[] = {
	FIELD_ADDED_LIST(struct layout, tensors, tensor_count, struct tensor_info,
			 plain_tensor_record, LIMIT_TENSORS, add_layout_tensor),
	FIELD_ADDED_LIST(struct layout, params, param_count, struct tensor_info,
			 plain_tensor_record, LIMIT_PARAMS, add_param),
	FIELD_ADDED_LIST(struct layout, pieces, piece_count, struct piece, piece_record,
			 LIMIT_PIECES, add_piece),
	FIELD_ADDED_LIST(struct layout, fills, fill_count, struct fill, fill_record, LIMIT_PIECES,
			 add_fill),
};
static const struct codec_record layout_record = {CODEC_RECORD_OF(struct layout, layout_fields),
						  .finish = finish_layout, .fini = free_layout};

static const struct codec_field holding_fields[] = {
	FIELD_ADDED_LIST(struct holding, tensors, tensor_count, struct tensor_info,
			 holding_tensor_record, LIMIT_TENSORS, add_holding_tensor),
	FIELD_ADDED_LIST(struct holding, locals, local_count, struct tensor_info,
			 plain_tensor_record, LIMIT_PARAMS, add_local),
	FIELD_ADDED_LIST(struct holding, held, held_count, struct held, held_record, LIMIT_PIECES,
			 add_held),
};
static const struct codec_record holding_record = {CODEC_RECORD_OF(struct holding, holding_fields),
						   .finish = finish_holding, .fini = free_holding};

static const struct codec_field layout_message_fields[] = {
	FIELD_DIGEST(struct message_layout, digest),
	FIELD_RECORD(struct message_layout, layout, struct layout, layout_record),
};
const struct codec_record message_layout_record = {
	CODEC_RECORD_OF(struct message_layout, layout_message_fields)};

static const struct codec_field holding_message_fields[] = {
	FIELD_DIGEST(struct message_holding, digest),
	FIELD_RECORD(struct message_holding, holding, struct holding, holding_record),
};
const struct codec_record message_holding_record = {
	CODEC_RECORD_OF(struct message_holding, holding_message_fields)};

static int same_digest(struct digest said, struct digest is, const char *what, struct error *error)
{
	char a[DIGEST_TEXT_BYTES], b[DIGEST_TEXT_BYTES];

	if (digest_equal(said, is))
		return 0;
	return error_set(error, ERROR_MESSAGE, "digest is %s, and the %s beside it has %s",
			 digest_text(said, a), what, digest_text(is, b));
}

int message_layout_check(const void *body, struct error *error)
{
	const struct message_layout *message = body;

	return same_digest(message->digest, layout_digest(&message->layout), "layout", error);
}

int message_holding_check(const void *body, struct error *error)
{
	const struct message_holding *message = body;

	return same_digest(message->digest, holding_digest(&message->holding), "holding", error);
}
