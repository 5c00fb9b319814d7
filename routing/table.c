/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/table.h"

#include "common/array.h"
#include "routing/how.h"
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST_SCHEMA "weft.routing/1"

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

		for (uint32_t p = layout->pieces_of[unit->tensor];
		     p < layout->pieces_of[unit->tensor + 1]; p++) {
			const struct box *src = &layout->pieces[p].src;

			count += src->lo[0] < unit->hi && src->hi[0] > unit->lo;
		}
	}
	return count;
}

/* The part of a piece in rows [lo, hi). A piece is one run of bytes in the target with its rows
 * one after the other, so a cut of rows is a cut of that run. */
static bool cut_piece(const struct piece *piece, uint64_t lo, uint64_t hi, struct route_piece *out)
{
	uint64_t row_bytes = piece->bytes / (piece->src.hi[0] - piece->src.lo[0]);
	struct box src;

	if (!box_cut_rows(&piece->src, lo, hi, &src))
		return false; /* *out may not be there: pieces are counted exactly */
	out->src = src;
	out->param = piece->param;
	out->offset = piece->offset + (out->src.lo[0] - piece->src.lo[0]) * row_bytes;
	out->bytes = (out->src.hi[0] - out->src.lo[0]) * row_bytes;
	return true;
}

static void add_route(struct table *table, const struct unit *unit, uint32_t trainer)
{
	const struct problem *problem = table->problem;
	const struct problem_layout *layout =
		&problem->layouts[problem->inference_layout[unit->inference]];
	struct route *route = &table->routes[table->route_count++];

	*route = (struct route){.tensor = unit->tensor,
				.trainer = trainer,
				.inference = unit->inference,
				.piece_first = table->piece_count};
	for (uint32_t p = layout->pieces_of[unit->tensor]; p < layout->pieces_of[unit->tensor + 1];
	     p++) {
		struct route_piece *piece = &table->pieces[table->piece_count];

		if (!cut_piece(&layout->pieces[p], unit->lo, unit->hi, piece))
			continue;
		piece->how = how_piece(&piece->src, problem->tensors[unit->tensor].shape,
				       problem->trainer_registered[trainer],
				       problem->inference_mapped[unit->inference]);
		route->bytes += piece->bytes;
		route->piece_count++;
		table->piece_count++;
	}
}

static int fill(struct table *table, const struct units *units, struct error *error)
{
	const struct policy *policy = policy_find(table->policy);
	size_t pieces = count_pieces(table->problem, units);
	uint32_t *trainer = memory_alloc(units->count * sizeof(*trainer));
	int rc;

	table->routes = memory_alloc(units->count * sizeof(*table->routes));
	table->pieces = memory_alloc(pieces * sizeof(*table->pieces));
	if (!trainer || !table->routes || !table->pieces) {
		rc = memory_error(error, "planning routes", pieces * sizeof(*table->pieces));
		goto free_trainer;
	}
	rc = policy->assign(table->problem, units, trainer, error);
	if (rc)
		goto free_trainer;
	for (size_t i = 0; i < units->count; i++)
		add_route(table, &units->items[i], trainer[i]);
free_trainer:
	memory_free(trainer);
	return rc;
}

int table_plan(struct table **out, const struct problem *problem, const struct policy *policy,
	       struct error *error)
{
	struct table *table = memory_zalloc(1, sizeof(*table));
	struct units units;
	int rc;

	*out = NULL;
	if (!table)
		return memory_error(error, "planning routes", sizeof(*table));
	table->problem = problem;
	table->policy = policy->name;
	rc = units_build(&units, problem, error);
	if (!rc)
		rc = fill(table, &units, error);
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
	uint64_t le[4 * BOX_DIMS_MAX];
	size_t count;
};

static void word(struct words *words, uint64_t value)
{
	words->le[words->count++] = htole64(value);
}

static void flush(struct digest_stream *stream, struct words *words)
{
	digest_add(stream, words->le, words->count * sizeof(words->le[0]));
	words->count = 0;
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
	word(&words, problem->trainer_count);
	word(&words, problem->inference_count);
	word(&words, table->route_count);
	flush(&stream, &words);
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];
		const struct layout *layout =
			problem->layouts[problem->inference_layout[route->inference]].layout;

		digest_add_string(&stream, problem->tensors[route->tensor].name);
		word(&words, route->trainer);
		word(&words, route->inference);
		word(&words, route->bytes);
		word(&words, route->piece_count);
		flush(&stream, &words);
		for (uint32_t p = 0; p < route->piece_count; p++) {
			const struct route_piece *piece = &table->pieces[route->piece_first + p];

			digest_add_string(&stream, layout->params[piece->param].name);
			word(&words, piece->src.dims);
			for (uint32_t d = 0; d < piece->src.dims; d++) {
				word(&words, piece->src.lo[d]);
				word(&words, piece->src.hi[d]);
			}
			word(&words, piece->offset);
			word(&words, piece->bytes);
			word(&words, piece->how);
			flush(&stream, &words);
		}
	}
	return digest_end(&stream);
}

/* ---- send order ---- */

struct send {
	uint32_t route, tensor, turn;
};

static int by_turn(const void *x, const void *y)
{
	const struct send *a = x, *b = y;

	if (a->tensor != b->tensor)
		return a->tensor < b->tensor ? -1 : 1;
	if (a->turn != b->turn)
		return a->turn < b->turn ? -1 : 1;
	return a->route < b->route ? -1 : a->route > b->route; /* rows ascending */
}

int table_send_order(const struct table *table, uint32_t trainer, uint32_t **routes, size_t *count,
		     struct error *error)
{
	uint32_t ranks = table->problem->inference_count;
	ARRAY(struct send) sends = {0};

	*routes = NULL;
	*count = 0;
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];
		struct send *send;

		if (route->trainer != trainer)
			continue;
		send = array_push(&sends);
		if (!send) {
			array_free(&sends);
			return memory_error(error, "ordering sends", sizeof(*send));
		}
		*send = (struct send){(uint32_t)r, route->tensor,
				      (route->inference + ranks - trainer % ranks) % ranks};
	}
	uint32_t *order = memory_alloc(sends.count * sizeof(*order));

	if (!order) {
		array_free(&sends);
		return memory_error(error, "ordering sends", sends.count * sizeof(*order));
	}
	if (sends.count)
		qsort(sends.items, sends.count, sizeof(*sends.items), by_turn);
	for (size_t i = 0; i < sends.count; i++)
		order[i] = sends.items[i].route;
	*routes = order;
	*count = sends.count;
	array_free(&sends);
	return 0;
}
