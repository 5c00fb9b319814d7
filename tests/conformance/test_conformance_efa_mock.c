/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite over provider "efa" on a mock of libfabric that reorders all that SRD may: one device whose
 * queues cannot be slept on; two devices with two streams each and tiny limits; a queue that can be slept on.
 */
#include "tests/support/conformance.h"
#include "tests/support/ofi_mock.h"
#include "transport/ofi/ofi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct fabric {
	const char *name, *nics;
	struct ofi_mock_options mock;
	uint32_t streams, depth;
	uint64_t chunk_bytes;
	bool registered, far;
};

static const struct fabric fabrics[] = {
	{.name = "efa on a mock, one device",
	 .nics = "mock0",
	 .mock = {.seed = 1},
	 .streams = 1,
	 .depth = 8,
	 .chunk_bytes = 65536},
	{.name = "efa on a mock, two devices with two streams, tiny limits",
	 .nics = "mock0,mock1",
	 .mock = {.seed = 2, .devices = 2, .tx_size = 2, .again_in = 3, .background = true},
	 .streams = 2,
	 .depth = 2,
	 .chunk_bytes = 4096,
	 .registered = true,
	 .far = true},
	{.name = "efa on a mock, queues that can be slept on",
	 .nics = "mock1,mock0",
	 .mock = {.seed = 3, .devices = 2, .wait_fd = true, .background = true},
	 .streams = 1,
	 .depth = 4,
	 .chunk_bytes = 16384},
};

static int run(const struct fabric *fabric)
{
	const struct ofi_settings settings = {.nics_from = "the test",
					      .streams = fabric->streams,
					      .depth = fabric->depth,
					      .chunk_bytes = fabric->chunk_bytes};
	struct ofi_settings named = settings;
	const struct ofi_options options = {
		.calls = &ofi_mock_calls, .settings = &named, .no_identity = fabric->far};
	const struct conformance subject = {.name = fabric->name,
					    .provider = "efa",
					    .options = &options,
					    .registered = fabric->registered,
					    .sessions = 200,
					    .blind = fabric->far};
	int failed;

	strcpy(named.nics, fabric->nics);
	ofi_mock_open(&fabric->mock);
	failed = conformance_run(&subject);
	if (ofi_mock_alive()) {
		print_error("%s: %d objects are left\n", fabric->name, ofi_mock_alive());
		failed++;
	}
	if (ofi_mock_violations()) {
		print_error("%s: %u violations; the first: %s\n", fabric->name,
			    ofi_mock_violations(), ofi_mock_violation());
		failed++;
	}
	ofi_mock_close();
	return failed;
}

int main(void)
{
	int failed = 0;

	for (size_t i = 0; i < ARRAY_SIZE(fabrics); i++)
		failed += run(&fabrics[i]);
	return failed;
}
