/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/ofi.h"

/* holes: what has completed is visible once a signal tells of it, and the fence needs nobody */
#define ofi_domain_keep_mapped NULL
#define ofi_settle	       NULL
#define ofi_endpoint_stop      NULL

#define X(op)		.op = ofi_##op,
#define ofi_domain_open ofi_tcp_open
const struct provider provider_tcp = {
	.name = "tcp",
	.what = "writes over TCP between any two hosts, through libfabric",
	PROVIDER_OPS(X)};
#undef ofi_domain_open

#define ofi_domain_open ofi_efa_open
const struct provider provider_efa = {
	.name = "efa",
	.what = "RDMA writes over AWS's Elastic Fabric Adapter, through libfabric",
	PROVIDER_OPS(X)};
#undef ofi_domain_open
#undef X
