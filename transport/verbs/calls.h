/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.h -- every call into libibverbs, as a table: the seam where tests put a network that
 * reorders, lies and fails.
 *
 * The inline functions of verbs.h (post, poll, ibv_wr_*) are in the table too, so nothing in
 * this folder names libibverbs but calls.c. Return values are libibverbs' own: NULL or -1 with
 * errno (which some drivers leave at 0), or a positive errno. verbs_errno() in errors.h reads
 * all of these.
 *
 * The library is opened by whoever first asks for the table, never linked: programs start on hosts
 * that have no RDMA and none of its packages.
 */
#ifndef TRANSPORT_VERBS_CALLS_H
#define TRANSPORT_VERBS_CALLS_H

#include "job/member.h"
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Result, name, parameters, and the call itself; V has those without a result. Exported functions are called through
 * `library` of calls.c, and so are those that macros or inline functions of verbs.h would call: they leave an undefined
 * symbol. The other inline functions go through the object's own methods. */
#define VERBS_CALLS(X, V)                                                                         \
	X(struct ibv_device **, get_device_list, (int *count), library.get_device_list(count))    \
	V(void, free_device_list, (struct ibv_device **list), library.free_device_list(list))     \
	X(const char *, get_device_name, (struct ibv_device *device),                             \
	  library.get_device_name(device))                                                        \
	X(struct ibv_context *, open_device, (struct ibv_device *device),                         \
	  library.open_device(device))                                                            \
	X(int, close_device, (struct ibv_context *context), library.close_device(context))        \
	X(int, query_device, (struct ibv_context *context, struct ibv_device_attr *attr),         \
	  library.query_device(context, attr))                                                    \
	X(int, query_port,                                                                        \
	  (struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr),                \
	  query_port(context, port, attr))                                                        \
	X(ssize_t, query_gid_table,                                                               \
	  (struct ibv_context *context, struct ibv_gid_entry *entries, size_t max),               \
	  library.query_gid_table(context, entries, max, 0, sizeof(*entries)))                    \
	X(int, query_pkey, (struct ibv_context *context, uint8_t port, int index, __be16 *pkey),  \
	  library.query_pkey(context, port, index, pkey))                                         \
	X(int, is_fork_initialized, (void), library.is_fork_initialized())                        \
	X(int, fork_init, (void), library.fork_init())                                            \
	X(struct ibv_pd *, alloc_pd, (struct ibv_context *context), library.alloc_pd(context))    \
	X(int, dealloc_pd, (struct ibv_pd *pd), library.dealloc_pd(pd))                           \
	X(struct ibv_mr *, reg_mr,                                                                \
	  (struct ibv_pd *pd, void *address, size_t bytes, unsigned access),                      \
	  library.reg_mr_iova2(pd, address, bytes, (uintptr_t)address, access))                   \
	X(struct ibv_mr *, reg_dmabuf_mr,                                                         \
	  (struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access),  \
	  library.reg_dmabuf_mr(pd, offset, bytes, iova, fd, access))                             \
	X(int, dereg_mr, (struct ibv_mr *mr), library.dereg_mr(mr))                               \
	X(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context *context),          \
	  library.create_comp_channel(context))                                                   \
	X(int, destroy_comp_channel, (struct ibv_comp_channel *channel),                          \
	  library.destroy_comp_channel(channel))                                                  \
	X(struct ibv_cq *, create_cq,                                                             \
	  (struct ibv_context *context, int entries, void *user, struct ibv_comp_channel *channel),\
	  library.create_cq(context, entries, user, channel, 0))                                  \
	X(int, destroy_cq, (struct ibv_cq *cq), library.destroy_cq(cq))                           \
	X(int, req_notify_cq, (struct ibv_cq *cq, int solicited_only),                            \
	  ibv_req_notify_cq(cq, solicited_only))                                                  \
	X(int, get_cq_event,                                                                      \
	  (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user),                    \
	  library.get_cq_event(channel, cq, user))                                                \
	V(void, ack_cq_events, (struct ibv_cq *cq, unsigned count),                               \
	  library.ack_cq_events(cq, count))                                                       \
	X(int, poll_cq, (struct ibv_cq *cq, int max, struct ibv_wc *done),                        \
	  ibv_poll_cq(cq, max, done))                                                             \
	X(struct ibv_srq *, create_srq, (struct ibv_pd *pd, struct ibv_srq_init_attr *attr),      \
	  library.create_srq(pd, attr))                                                           \
	X(int, destroy_srq, (struct ibv_srq *srq), library.destroy_srq(srq))                      \
	X(int, post_srq_recv,                                                                     \
	  (struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad),                \
	  ibv_post_srq_recv(srq, wr, bad))                                                        \
	X(struct ibv_qp *, create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *attr),         \
	  library.create_qp(pd, attr))                                                            \
	X(struct ibv_qp *, create_qp_ex,                                                          \
	  (struct ibv_context *context, struct ibv_qp_init_attr_ex *attr),                        \
	  create_qp_ex(context, attr))                                                            \
	X(struct ibv_qp_ex *, qp_to_qp_ex, (struct ibv_qp *qp), library.qp_to_qp_ex(qp))          \
	X(int, modify_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask),                \
	  library.modify_qp(qp, attr, mask))                                                      \
	X(int, destroy_qp, (struct ibv_qp *qp), library.destroy_qp(qp))                           \
	X(int, post_send, (struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad),  \
	  ibv_post_send(qp, wr, bad))                                                             \
	V(void, wr_start, (struct ibv_qp_ex *qp), ibv_wr_start(qp))                               \
	V(void, wr_rdma_write, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address),           \
	  ibv_wr_rdma_write(qp, rkey, address))                                                   \
	V(void, wr_rdma_write_imm,                                                                \
	  (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, __be32 immediate),              \
	  ibv_wr_rdma_write_imm(qp, rkey, address, immediate))                                    \
	V(void, wr_set_sge,                                                                       \
	  (struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t bytes),                \
	  ibv_wr_set_sge(qp, lkey, address, bytes))                                               \
	X(int, wr_complete, (struct ibv_qp_ex *qp), ibv_wr_complete(qp))                          \
	X(int, get_async_event, (struct ibv_context *context, struct ibv_async_event *event),     \
	  library.get_async_event(context, event))                                                \
	V(void, ack_async_event, (struct ibv_async_event *event),                                 \
	  library.ack_async_event(event))

struct verbs_calls {
	const char *missing; /* why libibverbs cannot be opened, and then nothing below is there; NULL: it is open */
#define X(result, name, parameters, call) result (*name) parameters;
	VERBS_CALLS(X, X)
#undef X
};

/* what to do about `missing` */
#define VERBS_INSTALL                                                                             \
	"install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Red Hat), of rdma-core 35 or newer, " \
	"in the container too"

/* [any thread] The system's libibverbs, which stays open; never NULL. */
const struct verbs_calls *verbs_calls_system(void);
/* Set by tests before the first domain, or NULL: the table of each domain that is given none, by who opens it. */
extern const struct verbs_calls *(*verbs_calls_tested)(struct member self);

#endif
