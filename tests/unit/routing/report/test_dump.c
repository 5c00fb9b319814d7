/* SPDX-License-Identifier: Apache-2.0
 *
 * WEFT_GOLDEN_WRITE=1 rewrites tests/unit/golden/routing_tiny.json; look at the difference.
 */
#include "tests/unit/routing/routing_job.h"
#include "tests/unit/routing/job_dump.h"

#include "base/file.h"
#include "routing/report/dump_read.h"
#include <unistd.h>

struct text_file {
	char *data;
	size_t bytes;
};

static struct text_file dump_text(const struct table *table, enum dump_part part)
{
	struct text_file text = {0};
	FILE *stream = open_memstream(&text.data, &text.bytes);
	struct error error = {0};

	assert_non_null(stream);
	if (job_dump_write(stream, table, part, &error))
		fail_msg("%s", error.text);
	fclose(stream);
	return text;
}

/* Two stages, two engines of two, a fused parameter, a cut of columns, a fill, a tensor that
 * nobody wants, one rank that is not mapped: every key of the schema says something. */
static void tiny_job(struct job *job)
{
	static uint32_t stages[] = {0, 0, 1};

	job_init(job, 3, 4);
	job->ranks_per_engine = 2;
	job->mapped[3] = false;
	for (uint32_t t = 0; t < 2; t++) {
		job_hold(job, t, "q \"quoted\"", 0, 4, 2, 0, 4);
		job_hold(job, t, "unwanted", 5, 1, 1, 0, 1);
	}
	job_hold(job, 2, "o", 1, 4, 4, 0, 4);
	for (uint32_t i = 0; i < 4; i++) {
		struct layout *layout = &job->layouts[i];
		uint64_t r = i % 2, shape[2] = {6, 2}, q[2] = {4, 2};
		int64_t tensor = layout_add_tensor(layout, "q \"quoted\"", DTYPE_F32, 2, q, NULL);
		int64_t param = layout_add_param(layout, "fused", DTYPE_F32, 2, shape, NULL);
		struct piece piece = {.tensor = (uint32_t)tensor,
				      .param = (uint32_t)param,
				      .src = {.dims = 2, .lo = {2 * r, 0}, .hi = {2 * r + 2, 2}},
				      .bytes = 16};
		struct piece half = {.tensor = (uint32_t)tensor,
				     .param = (uint32_t)param,
				     .src = {.dims = 2, .lo = {0, r}, .hi = {4, r + 1}},
				     .offset = 16,
				     .bytes = 16};
		struct fill fill = {(uint32_t)param, 32, 16};

		assert_int_equal(layout_add_piece(layout, &piece, NULL), 0);
		assert_int_equal(layout_add_piece(layout, &half, NULL), 0);
		assert_int_equal(layout_add_fill(layout, &fill, NULL), 0);
		job_want(job, i, "o_proj", "o", 4, 4, 0, 4, 2 * r, 2 * r + 2);
	}
	job_declare(job);
	job->input.trainer_stages = stages;
	job->input.train = "world=3";
	job->input.infer = "engines=2,tp=2";
	assert_int_equal(problem_build(&job->problem, &job->input, NULL), 0);
}

static void golden_path(char *out, size_t bytes)
{
	const char *root = getenv("WEFT_SOURCE_DIR");

	snprintf(out, bytes, "%s/tests/unit/golden/routing_tiny.json", root ? root : ".");
}

static void test_dump__equals_the_golden_file(void **state)
{
	static struct job job;
	struct error error = {0};
	struct file_map golden;
	struct text_file text;
	struct table *table;
	char path[4096];

	(void)state;
	golden_path(path, sizeof(path));
	tiny_job(&job);
	table = job_plan(&job, "greedy");
	text = dump_text(table, DUMP_WHOLE);
	if (getenv("WEFT_GOLDEN_WRITE"))
		assert_int_equal(job_dump_save(path, table, &error), 0);
	if (file_map_open(&golden, path, &error))
		fail_msg("%s", error.text);
	assert_int_equal(golden.bytes, text.bytes);
	assert_memory_equal(golden.data, text.data, text.bytes);
	file_map_close(&golden);
	free(text.data);
	table_free(&table);
	job_fini(&job);
}

