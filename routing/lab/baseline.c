/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/baseline.h"

#include "base/pool.h"
#include "routing/lab/simulate_flows.h"
#include "routing/lab/simulate_wire.h"

/* ---- who sends what ---- */

/* The tensor's stage: that of the first trainer that holds any of it. heads[h] is the first
 * trainer of holding h. */
static uint32_t stage_of(const struct problem *problem, const uint32_t *heads, size_t tensor)
{
	uint32_t best = UINT32_MAX;

	for (size_t h = 0; h < problem->holding_count; h++) {
		const struct problem_holding *holding = &problem->holdings[h];

		if (holding->held_of[tensor] != holding->held_of[tensor + 1] && heads[h] < best)
			best = heads[h];
	}
	return best;
}

/* A bucket is full when the next tensor does not fit; a larger tensor has one of its own. */
static void fill_bucket(struct baseline *baseline, uint64_t *bucket, uint64_t bytes)
{
	if (!*bucket || *bucket + bytes > BASELINE_BUCKET_BYTES) {
		baseline->buckets++;
		*bucket = 0;
	}
	*bucket += bytes;
	baseline->receiver_bytes += bytes;
}

static int fill_buckets(struct baseline *baseline, const struct problem *problem,
			struct error *error)
{
	struct pool pool = {0};
	uint32_t *heads = pool_array(&pool, problem->holding_count, sizeof(*heads));
	uint64_t *bucket = pool_array(&pool, problem->trainer_count, sizeof(*bucket));

	if (!pool_ok(&pool)) {
		pool_free(&pool);
		return memory_error(error, "simulating a broadcast",
				    problem->trainer_count * sizeof(*bucket));
	}
	for (size_t h = 0; h < problem->holding_count; h++)
		heads[h] = UINT32_MAX;
	for (uint32_t t = problem->trainer_count; t-- > 0;)
		heads[problem->trainer_holding[t]] = t;
	for (size_t t = 0; t < problem->tensor_count; t++) {
		uint32_t stage = sim_wanted(problem, t) ? stage_of(problem, heads, t) : UINT32_MAX;

		if (stage == UINT32_MAX)
			continue;
		baseline->heads += bucket[stage] == 0;
		fill_bucket(baseline, &bucket[stage], problem->tensors[t].bytes);
	}
	pool_free(&pool);
	return 0;
}

/* ---- how fast ---- */

/* Of the slowed NICs and ranks, by role: the one that holds the ring back. */
static double slowest_rank(const struct wire_map *map, enum role role)
{
	const struct topology *topology = map->topology;
	double slowest = -1;

	for (uint32_t r = 0; r < topology->rank_count[role]; r++) {
		const struct topology_rank *place = &topology->ranks[role][r];
		double rate = 0;

		for (uint32_t k = 0; k < place->used_count; k++)
			rate += map->resources[2 * topology->links[place->link_first + k].nic]
					.bytes_per_second;
		if (map->slowed[role][r] &&
		    map->resources[map->slowed[role][r] - 1].bytes_per_second < rate)
			rate = map->resources[map->slowed[role][r] - 1].bytes_per_second;
		if (map->uplinks[place->host] &&
		    map->resources[map->uplinks[place->host] - 1].bytes_per_second < rate)
			rate = map->resources[map->uplinks[place->host] - 1].bytes_per_second;
		slowest = slowest < 0 || rate < slowest ? rate : slowest;
	}
	return slowest;
}

static int measure(struct baseline *baseline, const struct topology *topology,
		   const struct simulate_options *options, struct error *error)
{
	double gather = options->stage_bytes_per_second[STAGE_GATHER], from, to;
	struct wire_map map;
	int rc = wire_map_init(&map, topology, options, error);

	if (rc)
		return rc;
	from = slowest_rank(&map, ROLE_TRAINER);
	to = slowest_rank(&map, ROLE_INFERENCE);
	wire_map_fini(&map);
	baseline->slowest_bytes_per_second = from < to ? from : to;
	baseline->wire_seconds =
		(double)baseline->receiver_bytes / baseline->slowest_bytes_per_second;
	baseline->gather_seconds = gather > 0 ? (double)baseline->receiver_bytes / gather : 0;
	baseline->fixed_seconds = (double)baseline->buckets * BASELINE_FIXED_SECONDS;
	baseline->seconds =
		baseline->wire_seconds + baseline->gather_seconds + baseline->fixed_seconds;
	return 0;
}

int baseline_broadcast(struct baseline *baseline, const struct table *table,
		       const struct simulate_options *options, struct error *error)
{
	const struct problem *problem = table->problem;
	const struct topology *topology = table->topology;
	struct topology *flat = NULL;
	int rc = 0;

	*baseline = (struct baseline){0};
	if (!topology) {
		rc = topology_flat(&flat, problem->trainer_count, problem->inference_count, error);
		topology = flat;
	}
	if (!rc)
		rc = fill_buckets(baseline, problem, error);
	if (!rc)
		rc = measure(baseline, topology, options, error);
	topology_free(&flat);
	return rc;
}
