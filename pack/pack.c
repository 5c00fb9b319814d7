/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.c -- a piece as numbers: where its source bytes lie, where it may be cut, how it is summed.
 * pack_run.c does the work.
 */
#include "pack/pack.h"

#include "job/digest.h"

#include <string.h>

/* Bytes of the smallest part that can be packed alone. */
static uint64_t grain_of(const struct transform *transform, enum dtype from, enum dtype to,
			 const struct box *src)
{
	uint64_t columns = 1;

	if (!transform->to_rows)
		return transform_plain(transform) && from == to ? 1 : dtype_bytes(to);
	for (uint32_t d = 1; d < src->dims; d++)
		columns *= src->hi[d] - src->lo[d];
	if (transform->part == TRANSFORM_SCALES)
		return (columns + transform->to_columns - 1) / transform->to_columns *
		       dtype_bytes(to);
	return transform->to_rows * columns * dtype_bytes(to);
}

uint64_t pack_block_bytes(const struct transform *transform, enum dtype from, enum dtype to,
			  const struct box *src, uint64_t bytes)
{
	uint64_t grain = grain_of(transform, from, to, src);
	uint64_t whole = (bytes + grain - 1) / grain * grain; /* all of it, as one block */
	uint64_t block = grain >= PACK_BLOCK_BYTES ? grain : PACK_BLOCK_BYTES / grain * grain;

	return whole < block ? whole : block;
}

uint64_t pack_sum(const uint64_t *block_sums, uint64_t blocks)
{
	struct digest_stream stream;

	if (blocks == 1)
		return block_sums[0];
	checksum_begin(&stream);
	for (uint64_t i = 0; i < blocks; i++)
		digest_add_u64(&stream, block_sums[i]);
	return checksum_end(&stream);
}

uint64_t pack_piece_sum(const void *memory, uint64_t bytes, uint64_t block_bytes)
{
	const unsigned char *block = memory;
	struct digest_stream stream;

	if (bytes <= block_bytes)
		return checksum64(memory, bytes);
	checksum_begin(&stream);
	for (uint64_t left = bytes, n; left; left -= n, block += n) {
		n = left < block_bytes ? left : block_bytes;
		digest_add_u64(&stream, checksum64(block, n));
	}
	return checksum_end(&stream);
}

static int check_transformed(const struct pack_source *source, uint64_t *bytes, struct error *error)
{
	char made[TRANSFORM_TEXT_BYTES], box[160];

	transform_text(&source->transform, source->from != source->to, made);
	if (!box_in_shape(&source->src, source->dims, source->shape))
		return error_set(error, ERROR_BOUNDS, "box %s is not inside of its tensor",
				 box_text(&source->src, box, sizeof(box)));
	if (!transform_possible(&source->transform, source->from, source->to))
		return error_set(error, ERROR_UNSUPPORTED,
				 "\"%s\" from %s to %s is not possible: converted are F32, BF16, "
				 "F16, and F8_E4M3 with its scales",
				 made, dtype_name(source->from), dtype_name(source->to));
	if (!transform_bytes(&source->transform, &source->src, source->dims, source->shape,
			     source->to, bytes))
		return error_set(
			error, ERROR_CONFIG,
			"box %s cannot be transformed by \"%s\": blocks need a matrix and boxes "
			"on their borders",
			box_text(&source->src, box, sizeof(box)), made);
	if (source->transform.to_rows &&
	    (source->src.hi[1] - source->src.lo[1] - 1) / source->transform.to_columns >=
		    PACK_ROW_BLOCKS_MAX)
		return error_set(
			error, ERROR_LIMIT,
			"box %s transformed by \"%s\" has more than %u blocks side by side",
			box_text(&source->src, box, sizeof(box)), made, PACK_ROW_BLOCKS_MAX);
	return 0;
}

/* The rows of the box must be among those in memory. */
static int check_held(const char *what, const struct box *box, uint64_t rows, uint64_t lo,
		      uint64_t hi, struct error *error)
{
	if (lo <= box->lo[0] && box->hi[0] <= hi && hi <= rows)
		return 0;
	return error_set(error, ERROR_BOUNDS,
			 "%s %llu..%llu of %llu are needed, %llu..%llu are held", what,
			 (unsigned long long)box->lo[0], (unsigned long long)box->hi[0],
			 (unsigned long long)rows, (unsigned long long)lo, (unsigned long long)hi);
}

