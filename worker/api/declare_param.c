/* SPDX-License-Identifier: Apache-2.0
 *
 * declare_param.c -- what an inference rank needs: parameters, pieces, padding.
 */
#include "worker/api/abi.h"
#include "worker/api/worker.h"

#include <string.h>

/* At least `bytes` of the host program's memory for the parameter. */
static int take_memory(const struct weft_worker *worker, const char *call, const char *name,
		       uint64_t bytes, const weft_memory *given, weft_memory *memory,
		       struct error *error)
{
	int rc = worker_take_memory(worker, call, given, memory, error);

	if (rc)
		return rc;
	if (memory->pointer && memory->bytes >= bytes)
		return transport_memory_check(memory->pointer, bytes, error)
			       ? error_wrap(error, "%s: parameter %s", call, name)
			       : 0;
	return error_set(error, ERROR_USAGE, "%s: parameter %s needs %llu bytes, given %llu%s",
			 call, name, (unsigned long long)bytes, (unsigned long long)memory->bytes,
			 memory->pointer ? "" : " at NULL");
}

static int declare_param(struct weft_worker *worker, const weft_param *param, uint32_t *id,
			 struct error *error)
{
	weft_memory memory = {0};
	enum dtype dtype;
	uint64_t bytes;
	int64_t index;
	int rc;

	rc = declare_check_shape("parameter", param->name, param->dtype, param->dims, &dtype,
				 error);
	if (rc)
		return rc;
	if (param->memory && !worker->own_memory)
		return error_set(error, ERROR_USAGE,
				 "parameter %s has memory, but the worker was "
				 "opened without own_memory",
				 param->name);
	/* a shape that has no size is refused below */
	if (param->memory && shape_bytes(param->dims, param->shape, dtype_bytes(dtype), &bytes)) {
		rc = take_memory(worker, "weft_declare_param", param->name, bytes, param->memory,
				 &memory, error);
		if (rc)
			return rc;
	}
	index = layout_add_param(&worker->layout, param->name, dtype, param->dims, param->shape,
				 error);
	if (index < 0)
		return (int)index;
	if (worker->own_memory)
		rc = declare_set_memory(worker, (uint32_t)index, memory.pointer, error);
	if (!rc && id)
		*id = (uint32_t)index;
	return rc;
}

int weft_declare_param(weft_worker *worker, const weft_param *param, uint32_t *id,
		       weft_error *error)
{
	struct error inner;
	weft_param taken;
	int rc = worker_may_declare(worker, ROLE_INFERENCE, "weft_declare_param", &inner);

	if (!rc)
		rc = abi_take(ABI_PARAM, "weft_declare_param", param, &taken, &inner);
	if (!rc)
		rc = declare_param(worker, &taken, id, &inner);
	return worker_answer(worker, rc, &inner, error);
}

int weft_param_bind(weft_worker *worker, uint32_t id, const weft_memory *memory, weft_error *error)
{
	struct error inner;
	weft_memory taken;
	int rc = worker_may_declare(worker, ROLE_INFERENCE, "weft_param_bind", &inner);

	if (!rc && !worker->own_memory)
		rc = error_set(&inner, ERROR_STATE,
			       "weft_param_bind: the worker was opened without own_memory");
	if (!rc)
		rc = worker_check_id("weft_param_bind", "parameter", id, worker->layout.param_count,
				     &inner);
	if (!rc)
		rc = take_memory(worker, "weft_param_bind", worker->layout.params[id].name,
				 worker->layout.params[id].bytes, memory, &taken, &inner);
	if (!rc)
		rc = declare_set_memory(worker, id, taken.pointer, &inner);
	return worker_answer(worker, rc, &inner, error);
}

/* A tensor that the layout needs, as a host gives it. */
static int need_tensor(struct weft_worker *worker, const weft_tensor *tensor, uint32_t *id,
		       struct error *error)
{
	enum dtype dtype = DTYPE_NONE;
	int64_t index = declare_check_shape("tensor", tensor->name, tensor->dtype, tensor->dims,
					    &dtype, error);

	if (index >= 0)
		index = layout_add_tensor(&worker->layout, tensor->name, dtype, tensor->dims,
					  tensor->shape, error);
	*id = (uint32_t)index;
	return index < 0 ? (int)index : 0;
}

/* What can be wrong before a tensor is noted: a refused piece leaves nothing behind that the right
 * one would contradict. */
