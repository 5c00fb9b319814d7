/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/routing/routing_job.h"

/* ---- random mutations ---- */

/* A copy to spoil, with room for one route more. */
static struct table copy_table(const struct table *table)
{
	struct table copy = *table;

	copy.routes = malloc((table->route_count + 1) * sizeof(*copy.routes));
	copy.pieces = malloc((table->piece_count * 2 + 1) * sizeof(*copy.pieces));
	assert_true(copy.routes && copy.pieces);
	memcpy(copy.routes, table->routes, table->route_count * sizeof(*copy.routes));
	memcpy(copy.pieces, table->pieces, table->piece_count * sizeof(*copy.pieces));
	return copy;
}

static void renumber(struct table *table)
{
	uint64_t next = 0;

	for (size_t r = 0; r < table->route_count; r++) {
		table->routes[r].piece_first = next;
		next += table->routes[r].piece_count;
	}
}

static void remove_pieces(struct table *table, uint64_t first, uint64_t count)
{
	memmove(table->pieces + first, table->pieces + first + count,
		(table->piece_count - first - count) * sizeof(*table->pieces));
	table->piece_count -= count;
}

static bool drop_route(struct table *table, struct dice *dice)
{
	size_t r = dice_below(dice, table->route_count);

	remove_pieces(table, table->routes[r].piece_first, table->routes[r].piece_count);
	memmove(table->routes + r, table->routes + r + 1,
		(table->route_count - r - 1) * sizeof(*table->routes));
	table->route_count--;
	renumber(table);
	return true;
}

static bool drop_piece(struct table *table, struct dice *dice)
{
	struct route *route = &table->routes[dice_below(dice, table->route_count)];

	if (route->piece_count < 2)
		return false;
	uint64_t p = route->piece_first + dice_below(dice, route->piece_count);

	route->bytes -= table->pieces[p].bytes;
	route->piece_count--;
	remove_pieces(table, p, 1);
	renumber(table);
	return true;
}

static bool double_route(struct table *table, struct dice *dice)
{
	size_t r = dice_below(dice, table->route_count);
	uint64_t first = table->routes[r].piece_first, count = table->routes[r].piece_count;

	memmove(table->pieces + first + count, table->pieces + first,
		(table->piece_count - first) * sizeof(*table->pieces));
	table->piece_count += count;
	memmove(table->routes + r + 1, table->routes + r,
		(table->route_count - r) * sizeof(*table->routes));
	table->route_count++;
	renumber(table);
	return true;
}

static struct route_piece *any_piece(struct table *table, struct dice *dice)
{
	return &table->pieces[dice_below(dice, table->piece_count)];
}

static bool shift_byte(struct table *table, struct dice *dice)
{
	any_piece(table, dice)->offset += dice_below(dice, 2) ? 1 : UINT64_MAX;
	return true;
}

static bool give_to_a_non_holder(struct table *table, struct dice *dice)
{
	const struct problem *problem = table->problem;
	struct route *route = &table->routes[dice_below(dice, table->route_count)];
	uint32_t trainer = (uint32_t)dice_below(dice, problem->trainer_count);
	const struct problem_holding *holding =
		&problem->holdings[problem->trainer_holding[trainer]];

	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct box *src = &table->pieces[route->piece_first + p].src;
		bool held = false;

		for (uint32_t h = holding->held_of[route->tensor];
		     h < holding->held_of[route->tensor + 1]; h++)
			held = held || (holding->held[h].box.lo[0] <= src->lo[0] &&
					holding->held[h].box.hi[0] >= src->hi[0]);
		if (!held) {
			route->trainer = trainer;
			return true;
		}
	}
	return false;
}

static bool give_beyond_all_ranks(struct table *table, struct dice *dice)
{
	struct route *route = &table->routes[dice_below(dice, table->route_count)];

	if (dice_below(dice, 2))
		route->trainer = table->problem->trainer_count;
	else
		route->inference = table->problem->inference_count;
	return true;
}

