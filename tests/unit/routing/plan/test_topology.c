/* SPDX-License-Identifier: Apache-2.0
 *
 * WEFT_GOLDEN_WRITE=1 rewrites tests/unit/golden/topology_spec.json; look at the difference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "routing/plan/topology_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *text_of(const struct topology *topology)
{
	struct text text = {0};
	struct json json;

	json_to_text(&json, &text);
	topology_put(&json, topology);
	json_put_newline(&json);
	assert_true(text_ok(&text));
	return text.data;
}

static struct topology *expanded(const char *spec, uint32_t trainers, uint32_t inference)
{
	struct topology *topology;
	struct error error = {0};

	if (topology_expand(&topology, spec, trainers, inference, &error))
		fail_msg("%s: %s", spec, error.text);
	return topology;
}

static struct topology *parsed(const char *text)
{
	struct topology *topology;
	struct error error = {0};

	if (topology_parse(&topology, text, strlen(text), "file", &error))
		fail_msg("%s", error.text);
	return topology;
}

/* "0+1" : the NICs that a rank uses, by index on its host */
static void assert_uses(const struct topology *topology, enum role role, uint32_t rank,
			uint32_t host, const char *nics)
{
	const struct topology_rank *place = &topology->ranks[role][rank];
	char text[256] = "";

	assert_int_equal(place->host, host);
	for (uint32_t k = 0; k < place->used_count; k++) {
		uint32_t nic = topology->links[place->link_first + k].nic;

		assert_int_equal(topology->nics[nic].host, host);
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%u", k ? "+" : "",
			 nic - topology->hosts[host].nic_first);
	}
	assert_string_equal(text, nics);
}

static void test_spec__trainers_and_inference_ranks_are_on_hosts_of_their_own(void **unused)
{
	struct topology *topology = expanded("per_host=4,nics=4,gbps=200,uplink_gbps=800", 6, 5);

	(void)unused;
	assert_false(topology->flat);
	assert_int_equal(topology->host_count, 4); /* 4 + 2 trainers, 4 + 1 inference ranks */
	assert_int_equal(topology->nic_count, 16);
	assert_string_equal(topology->hosts[3].name, "host 3");
	assert_int_equal(topology->hosts[3].nic_first, 12);
	assert_int_equal(topology->hosts[2].uplink_bytes_per_second, UINT64_C(100000000000));
	assert_uses(topology, ROLE_TRAINER, 3, 0, "3");
	assert_uses(topology, ROLE_TRAINER, 4, 1, "0");
	assert_uses(topology, ROLE_INFERENCE, 0, 2, "0");
	assert_uses(topology, ROLE_INFERENCE, 4, 3, "0");
	assert_int_equal(topology->nics[6].rail, 2);
	assert_int_equal(topology_rank_rate(topology, ROLE_TRAINER, 3), UINT64_C(25000000000));
	topology_free(&topology);
}

static void test_spec__ranks_share_nics_or_have_several(void **unused)
{
	static const struct {
		const char *spec, *uses[4];
		uint64_t rate;
	} cases[] = {
		{"per_host=4,nics=2", {"0", "0", "1", "1"}, UINT64_C(50000000000)},
		{"per_host=4,nics=1", {"0", "0", "0", "0"}, UINT64_C(50000000000)},
		{"per_host=4,nics=8", {"0+1", "2+3", "4+5", "6+7"}, UINT64_C(100000000000)},
		{"per_host=4,nics=6", {"0", "1+2", "3", "4+5"}, UINT64_C(50000000000)},
		{"per_host=4,nics=3", {"0", "0", "1", "2"}, UINT64_C(50000000000)},
		{"per_host=4", {"0", "1", "2", "3"}, UINT64_C(50000000000)},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct topology *topology = expanded(cases[i].spec, 4, 4);

		for (uint32_t r = 0; r < 4; r++) {
			assert_uses(topology, ROLE_TRAINER, r, 0, cases[i].uses[r]);
			assert_uses(topology, ROLE_INFERENCE, r, 1, cases[i].uses[r]);
		}
		assert_int_equal(topology_rank_rate(topology, ROLE_TRAINER, 0), cases[i].rate);
		topology_free(&topology);
	}
}

