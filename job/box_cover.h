/* SPDX-License-Identifier: Apache-2.0
 *
 * box_cover.h -- do boxes cover another one together? They may overlap. Dimension after dimension the box is cut where any of
 * them begins or ends; what is left of them in each part is asked the same of the next dimension.
 */
#ifndef JOB_BOX_COVER_H
#define JOB_BOX_COVER_H

#include "base/array.h"
#include "job/box.h"

/* A zeroed struct has no boxes. */
struct box_cover {
	ARRAY(struct box) boxes;
	ARRAY(uint32_t) inside; /* scratch: of boxes, a list a level */
	ARRAY(uint64_t) edges;  /* scratch: the same of borders */
};

/* *covered: every element of `box` is in one of the boxes; else *gap is some part of it that is in none. 0, or -1 without memory. */
int box_cover_all(struct box_cover *cover, const struct box *box, bool *covered, struct box *gap);
void box_cover_fini(struct box_cover *cover);

#endif
