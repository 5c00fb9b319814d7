/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.c -- units, made tensor by tensor. All that engines share is worked out once per
 * (tensor, distinct layout) and then repeated for the ranks that have the layout.
 */
#include "routing/plan/unit_builder.h"

#include "base/assert.h"
#include "base/compare.h"
#include "base/memory.h"
#include <inttypes.h>
#include <string.h>

#define NONE UINT32_MAX

/* ---- holder sets ---- */

static int grow_slots(struct unit_builder *b, struct error *error)
{
	size_t wanted = b->slot_count ? b->slot_count * 2 : 64;
	uint32_t *slots = memory_alloc(wanted * sizeof(*slots));

	if (!slots)
		return unit_no_memory(error);
	memset(slots, 0xff, wanted * sizeof(*slots));
	for (size_t k = 0; k < b->keys.count; k++) {
		const struct unit_key *key = &b->keys.items[k];
		size_t at = checksum64(b->key_members.items + key->first,
				       key->count * sizeof(uint32_t)) &
			    (wanted - 1);

		while (slots[at] != NONE)
			at = (at + 1) & (wanted - 1);
		slots[at] = (uint32_t)k;
	}
	memory_free(b->slots);
	WEFT_ASSERT_OP(wanted & (wanted - 1), ==, 0); /* the masks above and below */
	b->slots = slots;
	b->slot_count = wanted;
	return 0;
}

int unit_intern(struct unit_builder *b, const uint32_t *holdings, uint32_t count, uint32_t *set,
		struct error *error)
{
	size_t bytes = count * sizeof(uint32_t), at;

	WEFT_ASSERT_OP(count, >, 0); /* somebody holds it */

	if ((b->keys.count + 1) * 2 > b->slot_count) {
		int rc = grow_slots(b, error);

		if (rc)
			return rc;
	}
	WEFT_ASSERT_OP(b->keys.count, <, b->slot_count); /* so the search ends */
	at = checksum64(holdings, bytes) & (b->slot_count - 1);
	for (; b->slots[at] != NONE; at = (at + 1) & (b->slot_count - 1)) {
		const struct unit_key *key = &b->keys.items[b->slots[at]];

		if (key->count == count &&
		    memcmp(b->key_members.items + key->first, holdings, bytes) == 0) {
			*set = b->slots[at];
			return 0;
		}
	}
	size_t first = b->key_members.count;

	for (uint32_t i = 0; i < count; i++) {
		WEFT_ASSERT(i == 0 || holdings[i - 1] < holdings[i]);
		if (!array_add(&b->key_members, holdings[i]))
			return unit_no_memory(error);
	}
	if (!array_add(&b->keys, (struct unit_key){first, count}) || !array_push(&b->weights))
		return unit_no_memory(error);
	WEFT_ASSERT_OP(b->keys.count, ==, b->weights.count);
	*set = b->slots[at] = (uint32_t)b->keys.count - 1;
	return 0;
}

/* ---- all tensors ---- */

static int weigh(struct unit_builder *b, struct error *error)
{
	for (size_t l = 0; l < b->problem->layout_count; l++) {
		for (size_t s = b->share_first[l]; s < b->share_first[l + 1]; s++) {
			const struct unit_share *share = &b->shares.items[s];
			uint64_t bytes;

			WEFT_ASSERT_OP(share->set, <, b->keys.count);
			if (__builtin_mul_overflow(share->bytes, b->ranks_of[l], &bytes) ||
			    __builtin_add_overflow(b->total, bytes, &b->total) ||
			    b->total > UNIT_BYTES_MAX)
				return error_set(error, ERROR_LIMIT,
						 "one update of this job is "
						 "more than 2^62 bytes");
			b->weights.items[share->set] += bytes;
		}
	}
	return 0;
}

static int emit(struct unit_builder *b, uint32_t t, struct error *error)
{
	for (uint32_t i = 0; i < b->problem->inference_count; i++) {
		uint32_t l = b->problem->inference_layout[i];

		WEFT_ASSERT_OP(b->share_first[l + 1], <=, b->shares.count);
		for (size_t s = b->share_first[l]; s < b->share_first[l + 1]; s++) {
			const struct unit_share *share = &b->shares.items[s];

			if (!array_add(&b->items,
				       (struct unit){t, i, share->set, share->cell, share->lo,
						     share->hi, share->bytes}))
				return unit_no_memory(error);
		}
	}
	return 0;
}

