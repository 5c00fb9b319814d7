/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/routing/routing_job.h"

#include "routing/report/dump_read.h"
#include "routing/report/export_html.h"

#define HOSTILE "a</script><script>alert(1)</script><!--<b>&\"'\\ {{data}}"

struct text_file {
	char *data;
	size_t bytes;
};

static int html_text(struct text_file *text, const struct dump *dump, const struct dump *beside,
		     struct error *error)
{
	FILE *stream = open_memstream(&text->data, &text->bytes);
	int rc;

	assert_non_null(stream);
	rc = export_html(stream, dump, beside, NULL, error);
	fclose(stream);
	return rc;
}

static struct dump *hostile_dump(struct job *job, const char *policy)
{
	struct error error = {0};
	struct table *table;
	struct dump *dump;

	job_init(job, 2, 2);
	for (uint32_t t = 0; t < 2; t++) {
		job_hold(job, t, HOSTILE, 0, 4, 2, 0, 4);
		job_hold(job, t, "unwanted" HOSTILE, 1, 4, 2, 0, 4);
	}
	for (uint32_t i = 0; i < 2; i++)
		job_want(job, i, "p" HOSTILE, HOSTILE, 4, 2, 0, 4, 0, 1);
	job_build(job);
	table = job_plan(job, policy);
	if (dump_of(&dump, table, &error))
		fail_msg("%s", error.text);
	table_free(&table);
	return dump;
}

static size_t count_of(const char *text, const char *what)
{
	size_t count = 0;

	for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
		count++;
	return count;
}

/* what is between two texts, the second after the first */
static char *between(const char *text, const char *from, const char *to)
{
	const char *begin = strstr(text, from), *end = begin ? strstr(begin, to) : NULL;

	assert_non_null(end);
	return strndup(begin, (size_t)(end - begin));
}

static void test_html__names_stay_text_wherever_they_stand(void **state)
{
	struct error error = {0};
	struct text_file text;
	struct job job;
	struct dump *dump = hostile_dump(&job, "greedy");
	char *head, *lists;

	(void)state;
	assert_int_equal(html_text(&text, dump, NULL, &error), 0);
	/* one style, one script that runs; the head and six columns do not */
	assert_int_equal(count_of(text.data, "<script>"), 1);
	assert_int_equal(count_of(text.data, "<script"), 8);
	assert_int_equal(count_of(text.data, "</script>"), 8);
	assert_int_equal(count_of(text.data, "alert(1)"), 2); /* the head, and unwanted */
	head = between(text.data, "id=\"weft-head\">", "</script>");
	assert_non_null(
		strstr(head, "a\\u003c/script>\\u003cscript>alert(1)\\u003c/script>\\u003c!--"));
	lists = between(text.data, "id=\"unwanted\"", "</details>");
	assert_non_null(strstr(lists,
			       "unwanteda&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;"
			       "&lt;!--&lt;b&gt;&amp;&quot;&#39;\\ {{data}}"));
	assert_int_equal(count_of(text.data, "http://"), 1); /* SVG's name for itself, in code */
	free(lists);
	free(head);
	free(text.data);
	dump_free(&dump);
	job_fini(&job);
}

static void test_html__is_the_same_bytes_every_time(void **state)
{
	struct error error = {0};
	struct text_file one, two;
	struct job job, again;
	struct dump *dump = hostile_dump(&job, "greedy"), *other = hostile_dump(&again, "greedy");

	(void)state;
	assert_int_equal(html_text(&one, dump, NULL, &error), 0);
	assert_int_equal(html_text(&two, other, NULL, &error), 0);
	assert_int_equal(one.bytes, two.bytes);
	assert_memory_equal(one.data, two.data, one.bytes);
	free(one.data);
	free(two.data);
	dump_free(&dump);
	dump_free(&other);
	job_fini(&job);
	job_fini(&again);
}

static void test_html__two_plans_stand_beside_each_other_when_they_are_of_one_job(void **state)
{
	struct error error = {0};
	struct text_file text;
	struct job job, again;
	struct dump *dump = hostile_dump(&job, "greedy");
	struct dump *other = hostile_dump(&again, "round-robin");
	const char *train;

	(void)state;
	assert_int_equal(html_text(&text, dump, other, &error), 0);
	assert_int_equal(count_of(text.data, "id=\"weft-cell-"), 4);
	free(text.data);
	/* a plan beside one of its own policy has a name of its own */
	assert_int_equal(html_text(&text, dump, dump, &error), 0);
	assert_non_null(strstr(text.data, "greedy (beside)"));
	free(text.data);
	/* round-robin has nothing to stand beside it */
	assert_int_equal(html_text(&text, other, NULL, &error), 0);
	assert_null(strstr(text.data, "class=\"other\""));
	free(text.data);

	train = other->labels.train;
	other->labels.train = "world=3";
	assert_int_equal(html_text(&text, dump, other, &error), -ERROR_CONFLICT);
	assert_non_null(
		strstr(error.text, "\"train\" is 'by hand' in the first dump and 'world=3' in"));
	free(text.data);
	other->labels.train = train;
	other->labels.trainer_count = 1;
	assert_int_equal(html_text(&text, dump, other, &error), -ERROR_CONFLICT);
	assert_non_null(strstr(error.text, ", 1 and 2 in the second"));
	free(text.data);
	dump_free(&dump);
	dump_free(&other);
	job_fini(&job);
	job_fini(&again);
}

static void test_html__survives_every_failed_allocation(void **state)
{
	struct error error;
	struct job job, again;
	struct dump *dump = hostile_dump(&job, "greedy"), *other = hostile_dump(&again, "greedy");
	FILE *sink = fopen("/dev/null", "w");
	int rc = -1;
	uint64_t k;

	(void)state;
	assert_non_null(sink);
	for (k = 1; rc; k++) {
		memory_fail_at(k);
		rc = export_html(sink, dump, other, NULL, &error);
		memory_fail_at(0);
		if (rc != 0 && rc != -ERROR_MEMORY)
			fail_msg("allocation %" PRIu64 ": %s", k, error.text);
		assert_true(k < 1000);
	}
	assert_true(k > 4);
	fclose(sink);
	dump_free(&dump);
	dump_free(&other);
	job_fini(&job);
	job_fini(&again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_html__names_stay_text_wherever_they_stand),
		cmocka_unit_test(test_html__is_the_same_bytes_every_time),
		cmocka_unit_test(
			test_html__two_plans_stand_beside_each_other_when_they_are_of_one_job),
		cmocka_unit_test(test_html__survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