static void test_dump__is_read_back_as_it_was_and_verified(void **state)
{
	struct dice dice = dice_seeded("dump");

	(void)state;
	for (int round = 0; round < 300; round++) {
		static struct job job;
		struct error error = {0};
		struct table *table, *again;
		struct text_file text, second;
		struct dump *dump;

		job_random(&job, &dice);
		table = job_plan(&job, round % 2 ? "greedy" : "round-robin");
		text = dump_text(table, DUMP_WHOLE);
		if (dump_parse(&dump, text.data, text.bytes, "dump", &error))
			fail_msg("%s", error.text);
		if (dump_verify(dump, job.problem, &error))
			fail_msg("round %d: %s", round, error.text);
		assert_int_equal(dump_table(&again, dump, job.problem, NULL), 0);
		assert_true(digest_equal(again->digest, table->digest));
		table_free(&again);
		table_free(&table);
		dump_free(&dump);
		/* labels and facts went into the problem: planned again, it is the same text */
		table = job_plan(&job, round % 2 ? "greedy" : "round-robin");
		second = dump_text(table, DUMP_SUMMARY_ONLY);
		assert_int_equal(dump_parse(&dump, second.data, second.bytes, "dump", NULL), 0);
		assert_false(dump->has_routes);
		assert_int_equal(dump_table(&again, dump, job.problem, &error), -ERROR_FILE);
		assert_non_null(strstr(error.text, "--summary"));
		dump_free(&dump);
		free(text.data);
		free(second.data);
		table_free(&table);
		job_fini(&job);
	}
}

/* ---- wrong dumps ---- */

static char *replaced(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);

	if (!at)
		fail_msg("'%s' is not in the dump", from);
	return memory_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void test_dump__every_malformed_dump_is_refused_by_name(void **state)
{
	static const struct {
		const char *from, *to, *message;
	} cases[] = {
		{"weft.routing/1", "weft.routing/2", "this weft reads weft.routing/1"},
		{"\"schema\"", "\"skema\"", "key \"schema\" is missing"},
		{"\"policy\":\"greedy\"", "\"policy\":7", "\"policy\" is not a string"},
		{"\"order\":\"rotated\"", "\"order\":[]", "\"order\" is not a string"},
		{",\"train\"", ",\"extra\":1,\"train\"", "key \"extra\" is unknown"},
		{",\"train\":\"world=3\"", "", "key \"train\" is missing"},
		{",\"train\"", ",\"model\":\"x\",\"train\"", "duplicate"},
		{"\"rank\":1", "\"rank\":2", "trainers[1]: \"rank\" is 2"},
		{"\"stage\":1", "\"stage\":-1", "trainers[2]: \"stage\" is -1"},
		{"\"engine\":1", "\"engine\":\"1\"", "inference[2]: \"engine\" is not a whole"},
		{"\"trainer\":0", "\"trainer\":3", "routes[0]: \"trainer\" is 3; 0 to 2"},
		{"\"inference\":0", "\"inference\":4", "routes[0]: \"inference\" is 4; 0 to 3"},
		{"\"how\":\"mapped\"", "\"how\":\"magic\"", "\"how\" is \"magic\""},
		{"\"bytes\":32", "\"bytes\":-1", "routes[0]: \"bytes\" is -1"},
		{"\"bytes\":32", "\"bytes\":4611686018427387905",
		 "\"bytes\" is 4611686018427387905"},
		{"\"bytes\":32", "\"bytes\":99999999999999999999", "too big"},
		{"\"bytes\":32", "\"bytes\":32.5", "\"bytes\" is not a whole number"},
		{"[[0,4],[0,1]]", "[[4,4],[0,1]]", "routes[0].pieces[1]: \"src\"[0] is not [low"},
		{"[[0,4],[0,1]]", "[[0,4,9],[0,1]]", "\"src\"[0] is not [low, high]"},
		{"[[0,4],[0,1]]", "[]", "\"src\" has 0 dimensions"},
		{"[[0,4],[0,1]]", "[[0,1],[0,1],[0,1],[0,1],[0,1]]", "\"src\" has 5 dimensions"},
		{"\"param\":\"fused\"", "\"param\":null", "\"param\" is not a string"},
		{"\"trainer_bytes\":[", "\"trainer_bytes\":[1,",
		 "\"trainer_bytes\" has 4 items for 3"},
		{"\"sessions\":[", "\"sessions\":[9,", "\"sessions\" has 4 items"},
		{"\"gap\":", "\"gap\":null,\"pag\":", "summary: key \"pag\" is unknown"},
		{"\"direct\":", "\"tcerid\":", "summary: key \"direct\" is missing"},
		{"\"unwanted\":[", "\"unwanted\":[4,", "\"unwanted\"[0] is not a string"},
		{"\"round_robin\":{", "\"round_robin\":{\"x\":1,",
		 "summary.round_robin: key \"x\""},
		{"\"digest\":\"", "\"digest\":\"0", "\"digest\" is not 32"},
	};
	static struct job job;
	struct text_file text;
	struct table *table;

	(void)state;
	tiny_job(&job);
	table = job_plan(&job, "greedy");
	text = dump_text(table, DUMP_WHOLE);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *wrong = replaced(text.data, cases[i].from, cases[i].to);
		struct error error = {0};
		struct dump *dump;
		int rc = dump_parse(&dump, wrong, strlen(wrong), "job.json", &error);

		if (rc != -ERROR_FILE || !strstr(error.text, cases[i].message) ||
		    strncmp(error.text, "job.json: ", 10) != 0)
			fail_msg("case %zu (%s): %d, '%s'", i, cases[i].to, rc, error.text);
		assert_null(dump);
		memory_free(wrong);
	}
	free(text.data);
	table_free(&table);
	job_fini(&job);
}

