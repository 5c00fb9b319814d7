/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"
#include "transport/verbs/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* An environment of up to four variables. */
static struct {
	const char *name, *value;
} environment[4];

static char *get(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(environment); i++)
		if (environment[i].name && strcmp(environment[i].name, name) == 0)
			return (char *)environment[i].value;
	return NULL;
}

static int set_none(void **state)
{
	(void)state;
	memset(environment, 0, sizeof(environment));
	return 0;
}

static void set(size_t slot, const char *name, const char *value)
{
	environment[slot].name = name;
	environment[slot].value = value;
}

static struct verbs_settings read_ok(const char *nics)
{
	struct verbs_settings settings;
	struct error error = {0};

	if (verbs_settings_read(&settings, nics, get, &error))
		fail_msg("%s", error.text);
	return settings;
}

static void check_refused(const char *nics, const char *words)
{
	struct verbs_settings settings;
	struct error error = {0};

	assert_int_equal(verbs_settings_read(&settings, nics, get, &error), -ERROR_CONFIG);
	if (!strstr(error.text, words))
		fail_msg("\"%s\" is not in: %s", words, error.text);
}

static void test_nothing_set__gives_the_defaults(void **state)
{
	struct verbs_settings settings = read_ok("");

	(void)state;
	assert_string_equal(settings.nics, "");
	assert_string_equal(settings.nics_from, "");
	assert_string_equal(settings.gid_from, "");
	assert_int_equal(settings.gid_index, -1);
	assert_int_equal(settings.qps, 2);
	assert_int_equal(settings.depth, 128);
	assert_int_equal(settings.receive_depth, 4096);
	assert_int_equal(settings.chunk_bytes, 1 << 20);
	assert_int_equal(settings.timeout, 17);
	assert_int_equal(settings.retry, 6);
	assert_int_equal(settings.rnr_retry, 7);
	assert_int_equal(settings.rnr_timer, 12);
	assert_int_equal(settings.mtu, 0);
	assert_int_equal(settings.traffic_class, -1);
	assert_int_equal(settings.service_level, 0);
	assert_int_equal(settings.relaxed, VERBS_AUTO);
	assert_int_equal(settings.new_post, VERBS_AUTO);
}

#define FIELD(field) \
	offsetof(struct verbs_settings, field), sizeof(((struct verbs_settings *)0)->field)

