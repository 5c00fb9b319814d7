/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a NIC could still be written through: gone with the queue pairs and the keys before it is
 * anybody else's; and where a NIC keeps a key, the memory is kept too. Late writes under way in random
 * order are in the suite (tests/support/conformance_late.c); here the key and the number are used again.
 */
#include "tests/support/verbs_mock_pair.h"

#include "base/clock.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 65536u
#define SEEDS 40

static struct verbs_settings settings;
static struct verbs_options options;

#define ok(call)                                                \
	do {                                                    \
		struct error error_ = {0};                      \
                                                                \
		if (call)                                       \
			fail_msg("%s: %s", #call, error_.text); \
	} while (0)

static struct transport_domain *open_rank(void)
{
	struct transport_options how = {.self = {ROLE_INFERENCE, 5}, .secret = 42};
	struct transport_domain *domain = NULL;

	verbs_mock_open(&(struct verbs_mock_options){.seed = 1});
	verbs_pair_settings(&settings);
	options = (struct verbs_options){.calls = verbs_mock_calls(0), .settings = &settings};
	how.provider_options = &options;
	ok(transport_domain_open(&domain, "verbs", &how, &error_));
	return domain;
}

/* No process to end but this one: it says so for as long as it lives. */
static void test_key__that_a_nic_keeps_makes_the_memory_refused(void **state)
{
	static unsigned char memory[BYTES];
	struct transport_domain *domain = open_rank();
	struct transport_region *region = NULL;
	struct error error = {0};

	(void)state;
	ok(transport_region_register(domain, memory, BYTES, &region, &error_));
	verbs_mock_fail(VERBS_MOCK_dereg_mr, 1, EBUSY, VERBS_MOCK_ERRNO, 0);
	transport_region_close(&region);
	assert_true(verbs_mock_failed());
	assert_int_equal(transport_memory_check(memory + BYTES - 1, 1, &error), -ERROR_UNSAFE);
	assert_non_null(strstr(error.text, "m0n0"));
	assert_int_equal(transport_region_register(domain, memory, BYTES, &region, &error),
			 -ERROR_UNSAFE);
	transport_domain_close(&domain);
	verbs_mock_close();
}

/* Weft's own memory stays where it is instead: the next mapping must not lie there. */
static void test_key__that_a_nic_keeps_keeps_wefts_own_memory_mapped(void **state)
{
	struct transport_domain *domain = open_rank();
	struct transport_region *region = NULL;
	unsigned char *memory;

	(void)state;
	ok(transport_region_allocate(domain, BYTES, &region, &error_));
	memory = transport_region_memory(region);
	verbs_mock_fail(VERBS_MOCK_dereg_mr, 1, EBUSY, VERBS_MOCK_ERRNO, 0);
	transport_region_close(&region);
	memory[0] = memory[BYTES - 1] = 1; /* unmapped, this would be the end */
	ok(transport_memory_check(memory, BYTES, &error_));
	transport_domain_close(&domain);
	verbs_mock_close();
}

/* Packets of an old connection are under way when its endpoint closes; the memory is registered again at the
 * same place, the same peer connects again and writes. */
static void test_packets__of_an_old_queue_pair_land_nowhere(void **state)
{
	unsigned late = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct transport_endpoint *old;
		struct transport_remote *remote;
		struct error error = {0};
		struct pair pair;

		verbs_mock_open(&(struct verbs_mock_options){.seed = seed, .nics = 2});
		verbs_pair_settings(&settings);
		ok(verbs_pair_open(&pair, &settings, BYTES, &error_));
		memset(pair.from, 0x55, BYTES);
		for (uint64_t at = 0; at < BYTES; at += 4096)
			if (transport_write(pair.ab, pair.from + at, pair.source, pair.remote, at,
					    4096, clock_ns() + 1000000, &error))
				break; /* the queues are full: enough is under way */
		old = pair.ab;
		remote = pair.remote;
		pair.ab = NULL;
		pair.remote = NULL;
		ok(transport_endpoint_stop(pair.ba, verbs_pair_soon(), &error_));
		transport_endpoint_close(&pair.ba);
		ok(verbs_pair_connect(&pair, &error_));
		memset(pair.to, 0xee, BYTES);
		verbs_mock_pump(500);
		late += transport_flush(old, verbs_pair_soon(), &error) != 0;
		for (uint64_t i = 0; i < BYTES; i++)
			if (pair.to[i] != 0xee)
				fail_msg("seed %llu: byte %llu is 0x%02x", (unsigned long long)seed,
					 (unsigned long long)i, pair.to[i]);
		transport_remote_close(&remote);
		transport_endpoint_close(&old);
		pair_close(&pair);
		verbs_mock_close();
	}
	assert_true(late > SEEDS / 2); /* else all had arrived before */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packets__of_an_old_queue_pair_land_nowhere),
		cmocka_unit_test(test_key__that_a_nic_keeps_makes_the_memory_refused),
		cmocka_unit_test(test_key__that_a_nic_keeps_keeps_wefts_own_memory_mapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
