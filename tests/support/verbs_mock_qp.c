/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue pairs: their states with the attributes that each change must carry, and posting.
 */
#include "tests/support/verbs_mock_parts.h"

#include <stdlib.h>
#include <string.h>

struct mock_qp *mock_qp_of(const struct ibv_qp *qp)
{
	return MOCK_OF(qp, qp);
}

static int qp_fault(struct mock_qp *qp, enum verbs_mock_call call)
{
	int rc = mock_fault(call);

	if (!mock_object_ok(&qp->head, MOCK_QP, verbs_mock_call_name(call)))
		return EINVAL;
	return rc < 0 && qp->head.device->dead ? EIO : rc;
}

/* ---- life ---- */

static int create_check(struct ibv_pd *pd, const struct ibv_qp_cap *cap, enum ibv_qp_type type)
{
	const struct verbs_mock_options *options = &mock_fabric.options;

	if (!mock_object_ok(&MOCK_OF(pd, pd)->head, MOCK_PD, "create_qp"))
		return EINVAL;
	if (type != IBV_QPT_RC)
		return EOPNOTSUPP;
	if (options->max_qp_wr && cap->max_send_wr > options->max_qp_wr) {
		mock_violation("create_qp: %u requests, of at most %u", cap->max_send_wr,
			       options->max_qp_wr);
		return EINVAL;
	}
	if (cap->max_inline_data > 512 || cap->max_send_sge > 30)
		return EINVAL;
	if (options->max_qp && (uint32_t)mock_fabric.alive[MOCK_QP] >= options->max_qp)
		return ENOMEM;
	return -1;
}

static struct mock_qp *qp_new(struct ibv_pd *pd, const struct ibv_qp_init_attr_ex *attr)
{
	struct mock_qp *qp = mock_memory(sizeof(*qp)), **place = array_push(&mock_fabric.qps);
	struct ibv_qp *base = &qp->ibv.qp_base;

	if (!place)
		abort();
	*place = qp;
	base->context = pd->context;
	base->pd = pd;
	base->send_cq = attr->send_cq;
	base->recv_cq = attr->recv_cq;
	base->srq = attr->srq;
	base->qp_context = attr->qp_context;
	base->qp_type = attr->qp_type;
	base->state = IBV_QPS_RESET;
	base->qp_num = mock_fabric.qpn_base + (uint32_t)mock_fabric.qps.count - 1;
	qp->cap = attr->cap;
	qp->good_until = UINT64_MAX;
	qp->ring_size = 16;
	qp->ring = mock_memory(qp->ring_size * sizeof(qp->ring[0]));
	mock_object_new(&qp->head, MOCK_QP, mock_device_of(pd->context));
	MOCK_OF(pd, pd)->head.children++;
	MOCK_OF(cq, attr->send_cq)->head.children++;
	MOCK_OF(cq, attr->recv_cq)->head.children++;
	if (attr->srq)
		MOCK_OF(srq, attr->srq)->head.children++;
	return qp;
}

struct ibv_qp *mock_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex full = {.qp_context = attr->qp_context,
					   .send_cq = attr->send_cq,
					   .recv_cq = attr->recv_cq,
					   .srq = attr->srq,
					   .cap = attr->cap,
					   .qp_type = attr->qp_type};
	struct mock_qp *qp;
	int rc;

	mock_lock();
	rc = mock_fault(VERBS_MOCK_create_qp);
	if (rc < 0 && mock_device_of(pd->context)->dead)
		rc = EIO;
	if (rc < 0)
		rc = create_check(pd, &attr->cap, attr->qp_type);
	if (rc >= 0)
		return mock_null(rc);
	if (attr->sq_sig_all)
		mock_violation("create_qp: sq_sig_all");
	qp = qp_new(pd, &full);
	mock_unlock();
	return &qp->ibv.qp_base;
}

