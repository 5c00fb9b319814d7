/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h -- what a worker declares, as plain data: what an inference rank needs (struct
 * layout) and what a trainer holds (struct holding).
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

#include "job/box.h"
#include "job/digest.h"
#include "job/dtype.h"
#include "base/error.h"
#include "base/pool.h"
#include "job/transform.h"
#include "job/strmap.h"
#include <stddef.h>

/* A tensor of the checkpoint, or a parameter of an engine. */
struct tensor_info {
	char *name;        /* owned by the layout or holding */
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	uint64_t bytes;    /* product of shape times element size */
	uint32_t order;    /* place in checkpoint order; holdings only (0 in layouts) */
};

struct piece {
	uint32_t tensor;   /* index into tensors of the same layout */
	uint32_t param;    /* index into params of the same layout */
	struct box src;
	uint64_t offset;   /* bytes from the parameter's first byte */
	uint64_t bytes;    /* of the parameter: what the box becomes */
	struct transform transform; /* how; zero: copied, or converted to the parameter's dtype */
	uint32_t scales;   /* with transform.from_rows: index of the tensor of its scales; else 0 */
};

/* The part of *piece from rows [lo, hi) of its tensor: another piece; false when empty. Where the
 * parameter is in blocks, lo and hi are multiples of transform_grain_rows or beyond the piece's
 * ends. */
bool piece_cut_rows(const struct piece *piece, uint64_t lo, uint64_t hi, struct piece *out);
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

struct held {
	uint32_t tensor;
	struct box box;
};

/* The boxes one trainer can read. */
struct holding {
	struct tensor_info *tensors;
	size_t tensor_count, tensor_capacity;
	struct held *held;
	size_t held_count, held_capacity;
	struct strmap tensor_names;
	struct pool names;
};

void layout_init(struct layout *layout);
void layout_fini(struct layout *layout); /* any state between init and fini; leaves it empty */
void holding_init(struct holding *holding);
void holding_fini(struct holding *holding);

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

int64_t holding_add_tensor(struct holding *holding, const char *name, enum dtype dtype,
			   uint32_t dims, const uint64_t *shape, uint32_t order,
			   struct error *error);
int holding_add(struct holding *holding, uint32_t tensor, const struct box *box,
		struct error *error);
/* Sorts `held` by (tensor, box); refuses two overlapping boxes of one tensor. */
int holding_finish(struct holding *holding, struct error *error);

/* xxh3-128 of the canonical content (names, dtypes, shapes, pieces, fills / order, boxes). Call after finish. */
struct digest layout_digest(const struct layout *layout);
struct digest holding_digest(const struct holding *holding);

#endif
