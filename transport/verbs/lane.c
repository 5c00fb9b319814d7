/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.c -- one queue pair's life: INIT, RTR, RTS, ERR, gone.
 *
 * Both ends are brought up from records; nothing is asked of a connection manager. A queue pair
 * is never reset and used again: after its death the number is not ours any more, and a late
 * message of the old life names a queue pair that does not exist.
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <stdio.h>

#define HOP_LIMIT 64
#define READS_MAX 4 /* nobody reads here; some devices refuse a limit of none */
#define GID_ROWS  1024
#define SEND_OPS  (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
#define RTR_MASK                                                                        \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                               \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
	 IBV_QP_MAX_QP_RD_ATOMIC)

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

const char *verbs_lane_text(const struct verbs_lane *lane, char text[VERBS_LANE_TEXT_BYTES])
{
	char local[VERBS_SIDE_TEXT_BYTES], remote[VERBS_SIDE_TEXT_BYTES];

	snprintf(text, VERBS_LANE_TEXT_BYTES, "%s -> %s", verbs_side_text(&lane->local, local),
		 verbs_side_text(&lane->remote, remote));
	return text;
}

/* ---- create ---- */

/* Members of both kinds of attributes. */
#define QP_OF(lane)                                                                      \
	.send_cq = (lane)->endpoint->send_cqs[(lane)->nic->index],                       \
	.recv_cq = (lane)->nic->receive_cq, .srq = (lane)->nic->srq,                     \
	.cap = {.max_send_wr = (lane)->depth, .max_send_sge = 1}, .qp_type = IBV_QPT_RC, \
	.sq_sig_all = 0

static struct ibv_qp *create_new(struct verbs_lane *lane)
{
	struct verbs_nic *nic = lane->nic;
	const struct verbs_calls *calls = nic->domain->calls;
	struct ibv_qp_init_attr_ex attr = {
		QP_OF(lane),
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = nic->pd,
		.send_ops_flags = SEND_OPS,
	};
	struct ibv_qp *qp;

	errno = 0;
	qp = calls->create_qp_ex(nic->context, &attr);
	if (qp)
		lane->qp_ex = calls->qp_to_qp_ex(qp);
	if (qp && !lane->qp_ex) {
		calls->destroy_qp(qp);
		errno = EOPNOTSUPP;
		return NULL;
	}
	return qp;
}

static struct ibv_qp *create_old(struct verbs_lane *lane)
{
	struct verbs_nic *nic = lane->nic;
	struct ibv_qp_init_attr attr = {QP_OF(lane)};

	errno = 0;
	return nic->domain->calls->create_qp(nic->pd, &attr);
}

/* A device without the newer way of posting gets the older one, unless that was ruled out. */
static int create_qp(struct verbs_lane *lane, struct error *error)
{
	struct verbs_nic *nic = lane->nic;
	enum verbs_tristate wanted = nic->domain->settings.new_post;

	if (wanted == VERBS_ON || (wanted == VERBS_AUTO && nic->new_post)) {
		lane->qp = create_new(lane);
		if (lane->qp || wanted == VERBS_ON)
			goto out;
		log_info("%s: no ibv_wr_* for RDMA writes here (%s); ibv_post_send is used",
			 nic->limits.name, errno ? strerror(errno) : "no reason was given");
		nic->new_post = false;
	}
	lane->qp = create_old(lane);
out:
	if (lane->qp)
		return 0;
	return verbs_step_error(error, VERBS_STEP_QP, nic->limits.name, verbs_errno(-1),
				"creating a queue pair of %u requests for %s%s", lane->depth,
				lane->endpoint->shared->name,
				wanted == VERBS_ON ? " with ibv_wr_*, as was asked for" : "");
}

/* A peer may write here and do nothing else. */
static int to_init(struct verbs_lane *lane, struct error *error)
{
	struct verbs_nic *nic = lane->nic;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = (uint16_t)nic->pkey_index,
		.port_num = nic->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	int rc = nic->domain->calls->modify_qp(lane->qp, &attr,
					       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						       IBV_QP_ACCESS_FLAGS);

	if (!rc)
		return 0;
	return verbs_step_error(error, VERBS_STEP_INIT, nic->limits.name, verbs_errno(rc),
				"moving queue pair %#x on port %u to INIT", lane->local.qpn,
				nic->port);
}

