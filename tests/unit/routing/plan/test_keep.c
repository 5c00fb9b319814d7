/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that follow another one: what they keep, and how even they are.
 */
#include "routing/plan/keep.h"
#include "tests/unit/routing/routing_job.h"

#define RANDOM_JOBS 400

/* Some of a job, and a plan of them. */
struct some {
	struct problem *problem;
	struct table *table;
};

static const struct holding nothing;
static const struct layout no_layout;

static int some_plan(struct some *some, const struct job *job, const bool *trainers_away,
		     const bool *inference_away, const char *policy, const struct table *before)
{
	struct plan_options options = {.before = before};
	struct problem_input input = job->input;
	const struct holding *trainers[JOB_RANKS_MAX];
	const struct layout *inference[JOB_RANKS_MAX];
	struct digest none = {0};
	struct digest trainer_digests[JOB_RANKS_MAX], inference_digests[JOB_RANKS_MAX];
	struct error error = {0};
	int rc;

	*some = (struct some){0};
	for (uint32_t t = 0; t < input.trainer_count; t++) {
		trainers[t] = trainers_away[t] ? &nothing : input.trainers[t];
		trainer_digests[t] = trainers_away[t] ? none : input.trainer_digests[t];
	}
	for (uint32_t i = 0; i < input.inference_count; i++) {
		inference[i] = inference_away[i] ? &no_layout : input.inference[i];
		inference_digests[i] = inference_away[i] ? none : input.inference_digests[i];
	}
	input.trainers = trainers;
	input.trainer_digests = trainer_digests;
	input.trainer_away = trainers_away;
	input.inference = inference;
	input.inference_digests = inference_digests;
	input.inference_away = inference_away;
	rc = problem_build(&some->problem, &input, &error);
	if (rc == -ERROR_UNSOURCED)
		return rc;
	assert_int_equal(rc, 0);
	if (table_plan(&some->table, some->problem, policy_find(policy), &options, &error))
		fail_msg("plan: %s", error.text);
	return 0;
}

static void some_fini(struct some *some)
{
	table_free(&some->table);
	problem_free(&some->problem);
}

static uint64_t load_of(const struct table *table, uint32_t trainer)
{
	uint64_t bytes = 0;

	for (size_t r = 0; r < table->route_count; r++)
		bytes += table->routes[r].trainer == trainer ? table->routes[r].bytes : 0;
	return bytes;
}

static uint64_t largest_load(const struct table *table)
{
	uint64_t most = 0;

	for (uint32_t t = 0; t < table->problem->trainer_count; t++)
		most = load_of(table, t) > most ? load_of(table, t) : most;
	return most;
}

static const bool everybody[JOB_RANKS_MAX];

/* ---- by hand ---- */

/* Trainers that all hold all of `tensors` tensors of so many rows of 40 bytes, which two ranks want. */
static void job_of_replicas(struct job *job, uint32_t trainers, uint32_t tensors, uint64_t rows)
{
	char name[16], param[16];

	job_init(job, trainers, 2);
	job->ranks_per_engine = 1;
	for (uint32_t i = 0; i < tensors; i++) {
		snprintf(name, sizeof(name), "t%02u", i);
		snprintf(param, sizeof(param), "p%02u", i);
		for (uint32_t t = 0; t < trainers; t++)
			job_hold(job, t, name, i, rows, 10, 0, rows);
		for (uint32_t rank = 0; rank < 2; rank++)
			job_want(job, rank, param, name, rows, 10, 0, rows, 0, 10);
	}
	job_build(job);
}

static void assert_keeps_all_but_of(const struct table *before, const struct table *after,
				    uint32_t lost)
{
	assert_int_equal(before->route_count, after->route_count);
	for (size_t r = 0; r < after->route_count; r++)
		if (before->routes[r].trainer != lost)
			assert_int_equal(after->routes[r].trainer, before->routes[r].trainer);
}

