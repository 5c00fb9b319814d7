/* SPDX-License-Identifier: Apache-2.0
 *
 * problem.c -- from declarations to a problem:
 *
 *   holdings --+                         +-- layouts (one a digest)
 *              +--> tensors by name -----+      pieces with the problem's tensor indexes
 *   layouts ---+    sorted (order, name) +-- holdings (one a digest)
 *                                               rows with the problem's tensor indexes
 *
 * and the check that every wanted row is held (problem_check.c).
 */
#include "routing/plan/problem.h"

#include "base/array.h"
#include "base/compare.h"
#include "job/strmap.h"
#include "routing/plan/path.h"
#include <inttypes.h>
#include <string.h>

#define NOWHERE UINT32_MAX

/* A tensor as first declared, and by whom: a conflict names both. */
struct declared {
	const struct tensor_info *info;
	struct member by;
};

struct builder {
	const struct problem_input *input;
	struct problem *problem;
	struct pool pool;
	uint32_t *holding_first; /* distinct holding -> first trainer that declares it */
	uint32_t *layout_first;
	ARRAY(struct declared) declared;
	struct strmap names; /* name -> index into declared */
	uint32_t *place;     /* index into declared -> problem tensor */
	uint32_t *map;	     /* tensor of the declaration at hand -> problem tensor */
	size_t longest;	     /* tensors of one declaration */
	uint32_t *fill;	     /* scratch, by problem tensor */
};

static bool info_equal(const struct tensor_info *a, const struct tensor_info *b)
{
	return a->dtype == b->dtype && a->dims == b->dims &&
	       memcmp(a->shape, b->shape, a->dims * sizeof(a->shape[0])) == 0;
}

static int conflict(const struct declared *first, const struct tensor_info *info, struct member by,
		    struct error *error)
{
	char one[MEMBER_TEXT_BYTES], two[MEMBER_TEXT_BYTES], a[128], b[128];

	return error_set(
		error, ERROR_CONFLICT,
		"tensor '%s' is declared as %s %s by %s and as %s %s by %s; one checkpoint "
		"has one shape and one dtype a tensor",
		info->name, dtype_name(first->info->dtype),
		shape_text(first->info->dims, first->info->shape, a, sizeof(a)),
		member_text(first->by, one), dtype_name(info->dtype),
		shape_text(info->dims, info->shape, b, sizeof(b)), member_text(by, two));
}

/* Numbers equal digests alike, in order of first appearance. */
static int distinct(const struct digest *digests, uint32_t count, uint32_t *class_of,
		    uint32_t *first, size_t *classes, struct error *error)
{
	size_t capacity = 16, found = 0;

	while (capacity < (size_t)count * 2)
		capacity *= 2;
	uint32_t *slots = memory_alloc(capacity * sizeof(*slots));

	if (!slots)
		return memory_error(error, "telling declarations apart", capacity * 4);
	memset(slots, 0xff, capacity * sizeof(*slots));
	for (uint32_t i = 0; i < count; i++) {
		size_t at = digests[i].low & (capacity - 1);

		while (slots[at] != NOWHERE && !digest_equal(digests[first[slots[at]]], digests[i]))
			at = (at + 1) & (capacity - 1);
		if (slots[at] == NOWHERE) {
			slots[at] = (uint32_t)found;
			first[found++] = i;
		}
		class_of[i] = slots[at];
	}
	memory_free(slots);
	*classes = found;
	return 0;
}

/* ---- tensors ---- */

static int declare_held(struct builder *b, const struct tensor_info *info, struct member by,
			struct error *error)
{
	uint32_t index;

	if (!strmap_get(&b->names, info->name, &index)) {
		if (!array_add(&b->declared, (struct declared){info, by}) ||
		    !strmap_put(&b->names, info->name, (uint32_t)b->declared.count - 1))
			return memory_error(error, "collecting tensors", sizeof(struct declared));
		return 0;
	}
	const struct declared *first = &b->declared.items[index];

	if (!info_equal(first->info, info))
		return conflict(first, info, by, error);
	if (first->info->order != info->order) {
		char one[MEMBER_TEXT_BYTES], two[MEMBER_TEXT_BYTES];

		return error_set(error, ERROR_CONFLICT,
				 "tensor '%s' has place %" PRIu32 " in checkpoint order for %s "
				 "and place %" PRIu32 " for %s; all trainers must count alike",
				 info->name, first->info->order, member_text(first->by, one),
				 info->order, member_text(by, two));
	}
	return 0;
}

