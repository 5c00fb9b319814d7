/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance.h"

int main(void)
{
	const struct conformance subject = {
		.name = "shm, mapped memory", .provider = "shm", .processes = true};

	return conformance_run(&subject);
}
