/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/limits.h"

#include "base/memory.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NONE BOUND_NO_LIMIT

/* NICs that ranks of this side use together, directly or through others. */
struct clusters {
	uint32_t *root;	 /* by NIC: union-find */
	uint32_t *first; /* by root: the first rank that uses it */
	uint32_t *users; /* by root */
	uint32_t *limit; /* by root */
	bool *used;	 /* by NIC */
	bool *mixed;	 /* by root */
};

static uint32_t root_of(uint32_t *root, uint32_t nic)
{
	while (root[nic] != nic)
		nic = root[nic] = root[root[nic]];
	return nic;
}

static const struct topology_rank *place_of(const struct limits *limits, uint32_t rank)
{
	return &limits->topology->ranks[limits->role][rank];
}

static uint32_t nic_of(const struct limits *limits, const struct topology_rank *place, uint32_t k)
{
	return limits->topology->links[place->link_first + k].nic;
}

static bool same_nics(const struct limits *limits, const struct topology_rank *a,
		      const struct topology_rank *b)
{
	if (a->used_count != b->used_count)
		return false;
	for (uint32_t k = 0; k < a->used_count; k++) /* links are sorted */
		if (nic_of(limits, a, k) != nic_of(limits, b, k))
			return false;
	return true;
}

static void make_clusters(struct limits *limits, struct clusters *c)
{
	uint32_t ranks = limits->topology->rank_count[limits->role];

	for (uint32_t n = 0; n < limits->topology->nic_count; n++)
		c->root[n] = n;
	for (uint32_t r = 0; r < ranks; r++) {
		const struct topology_rank *place = place_of(limits, r);

		for (uint32_t k = 0; k < place->used_count; k++) {
			uint32_t nic = nic_of(limits, place, k);

			c->used[nic] = true;
			c->root[root_of(c->root, nic)] = root_of(c->root, nic_of(limits, place, 0));
		}
	}
	for (uint32_t r = 0; r < ranks; r++) {
		const struct topology_rank *place = place_of(limits, r);
		uint32_t root = root_of(c->root, nic_of(limits, place, 0));

		if (c->users[root]++ == 0)
			c->first[root] = r;
		else if (!same_nics(limits, place, place_of(limits, c->first[root])))
			c->mixed[root] = limits->mixed = true;
	}
}

static uint32_t add_limit(struct limits *limits, enum limit_kind kind, uint32_t index,
			  uint64_t rate)
{
	limits->items[limits->count] = (struct bound_limit){.rate = rate, .parent = NONE};
	limits->what[limits->count] = (struct limit_what){kind, index};
	return limits->count++;
}

/* Leaves of mixed ranks first, then NICs, then uplinks: each before its parent. */
static void add_limits(struct limits *limits, struct clusters *c)
{
	const struct topology *topology = limits->topology;
	uint32_t ranks = topology->rank_count[limits->role];

	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t root = root_of(c->root, nic_of(limits, place_of(limits, r), 0));

		if (c->mixed[root])
			limits->of[r] = add_limit(limits, LIMITS_RANK, r,
						  topology_rank_rate(topology, limits->role, r));
	}
	for (uint32_t n = 0; n < topology->nic_count; n++) {
		uint32_t root = root_of(c->root, n);

		if (!c->used[n])
			continue;
		if (c->limit[root] == NONE)
			c->limit[root] = c->users[root] == 1
						 ? add_limit(limits, LIMITS_RANK, c->first[root], 0)
						 : add_limit(limits, LIMITS_NICS, n, 0);
		limits->items[c->limit[root]].rate += topology->nics[n].bytes_per_second;
	}
	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t host = place_of(limits, r)->host;
		uint32_t root = root_of(c->root, nic_of(limits, place_of(limits, r), 0));
		uint64_t rate = topology->hosts[host].uplink_bytes_per_second;

		if (rate && limits->uplink_of[host] == NONE)
			limits->uplink_of[host] = add_limit(limits, LIMITS_UPLINK, host, rate);
		limits->items[c->limit[root]].parent = limits->uplink_of[host];
		if (c->mixed[root])
			limits->items[limits->of[r]].parent = c->limit[root];
		else
			limits->of[r] = c->limit[root];
	}
}