static void fill_local(struct verbs_lane *lane)
{
	const struct verbs_nic *nic = lane->nic;

	lane->local = (struct verbs_side){
		.port = nic->port,
		.qpn = lane->qp->qp_num,
		.lid = nic->lid,
		.gid_index = (int32_t)nic->gid.index,
		.mtu = nic->mtu,
		.netdev_mtu = nic->netdev_mtu,
	};
	memcpy(lane->local.gid, nic->gid.raw, sizeof(lane->local.gid));
	snprintf(lane->local.device, sizeof(lane->local.device), "%s", nic->limits.name);
}

int verbs_lane_create(struct verbs_lane *lane, struct error *error)
{
	int rc = verbs_replay_reserve(lane->endpoint, error);

	lane->depth = lane->nic->domain->settings.depth;
	if (rc)
		return rc;
	lane->ring = memory_zalloc(lane->depth, sizeof(*lane->ring));
	if (!lane->ring)
		return memory_error(error, "opening a lane", lane->depth * sizeof(*lane->ring));
	rc = create_qp(lane, error);
	if (!rc) {
		fill_local(lane);
		rc = to_init(lane, error);
	}
	if (rc)
		verbs_lane_destroy(lane);
	return rc;
}

/* ---- connect ---- */

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	enum ibv_mtu code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && 256u << code <= bytes)
		code++;
	return code;
}

/* Ethernet always needs the global header, InfiniBand only between subnets. */
static bool needs_grh(const struct verbs_nic *nic, const struct verbs_nic_record *peer)
{
	return nic->link == VERBS_LINK_ETHERNET || memcmp(nic->gid.raw, peer->gid, 8) != 0;
}

static struct ibv_ah_attr path_to(const struct verbs_lane *lane,
				  const struct verbs_nic_record *peer)
{
	const struct verbs_nic *nic = lane->nic;
	struct ibv_ah_attr attr = {
		.dlid = (uint16_t)peer->lid,
		.sl = (uint8_t)nic->domain->settings.service_level,
		.port_num = nic->port,
		.is_global = needs_grh(nic, peer),
	};

	if (!attr.is_global)
		return attr;
	memcpy(attr.grh.dgid.raw, peer->gid, sizeof(attr.grh.dgid.raw));
	attr.grh.sgid_index = (uint8_t)nic->gid.index;
	attr.grh.hop_limit = HOP_LIMIT;
	attr.grh.traffic_class = (uint8_t)nic->traffic_class;
	return attr;
}

static int try_rtr(struct verbs_lane *lane, const struct verbs_nic_record *peer, uint32_t peer_lane)
{
	const struct verbs_nic *nic = lane->nic;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_code(lane->path_mtu),
		.dest_qp_num = peer->lanes[peer_lane].qpn,
		.rq_psn = peer->lanes[peer_lane].psn,
		.max_dest_rd_atomic = (uint8_t)smaller(READS_MAX, nic->limits.max_read),
		.min_rnr_timer = (uint8_t)nic->domain->settings.rnr_timer,
		.ah_attr = path_to(lane, peer),
	};

	return nic->domain->calls->modify_qp(lane->qp, &attr, RTR_MASK);
}

static int try_rts(struct verbs_lane *lane, const struct verbs_nic_record *peer)
{
	const struct verbs_settings *settings = &lane->nic->domain->settings;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)settings->timeout,
		.retry_cnt = (uint8_t)settings->retry,
		.rnr_retry = (uint8_t)settings->rnr_retry,
		.sq_psn = lane->psn,
		.max_rd_atomic = (uint8_t)smaller(READS_MAX, peer->max_read),
	};

	return lane->nic->domain->calls->modify_qp(lane->qp, &attr, RTS_MASK);
}

int verbs_gid_find(const struct verbs_nic *nic, uint32_t *index, struct error *error)
{
	struct ibv_gid_entry *rows = memory_zalloc(GID_ROWS, sizeof(*rows));
	ssize_t count;
	int rc = 1;

	if (!rows)
		return memory_error(error, "reading GIDs", GID_ROWS * sizeof(*rows));
	count = nic->domain->calls->query_gid_table(nic->context, rows, GID_ROWS);
	if (count < 0)
		rc = verbs_step_error(error, VERBS_STEP_QUERY, nic->limits.name,
				      verbs_errno((int)count), "reading the GID table");
	for (ssize_t i = 0; i < count && i < GID_ROWS && rc > 0; i++) {
		if (rows[i].port_num != nic->port || rows[i].gid_type != (uint32_t)nic->gid.type ||
		    memcmp(rows[i].gid.raw, nic->gid.raw, sizeof(nic->gid.raw)))
			continue;
		*index = rows[i].gid_index;
		rc = 0;
	}
	memory_free(rows);
	return rc;
}

/* "Invalid argument" is what a GID that has moved looks like: rows move when a port flaps or an
 * address changes. The value is what counts, so look where it is now. */
