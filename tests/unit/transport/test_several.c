/* SPDX-License-Identifier: Apache-2.0
 *
 * A domain of several providers, with a peer on each at once.
 */
#include "transport/transport.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "tests/support/conformance.h"
#include "transport/mock/mock.h"
#include "transport/provider.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 20000

/* Two trainers write into one rank: one by shm, one by mock. */
struct both {
	struct transport_domain *from[2], *to, *member[2];
	struct transport_region *source[2], *target;
	struct transport_endpoint *out[2], *in[2];
	struct transport_remote *remote[2];
};

static const char *const names[2] = {"shm", "mock"};

#define ok(call)                                                \
	do {                                                    \
		struct error error_ = {0};                      \
                                                                \
		if (call)                                       \
			fail_msg("%s: %s", #call, error_.text); \
	} while (0)

static void open_domain(struct transport_domain **domain, enum role role, uint32_t rank,
			const char *transport, const struct mock_options *mock)
{
	const struct transport_options options = {
		.self = {role, rank}, .secret = 7, .provider_options = mock};

	ok(transport_domain_open(domain, transport, &options, &error_));
}

static void meet(struct transport_endpoint *a, struct transport_endpoint *b)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;

	ok(transport_endpoint_record(a, record, &length, &error_));
	ok(transport_endpoint_connect(b, record, length, soon(), &error_));
}

static void open_both(struct both *both, const struct mock_options *mock)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;

	memset(both, 0, sizeof(*both));
	open_domain(&both->to, ROLE_INFERENCE, 0, "shm,mock", mock);
	ok(transport_region_allocate(both->to, BYTES, &both->target, &error_));
	ok(transport_region_export(both->target, record, &length, &error_));
	for (uint32_t i = 0; i < 2; i++) {
		struct transport_domain *mine;

		open_domain(&both->from[i], ROLE_TRAINER, i, "shm,mock", mock);
		ok(transport_region_allocate(both->from[i], BYTES, &both->source[i], &error_));
		ok(transport_domain_find(both->from[i], names[i], &mine, &error_));
		ok(transport_domain_find(both->to, names[i], &both->member[i], &error_));
		ok(transport_endpoint_open(mine, (struct member){ROLE_INFERENCE, 0}, NULL,
					   &both->out[i], &error_));
		ok(transport_endpoint_open(both->member[i], (struct member){ROLE_TRAINER, i}, NULL,
					   &both->in[i], &error_));
		meet(both->out[i], both->in[i]);
		meet(both->in[i], both->out[i]);
		ok(transport_remote_import(both->out[i], record, length, &both->remote[i],
					   &error_));
	}
}

static void close_both(struct both *both)
{
	for (int i = 0; i < 2; i++) {
		transport_remote_close(&both->remote[i]);
		transport_endpoint_close(&both->out[i]);
		transport_endpoint_close(&both->in[i]);
		transport_region_close(&both->source[i]);
		transport_domain_close(&both->from[i]);
	}
	transport_region_close(&both->target);
	transport_domain_close(&both->to);
}

static void test_several__one_memory_is_written_by_each_and_one_wait_sees_both(void **state)
{
	const struct mock_options mock = {.local_registration = true, .write_bytes_max = 999};
	struct transport_signal signal;
	struct both both;
	uint64_t seen = 0;

	(void)state;
	open_both(&both, &mock);
	/* shm made the memory, so its peers map it; the others write it all the same */
	assert_non_null(transport_remote_pointer(both.remote[0]));
	assert_null(transport_remote_pointer(both.remote[1]));
	assert_true(transport_endpoint_caps(both.out[0])->gathers);
	assert_false(transport_endpoint_caps(both.out[1])->gathers);
	for (uint32_t i = 0; i < 2; i++) {
		unsigned char *source = transport_region_memory(both.source[i]);

		memset(source, (int)i + 1, BYTES);
		ok(transport_write(both.out[i], source, both.source[i], both.remote[i],
				   i * (BYTES / 2), BYTES / 2, soon(), &error_));
		ok(transport_signal(both.out[i], 40 + i, NULL, 0, soon(), &error_));
		seen = transport_signal_wait(both.to, seen, soon());
		assert_int_equal(seen, i + 1);
		assert_int_equal(transport_signal_read(both.in[i], &signal), 0);
		assert_int_equal(signal.tag, 40 + i);
	}
	for (uint32_t at = 0; at < BYTES; at++)
		assert_int_equal(((unsigned char *)transport_region_memory(both.target))[at],
				 at < BYTES / 2 ? 1 : 2);
	close_both(&both);
}

static void *interrupt_soon(void *domain)
{
	struct timespec moment = {0, 20000000};

	nanosleep(&moment, NULL);
	transport_domain_interrupt(domain);
	return NULL;
}