static void
test_plan__without_a_trainer_gives_away_what_that_one_sent_and_keeps_the_rest(void **state)
{
	bool away[JOB_RANKS_MAX] = {[2] = true};
	struct some all, three, again;
	struct job job;

	(void)state;
	job_of_replicas(&job, 4, 12, 10);
	assert_int_equal(some_plan(&all, &job, everybody, everybody, "greedy", NULL), 0);
	assert_false(all.table->moved.follows);
	assert_int_equal(some_plan(&three, &job, away, everybody, "greedy", all.table), 0);
	assert_keeps_all_but_of(all.table, three.table, 2);
	assert_int_equal(largest_load(three.table), 8 * 400);
	assert_true(three.table->moved.follows);
	assert_int_equal(three.table->moved.routes, 6);
	assert_int_equal(three.table->moved.bytes, 6 * 400);
	/* and when nothing changes nothing moves */
	assert_int_equal(some_plan(&again, &job, away, everybody, "greedy", three.table), 0);
	assert_true(digest_equal(again.table->digest, three.table->digest));
	assert_int_equal(again.table->moved.routes, 0);
	some_fini(&again);
	some_fini(&three);
	some_fini(&all);
	job_fini(&job);
}

static void test_plan__with_a_trainer_more_gives_it_its_part_and_moves_nothing_else(void **state)
{
	bool away[JOB_RANKS_MAX] = {[2] = true};
	struct some all, three;
	struct job job;

	(void)state;
	job_of_replicas(&job, 4, 12, 10);
	assert_int_equal(some_plan(&three, &job, away, everybody, "greedy", NULL), 0);
	assert_int_equal(some_plan(&all, &job, everybody, everybody, "greedy", three.table), 0);
	for (size_t r = 0; r < all.table->route_count; r++)
		if (all.table->routes[r].trainer != 2)
			assert_int_equal(all.table->routes[r].trainer,
					 three.table->routes[r].trainer);
	assert_int_equal(largest_load(all.table), 6 * 400);
	assert_int_equal(load_of(all.table, 2), 6 * 400);
	assert_int_equal(all.table->moved.routes, 6);
	some_fini(&three);
	some_fini(&all);
	job_fini(&job);
}

/* What it is sent is new, and was sent by nobody. */
static void test_plan__with_an_engine_more_moves_nothing(void **state)
{
	bool away[JOB_RANKS_MAX] = {[1] = true};
	struct some both, one;
	struct job job;

	(void)state;
	job_of_replicas(&job, 4, 12, 10);
	assert_int_equal(some_plan(&one, &job, everybody, away, "lpt", NULL), 0);
	assert_int_equal(some_plan(&both, &job, everybody, everybody, "lpt", one.table), 0);
	assert_int_equal(both.table->moved.routes, 0);
	assert_int_equal(largest_load(both.table), 6 * 400);
	some_fini(&both);
	some_fini(&one);
	job_fini(&job);
}

/* Trainer 0 shares holders with 1 alone, and 1 with 2: nothing that 0 gives fits before 1 has given too. */
static void test_plan__that_cannot_be_made_even_is_one_from_the_beginning(void **state)
{
	bool away[JOB_RANKS_MAX] = {[2] = true};
	struct some all, two, fresh;
	struct job job;
	char name[16];

	(void)state;
	job_init(&job, 3, 1);
	for (uint32_t i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		job_hold(&job, i / 3, name, i, 10, 10, 0, 10);
		job_hold(&job, i / 3 + 1, name, i, 10, 10, 0, 10);
		job_want(&job, 0, name, name, 10, 10, 0, 10, 0, 10);
	}
	job_build(&job);
	assert_int_equal(some_plan(&two, &job, away, everybody, "first-holder", NULL), 0);
	assert_int_equal(load_of(two.table, 0), 3 * 400);
	assert_int_equal(load_of(two.table, 1), 3 * 400);
	assert_int_equal(some_plan(&all, &job, everybody, everybody, "greedy", two.table), 0);
	assert_int_equal(some_plan(&fresh, &job, everybody, everybody, "greedy", NULL), 0);
	assert_int_equal(largest_load(fresh.table), 2 * 400);
	assert_true(digest_equal(all.table->digest, fresh.table->digest));
	assert_true(all.table->moved.follows && all.table->moved.routes);
	some_fini(&fresh);
	some_fini(&all);
	some_fini(&two);
	job_fini(&job);
}

