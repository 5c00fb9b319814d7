/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of IP as records carry them, and which interfaces are taken: by name, by rank, by the default
 * route; and what is said where none can be.
 */
#include "transport/ofi/interfaces.h"

#include "base/array.h"
#include "transport/ofi/ip.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* "10.0.0.2" or "fd00::2". */
static struct ofi_address address(const char *text, uint32_t bits, uint16_t port)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct ofi_address out;

	if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
		assert_true(ip_from_sockaddr(&out, (const void *)&four, bits));
	else if (inet_pton(AF_INET6, text, &six.sin6_addr) == 1)
		assert_true(ip_from_sockaddr(&out, (const void *)&six, bits));
	else
		fail_msg("%s", text);
	return out;
}

/* ---- addresses ---- */

static void test_address__comes_back_from_its_bytes(void **state)
{
	const struct {
		const char *ip, *text;
		uint16_t port;
	} rows[] = {{"10.0.0.2", "10.0.0.2:4711", 4711},
		    {"10.0.0.2", "10.0.0.2", 0},
		    {"fd00::2", "[fd00::2]:4711", 4711},
		    {"fd00::2", "fd00::2", 0}};
	char text[IP_TEXT_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ofi_address one = address(rows[i].ip, 24, rows[i].port), back;
		struct sockaddr_storage storage;

		assert_string_equal(ip_text(&one, text), rows[i].text);
		assert_true(ip_to_sockaddr(&one, &storage) > 0);
		assert_true(ip_from_sockaddr(&back, (const void *)&storage, 24));
		assert_memory_equal(&back, &one, sizeof(one));
	}
}

static void test_address__that_is_none_is_no_address_anywhere(void **state)
{
	const struct ofi_address efa = {.length = 32, .bytes = {4}}, odd = {.length = IP_BYTES};
	const struct ofi_address good = address("10.0.0.2", 24, 0);
	const struct sockaddr local = {.sa_family = AF_UNIX};
	struct sockaddr_storage storage;
	struct ofi_address out;
	char text[IP_TEXT_BYTES];

	(void)state;
	assert_int_equal(ip_to_sockaddr(&efa, &storage), 0);
	assert_int_equal(ip_to_sockaddr(&odd, &storage), 0);
	assert_false(ip_from_sockaddr(&out, &local, 0));
	assert_string_equal(ip_text(&efa, text), "an address of 32 bytes");
	assert_int_equal(ip_reaches(&efa, &good), 0);
	assert_int_equal(ip_reaches(&good, &efa), 0);
	assert_false(ip_is_loopback(&odd));
	assert_false(ip_is_link_local(&odd));
}

static void test_address__reaches_its_subnet_best_and_never_another_family(void **state)
{
	const struct {
		const char *from, *to;
		uint32_t bits;
		int reach;
	} rows[] = {{"10.0.0.1", "10.0.0.2", 24, 2},   {"10.0.0.1", "10.0.1.2", 24, 1},
		    {"10.0.0.1", "10.0.1.2", 23, 2},   {"10.0.0.1", "10.0.0.2", 31, 1},
		    {"10.0.0.1", "10.0.0.1", 32, 2},   {"10.0.0.1", "10.0.0.2", 0, 1},
		    {"10.0.0.1", "10.0.0.2", 33, 1},   {"10.0.0.1", "fd00::2", 24, 0},
		    {"fd00::1", "fd00::2", 64, 2},     {"fd00::1", "fd01::2", 64, 1},
		    {"fd00::1", "fd00::8001", 113, 1}, {"fd00::1", "fd00::7001", 113, 2},
		    {"fd00::1", "10.0.0.2", 64, 0}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ofi_address from = address(rows[i].from, rows[i].bits, 0);
		struct ofi_address to = address(rows[i].to, 0, 99);

		if (ip_reaches(&from, &to) != rows[i].reach)
			fail_msg("%s/%u to %s", rows[i].from, rows[i].bits, rows[i].to);
	}
}

