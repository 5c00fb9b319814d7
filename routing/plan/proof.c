/* SPDX-License-Identifier: Apache-2.0
 *
 * proof.c -- table_prove. It trusts nothing that made the table: it looks at the parameters of
 * each inference rank from the side of their bytes.
 *
 *   parameter   0 ................. 96 ................ 192 ....... 256
 *   wanted      [ q rows 0..4        )[ q rows 8..12     )[ fill     )     the layout
 *   written     [ t0      )[ t1      )[ t0               )                 the table, sorted
 *
 * Both lists are sorted by (parameter, offset) and walked together: each wanted range must be
 * tiled, byte after byte, by pieces whose box is exactly the rows that belong there, from a
 * trainer that holds them. What is left over is written twice or where nothing has a source.
 * O(n log n) in pieces.
 */
#include "routing/plan/table.h"

#include "base/assert.h"
#include "base/array.h"
#include "base/compare.h"
#include "job/box_cover.h"
#include "routing/plan/path.h"
#include "routing/plan/proof_place.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A piece of the table, seen from its target. */
struct written {
	uint32_t param, route;
	uint64_t offset, piece;
};

struct proof {
	struct pool pool; /* owns the arrays */
	const struct table *table;
	const struct problem *problem;
	struct written *written; /* grouped by inference rank */
	size_t *written_of;	 /* rank -> first; one more */
	uint32_t **wanted;	 /* distinct layout -> its pieces by (param, offset), lazily */
	struct box_cover cover;	 /* scratch */
	bool spread;		 /* some piece is, or is transposed, which is cut in columns too */
};

#define REFUSE(...) error_set(error, ERROR_UNPROVED, __VA_ARGS__)
/* Of route r, its tensor and both its ends. */
#define REFUSE_ROUTE(format, ...)                                                                  \
	REFUSE("route %zu (tensor '%s', trainer %" PRIu32 " to inference %" PRIu32 ") " format, r, \
	       tensor->name, route->trainer, route->inference, __VA_ARGS__)

/* ---- what needs no sorting: every number means something ---- */

/* All its runs, which do not overlap, in `room` bytes. */
static bool fits(const struct route_piece *piece, uint64_t room)
{
	const struct spread *spread = &piece->spread;
	uint64_t between;

	if (!spread->run_bytes)
		return spread->stride_bytes == 0 && piece->bytes <= room;
	return piece->bytes % spread->run_bytes == 0 && spread->stride_bytes >= spread->run_bytes &&
	       !__builtin_mul_overflow(piece->bytes / spread->run_bytes - 1, spread->stride_bytes,
				       &between) &&
	       between <= room && spread->run_bytes <= room - between;
}

static int check_piece(struct proof *proof, size_t r, uint64_t p, struct error *error)
{
	const struct route *route = &proof->table->routes[r];
	const struct route_piece *piece = &proof->table->pieces[p];
	const struct problem_tensor *tensor = &proof->problem->tensors[route->tensor];
	const struct layout *layout =
		proof->problem->layouts[proof->problem->inference_layout[route->inference]].layout;
	char text[160];

	if (piece->param >= layout->param_count)
		return REFUSE_ROUTE("writes parameter %" PRIu32 " of %zu", piece->param,
				    layout->param_count);
	const struct tensor_info *param = &layout->params[piece->param];

	if (piece->bytes == 0 || piece->offset > param->bytes ||
	    !fits(piece, param->bytes - piece->offset))
		return REFUSE_ROUTE("writes bytes %" PRIu64 " + %" PRIu64
				    " of parameter '%s', which has %" PRIu64,
				    piece->offset, piece->bytes, param->name, param->bytes);
	if (piece->transformed >= proof->problem->transformed_count)
		return REFUSE_ROUTE("makes %" PRIu32 " of %zu things for parameter '%s'",
				    piece->transformed, proof->problem->transformed_count,
				    param->name);
	proof->spread = proof->spread || piece->spread.run_bytes ||
			proof->problem->transformed[piece->transformed].transform.part ==
				TRANSFORM_TRANSPOSED;
	if (!box_in_shape(&piece->src, tensor->dims, tensor->shape)) {
		struct box shown = piece->src;

		if (shown.dims > BOX_DIMS_MAX)
			shown.dims = 0;
		return REFUSE("route %zu reads %s of tensor '%s' from trainer %" PRIu32
			      " for byte %" PRIu64 " of parameter '%s': not a box of that tensor",
			      r, box_text(&shown, text, sizeof(text)), tensor->name, route->trainer,
			      piece->offset, param->name);
	}
	return 0;
}

