/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs.c -- an inference rank's rows of the plan by (trainer, ordinal): what a trainer's k-th
 * checksum is about.
 */
#include "worker/api/worker.h"

#include <string.h>

#define NO_ROW UINT32_MAX

static int note_row(struct weft_worker *worker, size_t index, struct error *error)
{
	struct inference *inference = &worker->inference;
	const struct plan_row *row = &worker->plan->rows[index];
	uint32_t *slot;

	if (row->peer >= worker->peer_count ||
	    row->ordinal >= worker->peers[row->peer].plan->pieces ||
	    row->tensor >= worker->layout.tensor_count ||
	    row->param >= worker->layout.param_count ||
	    row->offset > worker->layout.params[row->param].bytes ||
	    row->bytes > worker->layout.params[row->param].bytes - row->offset)
		return error_set(error, ERROR_MESSAGE,
				 "%s: row %zu of the plan: peer, piece, tensor, "
				 "parameter or bytes are out of range",
				 worker->self_name, index);
	slot = &inference->pair_rows[inference->pair_first[row->peer] + row->ordinal];
	if (*slot != NO_ROW)
		return error_set(error, ERROR_MESSAGE,
				 "%s: rows %u and %zu of the plan are the same "
				 "piece of %s",
				 worker->self_name, *slot, index, worker->peers[row->peer].name);
	*slot = (uint32_t)index;
	return 0;
}

int pairs_open(struct weft_worker *worker, struct error *error)
{
	struct inference *inference = &worker->inference;
	size_t slots = 0;
	int rc = 0;

	inference->pair_first =
		memory_zalloc(worker->peer_count + 1, sizeof(*inference->pair_first));
	if (!inference->pair_first)
		return memory_error(error, "preparing updates", worker->peer_count * 8);
	for (size_t p = 0; p < worker->peer_count; p++) {
		inference->pair_first[p] = slots;
		slots += worker->peers[p].plan->pieces;
	}
	if (slots != worker->plan->row_count)
		return error_set(error, ERROR_MESSAGE, "%s: the plan has %zu rows for %zu pieces",
				 worker->self_name, worker->plan->row_count, slots);
	inference->pair_rows = memory_alloc(slots * sizeof(*inference->pair_rows));
	if (!inference->pair_rows)
		return memory_error(error, "preparing updates", slots * sizeof(uint32_t));
	memset(inference->pair_rows, 0xff, slots * sizeof(*inference->pair_rows));
	for (size_t i = 0; i < worker->plan->row_count && !rc; i++)
		rc = note_row(worker, i, error);
	return rc;
}

void pairs_close(struct weft_worker *worker)
{
	memory_free(worker->inference.pair_first);
	memory_free(worker->inference.pair_rows);
	worker->inference.pair_first = NULL;
	worker->inference.pair_rows = NULL;
}