static void test_policies__that_decide_by_a_rule_of_their_own_keep_nothing(void **state)
{
	bool away[JOB_RANKS_MAX] = {[2] = true};
	static const char *const names[] = {"round-robin", "modulo", "hash"};
	struct some all, three, fresh;
	struct job job;

	(void)state;
	job_of_replicas(&job, 4, 12, 10);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(some_plan(&all, &job, everybody, everybody, names[i], NULL), 0);
		assert_int_equal(some_plan(&three, &job, away, everybody, names[i], all.table), 0);
		assert_int_equal(some_plan(&fresh, &job, away, everybody, names[i], NULL), 0);
		assert_true(digest_equal(three.table->digest, fresh.table->digest));
		assert_false(three.table->moved.follows);
		some_fini(&fresh);
		some_fini(&three);
		some_fini(&all);
	}
	job_fini(&job);
}

/* ---- that cuts units ---- */

enum { ALL = 7 * 1000 * 40 * 2 };

/* No more than a hundredth, and a row, beside what each has of all. */
static void assert_even(const struct table *table, uint32_t trainers)
{
	assert_in_range(largest_load(table), ALL / trainers,
			ALL / trainers + ALL / trainers / KEEP_SLACK + 80);
}

static void test_balanced__without_a_trainer_and_with_it_again_moves_its_part_alone(void **state)
{
	bool away[JOB_RANKS_MAX] = {[2] = true};
	struct some plans[4];
	struct job job;

	(void)state;
	job_of_replicas(&job, 4, 7, 1000);
	assert_int_equal(some_plan(&plans[0], &job, everybody, everybody, "balanced", NULL), 0);
	assert_false(plans[0].table->moved.follows);
	assert_even(plans[0].table, 4);
	for (int i = 1; i < 4; i++)
		assert_int_equal(some_plan(&plans[i], &job, i == 3 ? everybody : away, everybody,
					   "balanced", plans[i - 1].table),
				 0);
	assert_true(plans[1].table->moved.follows);
	assert_even(plans[1].table, 3);
	assert_int_equal(plans[1].table->moved.bytes, load_of(plans[0].table, 2));
	/* and when nothing changes nothing moves */
	assert_int_equal(plans[2].table->moved.routes, 0);
	assert_true(digest_equal(plans[2].table->digest, plans[1].table->digest));
	assert_even(plans[3].table, 4);
	assert_int_equal(plans[3].table->moved.bytes, load_of(plans[3].table, 2));
	for (int i = 0; i < 4; i++)
		some_fini(&plans[i]);
	job_fini(&job);
}

/* It is sent each row by who sends it to the others: no trainer prepares more than before. */
static void test_balanced__with_an_engine_more_moves_nothing(void **state)
{
	struct job job;

	(void)state;
	job_of_replicas(&job, 4, 7, 1000);
	for (uint32_t last = 0; last < 2; last++) {
		bool away[JOB_RANKS_MAX] = {0};
		struct some both, one;

		away[last] = true;
		assert_int_equal(some_plan(&one, &job, everybody, away, "balanced", NULL), 0);
		assert_int_equal(
			some_plan(&both, &job, everybody, everybody, "balanced", one.table), 0);
		assert_int_equal(both.table->moved.routes, 0);
		assert_even(both.table, 4);
		assert_int_equal(both.table->route_count, 2 * one.table->route_count);
		some_fini(&both);
		some_fini(&one);
	}
	job_fini(&job);
}

/* It may have the lowest ranks, and a layout that nobody else has: rows are what they were. */
static void test_balanced__with_an_engine_of_another_layout_moves_nothing(void **state)
{
	for (uint32_t last = 0; last < 2; last++) {
		bool away[JOB_RANKS_MAX] = {0};
		struct some both, one;
		struct job job;

		(void)state;
		job_init(&job, 4, 2);
		job.ranks_per_engine = 1;
		for (uint32_t t = 0; t < 4; t++)
			for (uint32_t i = 0; i < 2; i++)
				job_hold(&job, t, i ? "b" : "a", i, 1000, 10, 0, 1000);
		for (uint32_t rank = 0; rank < 2; rank++) {
			job_want(&job, rank, "a", "a", 1000, 10, 0, 1000, 0, 10);
			if (rank == last)
				job_want(&job, rank, "b", "b", 1000, 10, 0, 1000, 0, 10);
		}
		job_build(&job);
		away[last] = true;
		assert_int_equal(some_plan(&one, &job, everybody, away, "balanced", NULL), 0);
		assert_int_equal(
			some_plan(&both, &job, everybody, everybody, "balanced", one.table), 0);
		assert_int_equal(both.table->moved.bytes, 0);
		some_fini(&both);
		some_fini(&one);
		job_fini(&job);
	}
}

