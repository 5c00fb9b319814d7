/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/table.h"

#include "base/array.h"
#include "base/assert.h"
#include "routing/plan/keep.h"
#include "routing/plan/sent.h"
#include "routing/plan/path.h"
#include "routing/plan/order.h"
#include <endian.h>
#include <string.h>

#define DIGEST_SCHEMA "weft.routing/1"
#define TRANSFORMED   (UINT64_C(1) << 32) /* beside the path: how it is transformed follows */
#define SPREAD	      (UINT64_C(1) << 33) /* the same: how it is spread */

void table_free(struct table **pointer)
{
	struct table *table = *pointer;

	if (!table)
		return;
	*pointer = NULL;
	memory_free(table->routes);
	memory_free(table->pieces);
	memory_free(table);
}

/* ---- units to routes ---- */

static size_t count_pieces(const struct problem *problem, const struct units *units)
{
	size_t count = 0;

	for (size_t i = 0; i < units->count; i++) {
		const struct unit *unit = &units->items[i];
		const struct problem_layout *layout =
			&problem->layouts[problem->inference_layout[unit->inference]];

		WEFT_ASSERT_OP(unit->lo, <, unit->hi);
		for (uint32_t p = layout->pieces_of[unit->tensor];
		     p < layout->pieces_of[unit->tensor + 1]; p++) {
			const struct box *src = &layout->pieces[p].src;
			struct piece cut;

			count += unit->cell == UNIT_FULL
					 ? src->lo[0] < unit->hi && src->hi[0] > unit->lo
					 : unit_cut(units, unit, unit->lo, unit->hi,
						    &layout->pieces[p], &cut);
		}
	}
	return count;
}

/* The part of a piece that the unit takes. */
static bool cut_piece(const struct units *units, const struct unit *unit, const struct piece *piece,
		      struct route_piece *out)
{
	struct piece cut;

	if (!unit_cut(units, unit, unit->lo, unit->hi, piece, &cut))
		return false; /* *out may not be there: pieces are counted exactly */
	out->param = cut.param;
	out->src = cut.src;
	out->offset = cut.offset;
	out->bytes = cut.bytes;
	out->spread = cut.spread;
	return true;
}

static void add_route(struct table *table, const struct units *units, const struct unit *unit,
		      uint32_t trainer)
{
	const struct problem *problem = table->problem;
	const struct problem_layout *layout =
		&problem->layouts[problem->inference_layout[unit->inference]];
	struct route *route = &table->routes[table->route_count++];

	WEFT_ASSERT_OP(trainer, <, problem->trainer_count);
	*route = (struct route){.tensor = unit->tensor,
				.trainer = trainer,
				.inference = unit->inference,
				.piece_first = table->piece_count};
	for (uint32_t p = layout->pieces_of[unit->tensor]; p < layout->pieces_of[unit->tensor + 1];
	     p++) {
		struct route_piece *piece = &table->pieces[table->piece_count];

		if (!cut_piece(units, unit, &layout->pieces[p], piece))
			continue;
		piece->transformed = layout->transformed[p];
		piece->path = problem_path(problem, trainer, unit->inference, !piece->transformed,
					   unit->tensor, &piece->src, &piece->spread);
		route->bytes += piece->bytes;
		route->piece_count++;
		table->piece_count++;
	}
	WEFT_ASSERT_OP(route->piece_count, >, 0);
	/* bytes of scales are no whole number a row: a policy that cuts units has them about right */
	WEFT_ASSERT(problem->transformed_count > 1 || route->bytes == unit->bytes);
}

int plan_options_check(const struct policy *policy, const struct plan_options *options,
		       struct error *error)
{
	if (!options->sessions_max || policy->limits_sessions)
		return 0;
	return error_set(
		error, ERROR_USAGE,
		"--sessions-max %u: policy %s cannot limit sessions; use --policy balanced "
		"or leave it out",
		options->sessions_max, policy->name);
}

static int count_moved(struct table *table, const struct units *units, const uint32_t *trainer,
		       const struct table *before, struct error *error)
{
	struct sent *sent;
	int rc = sent_new(&sent, before, table->problem, error);

	if (!rc)
		sent_moved(sent, units, trainer, true, &table->moved);
	sent_free(&sent);
	return rc;
}

static int decide(struct table *table, struct units *units, uint32_t **trainer,
		  const struct policy *policy, const struct plan_options *options,
		  struct error *error)
{
	const struct problem *problem = table->problem;
	int rc = plan_options_check(policy, options, error);

	if (rc)
		return rc;
	*trainer = memory_alloc(units->count * sizeof(**trainer));
	if (!*trainer)
		return memory_error(error, "planning routes", units->count * sizeof(**trainer));
	rc = policy->assign(problem, options, units, trainer, error);
	if (rc || !options->before || options->sessions_max)
		return rc;
	switch (policy->keeps) {
	case KEEPS_UNITS:
		return keep_assign(options->before, problem, units, *trainer, &table->moved, error);
	case KEEPS_PARTS:
		return count_moved(table, units, *trainer, options->before, error);
	case KEEPS_NOTHING:
		break;
	}
	return 0;
}

static int fill(struct table *table, const struct units *units, const uint32_t *trainer,
		struct error *error)
{
	size_t pieces = count_pieces(table->problem, units);