static int walk(struct unit_builder *b, struct error *error)
{
	const struct problem *problem = b->problem;
	size_t layouts = problem->layout_count;

	b->share_first = pool_array(&b->pool, layouts + 1, sizeof(*b->share_first));
	b->ranks_of = pool_array(&b->pool, layouts, sizeof(*b->ranks_of));
	if (!pool_ok(&b->pool))
		return unit_no_memory(error);
	for (uint32_t i = 0; i < problem->inference_count; i++)
		b->ranks_of[problem->inference_layout[i]]++;
	for (uint32_t t = 0; t < problem->tensor_count; t++) {
		int rc = unit_segments(b, t, error);

		if (rc)
			return rc;
		b->shares.count = 0;
		for (size_t l = 0; l < layouts; l++) {
			const struct problem_layout *layout = &problem->layouts[l];
			uint32_t first = layout->pieces_of[t], end = layout->pieces_of[t + 1];

			b->share_first[l] = b->shares.count;
			if (first == end)
				continue;
			struct unit_wants wants = {(uint32_t)l, t, layout->pieces + first,
						   end - first};

			rc = unit_shares(b, &wants, error);
			if (rc)
				return error_wrap(error, "tensor '%s'", problem->tensors[t].name);
		}
		b->share_first[layouts] = b->shares.count;
		rc = weigh(b, error);
		if (!rc && b->list)
			rc = emit(b, t, error);
		if (rc)
			return rc;
	}
	return 0;
}

/* From sets of holdings to sets of trainers. */
static int publish_sets(struct unit_builder *b, struct units *units, struct error *error)
{
	const struct problem *problem = b->problem;
	size_t *of = pool_array(&b->pool, problem->holding_count + 2, sizeof(*of));
	uint32_t *trainers = pool_array(&b->pool, problem->trainer_count, sizeof(*trainers));
	size_t total = 0;

	units->sets = memory_zalloc(b->keys.count, sizeof(*units->sets));
	if (!pool_ok(&b->pool) || !units->sets)
		return unit_no_memory(error);
	for (uint32_t r = 0; r < problem->trainer_count; r++) /* by holding, ascending */
		of[problem->trainer_holding[r] + 2]++;
	for (size_t h = 0; h < problem->holding_count; h++)
		of[h + 2] += of[h + 1];
	for (uint32_t r = 0; r < problem->trainer_count; r++)
		trainers[of[problem->trainer_holding[r] + 1]++] = r;
	for (size_t m = 0; m < b->key_members.count; m++)
		total += of[b->key_members.items[m] + 1] - of[b->key_members.items[m]];
	units->set_storage = memory_alloc(total * sizeof(uint32_t));
	if (!units->set_storage)
		return unit_no_memory(error);
	uint32_t *out = units->set_storage;

	for (size_t k = 0; k < b->keys.count; k++) {
		const struct unit_key *key = &b->keys.items[k];
		uint32_t *begin = out;

		for (uint32_t m = 0; m < key->count; m++) {
			uint32_t h = b->key_members.items[key->first + m];

			memcpy(out, trainers + of[h], (of[h + 1] - of[h]) * sizeof(*out));
			out += of[h + 1] - of[h];
		}
		if (key->count > 1)
			sort_items(begin, (size_t)(out - begin), compare_u32s);
		units->sets[k] = (struct holder_set){begin, (uint32_t)(out - begin)};
	}
	WEFT_ASSERT_OP((size_t)(out - units->set_storage), ==, total);
	units->set_count = b->keys.count;
	return 0;
}

void unit_builder_fini(struct unit_builder *b)
{
	array_free(&b->sources);
	array_free(&b->segments);
	array_free(&b->cells);
	array_free(&b->boxes);
	array_free(&b->inside);
	array_free(&b->edges);
	array_free(&b->members);
	array_free(&b->borders);
	array_free(&b->shares);
	array_free(&b->keys);
	array_free(&b->key_members);
	array_free(&b->scratch);
	array_free(&b->able);
	array_free(&b->items);
	array_free(&b->weights);
	memory_free(b->slots);
	pool_free(&b->pool);
}