/* Of what is sent between the pieces of a pair nothing is counted. */
static void test_balanced__counts_of_a_pair_with_a_hole_what_is_sent(void **state)
{
	bool away[JOB_RANKS_MAX] = {[0] = true}, other[JOB_RANKS_MAX] = {[1] = true};
	struct some first, next;
	struct job job;

	(void)state;
	job_init(&job, 2, 1);
	for (uint32_t t = 0; t < 2; t++)
		job_hold(&job, t, "w", 0, 200, 10, 0, 200);
	job_want(&job, 0, "gate", "w", 200, 10, 0, 16, 0, 10);
	job_want(&job, 0, "up", "w", 200, 10, 100, 116, 0, 10);
	job_build(&job);
	assert_int_equal(some_plan(&first, &job, away, everybody, "balanced", NULL), 0);
	assert_int_equal(some_plan(&next, &job, other, everybody, "balanced", first.table), 0);
	assert_int_equal(next.table->moved.bytes, 32 * 40);
	some_fini(&next);
	some_fini(&first);
	job_fini(&job);
}

/* Each change leaves borders; when there are too many the plan is one from the beginning. */
static void test_balanced__after_many_changes_is_not_cut_into_many_parts(void **state)
{
	struct dice dice = dice_seeded("keep balanced");
	bool away[JOB_RANKS_MAX] = {0};
	struct some last, next;
	struct job job;
	size_t most = 0, kept = 0;
	uint32_t here = 6;

	(void)state;
	job_of_replicas(&job, 6, 7, 1000);
	assert_int_equal(some_plan(&last, &job, away, everybody, "balanced", NULL), 0);
	for (int i = 0; i < 300; i++) {
		uint32_t who = dice_below(&dice, 6);

		if (here == 1 && !away[who])
			continue;
		here += away[who] ? 1 : -1;
		away[who] = !away[who];
		assert_int_equal(some_plan(&next, &job, away, everybody, "balanced", last.table),
				 0);
		assert_even(next.table, here);
		most = next.table->route_count > most ? next.table->route_count : most;
		kept += next.table->moved.bytes <= ALL / 2;
		some_fini(&last);
		last = next;
	}
	assert_true(most <= 2 * 4 * (7 + 6) && kept > 150);
	some_fini(&last);
	job_fini(&job);
}

/* ---- what fails ---- */

static void test_memory__that_is_not_there_is_an_error_and_nothing_is_lost(void **state)
{
	static const char *const policies[] = {"greedy", "balanced"};
	bool away[JOB_RANKS_MAX] = {[2] = true};
	struct some all, three;
	struct job job;

	(void)state;
	job_of_replicas(&job, 4, 7, 1000);
	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		struct plan_options options = {0};
		struct table *table;
		struct error error;
		int rc = 1;

		assert_int_equal(some_plan(&all, &job, everybody, everybody, policies[i], NULL), 0);
		assert_int_equal(some_plan(&three, &job, away, everybody, policies[i], NULL), 0);
		options.before = all.table;
		for (uint64_t k = 1; rc; k++) {
			memory_fail_at(k);
			rc = table_plan(&table, three.problem, policy_find(policies[i]), &options,
					&error);
			memory_fail_at(0);
			assert_true(rc == 0 || (rc == -ERROR_MEMORY && !table));
		}
		assert_true(table->moved.follows);
		table_free(&table);
		some_fini(&three);
		some_fini(&all);
	}
	job_fini(&job);
}

/* ---- at random ---- */

static const struct box *first_box(const struct table *table, const struct route *route)
{
	return &table->pieces[route->piece_first].src;
}

static int compare_lows(const struct box *a, const struct box *b)
{
	for (uint32_t d = 0; d < a->dims; d++)
		if (a->lo[d] != b->lo[d])
			return a->lo[d] < b->lo[d] ? -1 : 1;
	return 0;
}

