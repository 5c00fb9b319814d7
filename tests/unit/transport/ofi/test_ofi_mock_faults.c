/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call into libfabric fails once, at every turn and with several errnos: the answer is a clean
 * message, or a session that is right all the same, and nothing is left behind. And peers that never
 * answer: every wait ends at its deadline.
 */
#include "tests/support/ofi_mock_pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void nothing_left(const char *what, uint64_t at)
{
	if (ofi_mock_alive())
		fail_msg("%s %llu: %d objects are left", what, (unsigned long long)at,
			 ofi_mock_alive());
	if (ofi_mock_violations())
		fail_msg("%s %llu: %s", what, (unsigned long long)at, ofi_mock_violation());
	ofi_mock_close();
}

/* In words, of one device where it was a device's call. */
static void expect_message(enum ofi_mock_call call, uint64_t at, int rc, const struct error *error)
{
	const char *name = ofi_mock_call_name(call);

	if (rc == -ERROR_TIMEOUT || rc == -ERROR_CHECKSUM)
		fail_msg("%s %llu: %s", name, (unsigned long long)at, error->text);
	if (strlen(error->text) < 20 || strstr(error->text, "Success") ||
	    strstr(error->text, "(null)"))
		fail_msg("%s %llu is told as \"%s\"", name, (unsigned long long)at, error->text);
	if (call != OFI_MOCK_getinfo && call != OFI_MOCK_dupinfo && !strstr(error->text, "mock0") &&
	    !strstr(error->text, "mock1"))
		fail_msg("%s %llu is told without a device: \"%s\"", name, (unsigned long long)at,
			 error->text);
}

/* 0 where it had no turn any more. */
static int session(enum ofi_mock_call call, uint64_t at, int errnum, bool wait_fd)
{
	const struct ofi_mock_options mock = {
		.seed = at, .devices = 2, .wait_fd = wait_fd, .background = wait_fd};
	struct ofi_mock_subject efa;
	struct error error = {0};
	int rc, struck;

	ofi_mock_subject(&efa, &mock, 1, 4, 4096);
	ofi_mock_open(&efa.mock);
	ofi_mock_fail(call, at, errnum);
	rc = conformance_session(&efa.subject, UINT64_C(60000000000), &error);
	struck = ofi_mock_failed();
	if (rc && !struck)
		fail_msg("%s: %s", ofi_mock_call_name(call), error.text);
	if (rc)
		expect_message(call, at, rc, &error);
	nothing_left(ofi_mock_call_name(call), at);
	return struck;
}

static void sweep(bool wait_fd)
{
	static const int errnums[] = {ENOMEM, EIO, EINVAL, ENOSPC, EBUSY};

	for (int call = 0; call < OFI_MOCK_CALL_COUNT; call++) {
		int struck = 1;

		for (uint64_t at = 1; struck; at += 1 + at / 6)
			struck = session((enum ofi_mock_call)call, at,
					 errnums[(at + (uint64_t)call) % ARRAY_SIZE(errnums)],
					 wait_fd);
	}
}

static void test_calls__that_fail_once_are_told_and_leave_nothing(void **state)
{
	(void)state;
	sweep(true);
}

static void test_calls__that_fail_once_are_told_where_queues_cannot_be_slept_on(void **state)
{
	(void)state;
	sweep(false);
}

/* ---- a peer that never answers the handshake: every post is refused, again and again ---- */

static void mute_open(struct pair *pair, struct ofi_mock_subject *efa)
{
	const struct ofi_mock_options mock = {.devices = 2};
	struct error error = {0};

	ofi_mock_subject(efa, &mock, 1, 4, 4096);
	ofi_mock_open(&efa->mock);
	if (pair_open(pair, &efa->subject, 8192, &error))
		fail_msg("%s", error.text);
	ofi_mock_mute(true);
}

static void mute_close(struct pair *pair, int rc, const struct error *error, const char *words)
{
	assert_int_equal(rc, -ERROR_TIMEOUT);
	assert_non_null(strstr(error->text, "inference 5"));
	assert_non_null(strstr(error->text, words));
	pair_close(pair);
	nothing_left("mute", 0);
}

