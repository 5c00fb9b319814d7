/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank does of trainers whose pieces land in windows, and of one that is gone, event by event.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "worker/update/receive.h"

#include <string.h>

enum { TRAINERS = 2, DEADLINE = 1000 };

struct rank {
	struct receive_peer peers[TRAINERS];
	struct receive_link links[TRAINERS];
	struct receiver receiver;
	struct update_landed landed;
	struct update_end end;
};

static struct receive_step tell(struct rank *rank, struct receive_event event)
{
	return receive_next(&rank->receiver, &event);
}

/* Up to where it waits. */
static void open_wait(struct rank *rank, uint64_t now_ns)
{
	struct receive_event event = {.kind = RECEIVE_OPENS,
				      .version = 7,
				      .now_ns = now_ns,
				      .deadline_ns = now_ns + DEADLINE};
	struct receive_step step = tell(rank, event);

	while (step.kind == RECEIVE_ACCEPT)
		step = tell(rank, (struct receive_event){.kind = RECEIVE_ASKS});
	assert_true(step.kind == RECEIVE_WAIT || step.kind == RECEIVE_TAKE);
}

static void open_rank(struct rank *rank)
{
	*rank = (struct rank){.peers = {{"trainer 0", 150, 2, NULL, true, 100},
					{"trainer 1", 150, 2, NULL, true, 100}}};
	receiver_init(&rank->receiver, rank->peers, TRAINERS, rank->links, (struct digest){0},
		      false);
	open_wait(rank, 1);
}

static struct receive_step landed(struct rank *rank, uint32_t peer, uint64_t entries,
				  uint64_t now_ns)
{
	rank->landed = (struct update_landed){rank->links[peer].opening, entries};
	return tell(rank, (struct receive_event){.kind = RECEIVE_SIGNAL,
						 .peer = peer,
						 .word = UPDATE_LANDED,
						 .now_ns = now_ns,
						 .landed = &rank->landed});
}

static struct receive_step taken(struct rank *rank, uint32_t peer, uint64_t bytes)
{
	return tell(rank, (struct receive_event){.kind = RECEIVE_TAKEN,
						 .peer = peer,
						 .entries = rank->links[peer].landed,
						 .bytes = bytes});
}

static struct receive_step ends(struct rank *rank, uint32_t peer, uint64_t entries)
{
	rank->end = (struct update_end){.opening = rank->links[peer].opening,
					.version = 7,
					.bytes = 150,
					.pieces = 2,
					.landed = entries};
	return tell(rank, (struct receive_event){.kind = RECEIVE_SIGNAL,
						 .peer = peer,
						 .word = UPDATE_END,
						 .end = &rank->end});
}

static void expect(struct receive_step step, enum receive_step_kind kind, uint32_t peer)
{
	assert_int_equal(step.kind, kind);
	assert_int_equal(step.peer, peer);
}

static void test_version__is_verified_when_all_that_landed_is_taken(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	expect(landed(&rank, 0, 3, 2), RECEIVE_TAKE, 0);
	expect(taken(&rank, 0, 60), RECEIVE_WAIT, 0);
	expect(ends(&rank, 0, 5), RECEIVE_TAKE, 0); /* and what it had not told of */
	expect(taken(&rank, 0, 40), RECEIVE_WAIT, 0);
	expect(ends(&rank, 1, 1), RECEIVE_TAKE, 1);
	expect(taken(&rank, 1, 100), RECEIVE_VERIFY, 0);
}

static void test_end__with_other_bytes_than_landed_is_refused(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	expect(ends(&rank, 0, 2), RECEIVE_TAKE, 0);
	expect(taken(&rank, 0, 99), RECEIVE_FAIL, 0);
	assert_non_null(strstr(rank.receiver.error.text, "99 bytes had landed; the plan has 100"));
	open_rank(&rank);
	expect(landed(&rank, 0, 3, 2), RECEIVE_TAKE, 0);
	expect(taken(&rank, 0, 60), RECEIVE_WAIT, 0);
	expect(ends(&rank, 0, 2), RECEIVE_FAIL, 0);
	assert_non_null(strstr(rank.receiver.error.text, "2 entries of its window, and 3 had"));
}

