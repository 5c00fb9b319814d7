/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter.h -- bytes that lie packed, of pieces that are spread in a parameter or small, to their places in memory of a GPU: what was
 * added in one launch, however short the runs are.
 *
 *   pinned   |aaaaaaaa|bbbb|           from anywhere in a piece, inside of a run too
 *   GPU      aa.. aa.. aa.. aa.. bb.. bb..
 *
 * The table is read where it lies, in pinned memory, so it is written again when that launch is complete.
 *
 * Threads: one at a time.
 */
#ifndef WORKER_DEVICE_SCATTER_H
#define WORKER_DEVICE_SCATTER_H

#include "job/layout.h"
#include "worker/device/device.h"

struct scatter;

/* Of at most `room` parts a launch. Whatever it returns, scatter_close. */
int scatter_open(struct scatter **scatter, const struct device *device, uint32_t room, struct error *error);
/* What was launched is complete, or the device is stuck. NULL inside is fine. */
void scatter_close(struct scatter **scatter);
/* What must be reached before scatter_begin: its last launch; NULL: there is none. */
cuda_event scatter_last(const struct scatter *scatter);
void scatter_begin(struct scatter *scatter);
/* Bytes [at, at + bytes) of a piece that is spread so from `piece` on, or is one run there; they lie at `from`. */
void scatter_add(struct scatter *scatter, uint64_t piece, const struct spread *spread, uint64_t at, uint64_t from,
		 uint64_t bytes);
/* Queues them, as one kernel on the device's stream; nothing where there are none. */
int scatter_run(struct scatter *scatter, struct error *error);

#endif