struct ibv_qp *mock_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct mock_qp *qp;
	int rc;

	mock_lock();
	rc = mock_fault(VERBS_MOCK_create_qp_ex);
	if (rc < 0 && mock_device_of(context)->dead)
		rc = EIO;
	if (rc < 0 && mock_fabric.options.no_send_ops)
		rc = EOPNOTSUPP;
	if (rc < 0 && (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd))
		rc = EINVAL;
	if (rc < 0)
		rc = create_check(attr->pd, &attr->cap, attr->qp_type);
	if (rc >= 0)
		return mock_null(rc);
	qp = qp_new(attr->pd, attr);
	qp->extended = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	mock_unlock();
	return &qp->ibv.qp_base;
}

struct ibv_qp_ex *mock_qp_to_qp_ex(struct ibv_qp *qp)
{
	return mock_qp_of(qp)->extended ? &mock_qp_of(qp)->ibv : NULL;
}

/* Requests that were not sent never are; what the sender has not been told of it never is. */
static void silence(struct mock_qp *qp)
{
	for (uint64_t i = qp->sent; i < qp->tail; i++)
		mock_request_at(qp, i)->dead = true;
	qp->sent = qp->acked = qp->polled = qp->stray_below = qp->tail;
	qp->broken = false;
}

int mock_destroy_qp(struct ibv_qp *base)
{
	struct mock_qp *qp = mock_qp_of(base);
	bool keep;
	int failed;

	mock_lock();
	failed = mock_fault(VERBS_MOCK_destroy_qp);
	if (!mock_object_ok(&qp->head, MOCK_QP, "destroy_qp"))
		return mock_positive(EINVAL);
	if (qp->batching)
		mock_violation("destroy_qp: inside a batch");
	mock_qp_deafen(qp, true);
	silence(qp);
	keep = mock_random(2);
	mock_cq_purge(MOCK_OF(cq, base->send_cq), qp, keep);
	mock_cq_purge(MOCK_OF(cq, base->recv_cq), qp, keep);
	mock_event_drop(base->context, &qp->head);
	mock_object_end(&qp->head, "destroy_qp");
	MOCK_OF(pd, base->pd)->head.children--;
	MOCK_OF(cq, base->send_cq)->head.children--;
	MOCK_OF(cq, base->recv_cq)->head.children--;
	if (base->srq)
		MOCK_OF(srq, base->srq)->head.children--;
	if (failed >= 0)
		return mock_positive(failed);
	mock_unlock();
	return 0;
}

/* ---- states ---- */

struct transition {
	enum ibv_qp_state from, to;
	int required, optional;
};

static const struct transition transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT,
	 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, IBV_QP_STATE,
	 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

static int transition_check(const struct mock_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = qp->ibv.qp_base.state;

	if (!(mask & IBV_QP_STATE))
		return EINVAL;
	if (attr->qp_state == IBV_QPS_ERR || attr->qp_state == IBV_QPS_RESET)
		return mask == IBV_QP_STATE ? 0 : EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(transitions); i++) {
		const struct transition *row = &transitions[i];

		if (row->from != from || row->to != attr->qp_state)
			continue;
		if ((mask & row->required) == row->required &&
		    (mask & ~(row->required | row->optional)) == 0)
			return 0;
	}
	return EINVAL;
}

static bool range_ok(const struct mock_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	uint32_t mtu = mock_fabric.options.mtu[qp->head.device->host];

	return (!(mask & IBV_QP_PORT) ||
		(attr->port_num >= 1 && attr->port_num <= mock_fabric.options.ports)) &&
	       (!(mask & IBV_QP_PKEY_INDEX) || attr->pkey_index < 2) &&
	       (!(mask & IBV_QP_PATH_MTU) ||
		(attr->path_mtu >= IBV_MTU_256 && attr->path_mtu <= IBV_MTU_4096 &&
		 128u << attr->path_mtu <= mtu)) &&
	       (!(mask & IBV_QP_DEST_QPN) || attr->dest_qp_num < 1u << 24) &&
	       (!(mask & IBV_QP_RQ_PSN) || attr->rq_psn < 1u << 24) &&
	       (!(mask & IBV_QP_SQ_PSN) || attr->sq_psn < 1u << 24) &&
	       (!(mask & IBV_QP_MIN_RNR_TIMER) || attr->min_rnr_timer < 32) &&
	       (!(mask & IBV_QP_TIMEOUT) || attr->timeout < 32) &&
	       (!(mask & IBV_QP_RETRY_CNT) || attr->retry_cnt < 8) &&
	       (!(mask & IBV_QP_RNR_RETRY) || attr->rnr_retry < 8) &&
	       (!(mask & IBV_QP_MAX_DEST_RD_ATOMIC) || attr->max_dest_rd_atomic <= 16) &&
	       (!(mask & IBV_QP_MAX_QP_RD_ATOMIC) || attr->max_rd_atomic <= 16);
}

