/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_bound.c -- what no table can beat: the wires (certificate.h), and each stage if its
 * work were spread over all who can do it, down to the byte.
 */
#include "routing/lab/simulate.h"

#include "base/memory.h"
#include "routing/plan/bound.h"
#include "routing/report/certificate.h"
#include "routing/lab/simulate_flows.h"
#include <string.h>

/* Boxes of one tensor that were counted; a slot counts when its stamp is the tensor's. */
struct counted {
	struct counted_slot {
		uint32_t stamp, transformed;
		struct box box;
	} * slots;
	size_t size;
};

static bool count_once(struct counted *counted, uint32_t stamp, uint32_t transformed,
		       const struct box *box)
{
	uint64_t key[2 * BOX_DIMS_MAX];
	size_t at;

	memcpy(key, box->lo, box->dims * sizeof(key[0]));
	memcpy(key + box->dims, box->hi, box->dims * sizeof(key[0]));
	at = checksum64(key, 2 * (size_t)box->dims * sizeof(key[0])) & (counted->size - 1);
	for (; counted->slots[at].stamp == stamp; at = (at + 1) & (counted->size - 1))
		if (counted->slots[at].transformed == transformed &&
		    box_equal(&counted->slots[at].box, box))
			return false;
	counted->slots[at] = (struct counted_slot){stamp, transformed, *box};
	return true;
}

/* Bytes of the unit's boxes that must be copied and were not counted yet. */
static uint64_t copies_of(struct counted *counted, const struct problem *problem,
			  const struct units *units, const struct unit *unit)
{
	const struct problem_layout *layout =
		&problem->layouts[problem->inference_layout[unit->inference]];
	uint32_t holder = units->sets[unit->holders].trainers[0];
	uint64_t bytes = 0;

	for (uint32_t p = layout->pieces_of[unit->tensor]; p < layout->pieces_of[unit->tensor + 1];
	     p++) {
		uint32_t transformed = layout->transformed[p];
		struct piece part;

		if (!unit_cut(units, unit, unit->lo, unit->hi, &layout->pieces[p], &part) ||
		    problem_path(problem, holder, unit->inference, !transformed, unit->tensor,
				 &part.src, &part.spread) == PATH_DIRECT ||
		    !count_once(counted, unit->tensor + 1, transformed, &part.src))
			continue;
		bytes += part.bytes;
	}
	return bytes;
}

static size_t most_pieces(const struct problem *problem)
{
	size_t most = 1;

	for (uint32_t t = 0; t < problem->tensor_count; t++) {
		size_t pieces = 0;

		for (uint32_t r = 0; r < problem->inference_count; r++) {
			const struct problem_layout *layout =
				&problem->layouts[problem->inference_layout[r]];

			pieces += layout->pieces_of[t + 1] - layout->pieces_of[t];
		}
		most = pieces > most ? pieces : most;
	}
	return most;
}

/* The least possible largest number of bytes that one trainer copies, each box copied once. */
static int copy_bound(uint64_t *bound, const struct problem *problem, struct error *error)
{
	struct counted counted = {.size = 16};
	struct units units;
	uint64_t *bytes;
	size_t most;
	int rc = units_build(&units, problem, error);

	if (rc)
		return rc;
	most = most_pieces(problem);
	most = units.count < most * problem->trainer_count ? most + units.count : most;
	while (counted.size < 2 * most)
		counted.size *= 2;
	counted.slots = memory_zalloc(counted.size, sizeof(*counted.slots));
	bytes = memory_zalloc(units.set_count, sizeof(*bytes));
	if (!counted.slots || !bytes)
		rc = memory_error(error, "simulating", counted.size * sizeof(*counted.slots));
	for (size_t u = 0; !rc && u < units.count; u++)
		bytes[units.items[u].holders] +=
			copies_of(&counted, problem, &units, &units.items[u]);
	if (!rc)
		rc = bound_of(bound, units.sets, bytes, units.set_count, problem->trainer_count,
			      error);
	memory_free(counted.slots);
	memory_free(bytes);
	units_fini(&units);
	return rc;
}

static double gather_bound(const double *gathers, uint32_t trainers)
{
	double most = 0;

	for (uint32_t t = 0; t < trainers; t++)
		most = gathers[t] > most ? gathers[t] : most;
	return most;
}

static double largest_receiver(const struct problem *problem)
{
	uint64_t most = 0;

	for (uint32_t r = 0; r < problem->inference_count; r++) {
		const struct problem_layout *layout =
			&problem->layouts[problem->inference_layout[r]];
		uint64_t bytes = 0;

		for (size_t p = 0; p < layout->piece_count; p++)
			bytes += layout->pieces[p].bytes;
		most = bytes > most ? bytes : most;
	}
	return (double)most;
}

int simulate_bound(struct simulated_bound *bound, const struct table *table,
		   const double rates[STAGE_COUNT], struct error *error)
{
	struct certificate certificate;
	double *gathers = NULL, work[STAGE_COUNT] = {0};
	uint64_t copies = 0;
	int rc = certificate_of(&certificate, table, error);

	*bound = (struct simulated_bound){0};
	if (!rc)
		rc = copy_bound(&copies, table->problem, error);
	if (!rc)
		rc = sim_gathers(&gathers, table->problem, error);
	if (rc)
		return rc;
	work[STAGE_GATHER] = gather_bound(gathers, table->problem->trainer_count);
	work[STAGE_DEVICE_TO_HOST] = work[STAGE_PACK] = (double)copies;
	work[STAGE_VERIFY] = largest_receiver(table->problem);
	memory_free(gathers);
	bound->wire_seconds = bound->seconds = certificate.bound_seconds;
	for (int s = 0; s < STAGE_COUNT; s++) {
		bound->stage_seconds[s] = rates[s] > 0 ? work[s] / rates[s] : 0;
		if (bound->stage_seconds[s] > bound->seconds)
			bound->seconds = bound->stage_seconds[s];
	}
	return 0;
}