static int declare_all(struct builder *b, struct error *error)
{
	const struct problem_input *input = b->input;

	for (size_t h = 0; h < b->problem->holding_count; h++) {
		uint32_t rank = b->holding_first[h];
		const struct holding *holding = input->trainers[rank];
		struct member by = {ROLE_TRAINER, rank};

		b->longest =
			holding->tensor_count > b->longest ? holding->tensor_count : b->longest;
		for (size_t t = 0; t < holding->tensor_count; t++) {
			int rc = declare_held(b, &holding->tensors[t], by, error);

			if (rc)
				return rc;
		}
	}
	/* A layout only has to agree: what it alone knows, nobody can source. */
	for (size_t l = 0; l < b->problem->layout_count; l++) {
		uint32_t rank = b->layout_first[l], index;
		const struct layout *layout = input->inference[rank];

		b->longest = layout->tensor_count > b->longest ? layout->tensor_count : b->longest;
		for (size_t t = 0; t < layout->tensor_count; t++) {
			const struct tensor_info *info = &layout->tensors[t];

			if (strmap_get(&b->names, info->name, &index) &&
			    !info_equal(b->declared.items[index].info, info))
				return conflict(&b->declared.items[index], info,
						(struct member){ROLE_INFERENCE, rank}, error);
		}
	}
	return 0;
}

struct sortable {
	const struct tensor_info *info;
	uint32_t index;
};

static int by_order(const void *x, const void *y)
{
	const struct sortable *a = x, *b = y;

	return compare_u64(a->info->order, b->info->order) ?: strcmp(a->info->name, b->info->name);
}

static int place_tensors(struct builder *b, struct error *error)
{
	size_t count = b->declared.count;
	struct problem *problem = b->problem;
	struct sortable *sorted = pool_array(&b->pool, count, sizeof(*sorted));

	b->place = pool_array(&b->pool, count, sizeof(*b->place));
	b->fill = pool_array(&b->pool, count + 1, sizeof(*b->fill));
	b->map = pool_array(&b->pool, b->longest, sizeof(*b->map));
	problem->tensors = pool_array(&problem->pool, count, sizeof(*problem->tensors));
	if (!pool_ok(&b->pool) || !problem->tensors)
		return memory_error(error, "placing tensors", count * sizeof(*sorted));
	for (size_t i = 0; i < count; i++)
		sorted[i] = (struct sortable){b->declared.items[i].info, (uint32_t)i};
	sort_items(sorted, count, by_order);
	for (size_t i = 0; i < count; i++) {
		const struct tensor_info *info = sorted[i].info;
		struct problem_tensor *tensor = &problem->tensors[i];

		tensor->name = pool_string(&problem->pool, info->name);
		if (!tensor->name)
			return memory_error(error, "placing tensors", strlen(info->name));
		tensor->dtype = info->dtype;
		tensor->dims = info->dims;
		memcpy(tensor->shape, info->shape, sizeof(tensor->shape));
		tensor->bytes = info->bytes;
		tensor->order = info->order;
		b->place[sorted[i].index] = (uint32_t)i;
	}
	problem->tensor_count = count;
	return 0;
}

/* Where the tensors of one declaration are in the problem; NOWHERE for those nobody holds. */
static void translate(struct builder *b, const struct tensor_info *tensors, size_t count)
{
	uint32_t index;

	for (size_t t = 0; t < count; t++)
		b->map[t] =
			strmap_get(&b->names, tensors[t].name, &index) ? b->place[index] : NOWHERE;
}

/* ---- layouts and holdings ---- */

/* No trainer declares a tensor that the piece needs, its own or that of its scales. */
static int undeclared(const struct problem *problem, const struct layout *layout, uint32_t rank,
		      const struct piece *piece, uint32_t tensor, struct error *error)
{
	const bool scales = tensor != piece->tensor;
	struct box box = scales ? transform_scales_box(&piece->transform, &piece->src) : piece->src;
	char rows[128];

	return error_set(error, ERROR_UNSOURCED,
			 "parameter '%s' of inference %" PRIu32 " needs tensor '%s' %s%s, and none "
			 "of the %" PRIu32 " trainers declares that tensor",
			 layout->params[piece->param].name, rank, layout->tensors[tensor].name,
			 box_text(&box, rows, sizeof(rows)),
			 scales ? " (the scales of its blocks)" : "", problem->trainer_count);
}

