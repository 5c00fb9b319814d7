/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel_layout.h -- Megatron's pipeline layout as one string, --pipeline-model-parallel-layout: stages between bars, chunk by
 * chunk; E the embedding, t a layer, m an MTP layer, L the loss. "(..)*n" and "t*n" repeat; commas are for the eye.
 *
 *   Ett|(tt|)*2,mL    pp=4            2, 2, 2 and 0 layers; the last stage has the MTP layer and the head
 *   Et|tt|t|ttL       pp=2 in chunks  stage 0: layer 0, then 3; stage 1: 1 and 2, then 4 and 5
 *
 * Source: Megatron-Core's PipelineParallelLayerLayout. What it says is vpp, layers and mtp of a spec, and is kept as these.
 */
#ifndef JOB_PARALLEL_LAYOUT_H
#define JOB_PARALLEL_LAYOUT_H

#include "job/parallel.h"

struct parallel_layout {
	uint32_t stages; /* 0: none was read */
	uint32_t layers[PARALLEL_STAGES_MAX];
	uint32_t mtp, mtp_at; /* how many, all in one stage */
};

/* ERROR_CONFIG says what of the string cannot be, and what would. `spec` is the whole of --train, for messages. */
int parallel_layout_read(struct parallel_layout *layout, const char *spec, const char *text, struct error *error);
/* Into the spec, whose pp and, where they are given, vpp and mtp it must agree with. */
int parallel_layout_apply(const struct parallel_layout *layout, struct train_spec *train, const char *spec,
			  struct error *error);

#endif