static uint64_t first_row(const struct table *table, const struct route *route)
{
	return table->pieces[route->piece_first].src.lo[0];
}

/* Negative when a must come first. Rows are compared by the caller: a route may have none. */
static int compare_routes(const struct route *a, const struct route *b)
{
	return compare_u64(a->tensor, b->tensor) ?: compare_u64(a->inference, b->inference);
}

static int check_routes(struct proof *proof, struct error *error)
{
	const struct table *table = proof->table;
	const struct problem *problem = proof->problem;
	uint64_t next = 0;

	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];
		uint64_t bytes = 0;

		if (route->tensor >= problem->tensor_count ||
		    route->trainer >= problem->trainer_count ||
		    route->inference >= problem->inference_count)
			return REFUSE("route %zu names tensor %" PRIu32 " of %zu, trainer %" PRIu32
				      " of %" PRIu32 ", inference %" PRIu32 " of %" PRIu32,
				      r, route->tensor, problem->tensor_count, route->trainer,
				      problem->trainer_count, route->inference,
				      problem->inference_count);
		if (route->piece_count == 0 || route->piece_first != next ||
		    route->piece_count > table->piece_count - next)
			return REFUSE("route %zu (tensor '%s') has pieces %" PRIu64 " + %" PRIu32
				      "; its pieces must follow those of the route before, at "
				      "%" PRIu64 " of %zu",
				      r, problem->tensors[route->tensor].name, route->piece_first,
				      route->piece_count, next, table->piece_count);
		next += route->piece_count;
		for (uint64_t p = route->piece_first; p < next; p++) {
			int rc = check_piece(proof, r, p, error);

			if (rc)
				return rc;
			bytes += table->pieces[p].bytes;
		}
		if (bytes != route->bytes)
			return REFUSE("route %zu (tensor '%s', trainer %" PRIu32
				      " to inference %" PRIu32 ") says %" PRIu64
				      " bytes; its pieces have %" PRIu64,
				      r, problem->tensors[route->tensor].name, route->trainer,
				      route->inference, route->bytes, bytes);
		if (r == 0)
			continue;
		int order = compare_routes(route - 1, route);

		if (order > 0 ||
		    (order == 0 && first_row(table, route - 1) > first_row(table, route)))
			return REFUSE("route %zu (tensor '%s', inference %" PRIu32 ") is out of "
				      "order: routes go by tensor, inference rank, first row",
				      r, problem->tensors[route->tensor].name, route->inference);
	}
	if (next != table->piece_count)
		return REFUSE("%zu pieces belong to no route", table->piece_count - (size_t)next);
	return 0;
}

/* ---- sorting by target ---- */

static int by_target(const void *x, const void *y)
{
	const struct written *a = x, *b = y;

	return compare_u64(a->param, b->param) ?: compare_u64(a->offset, b->offset) ?:
	       compare_u64(a->piece, b->piece);
}

static int by_wanted(const void *x, const void *y, void *context)
{
	const struct piece *pieces = context;
	const struct piece *a = &pieces[*(const uint32_t *)x];
	const struct piece *b = &pieces[*(const uint32_t *)y];

	return compare_u64(a->param, b->param) ?: compare_u64(a->offset, b->offset);
}