static void test_peer__that_never_answers_is_told_by_the_probe(void **state)
{
	struct ofi_mock_subject efa;
	struct error error = {0};
	struct pair pair;
	int rc;

	(void)state;
	mute_open(&pair, &efa);
	rc = transport_endpoint_probe(pair.ab, within_ms(30), &error);
	mute_close(&pair, rc, &error, "4 of 4 probes");
}

static void test_peer__that_never_answers_ends_a_write_at_its_deadline(void **state)
{
	struct ofi_mock_subject efa;
	struct error error = {0};
	struct pair pair;
	int rc;

	(void)state;
	mute_open(&pair, &efa);
	rc = transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, 8192, within_ms(30),
			     &error);
	mute_close(&pair, rc, &error, "writing");
}

static void test_peer__that_never_answers_ends_a_signal_at_its_deadline(void **state)
{
	struct ofi_mock_subject efa;
	struct error error = {0};
	struct pair pair;
	int rc;

	(void)state;
	mute_open(&pair, &efa);
	rc = transport_signal(pair.ab, 1, NULL, 0, within_ms(30), &error);
	mute_close(&pair, rc, &error, "signalling");
}

/* ---- what there is no device for ---- */

static void test_domain__without_a_device_names_what_is_missing_and_tcp(void **state)
{
	const struct ofi_mock_options mock = {.devices = 1};
	struct transport_options options = {.self = {ROLE_TRAINER, 3}};
	struct transport_domain *domain = NULL;
	struct ofi_mock_subject efa;
	struct error error = {0};

	(void)state;
	ofi_mock_subject(&efa, &mock, 1, 4, 4096);
	options.provider_options = &efa.options;
	ofi_mock_open(&efa.mock);
	ofi_mock_fail(OFI_MOCK_getinfo, 1, ENODATA);
	assert_int_equal(transport_domain_open(&domain, "efa", &options, &error),
			 -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "EFA installer"));
	assert_non_null(strstr(error.text, "--transport tcp"));
	strcpy(efa.settings.nics, "mock7");
	assert_int_equal(transport_domain_open(&domain, "efa", &options, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "mock7"));
	assert_non_null(strstr(error.text, "there are: mock0"));
	nothing_left("no device", 0);
}

/* As many as streams allow, in the order that the host has them. */
static void expect_rails(uint32_t devices, uint32_t streams, uint32_t wanted)
{
	const struct ofi_mock_options mock = {.devices = devices};
	struct transport_options options = {.self = {ROLE_TRAINER, 0}};
	struct transport_domain *domain = NULL;
	struct ofi_mock_subject efa;
	struct error error = {0};
	uint32_t nics;

	ofi_mock_subject(&efa, &mock, streams, 4, 4096);
	efa.settings.nics[0] = 0;
	options.provider_options = &efa.options;
	ofi_mock_open(&efa.mock);
	if (transport_domain_open(&domain, "efa", &options, &error))
		fail_msg("%s", error.text);
	assert_int_equal(transport_domain_caps(domain)->rails, wanted * streams);
	assert_string_equal(transport_domain_nics(domain, &nics)[0].name, "mock0");
	assert_int_equal(nics, wanted);
	transport_domain_close(&domain);
	nothing_left("devices", devices);
}

static void test_domain__without_names_takes_every_device_that_streams_allow(void **state)
{
	(void)state;
	expect_rails(1, 2, 1);
	expect_rails(4, 2, 4);
	expect_rails(4, 8, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls__that_fail_once_are_told_and_leave_nothing),
		cmocka_unit_test(
			test_calls__that_fail_once_are_told_where_queues_cannot_be_slept_on),
		cmocka_unit_test(test_peer__that_never_answers_is_told_by_the_probe),
		cmocka_unit_test(test_peer__that_never_answers_ends_a_write_at_its_deadline),
		cmocka_unit_test(test_peer__that_never_answers_ends_a_signal_at_its_deadline),
		cmocka_unit_test(test_domain__without_a_device_names_what_is_missing_and_tcp),
		cmocka_unit_test(test_domain__without_names_takes_every_device_that_streams_allow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
