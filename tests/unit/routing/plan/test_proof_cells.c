/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables with cells, which take some columns of a row: one after the other is spoilt, and the proof has to see it.
 */
#include "tests/unit/routing/plan/boxes_job.h"

/* One row of 8: trainer 0 has columns 0..4, 1 has 4..8, 2 has 2..6. Four cells, a route and a piece each. */
static void four_cells(struct job *job)
{
	const struct random_tensor w = f32_tensor("w", 0, 1, 8);

	job_init(job, 3, 1);
	hold_part(job, 0, &w, 0, 1, 0, 4);
	hold_part(job, 1, &w, 0, 1, 4, 8);
	hold_part(job, 2, &w, 0, 1, 2, 6);
	want_rows(job, 0, "p", &w, 0, 1, 0, 8);
	job_build(job);
}

struct faulty {
	struct table table;
	struct route routes[8];
	struct route_piece pieces[8];
};

static void remove_route(struct faulty *f, size_t at)
{
	f->table.route_count--;
	f->table.piece_count--;
	for (size_t r = at; r < f->table.route_count; r++) {
		f->routes[r] = f->routes[r + 1];
		f->pieces[r] = f->pieces[r + 1];
		f->routes[r].piece_first = r;
	}
}

/* From that trainer, the columns of route `at` and those of the next one. */
static void join_routes(struct faulty *f, size_t at, uint32_t trainer)
{
	f->pieces[at].src.hi[1] = f->pieces[at + 1].src.hi[1];
	f->pieces[at].bytes += f->pieces[at + 1].bytes;
	f->routes[at].bytes = f->pieces[at].bytes;
	f->routes[at].trainer = trainer;
	remove_route(f, at + 1);
}

static void fault_none(struct faulty *f)
{
	join_routes(f, 1, 2); /* another table, as right */
}

static void fault_columns_up(struct faulty *f)
{
	f->pieces[1].src.lo[1]++;
	f->pieces[1].src.hi[1]++;
	f->routes[1].trainer = 2;
}

static void fault_columns_wider(struct faulty *f)
{
	f->pieces[2].src.hi[1]++;
}

static void fault_columns_and_bytes_wider(struct faulty *f)
{
	f->pieces[1].src.hi[1]++;
	f->pieces[1].bytes += 4;
	f->routes[1].bytes += 4;
	f->routes[1].trainer = 2;
}

static void fault_columns_beyond(struct faulty *f)
{
	f->pieces[3].src.lo[1]++;
	f->pieces[3].src.hi[1]++;
}

static void fault_offset_up(struct faulty *f)
{
	f->pieces[2].offset += 4;
}

static void fault_offset_down(struct faulty *f)
{
	f->pieces[2].offset -= 4;
}

static void fault_offsets_swapped(struct faulty *f)
{
	uint64_t kept = f->pieces[1].offset;

	f->pieces[1].offset = f->pieces[2].offset;
	f->pieces[2].offset = kept;
}

static void fault_part_held(struct faulty *f)
{
	join_routes(f, 0, 2);
}

static void fault_nothing_held(struct faulty *f)
{
	f->routes[3].trainer = 2;
}

static void fault_twice(struct faulty *f)
{
	for (size_t r = f->table.route_count++; r > 1; r--) {
		f->routes[r] = f->routes[r - 1];
		f->pieces[r] = f->pieces[r - 1];
		f->routes[r].piece_first = r;
	}
	f->table.piece_count++;
}

static void fault_missing_inside(struct faulty *f)
{
	remove_route(f, 1);
}

static void fault_missing_last(struct faulty *f)
{
	remove_route(f, 3);
}

static void fault_short(struct faulty *f)
{
	f->pieces[1].src.hi[1]--;
	f->pieces[1].bytes -= 4;
	f->routes[1].bytes -= 4;
}

