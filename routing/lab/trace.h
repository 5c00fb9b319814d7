/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h -- a simulated schedule in the Chrome trace format, for ui.perfetto.dev: a process a
 * rank, a track for each peer of a trainer and for each stage of a worker, counters of GB/s.
 * Slices of a track never overlap, and what takes less than half a nanosecond is left out. Of a
 * large schedule short neighbours become one slice, which says of how many ("flows").
 */
#ifndef ROUTING_LAB_TRACE_H
#define ROUTING_LAB_TRACE_H

#include "routing/lab/simulate.h"
#include <stdio.h>

#define TRACE_SLICES_AIM 100000 /* at most twice as many are written */

/* Tids: a track a stage, and behind them one for each peer. To Perfetto 0 and the process's own
 * number are its main thread, so processes count by TRACE_PID_STEP. */
#define TRACE_STAGE_TID	 1u
#define TRACE_PEER_TID	 (TRACE_STAGE_TID + STAGE_COUNT)
#define TRACE_PID_STEP	 10000u

/* The simulation must have recorded its slices, and gets them sorted; the caller checks ferror.
 * *merged_seconds: shorter slices were joined; 0: every one is there. */
void trace_write(FILE *stream, struct simulation *simulation, const struct table *table,
		 double *merged_seconds);

#endif
