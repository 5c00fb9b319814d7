/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing NICs. Each file of golden/nics is a host, line by line:
 *
 *   device NAME distance N guid HEX [soft] [errno N]
 *   port NUMBER STATE LINK MBPS GID...            of the device above; - for no GID, v1/ before one
 *   choose RANK MAX FROM NICS => PORTS, or CODE and message
 *   why PORT => REASON                            after the last choose
 *   state PORT STATE, gid INDEX                   change the host, force an index
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

#define LINE_BYTES 1024

struct host {
	struct verbs_facts facts;
	uint32_t distances[16];
	struct verbs_settings settings;
	int choices;
};

static uint32_t distance(void *context, const struct verbs_device *device)
{
	struct host *host = context;

	return host->distances[device - host->facts.devices.items];
}

static void add_device(struct host *host, const char *line)
{
	struct verbs_device *device = array_push(&host->facts.devices);
	unsigned far;
	const char *at;

	assert_non_null(device);
	assert_int_equal(sscanf(line, "device %63s distance %u guid %lx", device->name, &far,
				&device->node_guid),
			 3);
	assert_true(host->facts.devices.count <= ARRAY_SIZE(host->distances));
	host->distances[host->facts.devices.count - 1] = far;
	device->soft = strstr(line, " soft") != NULL;
	if ((at = strstr(line, " errno ")))
		device->open_errno = atoi(at + 7);
}

static void add_gid(struct verbs_port *port, const char *word)
{
	struct verbs_gid *gid = array_push(&port->gids);
	bool v1 = strncmp(word, "v1/", 3) == 0;

	assert_non_null(gid);
	assert_int_equal(inet_pton(AF_INET6, v1 ? word + 3 : word, gid->raw), 1);
	gid->index = (uint32_t)port->gids.count - 1;
	gid->type = port->link == VERBS_LINK_INFINIBAND ? VERBS_GID_IB
		    : v1				? VERBS_GID_ROCE_V1
							: VERBS_GID_ROCE_V2;
	gid->prefix_bits = 24;
	snprintf(gid->netdev, sizeof(gid->netdev), "eth0");
}

static void add_port(struct host *host, const char *line)
{
	struct verbs_device *device;
	struct verbs_port *port;
	char link[16], words[256], *save = NULL;
	unsigned number;
	int read = 0;

	assert_true(host->facts.devices.count > 0);
	device = &host->facts.devices.items[host->facts.devices.count - 1];
	port = array_push(&device->ports);
	assert_non_null(port);
	assert_int_equal(sscanf(line, "port %u %15s %15s %lu %n", &number, port->state, link,
				&port->speed_mbps, &read),
			 4);
	port->number = (uint8_t)number;
	port->active = strcmp(port->state, "ACTIVE") == 0;
	port->link = strcmp(link, "ethernet") == 0     ? VERBS_LINK_ETHERNET
		     : strcmp(link, "infiniband") == 0 ? VERBS_LINK_INFINIBAND
						       : VERBS_LINK_UNKNOWN;
	snprintf(words, sizeof(words), "%s", line + read);
	for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
		if (strcmp(word, "-") != 0)
			add_gid(port, word);
}

static struct verbs_port *find_port(struct host *host, const char *name)
{
	for (size_t d = 0; d < host->facts.devices.count; d++) {
		struct verbs_device *device = &host->facts.devices.items[d];

		for (size_t p = 0; p < device->ports.count; p++) {
			char text[VERBS_NAME_BYTES + 16];

			snprintf(text, sizeof(text), "%s:%u", device->name,
				 device->ports.items[p].number);
			if (strcmp(text, name) == 0)
				return &device->ports.items[p];
		}
	}
	fail_msg("the file names %s, which it does not have", name);
	return NULL;
}

static const char *code_name(enum error_code code)
{
	return code == ERROR_CONFIG ? "CONFIG" : code == ERROR_UNSUPPORTED ? "UNSUPPORTED" : "?";
}

static void check_choice(struct host *host, const char *line)
{
	struct verbs_nic_choice out[8];
	struct error error = {0};
	struct text got = {0};
	char from[32], nics[256];
	unsigned rank, max;
	uint32_t count = 99;
	int read = 0;

	assert_int_equal(
		sscanf(line, "choose %u %u %31s %255s => %n", &rank, &max, from, nics, &read), 4);
	assert_true(read > 0);
	bool named = strcmp(nics, "-") != 0;

	snprintf(host->settings.nics, sizeof(host->settings.nics), "%s", named ? nics : "");
	host->settings.nics_from = named ? from : "";
	int rc = verbs_nics_choose(&host->facts, &host->settings, rank, distance, host, out, max,
				   &count, &error);

	assert_int_equal(rc, -(int)error.code);
	assert_true(count <= max);
	if (rc)
		text_format(&got, "%s %s", code_name(error.code), error.text);
	for (uint32_t i = 0; i < count; i++) {
		const struct verbs_device *device = &host->facts.devices.items[out[i].device];

		text_format(&got, "%s%s:%u", i ? " " : "", device->name,
			    device->ports.items[out[i].port].number);
		assert_string_equal(device->ports.items[out[i].port].rejected, "");
		assert_true(device->ports.items[out[i].port].gid >= 0);
		assert_int_equal(out[i].distance, distance(host, device));
	}
	assert_string_equal(text_string(&got), line + read);
	text_fini(&got);
	host->choices++;
}

