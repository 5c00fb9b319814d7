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

static int init_scales(struct pack *pack, const struct pack_source *source, struct error *error)
{
	const struct transform *transform = &source->transform;
	struct box box = transform_scales_box(transform, &source->src);
	uint64_t shape[2] = {(source->shape[0] + transform->from_rows - 1) / transform->from_rows,
			     (source->shape[1] + transform->from_columns - 1) /
				     transform->from_columns};
	int rc = check_held("rows of scales", &box, shape[0], source->scales_lo, source->scales_hi,
			    error);

	pack->row_skip = source->src.lo[0] % transform->from_rows;
	pack->column_skip = source->src.lo[1] % transform->from_columns;
	if (!rc)
		rc = runs_held(&pack->scale_runs, &box, 2, shape, source->scales_lo,
			       source->scales_hi, dtype_bytes(DTYPE_F32), error);
	pack->scale_stride_bytes = shape[1] * dtype_bytes(DTYPE_F32);
	return rc;
}

int pack_init(struct pack *pack, const struct pack_source *source, struct error *error)
{
	uint32_t element = dtype_bytes(source->from);
	/* the dimension of its rows: behind the index of a matrix among others */
	uint32_t row = source->transform.part == TRANSFORM_TRANSPOSED ? source->dims - 2 : 0;
	int rc;

	*pack = (struct pack){
		.transform = source->transform, .from = source->from, .to = source->to};
	rc = check_transformed(source, &pack->bytes, error);
	if (!rc)
		rc = check_held("rows", &source->src, source->shape[0], source->held_lo,
				source->held_hi, error);
	if (!rc)
		rc = runs_held(&pack->runs, &source->src, source->dims, source->shape,
			       source->held_lo, source->held_hi, element, error);
	if (!rc && source->transform.from_rows)
		rc = init_scales(pack, source, error);
	if (rc)
		return rc;
	pack->rows = source->src.hi[row] - source->src.lo[row];
	if (source->transform.part == TRANSFORM_PADDED)
		pack->rows = box_elements(&source->src) / transform_row_elements(&source->src);
	pack->columns = box_elements(&source->src) / pack->rows;
	pack->stride_bytes = element;
	for (uint32_t d = row + 1; d < source->dims; d++)
		pack->stride_bytes *= source->shape[d];
	pack->grain_bytes = grain_of(&source->transform, source->from, source->to, &source->src);
	pack->block_bytes = pack_block_bytes(&source->transform, source->from, source->to,
					     &source->src, pack->bytes);
	return 0;
}
