/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes of a dump's text, as a slip of a hand or of a disk makes them: a number, a character, a
 * line. What is read as another dump than it was has to be refused, by the reader or by
 * dump_verify. Only white space may change, and numbers may be written in another way: such a
 * text is the same dump when it is written again.
 */
#include "tests/unit/routing/routing_job.h"
#include "tests/unit/routing/job_dump.h"

#include "routing/report/dump_read.h"
#include <ctype.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHARE 8 /* of the jobs: what a change leads to is the release build's to prove */
#else
#define SHARE 1
#endif

struct text_file {
	char *data;
	size_t bytes;
};

static struct text_file text_of(const struct table *table)
{
	struct text_file text = {0};
	FILE *stream = open_memstream(&text.data, &text.bytes);

	assert_non_null(stream);
	assert_int_equal(job_dump_write(stream, table, DUMP_WHOLE, NULL), 0);
	fclose(stream);
	return text;
}

static struct table *planned(struct job *job, const char *policy, uint32_t sessions_max)
{
	struct plan_options options = {.sessions_max = sessions_max};
	struct error error = {0};
	struct table *table;

	if (table_plan(&table, job->problem, policy_find(policy), &options, &error))
		fail_msg("plan: %s", error.text);
	return table;
}

/* bytes before at + with + bytes after at + removed */
static struct text_file spliced(const struct text_file *text, size_t at, size_t removed,
				const char *with, size_t added)
{
	struct text_file out = {malloc(text->bytes - removed + added + 1),
				text->bytes - removed + added};

	assert_non_null(out.data);
	memcpy(out.data, text->data, at);
	memcpy(out.data + at, with, added);
	memcpy(out.data + at + added, text->data + at + removed, text->bytes - at - removed);
	out.data[out.bytes] = '\0';
	return out;
}

/* The digits that begin at or after `at`. */
static bool find_number(const struct text_file *text, size_t at, size_t *begin, size_t *length)
{
	while (at < text->bytes && !isdigit((unsigned char)text->data[at]))
		at++;
	for (*begin = at; at < text->bytes && isdigit((unsigned char)text->data[at]);)
		at++;
	*length = at - *begin;
	return *length > 0;
}

static struct text_file number_changed(const struct text_file *text, size_t begin, size_t length,
				       bool up)
{
	uint64_t value = strtoull(text->data + begin, NULL, 10);
	char number[32];
	int n = snprintf(number, sizeof(number), "%" PRIu64, up || !value ? value + 1 : value - 1);

	return spliced(text, begin, length, number, (size_t)n);
}

static struct text_file line_changed(const struct text_file *text, size_t at, bool twice)
{
	size_t begin = at, end;

	while (begin > 0 && text->data[begin - 1] != '\n')
		begin--;
	for (end = begin; end < text->bytes && text->data[end] != '\n'; end++)
		;
	end += end < text->bytes;
	return twice ? spliced(text, begin, 0, text->data + begin, end - begin)
		     : spliced(text, begin, end - begin, "", 0);
}

enum change { NUMBER_UP, NUMBER_DOWN, CHARACTER, CUT, LINE_OUT, LINE_TWICE, CHANGE_COUNT };

static struct text_file changed(const struct text_file *text, struct dice *dice, enum change change)
{
	size_t at = dice_below(dice, text->bytes), begin, length;
	char other = (char)(' ' + dice_below(dice, 95));

	switch (change) {
	case NUMBER_UP:
	case NUMBER_DOWN:
		if (!find_number(text, at, &begin, &length))
			return spliced(text, at, 1, "", 0);
		return number_changed(text, begin, length, change == NUMBER_UP);
	case CHARACTER:
		return spliced(text, at, 1, &other, 1);
	case CUT:
		return spliced(text, at, 1 + dice_below(dice, text->bytes - at), "", 0);
	default:
		return line_changed(text, at, change == LINE_TWICE);
	}
}