/* Who sent what begins there, or the last before it. */
static const struct route *route_before(const struct table *before, const struct table *table,
					const struct route *route)
{
	const char *name = table->problem->tensors[route->tensor].name;
	const struct route *found = NULL;

	for (size_t r = 0; r < before->route_count; r++) {
		const struct route *other = &before->routes[r];

		if (strcmp(before->problem->tensors[other->tensor].name, name) != 0 ||
		    other->inference != route->inference ||
		    compare_lows(first_box(before, other), first_box(table, route)) > 0)
			continue;
		if (!found || compare_lows(first_box(before, other), first_box(before, found)) >= 0)
			found = other;
	}
	return found;
}

/* Of the largest row of a tensor to all ranks: so exactly can a plan that cuts at rows be even. */
static uint64_t largest_row(const struct table *table)
{
	uint64_t most = 0;

	for (size_t r = 0; r < table->route_count; r++) {
		const struct box *src = first_box(table, &table->routes[r]);
		uint64_t rows = src->dims ? src->hi[0] - src->lo[0] : 1;
		uint64_t bytes =
			table->pieces[table->routes[r].piece_first].bytes / (rows ? rows : 1);

		most = bytes > most ? bytes : most;
	}
	return most * table->problem->inference_count;
}

/* Who sends that row to the rank, by its first column there. */
static uint32_t sender_of(const struct table *table, const char *name, uint32_t inference,
			  uint64_t row, uint64_t column)
{
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];

		if (route->inference != inference ||
		    strcmp(table->problem->tensors[route->tensor].name, name) != 0)
			continue;
		for (uint32_t p = 0; p < route->piece_count; p++) {
			const struct box *src = &table->pieces[route->piece_first + p].src;

			if (src->lo[0] <= row && row < src->hi[0] &&
			    (src->dims < 2 || (src->lo[1] <= column && column < src->hi[1])))
				return route->trainer;
		}
	}
	return UINT32_MAX;
}

static uint64_t bytes_moved(const struct table *before, const struct table *after)
{
	uint64_t moved = 0;

	for (size_t r = 0; r < after->route_count; r++) {
		const struct route *route = &after->routes[r];
		const char *name = after->problem->tensors[route->tensor].name;

		for (uint32_t p = 0; p < route->piece_count; p++) {
			const struct route_piece *piece = &after->pieces[route->piece_first + p];
			uint64_t rows = piece->src.hi[0] - piece->src.lo[0];

			for (uint64_t row = piece->src.lo[0]; row < piece->src.hi[0]; row++) {
				uint32_t was =
					sender_of(before, name, route->inference, row,
						  piece->src.dims < 2 ? 0 : piece->src.lo[1]);

				if (was != UINT32_MAX && was != route->trainer)
					moved += piece->bytes / rows;
			}
		}
	}
	return moved;
}

static void check_even(const struct table *kept, const struct table *fresh)
{
	uint64_t most = largest_load(fresh);

	assert_true(kept->moved.follows && !fresh->moved.follows);
	if (largest_load(kept) > most + most / KEEP_SLACK + 2 * largest_row(kept))
		fail_msg("%llu bytes, and %llu from the beginning; rows of %llu",
			 (unsigned long long)largest_load(kept), (unsigned long long)most,
			 (unsigned long long)largest_row(kept));
}

static bool same_routes(const struct table *a, const struct table *b)
{
	return digest_equal(a->digest, b->digest);
}

static bool still_holds(const struct table *table, const struct route *route, uint32_t trainer)
{
	for (uint32_t p = 0; p < route->piece_count; p++)
		if (!problem_held(table->problem, trainer, route->tensor,
				  &table->pieces[route->piece_first + p].src))
			return false;
	return true;
}

/* Nobody gives away what it could keep: only who has too much, by what it had or with what it may have been given. */
static void check_kept(const struct table *before, const struct table *kept,
		       const struct table *fresh)
{
	uint64_t limit = largest_load(fresh) + largest_load(fresh) / KEEP_SLACK;
	uint64_t could_keep[JOB_RANKS_MAX] = {0}, given = 0;
	struct table_moved moved = {.follows = true};

	assert_true(largest_load(kept) <= limit);
	for (size_t r = 0; r < kept->route_count; r++) {
		const struct route *route = &kept->routes[r];
		const struct route *was = route_before(before, kept, route);

		if (was && was->trainer != route->trainer) {
			moved.routes++;
			moved.bytes += route->bytes;
		}
		if (was && still_holds(kept, route, was->trainer))
			could_keep[was->trainer] += route->bytes;
		else
			given += route->bytes;
	}
	assert_int_equal(kept->moved.routes, moved.routes);
	assert_int_equal(kept->moved.bytes, moved.bytes);
	for (size_t r = 0; r < kept->route_count && !same_routes(kept, fresh); r++) {
		const struct route *route = &kept->routes[r];
		const struct route *was = route_before(before, kept, route);

		if (was && was->trainer != route->trainer && still_holds(kept, route, was->trainer))
			assert_true(could_keep[was->trainer] + given > limit);
	}
}

