/* SPDX-License-Identifier: Apache-2.0
 *
 * Every form of a dump, and the difference of two, survive each failed allocation; a stream that
 * is full is seen by the caller.
 */
#include "tests/unit/routing/plan/boxes_job.h"

#include "routing/report/diff.h"
#include "routing/report/export.h"

/* One tensor cut into more pieces than a line keeps by itself, names that need quoting. */
static void make_job(struct job *job)
{
	job_init(job, 2, 2);
	for (uint32_t t = 0; t < 2; t++)
		job_hold(job, t, "a,\"b\"", 0, 40, 2, 0, 40);
	for (uint32_t i = 0; i < 2; i++)
		for (uint64_t row = 0; row < 40; row += 2) {
			char param[32];

			snprintf(param, sizeof(param), "p%u", (unsigned)row);
			job_want(job, i, param, "a,\"b\"", 40, 2, row, row + 1 + row / 20, 0, 2);
		}
	job_build(job);
}

static char *exported(const struct export_format *format, const struct dump *dump)
{
	struct error error = {0};
	char *data = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&data, &bytes);

	assert_non_null(stream);
	if (format->write(stream, dump, &error))
		fail_msg("%s: %s", format->name, error.text);
	fclose(stream);
	return data;
}

static void test_lines__merge_rows_and_quote_names(void **state)
{
	static struct job job;
	struct table *table;
	struct dump *dump;
	char *text;

	(void)state;
	make_job(&job);
	table = job_plan(&job, "greedy");
	assert_int_equal(dump_of(&dump, table, NULL), 0);
	text = exported(export_find("csv"), dump);
	assert_string_equal(strstr(text, "\n\"a,\"\"b\"\"\",0,0,0,"),
			    "\n\"a,\"\"b\"\"\",0,0,0,0,0,240,direct,20,0:1 2:3 4:5 6:7 8:9 10:11 "
			    "12:13 14:15 16:17 18:19 20:40,copy,0:2\n"
			    "\"a,\"\"b\"\"\",1,0,1,0,1,240,direct,20,0:1 2:3 4:5 6:7 8:9 10:11 "
			    "12:13 14:15 16:17 18:19 20:40,copy,0:2\n");
	free(text);
	text = exported(export_find("jsonl"), dump);
	assert_non_null(strstr(text, "{\"tensor\":\"a,\\\"b\\\"\",\"trainer\":0"));
	assert_non_null(
		strstr(text, "[18,19],[20,40]],\"make\":\"copy\",\"columns\":[[[0,2]]]}\n"));
	free(text);
	dump_free(&dump);
	table_free(&table);
	job_fini(&job);
}

/* w is [2, 4, 6]; its pieces have two ranges of columns, one of them twice. b has rows alone. */
static void test_lines__have_each_range_of_columns_once(void **state)
{
	const struct random_tensor w = {"w", DTYPE_F32, 3, 0, {2, 4, 6}},
				   b = {"b", DTYPE_F32, 1, 1, {8}};
	static const struct box boxes[] = {{3, {0, 0, 0}, {1, 4, 6}},
					   {3, {1, 0, 0}, {2, 2, 6}},
					   {3, {0, 0, 0}, {2, 4, 6}},
					   {1, {0}, {8}}};
	static struct job job;
	struct table *table;
	struct dump *dump;
	char *text;

	(void)state;
	job_init(&job, 1, 1);
	hold_rows(&job, 0, &w, 0, 2);
	hold_rows(&job, 0, &b, 0, 8);
	for (size_t i = 0; i < ARRAY_SIZE(boxes); i++) {
		const struct random_tensor *from = i < 3 ? &w : &b;
		struct piece piece = {.src = boxes[i], .bytes = box_elements(&boxes[i]) * 4};
		uint64_t elements = box_elements(&boxes[i]);
		char name[8];

		snprintf(name, sizeof(name), "p%zu", i);
		piece.tensor = (uint32_t)layout_add_tensor(&job.layouts[0], from->name, from->dtype,
							   from->dims, from->shape, NULL);
		piece.param = (uint32_t)layout_add_param(&job.layouts[0], name, DTYPE_F32, 1,
							 &elements, NULL);
		assert_int_equal(layout_add_piece(&job.layouts[0], &piece, NULL), 0);
	}
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_int_equal(dump_of(&dump, table, NULL), 0);
	text = exported(export_find("csv"), dump);
	assert_non_null(strstr(text, ",rows,make,columns\n"));
	assert_non_null(strstr(text, "\nw,0,0,0,0,0,336,direct,3,0:2,copy,0:4x0:6 0:2x0:6\n"));
	assert_non_null(strstr(text, "\nb,0,0,0,0,0,32,direct,1,0:8,copy,\n"));
	free(text);
	text = exported(export_find("jsonl"), dump);
	assert_non_null(strstr(text, "\"columns\":[[[0,4],[0,6]],[[0,2],[0,6]]]}\n"));
	assert_non_null(strstr(text, "\"columns\":[]}\n"));
	free(text);
	dump_free(&dump);
	table_free(&table);
	job_fini(&job);
}

