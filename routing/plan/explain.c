/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/explain.h"

#include <stdarg.h>
#include <stdio.h>

int explain_add(struct explain *explain, const struct unit *unit, const struct holder_set *set,
		const uint64_t *loads, uint32_t chosen, struct error *error, const char *reason,
		...)
{
	struct explain_candidate *candidates =
		pool_array(&explain->pool, set->count, sizeof(*candidates));
	struct explain_decision *decision = candidates ? array_push(&explain->decisions) : NULL;
	va_list args;

	if (!decision)
		return memory_error(error, "explaining a route", set->count * sizeof(*candidates));
	for (uint32_t k = 0; k < set->count; k++)
		candidates[k] = (struct explain_candidate){set->trainers[k],
							   loads ? loads[set->trainers[k]] : 0};
	*decision = (struct explain_decision){.lo = unit->lo,
					      .hi = unit->hi,
					      .bytes = unit->bytes,
					      .candidates = candidates,
					      .candidate_count = set->count,
					      .chosen = chosen,
					      .has_loads = loads != NULL};
	va_start(args, reason);
	vsnprintf(decision->reason, sizeof(decision->reason), reason, args);
	va_end(args);
	return 0;
}

void explain_fini(struct explain *explain)
{
	pool_free(&explain->pool);
	array_free(&explain->decisions);
}
