/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes that are addresses, as with EFA, over a real library: libfabric's tcp;ofi_rxm runs anywhere, and has
 * EFA's calls. An endpoint of it holds megabytes, so this is the suite's heart and not its hundreds.
 */
#include "tests/support/conformance.h"

#include "transport/ofi/ofi.h"
#include <rdma/fi_errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define FABRIC "tcp;ofi_rxm"

static int offered(void)
{
	const struct ofi_calls *calls = ofi_calls_open(NULL);
	struct fi_info *hints = calls->dupinfo(NULL), *info = NULL;
	char name[] = FABRIC;
	int rc = -FI_ENOMEM;

	if (!hints)
		return rc;
	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = name;
	rc = calls->getinfo(OFI_API, NULL, NULL, 0, hints, &info);
	hints->fabric_attr->prov_name = NULL;
	calls->freeinfo(hints);
	if (info)
		calls->freeinfo(info);
	return rc;
}

#ifdef __SANITIZE_THREAD__
#define FEWER 3
#else
#define FEWER 1
#endif

static const struct ofi_settings settings = {
	.nics = "lo", .nics_from = "the test", .streams = 2, .depth = 4, .chunk_bytes = 16384};
static const struct ofi_options options = {
	.settings = &settings, .fabric = FABRIC, .no_sleep = true};
static const struct conformance subject = {
	.name = "lanes of " FABRIC, .provider = "efa", .options = &options};

static void test_sessions__move_their_bytes_and_leave_nothing(void **state)
{
	struct conformance_footprint before = {0, 0};
	struct error error = {0};

	(void)state;
	for (int i = 0; i < 2 + 3 / FEWER; i++) {
		if (i == 2)
			before = conformance_footprint();
		if (conformance_session(&subject, UINT64_C(60000000000), &error))
			fail_msg("%s", error.text);
	}
	assert_int_equal(conformance_footprint().files, before.files);
}

static void test_signal__is_never_seen_before_its_data(void **state)
{
	(void)state;
	assert_int_equal(conformance_violations(&subject, 30 / FEWER), 0);
}

static void test_late_write__never_lands_in_memory_that_is_used_again(void **state)
{
	(void)state;
	assert_int_equal(conformance_late_writes(&subject, 4 / FEWER), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sessions__move_their_bytes_and_leave_nothing),
		cmocka_unit_test(test_signal__is_never_seen_before_its_data),
		cmocka_unit_test(test_late_write__never_lands_in_memory_that_is_used_again),
	};
	int rc;

	setenv("FI_OFI_RXM_RX_SIZE", "64", 0);
	setenv("FI_OFI_RXM_TX_SIZE", "64", 0);
	rc = offered();
	if (rc) {
		printf("skipped: libfabric here offers no %s: %s\n", FABRIC, ofi_strerror(-rc));
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
