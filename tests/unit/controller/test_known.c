/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan that is told by what differs from another one is put together to what its controller meant, or refused. Plans are written
 * here as their peers, a digit each, and their rows: "0a 1b" are a piece of tensor a for peer 0 and one of b for peer 1. Pieces of a
 * pair are numbered by their tensors; from z to a where the peers end in "-".
 */
#include "base/memory.h"
#include "controller/known.h"
#include "tests/support/messages.h"
#include "wire/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PEERS = 6, LETTERS = 26 };

static uint32_t place_of(const struct message_plan *plan, uint32_t rank)
{
	uint32_t at = 0;

	while (plan->peers[at].member.rank != rank)
		at++;
	return at;
}

static void number_rows(struct message_plan *plan, bool backwards)
{
	for (size_t i = 0; i < plan->row_count; i++)
		for (size_t k = 0; k < plan->row_count; k++)
			plan->rows[i].ordinal +=
				plan->rows[k].peer == plan->rows[i].peer &&
				(backwards ? plan->rows[k].tensor > plan->rows[i].tensor
					   : plan->rows[k].tensor < plan->rows[i].tensor);
}

static struct message plan_of(uint32_t attempt, const char *peers, const char *rows)
{
	struct message message = {.type = MESSAGE_PLAN};
	struct message_plan *plan = &message.u.plan;

	plan->attempt = attempt;
	plan->policy = memory_string("greedy");
	plan->order = memory_string("rotated");
	plan->peers = calloc(strlen(peers) + 1, sizeof(*plan->peers));
	plan->rows = calloc(strlen(rows) / 3 + 2, sizeof(*plan->rows));
	for (const char *c = peers; *c && *c != '-'; c++) {
		struct plan_peer *peer = &plan->peers[plan->peer_count++];

		peer->member = (struct member){ROLE_INFERENCE, (uint32_t)(*c - '0')};
		peer->host = memory_string("a");
		peer->transport = memory_string("");
	}
	for (const char *c = rows; *c; c += c[2] ? 3 : 2) {
		struct plan_row *row = &plan->rows[plan->row_count++];

		row->peer = place_of(plan, (uint32_t)(c[0] - '0'));
		row->tensor = (uint32_t)(c[1] - 'a');
		row->bytes = 1;
		row->src = (struct box){1, {0}, {1}};
		plan->peers[row->peer].bytes++;
		plan->peers[row->peer].pieces++;
	}
	number_rows(plan, strchr(peers, '-') != NULL);
	return message;
}

static char *text_of(const struct message_plan *plan, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->row_count; i++)
		n += (size_t)sprintf(out + n, "%s%u%c", i ? " " : "",
				     plan->rows_of ? plan->rows[i].peer
						   : plan->peers[plan->rows[i].peer].member.rank,
				     'a' + (int)plan->rows[i].tensor);
	out[n] = '\0';
	return out;
}

static char *runs_of(const struct message_plan *plan, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->run_count; i++)
		n += (size_t)sprintf(out + n, "%s%u:%u+%u", i ? " " : "", plan->runs[i].fresh,
				     plan->runs[i].first, plan->runs[i].count);
	out[n] = '\0';
	return out;
}

/* As the controller does it; peers that are what they were are left out. */
static int differ(const struct message *before, struct message *now)
{
	struct message_plan *plan = &now->u.plan;
	struct known *had = NULL, *told = NULL;
	size_t left = 0;
	int rc = known_new(&had, &before->u.plan);

	if (!rc)
		rc = known_new(&told, plan);
	if (!rc)
		rc = known_leave_out(had, told, plan);
	for (size_t i = 0; !rc && i < plan->peer_count; i++) {
		struct plan_peer *peer = &plan->peers[i];

		if (!known_has_peer(had, peer)) {
			plan->peers[left++] = *peer;
			continue;
		}
		memory_free(peer->host);
		memory_free(peer->transport);
	}
	if (!rc)
		plan->peer_count = left;
	known_release(&had);
	known_release(&told);
	return rc;
}

