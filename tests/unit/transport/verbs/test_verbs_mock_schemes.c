/* SPDX-License-Identifier: Apache-2.0
 *
 * Ways to tell a target that its bytes are there, straight over the mock network: the wrong ones
 * must be caught within a few schedules, or the mock proves nothing about the right one.
 *
 *   right   the last request of every queue pair is WRITE_WITH_IMM, and the target counts them
 *           in order on one queue pair, when the device promises to place in order
 *   wrong   a flag by WRITE on another queue pair; a flag behind relaxed data; a message after the
 *           sender's completions; an immediate on one of two queue pairs
 */
#include "tests/support/verbs_mock_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCHEDULES 20000
#else
#define SCHEDULES 1000000
#endif
#define WRONG_SCHEDULES 2000
#define WRITES		2 /* per queue pair */
#define WRITE_BYTES	192

enum tell { TELL_IMM_ON_ALL, TELL_IMM_ON_ONE, TELL_FLAG_SAME, TELL_FLAG_OTHER, TELL_COMPLETIONS };

static void fill(unsigned char *at, uint64_t version, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i += 8)
		memcpy(at + i, &version, 8);
}

static bool whole(const struct rig *rig, uint64_t version, uint32_t qps)
{
	uint64_t word;

	for (uint32_t i = 0; i < qps * WRITES * WRITE_BYTES; i += 8) {
		memcpy(&word, rig->b.data + i, 8);
		if (word != version)
			return false;
	}
	return true;
}

static void post(struct rig *rig, const struct rig_write *write)
{
	assert_int_equal(rig_post(rig, write), 0);
}

static uint32_t qps_of(enum tell tell)
{
	return tell == TELL_FLAG_SAME || tell == TELL_FLAG_OTHER ? 1 : RIG_QPS;
}

static void say(struct rig *rig, enum tell tell, uint64_t version)
{
	uint32_t qps = qps_of(tell);

	fill(rig->a.data, version, qps * WRITES * WRITE_BYTES);
	fill(rig->a.flags, version, 8);
	for (uint32_t i = 0; i < qps * WRITES; i++)
		post(rig, &(struct rig_write){.qp = i % qps,
					      .offset = i * WRITE_BYTES,
					      .bytes = WRITE_BYTES,
					      .wr_id = i});
	for (uint32_t qp = 0; qp < RIG_QPS; qp++)
		if (tell == TELL_IMM_ON_ALL || (tell == TELL_IMM_ON_ONE && qp == 0))
			post(rig, &(struct rig_write){.qp = qp, .with_imm = true});
	if (tell == TELL_FLAG_SAME || tell == TELL_FLAG_OTHER)
		post(rig,
		     &(struct rig_write){.qp = tell == TELL_FLAG_OTHER, .flag = true, .bytes = 8});
}

/* The target has been told. */
static bool told(struct rig *rig, enum tell tell, uint64_t version, uint32_t *heard)
{
	struct ibv_wc done[8];
	uint64_t flag;

	switch (tell) {
	case TELL_IMM_ON_ALL:
	case TELL_IMM_ON_ONE:
		*heard += (uint32_t)rig->b.calls->poll_cq(rig->b.receive_cq, 8, done);
		return *heard == (tell == TELL_IMM_ON_ALL ? RIG_QPS : 1);
	case TELL_COMPLETIONS:
		*heard += (uint32_t)rig->a.calls->poll_cq(rig->a.send_cq, 8, done);
		return *heard == RIG_QPS * WRITES;
	default:
		verbs_mock_pump(1);
		memcpy(&flag, rig->b.flags, 8);
		return flag == version;
	}
}

static void settle(struct rig *rig, uint32_t receives)
{
	struct ibv_wc done[16];

	while (verbs_mock_pending())
		verbs_mock_pump(8);
	while (rig->a.calls->poll_cq(rig->a.send_cq, 16, done) > 0)
		;
	while (rig->b.calls->poll_cq(rig->b.receive_cq, 16, done) > 0)
		;
	rig_receives(rig, receives);
}

static uint32_t violations(const struct rig_options *options, enum tell tell, uint32_t schedules)
{
	uint32_t receives = tell == TELL_IMM_ON_ALL ? RIG_QPS : tell == TELL_IMM_ON_ONE;
	uint32_t wrong = 0;
	struct rig rig;

	rig_open(&rig, options);
	rig_receives(&rig, receives);
	for (uint64_t version = 1; version <= schedules; version++) {
		uint32_t heard = 0;

		verbs_mock_seed(version * 7919);
		say(&rig, tell, version);
		while (!told(&rig, tell, version, &heard))
			;
		wrong += !whole(&rig, version, qps_of(tell));
		settle(&rig, receives);
	}
	assert_string_equal(verbs_mock_violation(), "");
	rig_close(&rig);
	return wrong;
}

