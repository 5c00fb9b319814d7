/* SPDX-License-Identifier: Apache-2.0
 *
 * What the mock of libibverbs refuses, and what it notices: each rule broken once.
 */
#include "tests/support/verbs_mock_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct rig_options usual = {.retry = 3, .rnr_retry = 2};
static struct rig rig;

static void noticed(const char *what)
{
	if (!strstr(verbs_mock_violation(), what))
		fail_msg("expected a violation about \"%s\", and there is \"%s\"", what,
			 verbs_mock_violation());
}

static void settle(void)
{
	for (int i = 0; i < 5000 && verbs_mock_pending(); i++)
		verbs_mock_pump(1);
}

static int status_of_next(void)
{
	struct ibv_wc wc;

	return rig_poll(&rig.a, rig.a.send_cq, 20000, &wc) ? (int)wc.status : -1;
}

static void test_states__need_their_attributes_in_their_order(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

	(void)state;
	rig_open(&rig, &usual);
	assert_int_equal(rig_to(rig.a.qps[0], rig.a.calls, IBV_QPS_RESET), 0);
	assert_int_equal(rig.a.calls->modify_qp(rig.a.qps[0], &attr, IBV_QP_STATE), EINVAL);
	noticed("modify_qp");
	rig_close(&rig);
}

static void test_send_queue__that_overflows_is_noticed(void **state)
{
	(void)state;
	rig_open(&rig, &usual);
	for (uint32_t i = 0; i < 65; i++)
		rig_post(&rig, &(struct rig_write){.bytes = 8, .unsignalled = true});
	noticed("send queue");
	settle();
	rig_close(&rig);
}

static void test_completion_queue__that_overflows_loses_and_raises_an_event(void **state)
{
	struct rig_options small = usual;
	struct ibv_async_event event;

	(void)state;
	small.cq_entries = 4;
	rig_open(&rig, &small);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(rig_post(&rig, &(struct rig_write){.bytes = 8}), 0);
	settle();
	noticed("overflowed");
	assert_int_equal(rig.a.calls->get_async_event(rig.a.context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	rig.a.calls->ack_async_event(&event);
	assert_int_equal(rig.a.calls->get_async_event(rig.a.context, &event), 0);
	rig.a.calls->ack_async_event(&event);
	rig_close(&rig);
}

static void test_immediate__without_a_receive_fails_after_its_tries(void **state)
{
	(void)state;
	rig_open(&rig, &usual);
	assert_int_equal(rig_post(&rig, &(struct rig_write){.with_imm = true}), 0);
	assert_int_equal(status_of_next(), IBV_WC_RNR_RETRY_EXC_ERR);
	rig_close(&rig);
}

static void test_write__with_a_key_that_is_gone_fails_and_the_rest_is_flushed(void **state)
{
	(void)state;
	rig_open(&rig, &usual);
	assert_int_equal(rig_post(&rig, &(struct rig_write){.bytes = 8}), 0);
	settle();
	assert_int_equal(rig.b.calls->dereg_mr(rig.b.data_mr), 0);
	assert_int_equal(rig_post(&rig, &(struct rig_write){.bytes = 8, .wr_id = 1}), 0);
	assert_int_equal(rig_post(&rig, &(struct rig_write){.bytes = 8, .wr_id = 2}), 0);
	assert_int_equal(status_of_next(), IBV_WC_SUCCESS);
	assert_int_equal(status_of_next(), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(status_of_next(), IBV_WC_WR_FLUSH_ERR);
	rig_close(&rig);
}

static void test_reset__drops_without_a_word_and_error_flushes_everything(void **state)
{
	struct ibv_wc wc;

	(void)state;
	rig_open(&rig, &usual);
	verbs_mock_link(0, 0, false);
	for (uint32_t qp = 0; qp < 2; qp++)
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(rig_post(&rig, &(struct rig_write){.qp = qp,
									    .bytes = 8,
									    .unsignalled = true}),
					 0);
	assert_int_equal(rig_to(rig.a.qps[0], rig.a.calls, IBV_QPS_RESET), 0);
	assert_int_equal(rig_to(rig.a.qps[1], rig.a.calls, IBV_QPS_ERR), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(status_of_next(), IBV_WC_WR_FLUSH_ERR);
	assert_false(rig_poll(&rig.a, rig.a.send_cq, 1000, &wc));
	rig_close(&rig);
}

static void test_link__that_is_down_ends_in_retries_exhausted(void **state)
{
	(void)state;
	rig_open(&rig, &usual);
	verbs_mock_link(1, 0, false);
	assert_int_equal(rig_post(&rig, &(struct rig_write){.bytes = 8}), 0);
	assert_int_equal(status_of_next(), IBV_WC_RETRY_EXC_ERR);
	rig_close(&rig);
}

static void test_objects__used_after_their_end_are_noticed(void **state)
{
	struct ibv_qp *qp;

	(void)state;
	rig_open(&rig, &usual);
	qp = rig.a.qps[0];
	rig.a.qps[0] = NULL;
	assert_int_equal(rig.a.calls->destroy_qp(qp), 0);
	assert_int_equal(rig_to(qp, rig.a.calls, IBV_QPS_ERR), EINVAL);
	noticed("destroyed");
	rig_close(&rig);
}

static void test_events__that_are_not_acknowledged_would_block(void **state)
{
	struct ibv_async_event event;
	struct ibv_qp *qp;

	(void)state;
	rig_open(&rig, &usual);
	assert_true(verbs_mock_event(0, 0, IBV_EVENT_QP_FATAL, 0));
	assert_int_equal(rig.a.calls->get_async_event(rig.a.context, &event), 0);
	qp = event.element.qp;
	for (int i = 0; i < RIG_QPS; i++)
		if (rig.a.qps[i] == qp)
			rig.a.qps[i] = NULL;
	rig.a.calls->destroy_qp(qp);
	noticed("not acknowledged");
	rig_close(&rig);
}

#define TEST(name) cmocka_unit_test(test_##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(states__need_their_attributes_in_their_order),
		TEST(send_queue__that_overflows_is_noticed),
		TEST(completion_queue__that_overflows_loses_and_raises_an_event),
		TEST(immediate__without_a_receive_fails_after_its_tries),
		TEST(write__with_a_key_that_is_gone_fails_and_the_rest_is_flushed),
		TEST(reset__drops_without_a_word_and_error_flushes_everything),
		TEST(link__that_is_down_ends_in_retries_exhausted),
		TEST(objects__used_after_their_end_are_noticed),
		TEST(events__that_are_not_acknowledged_would_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
