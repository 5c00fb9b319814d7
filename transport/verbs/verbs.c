/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/verbs.h"

/* holes: what has completed is visible, and the fence needs nobody */
#define verbs_domain_keep_mapped NULL
#define verbs_settle		 NULL
#define verbs_idle		 NULL
#define verbs_endpoint_stop	 NULL

const struct provider provider_verbs = {
	.name = "verbs",
	.what = "RDMA writes between hosts: InfiniBand and RoCE, through libibverbs",
#define X(op) .op = verbs_##op,
	PROVIDER_OPS(X)
#undef X
};
