/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c -- the system's libibverbs behind the table. errno is cleared before each call: what
 * is in it afterwards was left by this call, and 0 says that the driver left nothing.
 */
#include "transport/verbs/calls.h"

#include <errno.h>

#define CALL(result, name, parameters, arguments) \
	static result call_##name parameters      \
	{                                         \
		errno = 0;                        \
		return ibv_##name arguments;      \
	}
#define CALL_VOID(name, parameters, arguments) \
	static void call_##name parameters     \
	{                                      \
		ibv_##name arguments;          \
	}

CALL(struct ibv_device **, get_device_list, (int *count), (count))
CALL_VOID(free_device_list, (struct ibv_device * *list), (list))
CALL(const char *, get_device_name, (struct ibv_device * device), (device))
CALL(struct ibv_context *, open_device, (struct ibv_device * device), (device))
CALL(int, close_device, (struct ibv_context * context), (context))
CALL(int, query_device, (struct ibv_context * context, struct ibv_device_attr *attr),
     (context, attr))
CALL(int, query_port, (struct ibv_context * context, uint8_t port, struct ibv_port_attr *attr),
     (context, port, attr))
CALL(ssize_t, query_gid_table,
     (struct ibv_context * context, struct ibv_gid_entry *entries, size_t max),
     (context, entries, max, 0))
CALL(int, query_pkey, (struct ibv_context * context, uint8_t port, int index, __be16 *pkey),
     (context, port, index, pkey))
CALL(int, is_fork_initialized, (void), ())
CALL(int, fork_init, (void), ())
CALL(struct ibv_pd *, alloc_pd, (struct ibv_context * context), (context))
CALL(int, dealloc_pd, (struct ibv_pd * pd), (pd))
CALL(struct ibv_mr *, reg_mr, (struct ibv_pd * pd, void *address, size_t bytes, unsigned access),
     (pd, address, bytes, access))
CALL(struct ibv_mr *, reg_dmabuf_mr,
     (struct ibv_pd * pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access),
     (pd, offset, bytes, iova, fd, access))
CALL(int, dereg_mr, (struct ibv_mr * mr), (mr))
CALL(struct ibv_ah *, create_ah, (struct ibv_pd * pd, struct ibv_ah_attr *attr), (pd, attr))
CALL(int, destroy_ah, (struct ibv_ah * ah), (ah))
CALL(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context * context), (context))
CALL(int, destroy_comp_channel, (struct ibv_comp_channel * channel), (channel))
CALL(struct ibv_cq *, create_cq,
     (struct ibv_context * context, int entries, void *user, struct ibv_comp_channel *channel),
     (context, entries, user, channel, 0))
CALL(int, destroy_cq, (struct ibv_cq * cq), (cq))
CALL(int, req_notify_cq, (struct ibv_cq * cq, int solicited_only), (cq, solicited_only))
CALL(int, get_cq_event, (struct ibv_comp_channel * channel, struct ibv_cq **cq, void **user),
     (channel, cq, user))
CALL_VOID(ack_cq_events, (struct ibv_cq * cq, unsigned count), (cq, count))
CALL(int, poll_cq, (struct ibv_cq * cq, int max, struct ibv_wc *done), (cq, max, done))
CALL(struct ibv_srq *, create_srq, (struct ibv_pd * pd, struct ibv_srq_init_attr *attr), (pd, attr))
CALL(int, destroy_srq, (struct ibv_srq * srq), (srq))
CALL(int, post_srq_recv, (struct ibv_srq * srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad),
     (srq, wr, bad))
CALL(struct ibv_qp *, create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr *attr), (pd, attr))
CALL(struct ibv_qp *, create_qp_ex,
     (struct ibv_context * context, struct ibv_qp_init_attr_ex *attr), (context, attr))
CALL(struct ibv_qp_ex *, qp_to_qp_ex, (struct ibv_qp * qp), (qp))
CALL(int, modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask), (qp, attr, mask))
CALL(int, query_qp,
     (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init),
     (qp, attr, mask, init))
CALL(int, destroy_qp, (struct ibv_qp * qp), (qp))
CALL(int, post_send, (struct ibv_qp * qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad),
     (qp, wr, bad))
CALL_VOID(wr_start, (struct ibv_qp_ex * qp), (qp))
CALL_VOID(wr_rdma_write, (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t address),
	  (qp, rkey, address))
CALL_VOID(wr_rdma_write_imm,
	  (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t address, __be32 immediate),
	  (qp, rkey, address, immediate))
CALL_VOID(wr_set_sge, (struct ibv_qp_ex * qp, uint32_t lkey, uint64_t address, uint32_t bytes),
	  (qp, lkey, address, bytes))
CALL(int, wr_complete, (struct ibv_qp_ex * qp), (qp))
CALL_VOID(wr_abort, (struct ibv_qp_ex * qp), (qp))
CALL(int, get_async_event, (struct ibv_context * context, struct ibv_async_event *event),
     (context, event))
CALL_VOID(ack_async_event, (struct ibv_async_event * event), (event))

const struct verbs_calls verbs_calls_system = {
#define X(result, name, parameters) .name = call_##name,
	VERBS_CALLS(X)
#undef X
};
