/* SPDX-License-Identifier: Apache-2.0
 *
 * Judging GID tables. Each file of golden/gids is a machine: rows, and behind "=>" what is said
 * of each of them.
 */
#include "base/text.h"
#include "transport/verbs/facts.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LINE_BYTES 512

struct machine {
	struct verbs_device device;
	struct verbs_port port;
	char said[16][LINE_BYTES]; /* of each row */
	char error[LINE_BYTES];
	int32_t forced;
	char from[64];
};

static enum verbs_gid_type type_of(const char *word)
{
	if (strcmp(word, "ib") == 0)
		return VERBS_GID_IB;
	return strcmp(word, "v1") == 0 ? VERBS_GID_ROCE_V1 : VERBS_GID_ROCE_V2;
}

static void read_row(struct machine *machine, const char *line)
{
	char type[8], netdev[16], address[64];
	unsigned index, bits;
	int read = 0;

	assert_int_equal(sscanf(line, "%u %7s %15s %u %63s => %n", &index, type, netdev, &bits,
				address, &read),
			 5);
	assert_true(read > 0 && machine->port.gids.count < 16);
	snprintf(machine->said[machine->port.gids.count], LINE_BYTES, "%s", line + read);
	struct verbs_gid *gid = array_push(&machine->port.gids);

	assert_non_null(gid);
	assert_int_equal(inet_pton(AF_INET6, address, gid->raw), 1);
	gid->index = index;
	gid->type = type_of(type);
	gid->prefix_bits = bits;
	if (strcmp(netdev, "-") != 0)
		snprintf(gid->netdev, sizeof(gid->netdev), "%s", netdev);
	/* what an earlier judgement left must not matter */
	gid->rank = 77;
	snprintf(gid->rejected, sizeof(gid->rejected), "old");
}

static void read_machine(struct machine *machine, const char *name)
{
	char path[1024], line[LINE_BYTES], word[64];

	memset(machine, 0, sizeof(*machine));
	snprintf(machine->device.name, sizeof(machine->device.name), "mlx5_0");
	machine->port.number = 1;
	machine->forced = -1;
	snprintf(path, sizeof(path), "%s/tests/unit/golden/gids/%s", getenv("WEFT_SOURCE_DIR"),
		 name);
	FILE *stream = fopen(path, "r");

	assert_non_null(stream);
	while (fgets(line, sizeof(line), stream)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#')
			continue;
		if (sscanf(line, "port %63s", word) == 1)
			machine->port.link = strcmp(word, "ethernet") == 0 ? VERBS_LINK_ETHERNET
									   : VERBS_LINK_INFINIBAND;
		else if (strncmp(line, "force ", 6) == 0)
			assert_int_equal(
				sscanf(line, "force %d %63s", &machine->forced, machine->from), 2);
		else if (strncmp(line, "error ", 6) == 0)
			snprintf(machine->error, sizeof(machine->error), "%s", line + 6);
		else
			read_row(machine, line);
	}
	fclose(stream);
}

static void check_machine(const char *name)
{
	struct machine machine;
	struct error error = {0};
	int32_t chosen = -1;

	read_machine(&machine, name);
	int rc = verbs_gids_judge(&machine.device, &machine.port, machine.forced, machine.from,
				  &error);

	print_message("  %s\n", name);
	assert_string_equal(error.text, machine.error);
	assert_int_equal(rc, machine.error[0] ? -ERROR_CONFIG : 0);
	for (size_t i = 0; i < machine.port.gids.count; i++) {
		const struct verbs_gid *gid = &machine.port.gids.items[i];

		if (strcmp(machine.said[i], "chosen") == 0)
			chosen = (int32_t)i;
		if (strcmp(machine.said[i], "chosen") == 0 ||
		    strcmp(machine.said[i], "fine") == 0) {
			assert_string_equal(gid->rejected, "");
			assert_true(gid->rank >= 0);
		} else {
			assert_string_equal(gid->rejected, machine.said[i]);
			assert_true(gid->rank < 0);
		}
	}
	assert_int_equal(machine.port.gid, chosen);
	array_free(&machine.port.gids);
}

