/* SPDX-License-Identifier: Apache-2.0
 *
 * Random jobs whose parameters are copied, converted, quantised and cut between blocks, from
 * trainers whose shards end anywhere: what can be planned is proved, what cannot is refused by
 * name, and no other way to make a piece passes the proof.
 */
#include "tests/unit/worker/transformed_job.h"
#include "tests/unit/routing/job_dump.h"

#include "routing/report/diff.h"
#include "routing/report/dump_read.h"
#include "routing/report/export.h"
#include "routing/plan/path.h"

/* ---- the proof ---- */

static void refused(const struct table *table, const char *what)
{
	struct error error = {0};

	if (table_prove(table, &error) != -ERROR_UNPROVED)
		fail_msg("%s was not refused", what);
}

/* Every other way to make a piece, known to the problem or not. */
static size_t spoil_transformed(const struct table *table, size_t p)
{
	const struct problem *problem = table->problem;
	struct problem spoilt = *problem;
	struct table copy = *table;
	uint32_t own = table->pieces[p].transformed;
	size_t done = 0, r = 0;

	while (r + 1 < table->route_count && table->routes[r + 1].piece_first <= p)
		r++;
	spoilt.transformed = malloc((problem->transformed_count + 1) * sizeof(*spoilt.transformed));
	copy.pieces = malloc(table->piece_count * sizeof(*copy.pieces));
	assert_true(spoilt.transformed && copy.pieces);
	memcpy(spoilt.transformed, problem->transformed,
	       problem->transformed_count * sizeof(*spoilt.transformed));
	memcpy(copy.pieces, table->pieces, table->piece_count * sizeof(*copy.pieces));
	copy.problem = &spoilt;
	spoilt.transformed_count++;
	struct problem_transformed *transformed = &spoilt.transformed[problem->transformed_count];

	for (int change = 0; change < 9; change++) {
		*transformed = problem->transformed[own];
		transformed->transform.part ^= change == 0;
		transformed->transform.from_rows += change == 1;
		transformed->transform.from_columns += change == 2;
		transformed->transform.to_rows += change == 3;
		transformed->transform.to_columns += change == 4;
		transformed->scales += change == 5;
		transformed->to = change == 6	? DTYPE_NONE
				  : change == 7 ? DTYPE_I64
						: transformed->to;
		if (change == 6 && own == 0)
			continue; /* nothing changed */
		if (change == 8 && own != 0)
			continue; /* the same content at another place is the same */
		if (change == 8)
			transformed->to = problem->tensors[table->routes[r].tensor].dtype;
		copy.pieces[p].transformed = (uint32_t)problem->transformed_count;
		if (own == 0 && change < 6)
			transformed->to =
				DTYPE_F16; /* a copy of no blocks is a copy, whatever is beside */
		refused(&copy, "a spoilt way to make");
		done++;
	}
	for (uint32_t other = 0; other < problem->transformed_count; other++) {
		const struct problem_transformed *a = &problem->transformed[other],
						 *b = &problem->transformed[own];

		if (transform_equal(&a->transform, &b->transform) && a->scales == b->scales &&
		    a->to == b->to)
			continue;
		copy.pieces[p].transformed = other;
		refused(&copy, "another piece's way to make");
		done++;
	}
	copy.pieces[p].transformed = (uint32_t)spoilt.transformed_count;
	refused(&copy, "a way beyond all");
	free(spoilt.transformed);
	free(copy.pieces);
	return done;
}

/* Wherever a piece is made, it is packed. */
static void check_path(const struct table *table)
{
	for (size_t p = 0; p < table->piece_count; p++)
		assert_true(!table->pieces[p].transformed || table->pieces[p].path != PATH_DIRECT);
}

static void check_dump(struct job *job, const struct table *table)
{
	struct error error = {0};
	struct dump *dump, *read;
	char *text = NULL;
	size_t bytes = 0;
	FILE *stream = open_memstream(&text, &bytes);

	assert_int_equal(job_dump_write(stream, table, DUMP_WHOLE, &error), 0);
	fclose(stream);
	if (dump_parse(&read, text, bytes, "made", &error) || dump_of(&dump, table, &error) ||
	    dump_verify(read, job->problem, &error) || dump_verify(dump, job->problem, &error))
		fail_msg("%s\n%s", error.text, text);
	for (size_t p = 0; p < read->piece_count; p++) {
		if (!read->pieces[p].transformed)
			continue;
		struct problem_transformed *transformed =
						   &read->transformed[read->pieces[p].transformed],
					   kept = *transformed;

		transformed->transform.to_rows += 1;
		assert_int_equal(dump_verify(read, job->problem, &error), -ERROR_UNPROVED);
		*transformed = kept;
	}
	dump_free(&dump);
	dump_free(&read);
	free(text);
}