static void test_address__of_one_host_or_one_link_is_known(void **state)
{
	const struct {
		const char *ip;
		bool loopback, link;
	} rows[] = {{"127.0.0.1", true, false},	   {"127.9.9.9", true, false},
		    {"::1", true, false},	   {"169.254.1.1", false, true},
		    {"fe80::1", false, true},	   {"febf::1", false, true},
		    {"fec0::1", false, false},	   {"10.0.0.1", false, false},
		    {"169.253.1.1", false, false}, {"fd00::1", false, false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ofi_address one = address(rows[i].ip, 0, 0);

		assert_int_equal(ip_is_loopback(&one), rows[i].loopback);
		assert_int_equal(ip_is_link_local(&one), rows[i].link);
	}
}

/* ---- choosing ---- */

enum { LO = 1, ROUTE = 2, LINK_LOCAL = 4 };

struct host {
	struct ofi_interface all[4];
	uint32_t count;
};

static void add(struct host *host, const char *name, const char *ip, unsigned what)
{
	struct ofi_interface *one = &host->all[host->count++];

	*one = (struct ofi_interface){
		.address_count = 1, .loopback = what & LO, .has_route = what & ROUTE};
	memcpy(one->name, name, strlen(name) + 1);
	one->link_local = what & LINK_LOCAL;
	if (one->link_local)
		one->address_count = 0;
	else
		one->addresses[0] = address(ip, 24, 0);
}

static struct host container(unsigned eth1)
{
	struct host host = {0};

	add(&host, "lo", "127.0.0.1", LO);
	add(&host, "eth0", "172.17.0.2", 0);
	add(&host, "eth1", "10.0.0.2", eth1);
	return host;
}

static int choose(struct host *host, const char *names, uint32_t rank, struct error *error)
{
	return ofi_interfaces_choose(host->all, &host->count, names, "--nic", rank, error);
}

static void expect(struct host host, const char *names, uint32_t rank, const char *first,
		   const char *second)
{
	struct error error = {0};

	if (choose(&host, names, rank, &error))
		fail_msg("%s: %s", names, error.text);
	assert_int_equal(host.count, second ? 2 : 1);
	assert_string_equal(host.all[0].name, first);
	if (second)
		assert_string_equal(host.all[1].name, second);
}

static void test_interfaces__without_names_are_that_of_the_default_route(void **state)
{
	struct host one = {0}, only_lo = {0};

	(void)state;
	expect(container(ROUTE), "", 0, "eth1", NULL);
	add(&one, "lo", "127.0.0.1", LO);
	add(&one, "eth0", "10.0.0.2", 0);
	expect(one, "", 0, "eth0", NULL); /* no route, but no doubt either */
	add(&only_lo, "lo", "127.0.0.1", LO);
	expect(only_lo, "", 0, "lo", NULL);
}

static void test_interfaces__in_doubt_are_refused_with_the_list(void **state)
{
	struct host host = container(0), none = {0};
	struct error error = {0};

	(void)state;
	assert_int_equal(choose(&host, "", 0, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "no default route: name those to use with --nic"));
	assert_non_null(strstr(error.text, "there are: eth0 (172.17.0.2), eth1 (10.0.0.2)"));
	assert_null(strstr(error.text, "lo ("));
	assert_int_equal(choose(&none, "", 0, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "no network interface is up"));
	assert_null(strstr(error.text, "--nic")); /* there is nothing to name */
}

static void
test_interfaces__with_link_local_addresses_alone_are_never_taken_and_told_of(void **state)
{
	struct host host = {0}, alone = {0};
	struct error error = {0};

	(void)state;
	add(&host, "eth1", NULL, LINK_LOCAL);
	add(&host, "lo", "127.0.0.1", LO);
	add(&host, "eth0", "10.0.0.2", 0);
	expect(host, "", 0, "eth0", NULL);
	assert_int_equal(choose(&host, "eth1", 0, &error), -ERROR_CONFIG);
	assert_string_equal(error.text,
			    "--nic=eth1: eth1 has link-local addresses only, which do not count; "
			    "there are: lo (127.0.0.1, loopback), eth0 (10.0.0.2)");
	add(&alone, "eth0", NULL, LINK_LOCAL);
	assert_int_equal(choose(&alone, "", 0, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "eth0 has link-local addresses only"));
	assert_null(strstr(error.text, "--nic"));
}

static void test_interfaces__are_taken_by_name_in_the_order_asked_for(void **state)
{
	(void)state;
	expect(container(0), "eth0", 0, "eth0", NULL);
	expect(container(0), "eth1,eth0", 0, "eth1", "eth0");
	expect(container(0), "eth0,eth1", 7, "eth0", "eth1");
	expect(container(ROUTE), "lo", 0, "lo", NULL);
}

static void test_interfaces__are_taken_by_rank(void **state)
{
	(void)state;
	expect(container(0), "0=eth0,1=eth1", 0, "eth0", NULL);
	expect(container(0), "0=eth0,1=eth1", 1, "eth1", NULL);
	expect(container(0), "1=eth1,1=eth0,0=lo", 1, "eth1", "eth0");
	expect(container(0), "eth0,1=eth1", 1, "eth0", "eth1");
	expect(container(0), "eth0,1=eth1", 2, "eth0", NULL);
}

static void expect_devices(uint32_t most, const char *names, uint32_t rank, const char *wanted)
{
	struct host host = {0};
	struct error error = {0};
	char got[32] = "";

	for (const char *ip = "1234"; *ip; ip++)
		add(&host, (char[]){'e', *ip, 0}, "10.0.0.2", 0);
	if (ofi_devices_choose(host.all, &host.count, most, names, "--nic", rank, &error))
		fail_msg("%s", error.text);
	for (uint32_t i = 0; i < host.count; i++)
		strcat(got, host.all[i].name);
	assert_string_equal(got, wanted);
}

static void test_devices__without_names_are_all_or_turned_by_rank_where_there_are_more(void **state)
{
	(void)state;
	expect_devices(8, "", 0, "e1e2e3e4");
	expect_devices(4, "", 3, "e1e2e3e4");
	expect_devices(3, "", 0, "e1e2e3");
	expect_devices(3, "", 1, "e4e1e2");
	expect_devices(2, "", 1, "e3e4");
	expect_devices(2, "", 2, "e1e2");
	expect_devices(1, "", 0xffffffff, "e4");
	expect_devices(2, "e4,e2", 7, "e4e2");
}

static void test_interfaces__that_are_not_there_are_named_with_those_that_are(void **state)
{
	const struct {
		const char *names, *words;
	} rows[] = {{"eth7", "--nic=eth7: no interface eth7 that is up and has an address"},
		    {"eth0,eth0", "no interface eth0"}, /* twice is one too many */
		    {"eth0,eth9", "no interface eth9"},
		    {"x=eth0", "before '=' stands a rank"},
		    {"=eth0", "before '=' stands a rank"},
		    {"1=eth0", "names none for rank 0"},
		    {",", "names none for rank 0"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct host host = container(ROUTE);
		struct error error = {0};

		assert_int_equal(choose(&host, rows[i].names, 0, &error), -ERROR_CONFIG);
		if (!strstr(error.text, rows[i].words) || !strstr(error.text, "there are: ") ||
		    !strstr(error.text, "eth1 (10.0.0.2)"))
			fail_msg("%s is told as \"%s\"", rows[i].names, error.text);
	}
}

/* Whatever this machine has, loopback is among it. */
static void test_interfaces__of_this_host_are_read(void **state)
{
	struct ofi_interface all[64];
	struct error error = {0};
	uint32_t count, loopbacks = 0;

	(void)state;
	assert_int_equal(ofi_interfaces_read(all, 64, &count, &error), 0);
	for (uint32_t i = 0; i < count; i++) {
		assert_true(all[i].name[0] && !all[i].address_count == all[i].link_local);
		if (all[i].address_count == 2)
			assert_true(all[i].addresses[0].bytes[0] == 4);
		loopbacks += all[i].loopback;
	}
	assert_int_equal(loopbacks, 1);
	assert_int_equal(ofi_interfaces_read(all, 1, &count, &error), 0);
	assert_int_equal(count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address__comes_back_from_its_bytes),
		cmocka_unit_test(test_address__that_is_none_is_no_address_anywhere),
		cmocka_unit_test(test_address__reaches_its_subnet_best_and_never_another_family),
		cmocka_unit_test(test_address__of_one_host_or_one_link_is_known),
		cmocka_unit_test(test_interfaces__without_names_are_that_of_the_default_route),
		cmocka_unit_test(test_interfaces__in_doubt_are_refused_with_the_list),
		cmocka_unit_test(
			test_interfaces__with_link_local_addresses_alone_are_never_taken_and_told_of),
		cmocka_unit_test(test_interfaces__are_taken_by_name_in_the_order_asked_for),
		cmocka_unit_test(test_interfaces__are_taken_by_rank),
		cmocka_unit_test(
			test_devices__without_names_are_all_or_turned_by_rank_where_there_are_more),
		cmocka_unit_test(test_interfaces__that_are_not_there_are_named_with_those_that_are),
		cmocka_unit_test(test_interfaces__of_this_host_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