static void test_spec__rails_repeat_where_there_are_fewer_than_nics(void **unused)
{
	struct topology *topology = expanded("per_host=2,nics=4,rails=2", 2, 2);

	(void)unused;
	for (uint32_t n = 0; n < 8; n++)
		assert_int_equal(topology->nics[n].rail, n % 2);
	topology_free(&topology);
}

static void test_spec__refuses_with_key_value_and_what_is_allowed(void **unused)
{
	static const char *const cases[][2] = {
		{"per_host=0", "per_host is '0'; it must be a number from 1 to 65536"},
		{"per_host=8,nics=65", "nics is '65'; it must be a number from 1 to 64"},
		{"per_host=8,gbps=fast", "gbps is 'fast'; it must be a number from 1 to 8000000"},
		{"per_host=8,nics=4,rails=5", "rails=5 is more than nics=4"},
		{"per_host=8,per_host=8", "key 'per_host' is given twice"},
		{"hosts=8", "unknown key 'hosts'; keys are per_host, nics, gbps, uplink_gbps, "
			    "rails"},
		{"per_host=8,", "'' is not key=value"},
		{"per_host=100", "per_host is 100; a host has at most 64 NICs: give nics"},
		{"uplink_gbps=-1", "uplink_gbps is '-1'"},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct topology *topology;
		struct error error = {0};

		assert_int_equal(topology_open(&topology, cases[i][0], 8, 8, &error),
				 -ERROR_CONFIG);
		if (strncmp(error.text, "--topology ", 11) || !strstr(error.text, cases[i][1]) ||
		    !strstr(error.text, cases[i][0]))
			fail_msg("%s: %s", cases[i][0], error.text);
		assert_null(topology);
	}
}

static void test_file__that_a_spec_is_written_as_is_the_same_topology(void **unused)
{
	static const char *const specs[] = {"per_host=8,nics=8,gbps=400", "per_host=4,nics=2",
					    "per_host=3,nics=8,gbps=100,uplink_gbps=1,rails=3",
					    "gbps=1"};
	const char *root = getenv("WEFT_SOURCE_DIR");
	char path[4096];

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		struct topology *topology = expanded(specs[i], 9, 7), *again;
		char *text = text_of(topology), *second;

		again = parsed(text);
		second = text_of(again);
		assert_string_equal(text, second);
		assert_memory_equal(topology->links, again->links,
				    again->link_count * sizeof(*again->links));
		for (int role = 0; role < ROLE_COUNT; role++)
			assert_memory_equal(topology->ranks[role], again->ranks[role],
					    again->rank_count[role] * sizeof(*again->ranks[role]));
		memory_free(text);
		memory_free(second);
		topology_free(&topology);
		topology_free(&again);
	}
	snprintf(path, sizeof(path), "%s/tests/unit/golden/topology_spec.json", root ? root : ".");
	struct topology *topology = expanded("per_host=2,nics=2,gbps=400,uplink_gbps=400", 3, 2);
	char *text = text_of(topology);
	struct file_writer writer;
	struct file_map golden;

	if (getenv("WEFT_GOLDEN_WRITE")) {
		assert_int_equal(file_writer_open(&writer, path, NULL), 0);
		fputs(text, writer.stream);
		assert_int_equal(file_writer_commit(&writer, NULL), 0);
	}
	assert_int_equal(file_map_open(&golden, path, NULL), 0);
	assert_int_equal(golden.bytes, strlen(text));
	assert_memory_equal(golden.data, text, golden.bytes);
	file_map_close(&golden);
	memory_free(text);
	topology_free(&topology);
}

