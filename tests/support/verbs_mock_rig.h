/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_mock_rig.h -- two hosts joined by a few queue pairs, straight over the calls: for tests of
 * the mock itself.
 *
 *   a (host 0)  qps[0..] ─────► b (host 1)   memory "data" and "flags", 64 KiB and 4 KiB
 */
#ifndef TESTS_SUPPORT_VERBS_MOCK_RIG_H
#define TESTS_SUPPORT_VERBS_MOCK_RIG_H

#include "tests/support/verbs_mock.h"

#define RIG_QPS        2
#define RIG_DATA_BYTES 65536
#define RIG_FLAG_BYTES 4096

struct rig_side {
	const struct verbs_calls *calls;
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *receive_cq;
	struct ibv_srq *srq;
	struct ibv_mr *data_mr, *flag_mr;
	struct ibv_qp *qps[RIG_QPS];
	unsigned char *data, *flags;
};

struct rig {
	struct rig_side a, b;
};

struct rig_options {
	struct verbs_mock_options mock;
	unsigned data_access;        /* besides local and remote write */
	uint32_t rnr_retry, retry;   /* as they are */
	uint32_t send_depth, cq_entries, receives; /* 0: 64, 256, 64 */
};

/* Opens the fabric too. Anything that fails ends the test. */
void rig_open(struct rig *rig, const struct rig_options *options);
void rig_close(struct rig *rig);
void rig_receives(struct rig *rig, uint32_t count);

struct rig_write {
	uint32_t qp;
	bool flag;                   /* from and to the flags, not the data */
	bool to_start;               /* to the start of the other side's, wherever `offset` is */
	bool with_imm, unsignalled;
	uint32_t offset, bytes, imm;
	uint64_t wr_id;
};
int rig_post(struct rig *rig, const struct rig_write *write);
/* To INIT, RTR and RTS: 0, or what modify_qp answered. */
int rig_to_init(struct ibv_qp *qp, const struct verbs_calls *calls);
int rig_to_rtr(struct ibv_qp *qp, const struct verbs_calls *calls, uint32_t host, uint32_t peer_qpn,
	       uint32_t psn, enum ibv_mtu mtu);
int rig_to_rts(struct ibv_qp *qp, const struct verbs_calls *calls, uint32_t psn, uint32_t retry,
	       uint32_t rnr_retry);
int rig_to(struct ibv_qp *qp, const struct verbs_calls *calls, enum ibv_qp_state state);
/* One completion of a queue, after at most `turns` polls; false: none. */
bool rig_poll(const struct rig_side *side, struct ibv_cq *cq, uint32_t turns, struct ibv_wc *wc);

#endif
