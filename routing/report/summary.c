/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/summary.h"

#include "base/array.h"
#include "base/compare.h"
#include "base/pool.h"
#include "routing/plan/bound.h"
#include <string.h>

/* A set of (trainer, box, what is made of it) of one tensor; a slot counts only when its stamp is the tensor's. */
struct seen {
	struct seen_slot {
		uint32_t stamp, trainer;
		const struct route_piece *piece;
	} * slots;
	size_t size;
};

/* True when it was not there yet. */
static bool see(struct seen *seen, uint32_t stamp, uint32_t trainer,
		const struct route_piece *piece)
{
	const struct box *box = &piece->src;
	uint64_t key[1 + 2 * BOX_DIMS_MAX] = {trainer};
	size_t at;

	memcpy(key + 1, box->lo, box->dims * sizeof(key[0]));
	memcpy(key + 1 + box->dims, box->hi, box->dims * sizeof(key[0]));
	at = checksum64(key, (1 + 2 * (size_t)box->dims) * sizeof(key[0])) & (seen->size - 1);
	for (; seen->slots[at].stamp == stamp; at = (at + 1) & (seen->size - 1))
		if (seen->slots[at].trainer == trainer &&
		    seen->slots[at].piece->transformed == piece->transformed &&
		    box_equal(&seen->slots[at].piece->src, box))
			return false;
	seen->slots[at] = (struct seen_slot){stamp, trainer, piece};
	return true;
}

static int count_prepared(struct summary *summary, const struct table *table, struct error *error)
{
	struct seen own = {.size = 16};
	size_t most = 0, end;

	for (size_t r = 0; r < table->route_count; r = end) {
		size_t pieces = 0;

		for (end = r; end < table->route_count &&
			      table->routes[end].tensor == table->routes[r].tensor;
		     end++)
			pieces += table->routes[end].piece_count;
		most = pieces > most ? pieces : most;
	}
	while (own.size < 2 * most)
		own.size *= 2;
	own.slots = memory_zalloc(own.size, sizeof(*own.slots));
	if (!own.slots)
		return memory_error(error, "summing up the table", own.size * sizeof(*own.slots));
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];

		for (uint32_t p = 0; p < route->piece_count; p++) {
			const struct route_piece *piece = &table->pieces[route->piece_first + p];

			if (see(&own, route->tensor + 1, route->trainer, piece))
				summary->prepared_bytes += piece->bytes;
		}
	}
	memory_free(own.slots);
	return 0;
}

struct wanted_piece {
	const struct piece *piece;
	uint32_t transformed;
};

/* By what is made, by columns, then by rows. */
static int by_columns(const void *x, const void *y)
{
	const struct wanted_piece *one = x, *two = y;
	const struct piece *a = one->piece, *b = two->piece;

	if (one->transformed != two->transformed)
		return one->transformed < two->transformed ? -1 : 1;

	for (uint32_t d = a->src.dims - 1; d < a->src.dims; d--) {
		if (a->src.lo[d] != b->src.lo[d])
			return a->src.lo[d] < b->src.lo[d] ? -1 : 1;
		if (d && a->src.hi[d] != b->src.hi[d])
			return a->src.hi[d] < b->src.hi[d] ? -1 : 1;
	}
	return 0;
}

/* Each row of each range of columns that any rank wants, once for each way it is transformed. */
static uint64_t union_bytes(struct wanted_piece *pieces, size_t count)
{
	uint64_t bytes = 0, done = 0;

	sort_items(pieces, count, by_columns);
	for (size_t i = 0; i < count; i++) {
		const struct box *box = &pieces[i].piece->src;
		struct piece part;

		if (i == 0 || pieces[i].transformed != pieces[i - 1].transformed ||
		    !box_same_columns(box, &pieces[i - 1].piece->src))
			done = 0;
		if (!piece_cut_rows(pieces[i].piece, done, box->hi[0], &part))
			continue;
		bytes += part.bytes;
		done = box->hi[0];
	}
	return bytes;
}

static int count_minimum(struct summary *summary, const struct problem *problem,
			 struct error *error)
{
	bool *wanted = memory_zalloc(problem->layout_count, sizeof(*wanted));
	ARRAY(struct wanted_piece) pieces = {0};
	int rc = wanted ? 0 : -1;

	for (uint32_t i = 0; !rc && i < problem->inference_count; i++)
		wanted[problem->inference_layout[i]] = true;
	for (size_t t = 0; !rc && t < problem->tensor_count; t++) {
		pieces.count = 0;
		for (size_t l = 0; !rc && l < problem->layout_count; l++) {
			const struct problem_layout *layout = &problem->layouts[l];

			for (uint32_t p = layout->pieces_of[t];
			     wanted[l] && p < layout->pieces_of[t + 1]; p++) {
				if (!array_add(&pieces,
					       (struct wanted_piece){&layout->pieces[p],
								     layout->transformed[p]})) {
					rc = -1;
					break;
				}
			}
		}
		if (!rc)
			summary->prepared_minimum_bytes += union_bytes(pieces.items, pieces.count);
	}
	array_free(&pieces);
	memory_free(wanted);
	return rc ? memory_error(error, "summing up the table", sizeof(struct piece *)) : 0;
}

