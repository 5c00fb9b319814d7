/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c -- the system's libibverbs behind the table. errno is cleared before each call: what
 * is in it afterwards was left by this call, and 0 says that the driver left nothing.
 */
#include "transport/verbs/calls.h"

#include "base/array.h"
#include "base/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define LIBRARY "libibverbs.so.1"

/* name in `library`, the symbol, the version that verbs.h is for */
#define EXPORTED(X)                                                      \
	X(get_device_list, ibv_get_device_list, "IBVERBS_1.1")           \
	X(free_device_list, ibv_free_device_list, "IBVERBS_1.1")         \
	X(get_device_name, ibv_get_device_name, "IBVERBS_1.1")           \
	X(open_device, ibv_open_device, "IBVERBS_1.1")                   \
	X(close_device, ibv_close_device, "IBVERBS_1.1")                 \
	X(query_device, ibv_query_device, "IBVERBS_1.1")                 \
	X(query_gid_table, _ibv_query_gid_table, "IBVERBS_1.11")         \
	X(query_pkey, ibv_query_pkey, "IBVERBS_1.1")                     \
	X(is_fork_initialized, ibv_is_fork_initialized, "IBVERBS_1.13")  \
	X(fork_init, ibv_fork_init, "IBVERBS_1.1")                       \
	X(alloc_pd, ibv_alloc_pd, "IBVERBS_1.1")                         \
	X(dealloc_pd, ibv_dealloc_pd, "IBVERBS_1.1")                     \
	X(reg_mr_iova2, ibv_reg_mr_iova2, "IBVERBS_1.8")                 \
	X(reg_dmabuf_mr, ibv_reg_dmabuf_mr, "IBVERBS_1.12")              \
	X(dereg_mr, ibv_dereg_mr, "IBVERBS_1.1")                         \
	X(create_comp_channel, ibv_create_comp_channel, "IBVERBS_1.0")   \
	X(destroy_comp_channel, ibv_destroy_comp_channel, "IBVERBS_1.0") \
	X(create_cq, ibv_create_cq, "IBVERBS_1.1")                       \
	X(destroy_cq, ibv_destroy_cq, "IBVERBS_1.1")                     \
	X(get_cq_event, ibv_get_cq_event, "IBVERBS_1.1")                 \
	X(ack_cq_events, ibv_ack_cq_events, "IBVERBS_1.1")               \
	X(create_srq, ibv_create_srq, "IBVERBS_1.1")                     \
	X(destroy_srq, ibv_destroy_srq, "IBVERBS_1.1")                   \
	X(create_qp, ibv_create_qp, "IBVERBS_1.1")                       \
	X(qp_to_qp_ex, ibv_qp_to_qp_ex, "IBVERBS_1.6")                   \
	X(modify_qp, ibv_modify_qp, "IBVERBS_1.1")                       \
	X(destroy_qp, ibv_destroy_qp, "IBVERBS_1.1")                     \
	X(get_async_event, ibv_get_async_event, "IBVERBS_1.1")           \
	X(ack_async_event, ibv_ack_async_event, "IBVERBS_1.1")

static struct {
#define X(name, symbol, version) __typeof__(symbol) *name;
	EXPORTED(X)
#undef X
} library;

static const struct library_row rows[] = {
#define X(name, symbol, version) {#symbol, version, offsetof(__typeof__(library), name)},
	EXPORTED(X)
#undef X
};

/* Methods of a context. Their inline functions in verbs.h fall back to a symbol, for older libraries than we take. */

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct verbs_context *extended = verbs_get_ctx_op(context, query_port);

	return extended ? extended->query_port(context, port, attr, sizeof(*attr)) : EOPNOTSUPP;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct verbs_context *extended = verbs_get_ctx_op(context, create_qp_ex);

	errno = extended ? errno : EOPNOTSUPP;
	return extended ? extended->create_qp_ex(context, attr) : NULL;
}

#define CALL(result, name, parameters, call) \
	static result call_##name parameters \
	{                                    \
		errno = 0;                   \
		return call;                 \
	}
#define CALL_VOID(result, name, parameters, call) \
	static result call_##name parameters      \
	{                                         \
		call;                             \
	}

const struct verbs_calls *(*verbs_calls_tested)(struct member self);

VERBS_CALLS(CALL, CALL_VOID)

static const struct verbs_calls opened = {
#define X(result, name, parameters, call) .name = call_##name,
	VERBS_CALLS(X, X)
#undef X
};

static char failure[LIBRARY_WHY_BYTES + 64];
static const struct verbs_calls none = {.missing = failure}, *calls;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
	char why[LIBRARY_WHY_BYTES];
	void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	calls = library_fill(handle, rows, ARRAY_SIZE(rows), &library, why) ? &opened : &none;
	snprintf(failure, sizeof(failure), "libibverbs cannot be opened: %s", why);
}

const struct verbs_calls *verbs_calls_system(void)
{
	pthread_once(&once, open_library);
	return calls;
}