static bool gid_moved(struct verbs_lane *lane, int errnum)
{
	struct verbs_nic *nic = lane->nic;
	char text[VERBS_GID_TEXT_BYTES];
	uint32_t index;

	if (errnum != EINVAL || verbs_gid_find(nic, &index, NULL) || index == nic->gid.index)
		return false;
	log_warn("%s:%u: GID %s has moved from index %u to %u", nic->limits.name, nic->port,
		 verbs_gid_text(nic->gid.raw, text), nic->gid.index, index);
	nic->gid.index = index;
	pthread_mutex_lock(&nic->domain->receive_lock);
	lane->local.gid_index = (int32_t)index;
	pthread_mutex_unlock(&nic->domain->receive_lock);
	return true;
}

static void fill_remote(struct verbs_lane *lane, const struct verbs_nic_record *peer,
			uint32_t peer_lane)
{
	lane->remote = (struct verbs_side){
		.port = peer->port,
		.qpn = peer->lanes[peer_lane].qpn,
		.lid = peer->lid,
		.gid_index = peer->gid_index,
		.mtu = peer->mtu,
		.netdev_mtu = peer->netdev_mtu,
	};
	memcpy(lane->remote.gid, peer->gid, sizeof(lane->remote.gid));
	snprintf(lane->remote.device, sizeof(lane->remote.device), "%s", peer->device);
	if (!needs_grh(lane->nic, peer))
		lane->local.gid_index = -1;
}

int verbs_lane_connect(struct verbs_lane *lane, const struct verbs_endpoint_record *peer,
		       uint32_t peer_nic, uint32_t peer_lane, struct error *error)
{
	const struct verbs_nic_record *record = &peer->nics[peer_nic];
	uint32_t most = lane->nic->domain->settings.mtu;
	uint64_t started = clock_ns();
	enum verbs_step step = VERBS_STEP_RTR;
	int rc; /* a failure may come without an errno */

	lane->peer_nic = peer_nic;
	lane->path_mtu = smaller(lane->nic->mtu, record->mtu);
	if (most)
		lane->path_mtu = smaller(lane->path_mtu, most);
	/* it is in the table of lanes: an event may have its sides told by another thread */
	pthread_mutex_lock(&lane->nic->domain->receive_lock);
	fill_remote(lane, record, peer_lane);
	pthread_mutex_unlock(&lane->nic->domain->receive_lock);
	rc = try_rtr(lane, record, peer_lane);
	if (rc && gid_moved(lane, verbs_errno(rc)))
		rc = try_rtr(lane, record, peer_lane);
	if (!rc) {
		step = VERBS_STEP_RTS;
		rc = try_rts(lane, record);
	}
	if (rc)
		return verbs_connect_error(error, step, verbs_errno(rc), &lane->local,
					   &lane->remote, lane->path_mtu, clock_ns() - started);
	atomic_store(&lane->state, VERBS_LANE_READY);
	return 0;
}

/* ---- the end ---- */

bool verbs_lane_stop(struct verbs_lane *lane)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct error error;
	int rc;

	if (!lane->qp)
		return true;
	rc = lane->nic->domain->calls->modify_qp(lane->qp, &attr, IBV_QP_STATE);
	if (!rc)
		return true;
	if (atomic_load(&lane->nic->lost))
		return false; /* it was told already */
	verbs_step_error(&error, VERBS_STEP_ERR, lane->nic->limits.name, verbs_errno(rc),
			 "stopping queue pair %#x", lane->local.qpn);
	log_warn("%s", error.text);
	return false;
}

/* After this no write of the peer lands through this lane, and the device reads nothing of
 * ours for it. The queue pair stays where it was if the device does not destroy it. */
void verbs_lane_destroy(struct verbs_lane *lane)
{
	int rc = 0;

	if (lane->qp)
		rc = lane->nic->domain->calls->destroy_qp(lane->qp);
	if (rc)
		log_warn("%s: queue pair %#x to %s could not be destroyed (errno %d)",
			 lane->nic->limits.name, lane->local.qpn, lane->endpoint->shared->name,
			 verbs_errno(rc));
	else
		lane->qp = NULL;
	lane->qp_ex = NULL;
	for (uint64_t at = lane->done; lane->ring && at < lane->tail; at++)
		traffic_past(lane->nic->traffic, verbs_entry_at(lane, at)->bytes, false);
	memory_free(lane->ring);
	lane->ring = NULL;
	lane->head = lane->done = lane->tail = 0;
	atomic_store(&lane->state, VERBS_LANE_DEAD);
}
