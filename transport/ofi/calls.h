/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.h -- the functions of libfabric that are no method of one of its objects. All others go through
 * the tables inside its objects, so whoever stands in for these stands in for the library.
 *
 * The library is opened when the first domain asks for it: Debian's is linked to two drivers (psm, psm2) whose
 * constructors sleep 0.1 s each, in every process that only might write over tcp. It keeps the host's handlers of
 * signals.
 */
#ifndef TRANSPORT_OFI_CALLS_H
#define TRANSPORT_OFI_CALLS_H

#include "base/error.h"
#include <rdma/fabric.h>

struct ofi_calls {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	uint32_t (*version)(void);
	const char *(*strerror)(int errnum);
};

/* [any thread] Those of the library, which stays open; NULL and ERROR_UNSUPPORTED where it is not installed. */
const struct ofi_calls *ofi_calls_open(struct error *error);
/* What an error of libfabric means. */
const char *ofi_strerror(int errnum);

/* Written against this version; whatever runs may be newer. */
#define OFI_API FI_VERSION(1, 17)

#endif