static int check_transformed(const struct transform *transform, const weft_tensor *tensor,
			     const weft_tensor *scales, struct error *error)
{
	static const char call[] = "weft_declare_transformed_piece";
	uint64_t rows, columns;

	if (!transform_valid(transform) && transform->part > TRANSFORM_SCALES)
		return error_set(error, ERROR_USAGE,
				 "%s: tensor %s: order %s with blocks of %ux%u to %ux%u: what is "
				 "transposed has none, and padded rows are to_columns elements (1 "
				 "to %u) with to_rows 0",
				 call, tensor->name,
				 transform->part == TRANSFORM_PADDED ? "WEFT_PADDED_ROWS"
								     : "WEFT_TRANSPOSED",
				 transform->from_rows, transform->from_columns, transform->to_rows,
				 transform->to_columns, TRANSFORM_BLOCK_MAX);
	if (!transform_valid(transform))
		return error_set(error, ERROR_USAGE,
				 "%s: tensor %s: blocks of %ux%u to %ux%u%s: rows and columns of a "
				 "block are both 0 or both 1 to %u, and scales need a block",
				 call, tensor->name, transform->from_rows, transform->from_columns,
				 transform->to_rows, transform->to_columns,
				 transform->part == TRANSFORM_SCALES ? ", the scales" : "",
				 TRANSFORM_BLOCK_MAX);
	if (!transform->from_rows && scales)
		return error_set(error, ERROR_USAGE,
				 "%s: tensor %s is not in blocks (from 0x0) but is given a tensor "
				 "of scales; pass NULL, or the block",
				 call, tensor->name);
	if (transform->from_rows && !scales)
		return error_set(error, ERROR_USAGE,
				 "%s: tensor %s has blocks of %ux%u and no tensor of scales; the "
				 "one needs the other",
				 call, tensor->name, transform->from_rows, transform->from_columns);
	if (!scales || tensor->dims != 2)
		return 0;
	rows = (tensor->shape[0] + transform->from_rows - 1) / transform->from_rows;
	columns = (tensor->shape[1] + transform->from_columns - 1) / transform->from_columns;
	if (scales->name && scales->dtype && !strcmp(scales->dtype, "F32") && scales->dims == 2 &&
	    scales->shape[0] == rows && scales->shape[1] == columns)
		return 0;
	return error_set(error, ERROR_CONFIG,
			 "%s: the scales of tensor %s [%llu, %llu] in blocks of %ux%u are F32 "
			 "[%llu, %llu]; given is %s %s of %u dimensions [%llu, %llu, ..]",
			 call, tensor->name, (unsigned long long)tensor->shape[0],
			 (unsigned long long)tensor->shape[1], transform->from_rows,
			 transform->from_columns, (unsigned long long)rows,
			 (unsigned long long)columns, scales->name ? scales->name : "(NULL)",
			 scales->dtype ? scales->dtype : "(NULL)", scales->dims,
			 (unsigned long long)scales->shape[0],
			 (unsigned long long)scales->shape[1]);
}

static int declare_transformed(struct weft_worker *worker, struct piece *piece,
			       const weft_tensor *tensor, const weft_tensor *scales,
			       struct error *error)
{
	int rc = check_transformed(&piece->transform, tensor, scales, error);

	if (!rc)
		rc = need_tensor(worker, tensor, &piece->tensor, error);
	if (!rc && scales)
		rc = need_tensor(worker, scales, &piece->scales, error);
	if (rc)
		return rc;
	if (!transform_bytes(&piece->transform, &piece->src, tensor->dims, tensor->shape,
			     worker->layout.params[piece->param].dtype, &piece->bytes))
		piece->bytes = 1; /* layout_add_piece says why it has none */
	return layout_add_piece(&worker->layout, piece, error);
}

static int declare_piece(struct weft_worker *worker, const char *call, const weft_tensor *tensor,
			 const uint64_t *src_lo, const uint64_t *src_hi, struct piece *piece,
			 const weft_tensor *scales, struct error *error)
{
	enum dtype dtype;
	int rc = declare_check_shape("tensor", tensor->name, tensor->dtype, tensor->dims, &dtype,
				     error);

	if (rc)
		return rc;
	if (piece->param >= worker->layout.param_count)
		return error_set(error, ERROR_USAGE,
				 "%s: parameter %u for tensor %s; %zu are declared", call,
				 piece->param, tensor->name, worker->layout.param_count);
	piece->src.dims = tensor->dims;
	memcpy(piece->src.lo, src_lo, tensor->dims * sizeof(*src_lo));
	memcpy(piece->src.hi, src_hi, tensor->dims * sizeof(*src_hi));
	if (!box_in_shape(&piece->src, tensor->dims, tensor->shape)) {
		char text[128];

		return error_set(error, ERROR_USAGE,
				 "tensor %s: the box %s is empty or not inside "
				 "the tensor",
				 tensor->name, box_text(&piece->src, text, sizeof(text)));
	}
	return declare_transformed(worker, piece, tensor, scales, error);
}

