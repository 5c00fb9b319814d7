/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/transport.h"

#include "base/memory.h"
#include "transport/provider.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_providers__are_listed_with_words(void **state)
{
	const struct transport_provider_info *infos;
	size_t count;
	bool shm = false;

	(void)state;
	infos = transport_providers(&count);
	for (size_t i = 0; i < count; i++) {
		assert_true(strlen(infos[i].what) > 10);
		assert_true(strlen(infos[i].name) < RECORD_PROVIDER_BYTES);
		shm = shm || strcmp(infos[i].name, "shm") == 0;
	}
	assert_true(shm);
}

static void test_probe__works_or_says_why(void **state)
{
	struct error error;

	(void)state;
	assert_int_equal(transport_probe("shm", "", &error), 0);
	assert_int_equal(transport_probe("mock", "", &error), 0);
	assert_int_equal(transport_probe("telepathy", "", &error), -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "telepathy"));
	setenv("WEFT_FAULT", "inner=shm,op=endpoint_connect,at=1", 1);
	assert_int_equal(transport_probe("shm", "", &error), -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "injected"));
	unsetenv("WEFT_FAULT");
}

/* A target's own thread may look at what came a moment later. */
static void test_probe__waits_for_what_arrives(void **state)
{
	struct error error;

	(void)state;
	setenv("WEFT_NIC", "lo", 1);
	for (int i = 0; i < 5; i++)
		if (transport_probe("tcp", "", &error))
			fail_msg("%s", error.text);
	unsetenv("WEFT_NIC");
}

static void test_probe__survives_every_failed_allocation(void **state)
{
	struct error error;
	int rc = -1;

	(void)state;
	for (uint64_t k = 1; rc && k < 200; k++) {
		memory_fail_at(k);
		rc = transport_probe("shm", "", &error);
		memory_fail_at(0);
		if (rc)
			assert_non_null(strstr(error.text, "out of memory"));
	}
	assert_int_equal(rc, 0);
}

/* A provider without any op: each call answers, none crashes. */
static void test_provider__a_table_has_no_holes(void **state)
{
	struct transport_domain domain = {.ops = {.name = "empty"}, .caps = {.inflight_max = 3}};
	struct transport_region region = {.domain = &domain};
	struct transport_endpoint endpoint = {.domain = &domain};
	struct error error = {0};
	uint32_t posted = 9;

	(void)state;
	provider_complete(&domain.ops);
	assert_int_equal(domain.ops.domain_open(&domain, &error), -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "empty"));
	assert_int_equal(domain.ops.region_register(&region, &error), -ERROR_UNSUPPORTED);
	assert_int_equal(domain.ops.post_write(&endpoint, 0, NULL, 0, &posted, &error),
			 -ERROR_UNSUPPORTED);
	assert_int_equal(posted, 0);
	assert_int_equal(domain.ops.credit(&endpoint, 0), 3);
	assert_int_equal(domain.ops.settle(&endpoint, &error), 0);
	assert_int_equal(domain.ops.signal_read(&endpoint, NULL), 1);
	assert_int_equal(domain.ops.signal_wait(&domain, 4, 0), 4);
	assert_false(domain.ops.peer_dead(&endpoint));
}

/* The window, against a plain model: random posts and completions in any order. */
static void test_flow__counts_like_its_model(void **state)
{
	enum { POSTS = 3000 };
	static bool complete[POSTS];
	struct error error;
	struct flow flow;
	uint64_t posted = 0, head = 0;

	(void)state;
	srand(4);
	memset(complete, 0, sizeof(complete));
	assert_int_equal(flow_init(&flow, 5, &error), 0);
	while (head < POSTS) {
		uint64_t pick = head + (uint64_t)rand() % 24;

		assert_true(flow.inflight <= 5);
		if (posted < POSTS && flow_room(&flow) && rand() % 2) {
			flow_add(&flow, 10, 1);
			posted++;
		}
		if (pick < posted && !complete[pick]) {
			assert_int_equal(flow_complete(&flow, pick, &error), 0);
			complete[pick] = true;
		} else {
			assert_int_equal(flow_complete(&flow, pick, &error), -ERROR_TRANSPORT);
		}
		while (head < posted && complete[head])
			head++;
		assert_int_equal(flow.head, head);
		assert_int_equal(flow.writes_done, head);
	}
	assert_int_equal(flow.bytes_done, POSTS * 10);
	flow_fini(&flow);
}

