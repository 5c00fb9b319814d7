/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/simulate_wire.h"

#include "base/memory.h"
#include <inttypes.h>

const char *slow_name(enum slow_what what)
{
	static const char *const names[SLOW_WHAT_COUNT] = {"nic", "trainer", "inference", "host"};

	return names[what];
}

void wire_map_fini(struct wire_map *map)
{
	memory_free(map->resources);
	pool_free(&map->pool);
	*map = (struct wire_map){0};
}

static uint32_t count_of(const struct topology *topology, enum slow_what what)
{
	const uint32_t counts[SLOW_WHAT_COUNT] = {
		topology->nic_count, topology->rank_count[ROLE_TRAINER],
		topology->rank_count[ROLE_INFERENCE], topology->host_count};

	return counts[what];
}

static int check(const struct topology *topology, const char *flag, enum slow_what what,
		 uint32_t index, struct error *error)
{
	static const char *const plural[SLOW_WHAT_COUNT] = {"NICs", "trainers", "inference ranks",
							    "hosts"};
	uint32_t count = count_of(topology, what);

	if (index < count)
		return 0;
	return error_set(error, ERROR_USAGE,
			 "%s %s=%" PRIu32 ": there are %" PRIu32 " %s, counted from 0", flag,
			 slow_name(what), index, count, plural[what]);
}

static int check_all(const struct topology *topology, const struct simulate_options *options,
		     struct error *error)
{
	int rc = 0;

	for (size_t s = 0; !rc && s < options->slow_count; s++)
		rc = check(topology, "--slow", options->slow[s].what, options->slow[s].index,
			   error);
	if (!rc && options->failure)
		rc = check(topology, "--fail", options->failure->what, options->failure->index,
			   error);
	return rc;
}

/* ---- resources ---- */

static uint32_t add(struct wire_map *map, enum wire wire, uint32_t index, uint64_t rate)
{
	map->resources[map->count] = (struct wire_resource){
		.wire = wire, .index = index, .bytes_per_second = (double)rate};
	return ++map->count; /* its index + 1 */
}

static void add_links(struct wire_map *map)
{
	const struct topology *topology = map->topology;

	for (uint32_t n = 0; n < topology->nic_count; n++) {
		add(map, WIRE_NIC_SEND, n, topology->nics[n].bytes_per_second);
		add(map, WIRE_NIC_RECEIVE, n, topology->nics[n].bytes_per_second);
	}
	for (uint32_t h = 0; h < topology->host_count; h++) {
		uint64_t rate = topology->hosts[h].uplink_bytes_per_second;

		if (!rate)
			continue;
		map->uplinks[h] = add(map, WIRE_UPLINK_OUT, h, rate);
		add(map, WIRE_UPLINK_IN, h, rate);
	}
}

static void slow_rank(struct wire_map *map, enum role role, uint32_t rank, double factor)
{
	map->stage_factor[role][rank] *= factor;
	if (!map->slowed[role][rank])
		map->slowed[role][rank] =
			add(map, role == ROLE_TRAINER ? WIRE_TRAINER : WIRE_INFERENCE, rank,
			    topology_rank_rate(map->topology, role, rank));
	map->resources[map->slowed[role][rank] - 1].bytes_per_second *= factor;
}

static void slow_nic(struct wire_map *map, uint32_t nic, double factor)
{
	map->resources[2 * nic].bytes_per_second *= factor;
	map->resources[2 * nic + 1].bytes_per_second *= factor;
}

/* A slow host: its NICs, its uplink, and the stages of its ranks. */
static void slow_host(struct wire_map *map, uint32_t host, double factor)
{
	const struct topology *topology = map->topology;

	for (uint32_t n = 0; n < topology->nic_count; n++)
		if (topology->nics[n].host == host)
			slow_nic(map, n, factor);
	if (map->uplinks[host])
		for (uint32_t way = 0; way < 2; way++)
			map->resources[map->uplinks[host] - 1 + way].bytes_per_second *= factor;
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t r = 0; r < topology->rank_count[role]; r++)
			if (topology->ranks[role][r].host == host)
				map->stage_factor[role][r] *= factor;
}

static void apply(struct wire_map *map, const struct slow *slow)
{
	switch (slow->what) {
	case SLOW_NIC:
		slow_nic(map, slow->index, slow->factor);
		break;
	case SLOW_HOST:
		slow_host(map, slow->index, slow->factor);
		break;
	default:
		slow_rank(map, slow->what == SLOW_TRAINER ? ROLE_TRAINER : ROLE_INFERENCE,
			  slow->index, slow->factor);
	}
}

static int allocate(struct wire_map *map, size_t slow_count)
{
	const struct topology *topology = map->topology;
	size_t most = 2 * ((size_t)topology->nic_count + topology->host_count) + slow_count;

	map->resources = memory_zalloc(most, sizeof(*map->resources));
	map->uplinks = pool_array(&map->pool, topology->host_count, sizeof(*map->uplinks));
	map->nic_lost = pool_array(&map->pool, topology->nic_count, sizeof(*map->nic_lost));
	for (int role = 0; role < ROLE_COUNT; role++) {
		uint32_t ranks = topology->rank_count[role], used = 0;

		map->slowed[role] = pool_array(&map->pool, ranks, sizeof(uint32_t));
		map->stage_factor[role] = pool_array(&map->pool, ranks, sizeof(double));
		for (uint32_t r = 0; pool_ok(&map->pool) && r < ranks; r++) {
			map->stage_factor[role][r] = 1;
			if (topology->ranks[role][r].used_count > used)
				used = topology->ranks[role][r].used_count;
		}
		map->path_max += used + 2; /* an uplink, a slowed rank */
	}
	return pool_ok(&map->pool) && map->resources ? 0 : -ERROR_MEMORY;
}

