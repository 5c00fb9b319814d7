/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/calls.h"

const struct ofi_calls ofi_calls_system = {
	.getinfo = fi_getinfo,
	.freeinfo = fi_freeinfo,
	.dupinfo = fi_dupinfo,
	.fabric = fi_fabric,
	.version = fi_version,
};
