/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_cluster.c -- the topology that the workers report, for --topology workers:
 *
 *   workers of one host_id        ── a host, in the order of its first rank; trainers first
 *   NICs they name                ── the host's, each once, by (rail, name)
 *   a worker without a NIC (shm)  ── gets one of its own, of the flat rate
 *
 * A worker sends through every NIC it reports (--nic may name far ones), and in a topology a
 * rank uses the nearest: so where its distances differ, all of them count as the farthest.
 */
#include "controller/epoch.h"

#include "base/assert.h"
#include "base/compare.h"
#include <stdio.h>
#include <string.h>

#define NONE UINT32_MAX

struct found {
	const char *name; /* borrowed from a declaration, or from `own` */
	uint32_t rail;
	uint64_t rate;
};

struct host {
	uint32_t first, last; /* parties, chained by next */
};

struct gathering {
	const struct epoch *epoch;
	struct topology *topology;
	struct pool pool;	  /* owns what is by party */
	uint32_t *host_of, *next; /* by party: its host, the next there */
	ARRAY(struct host) hosts;
	ARRAY(struct found) nics;	/* of the host at hand */
	char (*own)[MEMBER_TEXT_BYTES]; /* by party: the NIC of a worker without one */
	uint32_t without;		/* such workers */
	struct strmap names;		/* of hosts, owned by the topology */
};

/* A worker that does not say where it runs is on a host of its own. */
static int find_hosts(struct gathering *gathering)
{
	const struct epoch *epoch = gathering->epoch;
	struct strmap known = {0};
	int rc = 0;

	for (uint32_t i = 0; !rc && i < epoch->count; i++) {
		const char *id = epoch->parties[i].worker->hello.host_id;
		bool named = id && id[0];
		uint32_t host;

		gathering->next[i] = NONE;
		if (named && strmap_get(&known, id, &host)) {
			gathering->next[gathering->hosts.items[host].last] = i;
			gathering->hosts.items[host].last = i;
		} else {
			host = (uint32_t)gathering->hosts.count;
			if (!array_add(&gathering->hosts, (struct host){i, i}) ||
			    (named && !strmap_put(&known, id, host)))
				rc = -ERROR_MEMORY;
		}
		gathering->host_of[i] = host;
	}
	strmap_fini(&known);
	return rc;
}

/* Two workers may see one NIC at two speeds while it renegotiates: the lower is safe. */
static int add_found(struct gathering *gathering, const char *name, uint32_t rail, uint64_t rate)
{
	for (size_t n = 0; n < gathering->nics.count; n++) {
		struct found *nic = &gathering->nics.items[n];

		if (strcmp(nic->name, name) != 0)
			continue;
		nic->rate = rate < nic->rate ? rate : nic->rate;
		return 0;
	}
	return array_add(&gathering->nics, (struct found){name, rail, rate}) ? 0 : -ERROR_MEMORY;
}

static int find_nics(struct gathering *gathering, uint32_t party)
{
	const struct worker *from = gathering->epoch->parties[party].worker;
	int rc = 0;

	for (size_t n = 0; !rc && n < from->declare.nic_count; n++) {
		const struct nic_report *nic = &from->declare.nics[n];

		rc = add_found(gathering, nic->name, nic->rail,
			       nic->bytes_per_second ? nic->bytes_per_second
						     : TOPOLOGY_FLAT_BYTES_PER_SECOND);
	}
	if (from->declare.nic_count)
		return rc;
	gathering->without += !gathering->epoch->parties[party].away;
	return add_found(gathering, member_text(from->who, gathering->own[party]), 0,
			 TOPOLOGY_FLAT_BYTES_PER_SECOND);
}

static int by_rail(const void *x, const void *y)
{
	const struct found *a = x, *b = y;

	return compare_u64(a->rail, b->rail) ?: strcmp(a->name, b->name);
}

/* The name that its workers give the host; two hosts of one name are told apart by a rank. */
static int add_host(struct gathering *gathering, uint32_t party, struct error *error)
{
	const struct worker *first = gathering->epoch->parties[party].worker;
	struct topology *topology = gathering->topology;
	uint32_t host = topology->host_count, other;
	char name[LIMIT_NAME_BYTES], who[MEMBER_TEXT_BYTES];
	int rc;

	member_text(first->who, who);
	snprintf(name, sizeof(name), "%s",
		 first->hello.host && first->hello.host[0] ? first->hello.host : who);
	for (uint32_t turn = 2; strmap_get(&gathering->names, name, &other); turn++)
		snprintf(name, sizeof(name), "%.400s (%s, %u)",
			 first->hello.host ? first->hello.host : "", who, turn);
	rc = topology_add_host(topology, name, 0, error);
	if (!rc && !strmap_put(&gathering->names, topology->hosts[host].name, host))
		rc = -ERROR_MEMORY;
	return rc;
}