static void assert_is(const struct message_plan *plan, const char *peers, const char *rows)
{
	struct message message = plan_of(plan->attempt, peers, rows);
	const struct message_plan *expected = &message.u.plan;
	char text[2][4096];

	assert_int_equal(plan->peer_count, expected->peer_count);
	for (size_t i = 0; i < expected->peer_count; i++) {
		assert_int_equal(plan->peers[i].member.rank, expected->peers[i].member.rank);
		assert_int_equal(plan->peers[i].pieces, expected->peers[i].pieces);
	}
	assert_string_equal(text_of(plan, text[0]), text_of(expected, text[1]));
	for (size_t i = 0; i < expected->row_count; i++)
		assert_int_equal(plan->rows[i].ordinal, expected->rows[i].ordinal);
	message_fini(&message);
}

static void assert_told(const char *peers, const char *rows, const char *new_peers,
			const char *new_rows, const char *fresh, const char *runs)
{
	struct message before = plan_of(4, peers, rows), now = plan_of(7, new_peers, new_rows);
	struct message_plan *plan = &now.u.plan;
	struct error error;
	char text[4096];

	assert_int_equal(differ(&before, &now), 0);
	assert_int_equal(plan->rows_of, 4);
	assert_string_equal(text_of(plan, text), fresh);
	assert_string_equal(runs_of(plan, text), runs);
	assert_int_equal(message_plan_complete(plan, &before.u.plan, &error), 0);
	assert_is(plan, new_peers, new_rows);
	assert_true(plan->rows_of == 0 && plan->run_count == 0 && plan->dropped_count == 0);
	message_fini(&before);
	message_fini(&now);
}

static void test_plan__that_is_what_it_was_is_one_run(void **unused)
{
	(void)unused;
	assert_told("01", "0a 1a 0b", "01", "0a 1a 0b", "", "0:0+3");
	assert_told("", "", "", "", "", "");
}

static void test_plan__is_told_by_rows_that_are_new(void **unused)
{
	(void)unused;
	assert_told("01", "0a 1a 0b", "01", "0a 0c 1a 0b 1d", "0c 1d", "0:0+1 1:1+2");
	assert_told("01", "0a 1a 0b 1b", "01", "0a 1b", "", "0:0+1 0:3+1");
	assert_told("01", "0a 1a 0b 1b", "01", "0b 1b 0a 1a", "", "0:2+2 0:0+2");
	assert_told("01", "0a 1a", "01", "0b 1b", "0b 1b", "");
	assert_told("01", "", "01", "0b 1b", "0b 1b", "");
}

/* Places of the others move; rows that are new name them by their place among all. */
static void test_plan__with_other_peers_keeps_the_rows_of_the_rest(void **unused)
{
	(void)unused;
	assert_told("012", "0a 1a 2a 0b 1b 2b", "02", "0a 2a 0b 2b", "", "0:0+1 0:2+2 0:5+1");
	assert_told("02", "0a 2a 0b 2b", "012", "0a 1a 2a 0b 1b 2b", "1a 1b", "0:0+1 1:1+2 1:3+1");
	assert_told("01", "0a 1a", "23", "2a 3a", "0a 1a", "");
}

/* Of each pair one row at least is told, by which the others stand as they stood. */
static void test_plan__that_numbers_pieces_in_another_order_tells_those(void **unused)
{
	(void)unused;
	assert_told("01", "0a 1a 0b 1b 0c", "01-", "0a 1a 0b 1b 0c", "0a 1a 0b", "3:3+2");
}

static void draw_plan(uint64_t *state, char *peers, char *rows)
{
	size_t n = 0, at = 0, count = 0;

	for (int rank = 0; rank < PEERS; rank++)
		if (random_below(state, 4))
			peers[n++] = (char)('0' + rank);
	for (int letter = 0; n && letter < LETTERS; letter++)
		for (size_t p = 0; p < n; p++)
			if (random_below(state, 3))
				at += (size_t)sprintf(rows + at, "%s%c%c", count++ ? " " : "",
						      peers[p], 'a' + letter);
	rows[at] = '\0';
	if (random_below(state, 8) == 0)
		peers[n++] = '-';
	peers[n] = '\0';
	for (uint64_t swaps = random_below(state, 4); count > 1 && swaps; swaps--) {
		size_t a = random_below(state, count) * 3, b = random_below(state, count) * 3;
		char piece[2] = {rows[a], rows[a + 1]};

		memmove(&rows[a], &rows[b], 2);
		memcpy(&rows[b], piece, 2);
	}
}

