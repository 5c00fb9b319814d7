/* SPDX-License-Identifier: Apache-2.0
 *
 * pad.h -- one rank's share of experts in MXFP4 where its engine rounds sizes up before it allocates
 * (mxfp4_pad=), because its kernels want whole tiles.
 *
 *   5 blocks of 32, 2 ranks, mxfp4_pad=64x1     rank 0             rank 1
 *     b0 b1 b2 b3 b4                            b0 b1 b2 ..        b3 b4 .. ..
 *
 * Loaders give each rank as many whole blocks, rounded up, so the last one has fewer; the parameter is of
 * M/n, rounded up, on every rank alike.
 */
#ifndef MODEL_PAD_H
#define MODEL_PAD_H

#include "job/parallel.h"
#include "model/cut.h"
#include "model/family.h"
#include <stdbool.h>

/* Is it of experts in MXFP4? */
bool pad_row(const struct rule *rule);
/* As cut_share(), of such a row. The share's shape is the parameter's; boxes are smaller. */
int pad_share(const struct rule *rule, const struct model_tensor *tensor,
	      const struct model_config *config, const struct infer_spec *infer, struct place place,
	      struct share *share, struct error *error);

#endif