/* The dump of this text is the one that was written. */
static bool same_dump(const struct dump *dump, const struct text_file *text)
{
	struct text_file own = {0};
	FILE *stream = open_memstream(&own.data, &own.bytes);
	bool same;

	assert_non_null(stream);
	dump_put(stream, dump, DUMP_WHOLE);
	fclose(stream);
	same = own.bytes == text->bytes && memcmp(own.data, text->data, own.bytes) == 0;
	free(own.data);
	return same;
}

/* What `weft route verify` does with the text. 0: accepted. */
static int verdict(const struct text_file *text, struct problem *problem, struct dump **dump,
		   struct error *error)
{
	int rc = dump_parse(dump, text->data, text->bytes, "dump", error);

	return rc ? rc : dump_verify(*dump, problem, error);
}

/* A limit of sessions may be said larger, or left out: the plan keeps that, too. */
static bool says_limit(const struct dump *dump, uint32_t limit)
{
	return dump->labels.sessions_max != limit;
}

/* Refused, or the same dump as before. */
static void check_change(const struct text_file *change, const struct text_file *text,
			 struct problem *problem, uint32_t limit, size_t *refused)
{
	struct error error = {0};
	struct dump *dump = NULL;
	int rc = verdict(change, problem, &dump, &error);

	if (rc == 0 && !same_dump(dump, text) && !says_limit(dump, limit))
		fail_msg("this passed: %.*s", (int)change->bytes, change->data);
	if (rc && ((rc != -ERROR_FILE && rc != -ERROR_UNPROVED) || !error.text[0]))
		fail_msg("%d %s", rc, error.text);
	*refused += rc != 0;
	dump_free(&dump);
}

static size_t cut_pairs(const struct table *table)
{
	size_t count = 0;

	for (size_t r = 1; r < table->route_count; r++)
		count += table->routes[r].tensor == table->routes[r - 1].tensor &&
			 table->routes[r].inference == table->routes[r - 1].inference;
	return count;
}

static void test_dump_text__no_random_change_is_accepted(void **state)
{
	struct dice dice = dice_seeded("dump text");
	size_t refused = 0, cuts = 0, done = 0;

	(void)state;
	for (int round = 0; round < 200 / SHARE; round++) {
		static struct job job;
		struct table *table;
		struct text_file text;
		uint32_t limit = round % 4 == 3 ? JOB_RANKS_MAX : 0;

		job_random(&job, &dice);
		table = planned(&job, round % 4 ? "balanced" : "greedy", limit);
		cuts += cut_pairs(table);
		text = text_of(table);
		for (int n = 0; n < 60; n++) {
			struct text_file change =
				changed(&text, &dice, (enum change)(n % CHANGE_COUNT));

			check_change(&change, &text, job.problem, limit, &refused);
			done++;
			free(change.data);
		}
		free(text.data);
		table_free(&table);
		job_fini(&job);
	}
	print_message("%zu changes, %zu refused, %zu cuts\n", done, refused, cuts);
	assert_true(done == 12000 / SHARE && refused > 11000 / SHARE && cuts > 1000 / SHARE);
}

/* Each number of the summary by itself, one more and one less: fractions, too. */
static void test_dump_text__no_number_of_the_summary_may_change(void **state)
{
	struct dice dice = dice_seeded("summary text");
	size_t refused = 0, done = 0;

	(void)state;
	for (int round = 0; round < 60 / SHARE; round++) {
		static struct job job;
		struct table *table;
		struct text_file text;
		size_t at, length;

		job_random(&job, &dice);
		table = planned(&job, "balanced", 0);
		text = text_of(table);
		at = (size_t)(strstr(text.data, "\"summary\"") - text.data);
		for (; find_number(&text, at, &at, &length); at += length) {
			for (int up = 0; up < 2; up++) {
				struct text_file change = number_changed(&text, at, length, up);

				check_change(&change, &text, job.problem, 0, &refused);
				done++;
				free(change.data);
			}
		}
		free(text.data);
		table_free(&table);
		job_fini(&job);
	}
	print_message("%zu changes, %zu refused\n", done, refused);
	assert_true(done > 3000 / SHARE && refused == done);
}