static void check_reason(struct host *host, const char *line)
{
	char name[VERBS_NAME_BYTES];
	const char *reason = strstr(line, " =>");

	assert_int_equal(sscanf(line, "why %63s", name), 1);
	assert_non_null(reason);
	assert_string_equal(find_port(host, name)->rejected, reason[3] == ' ' ? reason + 4 : "");
}

static void change_state(struct host *host, const char *line)
{
	char name[VERBS_NAME_BYTES], state[16];

	assert_int_equal(sscanf(line, "state %63s %15s", name, state), 2);
	struct verbs_port *port = find_port(host, name);

	memcpy(port->state, state, sizeof(port->state));
	port->active = strcmp(state, "ACTIVE") == 0;
}

static void follow(struct host *host, const char *line)
{
	static const struct {
		const char *word;
		void (*act)(struct host *host, const char *line);
	} verbs[] = {{"device ", add_device}, {"port ", add_port},	{"choose ", check_choice},
		     {"why ", check_reason},  {"state ", change_state}, {"#", NULL}};

	if (strncmp(line, "gid ", 4) == 0) {
		host->settings.gid_index = atoi(line + 4);
		host->settings.gid_from = "WEFT_GID_INDEX";
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strncmp(line, verbs[i].word, strlen(verbs[i].word)) == 0) {
			if (verbs[i].act)
				verbs[i].act(host, line);
			return;
		}
	fail_msg("the file says '%s', which is no line", line);
}

static FILE *open_host(const char *name)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s/tests/unit/golden/nics/%s", getenv("WEFT_SOURCE_DIR"),
		 name);
	FILE *stream = fopen(path, "r");

	assert_non_null(stream);
	return stream;
}

static void test_hosts__each_process_gets_the_nics_that_the_file_says(void **unused)
{
	char path[1024], line[LINE_BYTES];
	struct dirent *entry;
	int files = 0;

	(void)unused;
	snprintf(path, sizeof(path), "%s/tests/unit/golden/nics", getenv("WEFT_SOURCE_DIR"));
	DIR *folder = opendir(path);

	assert_non_null(folder);
	while ((entry = readdir(folder))) {
		struct host host = {.settings.gid_index = -1};

		if (!strstr(entry->d_name, ".txt"))
			continue;
		print_message("  %s\n", entry->d_name);
		FILE *stream = open_host(entry->d_name);

		while (fgets(line, sizeof(line), stream)) {
			line[strcspn(line, "\n")] = '\0';
			follow(&host, line);
		}
		fclose(stream);
		verbs_facts_free(&host.facts);
		assert_true(host.choices > 0);
		files++;
	}
	closedir(folder);
	assert_int_equal(files, 13);
}

static void build_flat(struct host *host)
{
	memset(host, 0, sizeof(*host));
	host->settings.gid_index = -1;
	follow(host, "device mlx5_0 distance 4 guid 1");
	follow(host, "port 1 ACTIVE ethernet 100000 ::ffff:10.1.0.5");
	follow(host, "device mlx5_1 distance 4 guid 2");
	follow(host, "port 1 ACTIVE ethernet 100000 ::ffff:10.2.0.5");
}

static void test_memory__every_failing_allocation_is_an_error(void **unused)
{
	static const struct {
		const char *from, *nics;
	} rows[] = {{"", ""}, {"--nic", "mlx5_1,mlx5_0"}, {"--nic", "0=mlx5_1+mlx5_0"}};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct verbs_nic_choice out[8];
		struct host host;
		int failures = 0, rc;

		build_flat(&host);
		host.settings.nics_from = rows[i].from;
		snprintf(host.settings.nics, sizeof(host.settings.nics), "%s", rows[i].nics);
		for (uint64_t k = 1;; k++) {
			struct error error = {0};
			uint32_t count;

			memory_fail_at(k);
			rc = verbs_nics_choose(&host.facts, &host.settings, 0, distance, &host, out,
					       8, &count, &error);
			memory_fail_at(0);
			if (rc == 0) {
				assert_int_equal(count, 2);
				break;
			}
			assert_int_equal(rc, -ERROR_MEMORY);
			assert_int_equal(count, 0);
			failures++;
		}
		assert_true(failures > 0);
		verbs_facts_free(&host.facts);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts__each_process_gets_the_nics_that_the_file_says),
		cmocka_unit_test(test_memory__every_failing_allocation_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