static void group(struct proof *proof)
{
	const struct table *table = proof->table;
	uint32_t ranks = proof->problem->inference_count;
	size_t *next = proof->written_of;

	for (size_t r = 0; r < table->route_count; r++)
		next[table->routes[r].inference + 1] += table->routes[r].piece_count;
	for (uint32_t i = 0; i < ranks; i++)
		next[i + 1] += next[i];
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];

		for (uint64_t p = route->piece_first; p < route->piece_first + route->piece_count;
		     p++)
			proof->written[next[route->inference]++] = (struct written){
				table->pieces[p].param, (uint32_t)r, table->pieces[p].offset, p};
	}
	/* each `next` has moved to the end of its group: move the array on by one */
	memmove(next + 1, next, ranks * sizeof(*next));
	next[0] = 0;
	WEFT_ASSERT_OP(next[ranks], ==, table->piece_count);
	for (uint32_t i = 0; i < ranks; i++) {
		WEFT_ASSERT_OP(next[i], <=, next[i + 1]);
		struct written *first = proof->written + next[i];
		size_t count = next[i + 1] - next[i];
		bool sorted = true;

		for (size_t k = 1; k < count && sorted; k++)
			sorted = by_target(&first[k - 1], &first[k]) < 0;
		if (!sorted)
			sort_items(first, count, by_target);
	}
}

static const uint32_t *wanted_of(struct proof *proof, uint32_t l, struct error *error)
{
	const struct problem_layout *layout = &proof->problem->layouts[l];

	if (proof->wanted[l])
		return proof->wanted[l];
	proof->wanted[l] = pool_array(&proof->pool, layout->piece_count, sizeof(uint32_t));
	if (!proof->wanted[l]) {
		memory_error(error, "proving the table", layout->piece_count * sizeof(uint32_t));
		return NULL;
	}
	for (size_t p = 0; p < layout->piece_count; p++)
		proof->wanted[l][p] = (uint32_t)p;
	qsort_r(proof->wanted[l], layout->piece_count, sizeof(uint32_t), by_wanted, layout->pieces);
	return proof->wanted[l];
}

/* ---- the walk ---- */

/* One of its boxes has all of it: a piece is packed from one place. */
static const struct problem_held *holds(const struct problem_holding *holding, uint32_t tensor,
					const struct box *box)
{
	for (size_t h = holding->held_of[tensor]; h < holding->held_of[tensor + 1]; h++) {
		const struct box *held = &holding->held[h].box;
		uint32_t d = 0;

		while (d < box->dims && held->lo[d] <= box->lo[d] && held->hi[d] >= box->hi[d])
			d++;
		if (d == box->dims)
			return &holding->held[h];
	}
	return NULL;
}

/* Byte `offset` of a parameter is wrong: the message's beginning. */
static int wrong_byte(const struct proof *proof, const struct written *written, uint64_t offset,
		      const char *why, struct error *error)
{
	const struct route *route = &proof->table->routes[written->route];
	const struct layout *layout =
		proof->problem->layouts[proof->problem->inference_layout[route->inference]].layout;

	return REFUSE("byte %" PRIu64 " of parameter '%s' on inference %" PRIu32 ", written from "
		      "tensor '%s' by trainer %" PRIu32 " (route %" PRIu32 "): %s",
		      offset, layout->params[written->param].name, route->inference,
		      proof->problem->tensors[route->tensor].name, route->trainer, written->route,
		      why);
}

/* How the bytes of `want` follow from rows of its tensor. In a parameter of scales one row is
 * of `step` rows of the tensor, in any other of one; rows are not cut inside of a block. */
struct grid {
	uint64_t step, step_bytes; /* rows of the tensor, and the bytes that they become */
	uint64_t block;		   /* rows that are transformed together */
};

/* Divisions are what a proof of copies would spend its time with. */
static uint64_t steps_of(uint64_t rows, uint64_t step)
{
	WEFT_ASSERT_OP(step, >, 0);
	return step == 1 ? rows : rows / step + (rows % step != 0);
}

static struct grid grid_of(const struct piece *want)
{
	uint64_t rows = want->src.hi[0] - want->src.lo[0];
	uint64_t block = transform_grain_rows(&want->transform);
	uint64_t step = want->transform.part == TRANSFORM_SCALES ? block : 1;

	/* the layout was finished: its own pieces fit their rows */
	WEFT_ASSERT_OP(rows, >, 0);
	WEFT_ASSERT_OP(want->bytes % steps_of(rows, step), ==, 0);
	return (struct grid){step, want->bytes / steps_of(rows, step), block};
}