/* Two stages of two trainers: every route given to each trainer of the other stage. */
static void test_dump_text__a_route_from_another_stage_is_refused(void **state)
{
	static struct job job;
	struct table *table;
	struct text_file text;
	const char *at;
	size_t refused = 0;

	(void)state;
	job_init(&job, 4, 3);
	for (uint32_t t = 0; t < 4; t++)
		job_hold(&job, t, t < 2 ? "low" : "high", t < 2 ? 0 : 1, 64, 2, 0, 64);
	for (uint32_t i = 0; i < 3; i++) {
		job_want(&job, i, "p", "low", 64, 2, i, 60 + i, 0, 2);
		job_want(&job, i, "q", "high", 64, 2, 0, 64, 0, 2);
	}
	job_build(&job);
	table = planned(&job, "balanced", 0);
	assert_true(cut_pairs(table) > 0);
	for (size_t r = 0; r < table->route_count; r++) {
		uint32_t own = table->routes[r].trainer;

		for (uint32_t k = 0; k < 2; k++) {
			struct error error = {0};

			table->routes[r].trainer = own < 2 ? 2 + k : k;
			assert_int_equal(table_prove(table, &error), -ERROR_UNPROVED);
			assert_non_null(strstr(error.text, "the trainer does not hold ["));
			assert_non_null(strstr(error.text, own < 2 ? "parameter 'p'" : "'q'"));
		}
		table->routes[r].trainer = own;
	}
	text = text_of(table);
	for (at = text.data; (at = strstr(at, "\"trainer\":")) != NULL; at += 10) {
		char other[2] = {(char)('0' + (at[10] - '0' + 2) % 4), '\0'};
		struct text_file change =
			spliced(&text, (size_t)(at + 10 - text.data), 1, other, 1);

		check_change(&change, &text, job.problem, 0, &refused);
		free(change.data);
	}
	assert_int_equal(refused, table->route_count);
	free(text.data);
	table_free(&table);
	job_fini(&job);
}

/* The limit that a plan was made under stands in its dump, and its routes are held to it. */
static void test_dump_text__has_the_limit_of_sessions(void **state)
{
	static struct job job;
	struct error error = {0};
	struct table *table;
	struct text_file text, less, none;
	struct dump *dump;
	char *at;

	(void)state;
	job_init(&job, 2, 4);
	for (uint32_t r = 0; r < 2; r++)
		job_hold(&job, r, "w", 0, 8, 1, 0, 8);
	for (uint32_t i = 0; i < 4; i++)
		job_want(&job, i, "p", "w", 8, 1, 0, 8, 0, 1);
	job_build(&job);
	table = planned(&job, "balanced", 2);
	text = text_of(table);
	at = strstr(text.data, ",\"sessions_max\":2,");
	assert_non_null(at);
	assert_int_equal(verdict(&text, job.problem, &dump, &error), 0);
	assert_int_equal(dump->labels.sessions_max, 2);
	assert_true(same_dump(dump, &text));
	dump_free(&dump);
	assert_int_equal(dump_of(&dump, table, NULL), 0);
	assert_true(same_dump(dump, &text));
	dump_free(&dump);
	less = spliced(&text, (size_t)(at + 16 - text.data), 1, "1", 1);
	assert_int_equal(verdict(&less, job.problem, &dump, &error), -ERROR_UNPROVED);
	assert_string_equal(strstr(error.text, "\"sessions_max\""),
			    "\"sessions_max\" is 1; trainer 0 writes to 2 inference ranks");
	dump_free(&dump);
	none = spliced(&text, (size_t)(at + 16 - text.data), 1, "0", 1);
	assert_int_equal(verdict(&none, job.problem, &dump, &error), -ERROR_FILE);
	assert_non_null(strstr(error.text, "leaves it out"));
	table_free(&table);
	table = planned(&job, "balanced", 0);
	free(text.data);
	text = text_of(table);
	assert_null(strstr(text.data, "sessions_max"));
	free(text.data);
	free(less.data);
	free(none.data);
	table_free(&table);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dump_text__no_random_change_is_accepted),
		cmocka_unit_test(test_dump_text__no_number_of_the_summary_may_change),
		cmocka_unit_test(test_dump_text__a_route_from_another_stage_is_refused),
		cmocka_unit_test(test_dump_text__has_the_limit_of_sessions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
