/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/epoch.h"

#include "base/memory.h"
#include <string.h>

#define NO_ROW UINT32_MAX

static int note_row(struct receive_plan *plan, const struct epoch *epoch, size_t index,
		    struct error *error)
{
	const struct plan_row *row = &epoch->plan->rows[index];
	const struct layout *layout = epoch->options.layout;
	uint32_t *slot;

	if (row->peer >= epoch->peer_count ||
	    row->ordinal >= epoch->peers[row->peer].plan->pieces ||
	    row->tensor >= layout->tensor_count || row->param >= layout->param_count ||
	    row->offset > layout->params[row->param].bytes ||
	    spread_span(&row->spread, row->bytes) > layout->params[row->param].bytes - row->offset)
		return error_set(error, ERROR_MESSAGE,
				 "%s: row %zu of the plan: peer, piece, tensor, "
				 "parameter or bytes are out of range",
				 epoch->options.name, index);
	if (row->path != PATH_LANDED && windows_only(epoch, &epoch->peers[row->peer]))
		return error_set(error, ERROR_MESSAGE,
				 "%s: row %zu of the plan goes %s, and what %s writes is landed",
				 epoch->options.name, index, route_path_name(row->path),
				 epoch->peers[row->peer].name);
	slot = &plan->rows[epoch->peers[row->peer].first_piece + row->ordinal];
	if (*slot != NO_ROW)
		return error_set(error, ERROR_MESSAGE,
				 "%s: rows %u and %zu of the plan are the same piece of %s",
				 epoch->options.name, *slot, index, epoch->peers[row->peer].name);
	*slot = (uint32_t)index;
	return 0;
}

int receive_plan_open(struct receive_plan *plan, const struct epoch *epoch, struct error *error)
{
	size_t slots = 0;
	int rc = 0;

	for (size_t p = 0; p < epoch->peer_count; p++)
		slots += epoch->peers[p].plan->pieces;
	if (slots != epoch->plan->row_count)
		return error_set(error, ERROR_MESSAGE, "%s: the plan has %zu rows for %zu pieces",
				 epoch->options.name, epoch->plan->row_count, slots);
	plan->rows = memory_alloc(slots * sizeof(*plan->rows));
	if (!plan->rows)
		return memory_error(error, "preparing updates", slots * sizeof(uint32_t));
	memset(plan->rows, 0xff, slots * sizeof(*plan->rows));
	for (size_t i = 0; i < epoch->plan->row_count && !rc; i++)
		rc = note_row(plan, epoch, i, error);
	return rc;
}

void receive_plan_close(struct receive_plan *plan)
{
	memory_free(plan->rows);
	*plan = (struct receive_plan){0};
}