/* Are the bytes transformed as the layout asks? */
static bool transformed_alike(const struct proof *proof, const struct route_piece *piece,
			      const struct piece *want, enum dtype to)
{
	WEFT_ASSERT_OP(piece->transformed, <, proof->problem->transformed_count); /* check_piece */
	const struct problem_transformed *transformed =
		&proof->problem->transformed[piece->transformed];
	const struct transform *a = &transformed->transform, *b = &want->transform;

	if (transformed->to == DTYPE_NONE) /* a copy of the tensor's dtype */
		return !b->part && !b->from_rows && !b->to_rows &&
		       to == proof->problem->tensors[want->tensor].dtype;
	return a->part == b->part && a->from_rows == b->from_rows &&
	       a->from_columns == b->from_columns && a->to_rows == b->to_rows &&
	       a->to_columns == b->to_columns && transformed->scales == want->scales &&
	       transformed->to == to &&
	       (a->part || a->from_rows || a->to_rows ||
		to != proof->problem->tensors[want->tensor].dtype);
}

/* Scales' rows lie beside the values'. */
static bool holds_scales(const struct problem_holding *holding, const struct piece *want,
			 const struct box *src)
{
	const uint64_t blocks[2] = {want->transform.from_rows, want->transform.from_columns};
	struct box scales = {.dims = 2};

	for (int d = 0; d < 2 && blocks[0]; d++) {
		scales.lo[d] = src->lo[d] / blocks[d];
		scales.hi[d] = (src->hi[d] + blocks[d] - 1) / blocks[d];
	}
	return !blocks[0] || holds(holding, want->scales, &scales);
}

/* The piece starts at byte `at` of what `want` describes and is not the whole of it. */
static int match_part(const struct proof *proof, const struct written *written,
		      const struct piece *want, uint64_t at, struct error *error)
{
	const struct route_piece *piece = &proof->table->pieces[written->piece];
	struct grid grid = grid_of(want);
	uint64_t rows = piece->src.hi[0] - piece->src.lo[0], before = at - want->offset;
	uint64_t bytes = steps_of(rows, grid.step) * grid.step_bytes;
	char why[400], got[160], need[160];
	struct box expected = want->src;

	/* at may be inside a row only when a shorter, wrong piece came before */
	expected.lo[0] = want->src.lo[0] + before / grid.step_bytes * grid.step;
	expected.hi[0] = expected.lo[0] + rows;
	if (before % grid.step_bytes || expected.hi[0] > want->src.hi[0] ||
	    !box_equal(&piece->src, &expected) || piece->bytes != bytes) {
		if (proof_within_rows(want, piece, at)) /* most are cut at rows alone */
			return 0;
		expected.hi[0] = want->src.hi[0];
		snprintf(why, sizeof(why),
			 "it is sent as %" PRIu64 " bytes of box %s, where up "
			 "to %" PRIu64 " bytes of box %s belong",
			 piece->bytes, box_text(&piece->src, got, sizeof(got)),
			 want->offset + want->bytes - at, box_text(&expected, need, sizeof(need)));
		return wrong_byte(proof, written, at, why, error);
	}
	if (grid.block > 1 && ((piece->src.lo[0] - want->src.lo[0]) % grid.block ||
			       (rows % grid.block && piece->src.hi[0] != want->src.hi[0]))) {
		snprintf(why, sizeof(why), "box %s is cut inside of a block of %" PRIu64 " rows",
			 box_text(&piece->src, got, sizeof(got)), grid.block);
		return wrong_byte(proof, written, at, why, error);
	}
	return 0;
}

/* A piece that is spread, or lies beside one that is: where it belongs, and as it belongs there? */
static int match_place(const struct proof *proof, const struct written *written,
		       const struct piece *want, struct error *error)
{
	const struct route_piece *piece = &proof->table->pieces[written->piece];
	char why[400], got[160];

	if (proof_place(want, piece))
		return 0;
	snprintf(why, sizeof(why),
		 "box %s is sent as %" PRIu64 " bytes, in runs of %" PRIu64 " that are %" PRIu64
		 " apart, and does not lie so in what belongs there",
		 box_text(&piece->src, got, sizeof(got)), piece->bytes, piece->spread.run_bytes,
		 piece->spread.stride_bytes);
	return wrong_byte(proof, written, piece->offset, why, error);
}