/* The device that has this address, or NULL. */
static const struct mock_device *by_gid(const union ibv_gid *gid)
{
	for (uint32_t host = 0; host < VERBS_MOCK_HOSTS; host++)
		for (uint32_t nic = 0; nic < mock_fabric.options.nics; nic++)
			for (uint32_t at = 0; at < 2 * MOCK_GIDS; at++) {
				const struct mock_device *device = &mock_fabric.devices[host][nic];

				if (memcmp(&device->gids[at / MOCK_GIDS][at % MOCK_GIDS].gid, gid,
					   sizeof(*gid)) == 0)
					return device;
			}
	return NULL;
}

static const struct mock_device *by_lid(uint32_t lid)
{
	for (uint32_t host = 0; host < VERBS_MOCK_HOSTS; host++)
		for (uint32_t nic = 0; nic < mock_fabric.options.nics; nic++) {
			const struct mock_device *device = &mock_fabric.devices[host][nic];

			if (device->lid[0] == lid || device->lid[1] == lid)
				return device;
		}
	return NULL;
}

/* To RTR: the address must be there, of a kind that this link has, and found. */
static int route(const struct mock_qp *qp, const struct ibv_ah_attr *ah)
{
	const struct verbs_mock_options *options = &mock_fabric.options;
	static const union ibv_gid none;
	const struct mock_device *peer;
	const struct mock_gid *row;

	if (ah->port_num != qp->attr.port_num) {
		mock_violation("modify_qp: the address is of another port");
		return EINVAL;
	}
	if (!ah->is_global) {
		if (!options->infiniband)
			mock_violation("modify_qp: RoCE needs a global address");
		return options->infiniband && by_lid(ah->dlid) ? 0 : EINVAL;
	}
	if (ah->grh.sgid_index >= MOCK_GIDS)
		return EINVAL;
	row = &qp->head.device->gids[ah->port_num - 1][ah->grh.sgid_index];
	if (memcmp(&row->gid, &none, sizeof(none)) == 0)
		return EINVAL;
	peer = by_gid(&ah->grh.dgid);
	if (!peer || (options->unrouted &&
		      options->subnets[peer->nic] != options->subnets[qp->head.device->nic]))
		return options->infiniband ? EINVAL : ETIMEDOUT;
	return peer->active[0] || peer->active[1] ? 0 : ETIMEDOUT;
}

static void attributes_take(struct mock_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

	if (mask & IBV_QP_PORT)
		to->port_num = attr->port_num;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = attr->pkey_index;
	if (mask & IBV_QP_ACCESS_FLAGS)
		to->qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_AV)
		to->ah_attr = attr->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		to->dest_qp_num = attr->dest_qp_num;
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = attr->rq_psn;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = attr->sq_psn;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = attr->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = attr->rnr_retry;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = attr->min_rnr_timer;
}

static int transition_do(struct mock_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp *base = &qp->ibv.qp_base;
	int rc;

	switch (attr->qp_state) {
	case IBV_QPS_RTR:
		rc = route(qp, &attr->ah_attr);
		if (rc)
			return rc;
		break;
	case IBV_QPS_ERR:
		mock_qp_deafen(qp, false);
		mock_qp_break(qp, IBV_WC_WR_FLUSH_ERR);
		base->state = IBV_QPS_ERR;
		return 0;
	case IBV_QPS_RESET:
		mock_qp_deafen(qp, true);
		silence(qp);
		mock_cq_purge(MOCK_OF(cq, base->send_cq), qp, false);
		mock_cq_purge(MOCK_OF(cq, base->recv_cq), qp, false);
		break;
	default:
		break;
	}
	attributes_take(qp, attr, mask);
	base->state = attr->qp_state;
	qp->path_checked = false;
	return 0;
}

