/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank does of a trainer that is late, and of the one that can stand in for it, event by event.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "worker/update/receive.h"

#include <string.h>

enum { LATE, STAND_IN, IDLE, TRAINERS, DEADLINE = 1000, HEDGE = 100, BYTES = 150 };

struct rank {
	struct receive_peer peers[TRAINERS];
	struct receive_link links[TRAINERS];
	struct receiver receiver;
	uint64_t version;
	struct update_landed landed;
	struct update_abort abort;
	struct update_end end;
};

static struct receive_step tell(struct rank *rank, struct receive_event event)
{
	return receive_next(&rank->receiver, &event);
}

static struct receive_step asks(struct rank *rank, uint64_t now_ns)
{
	return tell(rank, (struct receive_event){.kind = RECEIVE_ASKS, .now_ns = now_ns});
}

static struct receive_step open_wait(struct rank *rank, uint64_t version, uint64_t published)
{
	struct receive_step step = tell(rank, (struct receive_event){.kind = RECEIVE_OPENS,
								     .version = version,
								     .published = published,
								     .now_ns = 1,
								     .deadline_ns = DEADLINE});

	while (step.kind == RECEIVE_ACCEPT)
		step = asks(rank, 1);
	return step;
}

static void open_rank(struct rank *rank)
{
	*rank = (struct rank){
		.version = 7,
		.peers = {{.name = "trainer 0",
			   .bytes = BYTES,
			   .pieces = 2,
			   .lands = true,
			   .landed_bytes = 100,
			   .stand_in = STAND_IN + 1},
			  {.name = "trainer 1", .bytes = 70, .pieces = 1, .lands = true},
			  {.name = "trainer 2"}}};
	receiver_init(&rank->receiver, rank->peers, TRAINERS, rank->links, (struct digest){0},
		      false);
	rank->receiver.hedge_ns = HEDGE;
	assert_int_equal(open_wait(rank, 7, 0).kind, RECEIVE_WAIT);
}

/* of: whose pieces. */
static struct receive_step ends(struct rank *rank, uint32_t peer, uint32_t of, uint64_t entries,
				uint64_t heard_ns)
{
	rank->end = (struct update_end){.opening = rank->links[peer].opening,
					.version = rank->version,
					.bytes = rank->peers[of].bytes,
					.pieces = rank->peers[of].pieces,
					.landed = entries};
	return tell(rank, (struct receive_event){.kind = RECEIVE_SIGNAL,
						 .peer = peer,
						 .word = UPDATE_END,
						 .heard_ns = heard_ns,
						 .end = &rank->end});
}

static struct receive_step taken(struct rank *rank, uint32_t peer, uint64_t bytes)
{
	return tell(rank, (struct receive_event){.kind = RECEIVE_TAKEN,
						 .peer = peer,
						 .entries = rank->links[peer].landed,
						 .bytes = bytes});
}

static struct receive_step aborts(struct rank *rank, uint32_t peer)
{
	rank->abort = (struct update_abort){.opening = rank->links[peer].opening, .version = 1};
	return tell(rank, (struct receive_event){.kind = RECEIVE_SIGNAL,
						 .peer = peer,
						 .word = UPDATE_ABORT,
						 .gone = &rank->abort});
}

static struct receive_step goes(struct rank *rank, uint32_t peer)
{
	return tell(rank, (struct receive_event){.kind = RECEIVE_GONE, .peer = peer});
}

static void expect(struct receive_step step, enum receive_step_kind kind, uint32_t peer)
{
	assert_int_equal(step.kind, kind);
	assert_int_equal(step.peer, peer);
}

