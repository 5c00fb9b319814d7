/* SPDX-License-Identifier: Apache-2.0 */
#include "base/descriptors.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define MOST 64

int descriptors_check(const char *what, unsigned needed, struct error *error)
{
	int taken[MOST], errnum = 0;
	unsigned count = 0;

	while (count < needed && count < MOST && !errnum) {
		taken[count] = eventfd(0, EFD_CLOEXEC);
		if (taken[count] < 0)
			errnum = errno;
		else
			count++;
	}
	for (unsigned i = 0; i < count; i++)
		close(taken[i]);
	if (errnum)
		return error_set_errno(error, ERROR_LIMIT, errnum,
				       "%s needs %u file descriptors, %u are left: raise ulimit -n",
				       what, needed, count);
	return 0;
}

uint64_t descriptors_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 1024;
	if (limit.rlim_cur < limit.rlim_max) {
		rlim_t before = limit.rlim_cur;

		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			return before;
	}
	return limit.rlim_cur;
}
