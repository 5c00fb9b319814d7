/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge of random histories (tests/support/history.h) condemns one that breaks a promise, and no other.
 */
#include "tests/support/history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Two trainers and two ranks, each of which takes from both. */
static void add(struct history *history, enum fact_kind kind, uint32_t who, uint32_t from,
		uint64_t version)
{
	bool trainer = kind == FACT_BEGINS;
	struct fact fact = {.kind = kind,
			    .who = {trainer ? ROLE_TRAINER : ROLE_INFERENCE, who},
			    .process = trainer ? 10 + who : 20 + who,
			    .from = {ROLE_TRAINER, from},
			    .from_process = 10 + from,
			    .version = version,
			    .trainers = kind == FACT_PLANNED ? 3 : 0};

	assert_true(array_add(&history->facts, fact));
}

enum { BOTH = 2 };

/* Both ranks show versions 1 and 2. */
static void fill(struct history *history)
{
	for (uint32_t rank = 0; rank < BOTH; rank++)
		add(history, FACT_PLANNED, rank, 0, 0);
	for (uint64_t version = 1; version <= 2; version++) {
		for (uint32_t t = 0; t < BOTH; t++)
			add(history, FACT_BEGINS, t, 0, version);
		for (uint32_t rank = 0; rank < BOTH; rank++) {
			for (uint32_t t = 0; t < BOTH; t++)
				add(history, FACT_ARRIVES, rank, t, version);
			add(history, FACT_SHOWS, rank, 0, version);
		}
	}
}

static void leave_out(struct history *history, size_t place)
{
	memmove(&history->facts.items[place], &history->facts.items[place + 1],
		(history->facts.count - place - 1) * sizeof(struct fact));
	history->facts.count--;
}

static void condemned(struct history *history, const char *why)
{
	char *verdict = history_judge(history);

	if (!why)
		assert_null(verdict);
	else if (!verdict || !strstr(verdict, why))
		fail_msg("not '%s', but '%s'", why, verdict ? verdict : "nothing");
	memory_free(verdict);
	array_free(&history->facts);
}

static void test_judge__condemns_what_breaks_a_promise(void **unused)
{
	struct history history;

	(void)unused;
	history = (struct history){0};
	fill(&history);
	condemned(&history, NULL);

	fill(&history);
	leave_out(&history, 4); /* trainer 0's part of version 1 at rank 0 */
	condemned(&history, "not every trainer's part has come");

	fill(&history);
	leave_out(&history, 2);
	condemned(&history, "it was not begun there");

	fill(&history);
	add(&history, FACT_SHOWS, 0, 0, 2);
	condemned(&history, "what a rank shows grows");

	fill(&history);
	add(&history, FACT_ARRIVES, 0, 0, 2);
	condemned(&history, "comes for what is shown");

	fill(&history);
	add(&history, FACT_BEGINS, 0, 0, 2);
	condemned(&history, "what a trainer begins grows");

	fill(&history);
	history.facts.items[4].digest.high = 1;
	condemned(&history, "sent by another plan");

	fill(&history);
	history.facts.items[0].trainers = 1;
	condemned(&history, "the plan has nothing from there");

	fill(&history);
	history.facts.items[5] = history.facts.items[4];
	condemned(&history, "comes twice");

	fill(&history);
	add(&history, FACT_PASSES, 0, 0, 2);
	condemned(&history, "given up, and shown already");

	add(&history, FACT_PLANNED, 2, 0, 0);
	fill(&history);
	add(&history, FACT_BEGINS, 1, 0, 2);
	history.facts.items[history.facts.count - 1].process = 99;
	add(&history, FACT_ARRIVES, 2, 0, 2);
	add(&history, FACT_ARRIVES, 2, 1, 2);
	history.facts.items[history.facts.count - 1].from_process = 99;
	add(&history, FACT_SHOWS, 2, 0, 2);
	condemned(&history, "another rank shows other bytes under this number");

	fill(&history);
	add(&history, FACT_PLANNED, 2, 0, 0);
	add(&history, FACT_ARRIVES, 2, 0, 2);
	condemned(&history, "begun before that plan");
}

/* The same, and the two are an engine's. Rank 1 shows version 2 so much later than rank 0. */
static void fill_late(struct history *history, uint64_t ms)
{
	*history = (struct history){.engine_ranks = BOTH, .moment_ms = 5, .in_place = true};
	fill(history);
	history->facts.items[history->facts.count - 1].at_ms = ms;
	add(history, FACT_BEGINS, 0, 0, 3);
	history->facts.items[history->facts.count - 1].at_ms = ms;
}

/* Rank 0, which has shown version 2, shows none, and then that one again. */
static void show_again(struct history *history)
{
	add(history, FACT_HIDES, 0, 0, 0);
	add(history, FACT_SHOWS, 0, 0, 2);
}

static void test_judge__condemns_an_engine_that_shows_two_versions(void **unused)
{
	struct history history;

	(void)unused;
	fill_late(&history, 5); /* no longer than a word takes */
	condemned(&history, NULL);

	fill_late(&history, 6);
	condemned(&history, "two ranks of one engine show two versions");

	fill_late(&history, 6); /* and where they are two engines' */
	history.engine_ranks = 1;
	condemned(&history, NULL);

	fill_late(&history, 6); /* or one of them shows none */
	leave_out(&history, history.facts.count - 2);
	leave_out(&history, history.facts.count - 1);
	add(&history, FACT_HIDES, 1, 0, 0);
	add(&history, FACT_BEGINS, 1, 0, 3);
	history.facts.items[history.facts.count - 1].at_ms = 6;
	condemned(&history, NULL);

	fill_late(&history, 0); /* or has ended */
	add(&history, FACT_ENDS, 0, 0, 0);
	add(&history, FACT_BEGINS, 1, 0, 3);
	history.facts.items[history.facts.count - 1].at_ms = 6;
	condemned(&history, NULL);
}

static void test_judge__condemns_a_version_that_is_shown_again_and_was_written_over(void **unused)
{
	struct history history;

	(void)unused;
	fill_late(&history, 0);
	show_again(&history);
	condemned(&history, NULL);

	fill_late(&history, 0);
	add(&history, FACT_ARRIVES, 0, 0, 3);
	show_again(&history);
	condemned(&history, "shown again, and written over since");

	fill_late(&history, 0);
	history.in_place = false; /* elsewhere, then */
	add(&history, FACT_ARRIVES, 0, 0, 3);
	show_again(&history);
	condemned(&history, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_judge__condemns_what_breaks_a_promise),
		cmocka_unit_test(test_judge__condemns_an_engine_that_shows_two_versions),
		cmocka_unit_test(
			test_judge__condemns_a_version_that_is_shown_again_and_was_written_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