static void test_machines__every_row_is_chosen_or_has_its_reason(void **unused)
{
	char path[1024];
	struct dirent *entry;
	int files = 0;

	(void)unused;
	snprintf(path, sizeof(path), "%s/tests/unit/golden/gids", getenv("WEFT_SOURCE_DIR"));
	DIR *folder = opendir(path);

	assert_non_null(folder);
	while ((entry = readdir(folder)))
		if (strstr(entry->d_name, ".txt")) {
			check_machine(entry->d_name);
			files++;
		}
	closedir(folder);
	assert_int_equal(files, 17);
}

static void gid(unsigned char raw[16], const char *text)
{
	assert_int_equal(inet_pton(AF_INET6, text, raw), 1);
}

static void test_same_subnet__compares_by_the_shorter_known_prefix(void **unused)
{
	static const struct {
		const char *a;
		uint32_t a_bits;
		const char *b;
		uint32_t b_bits;
		bool same;
	} rows[] = {
		{"::ffff:10.1.2.3", 24, "::ffff:10.1.2.77", 24, true},
		{"::ffff:10.1.2.3", 24, "::ffff:10.1.3.3", 24, false},
		{"::ffff:10.1.2.3", 24, "::ffff:10.1.3.3", 16, true},
		{"::ffff:10.1.2.3", 16, "::ffff:10.1.3.3", 24, true},
		{"::ffff:10.1.2.3", 0, "::ffff:10.1.2.4", 24, true},
		{"::ffff:10.1.2.3", 24, "::ffff:10.1.3.4", 0, false},
		{"::ffff:10.1.2.3", 0, "::ffff:10.1.2.3", 0, false},
		{"::ffff:10.1.2.129", 25, "::ffff:10.1.2.127", 25, false},
		{"::ffff:10.1.2.129", 25, "::ffff:10.1.2.254", 25, true},
		{"::ffff:10.1.2.2", 31, "::ffff:10.1.2.3", 31, true},
		{"::ffff:10.1.2.3", 32, "::ffff:10.1.2.3", 32, true},
		{"::ffff:10.1.2.3", 32, "::ffff:10.1.2.2", 32, false},
		{"2001:db8:1::1", 64, "2001:db8:1::2", 64, true},
		{"2001:db8:1::1", 64, "2001:db8:1:1::2", 64, false},
		{"2001:db8::1", 128, "2001:db8::1", 128, true},
		{"::ffff:10.1.2.3", 24, "2001:db8::1", 64, false},
		{"2001:db8::1", 129, "2001:db8::1", 0, false},
		{"::ffff:10.1.2.3", 33, "::ffff:10.1.2.3", 0, false},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		unsigned char a[16], b[16];

		gid(a, rows[i].a);
		gid(b, rows[i].b);
		assert_int_equal(verbs_gid_same_subnet(a, rows[i].a_bits, b, rows[i].b_bits),
				 rows[i].same);
		assert_int_equal(verbs_gid_same_subnet(b, rows[i].b_bits, a, rows[i].a_bits),
				 rows[i].same);
	}
}

static void test_text__is_how_people_write_addresses(void **unused)
{
	static const struct {
		const char *text;
		bool ipv4;
	} rows[] = {{"::ffff:10.77.0.1", true},
		    {"fe80::aff:fe4d:1", false},
		    {"::", false},
		    {"2001:db8::ffff:a4d:1", false}};
	char text[VERBS_GID_TEXT_BYTES];
	unsigned char raw[16];

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		gid(raw, rows[i].text);
		assert_string_equal(verbs_gid_text(raw, text), rows[i].text);
		assert_int_equal(verbs_gid_is_ipv4(raw), rows[i].ipv4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_machines__every_row_is_chosen_or_has_its_reason),
		cmocka_unit_test(test_same_subnet__compares_by_the_shorter_known_prefix),
		cmocka_unit_test(test_text__is_how_people_write_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