static void *wake_soon(void *domain)
{
	struct timespec moment = {0, 20000000};

	nanosleep(&moment, NULL);
	transport_domain_wake(domain);
	return NULL;
}

/* Who is only to look at something else ends no call that moves bytes. */
static void test_several__an_interrupt_ends_a_wait_and_a_call_on_a_member_and_a_wake_the_wait_alone(
	void **state)
{
	const struct mock_options never = {.connect_never = true};
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_endpoint *endpoint, *peer;
	struct transport_domain *domain, *other, *member;
	struct error error = {0};
	pthread_t thread;
	size_t length;

	(void)state;
	open_domain(&domain, ROLE_TRAINER, 0, "shm,mock", &never);
	open_domain(&other, ROLE_INFERENCE, 0, "mock", NULL);
	pthread_create(&thread, NULL, interrupt_soon, domain);
	assert_int_equal(transport_signal_wait(domain, 0, soon()), 0);
	pthread_join(thread, NULL);
	ok(transport_domain_find(domain, "mock", &member, &error_));
	ok(transport_endpoint_open(member, (struct member){ROLE_INFERENCE, 0}, NULL, &endpoint,
				   &error_));
	ok(transport_endpoint_open(other, (struct member){ROLE_TRAINER, 0}, NULL, &peer, &error_));
	ok(transport_endpoint_record(peer, record, &length, &error_));
	pthread_create(&thread, NULL, interrupt_soon, domain);
	assert_int_equal(transport_endpoint_connect(endpoint, record, length, soon(), &error),
			 -ERROR_INTERRUPTED);
	pthread_join(thread, NULL);
	transport_endpoint_close(&endpoint);
	ok(transport_endpoint_open(member, (struct member){ROLE_INFERENCE, 0}, NULL, &endpoint,
				   &error_));
	pthread_create(&thread, NULL, wake_soon, domain);
	assert_int_equal(transport_signal_wait(domain, 0, soon()), 0);
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, wake_soon, domain);
	assert_int_equal(transport_endpoint_connect(endpoint, record, length,
						    clock_deadline_ns(100), &error),
			 -ERROR_TIMEOUT);
	pthread_join(thread, NULL);
	transport_endpoint_close(&endpoint);
	transport_endpoint_close(&peer);
	transport_domain_close(&domain);
	transport_domain_close(&other);
}

static void test_several__sources_are_registered_only_where_that_is_needed(void **state)
{
	const struct mock_options mock = {.local_registration = true};
	static unsigned char memory[BYTES];
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_region *region;
	struct error error = {0};
	struct both both;
	size_t length;

	(void)state;
	open_both(&both, &mock);
	memset(memory, 9, sizeof(memory));
	ok(transport_source_register(both.from[1], memory, sizeof(memory), &region, &error_));
	assert_null(region->parts[0]);
	assert_non_null(region->parts[1]);
	assert_int_equal(transport_region_export(region, record, &length, &error), -ERROR_USAGE);
	ok(transport_write(both.out[1], memory, region, both.remote[1], 0, BYTES, soon(), &error_));
	assert_int_equal(transport_write(both.out[1], memory, NULL, both.remote[1], 0, BYTES,
					 soon(), &error),
			 -ERROR_USAGE);
	/* of another domain */
	assert_int_equal(transport_write(both.out[0], memory, region, both.remote[0], 0, BYTES,
					 soon(), &error),
			 -ERROR_USAGE);
	assert_non_null(strstr(error.text, "another domain"));
	transport_region_close(&region);
	ok(transport_source_register(both.from[0], memory, sizeof(memory), &region, &error_));
	ok(transport_write(both.out[0], memory, region, both.remote[0], 0, BYTES, soon(), &error_));
	ok(transport_flush(both.out[0], soon(), &error_));
	transport_region_close(&region);
	ok(transport_flush(both.out[1], soon(), &error_));
	close_both(&both);
}

static void test_several__opens_what_can_be_and_says_what_cannot(void **state)
{
	const struct transport_options options = {.self = {ROLE_TRAINER, 0}};
	const struct {
		const char *list;
		int rc;
		const char *said;
	} wrong[] = {
		{"verbs,verbs", -ERROR_CONFIG, "lists verbs twice"},
		{"shm,", -ERROR_CONFIG, "'' is no name of a transport"},
		{"shm,pigeon", -ERROR_UNSUPPORTED, "no transport provider 'pigeon'"},
	};
	struct transport_domain *domain, *member;
	struct error error = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		assert_int_equal(transport_domain_open(&domain, wrong[i].list, &options, &error),
				 wrong[i].rc);
		assert_non_null(strstr(error.text, wrong[i].said));
	}
	setenv("WEFT_FAULT", "inner=shm,op=domain_open,at=1,kind=fail", 1);
	ok(transport_domain_open(&domain, "shm,mock", &options, &error_));
	assert_int_equal(transport_domain_members(domain), 1);
	assert_string_equal(transport_domain_name(transport_domain_member(domain, 0)), "mock");
	assert_int_equal(transport_domain_find(domain, "shm", &member, &error), -ERROR_USAGE);
	assert_non_null(strstr(error.text, "it opened mock"));
	transport_domain_close(&domain);
	unsetenv("WEFT_FAULT");
	ok(transport_domain_open(&domain, "shm", &options, &error_));
	ok(transport_domain_find(domain, NULL, &member, &error_));
	assert_ptr_equal(member, domain);
	transport_domain_close(&domain);
}