static void test_dump__verify_names_what_does_not_fit(void **state)
{
	static const struct {
		const char *from, *to, *message;
	} cases[] = {
		{"\"trainer\":0", "\"trainer\":2", "the trainer does not hold"},
		{"\"offset\":16", "\"offset\":17", "parameter 'fused'"},
		{"\"param\":\"fused\"", "\"param\":\"confused\"",
		 "routes[0].pieces[0]: inference 0 has no parameter 'confused'"},
		{"\"tensor\":\"o\"", "\"tensor\":\"zero\"", "has no tensor 'zero'"},
		{"\"train\":\"world=3\"", "\"train\":\"world=4\"", "the dump is of 'world=4'"},
		{"\"rank\":2,\"stage\":1", "\"rank\":2,\"stage\":0", "trainer 2 in stage 0"},
		{"\"engine\":1,\"engine_rank\":0", "\"engine\":1,\"engine_rank\":1",
		 "inference 2 as rank 1"},
		{"\"model\":\"tiny\"", "\"model\":\"tinier\"", "the dump says digest"},
		{"\"policy\":\"greedy\"", "\"policy\":\"greedier\"", "the dump says digest"},
		{"\"order\":\"rotated\"", "\"order\":\"rotten\"", "rotten is not known; these are"},
		{"\"makespan_bytes\":", "\"makespan_bytes\":1", "summary.makespan_bytes says 1"},
		{"\"trainer_bytes\":[", "\"trainer_bytes\":[1", "summary.trainer_bytes[0] says 1"},
		{"\"gap\":", "\"gap\":1", "summary.gap says 1"},
		{"\"unwanted\":[\"unwanted\"]", "\"unwanted\":[]", "summary.unwanted has 0 names"},
		{"\"filled\":[\"fused\"]", "\"filled\":[\"used\"]",
		 "summary.filled[0] says 'used'"},
		{"\"round_robin\":{\"routes\":", "\"round_robin\":{\"routes\":1",
		 "summary.round_robin.routes says 1"},
	};
	static struct job job;
	struct text_file text;
	struct table *table;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error error = {0};
		struct dump *dump;
		char *wrong;
		int rc;

		tiny_job(&job);
		table = job_plan(&job, "greedy");
		text = dump_text(table, DUMP_WHOLE);
		wrong = replaced(text.data, cases[i].from, cases[i].to);
		if (dump_parse(&dump, wrong, strlen(wrong), "job.json", &error))
			fail_msg("case %zu: %s", i, error.text);
		rc = dump_verify(dump, job.problem, &error);
		if (rc != -ERROR_UNPROVED || !strstr(error.text, cases[i].message))
			fail_msg("case %zu (%s): %d, '%s'", i, cases[i].to, rc, error.text);
		dump_free(&dump);
		memory_free(wrong);
		free(text.data);
		table_free(&table);
		job_fini(&job);
	}
}

/* Whatever the text, reading ends in a dump or in an error with a message. */
static bool read_any(const char *text, size_t bytes)
{
	struct error error = {0};
	struct dump *dump;
	int rc = dump_parse(&dump, text, bytes, "any", &error);

	assert_true(rc == 0 ? dump != NULL : dump == NULL && error.text[0] != '\0');
	dump_free(&dump);
	return rc == 0;
}