static void test_flow__a_write_without_bytes_waits_for_those_before(void **state)
{
	struct error error;
	struct flow flow;

	(void)state;
	assert_int_equal(flow_init(&flow, 2, &error), 0);
	flow_end_write(&flow);
	assert_int_equal(flow.writes_done, 1);
	flow_add(&flow, 1, 1);
	flow_end_write(&flow);
	assert_int_equal(flow.writes_done, 1);
	assert_int_equal(flow_complete(&flow, 0, &error), 0);
	assert_int_equal(flow.writes_done, 3);
	flow_fini(&flow);
}

/* ---- writes over a provider of two rails that keeps a diary ---- */

static struct diary {
	uint32_t rails[64], counts[64], posts; /* of each batch */
	uint64_t ids[64], posted, told;	       /* chunks in flight, oldest first */
	uint32_t looks, sleeps;
	bool found; /* by the latest look */
} diary;

static uint32_t diary_credit(const struct transport_endpoint *endpoint, uint32_t rail)
{
	uint32_t limit = endpoint->domain->caps.inflight_max;

	(void)rail;
	return limit - (uint32_t)(diary.posted - diary.told);
}

static int diary_post(struct transport_endpoint *endpoint, uint32_t rail,
		      const struct provider_write *writes, uint32_t count, uint32_t *posted,
		      struct error *error)
{
	(void)endpoint, (void)error;
	diary.rails[diary.posts] = rail;
	diary.counts[diary.posts++] = count;
	for (uint32_t i = 0; i < count; i++)
		diary.ids[diary.posted++] = writes[i].id;
	*posted = count;
	return 0;
}

/* Every fourth look finds one chunk that is done. */
static int diary_poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
		      struct error *error)
{
	(void)endpoint, (void)max, (void)error;
	diary.found = ++diary.looks % 4 == 0 && diary.told < diary.posted;
	if (diary.found)
		out[0] = (struct provider_completion){.id = diary.ids[diary.told++]};
	return diary.found;
}

static void diary_idle(struct transport_domain *domain, uint32_t turns)
{
	(void)domain;
	if (!turns)
		return;
	diary.sleeps++;
	assert_false(diary.found); /* there is room for the next chunk: no time to sleep */
}

static void write_with_diary(uint32_t batch, uint32_t inflight, uint64_t chunks)
{
	static unsigned char source[64 * 4096];
	struct transport_domain domain = {
		.ops = {.name = "diary",
			.credit = diary_credit,
			.post_write = diary_post,
			.poll = diary_poll,
			.idle = diary_idle},
		.caps = {.rails = 2, .inflight_max = inflight, .write_bytes_max = 4096},
		.chunk_bytes = 4096,
		.batch = batch,
		.idles = true,
	};
	struct transport_endpoint endpoint = {.domain = &domain, .stage = ENDPOINT_CONNECTED};
	struct transport_remote remote = {.endpoint = &endpoint, .bytes = sizeof(source)};
	struct error error = {0};

	diary = (struct diary){0};
	provider_complete(&domain.ops);
	assert_int_equal(flow_init(&endpoint.flow, inflight, &error), 0);
	assert_int_equal(transport_write(&endpoint, source, NULL, &remote, 0, chunks * 4096,
					 UINT64_MAX, &error),
			 0);
	assert_int_equal(diary.posted, chunks);
	flow_fini(&endpoint.flow);
}

static void test_write__offers_a_rail_what_its_provider_takes_at_once(void **state)
{
	(void)state;
	write_with_diary(1, 64, 8);
	assert_int_equal(diary.posts, 8);
	for (uint32_t i = 0; i < diary.posts; i++) {
		assert_int_equal(diary.rails[i], i % 2);
		assert_int_equal(diary.counts[i], 1);
	}
	write_with_diary(PROVIDER_BATCH_MAX, 64, 8);
	assert_int_equal(diary.counts[0], 4);
}

static void test_write__does_not_sleep_where_a_look_has_made_room(void **state)
{
	(void)state;
	write_with_diary(1, 2, 12);
	assert_true(diary.sleeps > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_providers__are_listed_with_words),
		cmocka_unit_test(test_probe__works_or_says_why),
		cmocka_unit_test(test_probe__waits_for_what_arrives),
		cmocka_unit_test(test_probe__survives_every_failed_allocation),
		cmocka_unit_test(test_provider__a_table_has_no_holes),
		cmocka_unit_test(test_flow__counts_like_its_model),
		cmocka_unit_test(test_flow__a_write_without_bytes_waits_for_those_before),
		cmocka_unit_test(test_write__offers_a_rail_what_its_provider_takes_at_once),
		cmocka_unit_test(test_write__does_not_sleep_where_a_look_has_made_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