/* A host whose second NIC is twice as fast, a rank that is near to both, one far from all. */
static const char hand_made[] =
	"{\"schema\":\"weft.topology/1\",\n"
	" \"hosts\":[{\"name\":\"a01\",\"uplink_gbps\":0.8,\n"
	"   \"nics\":[{\"name\":\"mlx5_0\",\"rail\":0,\"gbps\":100},\n"
	"           {\"name\":\"mlx5_1\",\"rail\":1,\"bytes_per_second\":25000000000}]},\n"
	"  {\"name\":\"b01\",\"nics\":[{\"name\":\"mlx5_0\",\"rail\":4,\"gbps\":12.5}]}],\n"
	" \"trainers\":[{\"rank\":0,\"host\":\"a01\",\"links\":{\"mlx5_1\":\"node\","
	"\"mlx5_0\":\"node\"}},\n"
	"  {\"rank\":1,\"host\":\"a01\",\"links\":{\"mlx5_1\":\"pxb\",\"mlx5_0\":\"sys\"}}],\n"
	" \"inference\":[{\"rank\":0,\"host\":\"b01\",\"links\":{\"mlx5_0\":\"sys\"}}]}\n";

static void test_file__by_hand_gives_hosts_rates_and_the_nearest_nics(void **unused)
{
	struct topology *topology = parsed(hand_made);

	(void)unused;
	assert_int_equal(topology->hosts[0].uplink_bytes_per_second, 100000000);
	assert_int_equal(topology->hosts[1].uplink_bytes_per_second, 0);
	assert_int_equal(topology->nics[2].rail, 4);
	assert_int_equal(topology->nics[2].bytes_per_second, UINT64_C(1562500000));
	assert_uses(topology, ROLE_TRAINER, 0, 0, "0+1");
	assert_uses(topology, ROLE_TRAINER, 1, 0, "1");
	assert_uses(topology, ROLE_INFERENCE, 0, 1, "0");
	assert_int_equal(topology_rank_rate(topology, ROLE_TRAINER, 0), UINT64_C(37500000000));
	topology_free(&topology);
}