static void test_trainers__are_taken_from_in_turn(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	rank.links[0].landed = rank.links[1].landed = 2;
	expect(landed(&rank, 0, 3, 2), RECEIVE_TAKE, 1);
	expect(taken(&rank, 1, 10), RECEIVE_TAKE, 0);
	rank.links[1].landed = 4;
	expect(taken(&rank, 0, 10), RECEIVE_TAKE, 1);
}

static void test_deadline__passes_while_pieces_go_on_landing(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	expect(landed(&rank, 0, 3, 2), RECEIVE_TAKE, 0);
	expect(taken(&rank, 0, 60), RECEIVE_WAIT, 0);
	expect(landed(&rank, 0, 4, 1 + DEADLINE), RECEIVE_FAIL, 0);
	assert_int_equal(rank.receiver.error.code, ERROR_TIMEOUT);
	assert_non_null(strstr(
		rank.receiver.error.text,
		"no end from trainer 0 (60 of its 100 bytes that land are here), trainer 1"));
	/* and the next wait goes on where it was */
	open_wait(&rank, 2000);
	assert_int_equal(rank.links[0].taken, 3);
	expect(taken(&rank, 0, 20), RECEIVE_WAIT, 0);
	/* what has ended is taken, however late it is */
	expect(ends(&rank, 1, 1), RECEIVE_TAKE, 1);
	expect(landed(&rank, 0, 5, 9000), RECEIVE_TAKE, 0);
}

static void test_abort__drops_what_was_not_taken(void **state)
{
	const struct update_abort gone = {1, 7, "no"};
	struct rank rank;

	(void)state;
	open_rank(&rank);
	expect(landed(&rank, 0, 3, 2), RECEIVE_TAKE, 0);
	expect(tell(&rank, (struct receive_event){.kind = RECEIVE_SIGNAL,
						  .peer = 0,
						  .word = UPDATE_ABORT,
						  .gone = &gone}),
	       RECEIVE_FAIL, 0);
	rank.receiver.past = 0;
	open_wait(&rank, 2000);
	assert_int_equal(rank.links[0].opening, 2);
	assert_int_equal(rank.links[0].landed, 0);
}

static struct receive_step goes(struct rank *rank, uint32_t peer, bool broken)
{
	static const struct error why = {ERROR_PEER_LOST, "trainer 1 is gone"};

	return tell(rank,
		    (struct receive_event){
			    .kind = RECEIVE_GONE, .peer = peer, .broken = broken, .error = &why});
}

static void assert_given_up(const struct rank *rank, struct receive_step step)
{
	assert_int_equal(step.kind, RECEIVE_FAIL);
	assert_false(step.broken);
	assert_int_equal(rank->receiver.error.code, ERROR_ABORTED);
	assert_non_null(strstr(rank->receiver.error.text, "update 7 was given up: trainer 1"));
	assert_int_equal(rank->receiver.past, 7);
}

/* Whichever comes first: that it is gone, or the end of all others. */
static void test_gone__is_what_others_have_ended_without_it_whichever_comes_first(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	expect(landed(&rank, 0, 1, 2), RECEIVE_TAKE, 0);
	expect(taken(&rank, 0, 100), RECEIVE_WAIT, 0);
	expect(ends(&rank, 0, 1), RECEIVE_WAIT, 0);
	assert_given_up(&rank, goes(&rank, 1, false));

	open_rank(&rank);
	expect(goes(&rank, 1, false), RECEIVE_WAIT, 0);
	assert_false(receive_is_alone(&rank.receiver));
	expect(landed(&rank, 0, 1, 2), RECEIVE_TAKE, 0);
	expect(taken(&rank, 0, 100), RECEIVE_WAIT, 0);
	assert_given_up(&rank, ends(&rank, 0, 1));
}