int wire_map_init(struct wire_map *map, const struct topology *topology,
		  const struct simulate_options *options, struct error *error)
{
	int rc = check_all(topology, options, error);

	*map = (struct wire_map){.topology = topology};
	if (rc)
		return rc;
	if (allocate(map, options->slow_count)) {
		wire_map_fini(map);
		return memory_error(error, "simulating",
				    2 * topology->nic_count * sizeof(*map->resources));
	}
	add_links(map);
	for (size_t s = 0; s < options->slow_count; s++)
		apply(map, &options->slow[s]);
	return 0;
}

/* ---- paths ---- */

static const struct topology_link *links_of(const struct wire_map *map, enum role role,
					    uint32_t rank, uint32_t *count)
{
	const struct topology_rank *place = &map->topology->ranks[role][rank];

	*count = place->used_count;
	return map->topology->links + place->link_first;
}

bool wire_rank_lost(const struct wire_map *map, enum role role, uint32_t rank)
{
	uint32_t count;
	const struct topology_link *links = links_of(map, role, rank, &count);

	for (uint32_t k = 0; k < count; k++)
		if (!map->nic_lost[links[k].nic])
			return false;
	return true;
}

static void scale(struct fluid_load *path, uint32_t from, uint32_t to)
{
	double sum = 0;

	for (uint32_t i = from; i < to; i++)
		sum += path[i].share;
	for (uint32_t i = from; i < to; i++)
		path[i].share /= sum;
}

/* The first working NIC of the rank on a rail; NULL: none. */
static const struct topology_nic *on_rail(const struct wire_map *map,
					  const struct topology_link *links, uint32_t count,
					  uint32_t rail, uint32_t *nic)
{
	for (uint32_t k = 0; k < count; k++) {
		*nic = links[k].nic;
		if (!map->nic_lost[*nic] && map->topology->nics[*nic].rail == rail)
			return &map->topology->nics[*nic];
	}
	return NULL;
}

/* Sender's NIC and receiver's NIC of each rail that both have; 0: no rail meets. */
static uint32_t rail_path(const struct wire_map *map, const struct topology_link *from,
			  uint32_t from_count, const struct topology_link *to, uint32_t to_count,
			  struct fluid_load *path)
{
	uint32_t count = 0;
	double sum = 0;

	for (uint32_t k = 0; k < from_count; k++) {
		const struct topology_nic *own = &map->topology->nics[from[k].nic], *other;
		uint32_t nic, first;

		if (map->nic_lost[from[k].nic] ||
		    on_rail(map, from, from_count, own->rail, &first) != own)
			continue; /* one NIC a rail */
		other = on_rail(map, to, to_count, own->rail, &nic);
		if (!other)
			continue;
		double share = (double)(own->bytes_per_second < other->bytes_per_second
						? own->bytes_per_second
						: other->bytes_per_second);

		path[count++] = (struct fluid_load){2 * from[k].nic, share};
		path[count++] = (struct fluid_load){2 * nic + 1, share};
		sum += share;
	}
	for (uint32_t i = 0; i < count; i++)
		path[i].share /= sum;
	return count;
}

static uint32_t side_path(const struct wire_map *map, const struct topology_link *links,
			  uint32_t count, uint32_t way, struct fluid_load *path, uint32_t at)
{
	uint32_t from = at;

	for (uint32_t k = 0; k < count; k++)
		if (!map->nic_lost[links[k].nic])
			path[at++] = (struct fluid_load){
				2 * links[k].nic + way,
				(double)map->topology->nics[links[k].nic].bytes_per_second};
	scale(path, from, at);
	return at;
}

uint32_t wire_path(const struct wire_map *map, uint32_t trainer, uint32_t inference,
		   struct fluid_load *path)
{
	const struct topology *topology = map->topology;
	uint32_t from_host = topology->ranks[ROLE_TRAINER][trainer].host;
	uint32_t to_host = topology->ranks[ROLE_INFERENCE][inference].host;
	uint32_t from_count, to_count, at;
	const struct topology_link *from = links_of(map, ROLE_TRAINER, trainer, &from_count);
	const struct topology_link *to = links_of(map, ROLE_INFERENCE, inference, &to_count);

	at = rail_path(map, from, from_count, to, to_count, path);
	if (!at) {
		at = side_path(map, from, from_count, 0, path, 0);
		at = side_path(map, to, to_count, 1, path, at);
	}
	if (from_host != to_host && map->uplinks[from_host])
		path[at++] = (struct fluid_load){map->uplinks[from_host] - 1, 1};
	if (from_host != to_host && map->uplinks[to_host])
		path[at++] = (struct fluid_load){map->uplinks[to_host], 1};
	if (map->slowed[ROLE_TRAINER][trainer])
		path[at++] = (struct fluid_load){map->slowed[ROLE_TRAINER][trainer] - 1, 1};
	if (map->slowed[ROLE_INFERENCE][inference])
		path[at++] = (struct fluid_load){map->slowed[ROLE_INFERENCE][inference] - 1, 1};
	return at;
}
