/* SPDX-License-Identifier: Apache-2.0
 *
 * absent.h -- why no RDMA device can be opened here, told with what to do about it.
 */
#ifndef TRANSPORT_VERBS_ABSENT_H
#define TRANSPORT_VERBS_ABSENT_H

#include "base/error.h"
#include "transport/verbs/facts.h"
#include "transport/verbs/sysfs.h"

/* 0 when facts has a device that could be opened; else ERROR_UNSUPPORTED. list_errno: what
 * libibverbs left when it gave no list at all, 0: an empty list. */
int absent_explain(const struct sysfs *sysfs, const struct verbs_facts *facts, int list_errno,
		   struct error *error);

#endif