/* The box's runs in memory that begins with row held_lo. */
static int runs_held(struct runs *runs, const struct box *box, uint32_t dims, const uint64_t *shape,
		     uint64_t held_lo, uint64_t held_hi, uint32_t element, struct error *error)
{
	struct box moved = *box;
	uint64_t held[BOX_DIMS_MAX];
	char text[160];

	memcpy(held, shape, dims * sizeof(*shape));
	held[0] = held_hi - held_lo;
	moved.lo[0] -= held_lo;
	moved.hi[0] -= held_lo;
	if (box_runs(&moved, held, element, runs))
		return 0;
	return error_set(error, ERROR_UNSUPPORTED,
			 "box %s lies in memory with more than one stride; cut dimension 0 and one "
			 "other at most",
			 box_text(box, text, sizeof(text)));
}

/* Elements of a row lie beside each other: all that is not read run by run asks for it. */
static bool dense_rows(const struct pack_held *held, const struct box *src, uint32_t row)
{
	uint64_t step = 1;

	for (uint32_t d = src->dims; d-- > row + 1;) {
		if (src->hi[d] - src->lo[d] > 1 && held->place.stride[d] != step)
			return false;
		step *= src->hi[d] - src->lo[d];
	}
	return true;
}

static int runs_placed(struct runs *runs, uint64_t *stride_bytes, const struct pack_held *held,
		       const struct box *src, uint32_t row, bool plain, uint32_t element,
		       struct error *error)
{
	char text[160], box[160];

	if (!box_within(src, &held->box))
		return error_set(error, ERROR_BOUNDS, "box %s is needed, %s is held",
				 box_text(src, text, sizeof(text)),
				 box_text(&held->box, box, sizeof(box)));
	if ((!plain && !dense_rows(held, src, row)) ||
	    !placement_runs(&held->place, &held->box, src, element, runs))
		return error_set(
			error, ERROR_UNSUPPORTED,
			"box %s lies in the trainer's memory with more than one stride%s",
			box_text(src, text, sizeof(text)),
			plain ? ""
			      : ", or its rows do not lie in one run each, as its transformation needs");
	*stride_bytes = held->place.stride[row] * element;
	return 0;
}

static int init_scales(struct pack *pack, const struct pack_source *source, struct error *error)
{
	const struct transform *transform = &source->transform;
	struct box box = transform_scales_box(transform, &source->src);
	uint64_t shape[2] = {(source->shape[0] + transform->from_rows - 1) / transform->from_rows,
			     (source->shape[1] + transform->from_columns - 1) /
				     transform->from_columns};
	int rc;

	pack->row_skip = source->src.lo[0] % transform->from_rows;
	pack->column_skip = source->src.lo[1] % transform->from_columns;
	if (source->scales_held)
		return runs_placed(&pack->scale_runs, &pack->scale_stride_bytes,
				   source->scales_held, &box, 0, false, dtype_bytes(DTYPE_F32),
				   error);
	rc = check_held("rows of scales", &box, shape[0], source->scales_lo, source->scales_hi,
			error);
	if (!rc)
		rc = runs_held(&pack->scale_runs, &box, 2, shape, source->scales_lo,
			       source->scales_hi, dtype_bytes(DTYPE_F32), error);
	pack->scale_stride_bytes = shape[1] * dtype_bytes(DTYPE_F32);
	return rc;
}

/* `row` is the dimension of rows. */
static int find_runs(struct pack *pack, const struct pack_source *source, uint32_t row,
		     struct error *error)
{
	uint32_t element = dtype_bytes(source->from);
	int rc;

	if (source->held)
		return runs_placed(&pack->runs, &pack->stride_bytes, source->held, &source->src,
				   row,
				   transform_plain(&source->transform) ||
					   source->transform.part == TRANSFORM_PADDED,
				   element, error);
	rc = check_held("rows", &source->src, source->shape[0], source->held_lo, source->held_hi,
			error);
	if (!rc)
		rc = runs_held(&pack->runs, &source->src, source->dims, source->shape,
			       source->held_lo, source->held_hi, element, error);
	pack->stride_bytes = element;
	for (uint32_t d = row + 1; d < source->dims; d++)
		pack->stride_bytes *= source->shape[d];
	return rc;
}

