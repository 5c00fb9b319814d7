/* SPDX-License-Identifier: Apache-2.0
 *
 * merge.c -- keeps a plan from falling apart into small writes. Where trainers' boxes and an engine's meet in cells, a cell may be a
 * few rows of a few columns; a write of it, of a norm or of the scales of a few blocks takes as long as one of many times its bytes. So where a
 * trainer has several of them for one inference rank, they land: packed behind each other in the rank's window, many to a write,
 * and put in place by the rank (worker/update/schedule_land.c).
 *
 *   trainer 5 to rank 2      a: 24 KiB  b: 3 KiB  c: 900 KiB ..
 *                                │          │         └───────────────►  a write of its own, in place
 *                                └────┬─────┘
 *                                     ▼ one write, of all that is small
 */
#include "routing/plan/table.h"

#include "base/compare.h"
#include "routing/plan/pair_sums.h"

static bool is_small(const struct route_piece *piece)
{
	return piece->path != PATH_LANDED && piece->bytes < MERGE_BYTES;
}

/* Where something lands anyway, there is a window already, and all that is small may go there. */
static size_t count_small(const struct table *table, const struct route *route)
{
	size_t count = 0;

	if (!problem_merges(table->problem, route->trainer, route->inference))
		return 0;
	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];

		count += piece->path == PATH_LANDED ? MERGE_PIECES_MIN : is_small(piece);
	}
	return count;
}

int table_merge(struct table *table, struct error *error)
{
	struct pair_sums pairs = {0};
	bool memory = true;

	for (size_t r = 0; table->problem->boxed && r < table->route_count && memory; r++) {
		struct pair_sum sum = {.pair = table_pair(&table->routes[r]),
				       .pieces = count_small(table, &table->routes[r])};

		if (sum.pieces)
			memory = array_add(&pairs, sum);
	}
	pair_sums_unite(&pairs);
	for (size_t r = 0; pairs.count && r < table->route_count && memory; r++) {
		const struct route *route = &table->routes[r];
		uint64_t pair = table_pair(route);
		size_t at = search_first(i, 0, pairs.count, pairs.items[i].pair >= pair);

		if (at == pairs.count || pairs.items[at].pair != pair ||
		    pairs.items[at].pieces < MERGE_PIECES_MIN)
			continue;
		for (uint32_t p = 0; p < route->piece_count; p++)
			if (is_small(&table->pieces[route->piece_first + p]))
				table->pieces[route->piece_first + p].path = PATH_LANDED;
	}
	array_free(&pairs);
	return memory ? 0 : memory_error(error, "planning routes", sizeof(struct pair_sum));
}
