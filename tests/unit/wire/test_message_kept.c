/* SPDX-License-Identifier: Apache-2.0
 *
 * What is not said again in a pause is put together with what was said before.
 */
#include "base/memory.h"
#include "wire/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct member T0 = {ROLE_TRAINER, 0}, T1 = {ROLE_TRAINER, 1}, I4 = {ROLE_INFERENCE, 4};

static unsigned char *bytes_of(const char *text)
{
	return (unsigned char *)memory_string(text);
}

/* "3:new" is region 3, of these bytes; "3:" is no more. */
static void add_region(struct peer_endpoints *to, const char *text)
{
	struct region_record *out;

	to->regions = realloc(to->regions, (to->region_count + 1) * sizeof(*to->regions));
	out = &to->regions[to->region_count++];
	out->region = (uint32_t)(text[0] - '0');
	out->bytes = bytes_of(text + 2);
	out->length = strlen(text + 2);
}

static void assert_regions(const struct peer_endpoints *peer, const char *expected)
{
	char all[128] = "";

	for (size_t i = 0; i < peer->region_count; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%u:%.*s ",
			 peer->regions[i].region, (int)peer->regions[i].length,
			 (const char *)peer->regions[i].bytes);
	assert_string_equal(all, expected);
}

static struct message said(uint32_t attempt, const struct member *members, size_t count)
{
	struct message message = {.type = MESSAGE_PEERS, .u.peers.attempt = attempt};
	struct message_peers *peers = &message.u.peers;

	peers->peers = calloc(count + 1, sizeof(*peers->peers));
	for (size_t i = 0; i < count; i++) {
		peers->peers[i].member = members[i];
		peers->peers[i].incarnation = 100 + members[i].rank;
		peers->peers[i].record = bytes_of("record");
		peers->peers[i].record_length = 6;
	}
	peers->peer_count = count;
	return message;
}

static struct message plan_of(const struct member *members, const bool *kept, size_t count)
{
	struct message message = {.type = MESSAGE_PLAN};
	struct message_plan *plan = &message.u.plan;

	plan->peers = calloc(count + 1, sizeof(*plan->peers));
	plan->peer_count = count;
	plan->policy = memory_string("greedy");
	plan->order = memory_string("rotated");
	for (size_t i = 0; i < count; i++) {
		plan->peers[i].member = members[i];
		plan->peers[i].kept = kept[i];
		plan->peers[i].host = memory_string("a");
		plan->peers[i].transport = memory_string("");
	}
	return message;
}

/* T0 is kept, and has another region 1, no region 2 and a new region 3; T1 is another process. */
struct pause {
	struct message plan, before, now;
};

static struct pause pause_of(void)
{
	struct pause pause = {plan_of((struct member[]){T0, T1}, (bool[]){true, false}, 2),
			      said(1, (struct member[]){T0, T1}, 2),
			      said(2, (struct member[]){T0, T1}, 2)};
	struct peer_endpoints *then = &pause.before.u.peers.peers[0];
	struct peer_endpoints *now = &pause.now.u.peers.peers[0];

	add_region(then, "0:params");
	add_region(then, "1:sums");
	add_region(then, "2:window");
	then->copies = 1;
	then->places = calloc(1, sizeof(*then->places));
	then->place_count = 1;
	add_region(now, "1:larger");
	add_region(now, "2:");
	add_region(now, "3:new");
	add_region(&pause.now.u.peers.peers[1], "0:its");
	pause.now.u.peers.peers[1].incarnation = 7;
	return pause;
}

static void pause_fini(struct pause *pause)
{
	message_fini(&pause->plan);
	message_fini(&pause->before);
	message_fini(&pause->now);
}

static int complete(struct pause *pause, struct error *error)
{
	return message_peers_complete(&pause->now.u.peers, &pause->plan.u.plan,
				      &pause->before.u.peers, error);
}

static void test_peer__that_is_kept_is_what_it_was_with_what_has_changed(void **unused)
{
	struct pause pause = pause_of();
	const struct message_peers *peers = &pause.now.u.peers;
	struct error error;

	(void)unused;
	assert_int_equal(complete(&pause, &error), 0);
	assert_int_equal(peers->attempt, 2);
	assert_int_equal(peers->peer_count, 2);
	assert_regions(&peers->peers[0], "0:params 1:larger 3:new ");
	assert_int_equal(peers->peers[0].place_count, 1);
	assert_int_equal(peers->peers[0].record_length, 0);
	assert_regions(&peers->peers[1], "0:its ");
	assert_int_equal(peers->peers[1].incarnation, 7);
	assert_int_equal(peers->peers[1].record_length, 6);
	pause_fini(&pause);
}

static void test_peer__that_is_kept_need_not_be_named(void **unused)
{
	struct pause pause = pause_of();
	struct message_peers *peers = &pause.now.u.peers;
	struct message alone = said(2, (struct member[]){T1}, 1);
	struct error error;

	(void)unused;
	message_fini(&pause.now);
	pause.now = alone;
	assert_int_equal(complete(&pause, &error), 0);
	assert_int_equal(peers->peer_count, 2);
	assert_regions(&peers->peers[0], "0:params 1:sums 2:window ");
	pause_fini(&pause);
}

static void test_peers__that_do_not_fit_the_plan_are_refused(void **unused)
{
	static const char *const words[] = {
		"nothing of trainer 1, which is a peer of the plan",
		"nothing of trainer 0, with which the plan keeps an endpoint, was said before",
		"trainer 0, with which the plan keeps an endpoint, is another process by now",
		"3 endpoints, of which 2 are of peers of the plan"};

	(void)unused;
	for (int i = 0; i < 4; i++) {
		struct pause pause = pause_of();
		struct error error = {0};

		if (i == 0)
			pause.now.u.peers.peers[1].member = I4;
		if (i == 1)
			pause.before.u.peers.peers[0].member = I4;
		if (i == 2)
			pause.now.u.peers.peers[0].incarnation = 9;
		if (i == 3) {
			message_fini(&pause.now);
			pause.now = said(2, (struct member[]){T0, T1, I4}, 3);
		}
		assert_int_equal(complete(&pause, &error), -ERROR_MESSAGE);
		assert_string_equal(error.text, words[i]);
		pause_fini(&pause);
	}
}

static void test_memory__that_is_not_there_is_an_error_and_nothing_is_lost(void **unused)
{
	bool over = false;

	(void)unused;
	for (long k = 1; !over; k++) {
		struct pause pause = pause_of();
		struct error error;

		memory_fail_at(k);
		over = !complete(&pause, &error);
		memory_fail_at(0);
		if (!over)
			assert_int_equal(error.code, ERROR_MEMORY);
		pause_fini(&pause);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peer__that_is_kept_is_what_it_was_with_what_has_changed),
		cmocka_unit_test(test_peer__that_is_kept_need_not_be_named),
		cmocka_unit_test(test_peers__that_do_not_fit_the_plan_are_refused),
		cmocka_unit_test(test_memory__that_is_not_there_is_an_error_and_nothing_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
