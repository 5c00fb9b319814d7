/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/diff.h"

#include "base/array.h"
#include "base/compare.h"
#include "base/pool.h"
#include "job/strmap.h"
#include "routing/plan/topology_file.h"
#include <inttypes.h>
#include <string.h>

/* A run of target bytes and who writes it; param and tensor are numbers of both dumps. */
struct span {
	uint32_t inference, param, tensor, trainer;
	uint32_t transformed; /* of its own dump */
	uint64_t lo, hi;
};

struct spans {
	struct span *items;
	size_t count;
};

struct work {
	struct diff *diff;
	const struct dump *a, *b;
	struct strmap numbers; /* name -> number */
	ARRAY(const char *) names;
	uint64_t *moved;       /* by number, of tensors */
	ARRAY(uint64_t) pairs; /* (tensor, inference) with moved bytes, repeated */
	struct error *error;
	struct pool pool; /* of all but the two arrays that grow */
};

static int no_memory(struct error *error, size_t bytes)
{
	return memory_error(error, "comparing two dumps", bytes);
}

/* ---- the same job? ---- */

int diff_same_job(const struct dump *a, const struct dump *b, struct error *error)
{
	const struct {
		const char *name, *a, *b;
	} labels[] = {{"model", a->labels.model, b->labels.model},
		      {"train", a->labels.train, b->labels.train},
		      {"infer", a->labels.infer, b->labels.infer}};

	for (size_t i = 0; i < ARRAY_SIZE(labels); i++)
		if (strcmp(labels[i].a, labels[i].b) != 0)
			return error_set(error, ERROR_CONFLICT,
					 "two jobs: \"%s\" is '%s' in the first dump and '%s' in "
					 "the second; only plans of one job are compared",
					 labels[i].name, labels[i].a, labels[i].b);
	if (a->labels.trainer_count != b->labels.trainer_count ||
	    a->labels.inference_count != b->labels.inference_count)
		return error_set(error, ERROR_CONFLICT,
				 "two jobs: %" PRIu32 " trainers and %" PRIu32
				 " inference ranks in the first dump, %" PRIu32 " and %" PRIu32
				 " in the second",
				 a->labels.trainer_count, a->labels.inference_count,
				 b->labels.trainer_count, b->labels.inference_count);
	return 0;
}

static int check_dumps(const struct dump *a, const struct dump *b, struct error *error)
{
	int rc = diff_same_job(a, b, error);

	if (rc)
		return rc;
	if (!a->has_routes || !b->has_routes)
		return error_set(error, ERROR_FILE,
				 "the %s dump has no routes to compare: it was written with "
				 "--summary, write it without",
				 a->has_routes ? "second" : "first");
	return 0;
}

static int topology_text(struct text *text, const struct dump *dump, struct error *error)
{
	struct json json;

	if (!dump->labels.topology)
		return 0;
	json_to_text(&json, text);
	topology_put(&json, dump->labels.topology);
	return text_ok(text) ? 0 : no_memory(error, text->bytes);
}

static int compare_topologies(struct diff *diff, const struct dump *a, const struct dump *b,
			      struct error *error)
{
	struct text texts[2] = {0};
	int rc = topology_text(&texts[0], a, error);

	if (!rc)
		rc = topology_text(&texts[1], b, error);
	diff->topology_differs = !rc && strcmp(text_string(&texts[0]), text_string(&texts[1])) != 0;
	text_fini(&texts[0]);
	text_fini(&texts[1]);
	return rc;
}

/* ---- spans ---- */

static int number_of(struct work *work, const char *name, uint32_t *number)
{
	if (strmap_get(&work->numbers, name, number))
		return 0;
	*number = (uint32_t)work->names.count;
	if (!array_add(&work->names, name) || !strmap_put(&work->numbers, name, *number))
		return no_memory(work->error, sizeof(name));
	return 0;
}

static int same_target(const struct span *a, const struct span *b)
{
	return compare_u64(a->inference, b->inference) ?: compare_u64(a->param, b->param);
}