static bool move_box(struct table *table, struct dice *dice)
{
	struct box *src = &any_piece(table, dice)->src;
	uint64_t d = dice_below(dice, src->dims), by = dice_below(dice, 2) ? 1 : UINT64_MAX;

	src->lo[d] += by;
	src->hi[d] += by;
	return true;
}

static bool stretch_box(struct table *table, struct dice *dice)
{
	struct box *src = &any_piece(table, dice)->src;

	src->hi[dice_below(dice, src->dims)] += dice_below(dice, 2) ? 1 : UINT64_MAX;
	return true;
}

static bool cut_a_row(struct table *table, struct dice *dice)
{
	struct route *route = &table->routes[dice_below(dice, table->route_count)];
	struct route_piece *piece =
		&table->pieces[route->piece_first + dice_below(dice, route->piece_count)];
	uint64_t rows = piece->src.hi[0] - piece->src.lo[0], row_bytes = piece->bytes / rows;

	if (rows < 2)
		return false;
	piece->src.hi[0]--;
	piece->bytes -= row_bytes;
	route->bytes -= row_bytes;
	return true;
}

static bool other_tensor(struct table *table, struct dice *dice)
{
	struct route *route = &table->routes[dice_below(dice, table->route_count)];
	uint32_t tensor = (uint32_t)dice_below(dice, table->problem->tensor_count + 1);

	if (tensor == route->tensor)
		return false;
	route->tensor = tensor;
	return true;
}

static bool other_rank(struct table *table, struct dice *dice)
{
	struct route *route = &table->routes[dice_below(dice, table->route_count)];
	uint32_t rank = (uint32_t)dice_below(dice, table->problem->inference_count);

	if (rank == route->inference)
		return false;
	route->inference = rank;
	return true;
}

static bool other_param(struct table *table, struct dice *dice)
{
	struct route_piece *piece = any_piece(table, dice);

	piece->param += dice_below(dice, 2) ? 1 : UINT32_MAX;
	return true;
}

static bool other_bytes(struct table *table, struct dice *dice)
{
	struct route *route = &table->routes[dice_below(dice, table->route_count)];
	uint64_t by = dice_below(dice, 2) ? 1 : UINT64_MAX;

	if (dice_below(dice, 2))
		table->pieces[route->piece_first].bytes += by;
	route->bytes += by;
	return true;
}

static bool other_path(struct table *table, struct dice *dice)
{
	struct route_piece *piece = any_piece(table, dice);

	piece->path = (enum route_path)((piece->path + 1 + dice_below(dice, PATH_COUNT)) %
					(PATH_COUNT + 1));
	return true;
}

static bool swap_targets(struct table *table, struct dice *dice)
{
	struct route *route = &table->routes[dice_below(dice, table->route_count)];
	struct route_piece *a, *b;

	if (route->piece_count < 2)
		return false;
	a = &table->pieces[route->piece_first];
	b = a + 1;
	if (box_equal(&a->src, &b->src)) /* the same bytes to both: no change */
		return false;
	struct route_piece kept = *a;

	a->param = b->param;
	a->offset = b->offset;
	b->param = kept.param;
	b->offset = kept.offset;
	return true;
}

static bool swap_routes(struct table *table, struct dice *dice)
{
	if (table->route_count < 2)
		return false;
	size_t r = dice_below(dice, table->route_count - 1);
	struct route kept = table->routes[r];

	table->routes[r] = table->routes[r + 1];
	table->routes[r + 1] = kept;
	return true;
}

static bool stray_piece(struct table *table, struct dice *dice)
{
	(void)dice;
	table->pieces[table->piece_count] = table->pieces[0];
	table->piece_count++;
	return true;
}

static bool empty_piece(struct table *table, struct dice *dice)
{
	struct route *route = &table->routes[dice_below(dice, table->route_count)];
	struct route_piece *piece = &table->pieces[route->piece_first];

	route->bytes -= piece->bytes;
	piece->bytes = 0;
	return true;
}

static bool wild_dims(struct table *table, struct dice *dice)
{
	struct box *src = &any_piece(table, dice)->src;

	src->dims = dice_below(dice, 2) ? src->dims + 1 : (uint32_t)dice_next(dice) | 8;
	return true;
}

