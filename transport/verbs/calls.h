/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.h -- every call into libibverbs, as a table: the seam where tests put a network that
 * reorders, lies and fails.
 *
 * The inline functions of verbs.h (post, poll, ibv_wr_*) are in the table too, so nothing in
 * this folder names libibverbs but calls.c. Return values are libibverbs' own: NULL or -1 with
 * errno (which some drivers leave at 0), or a positive errno. verbs_errno() in errors.h reads
 * all of these.
 */
#ifndef TRANSPORT_VERBS_CALLS_H
#define TRANSPORT_VERBS_CALLS_H

#include "job/member.h"
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* result, name, parameters, and what libibverbs is called with; V has those without a result */
#define VERBS_CALLS(X, V)                                                                         \
	X(struct ibv_device **, get_device_list, (int *count), (count))                           \
	V(void, free_device_list, (struct ibv_device **list), (list))                             \
	X(const char *, get_device_name, (struct ibv_device *device), (device))                   \
	X(struct ibv_context *, open_device, (struct ibv_device *device), (device))               \
	X(int, close_device, (struct ibv_context *context), (context))                            \
	X(int, query_device, (struct ibv_context *context, struct ibv_device_attr *attr),         \
	  (context, attr))                                                                        \
	X(int, query_port,                                                                        \
	  (struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr),                \
	  (context, port, attr))                                                                  \
	X(ssize_t, query_gid_table,                                                               \
	  (struct ibv_context *context, struct ibv_gid_entry *entries, size_t max),               \
	  (context, entries, max, 0))                                                             \
	X(int, query_pkey, (struct ibv_context *context, uint8_t port, int index, __be16 *pkey),  \
	  (context, port, index, pkey))                                                           \
	X(int, is_fork_initialized, (void), ())                                                   \
	X(int, fork_init, (void), ())                                                             \
	X(struct ibv_pd *, alloc_pd, (struct ibv_context *context), (context))                    \
	X(int, dealloc_pd, (struct ibv_pd *pd), (pd))                                             \
	X(struct ibv_mr *, reg_mr,                                                                \
	  (struct ibv_pd *pd, void *address, size_t bytes, unsigned access),                      \
	  (pd, address, bytes, access))                                                           \
	X(struct ibv_mr *, reg_dmabuf_mr,                                                         \
	  (struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access),  \
	  (pd, offset, bytes, iova, fd, access))                                                  \
	X(int, dereg_mr, (struct ibv_mr *mr), (mr))                                               \
	X(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context *context),          \
	  (context))                                                                              \
	X(int, destroy_comp_channel, (struct ibv_comp_channel *channel), (channel))               \
	X(struct ibv_cq *, create_cq,                                                             \
	  (struct ibv_context *context, int entries, void *user, struct ibv_comp_channel *channel),\
	  (context, entries, user, channel, 0))                                                   \
	X(int, destroy_cq, (struct ibv_cq *cq), (cq))                                             \
	X(int, req_notify_cq, (struct ibv_cq *cq, int solicited_only), (cq, solicited_only))      \
	X(int, get_cq_event, (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user), \
	  (channel, cq, user))                                                                    \
	V(void, ack_cq_events, (struct ibv_cq *cq, unsigned count), (cq, count))                  \
	X(int, poll_cq, (struct ibv_cq *cq, int max, struct ibv_wc *done), (cq, max, done))       \
	X(struct ibv_srq *, create_srq, (struct ibv_pd *pd, struct ibv_srq_init_attr *attr),      \
	  (pd, attr))                                                                             \
	X(int, destroy_srq, (struct ibv_srq *srq), (srq))                                         \
	X(int, post_srq_recv,                                                                     \
	  (struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad),                \
	  (srq, wr, bad))                                                                         \
	X(struct ibv_qp *, create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *attr),         \
	  (pd, attr))                                                                             \
	X(struct ibv_qp *, create_qp_ex,                                                          \
	  (struct ibv_context *context, struct ibv_qp_init_attr_ex *attr), (context, attr))       \
	X(struct ibv_qp_ex *, qp_to_qp_ex, (struct ibv_qp *qp), (qp))                             \
	X(int, modify_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask),                \
	  (qp, attr, mask))                                                                       \
	X(int, destroy_qp, (struct ibv_qp *qp), (qp))                                             \
	X(int, post_send, (struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad),  \
	  (qp, wr, bad))                                                                          \
	V(void, wr_start, (struct ibv_qp_ex *qp), (qp))                                           \
	V(void, wr_rdma_write, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address),           \
	  (qp, rkey, address))                                                                    \
	V(void, wr_rdma_write_imm,                                                                \
	  (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, __be32 immediate),              \
	  (qp, rkey, address, immediate))                                                         \
	V(void, wr_set_sge,                                                                       \
	  (struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t bytes),                \
	  (qp, lkey, address, bytes))                                                             \
	X(int, wr_complete, (struct ibv_qp_ex *qp), (qp))                                         \
	X(int, get_async_event, (struct ibv_context *context, struct ibv_async_event *event),     \
	  (context, event))                                                                       \
	V(void, ack_async_event, (struct ibv_async_event *event), (event))

struct verbs_calls {
#define X(result, name, parameters, arguments) result (*name) parameters;
	VERBS_CALLS(X, X)
#undef X
};

extern const struct verbs_calls verbs_calls_system;
/* Set by tests before the first domain, or NULL: the table of each domain that is given none, by who opens it. */
extern const struct verbs_calls *(*verbs_calls_tested)(struct member self);

#endif