static void test_file__every_malformed_one_is_refused_by_place_and_name(void **unused)
{
	static const struct {
		const char *from, *to, *message;
	} cases[] = {
		{"weft.topology/1", "weft.topology/2",
		 "its schema is \"weft.topology/2\"; weft.topology/1 is read"},
		{"\"schema\"", "\"skema\"", "key \"skema\" is unknown"},
		{"\"schema\":\"weft.topology/1\",", "", "key \"schema\" is missing"},
		{"\"schema\":\"weft.topology/1\"", "\"schema\":1", "\"schema\" is not a string"},
		{"\"inference\"", "\"inferences\"", "key \"inferences\" is unknown"},
		{"\"inference\":[", "\"inference\":[],\"trainers\":[", "duplicate"},
		{"\"name\":\"b01\"", "\"name\":\"a01\"",
		 "hosts[1]: hosts[0] is named \"a01\" already"},
		{"\"name\":\"b01\"", "\"name\":\"\"", "hosts[1]: \"name\" has 0 bytes; 1 to 511"},
		{"\"name\":\"b01\"", "\"name\":7", "hosts[1]: \"name\" is not a string"},
		{"\"name\":\"b01\",", "", "hosts[1]: key \"name\" is missing"},
		{"\"name\":\"mlx5_1\"", "\"name\":\"mlx5_0\"",
		 "hosts[0].nics[1]: the host has a NIC \"mlx5_0\" already"},
		{"\"rail\":1", "\"rail\":-1", "hosts[0].nics[1]: \"rail\" is -1; 0 to 65535"},
		{"\"rail\":1", "\"rail\":1.5", "\"rail\" is not a whole number"},
		{"\"rail\":1", "\"speed\":1", "hosts[0].nics[1]: key \"speed\" is unknown"},
		{"\"gbps\":100", "\"gbps\":0",
		 "hosts[0].nics[0]: \"gbps\" is 0; more than 0 and at most 8000000 is possible"},
		{"\"gbps\":100", "\"gbps\":1e300", "\"gbps\" is 1e+300; more than 0"},
		{"\"gbps\":100", "\"gbps\":\"fast\"", "\"gbps\" is not a number"},
		{"\"gbps\":100", "\"gbps\":100,\"bytes_per_second\":9",
		 "hosts[0].nics[0]: both \"gbps\" and \"bytes_per_second\" are given"},
		{",\"gbps\":100", "",
		 "hosts[0].nics[0]: key \"bytes_per_second\" or \"gbps\" is missing"},
		{"25000000000", "0", "\"bytes_per_second\" is 0; 1 to 1000000000000000"},
		{"25000000000", "1000000000000001", "\"bytes_per_second\" is 1000000000000001"},
		{"\"uplink_gbps\":0.8", "\"uplink_gbps\":null",
		 "hosts[0]: \"uplink_gbps\" is not a number"},
		{"\"uplink_gbps\":0.8", "\"uplink_gbps\":1,\"uplink_bytes_per_second\":1",
		 "hosts[0]: both"},
		{"\"nics\":[{\"name\":\"mlx5_0\",\"rail\":4", "\"nics\":{},\"x\":[{\"rail\":4",
		 "hosts[1]: key \"x\" is unknown"},
		{"\"rank\":1", "\"rank\":2", "trainers[1]: \"rank\" is 2; ranks count from 0"},
		{"\"rank\":1,\"host\":\"a01\"", "\"rank\":1,\"host\":\"a02\"",
		 "trainers[1]: \"host\" is \"a02\", which \"hosts\" does not have"},
		{"\"mlx5_1\":\"pxb\"", "\"mlx5_2\":\"pxb\"",
		 "trainers[1]: \"links\" has \"mlx5_2\", which is no NIC of host \"a01\""},
		{"\"pxb\"", "\"near\"",
		 "trainers[1]: \"links\" has \"mlx5_1\" at \"near\"; distances are pix, pxb, phb, "
		 "node, sys"},
		{"\"pxb\"", "1", "\"links\" has \"mlx5_1\" at \"(not a string)\""},
		{"{\"mlx5_0\":\"sys\"}", "{}", "inference[0]: \"links\" is empty"},
		{"{\"mlx5_0\":\"sys\"}", "[]", "inference[0]: \"links\" is not an object"},
		{"{\"rank\":0,\"host\":\"b01\"", "7,{\"rank\":0,\"host\":\"b01\"",
		 "inference[0]: not an object"},
		{"]}\n", "]", "file: line"},
		{"]}\n", "]} x", "end of file expected"},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *last = NULL, *at = hand_made;
		struct topology *topology;
		struct error error = {0};
		char *wrong;
		int rc;

		while ((at = strstr(at, cases[i].from)) != NULL) {
			last = at++;
			if (cases[i].from[0] != ']')
				break;
		}
		assert_non_null(last);
		wrong = memory_format("%.*s%s%s", (int)(last - hand_made), hand_made, cases[i].to,
				      last + strlen(cases[i].from));
		rc = topology_parse(&topology, wrong, strlen(wrong), "file", &error);
		if (rc != -ERROR_FILE || strncmp(error.text, "file: ", 6) != 0 ||
		    !strstr(error.text, cases[i].message))
			fail_msg("case %zu (%s): %d, '%s'", i, cases[i].to, rc, error.text);
		assert_null(topology);
		memory_free(wrong);
	}
}

static void test_file__truncated_and_flipped_texts_end_in_a_topology_or_a_message(void **unused)
{
	size_t bytes = strlen(hand_made);
	char *text = memory_string(hand_made);

	(void)unused;
	for (size_t n = 0; n < bytes * 9; n++) {
		struct topology *topology;
		struct error error = {0};
		size_t at = n / 9;
		bool cut = n % 9 == 8;
		int rc;

		if (!cut)
			text[at] = (char)(text[at] ^ 1 << n % 9);
		rc = topology_parse(&topology, text, cut ? at : bytes, "file", &error);
		assert_true(rc == 0 ? topology != NULL : topology == NULL && error.text[0]);
		topology_free(&topology);
		text[at] = hand_made[at];
	}
	memory_free(text);
}