int mock_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct mock_qp *qp = mock_qp_of(base);
	int rc;

	mock_lock();
	rc = qp_fault(qp, VERBS_MOCK_modify_qp);
	if (rc >= 0)
		return mock_positive(rc);
	rc = transition_check(qp, attr, mask);
	if (rc)
		mock_violation("modify_qp: from state %d to %d with mask 0x%x", (int)base->state,
			       (int)attr->qp_state, (unsigned)mask);
	if (!rc && !range_ok(qp, attr, mask)) {
		mock_violation("modify_qp: an attribute of state %d is out of range",
			       (int)attr->qp_state);
		rc = EINVAL;
	}
	if (!rc)
		rc = transition_do(qp, attr, mask);
	if (rc)
		return mock_positive(rc);
	mock_unlock();
	return 0;
}

/* ---- posting ---- */

/* 0: there is room. Real devices answer ENOMEM here, or run over the queue. */
static int room(const struct mock_qp *qp, uint32_t more)
{
	if (qp->tail + more - qp->polled < qp->cap.max_send_wr)
		return 0;
	mock_violation("a send queue of %u requests overflowed", qp->cap.max_send_wr);
	return mock_fabric.options.post_enomem ? ENOMEM : 0;
}

static void append(struct mock_qp *qp, struct mock_request *request)
{
	if (qp->tail - qp->base == qp->ring_size) {
		uint64_t size = qp->ring_size * 2;
		struct mock_request **ring = mock_memory(size * sizeof(ring[0]));

		for (uint64_t i = qp->base; i < qp->tail; i++)
			ring[i & (size - 1)] = qp->ring[i & (qp->ring_size - 1)];
		free(qp->ring);
		qp->ring = ring;
		qp->ring_size = size;
	}
	request->dead = qp->broken || qp->ibv.qp_base.state != IBV_QPS_RTS;
	qp->ring[qp->tail++ & (qp->ring_size - 1)] = request;
	mock_active_add(qp);
}

static int postable(const struct mock_qp *qp, const char *call)
{
	enum ibv_qp_state state = qp->ibv.qp_base.state;

	if (state == IBV_QPS_RTS || state == IBV_QPS_ERR || state == IBV_QPS_SQE)
		return 0;
	mock_violation("%s: in state %d", call, (int)state);
	return EINVAL;
}

static void inline_copy(struct mock_qp *qp, struct mock_request *request)
{
	if (request->bytes > qp->cap.max_inline_data || request->bytes > sizeof(request->small)) {
		mock_violation("%u inline bytes, of at most %u", request->bytes,
			       qp->cap.max_inline_data);
		return;
	}
	request->inlined = true;
	memcpy(request->small, (const void *)(uintptr_t)request->local, request->bytes);
}

static int send_one(struct mock_qp *qp, const struct ibv_send_wr *wr)
{
	struct mock_request *request;
	int rc = room(qp, 0);

	if (rc)
		return rc;
	if ((wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM) ||
	    wr->num_sge > 1) {
		mock_violation("post_send: opcode %d with %d pieces", (int)wr->opcode, wr->num_sge);
		return EINVAL;
	}
	request = mock_request_new(qp);
	request->wr_id = wr->wr_id;
	request->address = wr->wr.rdma.remote_addr;
	request->rkey = wr->wr.rdma.rkey;
	request->with_imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	request->imm = wr->imm_data;
	request->signalled = wr->send_flags & IBV_SEND_SIGNALED;
	if (wr->num_sge == 1) {
		request->local = wr->sg_list->addr;
		request->lkey = wr->sg_list->lkey;
		request->bytes = wr->sg_list->length;
	}
	if (wr->send_flags & IBV_SEND_INLINE)
		inline_copy(qp, request);
	append(qp, request);
	return 0;
}

