/* SPDX-License-Identifier: Apache-2.0
 *
 * tested.c -- makes "mock" and "fault" known to a program. Tests are linked with it (tests/CMakeLists.txt);
 * nothing that is installed is.
 */
#include "transport/fault/fault.h"
#include "transport/mock/mock.h"
#include "transport/provider.h"

static int wrapper(const char *provider, const char **wrapping, struct error *error)
{
	int rc = fault_wanted(provider, error);

	if (rc == 1)
		*wrapping = provider_fault.name;
	return rc;
}

static const struct provider *const rows[] = {&provider_mock, &provider_fault, NULL};
static const struct provider_tested tested = {rows, wrapper};

/* Before main: no program calls anything for it, so that it is the same program but for these rows. */
__attribute__((constructor)) static void make_known(void)
{
	provider_tested = &tested;
}
