/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/settings.h"

#include "base/array.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* One variable of the environment. */
static const char *variable;
static char value[512];

static char *get(const char *name)
{
	return variable && strcmp(name, variable) == 0 ? value : NULL;
}

static int read_with(struct ofi_settings *settings, const char *name, const char *text,
		     const char *nics, struct error *error)
{
	variable = name;
	if (text)
		memcpy(value, text, strlen(text) + 1);
	return ofi_settings_read(settings, nics, get, error);
}

static void test_settings__without_variables_are_the_standard_ones(void **state)
{
	struct ofi_settings settings;
	struct error error = {0};

	(void)state;
	assert_int_equal(read_with(&settings, NULL, NULL, NULL, &error), 0);
	assert_int_equal(settings.streams, 2);
	assert_int_equal(settings.depth, 8);
	assert_int_equal(settings.chunk_bytes, 0);
	assert_int_equal(settings.port_low, 0);
	assert_int_equal(settings.port_high, 0);
	assert_string_equal(settings.nics, "");
	assert_string_equal(settings.nics_from, "");
}

static void test_settings__pieces_are_small_where_tcp_paces(void **state)
{
	(void)state;
	assert_int_equal(ofi_chunk_standard("bbr\n"), 512 << 10);
	assert_int_equal(ofi_chunk_standard("bbr3"), 512 << 10);
	assert_int_equal(ofi_chunk_standard(""), 512 << 10);
	assert_int_equal(ofi_chunk_standard("cubic\n"), 2 << 20);
	assert_int_equal(ofi_chunk_standard("reno"), 2 << 20);
}

static void test_settings__take_what_is_in_range(void **state)
{
	struct ofi_settings settings;
	struct error error = {0};

	(void)state;
	assert_int_equal(read_with(&settings, "WEFT_STREAMS", "8", "", &error), 0);
	assert_int_equal(settings.streams, 8);
	assert_int_equal(read_with(&settings, "WEFT_STREAM_DEPTH", "256", "", &error), 0);
	assert_int_equal(settings.depth, 256);
	assert_int_equal(read_with(&settings, "WEFT_CHUNK_BYTES", "16M", "", &error), 0);
	assert_int_equal(settings.chunk_bytes, 16 << 20);
	assert_int_equal(read_with(&settings, "WEFT_CHUNK_BYTES", "4096", "", &error), 0);
	assert_int_equal(settings.chunk_bytes, 4096);
	assert_int_equal(read_with(&settings, "WEFT_TCP_PORTS", "30000-30063", "", &error), 0);
	assert_int_equal(settings.port_low, 30000);
	assert_int_equal(settings.port_high, 30063);
	assert_int_equal(read_with(&settings, "WEFT_TCP_PORTS", "4711-4711", "", &error), 0);
	assert_int_equal(settings.port_low, 4711);
	assert_int_equal(read_with(&settings, "WEFT_TCP_PORTS", "", "", &error), 0);
	assert_int_equal(settings.port_low, 0);
}

static void test_settings__that_are_out_of_range_are_told_with_the_range(void **state)
{
	const struct {
		const char *name, *text, *words;
	} rows[] = {{"WEFT_STREAMS", "0", "1 to 8"},
		    {"WEFT_STREAMS", "9", "1 to 8"},
		    {"WEFT_STREAMS", "two", "1 to 8"},
		    {"WEFT_STREAM_DEPTH", "1", "2 to 256"},
		    {"WEFT_STREAM_DEPTH", "257", "2 to 256"},
		    {"WEFT_CHUNK_BYTES", "4095", "4 KiB to 16 MiB"},
		    {"WEFT_CHUNK_BYTES", "5000", "a multiple of 4 KiB"},
		    {"WEFT_CHUNK_BYTES", "17M", "4 KiB to 16 MiB"},
		    {"WEFT_CHUNK_BYTES", "99999999999999999999", "4 KiB to 16 MiB"},
		    {"WEFT_TCP_PORTS", "30000", "LOW-HIGH"},
		    {"WEFT_TCP_PORTS", "30000-", "LOW-HIGH"},
		    {"WEFT_TCP_PORTS", "0-10", "LOW-HIGH"},
		    {"WEFT_TCP_PORTS", "30001-30000", "LOW-HIGH"},
		    {"WEFT_TCP_PORTS", "30000-65536", "ports from 1 to 65535"},
		    {"WEFT_TCP_PORTS", "30000-30001x", "LOW-HIGH"},
		    {"WEFT_TCP_PORTS", "30000-30001,30005-30006", "LOW-HIGH"},
		    {"WEFT_TCP_PORTS", "-1-5", "LOW-HIGH"},
		    {"WEFT_TCP_PORTS", " 1-5", "LOW-HIGH"},
		    {"WEFT_TCP_PORTS", "1- 5", "LOW-HIGH"},
		    {"WEFT_TCP_PORTS", "+1-+5", "LOW-HIGH"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ofi_settings settings;
		struct error error = {0};

		if (read_with(&settings, rows[i].name, rows[i].text, "", &error) != -ERROR_CONFIG)
			fail_msg("%s=%s is taken", rows[i].name, rows[i].text);
		if (!strstr(error.text, rows[i].name) || !strstr(error.text, rows[i].text) ||
		    !strstr(error.text, rows[i].words))
			fail_msg("%s=%s is told as \"%s\"", rows[i].name, rows[i].text, error.text);
	}
}

static void test_settings__the_flag_beats_the_variable(void **state)
{
	struct ofi_settings settings;
	struct error error = {0};

	(void)state;
	assert_int_equal(read_with(&settings, "WEFT_NIC", "eth1", NULL, &error), 0);
	assert_string_equal(settings.nics, "eth1");
	assert_string_equal(settings.nics_from, "WEFT_NIC");
	assert_int_equal(read_with(&settings, "WEFT_NIC", "eth1", "eth0,eth2", &error), 0);
	assert_string_equal(settings.nics, "eth0,eth2");
	assert_string_equal(settings.nics_from, "--nic");
}

static void test_settings__names_with_blanks_or_without_end_are_refused(void **state)
{
	struct ofi_settings settings;
	struct error error = {0};
	char many[300];

	(void)state;
	assert_int_equal(read_with(&settings, NULL, NULL, "eth0, eth1", &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "--nic has a blank"));
	assert_non_null(strstr(error.text, "position 6"));
	memset(many, 'e', sizeof(many) - 1);
	many[sizeof(many) - 1] = 0;
	assert_int_equal(read_with(&settings, "WEFT_NIC", many, NULL, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "WEFT_NIC names interfaces in 299 characters"));
	assert_non_null(strstr(error.text, "at most 255"));
	many[255] = 0;
	assert_int_equal(read_with(&settings, "WEFT_NIC", many, NULL, &error), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_settings__without_variables_are_the_standard_ones),
		cmocka_unit_test(test_settings__pieces_are_small_where_tcp_paces),
		cmocka_unit_test(test_settings__take_what_is_in_range),
		cmocka_unit_test(test_settings__that_are_out_of_range_are_told_with_the_range),
		cmocka_unit_test(test_settings__the_flag_beats_the_variable),
		cmocka_unit_test(test_settings__names_with_blanks_or_without_end_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