/* The stand-in and the idle one have ended at 10, and the first is asked. */
static void ask(struct rank *rank)
{
	open_rank(rank);
	expect(ends(rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	expect(ends(rank, IDLE, IDLE, 0, 10), RECEIVE_WAIT, 0);
	assert_int_equal(asks(rank, 10 + HEDGE - 1).until_ns, 10 + HEDGE);
	expect(asks(rank, 10 + HEDGE), RECEIVE_ASK, STAND_IN);
	expect(asks(rank, 10 + HEDGE), RECEIVE_WAIT, 0);
}

/* Up to what is shown. */
static void show(struct rank *rank, struct receive_step step)
{
	expect(step, RECEIVE_VERIFY, 0);
	expect(asks(rank, 0), RECEIVE_LOAD, 0);
	expect(asks(rank, 0), RECEIVE_PUBLISH, 0);
}

static void test_late__has_its_pieces_sent_by_who_stands_in_and_is_spared(void **state)
{
	struct rank rank;
	uint32_t owes;

	(void)state;
	ask(&rank);
	expect(ends(&rank, STAND_IN, LATE, 3, 150), RECEIVE_TAKE, STAND_IN);
	assert_int_equal(rank.links[STAND_IN].stands, LATE + 1); /* whose pieces are taken */
	expect(taken(&rank, STAND_IN, 100), RECEIVE_RELEASE, LATE);
	show(&rank, asks(&rank, 0));
	assert_true(receive_owes(&rank.receiver, &owes));
	assert_int_equal(owes, LATE);
	receive_settle(&rank.receiver, LATE);
	assert_false(receive_owes(&rank.receiver, &owes));
	expect(open_wait(&rank, 8, 7), RECEIVE_WAIT, 0);
	assert_int_equal(rank.links[LATE].opening, 2);
	assert_int_equal(rank.links[STAND_IN].opening, 3);
}

/* It may be asked for another one's pieces yet, and so is spared first, and released when all is here. */
static void test_late__is_spared_before_all_others_have_ended(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	rank.peers[IDLE].pieces = 1;
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	expect(asks(&rank, 10 + HEDGE), RECEIVE_ASK, STAND_IN);
	expect(ends(&rank, STAND_IN, LATE, 3, 150), RECEIVE_TAKE, STAND_IN);
	expect(taken(&rank, STAND_IN, 100), RECEIVE_SPARE, LATE);
	expect(asks(&rank, 160), RECEIVE_WAIT, 0);
	expect(ends(&rank, IDLE, IDLE, 0, 200), RECEIVE_RELEASE, LATE);
	show(&rank, asks(&rank, 0));
}

/* What it has of version 6 it may be writing still. */
static void test_late__by_a_permission_that_is_out_longer_is_waited_for(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	expect(asks(&rank, DEADLINE), RECEIVE_FAIL, 0);
	expect(open_wait(&rank, 8, 0), RECEIVE_WAIT, 0);
	assert_int_equal(rank.links[LATE].opening, 1);
	rank.version = 8;
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	expect(asks(&rank, 10 + 2 * HEDGE), RECEIVE_WAIT, 0);
}

static void test_stand_in__that_was_released_on_its_way_does_not_count(void **state)
{
	struct rank rank;
	uint32_t peer;

	(void)state;
	ask(&rank);
	assert_true(receive_unreleased(&rank.receiver, &peer));
	assert_int_equal(peer, STAND_IN);
	expect(ends(&rank, STAND_IN, LATE, 0, 150), RECEIVE_WAIT, 0);
	assert_false(rank.links[LATE].ended);
}

static void test_late__that_ends_another_version_fails_the_one_that_is_here(void **state)
{
	struct rank rank;

	(void)state;
	ask(&rank);
	rank.peers[IDLE].pieces = 1;
	rank.links[IDLE].ended = false;
	expect(ends(&rank, STAND_IN, LATE, 1, 150), RECEIVE_TAKE, STAND_IN);
	expect(taken(&rank, STAND_IN, 100), RECEIVE_SPARE, LATE);
	rank.version = 8;
	expect(ends(&rank, LATE, LATE, 0, 200), RECEIVE_FAIL, 0);
	assert_int_equal(rank.receiver.error.code, ERROR_VERSION);
}

static void test_late__that_ends_before_who_stands_in_is_enough(void **state)
{
	struct rank rank;
	uint32_t owes;

	(void)state;
	ask(&rank);
	expect(ends(&rank, LATE, LATE, 1, 150), RECEIVE_TAKE, LATE);
	expect(taken(&rank, LATE, 100), RECEIVE_RELEASE, STAND_IN);
	show(&rank, asks(&rank, 0));
	assert_true(receive_owes(&rank.receiver, &owes)); /* it may be writing */
	assert_int_equal(owes, STAND_IN);
}

static void
test_late__by_less_than_that_is_waited_for_and_who_can_stand_in_is_released(void **state)
{
	struct rank rank;
	uint32_t owes;

	(void)state;
	open_rank(&rank);
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	expect(ends(&rank, LATE, LATE, 1, 50), RECEIVE_TAKE, LATE);
	expect(taken(&rank, LATE, 100), RECEIVE_RELEASE, STAND_IN);
	expect(asks(&rank, 0), RECEIVE_RELEASE,
	       IDLE); /* who has nothing to send is not waited for */
	show(&rank, asks(&rank, 0));
	assert_true(receive_owes(&rank.receiver, &owes));
	assert_int_equal(owes, IDLE);
}

static void test_stand_in__that_cannot_leaves_the_rank_to_who_is_late(void **state)
{
	struct rank rank;

	(void)state;
	ask(&rank);
	expect(aborts(&rank, STAND_IN), RECEIVE_WAIT, 0);
	expect(asks(&rank, 500), RECEIVE_WAIT, 0); /* nor is it asked again */
	expect(ends(&rank, LATE, LATE, 1, 600), RECEIVE_TAKE, LATE);
	show(&rank, taken(&rank, LATE, 100));
}

static void test_stand_in__with_other_bytes_than_planned_is_refused(void **state)
{
	struct rank rank;

	(void)state;
	ask(&rank);
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 150), RECEIVE_FAIL, 0);
	assert_non_null(strstr(rank.receiver.error.text, "the plan has 150 in 2"));
	ask(&rank);
	expect(ends(&rank, STAND_IN, LATE, 3, 150), RECEIVE_TAKE, STAND_IN);
	expect(taken(&rank, STAND_IN, 99), RECEIVE_FAIL, 0);
	assert_non_null(strstr(rank.receiver.error.text, "99 bytes had landed; the plan has 100"));
}