/* By the facts of the two. What is small may land with others instead: the plan's choice (merge.c). */
static bool path_agrees(const struct proof *proof, const struct route *route,
			const struct route_piece *piece, enum route_path asked)
{
	return piece->path == asked ||
	       (piece->path == PATH_LANDED && piece->bytes < MERGE_BYTES &&
		problem_merges(proof->problem, route->trainer, route->inference));
}

/* The piece starts at byte `at` of what `want` describes: is it what belongs there? */
static int match(const struct proof *proof, const struct written *written, const struct piece *want,
		 uint64_t at, bool spread, struct error *error)
{
	const struct problem *problem = proof->problem;
	const struct route *route = &proof->table->routes[written->route];
	const struct route_piece *piece = &proof->table->pieces[written->piece];
	const struct problem_holding *holding =
		&problem->holdings[problem->trainer_holding[route->trainer]];
	const struct tensor_info *param =
		&problem->layouts[problem->inference_layout[route->inference]]
			 .layout->params[want->param];
	char why[400], got[160];

	if (route->tensor != want->tensor) {
		snprintf(why, sizeof(why), "it comes from tensor '%s'",
			 problem->tensors[want->tensor].name);
		return wrong_byte(proof, written, at, why, error);
	}
	if (at != want->offset || piece->bytes != want->bytes ||
	    !box_equal(&piece->src, &want->src) || piece->spread.run_bytes) {
		int rc = spread ? match_place(proof, written, want, error)
				: match_part(proof, written, want, at, error);

		if (rc)
			return rc;
	}
	if (!transformed_alike(proof, piece, want, param->dtype))
		return wrong_byte(proof, written, at,
				  "its bytes are not transformed as the parameter asks", error);
	const struct problem_held *held = holds(holding, route->tensor, &piece->src);

	if (!held || !holds_scales(holding, want, &piece->src)) {
		snprintf(why, sizeof(why), "the trainer does not hold %s of it%s",
			 box_text(&piece->src, got, sizeof(got)),
			 want->transform.from_rows ? " and the scales of its blocks" : "");
		return wrong_byte(proof, written, at, why, error);
	}
	enum route_path path =
		problem_path_of(problem, route->trainer, route->inference, piece->transformed == 0,
				held, &piece->src, &piece->spread);

	if (!path_agrees(proof, route, piece, path)) {
		snprintf(why, sizeof(why), "it is to go '%s', and its memory asks for '%s'",
			 piece->path < PATH_COUNT ? route_path_name(piece->path) : "?",
			 route_path_name(path));
		return wrong_byte(proof, written, at, why, error);
	}
	return 0;
}

/* A piece that no wanted range has room for. */
static int left_over(const struct proof *proof, const struct written *written, uint32_t done_param,
		     uint64_t done, struct error *error)
{
	bool twice = written->param == done_param && written->offset < done;

	return wrong_byte(proof, written, written->offset,
			  twice ? "it is written twice" : "no tensor belongs there", error);
}

/* Pieces, some of which are spread, beside and between each other: each is where it belongs, as many elements as are wanted, and
 * none of these is left out; so none is written twice. */
static int prove_spread(struct proof *proof, const struct written *written, size_t count,
			const struct piece *want, struct error *error)
{
	uint64_t elements = 0;
	struct box gap;
	bool covered;
	char text[160];

	proof->cover.boxes.count = 0;
	for (size_t i = 0; i < count; i++) {
		const struct route_piece *piece = &proof->table->pieces[written[i].piece];
		int rc = match(proof, &written[i], want, piece->offset, true, error);

		if (rc)
			return rc;
		elements += box_elements(&piece->src); /* it lies in want->src */
		if (elements > box_elements(&want->src))
			return wrong_byte(proof, &written[i], piece->offset,
					  "some of it is written twice", error);
		if (!array_add(&proof->cover.boxes, piece->src))
			return memory_error(error, "proving the table", sizeof(gap));
	}
	if (box_cover_all(&proof->cover, &want->src, &covered, &gap))
		return memory_error(error, "proving the table", sizeof(gap));
	if (covered)
		return 0;
	return REFUSE(
		"%s of tensor '%s' is written by no trainer: it belongs to parameter '%s' on inference %" PRIu32,
		box_text(&gap, text, sizeof(text)), proof->problem->tensors[want->tensor].name,
		proof->problem
			->layouts[proof->problem->inference_layout
					  [proof->table->routes[written->route].inference]]
			.layout->params[want->param]
			.name,
		proof->table->routes[written->route].inference);
}

