/* SPDX-License-Identifier: Apache-2.0
 *
 * contents.h -- what is inside a weft_checkpoint.
 */
#ifndef WORKER_REFEREE_CONTENTS_H
#define WORKER_REFEREE_CONTENTS_H

struct checkpoint;

struct weft_checkpoint {
	struct checkpoint *inner;
};

#endif