	table->routes = memory_alloc(units->count * sizeof(*table->routes));
	table->pieces = memory_alloc(pieces * sizeof(*table->pieces));
	if (!table->routes || !table->pieces)
		return memory_error(error, "planning routes", pieces * sizeof(*table->pieces));
	for (size_t i = 0; i < units->count; i++)
		add_route(table, units, &units->items[i], trainer[i]);
	WEFT_ASSERT_OP(table->route_count, ==, units->count);
	WEFT_ASSERT_OP(table->piece_count, ==, pieces);
	return 0;
}

size_t table_unreached(const struct table *table)
{
	const struct pairs *pairs = table->problem->pairs;
	size_t r = pairs ? 0 : table->route_count;

	while (r < table->route_count &&
	       pairs_transport(pairs, table->routes[r].trainer, table->routes[r].inference) <
		       pairs->list.count)
		r++;
	return r;
}

int table_plan(struct table **out, const struct problem *problem, const struct policy *policy,
	       const struct plan_options *options, struct error *error)
{
	static const struct plan_options defaults;
	struct table *table = memory_zalloc(1, sizeof(*table));
	uint32_t *trainer = NULL;
	struct units units;
	int rc;

	*out = NULL;
	if (!table)
		return memory_error(error, "planning routes", sizeof(*table));
	if (!options)
		options = &defaults;
	table->problem = problem;
	table->policy = policy->name;
	table->order = options->order ? options->order->name : ORDER_DEFAULT;
	table->topology = options->topology;
	table->sessions_max = options->sessions_max;
	rc = units_build(&units, problem, error);
	if (!rc)
		rc = decide(table, &units, &trainer, policy, options, error);
	if (!rc)
		rc = fill(table, &units, trainer, error);
	if (!rc)
		rc = table_merge(table, error);
	memory_free(trainer);
	units_fini(&units);
	if (!rc)
		rc = table_prove(table, error);
	if (rc) {
		table_free(&table);
		return rc;
	}
	table->digest = table_digest(table);
	*out = table;
	return 0;
}

/* ---- digest ---- */

/* Numbers are gathered and added in one go: a call a number costs more than its hashing. */
struct words {
	uint64_t le[5 * BOX_DIMS_MAX];
	size_t count;
};

#define WORDS(words, ...)                                 \
	add_words(words, (const uint64_t[]){__VA_ARGS__}, \
		  sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static inline void add_words(struct words *words, const uint64_t *values, size_t count)
{
	WEFT_ASSERT_OP(words->count + count, <=, ARRAY_SIZE(words->le));
	for (size_t i = 0; i < count; i++)
		words->le[words->count++] = htole64(values[i]);
}

static void flush(struct digest_stream *stream, struct words *words)
{
	digest_add(stream, words->le, words->count * sizeof(words->le[0]));
	words->count = 0;
}

/* Nothing for a copy: the tables of copies keep their digests. */
static void add_transformed(struct digest_stream *stream, struct words *words,
			    const struct problem *problem, uint32_t index)
{
	const struct problem_transformed *transformed = &problem->transformed[index];

	if (!index)
		return;
	WORDS(words, (uint64_t)transformed->transform.part, transformed->transform.from_rows,
	      transformed->transform.from_columns, transformed->transform.to_rows,
	      transformed->transform.to_columns);
	flush(stream, words);
	digest_add_string(stream, dtype_name(transformed->to));
	digest_add_string(stream, transformed->transform.from_rows
					  ? problem->tensors[transformed->scales].name
					  : "");
}

struct digest table_digest(const struct table *table)
{
	const struct problem *problem = table->problem;
	struct words words = {.count = 0};
	struct digest_stream stream;

	digest_begin(&stream);
	digest_add_string(&stream, DIGEST_SCHEMA);
	digest_add_string(&stream, table->policy);
	digest_add_string(&stream, problem->model);
	digest_add_string(&stream, problem->train);
	digest_add_string(&stream, problem->infer);
	WORDS(&words, problem->trainer_count, problem->inference_count, table->route_count);
	flush(&stream, &words);
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];
		const struct layout *layout =
			problem->layouts[problem->inference_layout[route->inference]].layout;

		digest_add_string(&stream, problem->tensors[route->tensor].name);
		WORDS(&words, route->trainer, route->inference, route->bytes, route->piece_count);
		flush(&stream, &words);
		if (problem->pairs)
			digest_add_string(&stream, pairs_name(problem->pairs, route->trainer,
							      route->inference));
		for (uint32_t p = 0; p < route->piece_count; p++) {
			const struct route_piece *piece = &table->pieces[route->piece_first + p];

			digest_add_string(&stream, layout->params[piece->param].name);
			WORDS(&words, piece->src.dims);
			for (uint32_t d = 0; d < piece->src.dims; d++)
				WORDS(&words, piece->src.lo[d], piece->src.hi[d]);
			WORDS(&words, piece->offset, piece->bytes,
			      piece->path | (piece->transformed ? TRANSFORMED : 0) |
				      (piece->spread.run_bytes ? SPREAD : 0));
			if (piece->spread.run_bytes)
				WORDS(&words, piece->spread.run_bytes, piece->spread.stride_bytes);
			add_transformed(&stream, &words, problem, piece->transformed);
			flush(&stream, &words);
		}
	}
	return digest_end(&stream);
}
