/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/verbs_mock_rig.h"

#include "base/memory.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define OR(given, usual) ((given) ? (given) : (usual))

static void side_open(struct rig_side *side, uint32_t host, const struct rig_options *options)
{
	struct ibv_srq_init_attr srq = {
		.attr = {.max_wr = OR(options->receives, 64), .max_sge = 1}};
	unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	int entries = (int)OR(options->cq_entries, 256);
	const struct verbs_calls *calls = verbs_mock_calls(host);
	int count;

	*side = (struct rig_side){.calls = calls};
	side->list = calls->get_device_list(&count);
	side->context = calls->open_device(side->list[0]);
	side->pd = calls->alloc_pd(side->context);
	side->channel = calls->create_comp_channel(side->context);
	side->send_cq = calls->create_cq(side->context, entries, NULL, NULL);
	side->receive_cq = calls->create_cq(side->context, entries, NULL, side->channel);
	side->srq = calls->create_srq(side->pd, &srq);
	side->data = memory_aligned(4096, RIG_DATA_BYTES);
	side->flags = memory_aligned(4096, RIG_FLAG_BYTES);
	assert_true(side->send_cq && side->receive_cq && side->srq && side->data && side->flags);
	memset(side->data, 0, RIG_DATA_BYTES);
	memset(side->flags, 0, RIG_FLAG_BYTES);
	side->data_mr =
		calls->reg_mr(side->pd, side->data, RIG_DATA_BYTES, access | options->data_access);
	side->flag_mr = calls->reg_mr(side->pd, side->flags, RIG_FLAG_BYTES, access);
	assert_true(side->data_mr && side->flag_mr);
}

static void side_queues(struct rig_side *side, const struct rig_options *options)
{
	struct ibv_qp_init_attr attr = {.send_cq = side->send_cq,
					.recv_cq = side->receive_cq,
					.srq = side->srq,
					.cap = {.max_send_wr = OR(options->send_depth, 64),
						.max_send_sge = 1,
						.max_inline_data = 64},
					.qp_type = IBV_QPT_RC};

	for (int i = 0; i < RIG_QPS; i++) {
		side->qps[i] = side->calls->create_qp(side->pd, &attr);
		assert_non_null(side->qps[i]);
		assert_int_equal(rig_to_init(side->qps[i], side->calls), 0);
	}
}

int rig_to(struct ibv_qp *qp, const struct verbs_calls *calls, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return calls->modify_qp(qp, &attr, IBV_QP_STATE);
}

int rig_to_init(struct ibv_qp *qp, const struct verbs_calls *calls)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	return calls->modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int rig_to_rtr(struct ibv_qp *qp, const struct verbs_calls *calls, uint32_t host, uint32_t peer_qpn,
	       uint32_t psn, enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = mtu,
				   .dest_qp_num = peer_qpn,
				   .rq_psn = psn,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12};

	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = 3;
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.grh.dgid.raw[10] = attr.ah_attr.grh.dgid.raw[11] = 0xff;
	attr.ah_attr.grh.dgid.raw[12] = 10;
	attr.ah_attr.grh.dgid.raw[13] = 77;
	attr.ah_attr.grh.dgid.raw[15] = (unsigned char)(1 + host * 16);
	return calls->modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER);
}

int rig_to_rts(struct ibv_qp *qp, const struct verbs_calls *calls, uint32_t psn, uint32_t retry,
	       uint32_t rnr_retry)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .sq_psn = psn,
				   .timeout = 14,
				   .retry_cnt = (uint8_t)retry,
				   .rnr_retry = (uint8_t)rnr_retry,
				   .max_rd_atomic = 1};

	return calls->modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void rig_receives(struct rig *rig, uint32_t count)
{
	struct ibv_recv_wr wr = {.wr_id = 7}, *bad;

	while (count--)
		assert_int_equal(rig->b.calls->post_srq_recv(rig->b.srq, &wr, &bad), 0);
}

void rig_open(struct rig *rig, const struct rig_options *options)
{
	verbs_mock_open(&options->mock);
	side_open(&rig->a, 0, options);
	side_open(&rig->b, 1, options);
	side_queues(&rig->a, options);
	side_queues(&rig->b, options);
	for (uint32_t i = 0; i < RIG_QPS; i++) {
		struct ibv_qp *a = rig->a.qps[i], *b = rig->b.qps[i];

		assert_int_equal(rig_to_rtr(a, rig->a.calls, 1, b->qp_num, 40 + i, IBV_MTU_4096),
				 0);
		assert_int_equal(rig_to_rtr(b, rig->b.calls, 0, a->qp_num, 90 + i, IBV_MTU_4096),
				 0);
		assert_int_equal(
			rig_to_rts(a, rig->a.calls, 90 + i, options->retry, options->rnr_retry), 0);
		assert_int_equal(
			rig_to_rts(b, rig->b.calls, 40 + i, options->retry, options->rnr_retry), 0);
	}
}

static void side_close(struct rig_side *side)
{
	const struct verbs_calls *calls = side->calls;

	for (int i = 0; i < RIG_QPS; i++)
		if (side->qps[i])
			calls->destroy_qp(side->qps[i]);
	calls->destroy_srq(side->srq);
	calls->destroy_cq(side->send_cq);
	calls->destroy_cq(side->receive_cq);
	calls->destroy_comp_channel(side->channel);
	calls->dereg_mr(side->data_mr);
	calls->dereg_mr(side->flag_mr);
	calls->dealloc_pd(side->pd);
	calls->close_device(side->context);
	calls->free_device_list(side->list);
	memory_free(side->data);
	memory_free(side->flags);
}

void rig_close(struct rig *rig)
{
	side_close(&rig->a);
	side_close(&rig->b);
	assert_int_equal(verbs_mock_alive(), 0);
	verbs_mock_close();
}

int rig_post(struct rig *rig, const struct rig_write *write)
{
	struct rig_side *a = &rig->a, *b = &rig->b;
	struct ibv_sge sge = {.addr = (uintptr_t)(write->flag ? a->flags : a->data) + write->offset,
			      .length = write->bytes,
			      .lkey = (write->flag ? a->flag_mr : a->data_mr)->lkey};
	struct ibv_send_wr wr = {.wr_id = write->wr_id,
				 .sg_list = &sge,
				 .num_sge = write->bytes ? 1 : 0,
				 .opcode = write->with_imm ? IBV_WR_RDMA_WRITE_WITH_IMM
							   : IBV_WR_RDMA_WRITE,
				 .send_flags = write->unsignalled ? 0 : IBV_SEND_SIGNALED,
				 .imm_data = write->imm};
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)(write->flag ? b->flags : b->data) +
				 (write->to_start ? 0 : write->offset);
	wr.wr.rdma.rkey = (write->flag ? b->flag_mr : b->data_mr)->rkey;
	return a->calls->post_send(a->qps[write->qp], &wr, &bad);
}

bool rig_poll(const struct rig_side *side, struct ibv_cq *cq, uint32_t turns, struct ibv_wc *wc)
{
	while (turns--)
		if (side->calls->poll_cq(cq, 1, wc) == 1)
			return true;
	return false;
}
