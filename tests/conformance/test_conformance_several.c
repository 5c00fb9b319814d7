/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite over domains of several providers: endpoints are the first one's, memory is known to both, and
 * signals come through the watchers.
 */
#include "tests/support/conformance.h"
#include "transport/mock/mock.h"

int main(void)
{
	static const struct mock_options registered = {.write_bytes_max = 4096,
						       .local_registration = true};
	const struct conformance subjects[] = {
		{.name = "shm of shm,mock",
		 .provider = "shm,mock",
		 .options = &registered,
		 .processes = true},
		{.name = "mock of mock,shm",
		 .provider = "mock,shm",
		 .options = &registered,
		 .probes = true},
		{.name = "shm of shm,mock, registered",
		 .provider = "shm,mock",
		 .options = &registered,
		 .registered = true},
	};
	int failed = 0;

	for (unsigned i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
		failed |= conformance_run(&subjects[i]);
	return failed;
}
