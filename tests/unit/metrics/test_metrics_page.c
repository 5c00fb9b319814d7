/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics as text: names and rows, labels, histograms, codes; and the addresses that they are served at.
 */
#include "base/array.h"
#include "base/memory.h"
#include "metrics/address.h"
#include "metrics/outlet.h"
#include "metrics/page_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void test_families__are_named_as_prometheus_wants_them(void **unused)
{
	(void)unused;
	for (int i = 0; i < METRIC_COUNT; i++) {
		const struct metric_family *family = &metric_families[i];

		assert_int_equal(strncmp(family->name, "weft_", 5), 0);
		assert_int_equal(text_ends(family->name, "_total"), family->type == METRIC_COUNTER);
		if (family->type == METRIC_HISTOGRAM)
			assert_true(text_ends(family->name, "_seconds"));
		assert_null(strpbrk(family->name, " {}\""));
		assert_null(strpbrk(family->help, "\n\\"));
		for (int k = 0; k < i; k++)
			assert_string_not_equal(family->name, metric_families[k].name);
	}
}

static void test_page__begins_each_metric_once_and_escapes_labels(void **unused)
{
	struct text text = {0};
	struct page page;

	(void)unused;
	page_begin(&page, &text, "a\"b\\c\nd", "trainer", 3);
	page_put(&page, METRIC_SYNC_FINISHED, "ok", NULL, 2);
	page_put(&page, METRIC_SYNC_FINISHED, "failed", NULL, 0);
	page_put(&page, METRIC_VERSION_AGE, NULL, NULL, 1.5);
	assert_string_equal(
		text_string(&text),
		"# HELP weft_sync_finished_total Updates that are over: ok, failed or aborted\n"
		"# TYPE weft_sync_finished_total counter\n"
		"weft_sync_finished_total{weft_job=\"a\\\"b\\\\c\\nd\",role=\"trainer\",rank=\"3\",result=\"ok\"} 2\n"
		"weft_sync_finished_total{weft_job=\"a\\\"b\\\\c\\nd\",role=\"trainer\",rank=\"3\",result=\"failed\"} 0\n"
		"# HELP weft_weight_version_age_seconds Time since that version was ended or shown; before the first one, since the "
		"worker opened\n"
		"# TYPE weft_weight_version_age_seconds gauge\n"
		"weft_weight_version_age_seconds{weft_job=\"a\\\"b\\\\c\\nd\",role=\"trainer\",rank=\"3\"} 1.5\n");
	text_fini(&text);
}

static void test_page__has_room_for_the_longest_name_of_a_job(void **unused)
{
	struct text text = {0};
	struct page page;
	char job[128];

	(void)unused;
	memset(job, '"', sizeof(job) - 1);
	job[sizeof(job) - 1] = 0;
	page_begin(&page, &text, job, "inference", UINT32_MAX);
	page_put(&page, METRIC_VERSION, NULL, NULL, 7);
	assert_true(text_ok(&text));
	assert_non_null(strstr(text.data, "role=\"inference\",rank=\"4294967295\"} 7\n"));
	text_fini(&text);
}

static void test_histogram__counts_up_to_each_bound(void **unused)
{
	struct histogram histogram = {.count = 0};
	struct text text = {0};
	struct page page;

	(void)unused;
	histogram_add(&histogram, 1000000); /* 1 ms is in the bound of 1 ms */
	histogram_add(&histogram, 1000001);
	histogram_add(&histogram, 600ull * 1000000000);
	page_begin(&page, &text, "j", NULL, 0);
	page_histogram(&page, METRIC_PHASE, "plan", &histogram);
	assert_non_null(strstr(text.data, "{weft_job=\"j\",phase=\"plan\",le=\"0.001\"} 1\n"));
	assert_non_null(strstr(text.data, "{weft_job=\"j\",phase=\"plan\",le=\"0.0025\"} 2\n"));
	assert_non_null(strstr(text.data, "{weft_job=\"j\",phase=\"plan\",le=\"120\"} 2\n"));
	assert_non_null(strstr(text.data, "{weft_job=\"j\",phase=\"plan\",le=\"+Inf\"} 3\n"));
	assert_non_null(strstr(text.data, "_sum{weft_job=\"j\",phase=\"plan\"} 600.002000001\n"));
	assert_non_null(strstr(text.data, "_count{weft_job=\"j\",phase=\"plan\"} 3\n"));
	text_fini(&text);
}

static void test_codes__are_shown_where_they_were_met(void **unused)
{
	struct code_counts counts = {{0}};
	struct text text = {0};
	struct page page;

	(void)unused;
	codes_count(&counts, ERROR_NONE);
	codes_count(&counts, ERROR_PEER_LOST);
	codes_count(&counts, ERROR_PEER_LOST);
	page_begin(&page, &text, "j", NULL, 0);
	page_codes(&page, METRIC_LOSSES, "inference", &counts);
	page_codes(&page, METRIC_FAILURES, NULL, &counts);
	assert_non_null(strstr(
		text.data,
		"weft_losses_total{weft_job=\"j\",of=\"inference\",code=\"WEFT-E131\"} 2\n"));
	assert_non_null(
		strstr(text.data, "weft_failures_total{weft_job=\"j\",code=\"WEFT-E131\"} 2\n"));
	assert_null(strstr(text.data, "E101"));
	text_fini(&text);
}

