/* SPDX-License-Identifier: Apache-2.0
 *
 * prefix.c -- a course project's published router, by holder set:
 *
 *   n = min(8, holders, inference ranks);  the set's tensors in checkpoint order, each with all
 *   bytes that go out of it, are cut into n pieces: a piece ends with the tensor that brings it
 *   to total / n bytes or more. Holder number i owns piece i; holders n and above send nothing.
 *
 *   tensors    60  |  10  20  30  |  5  15      total 140, n = 3: a piece ends at 46.7 or more
 *   holder      0  |       1      |    2        bytes: 60, 60, 20
 *
 * Tensors come in order, so one pass with the open piece of each set is enough.
 */
#include "routing/plan/policy.h"

#include "base/memory.h"
#include "routing/plan/explain.h"
#include <inttypes.h>

#define PIECES_MAX 8

struct prefix {
	uint64_t total, bytes; /* of the set; of its open piece */
	uint32_t pieces, piece;
	uint32_t tensor; /* the last one, and the first of the open piece */
	uint32_t first;
};

static void enter_tensor(struct prefix *prefix, uint32_t tensor)
{
	uint64_t enough = prefix->total / prefix->pieces + (prefix->total % prefix->pieces != 0);

	if (prefix->tensor == tensor)
		return;
	if (prefix->tensor == UINT32_MAX) {
		prefix->first = tensor;
	} else if (prefix->bytes >= enough && prefix->piece + 1 < prefix->pieces) {
		prefix->piece++;
		prefix->bytes = 0;
		prefix->first = tensor;
	}
	prefix->tensor = tensor;
}

static int tell(const struct problem *problem, const struct prefix *prefix, const struct unit *unit,
		const struct holder_set *set, uint32_t chosen, struct explain *explain,
		struct error *error)
{
	return explain_add(explain, unit, set, NULL, chosen, error,
			   "piece %" PRIu32 " of %" PRIu32
			   " of these holders' tensors, which begins with %s, is holder number "
			   "%" PRIu32 "'s, trainer %" PRIu32,
			   prefix->piece, prefix->pieces, problem->tensors[prefix->first].name,
			   prefix->piece, chosen);
}

int prefix_assign(const struct problem *problem, const struct plan_options *options,
		  struct units *units, uint32_t **trainer, struct error *error)
{
	struct prefix *prefixes = memory_zalloc(units->set_count, sizeof(*prefixes));
	int rc = 0;

	if (!prefixes)
		return memory_error(error, "cutting the tensor list",
				    units->set_count * sizeof(*prefixes));
	for (size_t s = 0; s < units->set_count; s++) {
		uint32_t pieces = units->sets[s].count;

		pieces = pieces < problem->inference_count ? pieces : problem->inference_count;
		prefixes[s].pieces = pieces < PIECES_MAX ? pieces : PIECES_MAX;
		prefixes[s].tensor = UINT32_MAX;
	}
	for (size_t i = 0; i < units->count; i++)
		prefixes[units->items[i].holders].total += units->items[i].bytes;
	for (size_t i = 0; i < units->count && !rc; i++) {
		const struct unit *unit = &units->items[i];
		const struct holder_set *set = &units->sets[unit->holders];
		struct prefix *prefix = &prefixes[unit->holders];

		enter_tensor(prefix, unit->tensor);
		prefix->bytes += unit->bytes;
		(*trainer)[i] = set->trainers[prefix->piece];
		if (explain_wants(options->explain, unit))
			rc = tell(problem, prefix, unit, set, (*trainer)[i], options->explain,
				  error);
	}
	memory_free(prefixes);
	return rc;
}