static int add_layout(struct builder *b, size_t index, struct error *error)
{
	struct problem *problem = b->problem;
	struct problem_layout *out = &problem->layouts[index];
	uint32_t rank = b->layout_first[index];
	const struct layout *layout = b->input->inference[rank];
	const uint32_t *map = b->map;

	translate(b, layout->tensors, layout->tensor_count);
	out->digest = b->input->inference_digests[rank];
	out->layout = layout;
	out->pieces = pool_array(&problem->pool, layout->piece_count, sizeof(*out->pieces));
	out->pieces_of =
		pool_array(&problem->pool, problem->tensor_count + 1, sizeof(*out->pieces_of));
	if (!pool_ok(&problem->pool))
		return memory_error(error, "translating a layout",
				    layout->piece_count * sizeof(*out->pieces));
	for (size_t i = 0; i < layout->piece_count; i++) {
		struct piece piece = layout->pieces[i];

		if (map[piece.tensor] == NOWHERE)
			return undeclared(problem, layout, rank, &piece, piece.tensor, error);
		if (piece.transform.from_rows && map[piece.scales] == NOWHERE)
			return undeclared(problem, layout, rank, &piece, piece.scales, error);
		piece.tensor = map[piece.tensor];
		if (piece.transform.from_rows)
			piece.scales = map[piece.scales];
		out->pieces[i] = piece;
		out->pieces_of[piece.tensor + 1]++;
	}
	out->piece_count = layout->piece_count;
	for (size_t t = 0; t < problem->tensor_count; t++)
		out->pieces_of[t + 1] += out->pieces_of[t];
	sort_items(out->pieces, out->piece_count, piece_compare);
	return 0;
}

static int add_holding(struct builder *b, size_t index, struct error *error)
{
	struct problem *problem = b->problem;
	struct problem_holding *out = &problem->holdings[index];
	uint32_t rank = b->holding_first[index];
	const struct holding *holding = b->input->trainers[rank];
	const uint32_t *map = b->map;

	translate(b, holding->tensors, holding->tensor_count);
	out->digest = b->input->trainer_digests[rank];
	out->held = pool_array(&problem->pool, holding->held_count, sizeof(*out->held));
	out->held_of = pool_array(&problem->pool, problem->tensor_count + 1, sizeof(*out->held_of));
	if (!pool_ok(&problem->pool))
		return memory_error(error, "translating a holding",
				    holding->held_count * sizeof(*out->held));
	for (size_t i = 0; i < holding->held_count; i++)
		out->held_of[map[holding->held[i].tensor] + 1]++;
	for (size_t t = 0; t < problem->tensor_count; t++)
		out->held_of[t + 1] += out->held_of[t];
	memcpy(b->fill, out->held_of, (problem->tensor_count + 1) * sizeof(*b->fill));
	/* Boxes of one tensor are together and ascending already (holding_finish). */
	for (size_t i = 0; i < holding->held_count; i++) {
		const struct held *held = &holding->held[i];

		uint32_t t = map[held->tensor], at = b->fill[t]++;
		uint64_t reach = at > out->held_of[t] ? out->held[at - 1].reach : 0;

		problem->boxed =
			problem->boxed || !box_whole_rows(&held->box, problem->tensors[t].shape);
		out->held[at] = (struct problem_held){
			held->box, held->place, reach > held->box.hi[0] ? reach : held->box.hi[0]};
	}
	out->held_count = holding->held_count;
	return 0;
}

/* ---- the whole ---- */