static int by_target(const void *x, const void *y)
{
	const struct span *a = x, *b = y;

	return same_target(a, b)
		       ?: compare_u64(a->lo, b->lo)
		       ?: compare_u64(a->hi, b->hi)
		       ?: compare_u64(a->trainer, b->trainer);
}

static int gather(struct work *work, const struct dump *dump, struct spans *spans)
{
	uint32_t *numbers = pool_array(&work->pool, dump->names.count, sizeof(*numbers));
	int rc = 0;

	spans->items = pool_array(&work->pool, dump->piece_count, sizeof(*spans->items));
	if (!pool_ok(&work->pool))
		return no_memory(work->error, dump->piece_count * sizeof(*spans->items));
	for (size_t n = 0; !rc && n < dump->names.count; n++)
		rc = number_of(work, dump->names.items[n], &numbers[n]);
	for (size_t r = 0; !rc && r < dump->route_count; r++) {
		const struct route *route = &dump->routes[r];

		for (uint32_t p = 0; p < route->piece_count; p++) {
			const struct route_piece *piece = &dump->pieces[route->piece_first + p];

			spans->items[spans->count++] = (struct span){route->inference,
								     numbers[piece->param],
								     numbers[route->tensor],
								     route->trainer,
								     piece->transformed,
								     piece->offset,
								     piece->offset + piece->bytes};
		}
	}
	if (!rc)
		sort_items(spans->items, spans->count, by_target);
	return rc;
}

/* ---- the walk: both lists of spans, side by side ---- */

static bool same_transformed(const struct work *work, const struct span *a, const struct span *b)
{
	const struct problem_transformed *x, *y;

	if (!a->transformed || !b->transformed)
		return a->transformed == b->transformed; /* the first is a copy */
	x = &work->a->transformed[a->transformed];
	y = &work->b->transformed[b->transformed];
	return transform_equal(&x->transform, &y->transform) && x->to == y->to &&
	       (!x->transform.from_rows ||
		strcmp(work->a->names.items[x->scales], work->b->names.items[y->scales]) == 0);
}

static int count_both(struct work *work, const struct span *a, const struct span *b, uint64_t bytes)
{
	struct diff *diff = work->diff;
	uint64_t pair = (uint64_t)b->tensor << 32 | b->inference;

	diff->bytes += bytes;
	if (!same_transformed(work, a, b))
		diff->transformed_bytes += bytes;
	if (a->trainer == b->trainer)
		return 0;
	diff->moved_bytes += bytes;
	diff->trainers[a->trainer].lost += bytes;
	diff->trainers[b->trainer].gained += bytes;
	work->moved[b->tensor] += bytes;
	return array_add(&work->pairs, pair) ? 0 : no_memory(work->error, sizeof(pair));
}

/* What is left of each list's first span is cut where the other's begins or ends. */
static int walk(struct work *work, struct spans *a, struct spans *b)
{
	struct diff *diff = work->diff;
	size_t i = 0, j = 0;
	int rc = 0;

	while (!rc && i < a->count && j < b->count) {
		struct span *x = &a->items[i], *y = &b->items[j];
		int side = same_target(x, y);
		uint64_t end;

		if (side < 0 || (side == 0 && x->hi <= y->lo)) {
			diff->only_a += x->hi - x->lo;
			i++;
			continue;
		}
		if (side > 0 || y->hi <= x->lo) {
			diff->only_b += y->hi - y->lo;
			j++;
			continue;
		}
		if (x->lo < y->lo)
			diff->only_a += y->lo - x->lo;
		else
			diff->only_b += x->lo - y->lo;
		x->lo = y->lo = x->lo > y->lo ? x->lo : y->lo;
		end = x->hi < y->hi ? x->hi : y->hi;
		rc = count_both(work, x, y, end - x->lo);
		x->lo = y->lo = end;
		i += x->lo == x->hi;
		j += y->lo == y->hi;
	}
	for (; i < a->count; i++)
		diff->only_a += a->items[i].hi - a->items[i].lo;
	for (; j < b->count; j++)
		diff->only_b += b->items[j].hi - b->items[j].lo;
	return rc;
}

