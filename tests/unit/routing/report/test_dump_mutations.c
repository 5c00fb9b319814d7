/* SPDX-License-Identifier: Apache-2.0
 *
 * 10^4 random changes of real dumps, none of which dump_verify may let pass. Half of them come
 * with a digest that is right for what they became, so that the proof and the summary have to
 * see them; of these the ones that leave another valid table behind (another holder, equally
 * loaded) are told from the misses by an independent look.
 */
#include "tests/unit/worker/transformed_job.h"

#include "routing/report/dump.h"
#include "routing/report/dump_read.h"

enum kind {
	DROP,
	DOUBLE,
	SHIFT,
	NON_HOLDER,
	PIECE_BYTES,
	SOURCE,
	PARAM,
	TENSOR,
	SWAP,
	PATH,
	ORDER,
	ROUTE_BYTES,
	TRANSFORMED,
	MAKE,
	SCALES,
	KIND_COUNT
};

static const char *const names[KIND_COUNT] = {
	"drop", "double", "shift", "non-holder",  "piece bytes", "source", "param",  "tensor",
	"swap", "how",	  "order", "route bytes", "made",	 "make",   "scales",
};

/* A dump whose routes, pieces and ways to transform them are copies with room for one more. */
static struct dump copy_of(const struct dump *dump)
{
	struct dump copy = *dump;
	size_t pieces = dump->piece_count * 2;

	copy.routes = calloc(dump->route_count + 1, sizeof(*copy.routes));
	copy.pieces = calloc(pieces, sizeof(*copy.pieces));
	copy.transformed = calloc(dump->transformed_count + 2, sizeof(*copy.transformed));
	assert_true(copy.routes && copy.pieces && copy.transformed);
	if (dump->transformed_count)
		memcpy(copy.transformed, dump->transformed,
		       dump->transformed_count * sizeof(*copy.transformed));
	else
		copy.transformed_count = 1; /* all is copied */
	memcpy(copy.routes, dump->routes, dump->route_count * sizeof(*copy.routes));
	memcpy(copy.pieces, dump->pieces, dump->piece_count * sizeof(*copy.pieces));
	return copy;
}

static void drop_copy(struct dump *copy)
{
	free(copy->routes);
	free(copy->pieces);
	free(copy->transformed);
}

/* Removes `count` (0 or 1) routes at r, or puts route r there once more; pieces follow. */
static void resize(struct dump *dump, size_t r, bool twice)
{
	const struct dump old = copy_of(dump);
	size_t routes = 0, pieces = 0;

	for (size_t i = 0; i < old.route_count; i++) {
		int times = i != r ? 1 : twice ? 2 : 0;

		for (; times > 0; times--) {
			struct route *route = &dump->routes[routes++];

			*route = old.routes[i];
			route->piece_first = pieces;
			memcpy(dump->pieces + pieces, old.pieces + old.routes[i].piece_first,
			       route->piece_count * sizeof(*dump->pieces));
			pieces += route->piece_count;
		}
	}
	dump->route_count = routes;
	dump->piece_count = pieces;
	drop_copy((struct dump *)&old);
}

static bool swap_neighbours(struct dump *dump, size_t r)
{
	struct dump old = copy_of(dump);
	size_t pieces = old.routes[r].piece_first;

	for (size_t i = 0; i < 2; i++) {
		const struct route *from = &old.routes[r + 1 - i];

		dump->routes[r + i] = *from;
		dump->routes[r + i].piece_first = pieces;
		memcpy(dump->pieces + pieces, old.pieces + from->piece_first,
		       from->piece_count * sizeof(*dump->pieces));
		pieces += from->piece_count;
	}
	drop_copy(&old);
	return true;
}

/* Does the trainer hold all that the route reads? Asked of the declarations alone. */
static bool holds(const struct job *job, const struct dump *dump, const struct route *route,
		  uint32_t trainer)
{
	const struct holding *holding = &job->holdings[trainer];
	uint32_t tensor;

	if (!strmap_get(&holding->tensor_names, dump->names.items[route->tensor], &tensor))
		return false;
	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct box *src = &dump->pieces[route->piece_first + p].src;

		for (uint64_t row = src->lo[0]; row < src->hi[0]; row++) {
			bool held = false;

			for (size_t h = 0; h < holding->held_count; h++)
				held = held || (holding->held[h].tensor == tensor &&
						row >= holding->held[h].box.lo[0] &&
						row < holding->held[h].box.hi[0]);
			if (!held)
				return false;
		}
	}
	return true;
}