/* Pieces from `next` on that begin in what is wanted; *spread: one of them is no run, or is cut in columns. */
static size_t begin_in(const struct proof *proof, size_t next, size_t end, const struct piece *want,
		       bool *spread)
{
	size_t count = 0;

	for (; next + count < end; count++) {
		const struct written *written = &proof->written[next + count];

		if (written->param != want->param || written->offset < want->offset ||
		    written->offset >= want->offset + want->bytes)
			break;
		*spread = *spread || proof->table->pieces[written->piece].spread.run_bytes ||
			  !box_same_columns(&want->src, &proof->table->pieces[written->piece].src);
	}
	return count;
}

static int prove_rank(struct proof *proof, uint32_t rank, struct error *error)
{
	uint32_t l = proof->problem->inference_layout[rank];
	const struct problem_layout *layout = &proof->problem->layouts[l];
	const uint32_t *wanted = wanted_of(proof, l, error);
	size_t next = proof->written_of[rank], end = proof->written_of[rank + 1];
	uint32_t done_param = UINT32_MAX;
	uint64_t done = 0;

	if (!wanted)
		return -ERROR_MEMORY;
	for (size_t w = 0; w < layout->piece_count; w++) {
		const struct piece *want = &layout->pieces[wanted[w]];
		uint64_t at = want->offset;
		bool spread = false;
		size_t count = proof->spread ? begin_in(proof, next, end, want, &spread) : 0;

		if (spread) {
			int rc = prove_spread(proof, &proof->written[next], count, want, error);

			if (rc)
				return rc;
			next += count;
			at = done = want->offset + want->bytes;
			done_param = want->param;
		}
		while (at < want->offset + want->bytes) {
			const struct written *written = next < end ? &proof->written[next] : NULL;

			if (written && (written->param < want->param ||
					(written->param == want->param && written->offset < at)))
				return left_over(proof, written, done_param, done, error);
			if (!written || written->param > want->param || written->offset > at)
				return REFUSE("byte %" PRIu64
					      " of parameter '%s' on inference %" PRIu32
					      " is written by no trainer: it belongs to "
					      "tensor '%s'",
					      at, layout->layout->params[want->param].name, rank,
					      proof->problem->tensors[want->tensor].name);
			int rc = match(proof, written, want, at, false, error);

			if (rc)
				return rc;
			/* match() let it pass: it ends with or before what is wanted */
			at += proof->table->pieces[written->piece].bytes;
			WEFT_ASSERT_OP(at, <=, want->offset + want->bytes);
			done_param = want->param;
			done = at;
			next++;
		}
	}
	if (next < end)
		return left_over(proof, &proof->written[next], done_param, done, error);
	return 0;
}

int table_prove(const struct table *table, struct error *error)
{
	const struct problem *problem = table->problem;
	struct proof proof = {.table = table, .problem = problem};
	int rc = check_routes(&proof, error);

	if (rc)
		return rc;
	proof.written = pool_array(&proof.pool, table->piece_count, sizeof(*proof.written));
	proof.written_of = pool_array(&proof.pool, (size_t)problem->inference_count + 1,
				      sizeof(*proof.written_of));
	proof.wanted = pool_array(&proof.pool, problem->layout_count, sizeof(*proof.wanted));
	if (!pool_ok(&proof.pool))
		rc = memory_error(error, "proving the table",
				  table->piece_count * sizeof(*proof.written));
	if (!rc)
		group(&proof);
	for (uint32_t i = 0; !rc && i < problem->inference_count; i++)
		rc = prove_rank(&proof, i, error);
	box_cover_fini(&proof.cover);
	pool_free(&proof.pool);
	return rc;
}
