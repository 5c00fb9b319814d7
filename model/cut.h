/* SPDX-License-Identifier: Apache-2.0
 *
 * cut.h -- one rank's share of one tensor: pure arithmetic over a row of a family.
 *
 *   CUT_ROWS, 2 parts, rank 1 of 2          share: 4 rows of the parameter
 *     gate  0 . . . .
 *           1 . . . .
 *           2 # # # #  ──────────────────►  0 # # # #
 *           3 # # # #                       1 # # # #
 *     up    4 . . . .
 *           5 . . . .
 *           6 # # # #  ──────────────────►  2 # # # #
 *           7 # # # #                       3 # # # #
 */
#ifndef MODEL_CUT_H
#define MODEL_CUT_H

#include "job/box.h"
#include "base/error.h"
#include "model/family.h"
#include <stdbool.h>
#include <stdint.h>

#define SHARE_BOXES_MAX 4

/* Rank `rank` of a group of `size`. */
struct place {
	uint32_t rank, size;
	uint32_t first, experts; /* this rank's, of a tensor that holds all of them */
	bool whole_blocks; /* the last fp8 block must be full even where nothing is cut */
};

struct share {
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];  /* what it takes of the parameter, fill included */
	uint32_t box_count;            /* 0 when the rank's rows are all fill */
	struct box boxes[SHARE_BOXES_MAX]; /* of the tensor; they stack in this order */
	uint64_t fill_rows;            /* after the boxes */
	bool padded;                   /* the shape is larger than the one box: zeroes behind each
					  row, and behind the rows of each expert */
	uint64_t ragged_rows;          /* of scales: rows of the weight, when its last block is not
					  full; nothing may stack on top of them then. Else 0 */
};

/* `cut` is the rule's, or what it comes to in this engine. ERROR_CONFIG names the tensor, the number and the divisor when it cannot be cut. */
int cut_share(const struct rule *rule, enum cut cut, const struct model_tensor *tensor,
	      const struct model_config *config, struct place place, struct share *share,
	      struct error *error);
/* From a weight's share (of the shape) to that of its scales, cut where it is. The boxes become
 * blocks of `tensor` where that is the checkpoint's tensor of scales; they stay where it is the
 * weight, of which the scales are made. Refused as above when a cut is inside of a block. */
int cut_scales(const struct rule *rule, const struct model_tensor *tensor, const uint64_t *shape,
	       const uint32_t block[2], struct place place, struct share *share,
	       struct error *error);
/* Refuses to stack scales on those of `below` when its rows end inside of a block. */
int cut_stack(const struct model_tensor *below, const struct share *share, uint32_t block_rows,
	      struct error *error);

#endif
