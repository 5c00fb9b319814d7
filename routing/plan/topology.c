/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/topology.h"

#include "base/compare.h"
#include <assert.h>
#include <string.h>

void topology_free(struct topology **pointer)
{
	struct topology *topology = *pointer;

	if (!topology)
		return;
	*pointer = NULL;
	memory_free(topology->hosts);
	memory_free(topology->nics);
	memory_free(topology->links);
	pool_free(&topology->pool);
	memory_free(topology);
}

/* ---- building ---- */

int topology_new(struct topology **out, uint32_t trainers, uint32_t inference, struct error *error)
{
	struct topology *topology = memory_zalloc(1, sizeof(*topology));

	*out = topology;
	if (!topology)
		return memory_error(error, "describing the cluster", sizeof(*topology));
	topology->rank_count[ROLE_TRAINER] = trainers;
	topology->rank_count[ROLE_INFERENCE] = inference;
	for (int role = 0; role < ROLE_COUNT; role++) {
		size_t count = topology->rank_count[role];

		topology->ranks[role] =
			pool_array(&topology->pool, count, sizeof(struct topology_rank));
		if (!topology->ranks[role]) {
			topology_free(out);
			return memory_error(error, "describing the cluster",
					    count * sizeof(struct topology_rank));
		}
	}
	return 0;
}

/* Room for one more: lists double at 8, 16, 32 .. items, so their capacity needs no field. */
static int grow(void **items, uint32_t count, size_t size, struct error *error)
{
	size_t wanted = count ? (size_t)count * 2 : 8;
	void *grown;

	if (count && (count < 8 || (count & (count - 1))))
		return 0;
	grown = memory_resize(*items, wanted, size);
	if (!grown)
		return memory_error(error, "describing the cluster", wanted * size);
	*items = grown;
	return 0;
}

int topology_add_host(struct topology *topology, const char *name, uint64_t uplink,
		      struct error *error)
{
	int rc = grow((void **)&topology->hosts, topology->host_count, sizeof(*topology->hosts),
		      error);
	char *copy = rc ? NULL : pool_string(&topology->pool, name);

	if (!copy)
		return rc ? rc : memory_error(error, "describing the cluster", strlen(name));
	topology->hosts[topology->host_count++] = (struct topology_host){
		.name = copy,
		.uplink_bytes_per_second = uplink,
		.nic_first = topology->nic_count,
	};
	return 0;
}

int topology_add_nic(struct topology *topology, const char *name, uint32_t rail,
		     uint64_t bytes_per_second, struct error *error)
{
	int rc =
		grow((void **)&topology->nics, topology->nic_count, sizeof(*topology->nics), error);
	char *copy = rc ? NULL : pool_string(&topology->pool, name);

	assert(topology->host_count && bytes_per_second);
	if (!copy)
		return rc ? rc : memory_error(error, "describing the cluster", strlen(name));
	topology->nics[topology->nic_count++] = (struct topology_nic){
		.name = copy,
		.host = topology->host_count - 1,
		.rail = rail,
		.bytes_per_second = bytes_per_second,
	};
	topology->hosts[topology->host_count - 1].nic_count++;
	return 0;
}

void topology_place(struct topology *topology, enum role role, uint32_t rank, uint32_t host)
{
	assert(rank < topology->rank_count[role] && host < topology->host_count);
	topology->ranks[role][rank] = (struct topology_rank){
		.host = host,
		.link_first = topology->link_count,
	};
}

int topology_add_link(struct topology *topology, enum role role, uint32_t rank, uint32_t nic,
		      enum nic_distance distance, struct error *error)
{
	struct topology_rank *place = &topology->ranks[role][rank];
	int rc = grow((void **)&topology->links, topology->link_count, sizeof(*topology->links),
		      error);

	assert(nic < topology->nic_count);
	assert(place->link_first + place->link_count == topology->link_count);
	if (rc)
		return rc;
	topology->links[topology->link_count++] = (struct topology_link){nic, distance};
	place->link_count++;
	return 0;
}

static int by_distance(const void *x, const void *y)
{
	const struct topology_link *a = x, *b = y;

	return compare_u64(a->distance, b->distance) ?: compare_u64(a->nic, b->nic);
}

static void finish_rank(struct topology_link *links, struct topology_rank *rank)
{
	assert(rank->link_count);
	sort_items(links, rank->link_count, by_distance);
	rank->used_count = 1;
	while (rank->used_count < rank->link_count &&
	       links[rank->used_count].distance == links[0].distance)
		rank->used_count++;
}

void topology_finish(struct topology *topology)
{
	for (int role = 0; role < ROLE_COUNT; role++) {
		for (uint32_t r = 0; r < topology->rank_count[role]; r++) {
			struct topology_rank *rank = &topology->ranks[role][r];

			finish_rank(topology->links + rank->link_first, rank);
		}
	}
}

/* ---- flat ---- */

static int add_flat_rank(struct topology *topology, enum role role, uint32_t rank,
			 struct error *error)
{
	uint32_t at = topology->host_count;
	char name[MEMBER_TEXT_BYTES];
	int rc;

	member_text((struct member){role, rank}, name);
	rc = topology_add_host(topology, name, 0, error);
	if (!rc)
		rc = topology_add_nic(topology, name, 0, TOPOLOGY_FLAT_BYTES_PER_SECOND, error);
	if (rc)
		return rc;
	topology_place(topology, role, rank, at);
	return topology_add_link(topology, role, rank, at, DISTANCE_PIX, error);
}

int topology_flat(struct topology **out, uint32_t trainers, uint32_t inference, struct error *error)
{
	int rc = topology_new(out, trainers, inference, error);

	for (int role = 0; !rc && role < ROLE_COUNT; role++)
		for (uint32_t r = 0; !rc && r < (*out)->rank_count[role]; r++)
			rc = add_flat_rank(*out, (enum role)role, r, error);
	if (rc) {
		topology_free(out);
		return rc;
	}
	(*out)->flat = true;
	topology_finish(*out);
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