/* weights: where they go, or NULL. */
static int build(struct units *units, struct unit_builder *b, uint64_t **weights,
		 struct error *error)
{
	int rc;

	*units = (struct units){0};
	rc = walk(b, error);
	if (!rc)
		rc = publish_sets(b, units, error);
	if (!rc) {
		units->items = b->items.items;
		units->count = b->items.count;
		units->cells = b->boxes.items;
		units->cell_count = b->boxes.count;
		b->items.items = NULL;
		b->boxes.items = NULL;
	} else {
		units_fini(units);
	}
	if (weights) {
		*weights = rc ? NULL : b->weights.items;
		b->weights.items = rc ? b->weights.items : NULL;
	}
	unit_builder_fini(b);
	return rc;
}

/* The layout: what ranks want alike, if all trainers reach them. */
static int kinds_of_layouts(struct units *units, const struct problem *problem, struct error *error)
{
	units->kind = memory_alloc(problem->inference_count * sizeof(*units->kind));
	if (!units->kind)
		return unit_no_memory(error);
	memcpy(units->kind, problem->inference_layout,
	       problem->inference_count * sizeof(*units->kind));
	units->kind_count = problem->layout_count;
	return 0;
}

static int build_reached(struct units *units, const struct problem *problem, bool cut,
			 bool *left_out, struct error *error)
{
	struct unit_builder b = {.problem = problem, .cut = cut, .list = true};
	bool all;
	int rc = unit_reach_all(&all, problem, error);

	*units = (struct units){0};
	*left_out = false;
	if (!rc)
		rc = build(units, &b, NULL, error);
	if (!rc)
		rc = all ? kinds_of_layouts(units, problem, error)
			 : unit_reach(units, problem, left_out, error);
	if (rc)
		units_fini(units);
	return rc;
}

bool unit_cut(const struct units *units, const struct unit *unit, uint64_t lo, uint64_t hi,
	      const struct piece *piece, struct piece *out)
{
	struct piece rows;
	bool refused;

	if (unit->cell == UNIT_FULL)
		return piece_cut_rows(piece, lo, hi, out);
	return piece_cut_rows(piece, lo, hi, &rows) &&
	       piece_cut_columns(&rows, &units->cells[unit->cell], out, &refused) && !refused;
}

int units_build(struct units *units, const struct problem *problem, struct error *error)
{
	bool left_out;
	int rc = build_reached(units, problem, false, &left_out, error);

	if (rc || !left_out)
		return rc;
	units_fini(units); /* who holds a shard alone may reach where who holds all does not */
	return build_reached(units, problem, true, &left_out, error);
}

int units_build_cut(struct units *units, const struct problem *problem, struct error *error)
{
	bool left_out;

	return build_reached(units, problem, true, &left_out, error);
}

/* By the units themselves, whose holders differ from rank to rank. */
static int weigh_units(struct units *units, uint64_t **set_bytes, const struct problem *problem,
		       struct error *error)
{
	int rc = units_build_cut(units, problem, error);

	*set_bytes = rc ? NULL : memory_zalloc(units->set_count, sizeof(**set_bytes));
	if (!rc && !*set_bytes) {
		units_fini(units);
		return unit_no_memory(error);
	}
	for (size_t i = 0; !rc && i < units->count; i++)
		(*set_bytes)[units->items[i].holders] += units->items[i].bytes;
	memory_free(units->items);
	units->items = NULL;
	units->count = 0;
	return rc;
}

int units_weigh(struct units *units, uint64_t **set_bytes, const struct problem *problem,
		struct error *error)
{
	struct unit_builder b = {.problem = problem, .cut = true};
	bool all;
	int rc = unit_reach_all(&all, problem, error);

	*units = (struct units){0};
	*set_bytes = NULL;
	if (rc)
		return rc;
	return all ? build(units, &b, set_bytes, error)
		   : weigh_units(units, set_bytes, problem, error);
}

void units_fini(struct units *units)
{
	memory_free(units->items);
	memory_free(units->sets);
	memory_free(units->set_storage);
	memory_free(units->cells);
	memory_free(units->kind);
	*units = (struct units){0};
}