static void swap_dims(struct box *box)
{
	*box = (struct box){2, {box->lo[1], box->lo[0]}, {box->hi[1], box->hi[0]}};
}

/* One matrix of several, by itself. */
static void drop_index(struct pack_source *source, struct pack_held *held)
{
	held->place.offset += (source->src.lo[0] - held->box.lo[0]) * held->place.stride[0];
	held->place.stride[0] = held->place.stride[1];
	held->place.stride[1] = held->place.stride[2];
	held->box = (struct box){
		2, {held->box.lo[1], held->box.lo[2]}, {held->box.hi[1], held->box.hi[2]}};
	source->src = (struct box){
		2, {source->src.lo[1], source->src.lo[2]}, {source->src.hi[1], source->src.hi[2]}};
	source->shape[0] = source->shape[1];
	source->shape[1] = source->shape[2];
	source->dims = 2;
	source->held = held;
}

/* A matrix whose columns lie beside each other is another one, transposed: *turned, of `held`. False: it is none. */
static bool turn(const struct pack_source *source, struct pack_source *turned,
		 struct pack_held *held)
{
	const struct transform *transform = &source->transform;
	const uint64_t *stride = source->held ? source->held->place.stride : NULL;
	struct pack_source matrix;
	struct pack_held alone;
	struct runs runs;

	if (source->held && transform->part == TRANSFORM_TRANSPOSED && source->dims == 3 &&
	    box_within(&source->src, &source->held->box)) {
		matrix = *source;
		alone = *source->held;
		drop_index(&matrix, &alone);
		return turn(&matrix, turned, held);
	}

	/* one column, or one row, lies as it is wanted */
	if (source->held && transform_plain(transform) &&
	    placement_runs(&source->held->place, &source->held->box, &source->src, 1, &runs) &&
	    runs.rows == 1)
		return false;
	if (!source->held || source->dims != 2 || stride[0] != 1 || stride[1] == 1 ||
	    transform->from_rows || transform->to_rows ||
	    (transform->part != TRANSFORM_VALUES && transform->part != TRANSFORM_TRANSPOSED))
		return false;
	*turned = *source;
	*held = *source->held;
	swap_dims(&turned->src);
	swap_dims(&held->box);
	turned->shape[0] = source->shape[1];
	turned->shape[1] = source->shape[0];
	held->place.stride[0] = stride[1];
	held->place.stride[1] = 1;
	turned->held = held;
	turned->transform.part =
		transform->part == TRANSFORM_VALUES ? TRANSFORM_TRANSPOSED : TRANSFORM_VALUES;
	return true;
}

int pack_init(struct pack *pack, const struct pack_source *source, struct error *error)
{
	struct pack_source turned;
	struct pack_held held;
	/* the dimension of its rows: behind the index of a matrix among others */
	uint32_t row = source->transform.part == TRANSFORM_TRANSPOSED ? source->dims - 2 : 0;
	int rc;

	if (turn(source, &turned, &held))
		return pack_init(pack, &turned, error);
	*pack = (struct pack){
		.transform = source->transform, .from = source->from, .to = source->to};
	rc = check_transformed(source, &pack->bytes, error);
	if (!rc)
		rc = find_runs(pack, source, row, error);
	if (!rc && source->transform.from_rows)
		rc = init_scales(pack, source, error);
	if (rc)
		return rc;
	pack->rows = source->src.hi[row] - source->src.lo[row];
	if (source->transform.part == TRANSFORM_PADDED)
		pack->rows = box_elements(&source->src) / transform_row_elements(&source->src);
	pack->columns = box_elements(&source->src) / pack->rows;
	pack->grain_bytes = grain_of(&source->transform, source->from, source->to, &source->src);
	pack->block_bytes = pack_block_bytes(&source->transform, source->from, source->to,
					     &source->src, pack->bytes);
	return 0;
}
