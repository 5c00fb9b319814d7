/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/memory_plan.h"

#include "base/array.h"
#include "base/compare.h"
#include "base/pool.h"
#include "model/family.h"
#include "model/form.h"
#include "model/layout_file.h"
#include "routing/plan/pair_sums.h"
#include "routing/plan/policy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the published design ---- */

struct staged {
	uint64_t bytes;
	uint32_t parts; /* of the weights; scales come beside them */
};

/* The parameters of one layer, by their first row. */
static void take_layer(struct memory_published *published, const struct staged *staged,
		       const struct family *family, const struct infer_spec *infer, int64_t layer)
{
	for (size_t r = 0; r < family->rule_count; r++) {
		if (staged[r].parts < 2 || staged[r].bytes <= published->staged_bytes)
			continue;
		published->staged_bytes = staged[r].bytes;
		if (!rule_name(form_param(&family->rules[r], infer), (uint64_t)layer, 0, false,
			       published->staged))
			published->staged[0] = '\0';
	}
}

static size_t first_row(const struct family *family, const struct infer_spec *infer, uint32_t rule)
{
	const char *param = form_param(&family->rules[rule], infer);
	size_t r = 0;

	while (strcmp(form_param(&family->rules[r], infer), param) != 0)
		r++;
	return r;
}

#define RULES_MAX 64

static void find_staged(struct memory_published *published, const struct model *model,
			const struct infer_spec *infer)
{
	const struct family *family = model->config.family;
	struct staged staged[RULES_MAX] = {0};
	size_t rows[RULES_MAX];

	if (family->rule_count > RULES_MAX)
		abort(); /* a table of this program */
	for (uint32_t r = 0; r < family->rule_count; r++)
		rows[r] = first_row(family, infer, r);
	for (size_t t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		struct staged *of = &staged[rows[tensor->rule]];

		of->bytes += tensor->bytes;
		of->parts += !tensor->scale;
		if (t + 1 < model->tensor_count && model->tensors[t + 1].layer == tensor->layer)
			continue;
		take_layer(published, staged, family, infer, tensor->layer);
		memset(staged, 0, sizeof(staged));
	}
}

/* Of one parameter name of a layout file, over all ranks' entries. */
struct staging {
	const char *name;
	uint64_t bytes;
	uint32_t parts;
};

struct staging_names {
	struct staging *items;
	uint32_t count;
	uint32_t *last_seen; /* by tensor: the name that it was counted for, plus 1 */
	struct strmap known;
};

/* Entries of one name stand together in a file: a tensor that several of them take counts once. */
static bool stage_entry(struct staging_names *names, const struct model *model,
			const struct layout_entry *entry)
{
	const struct layout_item *item = &model->file->items.items[entry->item_first];
	const struct layout_item *end = item + entry->item_count;
	uint32_t at = names->count;

	if (!strmap_get(&names->known, entry->name, &at)) {
		if (!strmap_put(&names->known, entry->name, at))
			return false;
		names->items[names->count++].name = entry->name;
	}
	for (; item < end; item++) {
		if (item->tensor == LAYOUT_FILL || names->last_seen[item->tensor] == at + 1)
			continue;
		names->last_seen[item->tensor] = at + 1;
		names->items[at].bytes += model->tensors[item->tensor].bytes;
		names->items[at].parts += !model->tensors[item->tensor].scale;
	}
	return true;
}

static int find_staged_in_file(struct memory_published *published, const struct model *model,
			       struct error *error)
{
	size_t entries = model->file->entries.count;
	struct staging_names names = {
		.items = memory_zalloc(entries, sizeof(*names.items)),
		.last_seen = memory_zalloc(model->tensor_count, sizeof(*names.last_seen)),
	};
	bool ok = names.items && names.last_seen;

	for (size_t e = 0; ok && e < entries; e++)
		ok = stage_entry(&names, model, &model->file->entries.items[e]);
	for (uint32_t n = 0; ok && n < names.count; n++) {
		const struct staging *staging = &names.items[n];

		if (staging->parts < 2 || staging->bytes <= published->staged_bytes)
			continue;
		published->staged_bytes = staging->bytes;
		snprintf(published->staged, sizeof(published->staged), "%s", staging->name);
	}
	strmap_fini(&names.known);
	memory_free(names.items);
	memory_free(names.last_seen);
	return ok ? 0 : memory_error(error, "planning memory", entries * sizeof(*names.items));
}