static void test_proof__refuses_what_is_wrong_with_a_cell(void **state)
{
	static const struct {
		void (*spoil)(struct faulty *f);
		const char *message; /* NULL: it is right */
	} rows[] = {
		{fault_none, NULL},
		{fault_columns_up, "up to 24 bytes of box [0..1, 0..8] belong"},
		{fault_columns_wider, "byte 16 of parameter 'p' on inference 0"},
		{fault_columns_and_bytes_wider, "byte 16 of parameter 'p' on inference 0, written "
						"from tensor 'w' by trainer 1 (route 2): it is "
						"written twice"},
		{fault_columns_beyond, "reads [0..1, 7..9] of tensor 'w'"},
		{fault_offset_up,
		 "byte 16 of parameter 'p' on inference 0 is written by no trainer"},
		{fault_offset_down, "byte 12 of parameter 'p' on inference 0"},
		{fault_offsets_swapped, "byte 8 of parameter 'p' on inference 0"},
		{fault_part_held, "the trainer does not hold [0..1, 0..4] of it"},
		{fault_nothing_held, "the trainer does not hold [0..1, 6..8] of it"},
		{fault_twice, "it is written twice"},
		{fault_missing_inside,
		 "byte 8 of parameter 'p' on inference 0 is written by no trainer"},
		{fault_missing_last,
		 "byte 24 of parameter 'p' on inference 0 is written by no trainer"},
		{fault_short, "byte 12 of parameter 'p' on inference 0 is written by no trainer"},
	};
	struct table *table;
	static struct job job;

	(void)state;
	four_cells(&job);
	table = job_plan(&job, "first-holder");
	assert_int_equal(table->route_count, 4);
	assert_int_equal(table->piece_count, 4);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct faulty f = {.table = *table};
		struct error error = {0};

		memcpy(f.routes, table->routes, 4 * sizeof(f.routes[0]));
		memcpy(f.pieces, table->pieces, 4 * sizeof(f.pieces[0]));
		f.table.routes = f.routes;
		f.table.pieces = f.pieces;
		rows[i].spoil(&f);
		int rc = table_prove(&f.table, &error);

		if (rc != (rows[i].message ? -ERROR_UNPROVED : 0) ||
		    (rc && !strstr(error.text, rows[i].message)))
			fail_msg("fault %zu: %d, '%s'", i, rc, error.text);
	}
	table_free(&table);
	job_fini(&job);
}

/* Columns 0..4 of both rows are not the first half of what is wanted, which has 0..8 of row 0 there. */
static void test_proof__refuses_columns_of_two_rows_as_one_run(void **state)
{
	const struct random_tensor w = f32_tensor("w", 0, 2, 8);
	struct error error = {0};
	static struct job job;

	(void)state;
	job_init(&job, 2, 1);
	hold_part(&job, 0, &w, 0, 2, 0, 4);
	hold_part(&job, 1, &w, 0, 2, 4, 8);
	job_want(&job, 0, "p", "w", 2, 8, 0, 2, 0, 8);
	job_build(&job);
	struct faulty f = {
		.table = {.problem = job.problem,
			  .policy = "greedy",
			  .order = "rotated",
			  .route_count = 2,
			  .piece_count = 2},
		.routes = {{0, 0, 0, 1, 0, 32}, {0, 1, 0, 1, 1, 32}},
		.pieces = {{.src = box_of(0, 2, 0, 4), .bytes = 32},
			   {.src = box_of(0, 2, 4, 8), .offset = 32, .bytes = 32}},
	};

	f.table.routes = f.routes;
	f.table.pieces = f.pieces;
	assert_int_equal(table_prove(&f.table, &error), -ERROR_UNPROVED);
	assert_non_null(strstr(error.text, "byte 0 of parameter 'p' on inference 0"));
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_proof__refuses_what_is_wrong_with_a_cell),
		cmocka_unit_test(test_proof__refuses_columns_of_two_rows_as_one_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