static const struct mutation {
	const char *name;
	bool (*spoil)(struct table *table, struct dice *dice);
} mutations[] = {
#define MUTATION(name)      \
	{                   \
#name, name \
	}
	MUTATION(drop_route),	MUTATION(drop_piece),		MUTATION(double_route),
	MUTATION(shift_byte),	MUTATION(give_to_a_non_holder), MUTATION(give_beyond_all_ranks),
	MUTATION(move_box),	MUTATION(stretch_box),		MUTATION(cut_a_row),
	MUTATION(other_tensor), MUTATION(other_rank),		MUTATION(other_param),
	MUTATION(other_bytes),	MUTATION(other_path),		MUTATION(swap_targets),
	MUTATION(swap_routes),	MUTATION(stray_piece),		MUTATION(empty_piece),
	MUTATION(wild_dims),
};
#define MUTATIONS (sizeof(mutations) / sizeof(mutations[0]))

static void test_proof__misses_no_random_mutation(void **state)
{
	struct dice dice = dice_seeded("proof");
	size_t done[MUTATIONS] = {0}, total = 0;

	(void)state;
	for (int round = 0; round < 700; round++) {
		static struct job job;
		struct error error = {0};
		struct table *table;

		job_random(&job, &dice);
		table = job_plan(&job, round % 2 ? "greedy" : "round-robin");
		assert_true(table->route_count > 0);
		for (size_t m = 0; m < MUTATIONS; m++) {
			struct table spoilt = copy_table(table);

			if (mutations[m].spoil(&spoilt, &dice)) {
				int rc = table_prove(&spoilt, &error);

				if (rc != -ERROR_UNPROVED)
					fail_msg("round %d: %s was not refused", round,
						 mutations[m].name);
				done[m]++;
				total++;
			}
			free(spoilt.routes);
			free(spoilt.pieces);
		}
		table_free(&table);
		job_fini(&job);
	}
	for (size_t m = 0; m < MUTATIONS; m++)
		if (done[m] < 30)
			fail_msg("%s happened only %zu times", mutations[m].name, done[m]);
	assert_true(total >= 10000);
}

/* ---- messages ---- */

/* Two trainers with all of w [4,2] and only trainer 0 with v; one rank; p = w, q = v. */
static void two_tensors(struct job *job)
{
	job_init(job, 2, 1);
	job_hold(job, 0, "w", 0, 4, 2, 0, 4);
	job_hold(job, 1, "w", 0, 4, 2, 0, 4);
	job_hold(job, 0, "v", 1, 4, 2, 0, 4);
	job_want(job, 0, "p", "w", 4, 2, 0, 4, 0, 2);
	job_want(job, 0, "q", "v", 4, 2, 0, 4, 0, 2);
	job_build(job);
}

static void assert_refused(void (*spoil)(struct table *), const char *message)
{
	static struct job job;
	struct error error = {0};
	struct table *table, spoilt;

	two_tensors(&job);
	table = job_plan(&job, "greedy");
	spoilt = copy_table(table);
	spoil(&spoilt);
	assert_int_equal(table_prove(&spoilt, &error), -ERROR_UNPROVED);
	if (!strstr(error.text, message))
		fail_msg("'%s' is not in '%s'", message, error.text);
	free(spoilt.routes);
	free(spoilt.pieces);
	table_free(&table);
	job_fini(&job);
}

static void spoil_drop(struct table *table)
{
	table->route_count = table->piece_count = 1;
}

static void spoil_double(struct table *table)
{
	table->routes[2] = table->routes[1];
	table->routes[2].piece_first = 2;
	table->pieces[2] = table->pieces[1];
	table->route_count = table->piece_count = 3;
}

static void spoil_shift(struct table *table)
{
	table->pieces[1].offset = 1;
	table->pieces[1].bytes--;
	table->routes[1].bytes--;
}

static void spoil_holder(struct table *table)
{
	table->routes[1].trainer = 1;
}