static void test_plan__of_any_two_is_put_together_to_the_later_one(void **unused)
{
	uint64_t state = 7;

	(void)unused;
	for (int i = 0; i < 3000; i++) {
		char peers[2][PEERS + 2], rows[2][3 * PEERS * LETTERS + 1];
		struct message before, now;
		struct error error;

		for (int k = 0; k < 2; k++)
			draw_plan(&state, peers[k], rows[k]);
		before = plan_of(1, peers[0], rows[0]);
		now = plan_of(2, peers[1], rows[1]);
		assert_int_equal(differ(&before, &now), 0);
		assert_int_equal(message_plan_complete(&now.u.plan, &before.u.plan, &error), 0);
		assert_is(&now.u.plan, peers[1], rows[1]);
		message_fini(&before);
		message_fini(&now);
	}
}

/* They are kept as a whole, or told as a whole. */
static void test_plan__whose_spares_are_what_they_were_has_them(void **unused)
{
	(void)unused;
	for (int differs = 0; differs < 2; differs++) {
		struct message plans[2] = {plan_of(1, "0", "0a"), plan_of(2, "0", "0a")};
		struct message_plan *plan = &plans[1].u.plan;
		struct error error;

		for (int k = 0; k < 2; k++) {
			struct message_plan *of = &plans[k].u.plan;

			of->stands_for = 3;
			of->spares = calloc(1, sizeof(*of->spares));
			of->spares[0] = (struct plan_spare){{ROLE_INFERENCE, 0}, 1, 5};
			of->spare_rows = calloc(1, sizeof(*of->spare_rows));
			of->spare_rows[0] = of->rows[0];
			of->spare_count = of->spare_row_count = 1;
		}
		plan->spare_rows[0].ordinal += (uint32_t)differs;
		assert_int_equal(differ(&plans[0], &plans[1]), 0);
		assert_int_equal(plan->spared, !differs);
		assert_int_equal(plan->spare_row_count, differs);
		assert_int_equal(message_plan_complete(plan, &plans[0].u.plan, &error), 0);
		assert_int_equal(plan->stands_for, 3);
		assert_true(digest_equal(plan->whole, message_plan_digest(plan)));
		assert_true(plan->spare_count == 1 && plan->spare_row_count == 1);
		assert_int_equal(plan->spare_rows[0].ordinal, differs);
		message_fini(&plans[0]);
		message_fini(&plans[1]);
	}
}

/* Of the next plan they are to be heard anew; peers that copy are those of one pause. */
static void test_plan__keeps_neither_copies_nor_what_a_peer_lacked(void **unused)
{
	struct message before = plan_of(1, "012", "0a"), now = plan_of(2, "01", "0a");
	struct plan_peer *peers = before.u.plan.peers;
	struct error error;

	(void)unused;
	peers[0].lacks = true;
	peers[2].copy = COPY_TO;
	assert_int_equal(differ(&before, &now), 0);
	assert_int_equal(now.u.plan.dropped_count, 0);
	assert_int_equal(message_plan_complete(&now.u.plan, &before.u.plan, &error), 0);
	assert_int_equal(now.u.plan.peer_count, 2);
	assert_true(now.u.plan.peers[0].kept && !now.u.plan.peers[0].lacks);
	message_fini(&before);
	message_fini(&now);
}

static void spoil(struct message_plan *plan, int how)
{
	switch (how) {
	case 0:
		plan->rows_of = 9;
		return;
	case 1:
		plan->runs[1].count++;
		return;
	case 2:
		plan->runs[0].first = UINT32_MAX;
		return;
	case 3:
		plan->runs[0].fresh = 2;
		return;
	case 4:
		plan->dropped[plan->dropped_count++] = (struct member){ROLE_INFERENCE, 1};
		return;
	case 5:
		plan->rows[0].tensor++;
		return;
	case 6:
		plan->rows[0].peer = 2;
		return;
	case 7:
		plan->rows[0].ordinal++;
		return;
	case 8:
		plan->spared =
			false; /* and there are none, as if it stood in for nobody any more */
		return;
	default:
		plan->whole.high ^= 1ull << 63;
		return;
	}
}