static void test_late__that_is_gone_has_its_pieces_asked_for_at_once(void **state)
{
	struct rank rank;
	uint32_t owes;

	(void)state;
	open_rank(&rank);
	expect(goes(&rank, LATE), RECEIVE_WAIT, 0); /* who stands in has yet to end */
	expect(ends(&rank, IDLE, IDLE, 0, 10), RECEIVE_WAIT, 0);
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_ASK, STAND_IN);
	expect(ends(&rank, STAND_IN, LATE, 1, 20), RECEIVE_TAKE, STAND_IN);
	show(&rank, taken(&rank, STAND_IN, 100));
	assert_false(receive_owes(&rank.receiver, &owes));
	/* of the next version it has no part, and what it wrote could be of the last */
	expect(open_wait(&rank, 8, 7), RECEIVE_WAIT, 0);
	rank.version = 8;
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_FAIL, 0);
	assert_int_equal(rank.receiver.error.code, ERROR_ABORTED);
}

/* It is past that, and would use that permission up with its next version, if there is one. */
static void test_stand_in__that_was_released_is_not_asked(void **state)
{
	struct rank rank;
	uint32_t peer;

	(void)state;
	open_rank(&rank);
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	expect(asks(&rank, DEADLINE - 900), RECEIVE_WAIT, 0);
	assert_true(receive_unreleased(&rank.receiver, &peer)); /* that wait is over, */
	expect(open_wait(&rank, 7, 0), RECEIVE_WAIT, 0);	/* and another one goes on */
	expect(asks(&rank, 10 + 2 * HEDGE), RECEIVE_WAIT, 0);
	assert_int_equal(rank.links[STAND_IN].opening, 1);
}

static void test_late__that_is_gone_when_nobody_can_be_asked_gives_the_version_up(void **state)
{
	struct rank rank;
	uint32_t peer;

	(void)state;
	open_rank(&rank);
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	assert_true(receive_unreleased(&rank.receiver, &peer));
	expect(open_wait(&rank, 7, 0), RECEIVE_WAIT, 0);
	expect(goes(&rank, LATE), RECEIVE_FAIL, 0);
	assert_int_equal(rank.receiver.error.code, ERROR_ABORTED);
}

/* Only ranks that a trainer has pieces for ask its stand-in, which listens to no other. */
static void test_late__without_pieces_is_not_asked_for(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	rank.peers[LATE].pieces = 0;
	rank.peers[IDLE].pieces = 1;
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	expect(asks(&rank, 10 + HEDGE), RECEIVE_WAIT, 0);
	assert_int_equal(rank.links[STAND_IN].opening, 1);
}

/* What it has begun by that permission was given up here. If this version were shown without it, it would find no permission for
 * it when it comes to that, for ranks that do need it. */
static void test_idle__that_may_be_at_an_older_version_is_waited_for(void **state)
{
	struct rank rank;

	(void)state;
	open_rank(&rank);
	assert_int_equal(asks(&rank, DEADLINE).kind, RECEIVE_FAIL);
	expect(open_wait(&rank, 8, 0), RECEIVE_WAIT, 0);
	rank.version = 8;
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	expect(ends(&rank, LATE, LATE, 1, 20), RECEIVE_TAKE, LATE);
	expect(taken(&rank, LATE, 100), RECEIVE_RELEASE, STAND_IN);
	expect(asks(&rank, 30), RECEIVE_WAIT, 0);
	rank.version = 7;
	expect(ends(&rank, IDLE, IDLE, 0, 40), RECEIVE_ACCEPT, IDLE);
	expect(asks(&rank, 50), RECEIVE_RELEASE, IDLE);
	show(&rank, asks(&rank, 0));
}