static int copy_ranks(struct builder *b, struct error *error)
{
	const struct problem_input *input = b->input;
	struct problem *problem = b->problem;
	uint32_t trainers = input->trainer_count, ranks = input->inference_count;

	problem->model = memory_string(input->model ? input->model : "");
	problem->train = pool_string(&problem->pool, input->train ? input->train : "");
	problem->infer = pool_string(&problem->pool, input->infer ? input->infer : "");
	problem->trainer_holding = pool_array(&problem->pool, trainers, sizeof(uint32_t));
	problem->trainer_stage = pool_array(&problem->pool, trainers, sizeof(uint32_t));
	problem->trainer_registered = pool_array(&problem->pool, trainers, sizeof(bool));
	problem->trainer_merges = pool_array(&problem->pool, trainers, sizeof(bool));
	problem->inference_layout = pool_array(&problem->pool, ranks, sizeof(uint32_t));
	problem->inference_mapped = pool_array(&problem->pool, ranks, sizeof(bool));
	problem->inference_landed = pool_array(&problem->pool, ranks, sizeof(bool));
	problem->trainer_away = pool_array(&problem->pool, trainers, sizeof(bool));
	problem->inference_away = pool_array(&problem->pool, ranks, sizeof(bool));
	b->holding_first = pool_array(&b->pool, trainers, sizeof(uint32_t));
	b->layout_first = pool_array(&b->pool, ranks, sizeof(uint32_t));
	if (!problem->model || !pool_ok(&problem->pool) || !pool_ok(&b->pool))
		return memory_error(error, "listing ranks", (size_t)trainers + ranks);
	problem->ranks_per_engine = input->ranks_per_engine;
	problem->trainer_count = trainers;
	problem->inference_count = ranks;
	for (uint32_t i = 0; i < trainers; i++) {
		problem->trainer_registered[i] =
			input->trainer_registered ? input->trainer_registered[i] : true;
		problem->trainer_merges[i] = !input->trainer_device || !input->trainer_device[i];
		if (input->trainer_stages)
			problem->trainer_stage[i] = input->trainer_stages[i];
		problem->trainer_away[i] = input->trainer_away && input->trainer_away[i];
	}
	for (uint32_t i = 0; i < ranks; i++) {
		problem->inference_mapped[i] =
			input->inference_mapped ? input->inference_mapped[i] : true;
		problem->inference_landed[i] =
			input->inference_landed && input->inference_landed[i];
		problem->inference_away[i] = input->inference_away && input->inference_away[i];
	}
	return input->pairs ? problem_set_pairs(problem, input->pairs, error) : 0;
}

void problem_land_all(struct problem *problem)
{
	for (uint32_t i = 0; i < problem->inference_count; i++)
		problem->inference_landed[i] = true;
}

int problem_set_pairs(struct problem *problem, const struct pairs *pairs, struct error *error)
{
	problem->pairs = pool_array(&problem->pool, 1, sizeof(*problem->pairs));
	if (problem->pairs && pairs_copy(problem->pairs, &problem->pool, pairs))
		return 0;
	return memory_error(error, "listing transports",
			    (size_t)pairs->count[ROLE_TRAINER] + pairs->count[ROLE_INFERENCE]);
}

const struct problem_held *problem_held_in(const struct problem_holding *holding, uint32_t tensor,
					   const struct box *box)
{
	size_t end = holding->held_of[tensor + 1];
	/* whoever has it begins at its first row or before; most tensors are one box, or rows one after the other */
	size_t i = search_first(at, holding->held_of[tensor], end,
				holding->held[at].box.lo[0] > box->lo[0]);

	while (i-- > holding->held_of[tensor] && holding->held[i].reach > box->lo[0])
		if (box_within(box, &holding->held[i].box))
			return &holding->held[i];
	return NULL;
}

const struct problem_held *problem_held(const struct problem *problem, uint32_t trainer,
					uint32_t tensor, const struct box *box)
{
	return problem_held_in(&problem->holdings[problem->trainer_holding[trainer]], tensor, box);
}

static bool lies_in_one(const struct problem_held *held, const struct box *src)
{
	struct runs runs;

	return held && placement_runs(&held->place, &held->box, src, 1, &runs) && runs.rows == 1;
}

bool problem_in_one_run(const struct problem *problem, uint32_t trainer, uint32_t tensor,
			const struct box *src)
{
	return lies_in_one(problem_held(problem, trainer, tensor, src), src);
}

enum route_path problem_path(const struct problem *problem, uint32_t trainer, uint32_t inference,
			     bool copy, uint32_t tensor, const struct box *src,
			     const struct spread *spread)
{
	return problem_path_of(problem, trainer, inference, copy,
			       problem_held(problem, trainer, tensor, src), src, spread);
}

/* What decides about paths, of a trainer and an inference rank. */
struct pair_facts {
	bool reached, registered, mapped, landed;
};

static struct pair_facts facts_of(const struct problem *problem, uint32_t trainer,
				  uint32_t inference)
{
	const struct pairs *pairs = problem->pairs;
	const struct pair_side *from, *to;
	struct pair_facts facts = {true, problem->trainer_registered[trainer],
				   problem->inference_mapped[inference],
				   problem->inference_landed[inference]};
	uint32_t transport;

	if (!pairs)
		return facts;
	transport = pairs_transport(pairs, trainer, inference);
	if (transport == pairs->list.count)
		return (struct pair_facts){.reached = false};
	from = pairs_side(pairs, ROLE_TRAINER, trainer, transport);
	to = pairs_side(pairs, ROLE_INFERENCE, inference, transport);
	facts.registered = from->registered;
	facts.mapped = from->mapped && to->mapped && (!to->device || from->device);
	facts.landed = to->landed;
	return facts;
}

