/* SPDX-License-Identifier: Apache-2.0
 *
 * fixed.c -- rules that look at one unit and nothing else. With the n holders of a unit in
 * ascending order, the sender is holder number
 *
 *   first-holder   0
 *   modulo         inference rank % n
 *   hash           crc32(tensor name) % n
 */
#include "routing/plan/policy.h"

#include "routing/plan/explain.h"
#include <inttypes.h>
#include <string.h>

int first_holder_assign(const struct problem *problem, const struct plan_options *options,
			struct units *units, uint32_t **trainer, struct error *error)
{
	int rc = 0;

	for (size_t i = 0; i < units->count && !rc; i++) {
		const struct unit *unit = &units->items[i];
		const struct holder_set *set = &units->sets[unit->holders];

		(*trainer)[i] = set->trainers[0];
		if (explain_wants(options->explain, unit))
			rc = explain_add(options->explain, unit, set, NULL, set->trainers[0], error,
					 "trainer %" PRIu32 " is the lowest rank of its %" PRIu32
					 " holder%s",
					 set->trainers[0], set->count, set->count == 1 ? "" : "s");
	}
	return rc;
}

int modulo_assign(const struct problem *problem, const struct plan_options *options,
		  struct units *units, uint32_t **trainer, struct error *error)
{
	int rc = 0;

	for (size_t i = 0; i < units->count && !rc; i++) {
		const struct unit *unit = &units->items[i];
		const struct holder_set *set = &units->sets[unit->holders];
		uint32_t number = unit->inference % set->count;

		(*trainer)[i] = set->trainers[number];
		if (explain_wants(options->explain, unit))
			rc = explain_add(
				options->explain, unit, set, NULL, set->trainers[number], error,
				"inference rank %" PRIu32 " %% %" PRIu32 " holders is %" PRIu32
				", and holder number %" PRIu32 " is trainer %" PRIu32,
				unit->inference, set->count, number, number, set->trainers[number]);
	}
	return rc;
}

/* A handful of names a plan: a bit at a time is fast enough. */
uint32_t hash_crc32(const char *name)
{
	uint32_t crc = UINT32_MAX;

	for (const unsigned char *at = (const unsigned char *)name; *at; at++) {
		crc ^= *at;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (UINT32_C(0xedb88320) & (0u - (crc & 1)));
	}
	return ~crc;
}

int hash_assign(const struct problem *problem, const struct plan_options *options,
		struct units *units, uint32_t **trainer, struct error *error)
{
	uint32_t tensor = UINT32_MAX, hash = 0;
	int rc = 0;

	for (size_t i = 0; i < units->count && !rc; i++) {
		const struct unit *unit = &units->items[i];
		const struct holder_set *set = &units->sets[unit->holders];

		if (tensor != unit->tensor) /* units of a tensor follow each other */
			hash = hash_crc32(problem->tensors[tensor = unit->tensor].name);
		(*trainer)[i] = set->trainers[hash % set->count];
		if (explain_wants(options->explain, unit))
			rc = explain_add(options->explain, unit, set, NULL, (*trainer)[i], error,
					 "the name's crc32 is 0x%08" PRIx32 "; %% %" PRIu32
					 " holders is %" PRIu32 ", and holder number %" PRIu32
					 " is trainer %" PRIu32,
					 hash, set->count, hash % set->count, hash % set->count,
					 (*trainer)[i]);
	}
	return rc;
}
