/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance.h"

#include <stdio.h>

int main(void)
{
	const struct conformance subject = {.name = "shm, process memory",
					    .provider = "shm",
					    .registered = true,
					    .processes = true};
	struct error error = {0};

	/* a container may forbid process_vm_writev; the refusal itself must be a message */
	if (conformance_session(&subject, UINT64_C(60000000000), &error) &&
	    error.code == ERROR_UNSUPPORTED) {
		printf("skipped: %s\n", error.text);
		return 0;
	}
	return conformance_run(&subject);
}