static uint64_t layout_bytes(const struct layout *layout)
{
	uint64_t bytes = 0;

	for (size_t p = 0; p < layout->param_count; p++)
		bytes += layout->params[p].bytes;
	return bytes;
}

/* The plan of the published design: the senders of one stage, which all stages repeat. */
static int deal_published(struct memory_published *published, const struct train_spec *train,
			  const struct infer_spec *infer, struct error *error)
{
	uint32_t senders = train->world / train->pp, ranks = infer_ranks(infer);
	struct round_robin_targets targets = {.count = ranks, .kinds = infer->tp};
	struct pool pool = {0};
	uint32_t *sender = pool_array(&pool, ranks, sizeof(*sender));
	uint32_t *sessions = pool_array(&pool, senders, sizeof(*sessions));
	uint32_t *groups = pool_array(&pool, senders, sizeof(*groups));
	bool *seen = pool_array(&pool, (size_t)senders * infer->tp, sizeof(*seen));
	int rc = 0;

	targets.kind = pool_array(&pool, ranks, sizeof(*targets.kind));
	if (!pool_ok(&pool))
		rc = memory_error(error, "dealing ranks out", ranks * sizeof(*sender));
	for (uint32_t i = 0; !rc && i < ranks; i++)
		targets.kind[i] = i % infer->tp;
	if (!rc)
		rc = round_robin_deal(&targets, senders, sender, error);
	for (uint32_t i = 0; !rc && i < ranks; i++) {
		bool *served = &seen[(size_t)sender[i] * infer->tp + targets.kind[i]];

		groups[sender[i]] += !*served;
		*served = true;
		if (++sessions[sender[i]] > published->sessions)
			published->sessions = sessions[sender[i]];
		if (groups[sender[i]] > published->groups)
			published->groups = groups[sender[i]];
	}
	pool_free(&pool);
	return rc;
}

int memory_published(struct memory_published *published, const struct model *model,
		     const struct train_spec *train, const struct infer_spec *infer,
		     struct error *error)
{
	*published = (struct memory_published){0};
	if (!model->file) {
		find_staged(published, model, infer);
	} else {
		int rc = find_staged_in_file(published, model, error);

		if (rc)
			return rc;
	}
	return deal_published(published, train, infer, error);
}

/* ---- weft: what the table makes each worker keep ---- */

/* A piece as its trainer packs it: counted once, whoever wants it. */
struct source {
	uint32_t trainer;
	bool packed;
	uint64_t bytes;
	struct box src;
};

/* The same in the replica that is kept: counted once an offset. */
struct target {
	uint32_t trainer, name; /* of the parameter: a number */
	uint64_t offset, bytes;
};

static int by_source(const void *left, const void *right)
{
	const struct source *a = left, *b = right;
	int order = compare_u64(a->trainer, b->trainer);

	for (uint32_t d = 0; !order && d < a->src.dims && d < b->src.dims; d++) {
		order = compare_u64(a->src.lo[d], b->src.lo[d])
				?: compare_u64(a->src.hi[d], b->src.hi[d]);
	}
	return order ?: compare_u64(a->bytes, b->bytes);
}

static int by_target(const void *left, const void *right)
{
	const struct target *a = left, *b = right;

	return compare_u64(a->trainer, b->trainer)
		       ?: compare_u64(a->name, b->name)
		       ?: compare_u64(a->offset, b->offset);
}

struct pieces {
	ARRAY(struct source) sources; /* of one tensor at a time */
	ARRAY(struct target) targets;
};

/* The pieces of one tensor: each distinct one takes a slot. */
static void take_sources(struct memory_plan *plan, struct pieces *pieces)
{
	struct source *items = pieces->sources.items;
	size_t count = pieces->sources.count;

	sort_items(items, count, by_source);
	for (size_t i = 0; i < count; i++) {
		struct memory_trainer *trainer = &plan->trainers[items[i].trainer];

		if (i && by_source(&items[i - 1], &items[i]) == 0)
			continue;
		trainer->ring_bytes += items[i].bytes + MEMORY_SLOT_BYTES;
		if (items[i].packed)
			trainer->packed_bytes += items[i].bytes + MEMORY_SLOT_BYTES;
	}
	pieces->sources.count = 0;
}