static void test_page__without_memory_is_known_to_lack_something(void **unused)
{
	struct text text = {0};
	struct page page;

	(void)unused;
	memory_fail_at(1);
	page_begin(&page, &text, "j", "trainer", 0);
	memory_fail_at(0);
	page_put(&page, METRIC_VERSION, NULL, NULL, 1);
	assert_false(text_ok(&text));
	text_fini(&text);
}

/* ---- addresses ---- */

static const struct {
	const char *text, *host;
	uint16_t port, ports;
	const char *wrong;
} addresses[] = {
	{":9464", "", 9464, 1, NULL},
	{"10.9.0.1:9464", "10.9.0.1", 9464, 1, NULL},
	{"node0:65535+", "node0", 65535, ADDRESS_PORTS, NULL},
	{"[::1]:0", "::1", 0, 1, NULL},
	{"9464", NULL, 0, 0, "no ':' before a port"},
	{":", NULL, 0, 0, "the port is no number from 1 to 65535"},
	{":+", NULL, 0, 0, "the port is no number"},
	{":65536", NULL, 0, 0, "the port is no number from 1 to 65535"},
	{":-1", NULL, 0, 0, "the port is no number"},
	{":94 64", NULL, 0, 0, "the port is no number"},
	{":00000009464", NULL, 0, 0, "the port is no number"},
	{"::1:9464", NULL, 0, 0, "stands in brackets"},
};

static void test_address__is_read_as_people_write_it(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		struct address address;
		struct error error = {0};
		int rc = address_parse(&address, addresses[i].text, &error);

		if (addresses[i].wrong) {
			assert_int_equal(rc, -ERROR_CONFIG);
			assert_non_null(strstr(error.text, addresses[i].wrong));
			assert_non_null(strstr(error.text, "write ADDRESS:PORT or :PORT"));
			continue;
		}
		assert_int_equal(rc, 0);
		assert_string_equal(address.host, addresses[i].host);
		assert_int_equal(address.port, addresses[i].port);
		assert_int_equal(address.ports, addresses[i].ports);
	}
}

static void test_address__in_use_says_so_and_with_a_plus_takes_the_next(void **unused)
{
	struct address address = {.host = "127.0.0.1", .ports = 1};
	struct error error = {0};
	uint16_t port, other;
	int first, second;

	(void)unused;
	assert_int_equal(address_listen(&address, &first, &port, &error), 0);
	assert_int_not_equal(port, 0);
	address.port = port;
	assert_int_equal(address_listen(&address, &second, &other, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "cannot listen there (give another port"));
	assert_non_null(strstr(error.text, "Address already in use"));
	address.ports = ADDRESS_PORTS;
	assert_int_equal(address_listen(&address, &second, &other, &error), 0);
	assert_true(other > port);
	close(first);
	close(second);
}

static void test_address__that_is_not_of_this_host_is_named(void **unused)
{
	struct address address = {.host = "192.0.2.1", .port = 9464, .ports = 1};
	struct error error = {0};
	uint16_t port;
	int fd;

	(void)unused;
	assert_int_equal(address_listen(&address, &fd, &port, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "Cannot assign requested address"));
}

static void test_options__off_and_nothing_are_no_outlet(void **unused)
{
	struct outlet_options options = {.address = "off", .file = ""};
	struct outlet *outlet = (struct outlet *)&options;
	struct error error;
	const char *name;

	(void)unused;
	assert_int_equal(outlet_open(&outlet, &options, &error), 0);
	assert_null(outlet);
	outlet_close(&outlet);
	setenv("WEFT_METRICS", ":1", 1);
	assert_string_equal(outlet_choose(NULL, "--metrics", "WEFT_METRICS", &name), ":1");
	assert_string_equal(name, "WEFT_METRICS");
	assert_string_equal(outlet_choose("off", "--metrics", "WEFT_METRICS", &name), "off");
	assert_string_equal(name, "--metrics");
	unsetenv("WEFT_METRICS");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families__are_named_as_prometheus_wants_them),
		cmocka_unit_test(test_page__begins_each_metric_once_and_escapes_labels),
		cmocka_unit_test(test_page__has_room_for_the_longest_name_of_a_job),
		cmocka_unit_test(test_histogram__counts_up_to_each_bound),
		cmocka_unit_test(test_codes__are_shown_where_they_were_met),
		cmocka_unit_test(test_page__without_memory_is_known_to_lack_something),
		cmocka_unit_test(test_address__is_read_as_people_write_it),
		cmocka_unit_test(test_address__in_use_says_so_and_with_a_plus_takes_the_next),
		cmocka_unit_test(test_address__that_is_not_of_this_host_is_named),
		cmocka_unit_test(test_options__off_and_nothing_are_no_outlet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