/* Its window is not looked at, it is asked for nothing any more, and nobody waits for it in vain. */
static void test_gone__takes_no_part_in_the_next_wait(void **state)
{
	struct receive_event opens = {
		.kind = RECEIVE_OPENS, .version = 8, .now_ns = 10, .deadline_ns = 20};
	struct rank rank;

	(void)state;
	open_rank(&rank);
	expect(landed(&rank, 1, 3, 2), RECEIVE_TAKE, 1);
	expect(goes(&rank, 1, false), RECEIVE_WAIT, 0);
	expect(landed(&rank, 0, 1, 3), RECEIVE_TAKE, 0);
	expect(taken(&rank, 0, 100), RECEIVE_WAIT, 0);
	assert_given_up(&rank, ends(&rank, 0, 1));
	expect(tell(&rank, opens), RECEIVE_ACCEPT, 0);
	expect(tell(&rank, (struct receive_event){.kind = RECEIVE_ASKS}), RECEIVE_WAIT, 0);
	expect(tell(&rank, (struct receive_event){.kind = RECEIVE_ASKS, .now_ns = 21}),
	       RECEIVE_FAIL, 0);
	assert_int_equal(rank.receiver.error.code, ERROR_TIMEOUT);
	assert_non_null(strstr(rank.receiver.error.text, "trainer 1 (gone)"));
}

/* Where nobody is left, nothing here tells whether others have begun what one of them had ended. */
static void test_gone__all_of_them_leaves_the_rank_alone(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	expect(goes(&rank, 1, false), RECEIVE_WAIT, 0);
	expect(goes(&rank, 0, false), RECEIVE_WAIT, 0);
	assert_true(receive_is_alone(&rank.receiver));

	open_rank(&rank);
	expect(landed(&rank, 1, 1, 2), RECEIVE_TAKE, 1);
	expect(taken(&rank, 1, 100), RECEIVE_WAIT, 0);
	expect(ends(&rank, 1, 1), RECEIVE_WAIT, 0);
	assert_false(receive_is_alone(&rank.receiver));
	expect(goes(&rank, 1, false), RECEIVE_WAIT, 0);
	expect(goes(&rank, 0, false), RECEIVE_WAIT, 0);
	assert_true(receive_is_alone(&rank.receiver));
	receive_start_over(&rank.receiver);
	assert_int_equal(rank.receiver.past, 0);
	assert_false(receive_is_alone(&rank.receiver));
	assert_int_equal(tell(&rank, (struct receive_event){.kind = RECEIVE_ASKS}).kind,
			 RECEIVE_MEET);
}

/* What it ended it has sent; and where the job ends with it, so does this rank. */
static void test_gone__after_its_end_or_in_a_job_that_ends_is_as_ever(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	expect(landed(&rank, 1, 1, 2), RECEIVE_TAKE, 1);
	expect(taken(&rank, 1, 100), RECEIVE_WAIT, 0);
	expect(ends(&rank, 1, 1), RECEIVE_WAIT, 0);
	expect(goes(&rank, 1, false), RECEIVE_WAIT, 0);
	expect(landed(&rank, 0, 1, 3), RECEIVE_TAKE, 0);
	expect(taken(&rank, 0, 100), RECEIVE_WAIT, 0);
	expect(ends(&rank, 0, 1), RECEIVE_VERIFY, 0);

	open_rank(&rank);
	assert_true(goes(&rank, 1, true).broken);
	assert_int_equal(rank.receiver.error.code, ERROR_PEER_LOST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version__is_verified_when_all_that_landed_is_taken),
		cmocka_unit_test(test_end__with_other_bytes_than_landed_is_refused),
		cmocka_unit_test(test_trainers__are_taken_from_in_turn),
		cmocka_unit_test(test_deadline__passes_while_pieces_go_on_landing),
		cmocka_unit_test(test_abort__drops_what_was_not_taken),
		cmocka_unit_test(
			test_gone__is_what_others_have_ended_without_it_whichever_comes_first),
		cmocka_unit_test(test_gone__takes_no_part_in_the_next_wait),
		cmocka_unit_test(test_gone__all_of_them_leaves_the_rank_alone),
		cmocka_unit_test(test_gone__after_its_end_or_in_a_job_that_ends_is_as_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