static void take_targets(struct memory_plan *plan, const struct pieces *pieces)
{
	struct target *items = pieces->targets.items;
	uint64_t end = 0;

	sort_items(items, pieces->targets.count, by_target);
	for (size_t i = 0; i < pieces->targets.count; i++) {
		uint64_t to = items[i].offset + items[i].bytes, from = items[i].offset;

		if (!i || items[i].trainer != items[i - 1].trainer ||
		    items[i].name != items[i - 1].name)
			end = 0;
		from = from > end ? from : end;
		if (to <= from)
			continue;
		plan->trainers[items[i].trainer].full_bytes += to - from;
		end = to;
	}
}

/* Engine ranks call their parameters the same: one number a name. */
struct names {
	struct strmap map;
	uint32_t **of; /* by layout, by parameter */
	struct pool pool;
};

static int number_names(struct names *names, const struct problem *problem, struct error *error)
{
	bool good = true;

	names->of = pool_array(&names->pool, problem->layout_count, sizeof(*names->of));
	for (size_t l = 0; names->of && l < problem->layout_count; l++) {
		const struct layout *layout = problem->layouts[l].layout;
		uint32_t *of = pool_array(&names->pool, layout->param_count, sizeof(*of));

		names->of[l] = of;
		for (size_t p = 0; of && good && p < layout->param_count; p++) {
			const char *name = layout->params[p].name;

			of[p] = (uint32_t)names->map.count;
			good = strmap_get(&names->map, name, &of[p]) ||
			       strmap_put(&names->map, name, of[p]);
		}
	}
	return good && pool_ok(&names->pool)
		       ? 0
		       : memory_error(error, "planning memory", problem->layout_count);
}

static void names_fini(struct names *names)
{
	pool_free(&names->pool);
	strmap_fini(&names->map);
}

static int add_route(struct memory_plan *plan, const struct table *table, const struct route *route,
		     const uint32_t *names, struct pieces *pieces, struct error *error)
{
	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];
		struct source source = {route->trainer, piece->path != PATH_DIRECT, piece->bytes,
					piece->src};
		struct target target = {route->trainer, names[piece->param], piece->offset,
					piece->bytes};

		if (!array_add(&pieces->sources, source) || !array_add(&pieces->targets, target))
			return memory_error(error, "planning memory", sizeof(target));
	}
	plan->trainers[route->trainer].pieces += route->piece_count;
	plan->trainers[route->trainer].sent_bytes += route->bytes;
	plan->inference[route->inference].pieces += route->piece_count;
	return 0;
}

static int walk_routes(struct memory_plan *plan, const struct table *table, struct error *error)
{
	const struct problem *problem = table->problem;
	struct pieces pieces = {.sources = {0}};
	struct names names = {.of = NULL};
	int rc = number_names(&names, problem, error);

	for (size_t i = 0; i < table->route_count && !rc; i++) {
		const struct route *route = &table->routes[i];

		if (i && route->tensor != route[-1].tensor)
			take_sources(plan, &pieces);
		rc = add_route(plan, table, route,
			       names.of[problem->inference_layout[route->inference]], &pieces,
			       error);
	}
	if (!rc) {
		take_sources(plan, &pieces);
		take_targets(plan, &pieces);
	}
	names_fini(&names);
	array_free(&pieces.sources);
	array_free(&pieces.targets);
	return rc;
}

static struct pair_sum landed_of(const struct table *table, const struct route *route)
{
	struct pair_sum landed = {.pair = table_pair(route)};

	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];

		landed.bytes += piece->path == PATH_LANDED ? piece->bytes + MEMORY_SLOT_BYTES : 0;
		landed.small_bytes += write_is_merged(piece) ? piece->bytes + MEMORY_SLOT_BYTES : 0;
	}
	return landed;
}

static uint64_t clamped(uint64_t bytes, uint64_t least, uint64_t most)
{
	bytes = bytes < most ? bytes : most;
	return bytes > least ? bytes : least;
}