static void spoil_box(struct table *table)
{
	table->pieces[0].src.hi[0] = 3;
}

static void spoil_tensor(struct table *table)
{
	table->routes[1].tensor = 0;
	table->pieces[1].src.lo[0] = 0;
}

static void spoil_end(struct table *table)
{
	table->pieces[0].bytes = 40;
	table->routes[0].bytes = 40;
}

static void test_proof__names_the_first_wrong_byte(void **state)
{
	(void)state;
	assert_refused(spoil_drop, "byte 0 of parameter 'q' on inference 0 is written by no "
				   "trainer: it belongs to tensor 'v'");
	assert_refused(spoil_double, "byte 0 of parameter 'q' on inference 0, written from tensor "
				     "'v' by trainer 0 (route 2): it is written twice");
	assert_refused(spoil_shift, "byte 0 of parameter 'q' on inference 0 is written by no");
	assert_refused(spoil_holder, "byte 0 of parameter 'q' on inference 0, written from tensor "
				     "'v' by trainer 1 (route 1): the trainer does not hold "
				     "[0..4, 0..2] of it");
	assert_refused(spoil_box, "byte 0 of parameter 'p' on inference 0, written from tensor 'w' "
				  "by trainer 0 (route 0): it is sent as 32 bytes of box "
				  "[0..3, 0..2], where up to 32 bytes of box [0..4, 0..2] belong");
	assert_refused(spoil_tensor, "byte 0 of parameter 'q' on inference 0, written from tensor "
				     "'w' by trainer 0 (route 1): it comes from tensor 'v'");
	assert_refused(spoil_end, "writes bytes 0 + 40 of parameter 'p', which has 32");
}

static void test_proof__refuses_a_byte_that_has_no_source(void **state)
{
	static struct job job;
	struct error error = {0};
	struct table *table, spoilt;
	uint64_t shape[1] = {4}, from[1] = {2};

	(void)state;
	/* parameter p: two elements of w, two of padding; the table writes the padding too */
	job_init(&job, 1, 1);
	int64_t held = holding_add_tensor(&job.holdings[0], "w", DTYPE_F32, 1, from, 0, NULL);
	struct box box = box_whole(1, from);

	assert_int_equal(holding_add(&job.holdings[0], (uint32_t)held, &box, NULL), 0);
	layout_add_tensor(&job.layouts[0], "w", DTYPE_F32, 1, from, NULL);
	layout_add_param(&job.layouts[0], "p", DTYPE_F32, 1, shape, NULL);
	struct piece piece = {.src = box, .bytes = 8};
	struct fill fill = {0, 8, 8};

	assert_int_equal(layout_add_piece(&job.layouts[0], &piece, NULL), 0);
	assert_int_equal(layout_add_fill(&job.layouts[0], &fill, NULL), 0);
	job_build(&job);
	table = job_plan(&job, "greedy");
	spoilt = copy_table(table);
	spoilt.pieces[1] = spoilt.pieces[0];
	spoilt.pieces[1].offset = 8;
	spoilt.routes[0].piece_count = 2;
	spoilt.routes[0].bytes = 16;
	spoilt.piece_count = 2;
	assert_int_equal(table_prove(&spoilt, &error), -ERROR_UNPROVED);
	assert_non_null(strstr(error.text, "byte 8 of parameter 'p'"));
	assert_non_null(strstr(error.text, "no tensor belongs there"));
	free(spoilt.routes);
	free(spoilt.pieces);
	table_free(&table);
	job_fini(&job);
}

static void test_proof__survives_every_failed_allocation(void **state)
{
	static struct job job;
	struct error error = {0};
	struct table *table;
	int rc = -1;

	(void)state;
	two_tensors(&job);
	table = job_plan(&job, "greedy");
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = table_prove(table, &error);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
		assert_true(k < 100);
	}
	table_free(&table);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_proof__misses_no_random_mutation),
		cmocka_unit_test(test_proof__names_the_first_wrong_byte),
		cmocka_unit_test(test_proof__refuses_a_byte_that_has_no_source),
		cmocka_unit_test(test_proof__survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