static uint64_t other_than(struct dice *dice, uint64_t value, uint64_t below)
{
	return below < 2 ? value : (value + 1 + dice_below(dice, below - 1)) % below;
}

static bool same_transformed(const struct problem_transformed *a,
			     const struct problem_transformed *b)
{
	return transform_equal(&a->transform, &b->transform) && a->scales == b->scales &&
	       a->to == b->to;
}

/* The piece is transformed in a way of its own: another part, other blocks, dtype or scales. */
static bool change_transform(struct dump *dump, struct dice *dice, struct route_piece *piece,
			     bool scales)
{
	static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F8_E4M3};
	struct problem_transformed *transformed = &dump->transformed[dump->transformed_count];
	const struct problem_transformed old = dump->transformed[piece->transformed];

	*transformed = old;
	if (scales)
		transformed->scales = (uint32_t)other_than(dice, old.scales, dump->names.count);
	else
		switch (dice_below(dice, 5)) {
		case 0:
			transformed->transform.part ^= 1;
			break;
		case 1:
			transformed->transform.to_rows++;
			break;
		case 2:
			transformed->transform.to_columns++;
			break;
		case 3:
			transformed->transform.from_rows++;
			break;
		default:
			transformed->to = dtypes[dice_below(dice, ARRAY_SIZE(dtypes))];
		}
	piece->transformed = (uint32_t)dump->transformed_count++;
	return !same_transformed(transformed, &old) && (!scales || old.transform.from_rows);
}

/* False: it was no change (one name, one route, the like), so it counts for nothing. */
static bool mutate(struct dump *dump, const struct job *job, struct dice *dice, enum kind kind)
{
	size_t r = dice_below(dice, dump->route_count);
	struct route *route = &dump->routes[r];
	struct route_piece *piece =
		&dump->pieces[route->piece_first + dice_below(dice, route->piece_count)];
	uint64_t old;
	uint32_t d;

	switch (kind) {
	case DROP:
	case DOUBLE:
		resize(dump, r, kind == DOUBLE);
		return true;
	case SHIFT:
		piece->offset += piece->offset && dice_below(dice, 2) ? UINT64_MAX : 1;
		return true;
	case NON_HOLDER:
		old = route->trainer;
		route->trainer = (uint32_t)other_than(dice, old, dump->labels.trainer_count);
		return route->trainer != old && !holds(job, dump, route, route->trainer);
	case PIECE_BYTES:
		old = piece->bytes;
		piece->bytes += piece->bytes > 1 && dice_below(dice, 2) ? UINT64_MAX : 1;
		route->bytes += piece->bytes - old; /* so that only the piece is wrong */
		return true;
	case SOURCE:
		d = (uint32_t)dice_below(dice, piece->src.dims);
		switch (dice_below(dice, 3)) {
		case 0:
			piece->src.hi[d]++;
			return true;
		case 1:
			if (piece->src.lo[d] == 0)
				return false;
			piece->src.lo[d]--;
			return true;
		default:
			piece->src.lo[d]++;
			piece->src.hi[d]++;
			return true;
		}
	case PARAM:
		old = piece->param;
		piece->param = (uint32_t)other_than(dice, old, dump->names.count);
		return piece->param != old;
	case TENSOR:
		old = route->tensor;
		route->tensor = (uint32_t)other_than(dice, old, dump->names.count);
		return route->tensor != old;
	case SWAP: {
		struct route *other = &dump->routes[dice_below(dice, dump->route_count)];
		uint32_t receiver = route->inference;

		route->inference = other->inference;
		other->inference = receiver;
		return other->inference != route->inference;
	}
	case PATH:
		old = piece->path;
		piece->path = (enum route_path)other_than(dice, old, PATH_COUNT);
		return true;
	case ORDER:
		return r + 1 < dump->route_count && swap_neighbours(dump, r);
	case ROUTE_BYTES:
		route->bytes += dice_below(dice, 2) && route->bytes > 1 ? UINT64_MAX : 1;
		return true;
	case TRANSFORMED:
		old = piece->transformed;
		piece->transformed = (uint32_t)other_than(dice, old, dump->transformed_count);
		return !same_transformed(&dump->transformed[piece->transformed],
					 &dump->transformed[old]);
	case MAKE:
	case SCALES:
		return piece->transformed && change_transform(dump, dice, piece, kind == SCALES);
	case KIND_COUNT:
		break;
	}
	return false;
}