/* The caller's structs, then the piece. */
static int take_piece(struct weft_worker *worker, const char *call, const weft_tensor *tensor,
		      const uint64_t *src_lo, const uint64_t *src_hi, struct piece *piece,
		      const weft_tensor *scales, struct error *error)
{
	weft_tensor taken, taken_scales;
	int rc = worker_may_declare(worker, ROLE_INFERENCE, call, error);

	if (rc)
		return rc;
	if (!tensor || !src_lo || !src_hi)
		return error_set(error, ERROR_USAGE, "%s: tensor, src_lo or src_hi is NULL", call);
	rc = abi_take(ABI_TENSOR, call, tensor, &taken, error);
	if (!rc && scales)
		rc = abi_take(ABI_TENSOR, call, scales, &taken_scales, error);
	return rc ? rc
		  : declare_piece(worker, call, &taken, src_lo, src_hi, piece,
				  scales ? &taken_scales : NULL, error);
}

int weft_declare_piece(weft_worker *worker, const weft_tensor *tensor, const uint64_t *src_lo,
		       const uint64_t *src_hi, uint32_t param, uint64_t offset, weft_error *error)
{
	struct piece piece = {.param = param, .offset = offset};
	struct error inner;
	int rc = take_piece(worker, "weft_declare_piece", tensor, src_lo, src_hi, &piece, NULL,
			    &inner);

	return worker_answer(worker, rc, &inner, error);
}

static int part_of(const weft_transform *taken, struct transform *transform, struct error *error)
{
	static const enum transform_part parts[] = {TRANSFORM_VALUES, TRANSFORM_TRANSPOSED,
						    TRANSFORM_PADDED};

	*transform = (struct transform){TRANSFORM_SCALES, taken->from_rows, taken->from_columns,
					taken->to_rows, taken->to_columns};
	if (taken->order >= sizeof(parts) / sizeof(*parts))
		return error_set(error, ERROR_USAGE,
				 "weft_declare_transformed_piece: order %u; WEFT_AS_IT_LIES (0), "
				 "WEFT_TRANSPOSED (1) and WEFT_PADDED_ROWS (2) are known",
				 taken->order);
	if (taken->scales_part && taken->order)
		return error_set(
			error, ERROR_USAGE,
			"weft_declare_transformed_piece: scales_part with order %u; scales "
			"lie as they are: set order to 0",
			taken->order);
	if (!taken->scales_part)
		transform->part = parts[taken->order];
	return 0;
}

int weft_declare_transformed_piece(weft_worker *worker, const weft_tensor *tensor,
				   const uint64_t *src_lo, const uint64_t *src_hi, uint32_t param,
				   uint64_t offset, const weft_transform *transform,
				   const weft_tensor *scales, weft_error *error)
{
	static const char call[] = "weft_declare_transformed_piece";
	struct piece piece = {.param = param, .offset = offset};
	weft_transform taken = {0};
	struct error inner;
	int rc = transform ? abi_take(ABI_TRANSFORM, call, transform, &taken, &inner) : 0;

	if (!rc)
		rc = part_of(&taken, &piece.transform, &inner);
	if (!rc)
		rc = take_piece(worker, call, tensor, src_lo, src_hi, &piece, scales, &inner);
	return worker_answer(worker, rc, &inner, error);
}

int weft_declare_fill(weft_worker *worker, uint32_t param, uint64_t offset, uint64_t bytes,
		      weft_error *error)
{
	struct fill fill = {.param = param, .offset = offset, .bytes = bytes};
	struct error inner;
	int rc = worker_may_declare(worker, ROLE_INFERENCE, "weft_declare_fill", &inner);

	if (!rc)
		rc = worker_check_id("weft_declare_fill", "parameter", param,
				     worker->layout.param_count, &inner);
	if (!rc)
		rc = layout_add_fill(&worker->layout, &fill, &inner);
	return worker_answer(worker, rc, &inner, error);
}
