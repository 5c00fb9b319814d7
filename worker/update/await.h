/* SPDX-License-Identifier: Apache-2.0
 *
 * await.h -- until a GPU has done what was queued before a mark: a moment at a time, with a look at the job in between.
 */
#ifndef WORKER_UPDATE_AWAIT_H
#define WORKER_UPDATE_AWAIT_H

#include "base/clock.h"
#include "worker/control/health.h"
#include "worker/device/device.h"

/* 0: done. ERROR_TIMEOUT: not by then; an interrupt, or why the job has ended. health NULL: no looks. */
static inline int await_device(const struct device *device, cuda_event mark, uint64_t until_ns, struct health *health,
			       struct error *error)
{
	for (;;) {
		uint64_t slice = clock_deadline_ns(WAIT_SLICE_MS);
		int rc = device_reach(device, mark, slice < until_ns ? slice : until_ns, error);

		if (rc != -(int)ERROR_TIMEOUT || clock_ns() >= until_ns)
			return rc;
		rc = health ? health_check(health, error) : 0;
		if (rc)
			return rc;
	}
}

#endif
