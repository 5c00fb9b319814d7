/* SPDX-License-Identifier: Apache-2.0
 *
 * The topology that workers report: hosts by host_id, NICs by name, what nobody knows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "controller/epoch.h"
#include "routing/plan/topology_file.h"
#include <stdio.h>
#include <string.h>

#define PARTIES 4 /* two trainers, two inference ranks */

struct bench {
	struct epoch epoch;
	struct party parties[PARTIES];
	struct worker workers[PARTIES];
	struct actions actions;
};

static struct bench *bench_of(struct bench *bench)
{
	static const struct member members[PARTIES] = {
		{ROLE_TRAINER, 0}, {ROLE_TRAINER, 1}, {ROLE_INFERENCE, 0}, {ROLE_INFERENCE, 1}};

	memset(bench, 0, sizeof(*bench));
	bench->epoch.trainers = 2;
	bench->epoch.parties = bench->parties;
	bench->epoch.count = PARTIES;
	for (int i = 0; i < PARTIES; i++) {
		bench->parties[i].worker = &bench->workers[i];
		bench->workers[i].who = members[i];
		bench->workers[i].hello.host = (char *)(i < 2 ? "a" : "b");
		bench->workers[i].hello.host_id = (char *)(i < 2 ? "boot-a" : "boot-b");
	}
	return bench;
}

static void reports(struct bench *bench, int party, struct nic_report *nics, size_t count)
{
	bench->workers[party].declare.nics = nics;
	bench->workers[party].declare.nic_count = count;
}

/* The whole topology as canonical text without its head, in one line. */
static char *gathered(struct bench *bench)
{
	struct topology *topology;
	struct text text = {0};
	struct error error = {0};
	struct json json;

	if (epoch_cluster(&topology, &bench->epoch, &bench->actions, &error))
		fail_msg("%s", error.text);
	json_to_text(&json, &text);
	topology_put(&json, topology);
	assert_true(text_ok(&text));
	topology_free(&topology);
	for (char *at = text.data; *at; at++)
		if (*at == '\n')
			*at = ' ';
	return text.data;
}

static void expect(struct bench *bench, const char *const *parts, size_t count)
{
	char *text = gathered(bench);

	for (size_t i = 0; i < count; i++)
		if (!strstr(text, parts[i]))
			fail_msg("'%s' is not in %s", parts[i], text);
	memory_free(text);
	actions_clear(&bench->actions);
	memory_free(bench->actions.items);
	bench->actions = (struct actions){0};
}

#define EXPECT(bench, ...)                                \
	expect(bench, (const char *const[]){__VA_ARGS__}, \
	       ARRAY_SIZE(((const char *const[]){__VA_ARGS__})))

static void test_hosts__share_the_nics_that_several_workers_name(void **unused)
{
	struct bench bench;
	struct nic_report near[] = {{(char *)"mlx5_1:1", 1, UINT64_C(25000000000), DISTANCE_PIX},
				    {(char *)"mlx5_0:1", 0, UINT64_C(50000000000), DISTANCE_PIX}};
	struct nic_report slower[] = {
		{(char *)"mlx5_0:1", 0, UINT64_C(40000000000), DISTANCE_NODE}};

	(void)unused;
	bench_of(&bench);
	reports(&bench, 0, near, 2);
	reports(&bench, 1, slower, 1);
	reports(&bench, 2, near, 1);
	reports(&bench, 3, near, 2);
	EXPECT(&bench,
	       "{\"name\":\"a\",\"nics\":[{\"name\":\"mlx5_0:1\",\"rail\":0,\"bytes_per_second\":"
	       "40000000000},{\"name\":\"mlx5_1:1\",\"rail\":1,\"bytes_per_second\":25000000000}]}",
	       "{\"name\":\"b\",\"nics\":[{\"name\":\"mlx5_0:1\",\"rail\":0,\"bytes_per_second\":"
	       "50000000000},",
	       "{\"rank\":0,\"host\":\"a\",\"links\":{\"mlx5_0:1\":\"pix\",\"mlx5_1:1\":\"pix\"}}",
	       "{\"rank\":1,\"host\":\"a\",\"links\":{\"mlx5_0:1\":\"node\"}}",
	       "{\"rank\":0,\"host\":\"b\",\"links\":{\"mlx5_1:1\":\"pix\"}}");
}