static const struct rig_options relaxed = {.data_access = IBV_ACCESS_RELAXED_ORDERING, .retry = 6};
static const struct rig_options strict = {.mock = {.strict_placement = true}, .retry = 6};
static const struct rig_options strict_relaxed = {
	.mock = {.strict_placement = true}, .data_access = IBV_ACCESS_RELAXED_ORDERING, .retry = 6};

static void test_scheme__an_immediate_last_on_every_queue_pair_is_never_early(void **state)
{
	(void)state;
	assert_int_equal(violations(&relaxed, TELL_IMM_ON_ALL, SCHEDULES), 0);
}

static void test_scheme__a_flag_behind_strict_data_on_one_queue_pair_is_never_early(void **state)
{
	(void)state;
	assert_int_equal(violations(&strict, TELL_FLAG_SAME, SCHEDULES / 10), 0);
}

static void test_scheme__a_flag_on_another_queue_pair_is_caught(void **state)
{
	(void)state;
	assert_true(violations(&relaxed, TELL_FLAG_OTHER, WRONG_SCHEDULES) > 0);
	assert_true(violations(&strict, TELL_FLAG_OTHER, WRONG_SCHEDULES) > 0);
}

static void test_scheme__a_flag_behind_relaxed_data_is_caught(void **state)
{
	(void)state;
	assert_true(violations(&relaxed, TELL_FLAG_SAME, WRONG_SCHEDULES) > 0);
	assert_true(violations(&strict_relaxed, TELL_FLAG_SAME, WRONG_SCHEDULES) > 0);
}

static void test_scheme__a_message_after_the_senders_completions_is_caught(void **state)
{
	(void)state;
	assert_true(violations(&strict, TELL_COMPLETIONS, WRONG_SCHEDULES) > 0);
}

static void test_scheme__an_immediate_on_one_of_two_queue_pairs_is_caught(void **state)
{
	(void)state;
	assert_true(violations(&strict, TELL_IMM_ON_ONE, WRONG_SCHEDULES) > 0);
}

static void test_scheme__a_network_that_lets_immediates_overtake_is_caught(void **state)
{
	struct rig_options lies = relaxed;

	(void)state;
	lies.mock.imm_overtakes = true;
	assert_true(violations(&lies, TELL_IMM_ON_ALL, WRONG_SCHEDULES) > 0);
}

/* A slot's bank is written anew while its last write may still not be placed. */
static uint32_t stays_old(const struct rig_options *options)
{
	uint32_t wrong = 0;
	struct rig rig;

	rig_open(&rig, options);
	for (uint64_t version = 1; version <= WRONG_SCHEDULES; version++) {
		uint64_t kept;

		verbs_mock_seed(version * 7919);
		for (uint64_t part = 0; part < 2; part++) {
			fill(rig.a.data + part * 8, version * 2 + part, 8);
			post(&rig, &(struct rig_write){.offset = (uint32_t)part * 8,
						       .to_start = true,
						       .bytes = 8});
		}
		settle(&rig, 0);
		memcpy(&kept, rig.b.data, 8);
		wrong += kept != version * 2 + 1;
	}
	rig_close(&rig);
	return wrong;
}

static void test_writes__to_the_same_bytes_land_in_their_order_unless_relaxed(void **state)
{
	static const struct rig_options usual = {.retry = 6};

	(void)state;
	assert_int_equal(stays_old(&usual), 0);
	assert_true(stays_old(&relaxed) > 0);
}

static void test_schedules__are_the_same_from_the_same_seed(void **state)
{
	uint64_t trace[2][40];

	(void)state;
	for (int run = 0; run < 2; run++) {
		struct rig rig;

		rig_open(&rig, &relaxed);
		rig_receives(&rig, RIG_QPS);
		verbs_mock_seed(5);
		say(&rig, TELL_IMM_ON_ALL, 1);
		for (int i = 0; i < 40; i++) {
			uint64_t sum = 0;

			verbs_mock_pump(1);
			for (int at = 0; at < WRITES * RIG_QPS * WRITE_BYTES; at++)
				sum = sum * 31 + rig.b.data[at];
			trace[run][i] = sum;
		}
		rig_close(&rig);
	}
	assert_memory_equal(trace[0], trace[1], sizeof(trace[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scheme__a_flag_on_another_queue_pair_is_caught),
		cmocka_unit_test(test_scheme__a_flag_behind_relaxed_data_is_caught),
		cmocka_unit_test(test_scheme__a_message_after_the_senders_completions_is_caught),
		cmocka_unit_test(test_scheme__an_immediate_on_one_of_two_queue_pairs_is_caught),
		cmocka_unit_test(test_scheme__a_network_that_lets_immediates_overtake_is_caught),
		cmocka_unit_test(test_writes__to_the_same_bytes_land_in_their_order_unless_relaxed),
		cmocka_unit_test(test_schedules__are_the_same_from_the_same_seed),
		cmocka_unit_test(
			test_scheme__a_flag_behind_strict_data_on_one_queue_pair_is_never_early),
		cmocka_unit_test(test_scheme__an_immediate_last_on_every_queue_pair_is_never_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
