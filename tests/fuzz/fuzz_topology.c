/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text becomes a topology whose indexes all mean something, or an error; what is accepted is
 * written in one way, which is read as the same. Texts that are no file may be specs.
 */
#include "routing/plan/topology_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void check(const struct topology *topology)
{
	for (uint32_t n = 0; n < topology->nic_count; n++) {
		const struct topology_host *host = &topology->hosts[topology->nics[n].host];

		must(n >= host->nic_first && n < host->nic_first + host->nic_count);
		must(topology->nics[n].bytes_per_second && topology->nics[n].name[0]);
	}
	for (int role = 0; role < ROLE_COUNT; role++) {
		for (uint32_t r = 0; r < topology->rank_count[role]; r++) {
			const struct topology_rank *rank = &topology->ranks[role][r];

			must(rank->host < topology->host_count);
			must(rank->used_count && rank->used_count <= rank->link_count);
			must(rank->link_first + rank->link_count <= topology->link_count);
			for (uint32_t l = 0; l < rank->link_count; l++)
				must(topology->nics[topology->links[rank->link_first + l].nic]
					     .host == rank->host);
			must(topology_rank_rate(topology, (enum role)role, r) > 0);
		}
	}
}

static struct text written(const struct topology *topology)
{
	struct text text = {0};
	struct json json;

	json_to_text(&json, &text);
	topology_put(&json, topology);
	must(text_ok(&text));
	return text;
}

static void spec(const uint8_t *data, size_t size)
{
	struct topology *topology;
	struct error error = {0};
	char string[512];
	int rc;

	if (size >= sizeof(string))
		return;
	memcpy(string, data, size);
	string[size] = '\0';
	rc = topology_expand(&topology, string, 5, 3, &error);
	must(rc ? !topology && error.text[0] : topology != NULL);
	if (rc)
		return;
	check(topology);
	topology_free(&topology);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct topology *topology, *again;
	struct error error = {0};
	struct text first, second;
	int rc = topology_parse(&topology, (const char *)data, size, "fuzz", &error);

	if (rc) {
		must(!topology && rc < 0 && error.text[0]);
		spec(data, size);
		return 0;
	}
	check(topology);
	first = written(topology);
	must(topology_parse(&again, first.data, first.bytes, "fuzz", &error) == 0);
	second = written(again);
	must(strcmp(first.data, second.data) == 0);
	text_fini(&first);
	text_fini(&second);
	topology_free(&topology);
	topology_free(&again);
	return 0;
}