/* It sends through all that it reports, so none of them may look unused. */
static void test_worker__of_nics_near_and_far_uses_all_of_them(void **unused)
{
	struct bench bench;
	struct nic_report mixed[] = {{(char *)"n0", 0, 1000, DISTANCE_PIX},
				     {(char *)"n1", 1, 1000, DISTANCE_SYS}};

	(void)unused;
	bench_of(&bench);
	reports(&bench, 0, mixed, 2);
	EXPECT(&bench, "{\"rank\":0,\"host\":\"a\",\"links\":{\"n0\":\"sys\",\"n1\":\"sys\"}}");
}

static void test_worker__without_a_nic_gets_one_of_the_flat_rate_and_the_log_says_so(void **unused)
{
	struct bench bench;
	struct nic_report unknown[] = {{(char *)"rxe0:1", 0, 0, DISTANCE_SYS}};
	struct topology *topology;
	struct error error = {0};

	(void)unused;
	bench_of(&bench);
	reports(&bench, 2, unknown, 1);
	assert_int_equal(epoch_cluster(&topology, &bench.epoch, &bench.actions, &error), 0);
	assert_int_equal(bench.actions.count, 1);
	assert_string_equal(bench.actions.items[0].line,
			    "3 of 4 workers report no NIC: each counts as having one of 400 Gb/s");
	topology_free(&topology);
	actions_clear(&bench.actions);
	EXPECT(&bench,
	       "{\"name\":\"trainer 0\",\"rail\":0,\"bytes_per_second\":50000000000},"
	       "{\"name\":\"trainer 1\"",
	       "{\"rank\":1,\"host\":\"a\",\"links\":{\"trainer 1\":\"pix\"}}",
	       "{\"name\":\"rxe0:1\",\"rail\":0,\"bytes_per_second\":50000000000}");
}

static void test_hosts__of_one_name_or_of_none_are_told_apart(void **unused)
{
	struct bench bench;

	(void)unused;
	bench_of(&bench);
	bench.workers[1].hello.host_id = (char *)"boot-c";
	bench.workers[2].hello.host_id = (char *)"";
	bench.workers[3].hello.host_id = NULL;
	bench.workers[3].hello.host = NULL;
	EXPECT(&bench, "{\"rank\":0,\"host\":\"a\",", "{\"rank\":1,\"host\":\"a (trainer 1, 2)\",",
	       "{\"rank\":0,\"host\":\"b\",", "{\"rank\":1,\"host\":\"inference 1\",");
}

static void test_cluster__no_allocation_that_fails_is_lost_or_leaks(void **unused)
{
	struct nic_report nics[] = {{(char *)"n0", 0, 1000, DISTANCE_PIX},
				    {(char *)"n1", 1, 1000, DISTANCE_SYS}};
	int rc = -1;

	(void)unused;
	for (uint64_t k = 1; rc; k++) {
		struct bench bench;
		struct topology *topology;
		struct error error = {0};

		bench_of(&bench);
		reports(&bench, 1, nics, 2);
		memory_fail_at(k);
		rc = epoch_cluster(&topology, &bench.epoch, &bench.actions, &error);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
		assert_int_equal(rc == 0, topology != NULL);
		topology_free(&topology);
		actions_clear(&bench.actions);
		memory_free(bench.actions.items);
		assert_true(k < 1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts__share_the_nics_that_several_workers_name),
		cmocka_unit_test(test_worker__of_nics_near_and_far_uses_all_of_them),
		cmocka_unit_test(
			test_worker__without_a_nic_gets_one_of_the_flat_rate_and_the_log_says_so),
		cmocka_unit_test(test_hosts__of_one_name_or_of_none_are_told_apart),
		cmocka_unit_test(test_cluster__no_allocation_that_fails_is_lost_or_leaks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