static void test_open__takes_flat_a_spec_or_a_file_of_the_jobs_size(void **unused)
{
	struct topology *topology;
	struct error error = {0};
	char path[64];
	FILE *file;

	(void)unused;
	snprintf(path, sizeof(path), "./topology-%d=x.json", (int)getpid());
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(hand_made, file);
	fclose(file);
	assert_int_equal(topology_open(&topology, path, 2, 1, &error), 0);
	topology_free(&topology);
	assert_int_equal(topology_open(&topology, path, 2, 4, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "the topology places 2 trainers and 1 inference ranks, "
					   "the job has 2 and 4"));
	assert_null(topology);
	unlink(path);
	assert_int_equal(topology_open(&topology, path, 2, 1, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, path));
	assert_int_equal(topology_open(&topology, "per_host=2", 2, 4, &error), 0);
	assert_false(topology->flat);
	topology_free(&topology);
	assert_int_equal(topology_open(&topology, "flat", 2, 4, &error), 0);
	assert_true(topology->flat);
	topology_free(&topology);
}

static void test_flat__is_a_host_and_a_nic_a_rank(void **unused)
{
	struct topology *topology;

	(void)unused;
	assert_int_equal(topology_flat(&topology, 3, 20, NULL), 0);
	assert_true(topology->flat);
	assert_int_equal(topology->host_count, 23);
	assert_string_equal(topology->hosts[3].name, "inference 0");
	for (uint32_t r = 0; r < 20; r++) {
		assert_uses(topology, ROLE_INFERENCE, r, 3 + r, "0");
		assert_int_equal(topology_rank_rate(topology, ROLE_INFERENCE, r),
				 TOPOLOGY_FLAT_BYTES_PER_SECOND);
	}
	topology_free(&topology);
	assert_int_equal(topology_flat(&topology, 0, 0, NULL), 0);
	topology_free(&topology);
}

static int open_flat(struct topology **topology, struct error *error)
{
	return topology_flat(topology, 9, 2, error);
}

static int open_spec(struct topology **topology, struct error *error)
{
	return topology_open(topology, "per_host=2,nics=4", 9, 2, error);
}

static int open_text(struct topology **topology, struct error *error)
{
	return topology_parse(topology, hand_made, strlen(hand_made), "file", error);
}

static void test_topology__no_allocation_that_fails_is_lost_or_leaks(void **unused)
{
	int (*const calls[])(struct topology **, struct error *) = {open_flat, open_spec,
								    open_text};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		int rc = -1;

		for (uint64_t k = 1; rc; k++) {
			struct topology *topology;
			struct error error = {0};

			memory_fail_at(k);
			rc = calls[i](&topology, &error);
			memory_fail_at(0);
			assert_true(rc == 0 || rc == -ERROR_MEMORY);
			assert_int_equal(rc == 0, topology != NULL);
			topology_free(&topology);
			assert_true(k < 10000);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spec__trainers_and_inference_ranks_are_on_hosts_of_their_own),
		cmocka_unit_test(test_spec__ranks_share_nics_or_have_several),
		cmocka_unit_test(test_spec__rails_repeat_where_there_are_fewer_than_nics),
		cmocka_unit_test(test_spec__refuses_with_key_value_and_what_is_allowed),
		cmocka_unit_test(test_file__that_a_spec_is_written_as_is_the_same_topology),
		cmocka_unit_test(test_file__by_hand_gives_hosts_rates_and_the_nearest_nics),
		cmocka_unit_test(test_file__every_malformed_one_is_refused_by_place_and_name),
		cmocka_unit_test(
			test_file__truncated_and_flipped_texts_end_in_a_topology_or_a_message),
		cmocka_unit_test(test_open__takes_flat_a_spec_or_a_file_of_the_jobs_size),
		cmocka_unit_test(test_flat__is_a_host_and_a_nic_a_rank),
		cmocka_unit_test(test_topology__no_allocation_that_fails_is_lost_or_leaks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