/* ---- results ---- */

static uint64_t distinct(uint64_t *items, size_t count)
{
	uint64_t found = 0;

	sort_items(items, count, compare_u64s);
	for (size_t i = 0; i < count; i++)
		found += i == 0 || items[i] != items[i - 1];
	return found;
}

static int by_moved(const void *x, const void *y)
{
	const struct diff_tensor *a = x, *b = y;

	return compare_u64(b->moved_bytes, a->moved_bytes) ?: strcmp(a->name, b->name);
}

static int by_change(const void *x, const void *y)
{
	const struct diff_trainer *a = x, *b = y;

	return compare_u64(b->lost + b->gained, a->lost + a->gained)
		       ?: compare_u64(a->rank, b->rank);
}

static int finish(struct work *work, const struct dump *a)
{
	struct diff *diff = work->diff;
	uint64_t *pairs = pool_array(&work->pool, a->route_count, sizeof(*pairs));

	diff->tensors = memory_alloc(work->names.count * sizeof(*diff->tensors));
	if (!pairs || !diff->tensors)
		return no_memory(work->error, a->route_count * sizeof(*pairs));
	for (size_t r = 0; r < a->route_count; r++)
		pairs[r] = (uint64_t)a->routes[r].tensor << 32 | a->routes[r].inference;
	diff->pairs = distinct(pairs, a->route_count);
	diff->moved_pairs = distinct(work->pairs.items, work->pairs.count);
	for (size_t n = 0; n < work->names.count; n++)
		if (work->moved[n])
			diff->tensors[diff->tensor_count++] =
				(struct diff_tensor){work->names.items[n], work->moved[n]};
	sort_items(diff->tensors, diff->tensor_count, by_moved);
	sort_items(diff->trainers, diff->trainer_count, by_change);
	return 0;
}

static int compare(struct work *work, const struct dump *a, const struct dump *b)
{
	struct diff *diff = work->diff;
	struct spans of_a = {0}, of_b = {0};
	int rc = gather(work, a, &of_a);

	if (!rc)
		rc = gather(work, b, &of_b);
	diff->trainer_count = a->labels.trainer_count;
	diff->trainers = memory_zalloc(a->labels.trainer_count, sizeof(*diff->trainers));
	work->moved = pool_array(&work->pool, work->names.count, sizeof(*work->moved));
	if (!rc && (!diff->trainers || !work->moved))
		rc = no_memory(work->error, work->names.count * sizeof(*work->moved));
	for (uint32_t t = 0; !rc && t < a->labels.trainer_count; t++)
		diff->trainers[t].rank = t;
	if (!rc)
		rc = walk(work, &of_a, &of_b);
	if (!rc)
		rc = finish(work, a);
	return rc;
}

int diff_of(struct diff *diff, const struct dump *a, const struct dump *b, struct error *error)
{
	struct work work = {.diff = diff, .a = a, .b = b, .error = error};
	int rc;

	*diff = (struct diff){0};
	rc = check_dumps(a, b, error);
	if (!rc)
		rc = compare_topologies(diff, a, b, error);
	if (!rc)
		rc = compare(&work, a, b);
	strmap_fini(&work.numbers);
	array_free(&work.names);
	array_free(&work.pairs);
	pool_free(&work.pool);
	diff->order_differs = strcmp(a->labels.order, b->labels.order) != 0;
	diff->same = !rc && digest_equal(a->labels.digest, b->labels.digest) &&
		     !diff->moved_bytes && !diff->transformed_bytes && !diff->only_a &&
		     !diff->only_b && a->route_count == b->route_count &&
		     a->piece_count == b->piece_count && !diff->order_differs &&
		     !diff->topology_differs;
	if (rc)
		diff_fini(diff);
	return rc;
}

void diff_fini(struct diff *diff)
{
	memory_free(diff->trainers);
	memory_free(diff->tensors);
	*diff = (struct diff){0};
}