/* As worker/epoch/windows.c and worker/epoch/send_memory.c share their limits out. */
static void share_out(struct memory_plan *plan, const struct pair_sum *pairs, size_t count,
		      uint32_t *ranks_of, uint32_t *trainers_of, uint64_t ring_bytes)
{
	for (size_t i = 0; i < count; i++) {
		ranks_of[pairs[i].pair >> 32] += pairs[i].small_bytes != 0;
		trainers_of[(uint32_t)pairs[i].pair]++;
	}
	for (size_t i = 0; i < count; i++) {
		uint32_t trainer = (uint32_t)(pairs[i].pair >> 32), rank = (uint32_t)pairs[i].pair;
		uint64_t most = ranks_of[trainer] ? ring_bytes / 4 / ranks_of[trainer] : 0;

		plan->inference[rank].landing_bytes +=
			clamped(pairs[i].bytes, MEMORY_WINDOW_MIN,
				MEMORY_LANDING_DEFAULT / trainers_of[rank]);
		if (pairs[i].small_bytes)
			plan->trainers[trainer].merge_bytes += clamped(
				pairs[i].small_bytes, MEMORY_MERGE_MIN,
				most < 2 * MERGE_WRITE_BYTES ? most : 2 * MERGE_WRITE_BYTES);
	}
}

static int walk_landed(struct memory_plan *plan, const struct table *table, uint64_t ring_bytes,
		       struct error *error)
{
	struct pair_sums pairs = {0};
	struct pool pool = {0};
	uint32_t *ranks_of = pool_array(&pool, plan->trainer_count, sizeof(*ranks_of));
	uint32_t *trainers_of = pool_array(&pool, plan->inference_count, sizeof(*trainers_of));
	bool memory = pool_ok(&pool);

	for (size_t r = 0; r < table->route_count && memory; r++) {
		struct pair_sum landed = landed_of(table, &table->routes[r]);

		if (landed.bytes)
			memory = array_add(&pairs, landed);
	}
	pair_sums_unite(&pairs);
	if (memory)
		share_out(plan, pairs.items, pairs.count, ranks_of, trainers_of, ring_bytes);
	array_free(&pairs);
	pool_free(&pool);
	return memory ? 0 : memory_error(error, "planning memory", sizeof(struct pair_sum));
}

static uint64_t held_bytes(const struct problem *problem, const struct problem_holding *holding)
{
	uint64_t bytes = 0;

	for (size_t t = 0; t < problem->tensor_count; t++)
		for (uint32_t h = holding->held_of[t]; h < holding->held_of[t + 1]; h++)
			bytes += box_elements(&holding->held[h].box) *
				 dtype_bytes(problem->tensors[t].dtype);
	return bytes;
}

static void finish(struct memory_plan *plan, const struct problem *problem, uint64_t ring_bytes)
{
	for (uint32_t t = 0; t < plan->trainer_count; t++) {
		struct memory_trainer *trainer = &plan->trainers[t];

		trainer->source_bytes =
			held_bytes(problem, &problem->holdings[problem->trainer_holding[t]]);
		if (trainer->ring_bytes > ring_bytes)
			trainer->ring_bytes = ring_bytes;
		if (trainer->packed_bytes > ring_bytes)
			trainer->packed_bytes = ring_bytes;
	}
	for (uint32_t i = 0; i < plan->inference_count; i++) {
		uint32_t layout = problem->inference_layout[i];
		uint64_t bytes = layout_bytes(problem->layouts[layout].layout);

		plan->inference[i].param_bytes = bytes;
		if (bytes > plan->published.replica_bytes)
			plan->published.replica_bytes = bytes;
	}
}

int memory_plan(struct memory_plan *plan, const struct model *model, const struct train_spec *train,
		const struct infer_spec *infer, const struct table *table, uint64_t ring_bytes,
		struct error *error)
{
	const struct problem *problem = table->problem;
	int rc;

	*plan = (struct memory_plan){.trainer_count = problem->trainer_count,
				     .inference_count = problem->inference_count};
	plan->trainers = memory_zalloc(plan->trainer_count, sizeof(*plan->trainers));
	plan->inference = memory_zalloc(plan->inference_count, sizeof(*plan->inference));
	rc = plan->trainers && plan->inference
		     ? memory_published(&plan->published, model, train, infer, error)
		     : memory_error(error, "planning memory", sizeof(*plan->trainers));
	if (!rc)
		rc = walk_routes(plan, table, error);
	if (!rc)
		rc = walk_landed(plan, table, ring_bytes, error);
	if (rc) {
		memory_plan_fini(plan);
		return rc;
	}
	finish(plan, problem, ring_bytes);
	return 0;
}

void memory_plan_fini(struct memory_plan *plan)
{
	memory_free(plan->trainers);
	memory_free(plan->inference);
	*plan = (struct memory_plan){0};
}