static void test_plan__that_does_not_fit_the_one_before_is_refused(void **unused)
{
	static const char *const words[] = {
		"told by what differs from that of attempt 9; this worker has the plan of attempt 1",
		"runs[1] is 3 rows from 1 on of attempt 1's plan, which has 3",
		"runs[0] is 1 rows from 4294967295 on",
		"runs want 3 rows of the plan's own, and 3 of another one: it has 1",
		"row 1 of attempt 1's plan is kept, and its peer is none any more",
		"put together from the one before, has 4 rows of digest",
		"rows[1].peer is 2, and there are 2 peers",
		"rows[1].ordinal is 3, and peers[0].pieces is 3",
		"put together from the one before, has 4 rows of digest",
		"put together from the one before, has 4 rows of digest"};

	(void)unused;
	for (int how = 0; how < (int)(sizeof(words) / sizeof(words[0])); how++) {
		struct message before = plan_of(1, "01", "0a 1a 0b");
		struct message now = plan_of(2, "01", "0a 0c 1a 0b");
		struct error error;

		before.u.plan.stands_for = now.u.plan.stands_for = 2;
		assert_int_equal(differ(&before, &now), 0);
		spoil(&now.u.plan, how);
		assert_int_equal(message_plan_complete(&now.u.plan, &before.u.plan, &error),
				 -ERROR_MESSAGE);
		if (!strstr(error.text, words[how]))
			fail_msg("%d: %s", how, error.text);
		message_fini(&before);
		message_fini(&now);
	}
}

/* A message of a few bytes that asks for as many rows as the memory of this worker has place for. */
static void test_plan__of_more_rows_than_a_plan_may_have_is_refused(void **unused)
{
	struct message before = plan_of(1, "0", "0a 0b 0c"), now = plan_of(2, "0", "0a 0b 0c");
	struct message_plan *plan = &now.u.plan;
	struct error error;

	(void)unused;
	assert_int_equal(differ(&before, &now), 0);
	memory_free(plan->runs);
	plan->run_count = LIMIT_ROUTES / 3 + 1;
	plan->runs = memory_zalloc(plan->run_count, sizeof(*plan->runs));
	for (size_t i = 0; i < plan->run_count; i++)
		plan->runs[i] = (struct plan_run){0, 0, 3};
	assert_int_equal(message_plan_complete(plan, &before.u.plan, &error), -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "and the limit is 2000000"));
	message_fini(&before);
	message_fini(&now);
}

static void test_memory__that_is_not_there_is_an_error_and_nothing_is_lost(void **unused)
{
	int rc = 1;

	(void)unused;
	for (long k = 1; rc; k++) {
		struct message before = plan_of(1, "01", "0a 1a 0b");
		struct message now = plan_of(2, "02", "0a 0c 2a 0b");
		struct error error = {0};

		memory_fail_at((uint64_t)k);
		rc = differ(&before, &now);
		if (!rc)
			rc = message_plan_complete(&now.u.plan, &before.u.plan, &error);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
		assert_true(error.code == ERROR_NONE || error.code == ERROR_MEMORY);
		message_fini(&before);
		message_fini(&now);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan__that_is_what_it_was_is_one_run),
		cmocka_unit_test(test_plan__is_told_by_rows_that_are_new),
		cmocka_unit_test(test_plan__with_other_peers_keeps_the_rows_of_the_rest),
		cmocka_unit_test(test_plan__that_numbers_pieces_in_another_order_tells_those),
		cmocka_unit_test(test_plan__of_any_two_is_put_together_to_the_later_one),
		cmocka_unit_test(test_plan__whose_spares_are_what_they_were_has_them),
		cmocka_unit_test(test_plan__keeps_neither_copies_nor_what_a_peer_lacked),
		cmocka_unit_test(test_plan__that_does_not_fit_the_one_before_is_refused),
		cmocka_unit_test(test_plan__of_more_rows_than_a_plan_may_have_is_refused),
		cmocka_unit_test(test_memory__that_is_not_there_is_an_error_and_nothing_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
