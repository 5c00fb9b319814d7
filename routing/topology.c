/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/topology.h"

#include "common/memory.h"
#include <inttypes.h>
#include <stdio.h>

void topology_free(struct topology **pointer)
{
	struct topology *topology = *pointer;

	if (!topology)
		return;
	*pointer = NULL;
	for (uint32_t h = 0; topology->hosts && h < topology->host_count; h++)
		memory_free(topology->hosts[h].name);
	for (uint32_t n = 0; topology->nics && n < topology->nic_count; n++)
		memory_free(topology->nics[n].name);
	memory_free(topology->hosts);
	memory_free(topology->nics);
	memory_free(topology->links);
	for (int role = 0; role < ROLE_COUNT; role++)
		memory_free(topology->ranks[role]);
	memory_free(topology);
}

static int add_flat_rank(struct topology *topology, enum role role, uint32_t rank)
{
	struct member member = {role, rank};
	uint32_t at = topology->host_count;
	char name[MEMBER_TEXT_BYTES];

	topology->hosts[at].name = memory_string(member_text(member, name));
	topology->nics[at] = (struct topology_nic){
		.name = memory_string(name),
		.host = at,
		.bytes_per_second = TOPOLOGY_FLAT_BYTES_PER_SECOND,
	};
	topology->links[at] = (struct topology_link){at, DISTANCE_PIX};
	topology->ranks[role][rank] = (struct topology_rank){at, at, 1, 1};
	topology->host_count = topology->nic_count = topology->link_count = at + 1;
	return topology->hosts[at].name && topology->nics[at].name ? 0 : -ERROR_MEMORY;
}

int topology_flat(struct topology **out, uint32_t trainers, uint32_t inference, struct error *error)
{
	struct topology *topology = memory_zalloc(1, sizeof(*topology));
	size_t count = (size_t)trainers + inference;
	int rc = 0;

	*out = NULL;
	if (!topology)
		return memory_error(error, "describing the cluster", sizeof(*topology));
	topology->flat = true;
	topology->rank_count[ROLE_TRAINER] = trainers;
	topology->rank_count[ROLE_INFERENCE] = inference;
	topology->hosts = memory_zalloc(count, sizeof(*topology->hosts));
	topology->nics = memory_zalloc(count, sizeof(*topology->nics));
	topology->links = memory_zalloc(count, sizeof(*topology->links));
	for (int role = 0; role < ROLE_COUNT; role++)
		topology->ranks[role] =
			memory_zalloc(topology->rank_count[role], sizeof(*topology->ranks[role]));
	if (!topology->hosts || !topology->nics || !topology->links ||
	    !topology->ranks[ROLE_TRAINER] || !topology->ranks[ROLE_INFERENCE])
		rc = -ERROR_MEMORY;
	for (int role = 0; !rc && role < ROLE_COUNT; role++)
		for (uint32_t r = 0; !rc && r < topology->rank_count[role]; r++)
			rc = add_flat_rank(topology, (enum role)role, r);
	if (rc) {
		topology_free(&topology);
		return memory_error(error, "describing the cluster",
				    count * sizeof(struct topology_nic));
	}
	*out = topology;
	return 0;
}

uint64_t topology_rank_rate(const struct topology *topology, enum role role, uint32_t rank)
{
	const struct topology_rank *place = &topology->ranks[role][rank];
	uint64_t rate = 0;

	for (uint32_t k = 0; k < place->used_count; k++)
		rate += topology->nics[topology->links[place->link_first + k].nic].bytes_per_second;
	return rate;
}
