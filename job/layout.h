/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h -- what an inference rank declares, as plain data (a trainer's: holding.h).
 *
 *   tensor  "q_proj.weight" [4,6]          parameter "qkv_proj.weight", 1 row of this rank
 *     rows 2..3 ─────────── piece ───────────────► bytes offset .. offset + bytes
 *
 * A piece is a box of one tensor that becomes ONE contiguous byte range of one parameter: the
 * unit of routing, packing, checksums and the proof. A fill is a byte range of a parameter
 * that has no source by design (vocabulary padding); the inference rank zeroes it itself.
 * Model code builds these from a config, host programs build them by hand, the wire carries
 * them once per digest, routing reads them.
 */
#ifndef JOB_LAYOUT_H
#define JOB_LAYOUT_H

#include "job/tensor_info.h"
#include "job/transform.h"

/* How bytes lie in a parameter: one run (0, 0), or runs of run_bytes, stride_bytes from one to the next. */
struct spread {
	uint64_t run_bytes, stride_bytes;
};
/* From their first byte to their end. `bytes` is a multiple of run_bytes. */
static inline uint64_t spread_span(const struct spread *spread, uint64_t bytes)
{
	return spread->run_bytes ? (bytes / spread->run_bytes - 1) * spread->stride_bytes + spread->run_bytes : bytes;
}

/* A write of less than MERGE_BYTES costs about as much as one of so much. Where a trainer has MERGE_PIECES_MIN such pieces or more for one
 * inference rank, they are merged: landed, and posted in writes of up to MERGE_WRITE_BYTES (routing/plan/merge.c,
 * worker/update/schedule_land.c). */
#define MERGE_BYTES	  (UINT64_C(64) << 10)
#define MERGE_PIECES_MIN  8u
#define MERGE_WRITE_BYTES (UINT64_C(512) << 10)

/* Byte `at` of them lies *place behind the first; of `left` so many lie there beside each other. run_bytes is not 0. */
static inline uint64_t spread_next(const struct spread *spread, uint64_t at, uint64_t left, uint64_t *place)
{
	uint64_t inside = at % spread->run_bytes, run = spread->run_bytes - inside;

	*place = at / spread->run_bytes * spread->stride_bytes + inside;
	return run < left ? run : left;
}

struct piece {
	uint32_t tensor;   /* index into tensors of the same layout */
	uint32_t param;    /* index into params of the same layout */
	struct box src;
	uint64_t offset;   /* bytes from the parameter's first byte */
	uint64_t bytes;    /* of the parameter: what the box becomes */
	struct transform transform; /* how; zero: copied, or converted to the parameter's dtype */
	uint32_t scales;   /* with transform.from_rows: index of the tensor of its scales; else 0 */
	struct spread spread; /* one run in a layout: what a cut of columns leaves may be more */
};

/* The part of *piece from rows [lo, hi) of its tensor: another piece; false when empty. Where the
 * parameter is in blocks, lo and hi are multiples of transform_grain_rows or beyond the piece's
 * ends. */
bool piece_cut_rows(const struct piece *piece, uint64_t lo, uint64_t hi, struct piece *out);
/* The part of *piece in the box, whose rows are all the piece's: another piece, which may be spread; false when empty. *refused:
 * the piece is made out of blocks or padded, or the box ends inside of a block that it becomes, or its part lies with more than one
 * stride, or it is transposed and not all of its rows are in the box, and it cannot be cut so; then *out is not set. */
bool piece_cut_columns(const struct piece *piece, const struct box *box, struct piece *out, bool *refused);
/* Whether pieces that are transformed so may be cut in columns at all. */
bool transform_cuts_columns(const struct transform *transform);
/* Of two pieces, for qsort: by tensor, src, param, offset, how they are transformed, whose scales. */
int piece_compare(const void *a, const void *b);

struct fill {
	uint32_t param;
	uint64_t offset, bytes;
};

/* One inference rank's engine parameters and where their bytes come from. */
struct layout {
	struct tensor_info *tensors;
	size_t tensor_count, tensor_capacity;
	struct tensor_info *params;
	size_t param_count, param_capacity;
	struct piece *pieces;
	size_t piece_count, piece_capacity;
	struct fill *fills;
	size_t fill_count, fill_capacity;
	struct strmap tensor_names, param_names;
	/* What the names begin with of other parameters that the engine has, which are its own affair
	 * (the tower of a multimodal model): for comparing only, in no digest and on no wire. */
	char **beginnings;
	size_t beginning_count, beginning_capacity;
	struct pool names;  /* owns them all */
};

void layout_init(struct layout *layout);
void layout_fini(struct layout *layout); /* any state between init and fini; leaves it empty */
/* Each returns the new index, or a negative error. A tensor named again with the same dtype
 * and shape returns the first index; with another, ERROR_CONFLICT naming both. A parameter may
 * be named once. Names are copied. */
int64_t layout_add_tensor(struct layout *layout, const char *name, enum dtype dtype,
			  uint32_t dims, const uint64_t *shape, struct error *error);
int64_t layout_add_param(struct layout *layout, const char *name, enum dtype dtype,
			 uint32_t dims, const uint64_t *shape, struct error *error);
/* Checks: box inside the tensor, range inside the parameter, that transform.h can make the one of
 * the other, and that this is as many bytes. With transform.from_rows, `scales` is the F32 tensor
 * of one number a block; a tensor may be there only as scales. */
int layout_add_piece(struct layout *layout, const struct piece *piece, struct error *error);
int layout_add_fill(struct layout *layout, const struct fill *fill, struct error *error);
/* An engine's parameters whose names begin so are left to it. The beginning is copied. */
int layout_leave(struct layout *layout, const char *beginning, struct error *error);
bool layout_leaves(const struct layout *layout, const char *param);
/* Every byte of every parameter in exactly one piece or fill, else ERROR_UNSOURCED or
 * ERROR_CONFLICT naming parameter and first byte. Sorts pieces by (tensor, src, param,
 * offset, make, scales) and fills by (param, offset): the canonical order that the digest uses. */
int layout_finish(struct layout *layout, struct error *error);

/* xxh3-128 of the canonical content (names, dtypes, shapes, pieces, fills). Call after finish. */
struct digest layout_digest(const struct layout *layout);

#endif
