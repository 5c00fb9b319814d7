/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h -- what a worker shows of itself (weft_options.metrics, metrics_file; docs/metrics.md): a board that the host's calls
 * of updates write, and the outlet that reads it.
 *
 *   host's thread   begin ─► metrics_starts ─┐                                 ┌─► the port's thread, the file's
 *                   end ───► metrics_ends ───┴─► board, a lock of its own ─────┘   copy it, then make text of the copy
 *
 * The lock is held for a copy of some 4 KiB, or for adding one update up: twice an update on the host's thread, never while bytes
 * move. Without metrics there is no board, and each call here is one comparison.
 */
#ifndef WORKER_API_METRICS_H
#define WORKER_API_METRICS_H

#include "worker/api/weft.h"
#include "base/error.h"

struct worker_metrics;

enum sync_result { SYNC_OK, SYNC_FAILED, SYNC_ABORTED, SYNC_RESULTS };

/* Opens what the options, or their variables, ask for; nothing else: 0. */
int metrics_open(struct weft_worker *worker, const weft_options *options, struct error *error);
/* The worker's domain is open: its NICs are shown from now on. */
void metrics_domain(struct weft_worker *worker);
/* Before what it reads goes, the domain too; it writes the file a last time. */
void metrics_close(struct weft_worker *worker);

/* An update is begun, or waited for; once for all tries of one. */
void metrics_starts(struct weft_worker *worker);
/* The one that was, if any. */
void metrics_ends(struct weft_worker *worker, enum sync_result result);
/* A call of an update failed so, which may be the end of the update. */
void metrics_fails(struct weft_worker *worker, enum error_code code);
/* [any thread] Any call for this worker's work did. */
void metrics_failure(struct weft_worker *worker, enum error_code code);
/* There is another plan; another version is shown. */
void metrics_look(struct weft_worker *worker);

#endif