static void test_both__gone_give_the_version_up(void **state)
{
	struct rank rank;

	(void)state;
	ask(&rank);
	expect(goes(&rank, LATE), RECEIVE_WAIT, 0);
	expect(goes(&rank, STAND_IN), RECEIVE_FAIL, 0);
	assert_int_equal(rank.receiver.error.code, ERROR_ABORTED);
}

static void test_late__writes_what_is_there_already_until_it_ends(void **state)
{
	struct rank rank;
	uint32_t owes;

	(void)state;
	ask(&rank);
	expect(ends(&rank, STAND_IN, LATE, 0, 150), RECEIVE_FAIL, 0);
	ask(&rank);
	expect(ends(&rank, STAND_IN, LATE, 2, 150), RECEIVE_TAKE, STAND_IN);
	expect(taken(&rank, STAND_IN, 100), RECEIVE_RELEASE, LATE);
	rank.landed = (struct update_landed){rank.links[LATE].opening, 4};
	expect(tell(&rank, (struct receive_event){.kind = RECEIVE_SIGNAL,
						  .peer = LATE,
						  .word = UPDATE_LANDED,
						  .landed = &rank.landed}),
	       RECEIVE_VERIFY, 0); /* what lands of it is not taken */
	expect(ends(&rank, LATE, LATE, 4, 200), RECEIVE_LOAD, 0);
	expect(asks(&rank, 0), RECEIVE_PUBLISH, 0);
	assert_false(receive_owes(&rank.receiver, &owes));
}

static void test_wait__that_ends_releases_who_waits_to_be_asked(void **state)
{
	struct rank rank;
	uint32_t peer;

	(void)state;
	open_rank(&rank);
	assert_false(receive_unreleased(&rank.receiver, &peer)); /* it has yet to end */
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	assert_true(receive_unreleased(&rank.receiver, &peer));
	assert_int_equal(peer, STAND_IN);
	assert_false(receive_unreleased(&rank.receiver, &peer));
}

static void test_hedge__of_none_asks_nobody(void **state)
{
	struct rank rank;
	uint32_t peer;

	(void)state;
	open_rank(&rank);
	rank.receiver.hedge_ns = 0;
	expect(ends(&rank, STAND_IN, STAND_IN, 0, 10), RECEIVE_WAIT, 0);
	assert_int_equal(asks(&rank, DEADLINE - 1).until_ns, DEADLINE);
	assert_false(receive_unreleased(&rank.receiver, &peer));
	expect(asks(&rank, DEADLINE), RECEIVE_FAIL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late__has_its_pieces_sent_by_who_stands_in_and_is_spared),
		cmocka_unit_test(test_late__is_spared_before_all_others_have_ended),
		cmocka_unit_test(test_late__by_a_permission_that_is_out_longer_is_waited_for),
		cmocka_unit_test(test_stand_in__that_was_released_on_its_way_does_not_count),
		cmocka_unit_test(test_late__that_ends_another_version_fails_the_one_that_is_here),
		cmocka_unit_test(test_late__that_ends_before_who_stands_in_is_enough),
		cmocka_unit_test(
			test_late__by_less_than_that_is_waited_for_and_who_can_stand_in_is_released),
		cmocka_unit_test(test_stand_in__that_cannot_leaves_the_rank_to_who_is_late),
		cmocka_unit_test(test_stand_in__with_other_bytes_than_planned_is_refused),
		cmocka_unit_test(test_late__that_is_gone_has_its_pieces_asked_for_at_once),
		cmocka_unit_test(test_stand_in__that_was_released_is_not_asked),
		cmocka_unit_test(
			test_late__that_is_gone_when_nobody_can_be_asked_gives_the_version_up),
		cmocka_unit_test(test_late__without_pieces_is_not_asked_for),
		cmocka_unit_test(test_idle__that_may_be_at_an_older_version_is_waited_for),
		cmocka_unit_test(test_both__gone_give_the_version_up),
		cmocka_unit_test(test_late__writes_what_is_there_already_until_it_ends),
		cmocka_unit_test(test_wait__that_ends_releases_who_waits_to_be_asked),
		cmocka_unit_test(test_hedge__of_none_asks_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