int mock_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct mock_qp *qp = mock_qp_of(base);
	int fault, rc;

	mock_lock();
	fault = qp_fault(qp, VERBS_MOCK_post_send);
	rc = qp->head.alive ? postable(qp, "post_send") : EINVAL;
	if (qp->batching)
		mock_violation("post_send: inside a batch of ibv_wr_*");
	for (uint32_t i = 0; wr; wr = wr->next, i++) {
		if (!rc && fault >= 0 && (i >= mock_fabric.fail_wr || !wr->next))
			rc = fault ? fault : -1;
		if (!rc)
			rc = send_one(qp, wr);
		if (rc)
			break;
	}
	if (rc) {
		*bad = wr;
		mock_unlock();
		errno = rc > 0 ? rc : 0;
		return rc;
	}
	mock_unlock();
	return 0;
}

void mock_wr_start(struct ibv_qp_ex *ex)
{
	struct mock_qp *qp = MOCK_OF(qp, ex);

	mock_lock();
	mock_fabric.called[VERBS_MOCK_wr_start]++;
	if (!mock_object_ok(&qp->head, MOCK_QP, "wr_start") || qp->batching || !qp->extended)
		mock_violation("wr_start: already inside a batch, or the queue pair has no ops");
	qp->batching = true;
	qp->batch_bad = false;
	qp->batch_owner = pthread_self();
	qp->batch_count = 0;
	mock_unlock();
}

static bool in_batch(struct mock_qp *qp, const char *call)
{
	if (qp->batching && pthread_equal(qp->batch_owner, pthread_self()))
		return true;
	mock_violation("%s: outside a batch of this thread", call);
	return false;
}

static void batch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, bool with_imm,
		      uint32_t imm)
{
	struct mock_qp *qp = MOCK_OF(qp, ex);
	struct mock_request *request;

	mock_lock();
	if (in_batch(qp, "wr_rdma_write") && qp->batch_count < ARRAY_SIZE(qp->batch)) {
		qp->batch_bad |= room(qp, qp->batch_count) != 0;
		request = mock_request_new(qp);
		request->wr_id = ex->wr_id;
		request->signalled = ex->wr_flags & IBV_SEND_SIGNALED;
		request->address = address;
		request->rkey = rkey;
		request->with_imm = with_imm;
		request->imm = imm;
		qp->batch[qp->batch_count++] = request;
	}
	mock_unlock();
}

void mock_wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address)
{
	batch_add(ex, rkey, address, false, 0);
}

void mock_wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, __be32 immediate)
{
	batch_add(ex, rkey, address, true, immediate);
}

void mock_wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t address, uint32_t bytes)
{
	struct mock_qp *qp = MOCK_OF(qp, ex);

	mock_lock();
	if (in_batch(qp, "wr_set_sge") && qp->batch_count) {
		struct mock_request *request = qp->batch[qp->batch_count - 1];

		request->lkey = lkey;
		request->local = address;
		request->bytes = bytes;
	}
	mock_unlock();
}

static void batch_drop(struct mock_qp *qp)
{
	for (uint32_t i = 0; i < qp->batch_count; i++)
		mock_request_free(qp->batch[i]);
	qp->batch_count = 0;
	qp->batching = false;
}

int mock_wr_complete(struct ibv_qp_ex *ex)
{
	struct mock_qp *qp = MOCK_OF(qp, ex);
	int fault, rc;

	mock_lock();
	fault = qp_fault(qp, VERBS_MOCK_wr_complete);
	rc = in_batch(qp, "wr_complete") && qp->head.alive ? postable(qp, "wr_complete") : EINVAL;
	if (!rc && qp->batch_bad)
		rc = ENOMEM;
	if (fault >= 0 || rc) {
		batch_drop(qp);
		return mock_positive(fault >= 0 ? fault : rc);
	}
	for (uint32_t i = 0; i < qp->batch_count; i++)
		append(qp, qp->batch[i]);
	qp->batch_count = 0;
	qp->batching = false;
	mock_unlock();
	return 0;
}