static const struct {
	const char *variable, *value;
	size_t offset, bytes;
	int64_t expected;
} taken[] = {
	{"WEFT_GID_INDEX", "3", FIELD(gid_index), 3},
	{"WEFT_GID_INDEX", "0", FIELD(gid_index), 0},
	{"WEFT_GID_INDEX", "255", FIELD(gid_index), 255},
	{"WEFT_GID_INDEX", "auto", FIELD(gid_index), -1},
	{"WEFT_GID_INDEX", "-1", FIELD(gid_index), -1},
	{"WEFT_GID_INDEX", "", FIELD(gid_index), -1},
	{"WEFT_QPS", "1", FIELD(qps), 1},
	{"WEFT_QPS", "8", FIELD(qps), 8},
	{"WEFT_QUEUE_DEPTH", "16", FIELD(depth), 16},
	{"WEFT_QUEUE_DEPTH", "17", FIELD(depth), 32},
	{"WEFT_QUEUE_DEPTH", "100", FIELD(depth), 128},
	{"WEFT_QUEUE_DEPTH", "4095", FIELD(depth), 4096},
	{"WEFT_QUEUE_DEPTH", "4096", FIELD(depth), 4096},
	{"WEFT_RECEIVE_DEPTH", "64", FIELD(receive_depth), 64},
	{"WEFT_RECEIVE_DEPTH", "1000", FIELD(receive_depth), 1000},
	{"WEFT_RECEIVE_DEPTH", "32768", FIELD(receive_depth), 32768},
	{"WEFT_CHUNK_BYTES", "4096", FIELD(chunk_bytes), 4096},
	{"WEFT_CHUNK_BYTES", "1M", FIELD(chunk_bytes), 1 << 20},
	{"WEFT_CHUNK_BYTES", "256KiB", FIELD(chunk_bytes), 256 << 10},
	{"WEFT_CHUNK_BYTES", "16M", FIELD(chunk_bytes), 16 << 20},
	{"WEFT_IB_TIMEOUT", "1", FIELD(timeout), 1},
	{"WEFT_IB_TIMEOUT", "31", FIELD(timeout), 31},
	{"WEFT_IB_RETRY", "0", FIELD(retry), 0},
	{"WEFT_IB_RNR_RETRY", "0", FIELD(rnr_retry), 0},
	{"WEFT_IB_RNR_TIMER", "31", FIELD(rnr_timer), 31},
	{"WEFT_MTU", "256", FIELD(mtu), 256},
	{"WEFT_MTU", "1024", FIELD(mtu), 1024},
	{"WEFT_MTU", "4096", FIELD(mtu), 4096},
	{"WEFT_MTU", "AUTO", FIELD(mtu), 0},
	{"WEFT_TRAFFIC_CLASS", "106", FIELD(traffic_class), 106},
	{"WEFT_TRAFFIC_CLASS", "auto", FIELD(traffic_class), -1},
	{"WEFT_SERVICE_LEVEL", "15", FIELD(service_level), 15},
	{"WEFT_RELAXED_ORDERING", "on", FIELD(relaxed), VERBS_ON},
	{"WEFT_RELAXED_ORDERING", "0", FIELD(relaxed), VERBS_OFF},
	{"WEFT_IBV_WR", "Off", FIELD(new_post), VERBS_OFF},
	{"WEFT_IBV_WR", "1", FIELD(new_post), VERBS_ON},
	{"WEFT_IBV_WR", "auto", FIELD(new_post), VERBS_AUTO},
};

static int64_t field_of(const struct verbs_settings *settings, size_t offset, size_t bytes)
{
	int32_t narrow;
	int64_t wide;

	if (bytes == sizeof(wide)) {
		memcpy(&wide, (const char *)settings + offset, bytes);
		return wide;
	}
	assert_int_equal(bytes, sizeof(narrow));
	memcpy(&narrow, (const char *)settings + offset, bytes);
	return narrow;
}

static void test_variable__sets_its_field_and_no_other(void **state)
{
	struct verbs_settings standard;

	verbs_settings_default(&standard);
	for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
		struct verbs_settings settings;

		set_none(state);
		set(0, taken[i].variable, taken[i].value);
		assert_int_equal(verbs_settings_read(&settings, NULL, get, NULL), 0);
		if (field_of(&settings, taken[i].offset, taken[i].bytes) != taken[i].expected)
			fail_msg("%s=%s", taken[i].variable, taken[i].value);
		settings.gid_from = standard.gid_from;
		memcpy((char *)&settings + taken[i].offset, (char *)&standard + taken[i].offset,
		       taken[i].bytes);
		assert_memory_equal(&settings, &standard, sizeof(settings));
	}
}

