/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.h -- the functions of libfabric that are no method of one of its objects. All others go through
 * the tables inside its objects, so whoever stands in for these stands in for the library.
 */
#ifndef TRANSPORT_OFI_CALLS_H
#define TRANSPORT_OFI_CALLS_H

#include <rdma/fabric.h>

struct ofi_calls {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	uint32_t (*version)(void);
};

extern const struct ofi_calls ofi_calls_system;

/* Written against this version; whatever runs may be newer. */
#define OFI_API FI_VERSION(1, 17)

#endif