bool problem_merges(const struct problem *problem, uint32_t trainer, uint32_t inference)
{
	struct pair_facts facts = facts_of(problem, trainer, inference);

	return problem->boxed && problem->trainer_merges[trainer] && facts.reached &&
	       !facts.mapped && !facts.landed;
}

enum route_path problem_path_of(const struct problem *problem, uint32_t trainer, uint32_t inference,
				bool copy, const struct problem_held *held, const struct box *src,
				const struct spread *spread)
{
	struct pair_facts facts = facts_of(problem, trainer, inference);

	if (!facts.reached) /* nothing goes there */
		return PATH_REPLICA;
	if (facts.landed || (spread->run_bytes && !facts.mapped))
		return PATH_LANDED;
	if (spread->run_bytes)
		return PATH_MAPPED;
	return path_of_piece(copy, copy && facts.registered && lies_in_one(held, src),
			     facts.registered, facts.mapped);
}

static int build(struct builder *b, struct error *error)
{
	const struct problem_input *input = b->input;
	struct problem *problem = b->problem;
	size_t holdings = 0, layouts = 0;
	int rc = copy_ranks(b, error);

	if (rc)
		return rc;
	rc = distinct(input->trainer_digests, input->trainer_count, problem->trainer_holding,
		      b->holding_first, &holdings, error);
	if (rc)
		return rc;
	rc = distinct(input->inference_digests, input->inference_count, problem->inference_layout,
		      b->layout_first, &layouts, error);
	if (rc)
		return rc;
	problem->holdings = pool_array(&problem->pool, holdings, sizeof(*problem->holdings));
	problem->layouts = pool_array(&problem->pool, layouts, sizeof(*problem->layouts));
	if (!pool_ok(&problem->pool))
		return memory_error(error, "listing declarations", holdings + layouts);
	problem->holding_count = holdings;
	problem->layout_count = layouts;
	rc = declare_all(b, error);
	if (rc)
		return rc;
	rc = place_tensors(b, error);
	for (size_t h = 0; !rc && h < holdings; h++)
		rc = add_holding(b, h, error);
	for (size_t l = 0; !rc && l < layouts; l++)
		rc = add_layout(b, l, error);
	if (!rc)
		rc = problem_find_transformed(problem, error);
	return rc ? rc : problem_check(problem, b->layout_first, b->holding_first, error);
}

int problem_build(struct problem **problem, const struct problem_input *input, struct error *error)
{
	struct builder b = {.input = input};
	int rc;

	*problem = NULL;
	b.problem = memory_zalloc(1, sizeof(*b.problem));
	if (!b.problem)
		return memory_error(error, "building the routing problem", sizeof(*b.problem));
	rc = build(&b, error);
	pool_free(&b.pool);
	strmap_fini(&b.names);
	array_free(&b.declared);
	if (rc)
		problem_free(&b.problem);
	*problem = b.problem;
	return rc;
}

void problem_free(struct problem **pointer)
{
	struct problem *problem = *pointer;

	if (!problem)
		return;
	*pointer = NULL;
	memory_free(problem->model);
	memory_free(problem->transformed);
	pool_free(&problem->pool);
	memory_free(problem);
}

int problem_unwanted(const struct problem *problem, uint32_t **tensors, size_t *count,
		     struct error *error)
{
	uint32_t *list = memory_alloc(problem->tensor_count * sizeof(*list));
	bool *wanted = memory_zalloc(problem->tensor_count, sizeof(*wanted));
	size_t n = 0;

	*tensors = NULL;
	*count = 0;
	if (!list || !wanted) {
		memory_free(list);
		memory_free(wanted);
		return memory_error(error, "listing unwanted tensors",
				    problem->tensor_count * sizeof(*list));
	}
	for (size_t m = 0; m < problem->transformed_count; m++)
		if (problem->transformed[m].transform.from_rows)
			wanted[problem->transformed[m].scales] = true;
	for (size_t t = 0; t < problem->tensor_count; t++) {
		for (size_t l = 0; l < problem->layout_count && !wanted[t]; l++) {
			const uint32_t *of = problem->layouts[l].pieces_of;

			wanted[t] = of[t + 1] > of[t];
		}
		if (!wanted[t])
			list[n++] = (uint32_t)t;
	}
	memory_free(wanted);
	*tensors = list;
	*count = n;
	return 0;
}