static void test_wrong_value__is_refused_with_variable_value_and_range(void **state)
{
	static const struct {
		const char *variable, *value, *words;
	} rows[] = {
		{"WEFT_GID_INDEX", "256",
		 "WEFT_GID_INDEX=256: must be a row of the GID table, 0 to 255"},
		{"WEFT_GID_INDEX", "-2", "WEFT_GID_INDEX=-2"},
		{"NCCL_IB_GID_INDEX", "three", "NCCL_IB_GID_INDEX=three: must be"},
		{"WEFT_QPS", "0", "WEFT_QPS=0: must be 1 to 8 queue pairs"},
		{"WEFT_QPS", "9", "WEFT_QPS=9"},
		{"WEFT_QPS", "two", "WEFT_QPS=two"},
		{"WEFT_QPS", "auto", "WEFT_QPS=auto"},
		{"WEFT_QUEUE_DEPTH", "15", "must be 16 to 4096 requests"},
		{"WEFT_QUEUE_DEPTH", "4097", "must be 16 to 4096 requests"},
		{"WEFT_RECEIVE_DEPTH", "63", "must be 64 to 32768 unread signals"},
		{"WEFT_RECEIVE_DEPTH", "32769", "WEFT_RECEIVE_DEPTH=32769"},
		{"WEFT_CHUNK_BYTES", "0", "must be 4 KiB to 16 MiB"},
		{"WEFT_CHUNK_BYTES", "5000", "a multiple of 4 KiB"},
		{"WEFT_CHUNK_BYTES", "17M", "WEFT_CHUNK_BYTES=17M"},
		{"WEFT_CHUNK_BYTES", "1MB/s", "WEFT_CHUNK_BYTES=1MB/s"},
		{"WEFT_IB_TIMEOUT", "0", "0 would wait without end"},
		{"WEFT_IB_TIMEOUT", "32", "from 1 to 31"},
		{"WEFT_IB_RETRY", "7", "some devices, soft RoCE among them, then never give up"},
		{"WEFT_IB_RETRY", "8", "must be 0 to 6 retries"},
		{"WEFT_IB_RNR_RETRY", "8", "must be 0 to 7 retries"},
		{"WEFT_IB_RNR_TIMER", "32", "a timer code from 0 to 31"},
		{"WEFT_MTU", "0", "256, 512, 1024, 2048 or 4096 bytes, or auto"},
		{"WEFT_MTU", "1500", "WEFT_MTU=1500: must be 256"},
		{"WEFT_MTU", "8192", "WEFT_MTU=8192"},
		{"WEFT_TRAFFIC_CLASS", "256", "must be 0 to 255"},
		{"WEFT_SERVICE_LEVEL", "16", "from 0 to 15"},
		{"WEFT_RELAXED_ORDERING", "yes",
		 "WEFT_RELAXED_ORDERING=yes: must be on, off or auto"},
		{"WEFT_RELAXED_ORDERING", "2", "must be on, off or auto"},
		{"WEFT_IBV_WR", "old", "WEFT_IBV_WR=old: must be on, off or auto"},
		{"WEFT_QPS", "18446744073709551617", "WEFT_QPS=18446744073709551617"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		set_none(state);
		set(0, rows[i].variable, rows[i].value);
		check_refused("", rows[i].words);
	}
}

static void test_nics__come_from_the_flag_then_weft_then_nccl(void **state)
{
	struct verbs_settings settings;

	(void)state;
	set(0, "NCCL_IB_HCA", "^=mlx5_9");
	settings = read_ok("");
	assert_string_equal(settings.nics, "^=mlx5_9");
	assert_string_equal(settings.nics_from, "NCCL_IB_HCA");
	set(1, "WEFT_NIC", "mlx5_0,mlx5_1:1");
	settings = read_ok(NULL);
	assert_string_equal(settings.nics, "mlx5_0,mlx5_1:1");
	assert_string_equal(settings.nics_from, "WEFT_NIC");
	settings = read_ok("0=mlx5_2+mlx5_3");
	assert_string_equal(settings.nics, "0=mlx5_2+mlx5_3");
	assert_string_equal(settings.nics_from, "--nic");
	set(1, "WEFT_NIC", "");
	settings = read_ok("");
	assert_string_equal(settings.nics_from, "NCCL_IB_HCA");
}

static void test_nics__that_do_not_fit_are_refused(void **state)
{
	char fits[VERBS_NICS_TEXT_BYTES], longer[VERBS_NICS_TEXT_BYTES + 1];

	(void)state;
	memset(fits, 'm', sizeof(fits));
	fits[sizeof(fits) - 1] = '\0';
	memset(longer, 'm', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_string_equal(read_ok(fits).nics, fits);
	check_refused(longer, "--nic names NICs in 256 characters");
	set(0, "WEFT_NIC", "mlx5_0, mlx5_1");
	check_refused("", "WEFT_NIC has a blank or an unprintable character at position 8");
	set(0, "NCCL_IB_HCA", "mlx5_0\n");
	check_refused("mlx5\t0", "--nic has a blank or an unprintable character at position 5");
}

static void test_gid_index__of_weft_goes_before_the_one_of_nccl(void **state)
{
	struct verbs_settings settings;

	(void)state;
	set(0, "NCCL_IB_GID_INDEX", "5");
	settings = read_ok("");
	assert_int_equal(settings.gid_index, 5);
	assert_string_equal(settings.gid_from, "NCCL_IB_GID_INDEX");
	set(1, "WEFT_GID_INDEX", "3");
	settings = read_ok("");
	assert_int_equal(settings.gid_index, 3);
	assert_string_equal(settings.gid_from, "WEFT_GID_INDEX");
	set(1, "WEFT_GID_INDEX", "auto");
	settings = read_ok("");
	assert_int_equal(settings.gid_index, -1);
	assert_string_equal(settings.gid_from, "");
	set(0, "NCCL_IB_GID_INDEX", "wrong, but not asked");
	assert_int_equal(read_ok("").gid_index, -1);
	set(1, "WEFT_GID_INDEX", "");
	set(0, "NCCL_IB_GID_INDEX", "-1");
	settings = read_ok("");
	assert_int_equal(settings.gid_index, -1);
	assert_string_equal(settings.gid_from, "");
}

static void test_retry_arithmetic__is_in_nanoseconds(void **state)
{
	(void)state;
	assert_int_equal(verbs_timeout_ns(1), 8192);
	assert_int_equal(verbs_timeout_ns(14), 67108864);
	assert_int_equal(verbs_timeout_ns(17), 536870912);
	assert_true(verbs_timeout_ns(0) == UINT64_MAX);
	assert_true(verbs_timeout_ns(40) == verbs_timeout_ns(31));
	assert_int_equal(verbs_retry_ns(17, 6), 3758096384);
	assert_int_equal(verbs_retry_ns(14, 0), verbs_timeout_ns(14));
	assert_true(verbs_retry_ns(0, 6) == UINT64_MAX);
	assert_true(verbs_retry_ns(31, UINT32_MAX) == UINT64_MAX);
}

/* docs/verbs.md has a row for every variable. */
static void test_documentation__names_every_variable(void **state)
{
	const char *source = getenv("WEFT_SOURCE_DIR");
	static char page[128 * 1024];
	char path[4096];
	FILE *file;

	(void)state;
	snprintf(path, sizeof(path), "%s/docs/verbs.md", source ? source : ".");
	file = fopen(path, "r");
	if (!file)
		fail_msg("%s: cannot be opened", path);
	page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
	fclose(file);
	for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
		char row[64];

		snprintf(row, sizeof(row), "| `%s` |", taken[i].variable);
		if (!strstr(page, row))
			fail_msg("%s has no row %s", path, row);
	}
	assert_non_null(strstr(page, "NCCL_IB_HCA"));
	assert_non_null(strstr(page, "NCCL_IB_GID_INDEX"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_nothing_set__gives_the_defaults, set_none),
		cmocka_unit_test_setup(test_variable__sets_its_field_and_no_other, set_none),
		cmocka_unit_test_setup(test_wrong_value__is_refused_with_variable_value_and_range,
				       set_none),
		cmocka_unit_test_setup(test_nics__come_from_the_flag_then_weft_then_nccl, set_none),
		cmocka_unit_test_setup(test_nics__that_do_not_fit_are_refused, set_none),
		cmocka_unit_test_setup(test_gid_index__of_weft_goes_before_the_one_of_nccl,
				       set_none),
		cmocka_unit_test(test_retry_arithmetic__is_in_nanoseconds),
		cmocka_unit_test(test_documentation__names_every_variable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