static int check_rates(const struct limits *limits, struct error *error)
{
	uint64_t total = 0;

	for (uint32_t l = 0; l < limits->count; l++)
		if (__builtin_add_overflow(total, limits->items[l].rate, &total) ||
		    total >= UINT64_C(1) << 62)
			return error_set(error, ERROR_LIMIT,
					 "the NICs and uplinks of the cluster's %" PRIu32
					 " limits are together faster than 2^62 bytes a second",
					 limits->count);
	return 0;
}

int limits_of(struct limits *limits, const struct topology *topology, enum role role,
	      struct error *error)
{
	uint32_t nics = topology->nic_count, ranks = topology->rank_count[role];
	size_t most = (size_t)ranks * 2 + topology->host_count;
	struct pool pool = {0};
	struct clusters c = {
		.root = pool_array(&pool, nics, sizeof(*c.root)),
		.first = pool_array(&pool, nics, sizeof(*c.first)),
		.users = pool_array(&pool, nics, sizeof(*c.users)),
		.limit = pool_array(&pool, nics, sizeof(*c.limit)),
		.used = pool_array(&pool, nics, sizeof(*c.used)),
		.mixed = pool_array(&pool, nics, sizeof(*c.mixed)),
	};
	int rc = 0;

	*limits = (struct limits){.topology = topology, .role = role};
	limits->items = pool_array(&limits->pool, most, sizeof(*limits->items));
	limits->what = pool_array(&limits->pool, most, sizeof(*limits->what));
	limits->of = pool_array(&limits->pool, ranks, sizeof(*limits->of));
	limits->uplink_of =
		pool_array(&limits->pool, topology->host_count, sizeof(*limits->uplink_of));
	if (!pool_ok(&pool) || !pool_ok(&limits->pool)) {
		rc = memory_error(error, "listing the limits of the cluster",
				  sizeof(struct bound_limit));
	} else {
		memset(c.limit, 0xff, nics * sizeof(*c.limit));
		memset(limits->uplink_of, 0xff, topology->host_count * sizeof(*limits->uplink_of));
		make_clusters(limits, &c);
		add_limits(limits, &c);
		rc = check_rates(limits, error);
	}
	pool_free(&pool);
	if (rc)
		limits_fini(limits);
	return rc;
}

void limits_fini(struct limits *limits)
{
	pool_free(&limits->pool);
	*limits = (struct limits){0};
}

/* All NICs that ranks behind this limit use, in the topology's order. */
static void nics_text(const struct limits *limits, uint32_t limit, char *out)
{
	const struct topology *topology = limits->topology;
	const struct topology_nic *first = &topology->nics[limits->what[limit].index];
	const struct topology_host *host = &topology->hosts[first->host];
	uint32_t found = 0;
	size_t at = 0;
	char list[LIMITS_TEXT_BYTES] = "";

	for (uint32_t n = host->nic_first; n < host->nic_first + host->nic_count; n++) {
		bool used = false;

		for (uint32_t r = 0; r < topology->rank_count[limits->role] && !used; r++) {
			const struct topology_rank *place = place_of(limits, r);
			uint32_t to = limits->of[r];

			if (to != limit && limits->items[to].parent != limit)
				continue;
			for (uint32_t k = 0; k < place->used_count && !used; k++)
				used = nic_of(limits, place, k) == n;
		}
		if (used && at < sizeof(list))
			at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s",
					       found++ ? ", " : "", topology->nics[n].name);
	}
	snprintf(out, LIMITS_TEXT_BYTES, "%s %.*s of host %.*s", found == 1 ? "NIC" : "NICs", 100,
		 list, 100, host->name);
}

char *limit_text(const struct limits *limits, uint32_t limit, char out[LIMITS_TEXT_BYTES])
{
	const struct limit_what *what = &limits->what[limit];
	char member[MEMBER_TEXT_BYTES];

	if (what->kind == LIMITS_RANK)
		snprintf(out, LIMITS_TEXT_BYTES, "%s",
			 member_text((struct member){limits->role, what->index}, member));
	else if (what->kind == LIMITS_UPLINK)
		snprintf(out, LIMITS_TEXT_BYTES, "uplink of host %.*s", 200,
			 limits->topology->hosts[what->index].name);
	else
		nics_text(limits, limit, out);
	return out;
}