static int whole_way(struct job *job, FILE *sink, const char *text, size_t bytes,
		     struct error *error)
{
	struct table *table = NULL;
	struct dump *dump = NULL, *read = NULL;
	struct diff diff = {0};
	int rc = problem_build(&job->problem, &job->input, error);

	if (!rc)
		rc = table_plan(&table, job->problem, policy_find("balanced"), NULL, error);
	if (!rc)
		rc = job_dump_write(sink, table, DUMP_WHOLE, error);
	if (!rc)
		rc = dump_of(&dump, table, error);
	if (!rc)
		rc = dump_parse(&read, text, bytes, "made", error);
	if (!rc)
		rc = dump_verify(read, job->problem, error);
	if (!rc)
		rc = diff_of(&diff, dump, read, error);
	if (!rc)
		assert_true(diff.same);
	for (const char *const *form = (const char *const[]){"csv", "jsonl", NULL}; *form; form++)
		if (!rc)
			rc = export_find(*form)->write(sink, dump, error);
	diff_fini(&diff);
	dump_free(&dump);
	dump_free(&read);
	table_free(&table);
	problem_free(&job->problem);
	return rc;
}

static void test_made__survives_every_failed_allocation(void **state)
{
	struct dice dice = dice_seeded("made memory");
	FILE *sink = fopen("/dev/null", "w");
	uint64_t swept = 0;

	(void)state;
	assert_non_null(sink);
	for (int round = 0; round < 6; round++) {
		static struct job job;
		struct error error = {0};
		struct table *table;
		char *text = NULL;
		size_t bytes = 0, transformed;
		FILE *stream = open_memstream(&text, &bytes);
		int rc = -1;

		job_transformed(&job, &dice, round % 2 ? ALIGNED : GATHERED);
		table = job_plan(&job, "balanced");
		assert_int_equal(job_dump_write(stream, table, DUMP_WHOLE, &error), 0);
		fclose(stream);
		transformed = job.problem->transformed_count;
		table_free(&table);
		problem_free(&job.problem);
		for (uint64_t k = 1; rc; k++) {
			memory_fail_at(k);
			rc = whole_way(&job, sink, text, bytes, &error);
			memory_fail_at(0);
			if (rc != 0 && rc != -ERROR_MEMORY)
				fail_msg("allocation %" PRIu64 ": %s", k, error.text);
			assert_true(k < 10000);
			swept += transformed > 1;
		}
		free(text);
		job_fini(&job);
	}
	fclose(sink);
	assert_true(swept > 500);
}

static void test_made__is_planned_proved_and_never_mistaken(void **state)
{
	struct dice dice = dice_seeded("made");
	size_t planned[HOLDING_MODES] = {0}, unsourced[HOLDING_MODES] = {0}, spoilt = 0;
	size_t policies;
	const struct policy *policy = policy_list(&policies);

	(void)state;
	for (int round = 0; round < 2400; round++) {
		enum holding_mode mode = (enum holding_mode)(round % HOLDING_MODES);
		static struct job job;
		struct error error = {0};
		struct table *table;

		job_transformed(&job, &dice, mode);
		for (size_t i = 0; i < policies; i++) {
			int rc = table_plan(&table, job.problem, &policy[i], NULL, &error);

			if (rc == -ERROR_UNSOURCED && mode > ALIGNED) {
				assert_non_null(strstr(error.text, "use source=gathered"));
				unsourced[mode]++;
				break;
			}
			if (rc)
				fail_msg("round %d, %s: %s", round, policy[i].name, error.text);
			check_path(table);
			if (i == 0) {
				planned[mode]++;
				spoilt += spoil_transformed(table,
							    dice_below(&dice, table->piece_count));
				check_dump(&job, table);
			}
			table_free(&table);
		}
		job_fini(&job);
	}
	for (int mode = 0; mode < HOLDING_MODES; mode++)
		assert_true(planned[mode] >= 30);
	assert_true(unsourced[SHARDED] >= 10 && unsourced[ANYHOW] >= 10 && spoilt > 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made__is_planned_proved_and_never_mistaken),
		cmocka_unit_test(test_made__survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