/* The digest that the changed dump would have had if it were right: "" when it makes no table. */
static bool mend_digest(struct dump *dump, struct problem *problem)
{
	struct table *table;

	if (dump_table(&table, dump, problem, NULL))
		return false;
	dump->labels.digest = table->digest;
	table_free(&table);
	return true;
}

/* The message names a byte of a parameter, or the route that is wrong in itself. */
static bool names_place(const char *message)
{
	return (strstr(message, "byte") && strstr(message, "parameter '")) ||
	       strstr(message, "route ") || strstr(message, "routes[");
}

static void test_mutations__ten_thousand_are_refused_without_a_miss(void **state)
{
	static const char *const policies[] = {"greedy", "round-robin", "balanced"};
	struct dice dice = dice_seeded("mutations");
	size_t done = 0, mended = 0, by_kind[KIND_COUNT] = {0};

	(void)state;
	for (int round = 0; done < 10000; round++) {
		static struct job job;
		struct error error = {0};
		struct table *table;
		struct dump *dump;

		if (round % 2)
			job_transformed(&job, &dice, dice_below(&dice, 2) ? GATHERED : ALIGNED);
		else
			job_random(&job, &dice);
		table = job_plan(&job, policies[round % 3]);
		assert_int_equal(dump_of(&dump, table, &error), 0);
		if (dump_verify(dump, job.problem, &error))
			fail_msg("round %d: %s", round, error.text);
		for (int n = 0; n < 4 * KIND_COUNT && dump->route_count; n++) {
			enum kind kind = (enum kind)(n % KIND_COUNT);
			struct dump copy = copy_of(dump);
			bool mend = n >= 2 * KIND_COUNT;
			int rc;

			if (!mutate(&copy, &job, &dice, kind)) {
				drop_copy(&copy);
				continue;
			}
			/* how a piece goes follows from facts that only the dump tells: one
			 * changed everywhere is another job's right table, with its digest */
			mend = mend && kind != PATH && mend_digest(&copy, job.problem);
			rc = dump_verify(&copy, job.problem, &error);
			if (rc != -ERROR_UNPROVED || !error.text[0])
				fail_msg("round %d: %s%s passed: %d %s", round, names[kind],
					 mend ? " with a new digest" : "", rc, error.text);
			if (mend && !names_place(error.text))
				fail_msg("round %d: %s: no place in '%s'", round, names[kind],
					 error.text);
			done++;
			mended += mend;
			by_kind[kind]++;
			drop_copy(&copy);
		}
		dump_free(&dump);
		table_free(&table);
		job_fini(&job);
	}
	for (int kind = 0; kind < KIND_COUNT; kind++) {
		print_message("%s: %zu\n", names[kind], by_kind[kind]);
		assert_true(by_kind[kind] > 100);
	}
	assert_true(mended > 2500);
}

/* What stays a right table is another plan than the one the digest and the summary are of. */
static void test_mutations__another_holder_is_refused_by_digest_then_by_summary(void **state)
{
	static struct job job;
	struct error error = {0};
	struct table *table;
	struct dump *dump;

	(void)state;
	job_init(&job, 2, 2);
	for (uint32_t t = 0; t < 2; t++)
		job_hold(&job, t, "w", 0, 4, 2, 0, 4);
	for (uint32_t i = 0; i < 2; i++)
		job_want(&job, i, "p", "w", 4, 2, 0, 4, 0, 2);
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_int_equal(dump_of(&dump, table, &error), 0);
	dump->routes[1].trainer = 0;
	assert_int_equal(dump_verify(dump, job.problem, &error), -ERROR_UNPROVED);
	assert_non_null(strstr(error.text, "the dump says digest"));
	assert_true(mend_digest(dump, job.problem));
	assert_int_equal(dump_verify(dump, job.problem, &error), -ERROR_UNPROVED);
	assert_non_null(strstr(error.text, "summary.makespan_bytes"));
	dump_free(&dump);
	table_free(&table);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mutations__ten_thousand_are_refused_without_a_miss),
		cmocka_unit_test(
			test_mutations__another_holder_is_refused_by_digest_then_by_summary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