static void test_dump__truncated_flipped_and_oversized_texts_end_in_errors(void **state)
{
	static struct job job;
	struct text_file text;
	struct table *table;
	struct error error = {0};
	struct dump *dump;

	(void)state;
	tiny_job(&job);
	table = job_plan(&job, "greedy");
	text = dump_text(table, DUMP_WHOLE);
	assert_true(read_any(text.data, text.bytes));
	for (size_t n = 0; n + 2 < text.bytes; n++) /* the last two are "}\n" */
		assert_false(read_any(text.data, n));
	for (size_t n = 0; n < text.bytes; n++) {
		text.data[n] = (char)(text.data[n] ^ 1 << n % 8);
		read_any(text.data, text.bytes);
		text.data[n] = (char)(text.data[n] ^ 1 << n % 8);
	}
	assert_int_equal(dump_parse(&dump, text.data, (size_t)DUMP_BYTES_MAX + 1, "any", &error),
			 -ERROR_LIMIT);
	assert_false(read_any("", 0));
	free(text.data);
	char *deep = malloc(100000);

	memset(deep, '[', 100000);
	assert_false(read_any(deep, 100000));
	free(deep);
	table_free(&table);
	job_fini(&job);
}

static void test_dump__is_written_whole_or_not_at_all(void **state)
{
	static struct job job;
	struct error error = {0};
	struct table *table;
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "routing-%d.json", (int)getpid());
	tiny_job(&job);
	table = job_plan(&job, "greedy");
	memory_fail_at(5);
	assert_int_equal(job_dump_save(path, table, &error), -ERROR_MEMORY);
	memory_fail_at(0);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(job_dump_save("no/such/folder/x.json", table, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "no/such/folder"));
	assert_int_equal(job_dump_save(path, table, &error), 0);
	assert_int_equal(access(path, F_OK), 0);
	unlink(path);
	table_free(&table);
	job_fini(&job);
}

static int write_read_verify(struct job *job, const struct table *table, FILE *sink,
			     const struct text_file *text, struct error *error)
{
	struct dump *dump = NULL;
	int rc = job_dump_write(sink, table, DUMP_WHOLE, error);

	if (!rc)
		rc = dump_parse(&dump, text->data, text->bytes, "dump", error);
	if (!rc)
		rc = dump_verify(dump, job->problem, error);
	dump_free(&dump);
	return rc;
}

static void test_dump__without_an_order_is_rotated(void **state)
{
	static struct job job;
	struct error error = {0};
	struct text_file text;
	struct table *table;
	struct dump *dump;
	char *older;

	(void)state;
	tiny_job(&job);
	table = job_plan(&job, "greedy");
	text = dump_text(table, DUMP_WHOLE);
	older = replaced(text.data, ",\"order\":\"rotated\"", "");
	assert_int_equal(dump_parse(&dump, older, strlen(older), "job.json", &error), 0);
	assert_string_equal(dump->labels.order, "rotated");
	assert_int_equal(dump_verify(dump, job.problem, &error), 0);
	dump_free(&dump);
	memory_free(older);
	free(text.data);
	table_free(&table);
	job_fini(&job);
}

static void test_dump__survives_every_failed_allocation(void **state)
{
	static struct job job;
	struct error error = {0};
	struct text_file text;
	struct table *table;
	FILE *sink = fopen("/dev/null", "w");
	int rc = -1;

	(void)state;
	assert_non_null(sink);
	tiny_job(&job);
	table = job_plan(&job, "greedy");
	text = dump_text(table, DUMP_WHOLE);
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = write_read_verify(&job, table, sink, &text, &error);
		memory_fail_at(0);
		if (rc != 0 && rc != -ERROR_MEMORY)
			fail_msg("allocation %" PRIu64 ": %s", k, error.text);
		assert_true(k < 10000);
	}
	fclose(sink);
	free(text.data);
	table_free(&table);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dump__equals_the_golden_file),
		cmocka_unit_test(test_dump__is_read_back_as_it_was_and_verified),
		cmocka_unit_test(test_dump__every_malformed_dump_is_refused_by_name),
		cmocka_unit_test(test_dump__verify_names_what_does_not_fit),
		cmocka_unit_test(test_dump__truncated_flipped_and_oversized_texts_end_in_errors),
		cmocka_unit_test(test_dump__is_written_whole_or_not_at_all),
		cmocka_unit_test(test_dump__without_an_order_is_rotated),
		cmocka_unit_test(test_dump__survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