static void keep_warnings(void *context, const struct log_record *record)
{
	if (record->level == LOG_LEVEL_WARN)
		snprintf(context, ERROR_TEXT_BYTES, "%s", record->message);
}

static void test_several__a_nic_that_none_of_them_has_is_refused_at_once(void **state)
{
	struct transport_options options = {.self = {ROLE_TRAINER, 0}, .nics = "eht0"};
	const char *const lists[] = {"shm,tcp", "verbs,tcp"};
	char warned[ERROR_TEXT_BYTES] = "";
	struct transport_domain *domain;
	struct error error = {0};

	(void)state;
	log_set_sink(keep_warnings, warned);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(transport_domain_open(&domain, lists[i], &options, &error),
				 -ERROR_CONFIG);
		assert_non_null(strstr(error.text, "--nic names nothing that --transport "));
		assert_non_null(strstr(error.text, "tcp: --nic=eht0: no interface eht0"));
		assert_null(strstr(error.text, "--transport tcp")); /* which was asked for */
		assert_true(strlen(error.text) < 400);
	}
	assert_non_null(strstr(warned, "transport tcp cannot be used here: --nic=eht0"));
	/* where the environment names it, what works without goes on, and it is told */
	warned[0] = options.nics[0] = 0;
	setenv("WEFT_NIC", "eht0", 1);
	ok(transport_domain_open(&domain, "shm,tcp", &options, &error_));
	assert_int_equal(transport_domain_members(domain), 1);
	transport_domain_close(&domain);
	assert_non_null(strstr(warned, "transport tcp cannot be used here: WEFT_NIC=eht0"));
	unsetenv("WEFT_NIC");
	log_set_sink(NULL, NULL);
}

static void test_several__the_first_with_nics_says_which(void **state)
{
	const struct transport_nic nics[] = {{.name = "a"}, {.name = "b"}};
	const struct mock_options mock = {.nics = nics, .nic_count = 2};
	struct transport_domain *domain;
	uint32_t count;

	(void)state;
	open_domain(&domain, ROLE_TRAINER, 0, "shm,mock", &mock);
	assert_string_equal(transport_domain_nics(domain, &count)[1].name, "b");
	assert_int_equal(count, 2);
	transport_domain_close(&domain);
}

static void test_several__a_record_without_a_part_for_it_is_refused(void **state)
{
	const struct transport_options options = {.self = {ROLE_INFERENCE, 0}, .secret = 7};
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_region *region;
	struct transport_remote *remote;
	struct transport_domain *one;
	struct error error = {0};
	struct both both;
	size_t length;

	(void)state;
	open_both(&both, NULL);
	setenv("WEFT_FAULT", "inner=mock,op=domain_open,at=1,kind=fail", 1);
	ok(transport_domain_open(&one, "shm,mock", &options, &error_));
	unsetenv("WEFT_FAULT");
	ok(transport_region_allocate(one, BYTES, &region, &error_));
	ok(transport_region_export(region, record, &length, &error_));
	assert_int_equal(transport_remote_import(both.out[1], record, length, &remote, &error),
			 -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "transport mock"));
	transport_region_close(&region);
	transport_domain_close(&one);
	/* and one that is no list's */
	ok(transport_domain_open(&one, "mock", &options, &error_));
	ok(transport_region_allocate(one, BYTES, &region, &error_));
	ok(transport_region_export(region, record, &length, &error_));
	assert_int_equal(transport_remote_import(both.out[1], record, length, &remote, &error),
			 -ERROR_MESSAGE);
	transport_region_close(&region);
	transport_domain_close(&one);
	close_both(&both);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_several__one_memory_is_written_by_each_and_one_wait_sees_both),
		cmocka_unit_test(
			test_several__an_interrupt_ends_a_wait_and_a_call_on_a_member_and_a_wake_the_wait_alone),
		cmocka_unit_test(test_several__sources_are_registered_only_where_that_is_needed),
		cmocka_unit_test(test_several__opens_what_can_be_and_says_what_cannot),
		cmocka_unit_test(test_several__a_nic_that_none_of_them_has_is_refused_at_once),
		cmocka_unit_test(test_several__the_first_with_nics_says_which),
		cmocka_unit_test(test_several__a_record_without_a_part_for_it_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