/* One comes or goes; where nobody holds something then, it stays as it was. */
static bool change(struct some *next, struct some *fresh, struct job *job,
		   bool away[2][JOB_RANKS_MAX], const char *policy, const struct table *before,
		   struct dice *dice)
{
	bool inference = dice_below(dice, 3) == 0;
	bool *who = &away[inference]
			 [dice_below(dice, inference ? job->inference_count : job->trainer_count)];

	*who = !*who;
	if (some_plan(next, job, away[0], away[1], policy, before)) {
		*who = !*who;
		return false;
	}
	assert_int_equal(some_plan(fresh, job, away[0], away[1], policy, NULL), 0);
	return true;
}

static void
test_random_jobs__keep_what_they_can_and_are_as_even_as_a_plan_from_the_beginning(void **state)
{
	static const char *const policies[] = {"greedy", "lpt", "balanced"};
	struct dice dice = dice_seeded("keep");
	uint64_t moved = 0, fresh_moved = 0;
	size_t plans = 0, from_the_beginning = 0;

	(void)state;
	for (int i = 0; i < RANDOM_JOBS; i++) {
		const char *policy = policies[i % 3];
		bool away[2][JOB_RANKS_MAX] = {0};
		struct some last, next, fresh;
		struct job job;

		job_random(&job, &dice);
		assert_int_equal(some_plan(&last, &job, away[0], away[1], policy, NULL), 0);
		for (int step = 0; step < 6; step++) {
			if (!change(&next, &fresh, &job, away, policy, last.table, &dice))
				continue;
			if (i % 3 == 2) {
				check_even(next.table, fresh.table);
				moved += bytes_moved(last.table, next.table);
				fresh_moved += bytes_moved(last.table, fresh.table);
			} else
				check_kept(last.table, next.table, fresh.table);
			plans++;
			from_the_beginning += same_routes(next.table, fresh.table);
			some_fini(&fresh);
			some_fini(&last);
			last = next;
		}
		some_fini(&last);
		job_fini(&job);
	}
	print_message(
		"%zu plans, %zu of them as from the beginning; those that cut moved %llu bytes, and from the beginning %llu\n",
		plans, from_the_beginning, (unsigned long long)moved,
		(unsigned long long)fresh_moved);
	assert_true(plans > RANDOM_JOBS && from_the_beginning < plans);
	assert_true(moved * 10 < fresh_moved * 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_plan__without_a_trainer_gives_away_what_that_one_sent_and_keeps_the_rest),
		cmocka_unit_test(
			test_plan__with_a_trainer_more_gives_it_its_part_and_moves_nothing_else),
		cmocka_unit_test(test_plan__with_an_engine_more_moves_nothing),
		cmocka_unit_test(test_plan__that_cannot_be_made_even_is_one_from_the_beginning),
		cmocka_unit_test(test_policies__that_decide_by_a_rule_of_their_own_keep_nothing),
		cmocka_unit_test(
			test_balanced__without_a_trainer_and_with_it_again_moves_its_part_alone),
		cmocka_unit_test(test_balanced__with_an_engine_more_moves_nothing),
		cmocka_unit_test(test_balanced__with_an_engine_of_another_layout_moves_nothing),
		cmocka_unit_test(test_balanced__counts_of_a_pair_with_a_hole_what_is_sent),
		cmocka_unit_test(test_balanced__after_many_changes_is_not_cut_into_many_parts),
		cmocka_unit_test(test_memory__that_is_not_there_is_an_error_and_nothing_is_lost),
		cmocka_unit_test(
			test_random_jobs__keep_what_they_can_and_are_as_even_as_a_plan_from_the_beginning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