/* Inference ranks by trainer: routes grouped by trainer, then each rank counted once. */
static int count_sessions(struct summary *summary, const struct table *table, struct error *error)
{
	const struct problem *problem = table->problem;
	struct pool pool = {0};
	size_t *next = pool_array(&pool, (size_t)problem->trainer_count + 2, sizeof(*next));
	uint32_t *targets = pool_array(&pool, table->route_count, sizeof(*targets));
	uint32_t *last = pool_array(&pool, problem->inference_count, sizeof(*last));

	if (!pool_ok(&pool)) {
		pool_free(&pool);
		return memory_error(error, "counting sessions",
				    table->route_count * sizeof(*targets));
	}
	for (size_t r = 0; r < table->route_count; r++)
		next[table->routes[r].trainer + 2]++;
	for (uint32_t t = 0; t < problem->trainer_count; t++)
		next[t + 2] += next[t + 1];
	for (size_t r = 0; r < table->route_count; r++)
		targets[next[table->routes[r].trainer + 1]++] = table->routes[r].inference;
	for (uint32_t t = 0; t < problem->trainer_count; t++) {
		for (size_t i = next[t]; i < next[t + 1]; i++) {
			if (last[targets[i]] == t + 1)
				continue;
			last[targets[i]] = t + 1;
			summary->sessions[t]++;
		}
	}
	pool_free(&pool);
	return 0;
}

static int lower_bound(struct summary *summary, const struct problem *problem, struct error *error)
{
	struct units units;
	uint64_t *bytes;
	int rc = units_weigh(&units, &bytes, problem, error);

	if (rc)
		return rc;
	rc = bound_of(&summary->lower_bound_bytes, units.sets, bytes, units.set_count,
		      problem->trainer_count, error);
	memory_free(bytes);
	units_fini(&units);
	return rc;
}

static void add_loads(struct summary *summary, const struct table *table)
{
	const struct problem *problem = table->problem;

	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];

		summary->trainer_bytes[route->trainer] += route->bytes;
		summary->inference_bytes[route->inference] += route->bytes;
		summary->bytes_total += route->bytes;
	}
	for (size_t p = 0; p < table->piece_count; p++)
		summary->path_bytes[table->pieces[p].path] += table->pieces[p].bytes;
	for (uint32_t t = 0; t < problem->trainer_count; t++)
		if (summary->trainer_bytes[t] > summary->makespan_bytes)
			summary->makespan_bytes = summary->trainer_bytes[t];
	for (uint32_t i = 0; i < problem->inference_count; i++)
		if (summary->inference_bytes[i] > summary->receiver_bound_bytes)
			summary->receiver_bound_bytes = summary->inference_bytes[i];
}

/* Nothing to send is perfectly even. */
static void add_ratios(struct summary *summary, const struct problem *problem)
{
	double makespan = (double)summary->makespan_bytes;

	summary->gap =
		summary->lower_bound_bytes ? makespan / (double)summary->lower_bound_bytes - 1 : 0;
	summary->imbalance = summary->bytes_total ? makespan * problem->trainer_count /
							    (double)summary->bytes_total
						  : 1;
}

int summary_of(struct summary *summary, const struct table *table, struct error *error)
{
	const struct problem *problem = table->problem;
	int rc;

	*summary = (struct summary){.routes = table->route_count, .pieces = table->piece_count};
	summary->trainer_bytes = memory_zalloc(problem->trainer_count, sizeof(uint64_t));
	summary->sessions = memory_zalloc(problem->trainer_count, sizeof(uint64_t));
	summary->inference_bytes = memory_zalloc(problem->inference_count, sizeof(uint64_t));
	if (!summary->trainer_bytes || !summary->sessions || !summary->inference_bytes) {
		rc = memory_error(error, "summing up the table",
				  (size_t)problem->trainer_count * sizeof(uint64_t));
		goto fini;
	}
	add_loads(summary, table);
	rc = count_prepared(summary, table, error);
	if (!rc)
		rc = count_minimum(summary, problem, error);
	if (!rc)
		rc = count_sessions(summary, table, error);
	if (!rc)
		rc = lower_bound(summary, problem, error);
	if (!rc && problem->boxed)
		rc = writes_of(&summary->writes, table, error);
	if (rc)
		goto fini;
	add_ratios(summary, problem);
	return 0;
fini:
	summary_fini(summary);
	return rc;
}

void summary_fini(struct summary *summary)
{
	memory_free(summary->trainer_bytes);
	memory_free(summary->inference_bytes);
	memory_free(summary->sessions);
	*summary = (struct summary){0};
}

uint32_t summary_sessions_max(const struct summary *summary, uint32_t trainers)
{
	uint32_t most = 0;

	for (uint32_t t = 0; t < trainers; t++)
		most = summary->sessions[t] > most ? (uint32_t)summary->sessions[t] : most;
	return most;
}