static int fill_host(struct gathering *gathering, uint32_t host, struct error *error)
{
	int rc = 0;

	gathering->nics.count = 0;
	for (uint32_t i = gathering->hosts.items[host].first; !rc && i != NONE;
	     i = gathering->next[i])
		rc = find_nics(gathering, i);
	if (!rc)
		rc = add_host(gathering, gathering->hosts.items[host].first, error);
	if (!rc && gathering->nics.count > TOPOLOGY_HOST_NICS_MAX)
		rc = error_set(error, ERROR_LIMIT,
			       "the workers of host %.200s report %zu NICs, the limit is %u: run "
			       "with --topology flat",
			       gathering->topology->hosts[host].name, gathering->nics.count,
			       TOPOLOGY_HOST_NICS_MAX);
	if (!rc)
		sort_items(gathering->nics.items, gathering->nics.count, by_rail);
	for (size_t n = 0; !rc && n < gathering->nics.count; n++) {
		const struct found *nic = &gathering->nics.items[n];

		rc = topology_add_nic(gathering->topology, nic->name, nic->rail, nic->rate, error);
	}
	return rc;
}

static uint32_t find_nic(const struct topology *topology, const struct topology_host *host,
			 const char *name)
{
	uint32_t nic = host->nic_first;

	while (strcmp(topology->nics[nic].name, name) != 0) {
		nic++; /* it was added with this host */
		WEFT_ASSERT_OP(nic, <, host->nic_first + host->nic_count);
	}
	return nic;
}

static int place(struct gathering *gathering, uint32_t party, struct error *error)
{
	const struct worker *from = gathering->epoch->parties[party].worker;
	const struct message_declare *declare = &from->declare;
	struct topology *topology = gathering->topology;
	const struct topology_host *host = &topology->hosts[gathering->host_of[party]];
	enum nic_distance farthest = DISTANCE_PIX;
	int rc = 0;

	topology_place(topology, from->who.role, from->who.rank, gathering->host_of[party]);
	if (declare->nic_count == 0)
		return topology_add_link(topology, from->who.role, from->who.rank,
					 find_nic(topology, host, gathering->own[party]),
					 DISTANCE_PIX, error);
	for (size_t n = 0; n < declare->nic_count; n++)
		if (declare->nics[n].distance > farthest)
			farthest = declare->nics[n].distance;
	for (size_t n = 0; !rc && n < declare->nic_count; n++)
		rc = topology_add_link(topology, from->who.role, from->who.rank,
				       find_nic(topology, host, declare->nics[n].name), farthest,
				       error);
	return rc;
}

static int gather(struct gathering *gathering, struct error *error)
{
	const struct epoch *epoch = gathering->epoch;
	int rc = topology_new(&gathering->topology, epoch->trainers, epoch->count - epoch->trainers,
			      error);

	gathering->host_of = pool_array(&gathering->pool, epoch->count, sizeof(uint32_t));
	gathering->next = pool_array(&gathering->pool, epoch->count, sizeof(uint32_t));
	gathering->own = pool_array(&gathering->pool, epoch->count, sizeof(*gathering->own));
	if (!rc && !pool_ok(&gathering->pool))
		rc = -ERROR_MEMORY;
	if (!rc)
		rc = find_hosts(gathering);
	for (uint32_t h = 0; !rc && h < gathering->hosts.count; h++)
		rc = fill_host(gathering, h, error);
	for (uint32_t i = 0; !rc && i < epoch->count; i++)
		rc = place(gathering, i, error);
	if (!rc)
		topology_finish(gathering->topology);
	return rc;
}

int epoch_cluster(struct topology **topology, const struct epoch *epoch, struct actions *actions,
		  struct error *error)
{
	struct gathering gathering = {.epoch = epoch};
	int rc = gather(&gathering, error);

	if (!rc && gathering.without)
		action_log(actions, false,
			   "%u of %u workers report no NIC: each counts as having one of %.4g Gb/s",
			   gathering.without, epoch->count,
			   (double)TOPOLOGY_FLAT_BYTES_PER_SECOND * 8 / 1e9);
	pool_free(&gathering.pool);
	array_free(&gathering.hosts);
	array_free(&gathering.nics);
	strmap_fini(&gathering.names);
	if (rc)
		topology_free(&gathering.topology);
	*topology = gathering.topology;
	return rc;
}