/* One tensor of that name, sent once. */
static char *exported_name(const char *format, const char *name)
{
	static struct job job;
	struct table *table;
	struct dump *dump;
	char *text;

	job_init(&job, 1, 1);
	job_hold(&job, 0, name, 0, 4, 2, 0, 4);
	job_want(&job, 0, "p", name, 4, 2, 0, 4, 0, 2);
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_int_equal(dump_of(&dump, table, NULL), 0);
	text = exported(export_find(format), dump);
	dump_free(&dump);
	table_free(&table);
	job_fini(&job);
	return text;
}

static void test_csv__has_no_formula_and_no_control_character(void **state)
{
	static const struct {
		const char *name, *cell;
	} rows[] = {
		{"model.norm.weight", "model.norm.weight"},
		{"a=b+c-d@e", "a=b+c-d@e"},
		{"'=1", "'=1"},
		{"=1+1", "'=1+1"},
		{"+1", "'+1"},
		{"-1", "'-1"},
		{"@SUM(A1)", "'@SUM(A1)"},
		{"\t=1", "'\t=1"},
		{"\r=1", "\"'\r=1\""},
		{"\n=1", "\"'\n=1\""},
		{"\xef\xbc\x9d"
		 "1",
		 "'\xef\xbc\x9d"
		 "1"},
		{"=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\""},
		{"a\x1b[2Jb", "a\\x1b[2Jb"},
		{"a,\x1b\"", "\"a,\\x1b\"\"\""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *text = exported_name("csv", rows[i].name), line[256];
		int n = snprintf(line, sizeof(line), "%s,0,0,0,0,0,32,", rows[i].cell);

		assert_memory_equal(strchr(text, '\n') + 1, line, (size_t)n);
		free(text);
	}
}

/* Labels of a graph are between quotes, and nothing ends them early. */
static void test_dot__quotes_what_is_foreign(void **state)
{
	char *data = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&data, &bytes);

	(void)state;
	assert_non_null(stream);
	export_quoted(stream, "a\"]; b [label=<<b>x</b>>] \\ \n\x1b");
	fclose(stream);
	assert_string_equal(data, "a\\\"]; b [label=<<b>x</b>>] \\\\ \\\\x0a\\\\x1b");
	free(data);
}

static int all_forms(const struct table *table, FILE *sink, struct error *error)
{
	size_t count;
	const struct export_format *formats = export_list(&count);
	struct dump *dump = NULL, *other = NULL;
	struct diff diff = {0};
	int rc = dump_of(&dump, table, error);

	if (!rc)
		rc = dump_of(&other, table, error);
	for (size_t i = 0; !rc && i < count; i++)
		rc = formats[i].write(sink, dump, error);
	if (!rc) {
		other->routes[0].trainer ^= 1;
		rc = diff_of(&diff, dump, other, error);
	}
	if (!rc) {
		assert_int_equal(diff.moved_bytes, dump->routes[0].bytes);
		assert_int_equal(diff.moved_pairs, 1);
		assert_int_equal(diff.pairs, 2);
		assert_int_equal(diff.tensor_count, 1);
	}
	diff_fini(&diff);
	dump_free(&dump);
	dump_free(&other);
	return rc;
}

static void test_forms__survive_every_failed_allocation(void **state)
{
	static struct job job;
	struct error error = {0};
	struct table *table;
	FILE *sink = fopen("/dev/null", "w");
	int rc = -1;

	(void)state;
	assert_non_null(sink);
	make_job(&job);
	table = job_plan(&job, "greedy");
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = all_forms(table, sink, &error);
		memory_fail_at(0);
		if (rc != 0 && rc != -ERROR_MEMORY)
			fail_msg("allocation %" PRIu64 ": %s", k, error.text);
		assert_true(k < 100000);
	}
	fclose(sink);
	table_free(&table);
	job_fini(&job);
}

static void test_forms__a_full_device_is_seen(void **state)
{
	static struct job job;
	struct table *table;
	struct dump *dump;
	size_t count;
	const struct export_format *formats = export_list(&count);

	(void)state;
	make_job(&job);
	table = job_plan(&job, "greedy");
	assert_int_equal(dump_of(&dump, table, NULL), 0);
	for (size_t i = 0; i < count; i++) {
		FILE *full = fopen("/dev/full", "w");

		assert_non_null(full);
		assert_int_equal(formats[i].write(full, dump, NULL), 0);
		assert_true(fflush(full) != 0 || ferror(full));
		fclose(full);
	}
	dump_free(&dump);
	table_free(&table);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines__merge_rows_and_quote_names),
		cmocka_unit_test(test_lines__have_each_range_of_columns_once),
		cmocka_unit_test(test_csv__has_no_formula_and_no_control_character),
		cmocka_unit_test(test_dot__quotes_what_is_foreign),
		cmocka_unit_test(test_forms__survive_every_failed_allocation),
		cmocka_unit_test(test_forms__a_full_device_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
